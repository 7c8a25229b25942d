//! Queues that a broker has lost its place in, made from what two moments left on its disk.

use crate::asked::{SOON, fleet, nap, ok};
use serde_json::json;
use std::path::{Path, PathBuf};
use toolfleet_proto::topology::Prefix;
use toolfleet_tests::{Answer, Fleet, subjects, until};

/// Where the broker keeps the messages of the stream of jobs; its consumers are beside that.
fn messages_dir(fleet: &Fleet) -> PathBuf {
    let stream = fleet.broker().prefix().jobs_stream();
    fleet.dir().join("nats/data/jetstream/$G/streams").join(stream).join("msgs")
}

fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

async fn floor_and_last(fleet: &Fleet) -> (u64, u64) {
    let name = fleet.broker().prefix().jobs_stream();
    let found = until("the stream can be read", SOON, async || {
        let stream = fleet.broker().jetstream().get_stream(&name).await.ok()?;
        let consumer = stream.consumer_info(Prefix::consumer("default")).await.ok()?;
        Some((consumer.ack_floor.stream_sequence, stream.cached_info().state.last_sequence))
    });
    found.await.unwrap()
}

fn calling(fleet: &Fleet, id: &'static str) -> tokio::task::JoinHandle<anyhow::Result<Answer>> {
    let (http, input) = (fleet.http(0).unwrap(), nap(5, &fleet.ledger(id)));
    tokio::spawn(async move { http.call_as("nap", "audit", id, input).await })
}

async fn repaired(fleet: &Fleet, kind: &str) {
    let admin = fleet.admin(0).unwrap();
    let line = format!("toolfleet_jobs_repaired_total{{kind=\"{kind}\"}} 1");
    until(&line, SOON * 2, async || {
        admin.get("/metrics").await.ok()?.text.contains(&line).then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_lost_its_last_messages_serves_on() {
    let mut fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    ok(&http.call("nap", json!({"ms": 1})).await.unwrap());
    // What the stream is after a loss of power: its last messages are gone, what the consumer
    // acknowledged of them is not.
    fleet.nats.stop().await.unwrap();
    let (dir, older) = (messages_dir(&fleet), fleet.dir().join("older"));
    copy(&dir, &older);
    fleet.nats.restart().await.unwrap();
    for _ in 0..20 {
        ok(&http.call("nap", json!({"ms": 1})).await.unwrap());
    }
    let (_, last_before) = floor_and_last(&fleet).await;
    fleet.nats.stop().await.unwrap();
    copy(&older, &dir);
    fleet.nats.restart().await.unwrap();
    let (floor, last) = floor_and_last(&fleet).await;
    assert!(last < last_before, "nothing was lost: {last_before}, {last}");
    let call = calling(&fleet, "after");
    // Servers from 2.15 on put such a consumer back by themselves.
    if floor > last {
        repaired(&fleet, "floor_ahead").await;
    }
    ok(&call.await.unwrap().unwrap());
    assert_eq!(fleet.ledger("after").starts().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_the_broker_takes_for_acknowledged_is_freed() {
    let mut fleet = fleet().start().await.unwrap();
    fleet.workers[0].kill().await.unwrap();
    let stranded = calling(&fleet, "stranded");
    let jobs = fleet.broker().prefix().jobs_stream();
    until("the job is queued", SOON, async || {
        (subjects(fleet.broker(), &jobs, ">").await.ok()?.len() == 1).then_some(())
    })
    .await
    .unwrap();
    fleet.nats.stop().await.unwrap();
    let (dir, older) = (messages_dir(&fleet), fleet.dir().join("older"));
    copy(&dir, &older);
    fleet.nats.restart().await.unwrap();
    fleet.coordinators[0].pause().unwrap();
    // Acknowledged by nobody of the fleet: the consumer moves its floor past it.
    let stream = fleet.broker().jetstream().get_stream(&jobs).await.unwrap();
    let consumer: async_nats::jetstream::consumer::PullConsumer =
        stream.get_consumer(&Prefix::consumer("default")).await.unwrap();
    let mut taken = consumer.batch().max_messages(1).expires(SOON).messages().await.unwrap();
    let job = futures::StreamExt::next(&mut taken).await.unwrap().unwrap();
    job.double_ack().await.unwrap();
    fleet.nats.stop().await.unwrap();
    copy(&older, &dir);
    fleet.nats.restart().await.unwrap();
    let (floor, _) = floor_and_last(&fleet).await;
    assert_eq!(subjects(fleet.broker(), &jobs, ">").await.unwrap().len(), 1, "it is still queued");
    assert!(floor >= 1, "the broker still knows that it was not acknowledged");
    fleet.coordinators[0].resume().unwrap();
    fleet.workers[0].restart().await.unwrap();
    let answer = stranded.await.unwrap().unwrap();
    ok(&answer);
    repaired(&fleet, "stranded").await;
}
