//! A provider's message in, its results out.

use crate::asked::{fleet, message};
use serde_json::{Value, json};
use toolfleet_tests::Builder;

fn with_failing_tool() -> Builder {
    fleet().exec_tool("fails", "effect = \"read\"", "echo 'no luck' >&2; exit 3")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_of_a_turn_is_answered_in_its_order() {
    let fleet = with_failing_tool().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    // The first takes longest, so that results come in another order than calls.
    let asked = message(&[
        ("call_a", "nap", r#"{"ms": 400}"#),
        ("call_b", "fails", ""),
        ("call_c", "no-such-tool", "{}"),
        ("call_d", "nap", r#"{"ms": "soon"}"#),
        ("call_e", "bench-echo", r#"{"n": 1.50}"#),
    ]);
    let answer = http.turn("conversation", "first", &asked).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
    let body = &answer.body;
    assert_eq!((&body["state"], &body["replayed"]), (&json!("done"), &json!(false)));
    assert_eq!((&body["executionId"], &body["turn"]), (&json!("conversation"), &json!("first")));
    assert_eq!((&body["local"], &body["pending"]), (&json!([]), &json!([])));
    assert_eq!(body["format"], "openai-chat");

    let messages = body["messages"].as_array().unwrap();
    let ids: Vec<&str> = messages.iter().filter_map(|m| m["tool_call_id"].as_str()).collect();
    assert_eq!(ids, ["call_a", "call_b", "call_c", "call_d", "call_e"]);
    assert!(messages.iter().all(|message| message["role"] == "tool"));
    let content = |position: usize| messages[position]["content"].as_str().unwrap();
    assert_eq!(content(0), "1");
    assert_eq!(content(1), "Tool error: exited with code 3: no luck");
    assert!(content(2).starts_with("Tool error: "), "{}", content(2));
    assert!(content(2).contains("no-such-tool") && content(2).contains("nap"), "{}", content(2));
    assert_eq!(content(3), "Tool error: invalid input: ms: expected integer, got string \"soon\"");
    assert_eq!(content(4), r#"{"n": 1.50}"#.replace(' ', ""));

    let calls = body["calls"].as_array().unwrap();
    let codes: Vec<&Value> = calls.iter().map(|call| &call["code"]).collect();
    let expected = ["", "tool_error", "tool_not_found", "invalid_input", ""];
    for (code, expected) in codes.into_iter().zip(expected) {
        assert_eq!(code.as_str().unwrap_or_default(), expected, "{calls:?}");
    }
    assert_eq!(calls[0]["call"], "main:first:call_a");
    assert_eq!(calls[0]["idempotencyKey"], "conversation:main:first:call_a");
    let attempts: Vec<u64> = calls.iter().filter_map(|call| call["attempts"].as_u64()).collect();
    assert_eq!(attempts, [1, 1, 0, 0, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_posted_again_gives_the_recorded_results() {
    let fleet = fleet().coordinators(2).start().await.unwrap();
    let ledger = fleet.ledger("turn");
    let input = json!({"ms": 200, "ledger": ledger.path().to_string_lossy()}).to_string();
    let asked = message(&[("one", "nap", &input), ("two", "nap", &input)]);
    let (first, second) = (fleet.http(0).unwrap(), fleet.http(1).unwrap());
    let answer = first.turn("e", "t", &asked).await.unwrap();
    assert_eq!((answer.status, &answer.body["replayed"]), (200, &json!(false)));
    let again = second.turn("e", "t", &asked).await.unwrap();
    assert_eq!((again.status, &again.body["replayed"]), (200, &json!(true)), "{}", again.text);
    assert_eq!(answer.body["messages"], again.body["messages"]);
    assert_eq!(ledger.starts().len(), 2, "each call has run once: {:?}", ledger.lines());

    // A whole response and the envelope are read as the message alone is.
    let response = json!({"object": "chat.completion", "choices": [
        {"index": 0, "finish_reason": "tool_calls", "message": asked}]});
    let again = first.turn("e", "t", &response).await.unwrap();
    assert_eq!(again.body["messages"], answer.body["messages"], "{}", again.text);
    let envelope = json!({"message": asked, "turn": "t", "format": "openai-chat"});
    let again = first.post("/v1/executions/e/turns", &envelope).await.unwrap();
    assert_eq!(again.body["messages"], answer.body["messages"], "{}", again.text);
    assert_eq!(ledger.starts().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_names_of_executions_turns_and_calls_do_not_mix() {
    let fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    for id in ["a.b *", ">", "Zoë/日本", "a:b%3A", "$JS.API.STREAM.>"] {
        let other = format!("{id}:");
        let asked = message(&[
            (id, "bench-echo", r#"{"n":1}"#),
            (other.as_str(), "bench-echo", r#"{"n":2}"#),
        ]);
        let answer = http.turn(id, id, &asked).await.unwrap();
        assert_eq!(answer.status, 200, "{id:?}: {}", answer.text);
        let contents: Vec<&str> = answer.body["messages"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|message| message["content"].as_str())
            .collect();
        assert_eq!(contents, [r#"{"n":1}"#, r#"{"n":2}"#], "{id:?}");
        for (call, n) in answer.body["calls"].as_array().unwrap().iter().zip([1, 2]) {
            let read = http.read_call(id, call["call"].as_str().unwrap(), 0).await.unwrap();
            assert_eq!(read.body["result"], json!({ "n": n }), "{id:?}: {}", read.text);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_without_calls_has_no_results() {
    let fleet = fleet().start().await.unwrap();
    let asked = json!({"role": "assistant", "content": "nothing to do"});
    let answer = fleet.http(0).unwrap().turn("e", "t", &asked).await.unwrap();
    assert_eq!((answer.status, &answer.body["messages"]), (200, &json!([])), "{}", answer.text);
    assert_eq!(answer.body["calls"], json!([]));
}
