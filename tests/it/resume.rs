//! Names of turns and calls, and messages that are posted again.

use crate::asked::{SOON, fleet, message, nap, problem};
use crate::conversation::{answered, codes, contents};
use serde_json::{Value, json};
use toolfleet_tests::{Answer, Http};

async fn post(http: &Http, execution: &str, body: &Value) -> Answer {
    http.post(&format!("/v1/executions/{execution}/turns"), body).await.unwrap()
}

fn anthropic(calls: &[(&str, &str, &Value)]) -> Value {
    let blocks: Vec<Value> = calls
        .iter()
        .map(
            |(id, tool, input)| json!({"type": "tool_use", "id": id, "name": tool, "input": input}),
        )
        .collect();
    json!({"role": "assistant", "content": blocks})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_posted_again_after_a_timeout_runs_once() {
    let fleet = fleet().coordinators(2).workers(2).start().await.unwrap();
    let (first, second) = (fleet.http(0).unwrap(), fleet.http(1).unwrap());
    for provider in ["openai", "anthropic"] {
        let (one, two) =
            (fleet.ledger(&format!("{provider}-1")), fleet.ledger(&format!("{provider}-2")));
        let (read, write) = (nap(3_000, &one), nap(3_000, &two));
        let asked = if provider == "openai" {
            message(&[
                ("call_Zk3v9QbYw0aR7cLmN2xT", "nap", &read.to_string()),
                ("call_Hq8s1PdUe5fJ4gVnB6yC", "nap-write", &write.to_string()),
            ])
        } else {
            anthropic(&[
                ("toolu_01Zk3v9QbYw0aR7cLmN2", "nap", &read),
                ("toolu_01Hq8s1PdUe5fJ4gVnB6", "nap-write", &write),
            ])
        };
        // The client gives up while both calls run.
        let given_up = tokio::spawn({
            let (http, asked) = (first.clone(), asked.clone());
            async move { post(&http, provider, &asked).await }
        });
        one.started(1, SOON).await.unwrap();
        two.started(1, SOON).await.unwrap();
        given_up.abort();
        assert!(given_up.await.unwrap_err().is_cancelled(), "it takes 3 s");
        let during = post(&second, provider, &asked).await;
        let after = post(&first, provider, &asked).await;
        for answer in [&during, &after] {
            assert_eq!((answer.status, &answer.body["state"]), (200, &json!("done")));
            assert_eq!(answer.body["replayed"], true, "{}", answer.text);
        }
        assert!(during.body["turn"].as_str().unwrap().starts_with("t-"), "{}", during.text);
        assert_eq!(during.body["turn"], after.body["turn"]);
        assert_eq!(during.body["messages"], after.body["messages"]);
        assert_eq!(during.body["format"].as_str().unwrap().split('-').next(), Some(provider));
        assert!(codes(&during).iter().all(String::is_empty), "{}", during.text);
        for ledger in [&one, &two] {
            assert_eq!(ledger.lines().len(), 2, "one start and one end: {:?}", ledger.lines());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_that_comes_again_never_brings_an_old_result() {
    let mut fleet = fleet().coordinators(2).start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let twice =
        |a: &str, b: &str| message(&[("call_0", "bench-echo", a), ("call_0", "bench-echo", b)]);
    let first = post(&http, "e", &twice(r#"{"n":1}"#, r#"{"n":2}"#)).await;
    let second = post(&http, "e", &twice(r#"{"n":3}"#, r#"{"n":4}"#)).await;
    let third = post(&http, "e", &message(&[("call_0", "bench-echo", r#"{"n":5}"#)])).await;
    assert_eq!(contents(&first), [r#"{"n":1}"#, r#"{"n":2}"#]);
    assert_eq!(contents(&second), [r#"{"n":3}"#, r#"{"n":4}"#]);
    assert_eq!(contents(&third), [r#"{"n":5}"#]);
    for answer in [&first, &second, &third] {
        assert_eq!(answer.body["replayed"], false, "{}", answer.text);
        let messages = answer.body["messages"].as_array().unwrap();
        assert!(messages.iter().all(|m| m["tool_call_id"] == "call_0"), "its own id goes back");
    }
    let ids = |answer: &Answer| -> Vec<String> {
        let calls = answer.body["calls"].as_array().unwrap();
        calls.iter().map(|call| call["callId"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&first), ["call_0:0", "call_0:1"]);
    assert_eq!(ids(&third), ["call_0"]);
    let turns: Vec<&Value> = [&first, &second, &third].map(|answer| &answer.body["turn"]).to_vec();
    assert!(turns[0] != turns[1] && turns[1] != turns[2], "{turns:?}");
    // Named, it attaches, also through another coordinator and after a restart.
    let name = first.body["turn"].as_str().unwrap();
    fleet.coordinators[0].restart().await.unwrap();
    let again = fleet.http(1).unwrap();
    let again = again.turn("e", name, &twice(r#"{"n":1}"#, r#"{"n":2}"#)).await.unwrap();
    assert_eq!((&again.body["replayed"], ids(&again)), (&json!(true), ids(&first)));
    assert_eq!(again.body["messages"], first.body["messages"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_ids_that_are_unique_name_a_turn() {
    let fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let named = async |execution: &str, ids: &[&str]| -> (String, bool) {
        let calls: Vec<_> = ids.iter().map(|id| (*id, "bench-echo", "{}")).collect();
        let asked = message(&calls);
        let (one, two) =
            (post(&http, execution, &asked).await, post(&http, execution, &asked).await);
        assert_eq!((one.status, two.status), (200, 200), "{} {}", one.text, two.text);
        let name = one.body["turn"].as_str().unwrap().to_owned();
        (name, one.body["turn"] == two.body["turn"])
    };
    let tail = "0123456789abcdef";
    for prefix in ["call_", "fc_", "toolu_", "tooluse_", "chatcmpl-tool-"] {
        let (name, is_same) = named(prefix, &[&format!("{prefix}{tail}")]).await;
        assert!(name.starts_with("t-") && is_same, "{prefix}: {name}");
    }
    let strong = format!("call_{tail}");
    let weak: [&[&str]; 5] = [
        &["call_0123456789abcde"],
        &["functions.search:0"],
        &[&strong, "call_1"],
        &[&strong, &strong],
        &["call_0123456789abcde."],
    ];
    for (at, ids) in weak.into_iter().enumerate() {
        let (name, is_same) = named(&format!("weak-{at}"), ids).await;
        assert!(!name.starts_with("t-") && !is_same, "{ids:?}: {name}");
    }
    // A new turn can be forced where the ids would name an old one.
    let asked = message(&[(&strong, "bench-echo", "{}")]);
    let one = post(&http, "forced", &asked).await;
    let new = http.turn("forced", "new", &asked).await.unwrap();
    assert_ne!(one.body["turn"], new.body["turn"]);
    assert_eq!(new.body["replayed"], false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idempotency_key_names_a_turn() {
    let fleet = fleet().coordinators(2).start().await.unwrap();
    let ledger = fleet.ledger("keyed");
    let path = "/v1/executions/e/turns";
    let keyed = async |coordinator: usize, path: &str, key: &str, body: &Value| {
        let http = fleet.http(coordinator).unwrap();
        let request = http
            .request(reqwest::Method::POST, path)
            .header("content-type", "application/json")
            .header("idempotency-key", key)
            .body(body.to_string());
        http.send(request).await.unwrap()
    };
    let asked = message(&[("call_0", "nap", &nap(20, &ledger).to_string())]);
    let one = keyed(0, path, "\"move 7: b\"", &asked).await;
    let two = keyed(1, path, "move 7: b", &asked).await;
    assert_eq!((&one.body["turn"], &one.body["replayed"]), (&json!("move 7: b"), &json!(false)));
    assert_eq!((&two.body["turn"], &two.body["replayed"]), (&json!("move 7: b"), &json!(true)));
    assert_eq!(one.body["messages"], two.body["messages"]);
    assert_eq!(one.body["calls"][0]["call"], "main:move 7%3A b:call_0");
    assert_eq!(one.body["calls"][0]["idempotencyKey"], "e:main:move 7%3A b:call_0");

    let both = keyed(0, &format!("{path}?turn=other"), "move 7: b", &asked).await;
    problem(&both, 422, "idempotency_conflict");
    // The same call with other arguments ends by itself; its siblings are not touched.
    let other = message(&[
        ("call_0", "nap", &nap(21, &ledger).to_string()),
        ("call_1", "bench-echo", "{}"),
    ]);
    let other = keyed(0, path, "move 7: b", &other).await;
    assert_eq!(codes(&other), ["idempotency_conflict", ""], "{}", other.text);
    assert_eq!(ledger.starts().len(), 1, "{:?}", ledger.lines());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_do_not_collide_however_their_parts_are_cut() {
    let fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let names = [
        ("e", "t", "a:b"),
        ("e", "t:a", "b"),
        ("e:t", "a", "b"),
        ("e", "t%3Aa", "b"),
        ("e", "t", "a%3Ab"),
    ];
    let mut posted = Vec::new();
    for (n, (execution, turn, call)) in names.iter().enumerate() {
        let asked = message(&[(call, "bench-echo", &format!("{{\"n\":{n}}}"))]);
        posted.push(crate::conversation::post_turn(&http, execution, turn, &asked));
    }
    let mut keys = Vec::new();
    for (n, posted) in posted.into_iter().enumerate() {
        let answer = answered(posted).await;
        assert_eq!(contents(&answer), [format!("{{\"n\":{n}}}")]);
        keys.push(answer.body["calls"][0]["idempotencyKey"].as_str().unwrap().to_owned());
    }
    let distinct: std::collections::BTreeSet<&String> = keys.iter().collect();
    assert_eq!(distinct.len(), keys.len(), "{keys:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_of_the_same_name_may_bring_further_calls() {
    let fleet = fleet().coordinators(2).start().await.unwrap();
    let ledger = fleet.ledger("more");
    let input = nap(1, &ledger).to_string();
    let one = message(&[("a", "nap", &input)]);
    let more = message(&[("a", "nap", &input), ("b", "nap", &input)]);
    let (first, second) = (fleet.http(0).unwrap(), fleet.http(1).unwrap());
    assert_eq!(contents(&first.turn("e", "t", &one).await.unwrap()), ["1"]);
    assert_eq!(contents(&second.turn("e", "t", &more).await.unwrap()), ["1", "1"]);
    let read = first.get("/v1/executions/e/turns/t").await.unwrap();
    assert_eq!(contents(&read), ["1", "1"]);
    assert_eq!(ledger.starts().len(), 2, "{:?}", ledger.lines());
}
