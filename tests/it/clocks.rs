//! The clocks of a call, each with its own error.

use crate::asked::{SOON, failed, fleet, message, nap, ok};
use crate::conversation::{answered, codes, contents, noting, post_turn};
use serde_json::json;

const WARNING: &str = "; it may have taken effect, check before calling it again";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_takes_too_long_is_stopped_and_says_after_what() {
    let slow = "sleep 20";
    let fleet = fleet()
        .exec_tool("slow-read", "effect = \"read\"\ntimeout = \"900ms\"", &noting("read", slow))
        .exec_tool("slow-write", "effect = \"write\"\ntimeout = \"1.5s\"", &noting("write", slow))
        .exec_tool("slow-same", "effect = \"idempotent\"\ntimeout = \"1s\"", &noting("same", slow))
        .start()
        .await
        .unwrap();
    let asked = message(&[("a", "slow-read", ""), ("b", "slow-write", ""), ("c", "slow-same", "")]);
    let answer = fleet.http(0).unwrap().turn("e", "t", &asked).await.unwrap();
    let wanted = [
        "Tool error: timed out after 900 ms".to_owned(),
        format!("Tool error: timed out after 1.5 s{WARNING}"),
        "Tool error: timed out after 1 s".to_owned(),
    ];
    assert_eq!(contents(&answer), wanted);
    assert_eq!(codes(&answer), ["timed_out"; 3]);
    for (ledger, call) in
        ["read", "write", "same"].iter().zip(answer.body["calls"].as_array().unwrap())
    {
        let ledger = fleet.ledger(ledger);
        assert_eq!((ledger.starts().len(), ledger.ends().len()), (1, 0), "{:?}", ledger.lines());
        assert_eq!(call["attempts"], 1, "{call}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_waits_too_long_for_a_busy_worker_never_starts() {
    let impatient = |effect: &str| format!("effect = \"{effect}\"\nqueue_timeout = \"1s\"");
    let fleet = fleet()
        .slots(1)
        .coordinators(2)
        .exec_tool("read-soon", &impatient("read"), &noting("read", ":"))
        .exec_tool("write-soon", &impatient("write"), &noting("write", ":"))
        .exec_tool("long", "effect = \"read\"\nqueue_timeout = \"4s\"", &noting("long", "sleep 12"))
        .start()
        .await
        .unwrap();
    let (first, second) = (fleet.http(0).unwrap(), fleet.http(1).unwrap());
    let long = post_turn(&first, "e", "long", &message(&[("l", "long", "")]));
    fleet.ledger("long").started(1, SOON).await.unwrap();
    let asked = message(&[("a", "read-soon", ""), ("b", "write-soon", "")]);
    let answer = first.turn("e", "t", &asked).await.unwrap();
    let text = "Tool error: timed out after 1 s waiting for a worker";
    assert_eq!(contents(&answer), [text, text], "the worker is live, only busy");
    assert_eq!(codes(&answer), ["queue_timed_out"; 2]);
    for call in answer.body["calls"].as_array().unwrap() {
        assert_eq!(call["startState"], "never_started", "{call}");
    }
    // The one that a worker holds has its own clocks, however long it was to wait.
    assert_eq!(contents(&answered(long).await), [""]);
    ok(&second.call("nap", json!({"ms": 1})).await.unwrap());
    assert_eq!(
        second.turn("e", "t", &asked).await.unwrap().body["messages"],
        answer.body["messages"]
    );
    for ledger in ["read", "write"] {
        assert!(fleet.ledger(ledger).lines().is_empty(), "{ledger} has run after all");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_of_the_caller_says_so() {
    let fleet = fleet().slots(1).start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let (running, queued) = (fleet.ledger("running"), fleet.ledger("queued"));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let deadline = toolfleet_proto::end::instant(i64::try_from(now.as_millis()).unwrap() + 4_000);
    let call = |tool: &str, id: &str, input: serde_json::Value| {
        let body = json!({"input": input, "executionId": "e", "callId": id, "deadline": deadline});
        let (http, path) = (http.clone(), format!("/v1/tools/{tool}/call"));
        tokio::spawn(async move { http.post(&path, &body).await })
    };
    let first = call("nap-write", "running", nap(20_000, &running));
    running.started(1, SOON).await.unwrap();
    let second = call("nap", "queued", nap(1, &queued));
    let first = first.await.unwrap().unwrap();
    let text = failed(&first, "timed_out")["text"].as_str().unwrap();
    assert!(text.starts_with("Tool error: timed out: the deadline 20"), "{text}");
    assert!(text.ends_with(&format!("Z is over{WARNING}")), "{text}");
    let second = second.await.unwrap().unwrap();
    let text = failed(&second, "timed_out")["text"].as_str().unwrap();
    assert!(text.starts_with("Tool error: timed out: the deadline 20"), "{text}");
    assert!(queued.lines().is_empty() && running.ends().is_empty());
}
