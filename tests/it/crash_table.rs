//! Workers and coordinators that die at each step of a call: one result, and a write starts at most once.

use crate::asked::{SOON, failed, fleet, nap, ok};
use crate::conversation::call_path;
use serde_json::json;
use toolfleet_proto::name::CallName;
use toolfleet_tests::{Answer, Fate, Fleet, Http, Ledger, until};

/// A call of its own name that runs beside the test.
struct Calling {
    name: CallName,
    ledger: Ledger,
    answer: tokio::task::JoinHandle<anyhow::Result<Answer>>,
}

fn calling(fleet: &Fleet, http: &Http, tool: &'static str, id: &str) -> Calling {
    let ledger = fleet.ledger(&id.replace(':', "-"));
    let (http, input, call) = (http.clone(), nap(50, &ledger), id.to_owned());
    Calling {
        name: CallName::direct("default", "crash", "main", id),
        ledger,
        answer: tokio::spawn(async move { http.call_as(tool, "crash", &call, input).await }),
    }
}

/// Starts every worker again that is gone.
async fn revive(fleet: &mut Fleet) {
    for worker in &mut fleet.workers {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", worker.pid()));
        let stat = stat.unwrap_or_default();
        let is_gone = stat
            .rsplit(')')
            .next()
            .is_none_or(|rest| rest.is_empty() || rest.trim_start().starts_with('Z'));
        if is_gone {
            worker.restart().await.unwrap();
        }
    }
}

/// What comes of a call whose worker is killed at a stage.
struct Expected {
    stage: &'static str,
    /// The code; `None`: it ends well.
    code: Option<&'static str>,
    attempts: u32,
    starts: usize,
}

const fn well(stage: &'static str, attempts: u32, starts: usize) -> Expected {
    Expected { stage, code: None, attempts, starts }
}

async fn killed_at_each_stage(tool: &'static str, expected: &[Expected]) {
    let mut fleet = fleet().workers(2).start().await.unwrap();
    let http = fleet.http(0).unwrap();
    for Expected { stage, code, attempts, starts } in expected {
        fleet.fail_points().arm(stage, Fate::Kill).unwrap();
        let call = calling(&fleet, &http, tool, stage);
        fleet.fail_points().reached(stage, SOON).await.unwrap();
        let answer = call.answer.await.unwrap().unwrap();
        let body = match code {
            None => ok(&answer),
            Some(code) => failed(&answer, code),
        };
        assert_eq!(body["attempts"], *attempts, "{stage}: {}", answer.text);
        assert_eq!(call.ledger.starts().len(), *starts, "{stage}: {:?}", call.ledger.lines());
        assert_eq!(fleet.results_of(&call.name).await.unwrap(), 1, "{stage}");
        revive(&mut fleet).await;
        // What was acknowledged by nobody is delivered again, and is not run.
        let subject = fleet.broker().prefix().job("default", &call.name);
        until(&format!("{stage}: the job is gone"), SOON, async || {
            fleet.broker().read_job(&subject).await.ok()?.is_none().then_some(())
        })
        .await
        .unwrap();
        assert_eq!(call.ledger.starts().len(), *starts, "{stage}: {:?}", call.ledger.lines());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_whose_worker_is_killed_at_any_stage_has_one_result() {
    killed_at_each_stage(
        "nap",
        &[
            well("claim:before", 1, 1),
            well("claim:after", 2, 1),
            well("check:after", 2, 1),
            well("run:before", 2, 1),
            well("run:after", 2, 2),
            well("commit:before", 2, 2),
            well("commit:after", 1, 1),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_worker_is_killed_at_any_stage_starts_at_most_once() {
    let unknown =
        |stage, starts| Expected { stage, code: Some("outcome_unknown"), attempts: 1, starts };
    killed_at_each_stage(
        "nap-write",
        &[
            well("claim:after", 2, 1),
            well("check:after", 2, 1),
            well("start:before", 2, 1),
            // From its start record on nobody can tell.
            unknown("start:after", 0),
            unknown("run:before", 0),
            unknown("run:after", 1),
            unknown("commit:before", 1),
            well("commit:after", 1, 1),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_that_dies_around_the_publish_loses_nothing_that_it_accepted() {
    let mut fleet = fleet().start().await.unwrap();
    for stage in ["publish:before", "publish:after", "accept:before"] {
        fleet.fail_points().arm(stage, Fate::Kill).unwrap();
        let call = calling(&fleet, &fleet.http(0).unwrap(), "nap-write", stage);
        fleet.fail_points().reached(stage, SOON).await.unwrap();
        assert!(call.answer.await.unwrap().is_err(), "{stage}: nobody was left to answer");
        fleet.coordinators[0].restart().await.unwrap();
        let again = calling(&fleet, &fleet.http(0).unwrap(), "nap-write", stage);
        let answer = again.answer.await.unwrap().unwrap();
        ok(&answer);
        assert_eq!(call.ledger.starts().len(), 1, "{stage}: {:?}", call.ledger.lines());
        assert_eq!(fleet.results_of(&call.name).await.unwrap(), 1, "{stage}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_canceller_that_dies_at_any_stage_leaves_a_call_that_never_starts() {
    let mut fleet = fleet().coordinators(2).start().await.unwrap();
    let http = fleet.http(1).unwrap();
    fleet.workers[0].kill().await.unwrap();
    for stage in ["cancel:before", "mark:after", "tombstone:after", "end:before", "end:after"] {
        let call = calling(&fleet, &http, "nap-write", stage);
        let subject = fleet.broker().prefix().job("default", &call.name);
        until("the call is queued", SOON, async || {
            fleet.broker().read_job(&subject).await.ok()?.map(drop)
        })
        .await
        .unwrap();
        fleet.fail_points().arm(stage, Fate::Kill).unwrap();
        let path = call_path("crash", &call.name.call, "cancel");
        assert!(fleet.http(0).unwrap().post(&path, &json!({})).await.is_err(), "{stage}");
        fleet.coordinators[0].restart().await.unwrap();
        // Asked again, or met by the worker that comes: cancelled by whoever is first.
        let again = fleet.http(0).unwrap().post(&path, &json!({})).await.unwrap();
        let said = again.body["answer"].as_str().unwrap().to_owned();
        let expected = if stage == "end:after" { "already_finished" } else { "never_started" };
        assert_eq!(said, expected, "{stage}: {}", again.text);
        let answer = call.answer.await.unwrap().unwrap();
        assert_eq!(failed(&answer, "cancelled")["startState"], "never_started", "{stage}");
        assert_eq!(fleet.results_of(&call.name).await.unwrap(), 1, "{stage}");
    }
    fleet.workers[0].restart().await.unwrap();
    ok(&http.call("nap", nap(1, &fleet.ledger("later"))).await.unwrap());
    for stage in ["cancel-before", "mark-after", "tombstone-after", "end-before", "end-after"] {
        assert!(fleet.ledger(stage).starts().is_empty(), "{stage} was started");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_ends_although_everybody_who_knew_of_it_is_gone() {
    let keys = "effect = \"write\"\nqueue_timeout = \"1s\"";
    let mut fleet = fleet().exec_tool("lonely", keys, "echo done").start().await.unwrap();
    assert!(fleet.workers[0].terminate().await.unwrap().success());
    let http = fleet.http(0).unwrap();
    let calling =
        tokio::spawn(async move { http.call_as("lonely", "crash", "c", json!({})).await });
    let name = CallName::direct("default", "crash", "main", "c");
    until("the call is queued", SOON, async || {
        let subject = fleet.broker().prefix().job("default", &name);
        fleet.broker().read_job(&subject).await.ok()?.map(drop)
    })
    .await
    .unwrap();
    fleet.coordinators[0].restart().await.unwrap();
    assert!(calling.await.unwrap().is_err());
    // Nobody asks for it: the auditor of the coordinator that came ends it.
    let result = until("the call has a result", SOON * 2, async || fleet.result(&name).await.ok());
    assert_eq!(result.await.unwrap().code, "no_worker");
    let admin = fleet.admin(0).unwrap();
    until("the repair is counted", SOON, async || {
        let page = admin.get("/metrics").await.ok()?.text;
        page.contains("toolfleet_jobs_repaired_total{kind=\"overdue\"} 1").then_some(())
    })
    .await
    .unwrap();
}
