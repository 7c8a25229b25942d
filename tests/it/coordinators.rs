//! A coordinator killed while it waits: its successor delivers, and nothing runs again for it.

use crate::asked::{SOON, fleet, message, nap};
use serde_json::json;
use toolfleet_proto::name::CallName;
use toolfleet_tests::{Fleet, Ledger};

fn turn_of(ledger: &Ledger) -> serde_json::Value {
    message(&[("c", "nap", &nap(3_000, ledger).to_string())])
}

/// A turn that runs, posted to the first coordinator, which is then killed.
async fn orphaned(fleet: &mut Fleet) -> Ledger {
    let ledger = fleet.ledger("orphan");
    let (http, asked) = (fleet.http(0).unwrap(), turn_of(&ledger));
    let waiting = tokio::spawn(async move { http.turn("e", "t", &asked).await });
    ledger.started(1, SOON).await.unwrap();
    fleet.coordinators[0].kill().await.unwrap();
    assert!(waiting.await.unwrap().is_err(), "nobody is there to answer");
    ledger
}

async fn check_one_result(fleet: &Fleet, ledger: &Ledger) {
    assert_eq!(ledger.lines().len(), 2, "one start and one end: {:?}", ledger.lines());
    let name = CallName::of_turn("default", "e", "main", "t", "c");
    assert_eq!(fleet.results_of(&name).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_coordinator_reads_the_result() {
    let mut fleet = fleet().coordinators(2).start().await.unwrap();
    let ledger = orphaned(&mut fleet).await;
    let http = fleet.http(1).unwrap();
    let answer = http.read_call("e", "main:t:c", 30).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!((&answer.body["state"], &answer.body["result"]), (&json!("done"), &json!(1)));
    check_one_result(&fleet, &ledger).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_coordinator_takes_the_turn_up() {
    let mut fleet = fleet().coordinators(2).start().await.unwrap();
    let ledger = orphaned(&mut fleet).await;
    let answer = fleet.http(1).unwrap().turn("e", "t", &turn_of(&ledger)).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!((&answer.body["state"], &answer.body["replayed"]), (&json!("done"), &json!(true)));
    assert_eq!(answer.body["messages"][0]["content"], "1");
    check_one_result(&fleet, &ledger).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_coordinator_started_again_delivers() {
    let mut fleet = fleet().start().await.unwrap();
    let ledger = orphaned(&mut fleet).await;
    fleet.coordinators[0].restart().await.unwrap();
    let http = fleet.http(0).unwrap();
    let read = http.read_call("e", "main:t:c", 30).await.unwrap();
    assert_eq!((&read.body["state"], &read.body["result"]), (&json!("done"), &json!(1)));
    let again = http.turn("e", "t", &turn_of(&ledger)).await.unwrap();
    assert_eq!(again.body["messages"][0]["content"], "1", "{}", again.text);
    assert_eq!(again.body["replayed"], true);
    check_one_result(&fleet, &ledger).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_told_to_end_answers_whom_it_can() {
    let mut fleet = fleet().start().await.unwrap();
    let ledger = fleet.ledger("drained");
    let (http, input) = (fleet.http(0).unwrap(), nap(1_000, &ledger));
    let waiting = tokio::spawn(async move { http.call_as("nap", "e", "c", input).await });
    ledger.started(1, SOON).await.unwrap();
    let status = fleet.coordinators[0].terminate().await.unwrap();
    assert!(status.success(), "{status}");
    let answer = waiting.await.unwrap().unwrap();
    assert_eq!((answer.status, &answer.body["result"]), (200, &json!(1)), "{}", answer.text);
}
