//! Workers and jobs of different builds, and what a worker says of itself while its servers are away.

use crate::asked::{SOON, failed, fleet, nap, ok};
use prost::Message as _;
use serde_json::json;
use std::time::Duration;
use toolfleet_io::broker::Outgoing;
use toolfleet_proto::name::CallName;
use toolfleet_proto::topology::Prefix;
use toolfleet_proto::wire;
use toolfleet_tests::{Fleet, Http, until};

/// A job as it is queued, changed, under another name.
async fn queue_like(fleet: &Fleet, like: &CallName, id: &str, change: impl FnOnce(&mut wire::Job)) {
    let (broker, prefix) = (fleet.broker(), fleet.broker().prefix());
    let found = broker.read_job(&prefix.job("default", like)).await.unwrap().unwrap();
    let mut job = wire::read_job(&found.payload).unwrap();
    let name = CallName::direct("default", "skew", "main", id);
    job.name = Some(wire::CallName::from(&name));
    change(&mut job);
    let message = Outgoing { payload: job.encode_to_vec().into(), ..Outgoing::default() };
    broker.store_once(&prefix.job("default", &name), &message).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_a_newer_build_are_handed_back_and_hold_nobody_up() {
    let mut fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    fleet.workers[0].kill().await.unwrap();
    let like = CallName::direct("default", "skew", "main", "like");
    let call = {
        let (http, input) = (http.clone(), nap(1, &fleet.ledger("like")));
        tokio::spawn(async move { http.call_as("nap", "skew", "like", input).await })
    };
    let subject = fleet.broker().prefix().job("default", &like);
    until("a job is queued", SOON, async || {
        fleet.broker().read_job(&subject).await.ok()?.map(drop)
    })
    .await
    .unwrap();
    queue_like(&fleet, &like, "schema", |job| job.schema += 1).await;
    queue_like(&fleet, &like, "feature", |job| job.features.push("warp".into())).await;
    fleet.workers[0].restart().await.unwrap();
    ok(&call.await.unwrap().unwrap());
    ok(&http.call("nap", json!({"ms": 1})).await.unwrap());
    let stream = fleet.broker().prefix().jobs_stream();
    until("both were delivered and are queued still", SOON, async || {
        let stream = fleet.broker().jetstream().get_stream(&stream).await.ok()?;
        let consumer = stream.consumer_info(Prefix::consumer("default")).await.ok()?;
        let is_handed_back = consumer.num_ack_pending == 2 && consumer.num_pending == 0;
        (is_handed_back && stream.cached_info().state.messages == 2).then_some(())
    })
    .await
    .unwrap();
    let log = std::fs::read_to_string(fleet.workers[0].log()).unwrap();
    for sign in ["schema 2 is newer", "feature \\\"warp\\\""] {
        assert!(log.contains(sign) || log.contains(&sign.replace('\\', "")), "{sign}: {log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_of_a_version_that_nobody_has_any_more_ends_clearly() {
    let keys = "effect = \"write\"\nqueue_timeout = \"3s\"";
    let mut fleet = fleet().exec_tool("moved", keys, "printf old").start().await.unwrap();
    let http = fleet.http(0).unwrap();
    // In order: killed, it would be thought alive for a while.
    assert!(fleet.workers[0].terminate().await.unwrap().success());
    let call = {
        let http = http.clone();
        tokio::spawn(async move { http.call_as("moved", "skew", "old", json!({})).await })
    };
    let name = CallName::direct("default", "skew", "main", "old");
    let subject = fleet.broker().prefix().job("default", &name);
    until("the job is queued", SOON, async || {
        fleet.broker().read_job(&subject).await.ok()?.map(drop)
    })
    .await
    .unwrap();
    // The worker that comes has another version of the tool.
    let manifest = fleet.dir().join("tools/moved.toml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replace("The tool", "The new tool")).unwrap();
    fleet.workers[0].restart().await.unwrap();
    let answer = call.await.unwrap().unwrap();
    let text = failed(&answer, "no_worker")["text"].as_str().unwrap();
    assert!(text.contains("has this version of moved: waited 3 s"), "{text}");
    assert_eq!(answer.body["startState"], "never_started");
    until("the new version is called", SOON, async || {
        let answer = http.call("moved", json!({})).await.ok()?;
        (answer.body["text"] == "old").then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_lives_without_its_servers_and_is_ready_only_with_them() {
    let mut fleet =
        fleet().env("TOOLFLEET_WORKER__ADMIN_LISTEN", "127.0.0.1:0").start().await.unwrap();
    let worker = Http::new(fleet.workers[0].told("admin")).unwrap();
    let coordinator = fleet.admin(0).unwrap();
    let status = async |http: &Http, path: &str| http.get(path).await.unwrap().status;
    assert_eq!(status(&worker, "/livez").await, 200);
    until("it is ready", SOON, async || (status(&worker, "/readyz").await == 200).then_some(()))
        .await
        .unwrap();
    // A call that runs for long is no sign of ill health.
    let ledger = fleet.ledger("long");
    let call = {
        let (http, input) = (fleet.http(0).unwrap(), nap(6_000, &ledger));
        tokio::spawn(async move { http.call_as("nap", "live", "c", input).await })
    };
    ledger.started(1, SOON).await.unwrap();
    fleet.redis.kill().await.unwrap();
    until("it is not ready without Redis", SOON, async || {
        (status(&worker, "/readyz").await == 503).then_some(())
    })
    .await
    .unwrap();
    fleet.nats.kill().await.unwrap();
    let until_later = tokio::time::Instant::now() + Duration::from_secs(4);
    while tokio::time::Instant::now() < until_later {
        assert_eq!(status(&worker, "/livez").await, 200);
        assert_eq!(status(&coordinator, "/livez").await, 200);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    fleet.nats.restart().await.unwrap();
    fleet.redis.restart().await.unwrap();
    until("it is ready again", SOON, async || {
        (status(&worker, "/readyz").await == 200).then_some(())
    })
    .await
    .unwrap();
    ok(&call.await.unwrap().unwrap());
}
