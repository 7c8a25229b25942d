//! Tools in Rust that block: no lease of theirs is lost, and no other call waits for them.

use crate::asked::{SOON, failed, fleet, nap, ok};
use serde_json::json;
use toolfleet_tests::until;

/// `toolfleet_worker::runner::threads::ABANDONED_MAX`.
const ABANDONED_MAX: usize = 64;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_that_never_await_keep_their_leases() {
    let fleet = fleet().slots(4).start().await.unwrap();
    // Longer than two leases.
    let calls = (0..2).map(|number| {
        let (http, input) =
            (fleet.http(0).unwrap(), nap(5_000, &fleet.ledger(&number.to_string())));
        tokio::spawn(
            async move { http.call_as("spinner", "spin", &number.to_string(), input).await },
        )
    });
    for call in calls.collect::<Vec<_>>() {
        let answer = call.await.unwrap().unwrap();
        assert_eq!(ok(&answer)["attempts"], 1);
    }
    for number in 0..2 {
        assert_eq!(fleet.ledger(&number.to_string()).starts().len(), 1);
    }
    let log = std::fs::read_to_string(fleet.workers[0].log()).unwrap();
    assert!(!log.contains("lease lost"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_that_do_not_return_are_left_behind_on_time_and_bounded() {
    let fleet = fleet().slots(16).exec_tool("quick", "effect = \"read\"", "printf quick");
    let fleet = fleet.start().await.unwrap();
    let (http, ledger) = (fleet.http(0).unwrap(), fleet.ledger("blocked"));
    let block = |number: usize| {
        let (http, input) = (http.clone(), nap(18_000, &ledger));
        tokio::spawn(
            async move { http.call_as("blocker", "block", &number.to_string(), input).await },
        )
    };
    for call in (0..ABANDONED_MAX).map(block).collect::<Vec<_>>() {
        let answer = call.await.unwrap().unwrap();
        assert_eq!(failed(&answer, "timed_out")["text"], "Tool error: timed out after 300 ms");
        let ran_ms = answer.body["durationMs"].as_u64().unwrap();
        assert!(ran_ms < 2_000, "{ran_ms} ms");
    }
    // Nobody takes another one, and programs go on.
    let refused = block(ABANDONED_MAX);
    assert_eq!(ok(&http.call("quick", json!({})).await.unwrap())["text"], "quick");
    failed(&refused.await.unwrap().unwrap(), "queue_timed_out");
    assert_eq!(ledger.starts().len(), ABANDONED_MAX);
    // They have returned at last: what they gave is dropped, and calls are taken again.
    until("a tool in Rust runs again", SOON, async || {
        (http.call("nap", json!({"ms": 1})).await.ok()?.body["ok"] == true).then_some(())
    })
    .await
    .unwrap();
    let result = http.get("/v1/calls/block/main:direct:0").await.unwrap();
    assert_eq!(result.body["code"], "timed_out");
}
