//! Tools called on this machine, without a fleet: `toolfleet-worker test`, `toolfleet call --dir`, and
//! the library's helper with the example tools.

use crate::asked::SOON;
use crate::cli::check;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use toolfleet_tests::{TOOLFLEET, WORKER, binary, clean_environment, until};
use toolfleet_worker::testing::{OutputCheck, TestRun, TestTool};

/// A folder of tools, and one for scratch.
struct Place {
    tools: TempDir,
    scratch: TempDir,
}

impl Place {
    fn new() -> Place {
        Place { tools: tempfile::tempdir().unwrap(), scratch: tempfile::tempdir().unwrap() }
    }

    /// A tool: the keys of its manifest beside `description` and `[run]`, and its shell script.
    fn tool(self, name: &str, keys: &str, script: &str) -> Place {
        let path = |end: &str| self.tools.path().join(format!("{name}{end}"));
        let manifest = format!("description = \"D\"\n{keys}\n[run]\nexec = [\"./{name}.sh\"]\n");
        fs::write(path(".toml"), manifest).unwrap();
        fs::write(path(".sh"), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path(".sh"), fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(binary(program).unwrap());
        clean_environment(&mut command);
        command.args(args).env("TOOLFLEET_WORKER__SCRATCH_DIR", self.scratch.path());
        command.current_dir(self.scratch.path()).kill_on_drop(true);
        command
    }

    async fn run(&self, program: &str, args: &[&str]) -> Output {
        let output = self.command(program, args).output();
        tokio::time::timeout(SOON, output).await.expect("it ends in time").unwrap()
    }

    /// `toolfleet-worker test` with the tools of this place.
    async fn test(&self, args: &[&str]) -> Output {
        let tools = self.tools.path().to_str().unwrap();
        self.run(WORKER, &[&["test", "--tools", tools], args].concat()).await
    }
}

/// A tool that says something on every channel.
fn talker() -> Place {
    Place::new().tool(
        "talk",
        "effect = \"read\"\ntimeout = \"5s\"\nmax_result_size = \"1KB\"\nsecrets = [\"TALK_TOKEN\"]\n\
         [input]\ntype = \"object\"\nrequired = [\"n\"]\nproperties.n = { type = \"integer\" }\n\
         properties.word = { type = \"string\", default = \"hi\" }\n\
         [output]\ntype = \"object\"\nrequired = [\"got\"]",
        "printf '{\"type\":\"spend\",\"service\":\"bank\",\"amount\":\"0.350\",\"currency\":\"EUR\"}\\n' >&3\n\
         echo 'a warning' >&2\nprintf '{\"got\": %s, \"token\": \"%s\", \"execution\": \"%s\"}' \
         \"$(cat)\" \"$TALK_TOKEN\" \"$TOOLFLEET_EXECUTION_ID\"",
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_is_run_and_shown_whole() {
    let place = talker();
    let secrets = place.tools.path().join("secrets");
    fs::create_dir(&secrets).unwrap();
    fs::write(secrets.join("TALK_TOKEN"), "s3cret\n").unwrap();
    let tools = place.tools.path().to_str().unwrap();
    let args = ["test", "talk", "--input", r#"{"n":12345678901234567890}"#, "--tools", tools];
    let run = async |more: &[&str]| {
        let mut command = place.command(WORKER, &[&args[..], more].concat());
        command.env("TOOLFLEET_WORKER__SECRETS_DIR", &secrets).output().await.unwrap()
    };
    let (out, _) = check(&run(&[]).await, 0);
    let given = r#"{"n":12345678901234567890,"word":"hi"}"#;
    let whole = format!(r#"{{"got":{given},"token":"s3cret","execution":"test"}}"#);
    for part in [
        "talk: read, exec, timeout 5 s, bound 1,024 bytes, hash ",
        &format!("input: fits; the tool gets:\n  {given}\n"),
        "run: ended with code 0, ",
        "standard error, its end:\n  a warning\n",
        "fits the output schema",
        "spend: 0.35 EUR to bank",
        &format!("the model reads:\n  {whole}"),
    ] {
        assert!(out.contains(part), "{part} is not in\n{out}");
    }
    let (out, _) = check(&run(&["--json"]).await, 0);
    let shown: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&shown["ok"], &shown["code"]), (&json!(true), &Value::Null), "{out}");
    assert!(out.contains(&format!("\"given\":{given}")), "digits stay: {out}");
    assert_eq!(shown["run"]["exit"], "code 0");
    assert_eq!(shown["run"]["stderr"], "a warning");
    assert_eq!(shown["output"]["check"], "fits");
    assert_eq!(shown["model"]["text"], json!(whole));
    assert_eq!(shown["spend"][0]["amount"], "0.35");
    assert_eq!(fs::read_dir(place.scratch.path()).unwrap().count(), 0, "nothing is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_model_would_read_of_a_failure_is_shown() {
    let place = talker()
        .tool("fails", "effect = \"read\"", "echo 'no luck' >&2; exit 3")
        .tool("slow", "timeout = \"200ms\"", "sleep 60")
        .tool("lies", "effect = \"read\"\n[output]\ntype = \"string\"", "echo '{}'")
        .tool("long", "effect = \"read\"\nmax_result_size = \"10KB\"", "yes word | head -c 20000");
    let cases: [(&[&str], &str, &str); 7] = [
        (
            &["talk", "--input", r#"{"n":"5"}"#],
            "invalid_input",
            "Tool error: invalid input: n: expected integer, got string \"5\"",
        ),
        (
            &["talk", "--input", r#"{"n":5,}"#],
            "invalid_input",
            "Tool error: invalid input: not valid JSON",
        ),
        (
            &["talk", "--input", r#"{"n":5}"#],
            "tool_error",
            "Tool error: the secret TALK_TOKEN is not on this worker",
        ),
        (&["fails"], "tool_error", "Tool error: exited with code 3: no luck"),
        (
            &["slow"],
            "timed_out",
            "Tool error: timed out after 200 ms; it may have taken effect, check before calling it again",
        ),
        (&["lies"], "invalid_output", "Tool error: invalid output: expected string"),
        (&["long"], "", "word"),
    ];
    for (args, code, text) in cases {
        let output = place.test(&[args, &["--json"]].concat()).await;
        let (out, _) = check(&output, i32::from(!code.is_empty()));
        let shown: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(shown["code"].as_str().unwrap_or_default(), code, "{out}");
        let reads = shown["model"]["text"].as_str().unwrap();
        assert!(reads.starts_with(text), "{args:?}: {reads}");
        if code.is_empty() {
            assert!(
                reads.ends_with("[result truncated: 20,000 bytes, the first 10,239 kept]"),
                "{reads}"
            );
            assert_eq!(shown["output"]["text"].as_str().unwrap().len(), 20_000);
        }
    }
    assert_eq!(fs::read_dir(place.scratch.path()).unwrap().count(), 0, "nothing is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_and_faults_have_their_exit_codes() {
    let place = talker();
    let (_, err) = check(&place.test(&["tlak"]).await, 2);
    assert!(err.contains("unknown tool \"tlak\"; on offer: talk, bench-echo"), "{err}");
    let (_, err) = check(&place.test(&["talk", "--input", "@no-such-file"]).await, 2);
    assert!(err.contains("no-such-file"), "{err}");
    fs::write(place.tools.path().join("bad.toml"), "timeout = 10\n").unwrap();
    let (_, err) = check(&place.test(&["talk"]).await, 78);
    for code in ["manifest.missing", "units.missing"] {
        assert!(err.contains(code), "all faults are told: {err}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_calls_without_a_fleet() {
    let place = Place::new().tool("echo", "effect = \"read\"", "cat");
    let tools = place.tools.path().to_str().unwrap();
    let file = place.tools.path().join("in.txt");
    fs::write(&file, r#"{"from": "a file"}"#).unwrap();
    let from_file = format!("@{}", file.display());
    for args in [
        ["call", "echo", "--dir", tools, "--input", &from_file, "--json"],
        ["test", "echo", "--tools", tools, "--input", &from_file, "--json"],
    ] {
        let (out, _) = check(&place.run(TOOLFLEET, &args).await, 0);
        let shown: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(shown["model"]["text"], r#"{"from":"a file"}"#, "{out}");
    }
    let args = ["call", "echo", "--dir", tools, "--input", "-"];
    let mut child = place
        .command(TOOLFLEET, &args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"{\"from\":\"standard input\"}").await.unwrap();
    drop(stdin);
    let (out, _) = check(&child.wait_with_output().await.unwrap(), 0);
    assert!(out.ends_with("the model reads:\n  {\"from\":\"standard input\"}\n"), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_binary_of_ones_own_tests_its_rust_tools() {
    let run = async |tool: &str, input: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_test-worker"));
        clean_environment(&mut command);
        command.args(["test", tool, "--input", input, "--json"]).output().await.unwrap()
    };
    let (out, _) = check(&run("spender", r#"{"ms":1}"#).await, 0);
    let shown: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&shown["runner"], &shown["model"]["text"]),
        (&json!("native"), &json!("1")),
        "{out}"
    );
    let amounts: Vec<&str> = shown["spend"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["amount"].as_str())
        .collect();
    assert_eq!(amounts, ["0.0025", "1.000000001", "12"]);
    let (out, _) = check(&run("panicker", "{}").await, 1);
    assert!(out.contains("Tool error: the tool panicked: this tool always panics"), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_test_leaves_nothing_behind() {
    let place = Place::new().tool(
        "slow",
        "effect = \"read\"",
        "sleep 60 & echo $! >&2; echo up > \"$TMPDIR/up\"; wait",
    );
    let tools = place.tools.path().to_str().unwrap();
    let mut command = place.command(WORKER, &["test", "slow", "--tools", tools, "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    until("the tool runs", SOON, async || {
        let attempt = fs::read_dir(place.scratch.path()).ok()?.next()?.ok()?;
        attempt.path().join("scratch/up").exists().then_some(())
    })
    .await
    .unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = tokio::time::timeout(SOON, child.wait_with_output()).await.unwrap().unwrap();
    let (out, _) = check(&output, 1);
    let shown: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&shown["code"], &shown["model"]["text"]),
        (&json!("cancelled"), &json!("Tool error: interrupted"))
    );
    let sleeper: i32 = shown["run"]["stderr"].as_str().unwrap().parse().unwrap();
    until("its child is gone", SOON, async || {
        let stat = fs::read_to_string(format!("/proc/{sleeper}/stat")).unwrap_or_default();
        // One that nobody has reaped yet is dead all the same.
        let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
        (state.is_empty() || state.starts_with('Z')).then_some(())
    })
    .await
    .unwrap();
    assert_eq!(fs::read_dir(place.scratch.path()).unwrap().count(), 0, "nothing is left");
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples/tools")
}

async fn example(name: &str, input: Value) -> TestRun {
    let guard = binary(WORKER).unwrap().with_file_name("toolfleet-guard");
    TestTool::from_folder(&examples(), name, &guard).unwrap().call(input).run().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_examples_do_what_they_say() {
    let run = example("weather", json!({"city": "Oslo", "days": 2})).await;
    assert!(run.is_ok(), "{run:?}");
    assert_eq!(run.output_check, OutputCheck::Fits);
    assert_eq!(run.structured.unwrap()["days"].as_array().unwrap().len(), 2);
    let run = example("weather", json!({"city": "Atlantis", "days": 2})).await;
    assert_eq!(run.code, Some("tool_error"), "{run:?}");
    assert!(run.process.unwrap().stderr.contains("only Lisbon, Oslo and Kyoto"));
    let run = example("pay-invoice", json!({"invoice": "INV-7", "amount": "120.00"})).await;
    let spent: Vec<(&str, &str)> =
        run.spend.iter().map(|spent| (spent.amount.as_str(), spent.currency.as_str())).collect();
    assert_eq!(spent, [("0.35", "EUR")], "{run:?}");
    let run = example("pay-invoice", json!({"invoice": "7", "amount": "1"})).await;
    assert!(run.input.unwrap_err().starts_with("invalid input: invoice: "));
}
