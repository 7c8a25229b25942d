//! Cancelling a whole turn or execution, and programs that do not want to stop.

use crate::asked::{SOON, failed, fleet, message, nap, ok, problem};
use crate::cli::{check, toolfleet};
use crate::conversation::{
    answered, call_path, codes, contents, create, noting, path, post_turn, read,
};
use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use toolfleet_io::clock::FleetClock;
use toolfleet_io::config::Redis;
use toolfleet_io::lease_store::{LeaseStore, StopKind};
use toolfleet_proto::code::Code;
use toolfleet_proto::lease::Mark;
use toolfleet_proto::limit::Limits;
use toolfleet_proto::name::CallName;
use toolfleet_tests::{Answer, Http, Ledger, until};

const WARNING: &str = "; it may have taken effect, check before calling it again";

async fn cancel(http: &Http, path: &str, reason: &str) -> Answer {
    http.post(path, &json!({ "reason": reason })).await.unwrap()
}

/// The answer to a cancelled execution: call to answer.
#[track_caller]
fn answers(answer: &Answer) -> BTreeMap<String, String> {
    assert_eq!(
        (answer.status, &answer.body["state"]),
        (200, &json!("cancelled")),
        "{}",
        answer.text
    );
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let calls = answer.body["calls"].as_array().unwrap();
    calls.iter().map(|call| (text(&call["call"]), text(&call["answer"]))).collect()
}

fn is_gone(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).unwrap();
    test_kill_process(pid).is_err()
}

/// Process ids that a script noted, each in a line `pid <id>`.
fn pids(ledger: &Ledger) -> Vec<u32> {
    let lines = ledger.lines();
    lines.iter().filter_map(|line| line.strip_prefix("pid ")?.parse().ok()).collect()
}

/// A program that ignores TERM, with a child and a grandchild that ignore it too.
const STUBBORN: &str = r#"
trap '' TERM
echo "pid $$" >>"$ledger"
sh -c 'trap "" TERM; echo "pid $$" >>"$1"; sh -c "trap \"\" TERM; echo \"pid \$\$\" >>\"\$1\"; while :; do sleep 1; done" s "$1"; :' c "$ledger" &
while :; do sleep 1; done
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_ignores_term_is_killed_with_its_grandchildren() {
    let script = noting("stubborn", STUBBORN);
    let polite =
        noting("polite", "trap 'echo \"told\" >>\"$ledger\"; exit 0' TERM\nsleep 20 & wait $!");
    let fleet = fleet()
        .coordinators(2)
        .exec_tool("stubborn", "effect = \"write\"\ntimeout = \"60s\"", &script)
        .exec_tool("polite", "effect = \"read\"", &polite)
        .start()
        .await
        .unwrap();
    let (first, second) = (fleet.http(0).unwrap(), fleet.http(1).unwrap());
    let asked =
        message(&[("a", "stubborn", "{}"), ("b", "polite", "{}"), ("c", "bench-echo", "{}")]);
    let posted = post_turn(&first, "e", "t", &asked);
    let ledger = fleet.ledger("stubborn");
    until("all three processes run", SOON, async || (pids(&ledger).len() == 3).then_some(()))
        .await
        .unwrap();
    fleet.ledger("polite").started(1, SOON).await.unwrap();
    for call in ["main:t:a", "main:t:b"] {
        let answer = cancel(&second, &call_path("e", call, "cancel"), "the user went away").await;
        assert_eq!(
            (answer.status, &answer.body["answer"]),
            (200, &json!("may_have_started")),
            "{}",
            answer.text
        );
        let again = cancel(&second, &call_path("e", call, "cancel"), "again").await;
        assert_eq!(again.body["answer"], "already_finished", "{}", again.text);
    }
    let answer = answered(posted).await;
    let wanted = [
        format!("Tool error: the user went away{WARNING}"),
        "Tool error: the user went away".to_owned(),
        "{}".to_owned(),
    ];
    assert_eq!(contents(&answer), wanted, "siblings are not touched");
    assert_eq!(codes(&answer), ["cancelled", "cancelled", ""]);
    assert_eq!(answer.body["calls"][0]["startState"], "may_have_started");
    until("none of its processes is left", SOON, async || {
        pids(&ledger).into_iter().all(is_gone).then_some(())
    })
    .await
    .unwrap();
    assert!(fleet.ledger("polite").lines().contains(&"told".to_owned()), "TERM came first");
    assert!(ledger.ends().is_empty());
    problem(
        &cancel(&second, &call_path("e", "main:t:z", "cancel"), "no").await,
        404,
        "call_not_found",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_of_a_cancelled_execution_is_told_apart() {
    let fleet = fleet().coordinators(2).slots(1).start().await.unwrap();
    let (first, second) = (fleet.http(0).unwrap(), fleet.http(1).unwrap());
    let (running, queued) = (fleet.ledger("running"), fleet.ledger("queued"));
    contents(&first.turn("e", "one", &message(&[("a", "bench-echo", "{}")])).await.unwrap());
    let long = post_turn(
        &first,
        "e",
        "two",
        &message(&[("b", "nap-write", &nap(20_000, &running).to_string())]),
    );
    running.started(1, SOON).await.unwrap();
    let input = nap(1, &queued).to_string();
    let waiting = message(&[("c", "nap", &input), ("d", "nap-write", &input), ("x", "nab", "{}")]);
    let waiting = post_turn(&first, "e", "three", &waiting);
    until("two calls are queued", SOON, async || {
        let list = second.get(&path("e", "/calls")).await.ok()?;
        let states = list.body["items"].as_array()?.iter();
        (states.filter(|item| item["state"] == "queued").count() == 2).then_some(())
    })
    .await
    .unwrap();
    let answer = cancel(&second, &path("e", "/cancel"), "budget is gone").await;
    let wanted = [
        ("main:one:a", "already_finished"),
        ("main:three:c", "never_started"),
        ("main:three:d", "never_started"),
        ("main:three:x", "already_finished"),
        ("main:two:b", "may_have_started"),
    ];
    let wanted: BTreeMap<String, String> =
        wanted.iter().map(|(call, answer)| ((*call).to_owned(), (*answer).to_owned())).collect();
    assert_eq!(answers(&answer), wanted);
    assert_eq!(contents(&answered(long).await), [format!("Tool error: budget is gone{WARNING}")]);
    let waiting = answered(waiting).await;
    assert_eq!(contents(&waiting)[..2], ["Tool error: budget is gone"; 2]);
    for position in 0..2 {
        assert_eq!(
            waiting.body["calls"][position]["startState"], "never_started",
            "{}",
            waiting.text
        );
        assert_eq!(waiting.body["calls"][position]["attempts"], 0);
    }
    // What comes later is answered with the reason, call by call, and runs nowhere.
    let late = message(&[("l", "nap", &input), ("m", "bench-echo", "{}")]);
    let late = first.turn("e", "four", &late).await.unwrap();
    assert_eq!(contents(&late), ["Tool error: budget is gone"; 2]);
    assert_eq!(codes(&late), ["cancelled"; 2]);
    let record = read(&first, "e").await;
    assert_eq!(
        (&record["state"], &record["reason"]),
        (&json!("cancelled"), &json!("budget is gone"))
    );
    let again = answers(&cancel(&first, &path("e", "/cancel"), "once more").await);
    assert!(again.values().all(|answer| answer == "already_finished"), "{again:?}");
    // The slot is free, and whatever was queued before would have run before this.
    ok(&first.call("nap", json!({"ms": 1})).await.unwrap());
    assert!(queued.lines().is_empty(), "{:?}", queued.lines());
    assert_eq!((running.starts().len(), running.ends().len()), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_wait_for_a_slot_of_their_turn_are_reached_from_another_coordinator() {
    let fleet = fleet().coordinators(2).start().await.unwrap();
    let (first, second) = (fleet.http(0).unwrap(), fleet.http(1).unwrap());
    for execution in ["whole", "one"] {
        let ledger = fleet.ledger(execution);
        create(&first, json!({"id": execution, "maxParallelCalls": 1})).await;
        let input = nap(3_000, &ledger).to_string();
        let asked =
            message(&[("a", "nap", &input), ("b", "nap-write", &input), ("c", "nap", &input)]);
        let posted = post_turn(&first, execution, "t", &asked);
        ledger.started(1, SOON).await.unwrap();
        let list = second.get(&path(execution, "/calls")).await.unwrap();
        assert_eq!(list.body["items"][2]["state"], "waiting", "{}", list.text);
        if execution == "whole" {
            let answers = answers(&cancel(&second, &path("whole", "/cancel"), "stop").await);
            let answers: Vec<&str> = answers.values().map(String::as_str).collect();
            assert_eq!(answers, ["may_have_started", "never_started", "never_started"]);
            let posted = answered(posted).await;
            assert_eq!(contents(&posted), ["Tool error: stop"; 3]);
        } else {
            for call in ["main:t:b", "main:t:c"] {
                let answer =
                    cancel(&second, &call_path("one", call, "cancel"), "not this one").await;
                assert_eq!(answer.body["answer"], "never_started", "{}", answer.text);
            }
            let wanted = ["1", "Tool error: not this one", "Tool error: not this one"];
            assert_eq!(contents(&answered(posted).await), wanted);
        }
        assert_eq!(ledger.starts().len(), 1, "{execution}: {:?}", ledger.lines());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_and_an_end_at_the_same_time_are_one_result_for_all() {
    let fleet = fleet().coordinators(2).workers(2).start().await.unwrap();
    let (first, second) = (fleet.http(0).unwrap(), fleet.http(1).unwrap());
    for round in 0..16_u64 {
        let tool = if round % 2 == 0 { "nap" } else { "nap-write" };
        let ledger = fleet.ledger(&format!("race-{round}"));
        let id = format!("c{round}");
        let (http, input, name) = (first.clone(), nap(20, &ledger), id.clone());
        let running = tokio::spawn(async move { http.call_as(tool, "race", &name, input).await });
        // From before the job is published to after its end.
        tokio::time::sleep(std::time::Duration::from_millis(round * 5)).await;
        let call = format!("main:direct:{id}");
        let cancelled = cancel(&second, &call_path("race", &call, "cancel"), "race").await;
        let answer = running.await.unwrap().unwrap();
        let read = second.read_call("race", &call, 0).await.unwrap();
        for key in ["text", "code", "result", "attempts"] {
            assert_eq!(answer.body[key], read.body[key], "{key}: {} {}", answer.text, read.text);
        }
        let starts = ledger.starts().len();
        match (cancelled.status, cancelled.body["answer"].as_str().unwrap_or_default()) {
            (200, "never_started") => {
                failed(&answer, "cancelled");
                assert_eq!(starts, 0, "round {round}: {:?}", ledger.lines());
            }
            (200, "may_have_started") => {
                failed(&answer, "cancelled");
            }
            // It had ended, or nobody had heard of it yet.
            (200, "already_finished") | (404, _) => {
                ok(&answer);
                assert_eq!(starts, 1, "round {round}: {:?}", ledger.lines());
            }
            other => panic!("{other:?}: {}", cancelled.text),
        }
        let name = toolfleet_tests::call_name(&read.body).unwrap();
        assert_eq!(fleet.results_of(&name).await.unwrap(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_is_cancelled_while_no_worker_lives_never_starts() {
    let mut fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let ledger = fleet.ledger("later");
    assert!(fleet.workers[0].terminate().await.unwrap().success());
    let input = nap(1, &ledger).to_string();
    let asked = message(&[("w", "nap-write", &input), ("r", "nap", &input)]);
    let posted = post_turn(&http, "e", "t", &asked);
    until("both calls are queued", SOON, async || {
        let list = http.get(&path("e", "/calls")).await.ok()?;
        let items = list.body["items"].as_array()?;
        (items.len() == 2 && items.iter().all(|item| item["state"] == "queued")).then_some(())
    })
    .await
    .unwrap();
    // Through the command line: one call, then the rest.
    let server = http.base().to_owned();
    let args = ["cancel", "e", "main:t:w", "--reason", "wrong customer", "--server", &server];
    let (out, _) = check(&toolfleet(&args, &[]).await, 0);
    assert_eq!(out.trim(), "never_started");
    let args = ["cancel", "e", "--reason", "never mind", "--server", &server];
    let (out, _) = check(&toolfleet(&args, &[]).await, 0);
    for part in ["main:t:w", "already_finished", "main:t:r", "never_started"] {
        assert!(out.contains(part), "{part} is missing: {out}");
    }
    let answer = answered(posted).await;
    assert_eq!(contents(&answer), ["Tool error: wrong customer", "Tool error: never mind"]);
    let (_, err) = check(&toolfleet(&["cancel", "nobody", "--server", &server], &[]).await, 1);
    assert!(err.contains("nobody"), "{err}");

    fleet.workers[0].restart().await.unwrap();
    let again = http.turn("e", "t", &asked).await.unwrap();
    assert_eq!(again.body["messages"], answer.body["messages"]);
    ok(&http.call("nap", json!({"ms": 1})).await.unwrap());
    assert!(ledger.lines().is_empty(), "{:?}", ledger.lines());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_whose_signal_is_lost_is_found_by_the_next_renewal() {
    let fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let ledger = fleet.ledger("marked");
    let asked = message(&[("a", "nap", &nap(20_000, &ledger).to_string())]);
    let posted = post_turn(&http, "e", "t", &asked);
    ledger.started(1, SOON).await.unwrap();
    // Only the mark: a coordinator that dies right after it sends no signal.
    let redis = Redis { url: fleet.redis.url(), ..Redis::default() };
    let prefix = toolfleet_tests::prefix().unwrap();
    let limits = Limits::default();
    let store = LeaseStore::connect(&redis, prefix, &limits, FleetClock::new());
    let mark = Mark { code: Code::Cancelled, reason: "marked only".into(), at_ms: 0 };
    let name = CallName::of_turn("default", "e", "main", "t", "a");
    let stopped = store.await.unwrap().stop(&name, StopKind::Cancel, &mark).await.unwrap();
    assert!(stopped.holder.is_some(), "{stopped:?}");
    let answer = answered(posted).await;
    assert_eq!(contents(&answer), ["Tool error: marked only"]);
    assert_eq!((ledger.starts().len(), ledger.ends().len()), (1, 0), "{:?}", ledger.lines());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_does_not_answer_is_cancelled_all_the_same() {
    let fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let (read, write) = (fleet.ledger("read"), fleet.ledger("write"));
    let asked = message(&[
        ("r", "nap", &nap(3_000, &read).to_string()),
        ("w", "nap-write", &nap(3_000, &write).to_string()),
    ]);
    let posted = post_turn(&http, "e", "t", &asked);
    read.started(1, SOON).await.unwrap();
    write.started(1, SOON).await.unwrap();
    fleet.workers[0].pause().unwrap();
    let answers = answers(&cancel(&http, &path("e", "/cancel"), "it hangs").await);
    assert!(answers.values().all(|answer| answer == "may_have_started"), "{answers:?}");
    let answer = answered(posted).await;
    let wanted = ["Tool error: it hangs".to_owned(), format!("Tool error: it hangs{WARNING}")];
    assert_eq!(contents(&answer), wanted);
    // It wakes with two results in hand, and nobody wants them: both naps are over by then.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    fleet.workers[0].resume().unwrap();
    until("the woken worker runs a call", SOON, async || {
        let answer = http.call("nap", json!({"ms": 1})).await.ok()?;
        (answer.body["ok"] == true).then_some(())
    })
    .await
    .unwrap();
    let again = http.turn("e", "t", &asked).await.unwrap();
    assert_eq!(again.body["messages"], answer.body["messages"]);
    for id in ["r", "w"] {
        let name = CallName::of_turn("default", "e", "main", "t", id);
        assert_eq!(fleet.results_of(&name).await.unwrap(), 1);
    }
    assert_eq!((read.starts().len(), write.starts().len()), (1, 1));
}
