//! The command line: what it prints, and how it ends.

use crate::asked::fleet;
use serde_json::{Value, json};
use std::process::Output;
use tokio::process::Command;
use toolfleet_tests::{Fleet, TOOLFLEET, binary, clean_environment};

/// Runs the command line to its end.
pub async fn toolfleet(args: &[&str], env: &[(&str, &str)]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(binary(TOOLFLEET).unwrap());
    clean_environment(&mut command);
    command.args(args).envs(env.iter().copied()).current_dir(dir.path()).kill_on_drop(true);
    let output = tokio::time::timeout(crate::asked::SOON, command.output());
    output.await.expect("the command ends in time").unwrap()
}

#[track_caller]
pub fn check(output: &Output, code: i32) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "stdout: {out}\nstderr: {err}");
    (out, err)
}

fn server(fleet: &Fleet) -> String {
    fleet.http(0).unwrap().base().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_prints_its_result_and_its_end_is_its_exit_code() {
    let fleet = fleet()
        .exec_tool("fails", "effect = \"read\"", "echo 'no luck' >&2; exit 3")
        .start()
        .await
        .unwrap();
    let server = server(&fleet);
    let call = async |args: &[&str]| {
        let all = [&["call"], args, &["--server", &server]].concat();
        toolfleet(&all, &[]).await
    };
    let (out, _) = check(&call(&["bench-echo", "--input", r#"{"n":1.50}"#]).await, 0);
    assert!(out.contains(r#"{"n":1.50}"#), "{out}");
    let (out, _) = check(&call(&["bench-echo", "--input", r#"{"n":1}"#, "--json"]).await, 0);
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&answer["ok"], &answer["result"]), (&json!(true), &json!({"n": 1})), "{out}");

    let (out, err) = check(&call(&["fails", "--input", "{}"]).await, 1);
    assert!(format!("{out}{err}").contains("exited with code 3: no luck"), "{out}{err}");
    let (out, _) = check(&call(&["fails", "--input", "{}", "--json"]).await, 1);
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&answer["ok"], &answer["code"]), (&json!(false), &json!("tool_error")), "{out}");

    let (out, err) = check(&call(&["nap", "--input", r#"{"ms":"soon"}"#]).await, 1);
    let said = format!("{out}{err}");
    let expected = "invalid input: ms: expected integer, got string \"soon\"";
    assert!(said.contains(expected), "{said}");
    let (out, err) = check(&call(&["no-such-tool", "--input", "{}"]).await, 1);
    assert!(format!("{out}{err}").contains("no-such-tool"), "{out}{err}");
    check(&call(&["nap", "--input", "not json"]).await, 2);
    check(&call(&["nap", "--no-such-flag"]).await, 2);

    let list = toolfleet(&["tools"], &[("TOOLFLEET_SERVER", server.as_str())]).await;
    let (out, _) = check(&list, 0);
    for name in ["bench-echo", "fails", "nap", "nap-write"] {
        assert!(out.contains(name), "{name} is not listed: {out}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_that_is_not_there_is_said_to_be_so() {
    // Nobody serves there: the port is a privileged one.
    let server = "http://127.0.0.1:1";
    let output = toolfleet(&["call", "nap", "--input", "{}", "--server", server], &[]).await;
    let (_, err) = check(&output, 69);
    assert!(err.contains("127.0.0.1:1"), "the address is named: {err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_is_shown_or_refused_whole() {
    let shown = toolfleet(&["config", "show"], &[("TOOLFLEET_NATS__URL", "nats://there:1")]).await;
    let (out, _) = check(&shown, 0);
    assert!(out.contains("nats://there:1"), "{out}");
    let faulty = [
        ("TOOLFLEET_LIMITS__DRAIN", "30 parsecs"),
        ("TOOLFLEET_FLEET__PREFIX", "a b"),
        ("TOOLFLEET_LIMITS__LEASE_TTL", "soon"),
    ];
    for args in [&["config", "show"][..], &["serve", "--listen", "127.0.0.1:0"][..]] {
        let (_, err) = check(&toolfleet(args, &faulty).await, 78);
        for key in ["limits.drain", "fleet.prefix", "limits.lease_ttl"] {
            assert!(err.contains(key), "{key} is not named: {err}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_span_without_a_unit_is_a_fault_among_the_others() {
    let (_, err) = check(
        &toolfleet(
            &["config", "show"],
            &[("TOOLFLEET_LIMITS__DRAIN", "30"), ("TOOLFLEET_LIMITS__LEASE_TTL", "soon")],
        )
        .await,
        78,
    );
    for part in ["limits.drain", "limits.lease_ttl", "10s"] {
        assert!(err.contains(part), "{part} is missing in: {err}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_authentication_only_loopback_is_listened_on() {
    let open = toolfleet(&["serve", "--listen", "0.0.0.0:0"], &[]).await;
    let (_, err) = check(&open, 78);
    assert!(err.contains("loopback"), "{err}");
}
