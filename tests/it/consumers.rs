//! A consumer that is silent after the broker went and came back, or was deleted (case D10): the next
//! call is picked up within seconds, and what runs goes on.

use crate::asked::{SOON, fleet, ok};
use crate::links::{call, ran_once};
use serde_json::json;
use std::time::{Duration, Instant};
use toolfleet_tests::{Fleet, Trap, Way, until};

/// A call that is picked up soon, whatever was before.
async fn picked_up(fleet: &Fleet, id: &str, within: Duration) {
    let since = Instant::now();
    let soon = call(fleet, "nap-write", id, 10);
    soon.1.started(1, within).await.unwrap();
    assert!(since.elapsed() < within, "{id}: {:?}", since.elapsed());
    ran_once(fleet, id, soon).await;
}

async fn metric(fleet: &Fleet, worker: usize, line: &str) -> Option<f64> {
    let page = fleet.worker_admin(worker).unwrap().get("/metrics").await.ok()?.text;
    page.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_workers_take_calls_when_the_broker_is_back() {
    let mut fleet = fleet().workers(2).start().await.unwrap();
    fleet.nats.kill().await.unwrap();
    // Long enough for every worker to meet the closed door.
    tokio::time::sleep(Duration::from_secs(1)).await;
    fleet.nats.restart().await.unwrap();
    picked_up(&fleet, "killed", Duration::from_secs(6)).await;
    fleet.nats.restart().await.unwrap();
    picked_up(&fleet, "restarted", Duration::from_secs(6)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_gets_its_own_running_calls_again_goes_on() {
    let admin = ("TOOLFLEET_WORKER__ADMIN_LISTEN", "127.0.0.1:0");
    let mut fleet = fleet().slots(6).env(admin.0, admin.1).start().await.unwrap();
    let ids = ["read-0", "read-1", "write-0", "write-1"];
    let calls: Vec<_> = ids
        .iter()
        .map(|id| {
            let tool = if id.starts_with("read") { "nap" } else { "nap-write" };
            call(&fleet, tool, id, 5_000)
        })
        .collect();
    for (_, ledger) in &calls {
        ledger.started(1, SOON).await.unwrap();
    }
    fleet.nats.kill().await.unwrap();
    fleet.nats.restart().await.unwrap();
    // A broker that is killed may have lost its place in the queue, or not. A consumer that is made
    // again has: everything is delivered as if for the first time.
    until("the broker takes orders", SOON, async || {
        let jobs = fleet.broker().prefix().jobs_stream();
        fleet.broker().jetstream().get_stream(&jobs).await.ok().map(drop)
    })
    .await
    .unwrap();
    delete_consumer(&fleet).await;
    until("the worker gets its own calls again", SOON, async || {
        let again = metric(&fleet, 0, "toolfleet_jobs_redelivered_total{pool=\"default\"}");
        (again.await? >= 4.0).then_some(())
    })
    .await
    .unwrap();
    for (id, call) in ids.iter().zip(calls) {
        ran_once(&fleet, id, call).await;
    }
    let jobs = fleet.broker().prefix().jobs_stream();
    until("no job is left", SOON, async || {
        let found = toolfleet_tests::subjects(fleet.broker(), &jobs, ">").await.ok()?;
        found.is_empty().then_some(())
    })
    .await
    .unwrap();
}

async fn delete_consumer(fleet: &Fleet) {
    let jobs = fleet.broker().prefix().jobs_stream();
    let stream = fleet.broker().jetstream().get_stream(&jobs).await.unwrap();
    assert!(stream.delete_consumer("pool-default").await.unwrap().success);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_was_deleted_is_made_again() {
    let admin = ("TOOLFLEET_WORKER__ADMIN_LISTEN", "127.0.0.1:0");
    let fleet = fleet().slots(2).env(admin.0, admin.1).start().await.unwrap();
    delete_consumer(&fleet).await;
    picked_up(&fleet, "idle", Duration::from_secs(6)).await;
    let made = "toolfleet_supply_mended_total{kind=\"consumer\",pool=\"default\"}";
    assert_eq!(metric(&fleet, 0, made).await, Some(1.0));

    let running = call(&fleet, "nap-write", "running", 4_000);
    running.1.started(1, SOON).await.unwrap();
    delete_consumer(&fleet).await;
    picked_up(&fleet, "beside", Duration::from_secs(6)).await;
    ran_once(&fleet, "running", running).await;
    let jobs = fleet.broker().prefix().jobs_stream();
    until("no job is left", SOON, async || {
        let found = toolfleet_tests::subjects(fleet.broker(), &jobs, ">").await.ok()?;
        found.is_empty().then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_may_not_make_its_consumer_says_that_it_is_missing() {
    let mut fleet = fleet()
        .workers(2)
        .env_of("worker-1", "TOOLFLEET_FLEET__TOPOLOGY", "check")
        .env_of("worker-1", "TOOLFLEET_WORKER__ADMIN_LISTEN", "127.0.0.1:0")
        .start()
        .await
        .unwrap();
    let admin = fleet.worker_admin(1).unwrap();
    let ready = async |status: u16| {
        let answer = admin.get("/readyz?verbose").await.ok()?;
        (answer.status == status).then_some(answer.text)
    };
    until("the worker is ready", SOON, async || ready(200).await).await.unwrap();
    fleet.workers[0].terminate().await.unwrap();
    delete_consumer(&fleet).await;
    let told = until("it says what is missing", SOON, async || ready(503).await).await.unwrap();
    assert!(told.contains("consumer pool-default is missing"), "{told}");
    assert!(told.contains("topology export"), "{told}");
    // Whoever may makes it.
    fleet.workers[0].restart().await.unwrap();
    until("the worker is ready again", SOON, async || ready(200).await).await.unwrap();
    fleet.workers[0].terminate().await.unwrap();
    picked_up(&fleet, "later", Duration::from_secs(6)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_that_nobody_serves_is_asked_again() {
    let fleet = fleet().linked().slots(1).start().await.unwrap();
    let link = &fleet.worker_links[0].nats;
    link.set(Way::Up, "CONSUMER.MSG.NEXT", Trap::LoseMessage);
    // The open pull is used up, and the next one is lost: nothing is heard of it, not even an end.
    ok(&fleet.http(0).unwrap().call("nap", json!({"ms": 1})).await.unwrap());
    until("a pull is lost", SOON, async || link.is_sprung().then_some(())).await.unwrap();
    picked_up(&fleet, "later", Duration::from_secs(11)).await;
}
