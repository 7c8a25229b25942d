//! Writes: started at most once, honest about what may have happened, held back until somebody looks.

use crate::asked::{SOON, fleet, message, problem};
use crate::cli::{check, toolfleet};
use crate::conversation::{answered, call_path, codes, contents, create, noting, path, post_turn};
use serde_json::{Value, json};
use toolfleet_proto::name::CallName;
use toolfleet_tests::{Fleet, messages, until};

fn pay(id: &str, cents: u32) -> Value {
    message(&[(id, "pay", &format!("{{\"cents\":{cents}}}"))])
}

/// A fleet with a payment of 3 s, noted in the ledger `pay`.
async fn paying(keys: &str) -> Fleet {
    let keys = format!("effect = \"write\"\n{keys}");
    let script =
        noting("pay", "echo \"key $TOOLFLEET_IDEMPOTENCY_KEY\" >>\"$ledger\"\nsleep 3\necho paid");
    fleet().coordinators(2).exec_tool("pay", &keys, &script).start().await.unwrap()
}

/// Kills the only worker in the middle of a write, starts it again, and gives the turn's answer.
async fn lose_the_worker(
    fleet: &mut Fleet,
    execution: &str,
    cents: u32,
) -> toolfleet_tests::Answer {
    let http = fleet.http(0).unwrap();
    let ledger = fleet.ledger("pay");
    // Said after the start.
    let keys = || ledger.lines().iter().filter(|line| line.starts_with("key ")).count();
    let before = keys();
    let posted = post_turn(&http, execution, "lost", &pay("a", cents));
    until("the write has started", SOON, async || (keys() > before).then_some(())).await.unwrap();
    fleet.workers[0].restart().await.unwrap();
    answered(posted).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_write_is_unknown_and_its_equals_wait_until_it_is_settled() {
    let mut fleet = paying("").await;
    let answer = lose_the_worker(&mut fleet, "e", 500).await;
    assert_eq!(codes(&answer), ["outcome_unknown"], "{}", answer.text);
    let text = contents(&answer).remove(0);
    let (start, rest) = text.split_at("Tool error: outcome unknown: pay started at ".len());
    assert_eq!(start, "Tool error: outcome unknown: pay started at ");
    let (time, rest) = rest.split_once(' ').unwrap();
    assert!(time.starts_with("20") && time.ends_with('Z'), "{text}");
    let wanted = "and its worker was lost; it may have taken effect. Do not call it again with the \
                  same input before that is checked.";
    assert_eq!(rest, wanted);
    let ledger = fleet.ledger("pay");
    assert_eq!(ledger.starts().len(), 1, "one start: {:?}", ledger.lines());
    assert!(ledger.lines().contains(&"key e:main:lost:a".to_owned()), "{:?}", ledger.lines());

    let (first, second) = (fleet.http(0).unwrap(), fleet.http(1).unwrap());
    // Equal arguments, however they are written, in whichever turn, through whichever coordinator.
    let spaced = message(&[("b", "pay", "{ \"cents\" : 500 }")]);
    let held = second.turn("e", "again", &spaced).await.unwrap();
    assert_eq!(
        (contents(&held), codes(&held)),
        (vec![text.clone()], vec!["outcome_unknown".into()])
    );
    let direct = first.call_as("pay", "e", "direct", json!({"cents": 500})).await.unwrap();
    assert_eq!(direct.body["text"], json!(text), "{}", direct.text);
    // Nor do they run where their coordinator died between their record and their results.
    for name in [
        CallName::of_turn("default", "e", "main", "again", "b"),
        CallName::direct("default", "e", "main", "direct"),
    ] {
        let prefix = fleet.broker().prefix();
        let stream = fleet.broker().jetstream().get_stream(prefix.results_stream()).await.unwrap();
        let purged = stream.purge().filter(prefix.result(&name)).await.unwrap();
        assert_eq!(purged.purged, 1, "{name}");
    }
    assert_eq!(
        contents(&second.turn("e", "again", &spaced).await.unwrap()),
        std::slice::from_ref(&text)
    );
    let direct = first.call_as("pay", "e", "direct", json!({"cents": 500})).await.unwrap();
    assert_eq!(direct.body["text"], json!(text), "{}", direct.text);
    assert_eq!(ledger.starts().len(), 1, "{:?}", ledger.lines());
    // Other arguments and other executions are other calls.
    contents(&second.turn("e", "other", &pay("c", 501)).await.unwrap());
    contents(&first.turn("f", "t", &pay("d", 500)).await.unwrap());
    assert_eq!((ledger.starts().len(), ledger.ends().len()), (3, 2), "{:?}", ledger.lines());

    let resolve = async |call: &str, outcome: &str| {
        let body = json!({ "outcome": outcome });
        first.post(&call_path("e", call, "resolve"), &body).await.unwrap()
    };
    problem(&resolve("main:other:c", "done").await, 409, "nothing_to_resolve");
    problem(&resolve("main:lost:a", "maybe").await, 422, "outcome_invalid");
    // One that was held back never ran: it is not what is to be settled.
    problem(&resolve("main:again:b", "done").await, 409, "nothing_to_resolve");
    let args = ["resolve", "e:main:lost:a", "--outcome", "not-done", "--server", second.base()];
    check(&toolfleet(&args, &[]).await, 0);
    for turn in ["settled", "settled-twice"] {
        let answer = second.turn("e", turn, &pay("g", 500)).await.unwrap();
        assert_eq!(contents(&answer), ["paid\n"], "{}", answer.text);
    }
    assert_eq!(ledger.starts().len(), 5, "{:?}", ledger.lines());
    // The lost call itself stays what it was.
    let again = second.turn("e", "lost", &pay("a", 500)).await.unwrap();
    assert_eq!(contents(&again), [text]);
    assert_eq!(ledger.starts().len(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_honours_its_key_runs_again_under_the_same_one() {
    let mut fleet = paying("rerun = true").await;
    let answer = lose_the_worker(&mut fleet, "e", 500).await;
    assert_eq!(contents(&answer), ["paid\n"], "{}", answer.text);
    assert_eq!(answer.body["calls"][0]["attempts"], 2);
    let ledger = fleet.ledger("pay");
    let attempts: Vec<u32> = ledger.starts().iter().map(|(attempt, _)| *attempt).collect();
    assert_eq!(attempts, [1, 2], "{:?}", ledger.lines());
    let keys = ledger.lines().iter().filter(|line| *line == "key e:main:lost:a").count();
    assert_eq!(keys, 2, "both attempts have one key: {:?}", ledger.lines());
    let starts = fleet.broker().prefix().starts_stream();
    assert!(messages(fleet.broker(), &starts, ">").await.unwrap().is_empty(), "it takes no record");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_never_started_runs_when_a_worker_comes() {
    let mut fleet = paying("").await;
    let http = fleet.http(0).unwrap();
    assert!(fleet.workers[0].terminate().await.unwrap().success());
    let posted = post_turn(&http, "e", "t", &pay("a", 500));
    until("the call is queued", SOON, async || {
        let list = http.get(&path("e", "/calls")).await.ok()?;
        (list.body["items"][0]["state"] == "queued").then_some(())
    })
    .await
    .unwrap();
    fleet.workers[0].restart().await.unwrap();
    let answer = answered(posted).await;
    assert_eq!(contents(&answer), ["paid\n"]);
    assert_eq!(answer.body["calls"][0]["attempts"], 1);
    assert_eq!(fleet.ledger("pay").starts().len(), 1);
    let starts = fleet.broker().prefix().starts_stream();
    assert_eq!(messages(fleet.broker(), &starts, ">").await.unwrap().len(), 1, "one start record");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_write_and_a_refused_one_are_not_held_back() {
    let script = noting("odd", "echo 'card declined' >&2; exit 4");
    let fleet = fleet().exec_tool("odd", "effect = \"write\"", &script).start().await.unwrap();
    let http = fleet.http(0).unwrap();
    for turn in ["one", "two"] {
        let answer = http.turn("e", turn, &message(&[("a", "odd", "{\"n\":1}")])).await.unwrap();
        assert_eq!(contents(&answer), ["Tool error: exited with code 4: card declined"]);
    }
    assert_eq!(
        fleet.ledger("odd").starts().len(),
        2,
        "a failure is known: the model may try again"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_equal_that_waits_for_a_slot_is_held_back_too() {
    let mut fleet = paying("").await;
    let http = fleet.http(0).unwrap();
    create(&http, json!({"id": "e", "maxParallelCalls": 1})).await;
    let cents = "{\"cents\":500}";
    let asked =
        message(&[("a", "pay", cents), ("b", "pay", cents), ("c", "pay", "{\"cents\":501}")]);
    let posted = post_turn(&http, "e", "t", &asked);
    let ledger = fleet.ledger("pay");
    ledger.started(1, SOON).await.unwrap();
    fleet.workers[0].restart().await.unwrap();
    let answer = answered(posted).await;
    assert_eq!(codes(&answer), ["outcome_unknown", "outcome_unknown", ""], "{}", answer.text);
    let contents = contents(&answer);
    assert_eq!(contents[0], contents[1]);
    assert_eq!((ledger.starts().len(), ledger.ends().len()), (2, 1), "{:?}", ledger.lines());
}
