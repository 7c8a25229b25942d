//! The orders of steps in which the protocol could go wrong, each made by holding a process at a stage.

use crate::asked::{SOON, failed, fleet, nap, ok};
use crate::conversation::{answered, codes, create, path, post_turn};
use serde_json::json;
use std::time::Duration;
use toolfleet_proto::name::CallName;
use toolfleet_proto::topology::Prefix;
use toolfleet_tests::{Answer, Fate, Fleet, Ledger, until};

const EXECUTION: &str = "order";

struct Calling {
    name: CallName,
    ledger: Ledger,
    answer: tokio::task::JoinHandle<anyhow::Result<Answer>>,
}

fn calling(fleet: &Fleet, tool: &'static str, id: &'static str, ms: u64) -> Calling {
    let ledger = fleet.ledger(id);
    let (http, input) = (fleet.http(0).unwrap(), nap(ms, &ledger));
    Calling {
        name: CallName::direct("default", EXECUTION, "main", id),
        ledger,
        answer: tokio::spawn(async move { http.call_as(tool, EXECUTION, id, input).await }),
    }
}

async fn cancel(fleet: &Fleet, call: &Calling) -> String {
    let path = format!("/v1/calls/{EXECUTION}/{}/cancel", call.name.call);
    let answer = fleet.http(0).unwrap().post(&path, &json!({"reason": "stop"})).await.unwrap();
    answer.body["answer"].as_str().unwrap_or_else(|| panic!("{}", answer.text)).to_owned()
}

/// Makes the broker deliver a job again that a worker has in hand: what a broker does that was killed before
/// it had written down whom it gave the job.
async fn deliver_again(fleet: &Fleet, call: &Calling) {
    let (broker, prefix) = (fleet.broker(), fleet.broker().prefix());
    let job = broker.read_job(&prefix.job("default", &call.name)).await.unwrap().unwrap();
    let stream = broker.jetstream().get_stream(prefix.jobs_stream()).await.unwrap();
    let consumer = Prefix::consumer("default");
    let delivered = stream.consumer_info(&consumer).await.unwrap().delivered.consumer_sequence;
    let handle =
        format!("$JS.ACK.{}.{consumer}.1.{}.{delivered}.0.0", prefix.jobs_stream(), job.sequence);
    broker.client().publish(handle, "-NAK".into()).await.unwrap();
    broker.client().flush().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_between_claim_and_start_keeps_the_tool_from_starting() {
    let fleet = fleet().start().await.unwrap();
    for (number, tool) in ["nap", "nap-write"].into_iter().enumerate() {
        for stage in ["check:after", "start:before", "start:after", "run:before"] {
            if tool == "nap" && stage.starts_with("start") {
                continue;
            }
            fleet.fail_points().arm(stage, Fate::Hold).unwrap();
            let id = format!("{number}-{stage}").replace(':', "-").leak();
            let call = calling(&fleet, tool, id, 10);
            fleet.fail_points().reached(stage, SOON).await.unwrap();
            // Held longer than a canceller waits: it ends the call by itself.
            let said = cancel(&fleet, &call).await;
            fleet.fail_points().go_on(stage).unwrap();
            let answer = call.answer.await.unwrap().unwrap();
            let body = failed(&answer, "cancelled");
            assert_eq!(body["startState"], said, "{tool} {stage}: {}", answer.text);
            let is_proved = tool == "nap-write" && ["check:after", "start:before"].contains(&stage);
            let expected = if is_proved { "never_started" } else { "may_have_started" };
            assert_eq!(said, expected, "{tool} {stage}");
            // The worker is free again, and has not run it.
            ok(&fleet.http(0).unwrap().call("nap", nap(1, &fleet.ledger("next"))).await.unwrap());
            assert!(call.ledger.lines().is_empty(), "{tool} {stage}: {:?}", call.ledger.lines());
            assert_eq!(fleet.results_of(&call.name).await.unwrap(), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_timeout_leaves_a_call_alone_that_a_worker_holds() {
    let script = crate::conversation::noting("held", "printf ran");
    let keys = "effect = \"write\"\nqueue_timeout = \"2s\"";
    let fleet = fleet().exec_tool("slow", keys, &script).start().await.unwrap();
    fleet.fail_points().arm("start:before", Fate::Hold).unwrap();
    let http = fleet.http(0).unwrap();
    let call = tokio::spawn(async move { http.call_as("slow", EXECUTION, "c", json!({})).await });
    fleet.fail_points().reached("start:before", SOON).await.unwrap();
    // Past the timeout and its grace.
    tokio::time::sleep(Duration::from_secs(5)).await;
    fleet.fail_points().go_on("start:before").unwrap();
    assert_eq!(ok(&call.await.unwrap().unwrap())["text"], "ran");
    assert_eq!(fleet.ledger("held").starts().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_while_the_lease_store_is_silent_is_proved_by_the_start_record() {
    let fleet = fleet().start().await.unwrap();
    fleet.fail_points().arm("start:before", Fate::Hold).unwrap();
    let call = calling(&fleet, "nap-write", "silent", 10);
    fleet.fail_points().reached("start:before", SOON).await.unwrap();
    let redis = i32::try_from(fleet.redis.pid()).unwrap();
    let redis = rustix::process::Pid::from_raw(redis).unwrap();
    rustix::process::kill_process(redis, rustix::process::Signal::STOP).unwrap();
    let said = cancel(&fleet, &call).await;
    rustix::process::kill_process(redis, rustix::process::Signal::CONT).unwrap();
    fleet.fail_points().go_on("start:before").unwrap();
    assert_eq!(said, "never_started");
    failed(&call.answer.await.unwrap().unwrap(), "cancelled");
    ok(&fleet.http(0).unwrap().call("nap", nap(1, &fleet.ledger("next"))).await.unwrap());
    assert!(call.ledger.lines().is_empty(), "{:?}", call.ledger.lines());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_of_a_started_write_without_holder_does_not_call_it_unstarted() {
    let mut fleet = fleet().start().await.unwrap();
    let call = calling(&fleet, "nap-write", "started", 20_000);
    call.ledger.started(1, SOON).await.unwrap();
    fleet.workers[0].kill().await.unwrap();
    let mut redis = fleet.redis_connection().await.unwrap();
    let key = fleet.broker().prefix().lease_key(&call.name);
    until("its lease is over", SOON, async || {
        let held: bool = redis::cmd("EXISTS").arg(&key).query_async(&mut redis).await.ok()?;
        (!held).then_some(())
    })
    .await
    .unwrap();
    assert_eq!(cancel(&fleet, &call).await, "may_have_started");
    let answer = call.answer.await.unwrap().unwrap();
    let text = failed(&answer, "cancelled")["text"].as_str().unwrap();
    assert_eq!(text, "Tool error: stop; it may have taken effect, check before calling it again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bystander_does_not_end_a_cancelled_call_that_another_worker_runs() {
    let fleet = fleet().workers(2).slots(1).start().await.unwrap();
    // One that ends by itself within the grace of the canceller.
    let call = calling(&fleet, "nap", "bystander", 6_000);
    call.ledger.started(1, SOON).await.unwrap();
    fleet.fail_points().arm("claim:after", Fate::Hold).unwrap();
    deliver_again(&fleet, &call).await;
    // The other worker was delivered the same job, and was told that it is held.
    fleet.fail_points().reached("claim:after", SOON).await.unwrap();
    let said = cancel(&fleet, &call).await;
    fleet.fail_points().go_on("claim:after").unwrap();
    assert_eq!(said, "may_have_started");
    let answer = call.answer.await.unwrap().unwrap();
    failed(&answer, "cancelled");
    let stored = fleet.result(&call.name).await.unwrap();
    assert_eq!(stored.attempts, 1, "stored by the worker that ran it");
    assert!(stored.attempt.is_some(), "stored by the worker that ran it: {stored:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_wakes_before_its_start_record_does_not_judge_its_successor() {
    let fleet = fleet().workers(2).slots(1).start().await.unwrap();
    fleet.fail_points().arm("start:before", Fate::Stop).unwrap();
    let call = calling(&fleet, "nap-write", "woken", 3_000);
    fleet.fail_points().reached("start:before", SOON).await.unwrap();
    // The other one takes it over and runs it.
    let pid = call.ledger.started(2, SOON).await.unwrap();
    let stopped = 1 - fleet.worker_of(pid).unwrap();
    fleet.workers[stopped].resume().unwrap();
    let answer = call.answer.await.unwrap().unwrap();
    assert_eq!(ok(&answer)["attempts"], 2);
    assert_eq!(call.ledger.starts().len(), 1, "{:?}", call.ledger.lines());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_wakes_before_its_claim_does_not_run_what_has_ended() {
    let fleet = fleet().workers(2).slots(1).start().await.unwrap();
    fleet.fail_points().arm("claim:before", Fate::Stop).unwrap();
    let call = calling(&fleet, "nap", "late", 10);
    fleet.fail_points().reached("claim:before", SOON).await.unwrap();
    let answer = call.answer.await.unwrap().unwrap();
    assert_eq!(ok(&answer)["attempts"], 1);
    for worker in &fleet.workers {
        worker.resume().unwrap();
    }
    let http = fleet.http(0).unwrap();
    let next = fleet.ledger("next");
    until("both workers run calls", SOON, async || {
        ok(&http.call("nap", nap(5, &next)).await.ok()?);
        let runners: std::collections::BTreeSet<u32> =
            next.starts().into_iter().map(|(_, pid)| pid).collect();
        (runners.len() == 2).then_some(())
    })
    .await
    .unwrap();
    assert_eq!(call.ledger.starts().len(), 1, "{:?}", call.ledger.lines());
    assert_eq!(fleet.results_of(&call.name).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_write_outlives_a_lease_store_that_forgets_while_the_job_is_delivered_again() {
    let fleet = fleet().workers(2).slots(1).start().await.unwrap();
    let call = calling(&fleet, "nap-write", "forgotten", 8_000);
    call.ledger.started(1, SOON).await.unwrap();
    fleet.fail_points().arm("claim:before", Fate::Hold).unwrap();
    deliver_again(&fleet, &call).await;
    fleet.fail_points().reached("claim:before", SOON).await.unwrap();
    let mut redis = fleet.redis_connection().await.unwrap();
    // Just after a renewal: the next one must find the lease free again, not the bystander's.
    let key = fleet.broker().prefix().lease_key(&call.name);
    until("the lease was renewed a moment ago", SOON, async || {
        let left: i64 = redis::cmd("PTTL").arg(&key).query_async(&mut redis).await.ok()?;
        (left > 1_900).then_some(())
    })
    .await
    .unwrap();
    let _: String = redis::cmd("FLUSHALL").query_async(&mut redis).await.unwrap();
    // The bystander is granted the lease, meets the start record, and waits one lease time.
    fleet.fail_points().go_on("claim:before").unwrap();
    let answer = call.answer.await.unwrap().unwrap();
    assert_eq!(ok(&answer)["attempts"], 1);
    assert_eq!((call.ledger.starts().len(), call.ledger.ends().len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_drain_hands_back_before_its_start_is_no_attempt() {
    for stage in ["claim:after", "start:after"] {
        let mut fleet = fleet().workers(2).slots(1).start().await.unwrap();
        fleet.fail_points().arm(stage, Fate::Hold).unwrap();
        let call = calling(&fleet, "nap-write", "drained", 10);
        fleet.fail_points().reached(stage, SOON).await.unwrap();
        let holder = holder_of(&fleet, &call).await;
        let points = fleet.fail_points();
        let log = fleet.workers[holder].log().to_path_buf();
        let going_on = async {
            until("it drains", SOON, async || {
                std::fs::read_to_string(&log).ok()?.contains("draining").then_some(())
            })
            .await
            .unwrap();
            points.go_on(stage).unwrap();
        };
        let (ended, ()) = tokio::join!(fleet.workers[holder].terminate(), going_on);
        assert!(ended.unwrap().success());
        let answer = call.answer.await.unwrap().unwrap();
        assert_eq!(ok(&answer)["attempts"], 1, "{stage}: {}", answer.text);
        assert_eq!(call.ledger.starts().len(), 1, "{stage}: {:?}", call.ledger.lines());
    }
}

/// The worker that holds a call's lease.
async fn holder_of(fleet: &Fleet, call: &Calling) -> usize {
    let mut redis = fleet.redis_connection().await.unwrap();
    let key = fleet.broker().prefix().lease_key(&call.name);
    let held: String = redis::cmd("GET").arg(&key).query_async(&mut redis).await.unwrap();
    let worker = toolfleet_proto::lease::Holder::read(&held).unwrap().worker;
    fleet.workers.iter().position(|member| member.told("worker") == worker).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_execution_that_is_cancelled_while_a_turn_is_submitted_starts_nothing() {
    let fleet = fleet().coordinators(2).start().await.unwrap();
    let (one, two) = (fleet.http(0).unwrap(), fleet.http(1).unwrap());
    for stage in ["publish:before", "publish:after", "accept:before"] {
        let execution = stage.replace(':', "-");
        create(&one, json!({"id": execution})).await;
        fleet.fail_points().arm(stage, Fate::Hold).unwrap();
        let ledger = fleet.ledger(&execution);
        let input = nap(3_000, &ledger).to_string();
        let turn = post_turn(
            &one,
            &execution,
            "t",
            &crate::asked::message(&[("call_0", "nap-write", &input)]),
        );
        fleet.fail_points().reached(stage, SOON).await.unwrap();
        let cancelled =
            two.post(&path(&execution, "/cancel"), &json!({"reason": "no"})).await.unwrap();
        assert_eq!(cancelled.status, 200, "{}", cancelled.text);
        let said = cancelled.body["calls"][0]["answer"].clone();
        fleet.fail_points().go_on(stage).unwrap();
        let answer = answered(turn).await;
        assert_eq!(codes(&answer), ["cancelled"], "{stage}: {}", answer.text);
        if said == "never_started" {
            ok(&one.call("nap", nap(1, &fleet.ledger("next"))).await.unwrap());
            assert!(ledger.lines().is_empty(), "{stage}: {:?}", ledger.lines());
        } else {
            assert_eq!(said, "may_have_started", "{stage}: {}", cancelled.text);
        }
        assert!(ledger.ends().is_empty(), "{stage}: {:?}", ledger.lines());
    }
}
