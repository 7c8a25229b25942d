//! Refusals, probes and metrics of the API.

use crate::asked::{SOON, failed, fleet, message, ok, problem};
use crate::conversation::{codes, contents};
use reqwest::Method;
use serde_json::json;
use toolfleet_tests::{Answer, subjects, until};

const CALL: &str = "/v1/tools/nap/call";
const CALL_ECHO: &str = "/v1/tools/bench-echo/call";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_web_page_could_send_is_refused() {
    let fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let body = r#"{"input": {"ms": 1}}"#;
    let post = || http.request(Method::POST, CALL).body(body);
    for media_type in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx"] {
        let answer = http.send(post().header("content-type", media_type)).await.unwrap();
        problem(&answer, 415, "media_type_unsupported");
    }
    problem(&http.send(post()).await.unwrap(), 415, "media_type_unsupported");

    let json = || post().header("content-type", "application/json");
    for host in ["evil.example", "localhost.evil.example:80", "10.0.0.1"] {
        let answer = http.send(json().header("host", host)).await.unwrap();
        problem(&answer, 403, "host_forbidden");
        let list = http.request(Method::GET, "/v1/tools").header("host", host);
        problem(&http.send(list).await.unwrap(), 403, "host_forbidden");
    }
    for origin in ["http://evil.example", "null", "https://127.0.0.1.evil.example"] {
        let answer = http.send(json().header("origin", origin)).await.unwrap();
        problem(&answer, 403, "origin_forbidden");
    }
    for origin in ["http://localhost:3000", "http://127.0.0.1:1"] {
        ok(&http.send(json().header("origin", origin)).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_faulty_call_is_refused_before_anything_is_queued() {
    let fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let refused = async |body: &str| http.post_text(CALL, body.to_owned()).await.unwrap();
    for (input, issue) in [
        (r"{}", "ms: required, but missing"),
        (r#"{"ms":"5"}"#, "ms: expected integer, got string \"5\""),
        (r#"{"ms":5,"deep":1}"#, "deep: not a known property"),
        (r#"{"ms":5,"ledger":7}"#, "ledger: expected null or string, got number 7"),
    ] {
        let answer = refused(&format!("{{\"input\":{input}}}")).await;
        let body = problem(&answer, 400, "invalid_input");
        assert_eq!(body["detail"], format!("invalid input: {issue}"), "{input}");
    }
    let both = refused(r#"{"input":{"ms":"5","ledger":7}}"#).await;
    let detail = problem(&both, 400, "invalid_input")["detail"].as_str().unwrap();
    assert_eq!(detail.matches("; ").count(), 1, "both issues in one text: {detail}");
    for text in [r#"{"input": {"ms": 1,}}"#, "", "[", r#"{"inputs": {}}"#] {
        assert_eq!(refused(text).await.status, 400, "{text:?}");
    }

    let unknown = http.call("nab", json!({})).await.unwrap();
    let detail = problem(&unknown, 404, "tool_not_found")["detail"].as_str().unwrap();
    assert!(detail.contains("nap"), "near names are told: {detail}");
    problem(&http.get("/v1/nothing").await.unwrap(), 404, "path_not_found");
    problem(&http.get(CALL).await.unwrap(), 405, "method_not_allowed");

    let long = "x".repeat(129);
    let answer = http.call_as("nap", &long, "c", json!({"ms": 1})).await.unwrap();
    let detail = problem(&answer, 422, "id_invalid")["detail"].as_str().unwrap();
    assert!(detail.contains("129") && detail.contains("128"), "{detail}");

    for stream in ["TF_V1_JOBS", "TF_V1_RESULTS", "TF_V1_STARTS"] {
        let found = subjects(fleet.broker(), stream, ">").await.unwrap();
        assert!(found.is_empty(), "{stream} is not empty: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_and_arguments_have_a_size() {
    let fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let padded = |bytes: usize| format!("{{\"input\":{{\"p\":\"{}\"}}}}", "x".repeat(bytes));
    let answer = http.post_text(CALL_ECHO, padded(4 * 1024 * 1024)).await.unwrap();
    problem(&answer, 413, "body_too_large");
    let answer = http.post_text(CALL_ECHO, padded(256 * 1024)).await.unwrap();
    let detail = problem(&answer, 400, "invalid_input")["detail"].as_str().unwrap();
    assert!(detail.contains("262,144") || detail.contains("262144"), "{detail}");
    let answer = http.post_text(CALL_ECHO, padded(100 * 1024)).await.unwrap();
    assert_eq!(ok(&answer)["isResultTruncated"], false);
}

/// Each refusal names the limit and what was handed in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_ids_and_nesting_have_bounds() {
    let fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let detail = |answer: &Answer, code: &str| {
        problem(answer, 422, code)["detail"].as_str().unwrap().to_owned()
    };
    let many: Vec<String> = (0..129).map(|position| format!("c{position}")).collect();
    let calls: Vec<_> = many.iter().map(|id| (id.as_str(), "bench-echo", "{}")).collect();
    let told = detail(&http.turn("e", "t", &message(&calls)).await.unwrap(), "too_many_calls");
    assert!(told.contains("129") && told.contains("128"), "{told}");
    let long = "x".repeat(129);
    let calls = [(long.as_str(), "bench-echo", "{}")];
    for (execution, turn, asked) in [
        ("e", "t", message(&calls)),
        ("e", long.as_str(), message(&calls[..0])),
        (long.as_str(), "t", message(&calls[..0])),
    ] {
        let told = detail(&http.turn(execution, turn, &asked).await.unwrap(), "id_invalid");
        assert!(told.contains("129") && told.contains("128"), "{told}");
    }
    // Deep arguments are the call's own fault, however deep they are; its siblings go on.
    let deep =
        |levels: usize| format!("{{\"a\":{}1{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1));
    let (edge, over, abyss) = (deep(64), deep(65), deep(20_000));
    let asked = message(&[
        ("a", "bench-echo", &edge),
        ("b", "bench-echo", &over),
        ("c", "bench-echo", &abyss),
    ]);
    let answer = http.turn("e", "t", &asked).await.unwrap();
    assert_eq!(codes(&answer), ["", "invalid_input", "invalid_input"], "{}", answer.text);
    for text in &contents(&answer)[1..] {
        assert!(text.contains("nested deeper than 64 levels"), "{text}");
    }
    let direct = http.post_text(CALL_ECHO, format!("{{\"input\":{abyss}}}")).await.unwrap();
    let told = problem(&direct, 400, "invalid_input")["detail"].as_str().unwrap();
    assert!(told.contains("nested deeper than 64 levels"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_and_metrics_are_on_the_admin_address() {
    let fleet = fleet().start().await.unwrap();
    let (http, admin) = (fleet.http(0).unwrap(), fleet.admin(0).unwrap());
    ok(&http.call("nap", json!({"ms": 1})).await.unwrap());
    failed(&http.call("panicker", json!({})).await.unwrap(), "tool_error");
    for probe in ["/livez", "/readyz", "/startupz"] {
        let answer = admin.get(probe).await.unwrap();
        assert_eq!(answer.status, 200, "{probe}: {}", answer.text);
    }
    let page = admin.get("/metrics").await.unwrap();
    assert_eq!(page.status, 200);
    let submitted =
        page.text.lines().find(|line| line.starts_with("toolfleet_jobs_submitted_total{"));
    let submitted = submitted.unwrap_or_else(|| panic!("{}", page.text));
    assert!(submitted.contains("pool=\"default\"") && submitted.ends_with(" 2"), "{submitted}");
    for secret in ["executionId", "main:direct"] {
        assert!(!page.text.contains(secret), "ids are no labels: {}", page.text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_counts_what_it_finished() {
    let fleet = fleet().env("TOOLFLEET_WORKER__ADMIN_LISTEN", "127.0.0.1:0").start().await.unwrap();
    let http = fleet.http(0).unwrap();
    for _ in 0..3 {
        ok(&http.call("nap", json!({"ms": 1})).await.unwrap());
    }
    failed(&http.call("panicker", json!({})).await.unwrap(), "tool_error");
    let admin = fleet.worker_admin(0).unwrap();
    let is_ready = async || (admin.get("/readyz").await.ok()?.status == 200).then_some(());
    until("the worker is ready", SOON, is_ready).await.unwrap();
    // Counted after the acknowledgement, which an answer does not wait for.
    let page = until("the last call is counted", SOON, async || {
        let page = admin.get("/metrics").await.ok()?.text;
        let is_counted = |line: &str| {
            line.starts_with("toolfleet_jobs_finished_total{") && line.contains("\"tool_error\"")
        };
        page.lines().any(is_counted).then_some(page)
    });
    let page = page.await.unwrap();
    let finished = |tool: &str, outcome: &str| {
        page.lines()
            .filter(|line| line.starts_with("toolfleet_jobs_finished_total{"))
            .find(|line| {
                line.contains(&format!("\"{tool}\"")) && line.contains(&format!("\"{outcome}\""))
            })
            .and_then(|line| line.rsplit(' ').next())
            .map(str::to_owned)
    };
    assert_eq!(finished("nap", "ok").as_deref(), Some("3"), "{page}");
    assert_eq!(finished("panicker", "tool_error").as_deref(), Some("1"), "{page}");
}
