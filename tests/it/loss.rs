//! Workers that are killed or paused in the middle of a call.

use crate::asked::{SOON, failed, fleet, nap, ok};
use crate::conversation::noting;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use toolfleet_proto::name::CallName;
use toolfleet_tests::{Announcements, Fleet, call_name, messages, until};

/// A call of a turn of its own that is running, and the process that runs it.
async fn running(
    fleet: &Fleet,
    tool: &'static str,
    ms: u64,
) -> (tokio::task::JoinHandle<anyhow::Result<toolfleet_tests::Answer>>, u32) {
    let ledger = fleet.ledger("loss");
    let (http, input) = (fleet.http(0).unwrap(), nap(ms, &ledger));
    let call = tokio::spawn(async move { http.call_as(tool, "loss", "c", input).await });
    let pid = ledger.started(1, SOON).await.unwrap();
    (call, pid)
}

fn name() -> CallName {
    CallName::direct("default", "loss", "main", "c")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_whose_worker_is_killed_ends_by_its_second_attempt() {
    let mut fleet = fleet().workers(2).start().await.unwrap();
    let heard = Announcements::listen(fleet.broker()).await.unwrap();
    let (call, pid) = running(&fleet, "nap", 3_000).await;
    let holder = fleet.worker_of(pid).unwrap();
    fleet.workers[holder].kill().await.unwrap();

    let answer = call.await.unwrap().unwrap();
    let body = ok(&answer);
    assert_eq!((&body["attempts"], &body["result"]), (&json!(2), &json!(2)));
    assert_eq!(call_name(body).unwrap(), name());
    let ledger = fleet.ledger("loss");
    assert_eq!(ledger.starts().len(), 2, "{:?}", ledger.lines());
    assert_eq!(ledger.ends(), [(2, fleet.workers[1 - holder].pid())]);
    assert_eq!(fleet.results_of(&name()).await.unwrap(), 1);
    assert_eq!(heard.once_heard(&name()).await, 1);
    let stored = fleet.result(&name()).await.unwrap();
    assert_eq!((stored.attempts, stored.attempt.unwrap().number), (2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_read_gets_its_second_attempt_however_long_its_worker_was_missed() {
    // Its three attempts have less time together than a lost worker takes to be noticed.
    let keys = "effect = \"read\"\ntimeout = \"2500ms\"";
    let script = noting("loss", "[ $TOOLFLEET_ATTEMPT = 2 ] || sleep 60\nprintf second");
    let fleet = fleet().exec_tool("short", keys, &script);
    let mut fleet = fleet.env("TOOLFLEET_LIMITS__ACK_WAIT", "9s").start().await.unwrap();
    let (http, ledger) = (fleet.http(0).unwrap(), fleet.ledger("loss"));
    let call = tokio::spawn(async move { http.call_as("short", "loss", "c", json!({})).await });
    ledger.started(1, SOON).await.unwrap();
    fleet.workers[0].restart().await.unwrap();
    let answer = call.await.unwrap().unwrap();
    assert_eq!((&ok(&answer)["attempts"], &ok(&answer)["text"]), (&json!(2), &json!("second")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_waits_for_a_worker_that_comes_later() {
    let mut fleet = fleet().start().await.unwrap();
    let (call, _) = running(&fleet, "nap", 3_000).await;
    fleet.workers[0].restart().await.unwrap();
    let answer = call.await.unwrap().unwrap();
    assert_eq!(ok(&answer)["attempts"], 2);
    assert_eq!(fleet.ledger("loss").starts().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_attempts_of_a_call_share_its_total_timeout() {
    let clocks = "effect = \"read\"\ntimeout = \"10s\"\ntotal_timeout = \"10s\"";
    let mut fleet =
        fleet().exec_tool("endless", clocks, &noting("loss", "sleep 60")).start().await.unwrap();
    let (http, ledger) = (fleet.http(0).unwrap(), fleet.ledger("loss"));
    let call = tokio::spawn(async move { http.call_as("endless", "loss", "c", json!({})).await });
    ledger.started(1, SOON).await.unwrap();
    fleet.workers[0].restart().await.unwrap();

    let answer = call.await.unwrap().unwrap();
    let body = failed(&answer, "timed_out");
    assert_eq!(
        (&body["attempts"], &body["text"]),
        (&json!(2), &json!("Tool error: timed out after 10 s"))
    );
    assert_eq!((ledger.starts().len(), ledger.ends().len()), (2, 0), "{:?}", ledger.lines());
    // At least a lease's time was gone when the second attempt began.
    let last = fleet.result(&name()).await.unwrap().attempt.unwrap();
    let took_ms = last.ended_at_ms - last.started_at_ms;
    assert!(took_ms < 9_000, "{took_ms} ms: it had ten seconds of its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_worker_is_killed_is_not_started_again() {
    let mut fleet = fleet().workers(2).start().await.unwrap();
    let heard = Announcements::listen(fleet.broker()).await.unwrap();
    let (call, pid) = running(&fleet, "nap-write", 3_000).await;
    let holder = fleet.worker_of(pid).unwrap();
    fleet.workers[holder].kill().await.unwrap();

    let answer = call.await.unwrap().unwrap();
    let body = failed(&answer, "outcome_unknown");
    let text = body["text"].as_str().unwrap();
    assert!(text.starts_with("Tool error: outcome unknown: nap-write started at 20"), "{text}");
    let end = " and its worker was lost; it may have taken effect. Do not call it again with the \
               same input before that is checked.";
    assert!(text.ends_with(end), "{text}");
    let ledger = fleet.ledger("loss");
    assert_eq!(ledger.lines().len(), 1, "it started once and never ended: {:?}", ledger.lines());
    assert_eq!(fleet.results_of(&name()).await.unwrap(), 1);
    assert_eq!(heard.once_heard(&name()).await, 1);

    // Handed in again it gets the same result, and still does not run.
    let http = fleet.http(0).unwrap();
    let again = http.call_as("nap-write", "loss", "c", nap(3_000, &ledger)).await.unwrap();
    assert_eq!(failed(&again, "outcome_unknown")["text"], body["text"]);
    assert_eq!(ledger.starts().len(), 1);
    let starts = fleet.broker().prefix().starts_stream();
    assert_eq!(messages(fleet.broker(), &starts, ">").await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_wakes_after_its_lease_changes_nothing() {
    let fleet = fleet().workers(2).start().await.unwrap();
    let heard = Announcements::listen(fleet.broker()).await.unwrap();
    let (call, pid) = running(&fleet, "nap", 3_000).await;
    let holder = fleet.worker_of(pid).unwrap();
    fleet.workers[holder].pause().unwrap();
    let answer = call.await.unwrap().unwrap();
    assert_eq!(ok(&answer)["attempts"], 2);
    let before = fleet.result(&name()).await.unwrap();

    fleet.workers[holder].resume().unwrap();
    // It takes calls again: whatever it had to say of the old one is said by then.
    let (http, later) = (fleet.http(0).unwrap(), fleet.ledger("later"));
    until("the woken worker runs a call", SOON, async || {
        ok(&http.call("nap", nap(5, &later)).await.ok()?);
        later.starts().iter().any(|(_, runner)| *runner == pid).then_some(())
    })
    .await
    .unwrap();
    assert_eq!(fleet.result(&name()).await.unwrap(), before);
    assert_eq!(fleet.results_of(&name()).await.unwrap(), 1);
    assert_eq!(heard.once_heard(&name()).await, 1);
    assert_eq!(fleet.ledger("loss").starts().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_cannot_renew_stops_and_says_nothing() {
    let fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let (read, write) = (fleet.ledger("read"), fleet.ledger("write"));
    // Longer than a lease: by the time a tool could end, its worker has no right to it any more.
    let call = |tool: &'static str, ledger: &toolfleet_tests::Ledger| {
        let (http, input) = (http.clone(), nap(4_000, ledger));
        tokio::spawn(async move { http.call_as(tool, "loss", tool, input).await })
    };
    let (reading, writing) = (call("nap", &read), call("nap-write", &write));
    read.started(1, SOON).await.unwrap();
    write.started(1, SOON).await.unwrap();
    let redis = i32::try_from(fleet.redis.pid()).ok().and_then(Pid::from_raw).unwrap();
    kill_process(redis, Signal::STOP).unwrap();
    until("both leases are lost", SOON, async || {
        let log = std::fs::read_to_string(fleet.workers[0].log()).ok()?;
        (log.matches("execution lease lost").count() == 2).then_some(())
    })
    .await
    .unwrap();
    kill_process(redis, Signal::CONT).unwrap();

    let answer = reading.await.unwrap().unwrap();
    assert_eq!(ok(&answer)["attempts"], 2);
    assert_eq!((read.starts().len(), read.ends().len()), (2, 1), "{:?}", read.lines());
    failed(&writing.await.unwrap().unwrap(), "outcome_unknown");
    assert_eq!((write.starts().len(), write.ends().len()), (1, 0), "{:?}", write.lines());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_worker_finishes_what_it_runs() {
    let mut fleet = fleet().start().await.unwrap();
    let (call, _) = running(&fleet, "nap-write", 1_000).await;
    let status = fleet.workers[0].terminate().await.unwrap();
    assert!(status.success(), "{status}");
    let answer = call.await.unwrap().unwrap();
    assert_eq!(ok(&answer)["attempts"], 1);
    assert_eq!(fleet.ledger("loss").lines().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_no_worker_takes_ends_by_its_queue_timeout() {
    let keys = "effect = \"write\"\nqueue_timeout = \"2s\"";
    let mut fleet = fleet().exec_tool("impatient", keys, "echo done").start().await.unwrap();
    let http = fleet.http(0).unwrap();
    // Killed, it is thought alive for a while; gone in order, it is known to be gone.
    fleet.workers[0].kill().await.unwrap();
    let answer = http.call_as("impatient", "loss", "c", json!({})).await.unwrap();
    let text = failed(&answer, "queue_timed_out")["text"].as_str().unwrap();
    assert_eq!(text, "Tool error: timed out after 2 s waiting for a worker");

    fleet.workers[0].restart().await.unwrap();
    ok(&http.call("impatient", json!({})).await.unwrap());
    assert!(fleet.workers[0].terminate().await.unwrap().success());
    until("the coordinator knows that no worker is live", SOON, async || {
        let tools = http.get("/v1/tools").await.ok()?.body["tools"].as_array()?.clone();
        let tool = tools.into_iter().find(|tool| tool["name"] == "impatient")?;
        // Killed before, the first worker must be forgotten as well.
        (tool["isLive"] == false).then_some(())
    })
    .await
    .unwrap();
    let answer = http.call_as("impatient", "loss", "d", json!({})).await.unwrap();
    let text = failed(&answer, "no_worker")["text"].as_str().unwrap();
    assert!(text.contains("has this version of impatient: waited 2 s"), "{text}");

    // What was said never to start does not start later.
    fleet.workers[0].restart().await.unwrap();
    let again = http.call_as("impatient", "loss", "c", json!({})).await.unwrap();
    failed(&again, "queue_timed_out");
    let starts = fleet.broker().prefix().starts_stream();
    let records = messages(fleet.broker(), &starts, ">").await.unwrap();
    let kinds: Vec<i32> = records
        .iter()
        .filter(|message| message.subject.contains(".loss."))
        .map(|message| toolfleet_proto::wire::read_start(&message.payload).unwrap().kind)
        .collect();
    let tombstone = i32::from(toolfleet_proto::wire::StartKind::Tombstone);
    assert_eq!(kinds, [tombstone, tombstone]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_takes_its_workers_down_ends_as_a_dead_letter() {
    let mut fleet = fleet().start().await.unwrap();
    let ledger = fleet.ledger("loss");
    let (call, _) = running(&fleet, "nap", 20_000).await;
    for attempt in 1..=3 {
        ledger.started(attempt, SOON).await.unwrap();
        fleet.workers[0].restart().await.unwrap();
    }
    let answer = call.await.unwrap().unwrap();
    let body = failed(&answer, "tool_crashed");
    assert_eq!(body["text"], "Tool error: nap lost its worker in each of 3 attempts");
    assert_eq!(ledger.starts().len(), 3, "{:?}", ledger.lines());
    let dead = fleet.broker().prefix().dead_stream();
    assert_eq!(messages(fleet.broker(), &dead, ">").await.unwrap().len(), 1);
    assert_eq!(fleet.results_of(&name()).await.unwrap(), 1);
}
