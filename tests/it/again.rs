//! What was handed in before is attached to, whatever became of its time, its tool and its place in the
//! queue (CONTRACT 3.6).

use crate::asked::{SOON, fleet, message, ok, problem};
use crate::conversation::{answered, codes, contents, create, path, post_turn};
use crate::executions::naps;
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};
use toolfleet_tests::{Answer, Http, until};

async fn call(http: &Http, tool: &str, body: &Value) -> Answer {
    http.post(&format!("/v1/tools/{tool}/call"), body).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_that_is_over_keeps_nobody_from_the_recorded_result() {
    let fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let deadline_ms = i64::try_from(now.as_millis()).unwrap() + 3_000;
    let deadline = toolfleet_proto::end::instant(deadline_ms);
    let execution = json!({"id": "e", "deadline": deadline});
    create(&http, execution.clone()).await;
    let direct =
        json!({"input": {"ms": 1}, "executionId": "x", "callId": "c", "deadline": deadline});
    ok(&call(&http, "nap", &direct).await);
    let asked = message(&[("a", "nap", "{\"ms\":1}")]);
    let turn = json!({"message": asked, "turn": "t", "deadline": deadline});
    let first = http.post(&path("f", "/turns"), &turn).await.unwrap();
    assert_eq!(codes(&first), [""], "{}", first.text);

    until("the deadline is over", SOON, async || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        (i64::try_from(now.as_millis()).unwrap() > deadline_ms + 100).then_some(())
    })
    .await
    .unwrap();
    let again = call(&http, "nap", &direct).await;
    assert_eq!(ok(&again)["replayed"], true, "{}", again.text);
    let again = http.post(&path("f", "/turns"), &turn).await.unwrap();
    assert_eq!((&again.body["replayed"], contents(&again)), (&json!(true), contents(&first)));
    assert_eq!(http.post("/v1/executions", &execution).await.unwrap().status, 200);
    // The same names with other arguments are still refused, and what is new must have time left.
    let other =
        json!({"input": {"ms": 2}, "executionId": "x", "callId": "c", "deadline": deadline});
    problem(&call(&http, "nap", &other).await, 422, "idempotency_conflict");
    let new = json!({"input": {"ms": 1}, "executionId": "x", "callId": "d", "deadline": deadline});
    problem(&call(&http, "nap", &new).await, 422, "deadline_invalid");
    let new = json!({"message": turn["message"], "turn": "u", "deadline": deadline});
    problem(&http.post(&path("f", "/turns"), &new).await.unwrap(), 422, "deadline_invalid");
    problem(
        &http.post("/v1/executions", &json!({"id": "g", "deadline": deadline})).await.unwrap(),
        422,
        "deadline_invalid",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_outlives_its_tool() {
    let keys = "effect = \"write\"\n[input]\ntype = \"object\"";
    let mut fleet = fleet().exec_tool("passing", keys, "printf done").start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let first = http.call_as("passing", "e", "c", json!({"n": 1.0})).await.unwrap();
    assert_eq!(ok(&first)["replayed"], false);
    std::fs::remove_file(fleet.dir().join("tools/passing.toml")).unwrap();
    fleet.workers[0].restart().await.unwrap();
    until("the tool is dropped", SOON, async || {
        let dropped = http.post("/v1/tools/passing/drop", &json!({})).await.ok()?;
        (dropped.status == 200).then_some(())
    })
    .await
    .unwrap();
    let new = http.call_as("passing", "e", "d", json!({})).await.unwrap();
    problem(&new, 404, "tool_not_found");
    let again = http.call_as("passing", "e", "c", json!({"n": 1.0})).await.unwrap();
    assert_eq!((&ok(&again)["replayed"], &ok(&again)["text"]), (&json!(true), &json!("done")));
    let other = http.call_as("passing", "e", "c", json!({"n": 2})).await.unwrap();
    problem(&other, 422, "idempotency_conflict");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_waits_for_a_slot_of_its_turn_can_be_read_and_waited_for() {
    let fleet = fleet().coordinators(2).start().await.unwrap();
    let (first, second) = (fleet.http(0).unwrap(), fleet.http(1).unwrap());
    create(&first, json!({"id": "e", "maxParallelCalls": 1})).await;
    let ledger = fleet.ledger("slots");
    let posted = post_turn(&first, "e", "t", &naps(2, 1_500, &ledger));
    ledger.started(1, SOON).await.unwrap();
    let list = second.get(&path("e", "/calls")).await.unwrap().body["items"].clone();
    let waiting = list.as_array().unwrap().iter().find(|item| item["state"] == "waiting").unwrap();
    let id = waiting["call"].as_str().unwrap();
    let now = second.read_call("e", id, 0).await.unwrap();
    assert_eq!((now.status, &now.body["state"]), (200, &json!("waiting")), "{}", now.text);
    let turn = second.get(&format!("{}?wait=20", path("e", "/turns/t"))).await.unwrap();
    assert_eq!((&turn.body["state"], contents(&turn)), (&json!("done"), vec!["1".to_owned(); 2]));
    let done = second.read_call("e", id, 20).await.unwrap();
    assert_eq!((&done.body["state"], &done.body["replayed"]), (&json!("done"), &json!(false)));
    problem(&second.read_call("e", "main:t:none", 0).await.unwrap(), 404, "call_not_found");
    answered(posted).await;

    // Waited for from before it has a job.
    let posted = post_turn(&first, "e", "u", &naps(2, 1_500, &ledger));
    let id = id.replacen(":t:", ":u:", 1);
    until("it is listed", SOON, async || {
        (second.read_call("e", &id, 0).await.ok()?.body["state"] == "waiting").then_some(())
    })
    .await
    .unwrap();
    let done = second.read_call("e", &id, 20).await.unwrap();
    assert_eq!(done.body["state"], "done", "{}", done.text);
    answered(posted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_is_told_the_thread_of_its_execution_and_an_envelope_says_nothing_in_vain() {
    let script = "printf '%s' \"$TOOLFLEET_THREAD_ID\"";
    let fleet = fleet().exec_tool("thread", "effect = \"read\"", script).start().await.unwrap();
    let http = fleet.http(0).unwrap();
    create(&http, json!({"id": "e", "threadId": "talk 7"})).await;
    let asked = message(&[("a", "thread", "{}")]);
    assert_eq!(contents(&http.turn("e", "t", &asked).await.unwrap()), ["talk 7"]);
    assert_eq!(ok(&http.call_as("thread", "e", "c", json!({})).await.unwrap())["text"], "talk 7");
    assert_eq!(ok(&http.call("thread", json!({})).await.unwrap())["text"], "");

    let enveloped = json!({"message": asked, "context": {"page": "/"}});
    problem(&http.post(&path("e", "/turns"), &enveloped).await.unwrap(), 422, "not_yet");
}
