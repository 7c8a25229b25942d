//! Streams that are full: refused at the door where that can be, and what was taken in waits for room.

use crate::asked::{SOON, fleet, nap, ok, problem};
use async_nats::jetstream::stream::Config;
use serde_json::json;
use std::time::Duration;
use toolfleet_proto::name::CallName;
use toolfleet_tests::{Fleet, subjects, until};

/// Lets a stream hold so many messages; `None`: as many as come.
async fn limit(fleet: &Fleet, stream: &str, messages: Option<usize>) {
    let found = fleet.broker().jetstream().get_stream(stream).await.unwrap();
    let max_messages = messages.map_or(-1, |count| i64::try_from(count).unwrap());
    let config = Config { max_messages, ..found.cached_info().config.clone() };
    fleet.broker().jetstream().update_stream(config).await.unwrap();
}

/// Waits until the coordinator has seen that a stream is full.
async fn noticed(fleet: &Fleet, stream: &str) {
    let (admin, line) =
        (fleet.admin(0).unwrap(), format!("toolfleet_stream_fill{{stream=\"{stream}\"}} 1"));
    until(&line, SOON, async || {
        let page = admin.get("/metrics").await.ok()?.text;
        page.lines().any(|found| found == line).then_some(())
    })
    .await
    .unwrap();
}

async fn count(fleet: &Fleet, stream: &str) -> usize {
    subjects(fleet.broker(), stream, ">").await.unwrap().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_refuses_and_loses_nothing() {
    let mut fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let jobs = fleet.broker().prefix().jobs_stream();
    fleet.workers[0].kill().await.unwrap();
    let queued = {
        let (http, input) = (http.clone(), nap(1, &fleet.ledger("queued")));
        tokio::spawn(async move { http.call_as("nap", "full", "queued", input).await })
    };
    until("one is queued", SOON, async || (count(&fleet, &jobs).await == 1).then_some(()))
        .await
        .unwrap();
    limit(&fleet, &jobs, Some(1)).await;
    let refused = http.call_as("nap", "full", "c", json!({"ms": 1})).await.unwrap();
    problem(&refused, 503, "queue_full");
    assert!(refused.headers.contains_key("retry-after"));
    limit(&fleet, &jobs, None).await;
    fleet.workers[0].restart().await.unwrap();
    ok(&queued.await.unwrap().unwrap());
    ok(&http.call_as("nap", "full", "c", json!({"ms": 1})).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_in_hand_waits_for_room_under_its_lease_and_new_calls_are_refused() {
    let fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let results = fleet.broker().prefix().results_stream();
    for number in 0..9 {
        ok(&http.call_as("nap", "full", &number.to_string(), json!({"ms": 1})).await.unwrap());
    }
    let ledger = fleet.ledger("held");
    let held = {
        let (http, input) = (http.clone(), nap(2_500, &ledger));
        tokio::spawn(async move { http.call_as("nap", "full", "held", input).await })
    };
    ledger.started(1, SOON).await.unwrap();
    limit(&fleet, &results, Some(9)).await;
    noticed(&fleet, "results").await;
    let refused = http.call_as("nap", "full", "new", json!({"ms": 1})).await.unwrap();
    problem(&refused, 503, "results_full");
    // What has its result already is answered all the same.
    ok(&http.call_as("nap", "full", "3", json!({"ms": 1})).await.unwrap());
    let name = CallName::direct("default", "full", "main", "held");
    let mut redis = fleet.redis_connection().await.unwrap();
    let key = fleet.broker().prefix().lease_key(&name);
    // Longer than two leases: it is renewed while the result is in hand.
    let until_ended = tokio::time::Instant::now() + Duration::from_secs(7);
    while tokio::time::Instant::now() < until_ended {
        let value: Option<String> =
            redis::cmd("GET").arg(&key).query_async(&mut redis).await.unwrap();
        assert!(value.is_some_and(|value| value != "done"), "the lease is gone");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!held.is_finished());
    limit(&fleet, &results, None).await;
    assert_eq!(ok(&held.await.unwrap().unwrap())["attempts"], 1);
    assert_eq!((ledger.starts().len(), ledger.ends().len()), (1, 1));
    until("new calls are taken", SOON, async || {
        let answer = http.call_as("nap", "full", "new", json!({"ms": 1})).await.ok()?;
        (answer.status == 200).then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_waits_for_room_for_its_start_record_and_reads_go_on() {
    let fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let starts = fleet.broker().prefix().starts_stream();
    ok(&http.call("nap-write", nap(1, &fleet.ledger("first"))).await.unwrap());
    limit(&fleet, &starts, Some(1)).await;
    let ledger = fleet.ledger("write");
    // Before the coordinator has noticed, one may be taken in: it waits.
    let write = {
        let (http, input) = (http.clone(), nap(1, &ledger));
        tokio::spawn(async move { http.call_as("nap-write", "full", "w", input).await })
    };
    noticed(&fleet, "starts").await;
    let refused = http.call_as("nap-write", "full", "x", json!({"ms": 1})).await.unwrap();
    problem(&refused, 503, "results_full");
    ok(&http.call("nap", nap(1, &fleet.ledger("read"))).await.unwrap());
    assert!(ledger.lines().is_empty(), "{:?}", ledger.lines());
    limit(&fleet, &starts, None).await;
    let answer = write.await.unwrap().unwrap();
    // Refused at the door or taken in and run later: never lost, and started once.
    if answer.status == 200 {
        assert_eq!(ok(&answer)["attempts"], 1);
        assert_eq!(ledger.starts().len(), 1);
    } else {
        problem(&answer, 503, "results_full");
        assert!(ledger.lines().is_empty());
    }
}
