//! NATS and Redis killed, stopped and emptied under a load: nothing lost, nothing doubled.

use crate::asked::{SOON, fleet, nap, ok};
use std::collections::BTreeSet;
use toolfleet_proto::name::CallName;
use toolfleet_tests::{Announcements, Answer, Fleet, Ledger, subjects, until};

const CALLS: usize = 40;
const EXECUTION: &str = "load";
/// Calls that must be unfinished when the harm is done: else nothing was in its way.
const UNFINISHED_MIN: usize = 10;

/// A load of naps of 400 to 750 ms over all coordinators of a fleet.
struct Load {
    fleet: Fleet,
    heard: Announcements,
    calls: Vec<tokio::task::JoinHandle<anyhow::Result<Answer>>>,
}

fn name_of(number: usize) -> CallName {
    CallName::direct("default", EXECUTION, "main", &format!("call-{number}"))
}

impl Load {
    /// Starts the load, and waits until every call is durable and some run.
    async fn start(tool: &'static str) -> Load {
        let fleet = fleet().coordinators(2).workers(2).slots(3).start().await.unwrap();
        let heard = Announcements::listen(fleet.broker()).await.unwrap();
        // Made once: a client takes longer to make than a call.
        let clients = [fleet.http(0).unwrap(), fleet.http(1).unwrap()];
        let calls = (0..CALLS).map(|number| {
            let http = clients[number % 2].clone();
            let ms = 400 + (number as u64 * 37) % 351;
            let input = nap(ms, &fleet.ledger(&number.to_string()));
            let id = format!("call-{number}");
            tokio::spawn(async move { http.call_as(tool, EXECUTION, &id, input).await })
        });
        let calls = calls.collect();
        let load = Load { fleet, heard, calls };
        until("every call is durable and one runs", SOON, async || {
            let is_running = (0..CALLS).any(|number| !load.ledger(number).starts().is_empty());
            (load.durable().await? == CALLS && is_running).then_some(())
        })
        .await
        .unwrap();
        let results = load.fleet.broker().prefix().results_stream();
        let ended = subjects(load.fleet.broker(), &results, ">").await.unwrap().len();
        assert!(ended + UNFINISHED_MIN <= CALLS, "{ended} calls have ended already");
        load
    }

    fn ledger(&self, number: usize) -> Ledger {
        self.fleet.ledger(&number.to_string())
    }

    /// How many of the calls are in the queue or have a result.
    async fn durable(&self) -> Option<usize> {
        let (broker, prefix) = (self.fleet.broker(), self.fleet.broker().prefix());
        let mut tails = BTreeSet::new();
        for stream in [prefix.jobs_stream(), prefix.results_stream()] {
            let found = subjects(broker, &stream, ">").await.ok()?;
            // The last three tokens name the call, in both streams.
            tails.extend(found.into_keys().map(|subject| {
                subject.rsplitn(4, '.').take(3).map(str::to_owned).collect::<Vec<_>>()
            }));
        }
        Some(tails.len())
    }

    /// Waits for all answers. Each call has exactly one stored result, announced at most once.
    async fn settle(&mut self) -> Vec<Answer> {
        let calls = std::mem::take(&mut self.calls);
        let mut answers = Vec::new();
        for call in calls {
            answers.push(call.await.unwrap().unwrap());
        }
        let results = self.fleet.broker().prefix().results_stream();
        let stored = until("the results can be counted", SOON, async || {
            subjects(self.fleet.broker(), &results, ">").await.ok()
        })
        .await
        .unwrap();
        assert_eq!(stored.len(), CALLS);
        for number in 0..CALLS {
            let subject = self.fleet.broker().prefix().result(&name_of(number));
            assert_eq!(stored.get(&subject), Some(&1), "call {number}");
        }
        assert_eq!(self.heard.doubled(), [], "a result was announced twice");
        answers
    }

    /// All calls ended well; each answer is the number of the attempt that the record names.
    async fn settle_well(&mut self) {
        for (number, answer) in self.settle().await.iter().enumerate() {
            let body = ok(answer);
            let result = self.fleet.result(&name_of(number)).await.unwrap();
            let attempt = result.attempt.unwrap().number;
            assert_eq!(body["result"], attempt, "call {number}: {}", answer.text);
            let ends = self.ledger(number).ends();
            assert!(ends.iter().any(|(ended, _)| *ended == attempt), "call {number}: {ends:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_outlives_a_killed_broker() {
    let mut load = Load::start("nap").await;
    load.fleet.nats.kill().await.unwrap();
    load.fleet.nats.restart().await.unwrap();
    load.settle_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_outlives_a_broker_that_is_stopped_and_started() {
    let mut load = Load::start("nap").await;
    load.fleet.nats.stop().await.unwrap();
    load.fleet.nats.restart().await.unwrap();
    load.settle_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_outlives_an_emptied_lease_store() {
    let mut load = Load::start("nap").await;
    let mut redis = load.fleet.redis_connection().await.unwrap();
    let flushed: String = redis::cmd("FLUSHALL").query_async(&mut redis).await.unwrap();
    assert_eq!(flushed, "OK");
    load.settle_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_outlives_a_killed_lease_store() {
    let mut load = Load::start("nap").await;
    load.fleet.redis.kill().await.unwrap();
    load.fleet.redis.restart().await.unwrap();
    load.settle_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_write_starts_twice_when_the_broker_is_killed() {
    let mut load = Load::start("nap-write").await;
    load.fleet.nats.kill().await.unwrap();
    load.fleet.nats.restart().await.unwrap();
    let answers = load.settle().await;
    check_writes(&load, &answers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_write_starts_twice_when_the_lease_store_forgets_and_a_worker_is_killed() {
    let mut load = Load::start("nap-write").await;
    let mut redis = load.fleet.redis_connection().await.unwrap();
    let _: String = redis::cmd("FLUSHALL").query_async(&mut redis).await.unwrap();
    load.fleet.workers[0].restart().await.unwrap();
    let answers = load.settle().await;
    check_writes(&load, &answers);
}

/// Each write started at most once, and what its result says fits what it did.
fn check_writes(load: &Load, answers: &[Answer]) {
    for (number, answer) in answers.iter().enumerate() {
        assert_eq!(answer.status, 200, "{}", answer.text);
        let ledger = load.ledger(number);
        let (starts, ends) = (ledger.starts().len(), ledger.ends().len());
        assert!(starts <= 1, "call {number} started {starts} times: {:?}", ledger.lines());
        if answer.body["ok"] == true {
            assert_eq!((starts, ends), (1, 1), "call {number}: {}", answer.text);
        } else {
            assert_eq!(answer.body["code"], "outcome_unknown", "call {number}: {}", answer.text);
        }
    }
}
