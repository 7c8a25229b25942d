//! One call a key, one result a call, whoever asks and whoever races.

use crate::asked::{SOON, fleet, nap, ok, problem};
use async_nats::HeaderMap;
use serde_json::json;
use toolfleet_io::broker::{Once, Outgoing};
use toolfleet_proto::name::CallName;
use toolfleet_tests::{Announcements, call_name};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_submissions_through_two_coordinators_are_one_run() {
    let fleet = fleet().coordinators(2).workers(2).start().await.unwrap();
    let heard = Announcements::listen(fleet.broker()).await.unwrap();
    let ledger = fleet.ledger("once");
    let input = nap(700, &ledger);
    let (first, second) = (fleet.http(0).unwrap(), fleet.http(1).unwrap());
    let (one, two) = tokio::join!(
        first.call_keyed("nap", "e", "key", input.clone()),
        second.call_keyed("nap", "e", "key", input.clone()),
    );
    let (one, two) = (one.unwrap(), two.unwrap());
    let (a, b) = (ok(&one), ok(&two));
    assert_eq!((&a["call"], &a["result"]), (&b["call"], &b["result"]));
    assert_eq!(a["idempotencyKey"], b["idempotencyKey"]);
    let replayed = [a, b].iter().filter(|body| body["replayed"] == true).count();
    assert_eq!(replayed, 1, "one of the two has attached: {a} {b}");

    // After the end: the recorded result, and no run.
    let again = second.call_keyed("nap", "e", "key", input).await.unwrap();
    assert_eq!((&ok(&again)["result"], &again.body["replayed"]), (&a["result"], &json!(true)));
    // The same key with other arguments is another call that nobody asked for.
    let other = first.call_keyed("nap", "e", "key", json!({"ms": 1})).await.unwrap();
    problem(&other, 422, "idempotency_conflict");

    let name = call_name(a).unwrap();
    assert_eq!(ledger.lines().len(), 2, "one start and one end: {:?}", ledger.lines());
    assert_eq!(fleet.results_of(&name).await.unwrap(), 1);
    assert_eq!(heard.once_heard(&name).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_alone_names_a_call_everywhere() {
    let fleet = fleet().coordinators(2).start().await.unwrap();
    let ledger = fleet.ledger("keyed");
    let body = json!({"input": nap(20, &ledger)}).to_string();
    let mut calls = Vec::new();
    for coordinator in [0, 1, 0] {
        let http = fleet.http(coordinator).unwrap();
        let request = http
            .request(reqwest::Method::POST, "/v1/tools/nap/call")
            .header("content-type", "application/json")
            .header("idempotency-key", "\"my key: 1\"")
            .body(body.clone());
        calls.push(ok(&http.send(request).await.unwrap()).clone());
    }
    let replayed: Vec<bool> = calls.iter().filter_map(|call| call["replayed"].as_bool()).collect();
    assert_eq!(replayed, [false, true, true]);
    assert!(calls.iter().all(|call| call["idempotencyKey"] == calls[0]["idempotencyKey"]));
    assert_eq!(ledger.starts().len(), 1, "{:?}", ledger.lines());

    // Without any name each is a call of its own.
    let http = fleet.http(0).unwrap();
    let (one, two) =
        tokio::join!(http.call("nap", nap(20, &ledger)), http.call("nap", nap(20, &ledger)),);
    assert_ne!(ok(&one.unwrap())["call"], ok(&two.unwrap())["call"]);
    assert_eq!(ledger.starts().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_arguments_are_refused_while_the_call_runs() {
    let fleet = fleet().coordinators(2).start().await.unwrap();
    let ledger = fleet.ledger("conflict");
    let (first, second) = (fleet.http(0).unwrap(), fleet.http(1).unwrap());
    let (http, input) = (first.clone(), nap(1_200, &ledger));
    let running = tokio::spawn(async move { http.call_keyed("nap", "e", "key", input).await });
    ledger.started(1, SOON).await.unwrap();
    let other = second.call_keyed("nap", "e", "key", json!({"ms": 1})).await.unwrap();
    problem(&other, 422, "idempotency_conflict");
    ok(&running.await.unwrap().unwrap());
    assert_eq!(ledger.starts().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_read_through_the_other_coordinator() {
    let fleet = fleet().coordinators(2).start().await.unwrap();
    let ledger = fleet.ledger("read");
    let (first, second) = (fleet.http(0).unwrap(), fleet.http(1).unwrap());
    let unknown = second.read_call("e", "main:direct:c", 0).await.unwrap();
    problem(&unknown, 404, "call_not_found");

    let (http, input) = (first.clone(), nap(5_000, &ledger));
    let running = tokio::spawn(async move { http.call_as("nap", "e", "c", input).await });
    ledger.started(1, SOON).await.unwrap();
    let now = second.read_call("e", "main:direct:c", 0).await.unwrap();
    assert_eq!(now.status, 200, "{}", now.text);
    let state = now.body["state"].as_str().unwrap();
    assert!(["queued", "running"].contains(&state), "{}", now.text);
    let done = second.read_call("e", "main:direct:c", 20).await.unwrap();
    assert_eq!((&done.body["state"], &done.body["result"]), (&json!("done"), &json!(1)));
    let answer = running.await.unwrap().unwrap();
    for key in ["call", "callId", "idempotencyKey", "toolName", "result", "text", "attempts"] {
        assert_eq!(done.body[key], ok(&answer)[key], "{key}");
    }
    assert_eq!(ledger.starts().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_racing_writers_store_one_result() {
    let fleet = fleet().workers(0).start().await.unwrap();
    let heard = Announcements::listen(fleet.broker()).await.unwrap();
    for round in 0..10 {
        let name = CallName::direct("default", "race", "main", &format!("call-{round}"));
        let subject = fleet.broker().prefix().result(&name);
        let mut writers = Vec::new();
        for writer in 0..8_u8 {
            let broker = toolfleet_tests::broker_at(&fleet.nats.url()).await.unwrap();
            let (subject, payload) = (subject.clone(), vec![writer].into());
            let message = Outgoing { headers: HeaderMap::new(), payload, ttl: None };
            writers.push(async move { (writer, broker.store_once(&subject, &message).await) });
        }
        let ends = futures::future::join_all(writers.into_iter().map(tokio::spawn)).await;
        let ends: Vec<_> = ends.into_iter().map(Result::unwrap).collect();
        let stored: Vec<u8> = ends
            .iter()
            .filter(|(_, end)| matches!(end, Ok(Once::Stored(_))))
            .map(|(writer, _)| *writer)
            .collect();
        let taken = ends.iter().filter(|(_, end)| matches!(end, Ok(Once::Taken))).count();
        assert_eq!((stored.len(), taken), (1, 7), "{ends:?}");
        assert_eq!(fleet.results_of(&name).await.unwrap(), 1);
        let message = fleet.broker().read_result(&subject).await.unwrap().unwrap();
        assert_eq!(message.payload[..], stored, "the one that was told so is the one stored");
        assert_eq!(heard.once_heard(&name).await, 1);
    }
}
