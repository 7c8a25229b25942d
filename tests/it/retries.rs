//! Passing failures of a tool: tried again inside the attempt, before the model sees anything.

use crate::asked::{SOON, failed, fleet, ok};
use crate::conversation::noting;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use toolfleet_tests::{Fleet, Ledger, OtlpSink, encode_segment, until};

/// Fails with these words, by the code of a passing failure, until it has been started `good` times.
fn busy(name: &str, good: u32) -> String {
    let body = format!(
        "count=$(grep -c ^start \"$ledger\")\n\
         if [ \"$count\" -lt {good} ]; then echo \"busy $count\" >&2; exit 75; fi\n\
         printf 'done at try %s' \"$count\""
    );
    noting(name, &body)
}

fn starts(fleet: &Fleet, name: &str) -> usize {
    fleet.ledger(name).starts().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_is_tried_again_inside_one_attempt_and_a_write_is_not() {
    let envelope = "count=$(grep -c ^start \"$ledger\")\n\
        if [ \"$count\" -lt 2 ]; then said=',\"isError\":true,\"transient\":true'; fi\n\
        printf '{\"content\":[{\"type\":\"text\",\"text\":\"try %s\"}]%s}' \"$count\" \"$said\"";
    let sink = OtlpSink::start().await;
    let fleet = fleet()
        .exec_tool("soon", "effect = \"read\"", &busy("soon", 3))
        .exec_tool("late", "effect = \"idempotent\"", &busy("late", 9))
        .exec_tool(
            "twice",
            "effect = \"read\"\nretry = { tries = 2, wait_max = \"10ms\" }",
            &busy("twice", 9),
        )
        .exec_tool("written", "effect = \"write\"", &busy("written", 2))
        .exec_tool_run(
            "told",
            "effect = \"read\"",
            "result = \"envelope\"",
            &noting("told", envelope),
        )
        .exec_tool("broken", "effect = \"read\"", &noting("broken", "echo no >&2; exit 1"))
        .env("TOOLFLEET_TELEMETRY__OTLP_ENDPOINT", sink.url())
        .env("OTEL_BSP_SCHEDULE_DELAY", "100")
        .start()
        .await
        .unwrap();
    let http = fleet.http(0).unwrap();

    let answer = http.call("soon", json!({})).await.unwrap();
    let body = ok(&answer);
    assert_eq!((&body["text"], &body["attempts"]), (&json!("done at try 3"), &json!(1)));
    assert_eq!((&body["tries"], starts(&fleet, "soon")), (&json!(3), 3));
    let trace_id = body["traceId"].as_str().unwrap().to_owned();

    // The last message is returned as it was.
    let answer = http.call("late", json!({})).await.unwrap();
    let body = failed(&answer, "tool_error");
    assert_eq!(body["text"], "Tool error: exited with code 75: busy 3");
    assert_eq!((&body["attempts"], starts(&fleet, "late")), (&json!(1), 3));
    let answer = http.call("twice", json!({})).await.unwrap();
    assert_eq!(failed(&answer, "tool_error")["text"], "Tool error: exited with code 75: busy 2");
    assert_eq!(starts(&fleet, "twice"), 2);

    let answer = http.call("told", json!({})).await.unwrap();
    assert_eq!((&ok(&answer)["text"], starts(&fleet, "told")), (&json!("try 2"), 2));

    for name in ["written", "broken"] {
        let answer = http.call(name, json!({})).await.unwrap();
        let body = failed(&answer, "tool_error");
        assert_eq!((body.get("tries"), starts(&fleet, name)), (None, 1), "{name}");
    }

    let spans = sink
        .wait_for(
            |spans| {
                let count = |name: &str| spans.iter().filter(|span| span.name == name).count();
                count("try soon") == 3 && count("process soon") == 1
            },
            SOON,
        )
        .await;
    let own: Vec<_> = spans.iter().filter(|span| span.trace_id == trace_id).collect();
    let attempts: Vec<_> = own.iter().filter(|span| span.name == "process soon").collect();
    assert_eq!(attempts.len(), 1);
    let tries: Vec<_> = own.iter().filter(|span| span.name == "try soon").collect();
    assert!(tries.iter().all(|span| span.parent_span_id == attempts[0].span_id));
    let numbers: BTreeSet<&str> = tries
        .iter()
        .filter_map(|span| span.attributes.get("toolfleet.try").map(String::as_str))
        .collect();
    assert_eq!(numbers, BTreeSet::from(["1", "2", "3"]));
    assert_eq!(tries.iter().filter(|span| span.status_error).count(), 2);
}

/// A tool that is busy for ever, and is tried again for a long time.
async fn endless() -> (Fleet, Ledger) {
    let fleet = fleet()
        .exec_tool(
            "endless",
            "effect = \"read\"\ntimeout = \"60s\"\nretry = { tries = 10, wait_max = \"60s\" }",
            &busy("endless", 1_000),
        )
        .exec_tool(
            "hurried",
            "effect = \"read\"\ntimeout = \"6s\"\nretry = { tries = 10, wait_max = \"60s\" }",
            // The second try is the shorter one, and there is no time for a third.
            &noting(
                "hurried",
                "count=$(grep -c ^start \"$ledger\")\n\
                 if [ \"$count\" = 1 ]; then sleep 2.2; else sleep 2; fi\n\
                 echo \"busy $count\" >&2; exit 75",
            ),
        )
        .start()
        .await
        .unwrap();
    let ledger = fleet.ledger("endless");
    (fleet, ledger)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_ends_the_waiting_at_once_and_so_does_the_clock() {
    let (fleet, ledger) = endless().await;
    let http = fleet.http(0).unwrap();
    let call = tokio::spawn({
        let http = fleet.http(0).unwrap();
        async move { http.call_as("endless", "tries", "c", json!({})).await }
    });
    // By the fourth try the waits are long.
    until("it was tried four times", SOON, async || (ledger.starts().len() >= 4).then_some(()))
        .await
        .unwrap();
    let path = format!("/v1/calls/tries/{}/cancel", encode_segment("main:direct:c"));
    http.post(&path, &json!({"reason": "enough"})).await.unwrap();
    let asked = Instant::now();
    let answer = call.await.unwrap().unwrap();
    assert_eq!(failed(&answer, "cancelled")["text"], "Tool error: enough");
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    let tries = ledger.starts().len();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(ledger.starts().len(), tries, "nothing is tried any more");

    // The attempt's time holds all its tries: what the last of them said is told, not a timeout.
    let answer = http.call("hurried", json!({})).await.unwrap();
    let text = failed(&answer, "tool_error")["text"].as_str().unwrap().to_owned();
    assert!(text.starts_with("Tool error: exited with code 75: busy "), "{text}");
    assert!(answer.body["durationMs"].as_u64().unwrap() < 6_300, "{}", answer.text);
}
