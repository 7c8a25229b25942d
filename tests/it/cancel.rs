//! Cancelling: what is said never to have started never starts, and what runs is stopped.

use crate::asked::{SOON, failed, fleet, nap, ok, problem};
use serde_json::json;
use toolfleet_proto::name::CallName;
use toolfleet_tests::{Answer, Fleet, Ledger, encode_segment, until};

type Call = tokio::task::JoinHandle<anyhow::Result<Answer>>;

fn call(fleet: &Fleet, tool: &'static str, id: &'static str, ms: u64, ledger: &Ledger) -> Call {
    let (http, input) = (fleet.http(0).unwrap(), nap(ms, ledger));
    tokio::spawn(async move { http.call_as(tool, "cancel", id, input).await })
}

/// Cancels a direct call through the last coordinator.
async fn cancel(fleet: &Fleet, id: &str, reason: &str) -> Answer {
    let http = fleet.http(fleet.coordinators.len() - 1).unwrap();
    let call = encode_segment(&format!("main:direct:{id}"));
    let path = format!("/v1/calls/cancel/{call}/cancel");
    http.post(&path, &json!({ "reason": reason })).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_call_is_stopped_and_says_why() {
    let fleet = fleet().coordinators(2).start().await.unwrap();
    for (tool, is_write) in [("nap", false), ("nap-write", true)] {
        let ledger = fleet.ledger(tool);
        let running = call(&fleet, tool, tool, 20_000, &ledger);
        ledger.started(1, SOON).await.unwrap();
        let answer = cancel(&fleet, tool, "changed my mind").await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.body["answer"], "may_have_started", "{}", answer.text);
        let answer = running.await.unwrap().unwrap();
        let body = failed(&answer, "cancelled");
        let warning = "; it may have taken effect, check before calling it again";
        let warning = if is_write { warning } else { "" };
        assert_eq!(body["text"], format!("Tool error: changed my mind{warning}"));
        assert_eq!((ledger.starts().len(), ledger.ends().len()), (1, 0), "{:?}", ledger.lines());
        let name = CallName::direct("default", "cancel", "main", tool);
        assert_eq!(fleet.results_of(&name).await.unwrap(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queued_call_never_starts() {
    let fleet = fleet().coordinators(2).slots(1).start().await.unwrap();
    let (busy, queued) = (fleet.ledger("busy"), fleet.ledger("queued"));
    let running = call(&fleet, "nap", "busy", 6_000, &busy);
    busy.started(1, SOON).await.unwrap();
    let waiting =
        [call(&fleet, "nap", "read", 1, &queued), call(&fleet, "nap-write", "write", 1, &queued)];
    let http = fleet.http(1).unwrap();
    until("both calls are queued", SOON, async || {
        let mut states = Vec::new();
        for id in ["read", "write"] {
            let read = http.read_call("cancel", &format!("main:direct:{id}"), 0).await.ok()?;
            states.push(read.body["state"] == "queued");
        }
        states.into_iter().all(|is_queued| is_queued).then_some(())
    })
    .await
    .unwrap();
    for id in ["read", "write"] {
        let answer = cancel(&fleet, id, "not needed").await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(answer.body["answer"], "never_started", "{}", answer.text);
    }
    for call in waiting {
        let answer = call.await.unwrap().unwrap();
        assert_eq!(failed(&answer, "cancelled")["text"], "Tool error: not needed");
        assert_eq!(answer.body["attempts"], 0);
    }
    ok(&running.await.unwrap().unwrap());
    // The slot is free: whatever was queued before this call would have run before it.
    ok(&fleet.http(0).unwrap().call("nap", json!({"ms": 1})).await.unwrap());
    assert!(queued.lines().is_empty(), "{:?}", queued.lines());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_finished_or_unknown_is_said_to_be_so() {
    let fleet = fleet().start().await.unwrap();
    let ledger = fleet.ledger("finished");
    ok(&call(&fleet, "nap", "done", 1, &ledger).await.unwrap().unwrap());
    let answer = cancel(&fleet, "done", "too late").await;
    assert_eq!(answer.body["answer"], "already_finished", "{}", answer.text);
    let http = fleet.http(0).unwrap();
    let read = http.read_call("cancel", "main:direct:done", 0).await.unwrap();
    assert_eq!(read.body["result"], 1, "the result stays what it was: {}", read.text);
    problem(&cancel(&fleet, "never-was", "why not").await, 404, "call_not_found");
}
