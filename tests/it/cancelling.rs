//! What a cancel shows of itself, and hundreds of them at any moment of a call.

use crate::asked::{SOON, failed, fleet, nap, ok};
use crate::conversation::{call_path, noting};
use serde_json::{Value, json};
use std::time::Duration;
use toolfleet_proto::name::CallName;
use toolfleet_tests::soak::Seed;
use toolfleet_tests::{Announcements, Answer, Fleet, until};

const CALLS: usize = 300;

async fn read(fleet: &Fleet, execution: &str, id: &str) -> Value {
    let path = format!("/v1/calls/{execution}/main:direct:{id}");
    fleet.http(0).unwrap().get(&path).await.unwrap().body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_shows_when_it_was_asked_for_delivered_and_how_the_tool_ended() {
    let stubborn = format!("trap '' TERM\n{}", noting("stubborn", "while :; do sleep 0.1; done"));
    let docile = noting("docile", "sleep 60");
    let mut fleet = fleet()
        .exec_tool("stubborn", "effect = \"read\"", &stubborn)
        .exec_tool("docile", "effect = \"read\"", &docile)
        .env("TOOLFLEET_LIMITS__KILL_GRACE", "3s")
        .env("TOOLFLEET_LIMITS__LEASE_TTL", "6s")
        .env("TOOLFLEET_LIMITS__ACK_WAIT", "8s")
        .env("TOOLFLEET_LIMITS__CANCEL_GRACE", "5s")
        .start()
        .await
        .unwrap();
    let http = fleet.http(0).unwrap();
    for (tool, end) in [("stubborn", "killed"), ("docile", "stopped")] {
        let call = {
            let http = http.clone();
            tokio::spawn(async move { http.call_as(tool, "shown", tool, json!({})).await })
        };
        fleet.ledger(tool).started(1, SOON).await.unwrap();
        let cancel = {
            let (http, path) =
                (http.clone(), call_path("shown", &format!("main:direct:{tool}"), "cancel"));
            tokio::spawn(async move { http.post(&path, &json!({})).await })
        };
        if end == "killed" {
            // While the tool has its grace.
            until("the cancel shows as delivered", SOON, async || {
                let open = read(&fleet, "shown", tool).await;
                let is_told =
                    open["state"] == "running" && open["cancel"]["deliveredAt"].is_string();
                (is_told && open["cancel"]["requestedAt"].is_string()).then_some(())
            })
            .await
            .unwrap();
        }
        cancel.await.unwrap().unwrap();
        let answer = call.await.unwrap().unwrap();
        let cancel = failed(&answer, "cancelled")["cancel"].clone();
        let at = |key: &str| -> jiff::Timestamp {
            cancel[key].as_str().unwrap_or_else(|| panic!("{cancel}")).parse().unwrap()
        };
        assert!(
            at("requestedAt") <= at("deliveredAt") && at("deliveredAt") <= at("endedAt"),
            "{cancel}"
        );
        assert_eq!(cancel["end"], end, "{cancel}");
        assert_eq!(read(&fleet, "shown", tool).await["cancel"], cancel);
    }
    // One that never started was told to nobody.
    fleet.workers[0].kill().await.unwrap();
    let call = {
        let (http, input) = (http.clone(), nap(1, &fleet.ledger("none")));
        tokio::spawn(async move { http.call_as("nap", "shown", "queued", input).await })
    };
    let path = call_path("shown", "main:direct:queued", "cancel");
    until("it is cancelled", SOON, async || {
        let answer = http.post(&path, &json!({})).await.ok()?;
        (answer.body["answer"] == "never_started").then_some(())
    })
    .await
    .unwrap();
    let answer = call.await.unwrap().unwrap();
    let cancel = &failed(&answer, "cancelled")["cancel"];
    assert!(cancel["requestedAt"].is_string(), "{cancel}");
    assert_eq!((&cancel["deliveredAt"], &cancel["end"]), (&json!(null), &json!(null)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_claim_start_and_end_in_any_order_are_one_result_that_all_agree_on() {
    let fleet = fleet().coordinators(2).workers(2).slots(4).start().await.unwrap();
    let heard = Announcements::listen(fleet.broker()).await.unwrap();
    let doors = [fleet.http(0).unwrap(), fleet.http(1).unwrap()];
    let number = u64::from(std::process::id());
    println!("seed {number}");
    let mut seed = Seed::new(number);
    let mut calls = Vec::new();
    for id in 0..CALLS {
        let tool = if seed.percent(50) { "nap" } else { "nap-write" };
        let input = nap(seed.within(1, 150), &fleet.ledger(&id.to_string()));
        // Not yet queued, queued, claimed, running, just about to end, ended.
        let pauses = [seed.below(200), seed.below(200)].map(Duration::from_millis);
        let (one, two) = (doors[id % 2].clone(), doors[1 - id % 2].clone());
        let execution = format!("any-{}", id / 20);
        let cancel = call_path(&execution, &format!("main:direct:{id}"), "cancel");
        let cancelling = |http: toolfleet_tests::Http, pause: Duration, path: String| async move {
            tokio::time::sleep(pause).await;
            // One that nobody knows yet is asked for again: the cancel comes as it is published.
            for _ in 0..60 {
                let answer = http.post(&path, &json!({})).await.unwrap();
                let said = answer.body["answer"].as_str().unwrap_or("unknown").to_owned();
                if said != "unknown" {
                    return said;
                }
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
            "unknown".to_owned()
        };
        calls.push((
            tool,
            tokio::spawn(async move {
                let id = id.to_string();
                tokio::join!(
                    one.call_as(tool, &execution, &id, input),
                    cancelling(one.clone(), pauses[0], cancel.clone()),
                    cancelling(two, pauses[1], cancel),
                )
            }),
        ));
        tokio::time::sleep(Duration::from_millis(seed.below(15))).await;
    }
    let mut ends = std::collections::BTreeMap::<String, usize>::new();
    for (id, (tool, call)) in calls.into_iter().enumerate() {
        let (answer, first, second) = call.await.unwrap();
        let end = check_agreement(&fleet, id, tool, &answer.unwrap(), &[first, second]).await;
        *ends.entry(end).or_default() += 1;
    }
    println!("{ends:?}");
    assert_eq!(heard.doubled(), []);
    // Each way to end was met: else the moments were not as many as they should be.
    assert!(ends.len() >= 3, "{ends:?}");
    ok(&doors[0].call("nap", json!({"ms": 1})).await.unwrap());
}

/// What a call's caller, its two cancellers, its record and its tool say fits together. Says how it ended.
async fn check_agreement(
    fleet: &Fleet,
    id: usize,
    tool: &str,
    answer: &Answer,
    said: &[String; 2],
) -> String {
    let name = CallName::direct("default", &format!("any-{}", id / 20), "main", &id.to_string());
    let ledger = fleet.ledger(&id.to_string());
    let what = format!("{id} {tool} {said:?}: {} {:?}", answer.text, ledger.lines());
    assert_eq!(fleet.results_of(&name).await.unwrap(), 1, "{what}");
    let stored = fleet.result(&name).await.unwrap();
    assert_eq!(answer.body["code"].as_str().unwrap_or("ok"), stored.code, "{what}");
    let is_cancelled = stored.code == "cancelled";
    let is_unstarted = stored.start_state == "never_started";
    for said in said {
        match said.as_str() {
            "never_started" => assert!(is_cancelled && is_unstarted, "{what}"),
            "may_have_started" => assert!(is_cancelled && !is_unstarted, "{what}"),
            "already_finished" | "unknown" => {}
            other => panic!("{other}: {what}"),
        }
    }
    if is_cancelled {
        assert!(said.iter().any(|said| said.ends_with("_started")), "{what}");
    } else {
        assert_eq!((ledger.starts().len(), ledger.ends().len()), (1, 1), "{what}");
    }
    if is_cancelled && is_unstarted {
        assert!(ledger.lines().is_empty(), "{what}");
    }
    assert!(ledger.starts().len() <= 1, "{what}");
    format!("{} {}", stored.code, stored.start_state)
}
