//! The path of one call: in over HTTP, through the queue, out as one bounded result.

use crate::asked::{SOON, failed, fleet, ok};
use serde_json::{Value, json};
use toolfleet_proto::bound;
use toolfleet_tests::{Fleet, call_name, subjects, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_runs_once_and_comes_back_as_it_was() {
    let fleet = Fleet::builder().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let text = r#"{"input": {"n": 12345678901234567890.10, "z": 1, "a": [true, null]}}"#;
    let answer = http.post_text("/v1/tools/bench-echo/call", text.into()).await.unwrap();
    let body = ok(&answer);
    // The digits and the order of the keys, which a parsed number and a sorted map would lose.
    let echoed = r#""result":{"n":12345678901234567890.10,"z":1,"a":[true,null]}"#;
    assert!(answer.text.contains(echoed), "{}", answer.text);
    assert_eq!(body["toolName"], "bench-echo");
    assert_eq!((&body["attempts"], &body["isResultTruncated"]), (&json!(1), &json!(false)));
    assert_eq!(body["replayed"], false);
    for key in ["executionId", "call", "callId", "idempotencyKey"] {
        assert!(body[key].as_str().is_some_and(|text| !text.is_empty()), "{key}: {body}");
    }
    for key in ["queueMs", "durationMs"] {
        assert!(body[key].as_u64().is_some_and(|ms| ms < 30_000), "{key}: {body}");
    }

    let name = call_name(body).unwrap();
    assert_eq!(fleet.results_of(&name).await.unwrap(), 1);
    let stored = fleet.result(&name).await.unwrap();
    assert_eq!((stored.code.as_str(), stored.attempts), ("ok", 1));
    let jobs = fleet.broker().prefix().jobs_stream();
    until("the job is acknowledged", SOON, async || {
        subjects(fleet.broker(), &jobs, ">").await.ok()?.is_empty().then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_gets_its_input_and_its_names_and_answers() {
    let fleet = Fleet::builder()
        .exec_tool(
            "greet",
            "effect = \"read\"\n[input]\ntype = \"object\"\nrequired = [\"name\"]\n\
             properties.name = { type = \"string\" }\nproperties.polite = { type = \"boolean\", default = true }",
            "cat; printf '|%s|%s' \"$TOOLFLEET_EXECUTION_ID\" \"$TOOLFLEET_ATTEMPT\"",
        )
        .exec_tool("fails", "effect = \"read\"", "echo 'no luck today' >&2; exit 3")
        .start()
        .await
        .unwrap();
    let http = fleet.http(0).unwrap();
    let answer = http.call_as("greet", "exec-1", "c1", json!({"name": "Zoë"})).await.unwrap();
    let body = ok(&answer);
    assert_eq!(body["text"], "{\"name\":\"Zoë\",\"polite\":true}|exec-1|1");
    assert_eq!(body["result"], body["text"]);
    assert_eq!(body["call"], "main:direct:c1");
    assert_eq!(body["idempotencyKey"], "exec-1:main:direct:c1");

    let answer = http.call("fails", json!({})).await.unwrap();
    let body = failed(&answer, "tool_error");
    assert_eq!(body["text"], "Tool error: exited with code 3: no luck today");
    assert_eq!(body["attempts"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_result_is_cut_and_a_panic_stays_its_own() {
    let fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    for bytes in [3_999_usize, 4_000, 4_001, 4_002, 100_000] {
        let answer = http.call("big", json!({ "bytes": bytes })).await.unwrap();
        let body = ok(&answer);
        let whole = format!("{}{}", "\u{20ac}".repeat(bytes / 3), "x".repeat(bytes % 3));
        let bounded = bound::bound(&whole, 4_000);
        assert_eq!(body["text"].as_str(), Some(bounded.text.as_str()), "{bytes} bytes");
        assert_eq!(body["isResultTruncated"], bounded.is_truncated, "{bytes} bytes");
        assert_eq!(bounded.is_truncated, bytes > 4_000);
    }
    let pid = fleet.workers[0].pid();
    let answer = http.call("panicker", json!({})).await.unwrap();
    let body = failed(&answer, "tool_error");
    let text = body["text"].as_str().unwrap();
    assert_eq!(text, "Tool error: the tool panicked: this tool always panics");
    let answer = http.call("nap", json!({"ms": 1})).await.unwrap();
    assert_eq!(ok(&answer)["result"], 1);
    let running = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::test_kill_process(running).expect("the worker is still the same process");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_names_pass_the_broker_and_are_read_back() {
    let fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let hostile = [
        "a.b.c",
        "*",
        ">",
        "a.*.>",
        "with space\tand tab",
        "Zoë 日本 🦀",
        "=2E%3A:",
        "x/y?z#1&t=2",
        "$JS.API.>",
        "line\nbreak",
        "-",
        "../..",
    ];
    for (number, id) in hostile.into_iter().enumerate() {
        let input = json!({ "number": number });
        let answer = http.call_as("bench-echo", id, id, input.clone()).await.unwrap();
        let body = ok(&answer);
        assert_eq!((&body["executionId"], &body["callId"]), (&json!(id), &json!(id)));
        assert_eq!(body["result"], input);
        let name = call_name(body).unwrap();
        assert_eq!(name.parts(), ["main", "direct", id]);
        assert_eq!(fleet.results_of(&name).await.unwrap(), 1, "{id:?}");

        let read = http.read_call(id, &name.call, 0).await.unwrap();
        assert_eq!(read.status, 200, "{id:?}: {}", read.text);
        assert_eq!(read.body["state"], "done", "{id:?}: {}", read.text);
        assert_eq!(read.body["result"], input, "{id:?}");
    }
    // Nobody has read another's result: every subject is a call of its own.
    let results = fleet.broker().prefix().results_stream();
    let stored = subjects(fleet.broker(), &results, ">").await.unwrap();
    assert_eq!(stored.len(), hostile.len());
    assert!(stored.values().all(|count| *count == 1), "{stored:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_catalogue_is_complete_and_stable() {
    let fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let first = http.get("/v1/tools").await.unwrap();
    assert_eq!((first.status, &first.body["format"]), (200, &json!("native")));
    let tools = first.body["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, ["bench-echo", "big", "nap", "nap-write", "panicker", "spender", "ticker"]);
    let nap = &tools[2];
    assert_eq!((&nap["effect"], &nap["pool"]), (&json!("read"), &json!("default")));
    assert_eq!((&nap["timeoutMs"], &nap["maxAttempts"]), (&json!(30_000), &json!(3)));
    assert_eq!(nap["resultBytesMax"], 131_072);
    assert_eq!(nap["inputSchema"]["required"], json!(["ms"]));
    assert_eq!(tools[3]["effect"], "write");
    assert!(tools.iter().all(|tool| tool["hash"].as_str().is_some_and(|hash| hash.len() == 64)));
    assert_eq!(first.body["nextCursor"], Value::Null);

    let second = http.get("/v1/tools").await.unwrap();
    assert_eq!(first.text, second.text, "prompt caches depend on equal bytes");
    let tag = first.headers.get("etag").expect("an ETag").clone();
    let again = http.request(reqwest::Method::GET, "/v1/tools").header("if-none-match", tag);
    let again = http.send(again).await.unwrap();
    assert_eq!((again.status, again.text.as_str()), (304, ""));
}
