//! Executions that change nothing: reads run, everything else is answered in the tool's place. And
//! effects that depend on the call.

use crate::asked::{SOON, fleet, message, ok, problem};
use crate::conversation::{answered, codes, contents, create, noting, post_turn, read};
use serde_json::{Value, json};
use toolfleet_tests::{Builder, Fleet, OtlpSink, SinkSpan, until};

const ID: &str = "[output]\ntype = \"object\"\nrequired = [\"id\"]";

fn with(builder: Builder, name: &str, keys: &str, body: &str) -> Builder {
    builder.exec_tool(name, keys, &noting(name, body))
}

/// One tool for each way to answer a dry run.
fn tools() -> Builder {
    let builder = fleet().coordinators(2);
    let builder = with(builder, "peek", "effect = \"read\"", "printf \"$TOOLFLEET_DRY_RUN\"");
    let keys = format!("effect = \"write\"\ndry_run_result = {{ id = 0, state = \"paid\" }}\n{ID}");
    let builder = with(builder, "pay", &keys, "printf '{\"id\":7}'");
    let keys =
        "effect = \"idempotent\"\ndry_run_result = { expr = \"'would ship ' + input.what\" }";
    let builder = with(builder, "ship", keys, "printf shipped");
    let builder = with(builder, "drop", "", "printf dropped");
    let keys = format!("dry_run_result = {{ expr = \"{{'name': input.what}}\" }}\n{ID}");
    let builder = with(builder, "odd", &keys, "printf '{\"id\":1}'");
    let keys = "dry_run_result = { expr = \"input.missing\" }";
    with(builder, "mute", keys, "printf said")
}

fn starts(fleet: &Fleet, tool: &str) -> usize {
    fleet.ledger(tool).starts().len()
}

fn stubbed(calls: &Value) -> Vec<bool> {
    let calls = calls.as_array().unwrap();
    calls.iter().map(|call| call["stubbed"] == json!(true)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_runs_reads_and_answers_the_rest() {
    let sink = OtlpSink::start().await;
    let fleet = tools()
        .env("TOOLFLEET_TELEMETRY__OTLP_ENDPOINT", sink.url())
        .env("OTEL_BSP_SCHEDULE_DELAY", "100")
        .start()
        .await
        .unwrap();
    let (first, second) = (fleet.http(0).unwrap(), fleet.http(1).unwrap());
    create(&first, json!({"id": "e", "dryRun": true})).await;
    assert_eq!(read(&second, "e").await["dryRun"], true);
    let what = "{\"what\":\"tea\"}";
    let asked = message(&[
        ("a", "peek", "{}"),
        ("b", "pay", "{\"cents\":5}"),
        ("c", "ship", what),
        ("d", "drop", "{}"),
        ("e", "odd", what),
        ("f", "mute", "{}"),
    ]);
    let answer = first.turn("e", "t", &asked).await.unwrap();
    let texts = contents(&answer);
    assert_eq!(
        texts[..5],
        [
            "true",
            "{\"id\":0,\"state\":\"paid\"}",
            "would ship tea",
            "Operation acknowledged.",
            "Tool error: invalid output: id: required, but missing",
        ]
    );
    let nothing = "Tool error: dry run: `dry_run_result` of the tool gives nothing: no such key";
    assert!(texts[5].starts_with(nothing), "{}", texts[5]);
    assert_eq!(codes(&answer), ["", "", "", "", "invalid_output", "tool_error"]);
    let calls = &answer.body["calls"];
    assert_eq!(stubbed(calls), [false, true, true, true, true, true], "{calls}");
    for (position, attempts) in [(0, 1), (1, 0), (3, 0)] {
        assert_eq!(calls[position]["attempts"], attempts, "{calls}");
        assert_eq!(calls[position]["traceId"], calls[0]["traceId"], "one trace a turn");
    }
    let of_call = |spans: &[SinkSpan], tool: &str| {
        let name = format!("execute_tool {tool}");
        let trace_id = calls[0]["traceId"].as_str().unwrap();
        let found = spans.iter().find(|span| span.name == name && span.trace_id == trace_id);
        found.map(|span| span.attributes.get("toolfleet.stubbed").cloned())
    };
    let are_there =
        |spans: &[SinkSpan]| ["peek", "pay"].iter().all(|tool| of_call(spans, tool).is_some());
    let spans = sink.wait_for(are_there, SOON).await;
    assert_eq!(of_call(&spans, "pay"), Some(Some("true".to_owned())));
    assert_eq!(of_call(&spans, "peek"), Some(None));
    // Handed in again, through whichever coordinator, it reads the same.
    let again = second.turn("e", "t", &asked).await.unwrap();
    assert_eq!(again.body["messages"], answer.body["messages"]);
    assert_eq!((&again.body["replayed"], starts(&fleet, "peek")), (&json!(true), 1));
    assert_eq!(stubbed(&again.body["calls"]), [false, true, true, true, true, true]);
    let list = second.get("/v1/executions/e/calls").await.unwrap();
    assert_eq!(stubbed(&list.body["items"]), [false, true, true, true, true, true]);

    // A direct call likewise; it is named as any other and bound to its arguments.
    let direct = second.call_as("pay", "e", "d", json!({"cents": 5})).await.unwrap();
    let body = ok(&direct);
    assert_eq!((&body["stubbed"], &body["result"]["state"]), (&json!(true), &json!("paid")));
    let other = first.call_as("pay", "e", "d", json!({"cents": 6})).await.unwrap();
    problem(&other, 422, "idempotency_conflict");
    let kept = first.read_call("e", "main:direct:d", 0).await.unwrap();
    assert_eq!((&kept.body["stubbed"], &kept.body["ok"]), (&json!(true), &json!(true)));
    assert_eq!(read(&first, "e").await["toolCallsUsed"], 7, "each counts once");
    for tool in ["pay", "ship", "drop", "odd", "mute"] {
        assert_eq!(starts(&fleet, tool), 0, "{tool} has run");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_has_its_limits_and_another_execution_runs_for_real() {
    let fleet = tools().start().await.unwrap();
    let (first, second) = (fleet.http(0).unwrap(), fleet.http(1).unwrap());
    // They count against the limit, and are not checked less strictly.
    create(&first, json!({"id": "l", "dryRun": true, "maxToolCalls": 1})).await;
    let two = message(&[("a", "drop", "{}"), ("b", "drop", "{}"), ("c", "drop", "[]")]);
    let codes = codes(&second.turn("l", "t", &two).await.unwrap());
    assert_eq!(codes, ["", "limit_exceeded", "invalid_input"]);
    // Another execution runs them for real.
    let real = first.turn("r", "t", &message(&[("a", "pay", "{}")])).await.unwrap();
    assert_eq!(contents(&real), ["{\"id\":7}"]);
    assert_eq!((stubbed(&real.body["calls"]), starts(&fleet, "pay")), (vec![false], 1));
    let page = fleet.admin(1).unwrap().get("/metrics").await.unwrap().text;
    assert!(page.contains("toolfleet_calls_stubbed_total{"), "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_effect_follows_the_arguments_of_its_call() {
    let keys = "effect = { expr = \"input.sql.matches('(?i)^ *select') ? 'read' : 'write'\" }\n\
                [input]\ntype = \"object\"\nproperties.sql.type = \"string\"";
    let mut fleet = with(fleet(), "sql", keys, "sleep 3\nprintf done").start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let tools = async |format: &str| {
        let list = http.get(&format!("/v1/tools?format={format}")).await.unwrap().body;
        let tools = list["tools"].as_array().unwrap().clone();
        tools.into_iter().find(|tool| tool["name"] == "sql").unwrap()
    };
    assert_eq!(tools("native").await["effect"], "dynamic");
    let hints = json!({"readOnlyHint": false, "destructiveHint": true, "idempotentHint": false});
    assert_eq!(tools("mcp").await["annotations"], hints, "as the most that it may be");

    // A dry run tells them apart; a call of which nothing is known is a write.
    create(&http, json!({"id": "dry", "dryRun": true})).await;
    let asked = message(&[
        ("a", "sql", "{\"sql\":\"SELECT 1\"}"),
        ("b", "sql", "{\"sql\":\"DELETE\"}"),
        ("c", "sql", "{}"),
    ]);
    let answer = http.turn("dry", "t", &asked).await.unwrap();
    let acknowledged = "Operation acknowledged.";
    assert_eq!(contents(&answer), ["done", acknowledged, acknowledged]);
    assert_eq!(starts(&fleet, "sql"), 1);
    let page = fleet.admin(0).unwrap().get("/metrics").await.unwrap().text;
    let counted = page.lines().find(|line| line.starts_with("toolfleet_effect_faults_total"));
    assert!(counted.is_some_and(|line| line.ends_with(" 1")), "{counted:?}");

    // With its worker lost, what was read runs again and what was written does not.
    let two =
        message(&[("a", "sql", "{\"sql\":\"  select 2\"}"), ("b", "sql", "{\"sql\":\"UPDATE\"}")]);
    let posted = post_turn(&http, "real", "t", &two);
    until("both have started", SOON, async || (starts(&fleet, "sql") == 3).then_some(()))
        .await
        .unwrap();
    fleet.workers[0].restart().await.unwrap();
    let answer = answered(posted).await;
    assert_eq!(codes(&answer), ["", "outcome_unknown"], "{}", answer.text);
    assert_eq!((contents(&answer)[0].as_str(), starts(&fleet, "sql")), ("done", 4));
}
