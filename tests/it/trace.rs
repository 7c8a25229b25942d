//! The trace of a call, from the coordinator to the tool, is one tree.

use crate::asked::{SOON, fleet, message, nap, ok};
use serde_json::json;
use std::collections::BTreeSet;
use toolfleet_tests::{Builder, OtlpSink, SinkSpan};

fn traced(sink: &OtlpSink) -> Builder {
    fleet()
        .exec_tool("show-trace", "effect = \"read\"", "printf '%s' \"$TRACEPARENT\"")
        .env("TOOLFLEET_TELEMETRY__OTLP_ENDPOINT", sink.url())
        // Soon, so that a worker that is killed has sent what it had ended.
        .env("OTEL_BSP_SCHEDULE_DELAY", "100")
}

fn of_trace<'a>(spans: &'a [SinkSpan], trace_id: &str) -> Vec<&'a SinkSpan> {
    spans.iter().filter(|span| span.trace_id == trace_id).collect()
}

fn starting<'a>(spans: &[&'a SinkSpan], word: &str) -> Vec<&'a SinkSpan> {
    spans.iter().filter(|span| span.name.starts_with(word)).copied().collect()
}

#[track_caller]
fn one<'a>(spans: &[&'a SinkSpan], word: &str) -> &'a SinkSpan {
    let found = starting(spans, word);
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(found.len(), 1, "one span {word} in {names:?}");
    found[0]
}

/// Every span but the root has its parent in the same trace.
#[track_caller]
fn check_tree(spans: &[&SinkSpan]) {
    let ids: BTreeSet<&str> = spans.iter().map(|span| span.span_id.as_str()).collect();
    assert_eq!(ids.len(), spans.len(), "no span was sent twice");
    let roots: Vec<&str> = spans
        .iter()
        .filter(|span| !ids.contains(span.parent_span_id.as_str()))
        .map(|span| span.name.as_str())
        .collect();
    assert_eq!(roots.len(), 1, "one root: {roots:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_one_tree_down_to_its_process() {
    let sink = OtlpSink::start().await;
    let fleet = traced(&sink).start().await.unwrap();
    let answer = fleet.http(0).unwrap().call("show-trace", json!({})).await.unwrap();
    let body = ok(&answer);
    let trace_id = body["traceId"].as_str().unwrap().to_owned();
    assert_eq!(trace_id.len(), 32, "{body}");
    let spans = sink
        .wait_for(
            |spans| {
                let own = of_trace(spans, &trace_id);
                ["execute_tool", "publish", "claim", "process"]
                    .iter()
                    .all(|word| !starting(&own, word).is_empty())
            },
            SOON,
        )
        .await;
    let own = of_trace(&spans, &trace_id);
    check_tree(&own);
    let (call, publish) = (one(&own, "execute_tool"), one(&own, "publish"));
    let (claim, process) = (one(&own, "claim"), one(&own, "process"));
    assert_eq!(call.name, "execute_tool show-trace");
    assert_eq!(publish.parent_span_id, call.span_id);
    assert_eq!(claim.parent_span_id, publish.span_id);
    assert_eq!(process.parent_span_id, publish.span_id);
    assert_eq!((publish.kind.as_str(), process.kind.as_str()), ("producer", "consumer"));
    assert_eq!(
        (call.service.as_str(), process.service.as_str()),
        ("toolfleet-coordinator", "toolfleet-worker")
    );
    assert_eq!(process.attributes.get("toolfleet.attempt").map(String::as_str), Some("1"));
    assert!(own.iter().all(|span| !span.status_error));

    // What the tool saw: the same trace, and as its parent the span of its try, which is the attempt's.
    let tried = one(&own, "try");
    assert_eq!(tried.parent_span_id, process.span_id);
    let seen: Vec<&str> = body["text"].as_str().unwrap().split('-').collect();
    assert_eq!(seen[..3], ["00", trace_id.as_str(), tried.span_id.as_str()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_is_one_trace() {
    let sink = OtlpSink::start().await;
    let fleet = traced(&sink).workers(2).start().await.unwrap();
    let asked = message(&[
        ("a", "show-trace", "{}"),
        ("b", "nap", r#"{"ms": 20}"#),
        ("c", "panicker", "{}"),
    ]);
    let answer = fleet.http(0).unwrap().turn("e", "t", &asked).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
    let calls = answer.body["calls"].as_array().unwrap();
    let traces: BTreeSet<&str> = calls.iter().filter_map(|c| c["traceId"].as_str()).collect();
    assert_eq!(traces.len(), 1, "{traces:?}");
    let trace_id = traces.first().copied().unwrap();
    let spans = sink
        .wait_for(
            |spans| {
                let own = of_trace(spans, trace_id);
                let count = |word| starting(&own, word).len();
                count("turn") == 1
                    && ["execute_tool", "publish", "claim", "process"].iter().all(|w| count(w) == 3)
            },
            SOON,
        )
        .await;
    let own = of_trace(&spans, trace_id);
    check_tree(&own);
    let turn = one(&own, "turn");
    for call in starting(&own, "execute_tool") {
        assert_eq!(call.parent_span_id, turn.span_id);
        let name = call.name.as_str();
        assert_eq!(call.status_error, name == "execute_tool panicker", "{name}");
    }
    let failed = one(&own, "process panicker");
    assert_eq!(failed.attributes.get("error.type").map(String::as_str), Some("tool_error"));
    assert!(failed.status_error);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_attempt_links_to_the_lost_one() {
    let sink = OtlpSink::start().await;
    let mut fleet = traced(&sink).start().await.unwrap();
    let ledger = fleet.ledger("linked");
    let (http, input) = (fleet.http(0).unwrap(), nap(4_000, &ledger));
    let call = tokio::spawn(async move { http.call("nap", input).await });
    ledger.started(1, SOON).await.unwrap();
    let claims = |spans: &[SinkSpan]| spans.iter().filter(|span| span.name == "claim").count();
    let before = sink.wait_for(|spans| claims(spans) == 1, SOON).await;
    let lost = before.iter().find(|span| span.name == "claim").unwrap();
    fleet.workers[0].restart().await.unwrap();

    let answer = call.await.unwrap().unwrap();
    let body = ok(&answer);
    assert_eq!(body["attempts"], 2);
    let spans = sink
        .wait_for(|spans| spans.iter().any(|span| span.name.starts_with("process")), SOON)
        .await;
    let second = spans.iter().find(|span| span.name.starts_with("process")).unwrap();
    assert_eq!(second.attributes.get("toolfleet.attempt").map(String::as_str), Some("2"));
    assert_eq!(second.trace_id, lost.trace_id, "both attempts are in one trace");
    assert_eq!(body["traceId"].as_str(), Some(lost.trace_id.as_str()));
    assert_eq!(second.links, [(lost.trace_id.clone(), lost.span_id.clone())]);
}
