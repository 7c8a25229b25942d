//! Three servers, three copies of everything: a leader killed, and all of them restarted in turn, under a
//! load of reads and writes. Nothing lost, no second result, no write started twice.

use crate::asked::{SOON, fleet, message, nap, ok};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use toolfleet_io::broker::{Once, Outgoing};
use toolfleet_io::child::NatsServer;
use toolfleet_proto::name::CallName;
use toolfleet_tests::{Announcements, Answer, Fleet, Http, Ledger, broker_at, until};

/// No call takes longer: an election, and what was under way having to be noticed and done again.
const STALL_MAX: Duration = Duration::from_secs(40);

/// Callers that call one after the other.
const CALLERS: usize = 6;
/// How long a caller may wait for one answer: elections take up to 10 s, several in a row.
const PATIENCE: Duration = Duration::from_secs(90);

/// Callers that call until they are told to stop.
struct Load {
    is_over: Arc<AtomicBool>,
    callers: Vec<JoinHandle<BTreeMap<String, (Answer, Duration)>>>,
    heard: Announcements,
}

fn tool_of(id: &str) -> &'static str {
    if id.starts_with("read") { "nap" } else { "nap-write" }
}

/// One call, asked again under the same name until it is answered.
async fn answered(clients: &[Http], id: &str, ledger: &Ledger) -> Answer {
    let since = Instant::now();
    let mut tries = 0;
    loop {
        let http = &clients[tries % clients.len()];
        match http.call_as(tool_of(id), "cluster", id, nap(120, ledger)).await {
            Ok(answer) if answer.status != 503 => return answer,
            refused => assert!(since.elapsed() < PATIENCE, "{id}: {refused:?}"),
        }
        tries += 1;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

impl Load {
    async fn start(fleet: &Fleet) -> Load {
        let heard = Announcements::listen(fleet.broker()).await.unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let callers = (0..CALLERS).map(|caller| {
            let clients = [fleet.http(0).unwrap(), fleet.http(1).unwrap()];
            let (is_over, dir) = (Arc::clone(&is_over), fleet.dir().to_owned());
            tokio::spawn(async move {
                let mut answers = BTreeMap::new();
                for number in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let kind = if number % 2 == 0 { "read" } else { "write" };
                    let id = format!("{kind}-{caller}-{number}");
                    let ledger = Ledger::at(dir.join(format!("{id}.ledger")));
                    let since = Instant::now();
                    let answer = answered(&clients, &id, &ledger).await;
                    answers.insert(id, (answer, since.elapsed()));
                }
                answers
            })
        });
        let callers = callers.collect();
        let load = Load { is_over, callers, heard };
        until("the load runs", SOON, async || {
            let ledger = fleet.ledger("write-0-1");
            (!ledger.starts().is_empty()).then_some(())
        })
        .await
        .unwrap();
        load
    }

    /// Ends the load and looks at every call of it. Returns how many there were.
    async fn settle(self, fleet: &Fleet) -> usize {
        self.is_over.store(true, Ordering::Relaxed);
        let mut answers = BTreeMap::new();
        for caller in self.callers {
            answers.extend(caller.await.unwrap());
        }
        for (id, (answer, took)) in &answers {
            assert!(*took < STALL_MAX, "{id} took {took:?}");
            let ledger = fleet.ledger(id);
            let name = CallName::direct("default", "cluster", "main", id);
            let stored = until("the results can be counted", SOON, async || {
                fleet.results_of(&name).await.ok()
            });
            assert_eq!(stored.await.unwrap(), 1, "{id}");
            let (starts, ends) = (ledger.starts().len(), ledger.ends().len());
            if id.starts_with("write") {
                assert!(starts <= 1, "{id} started {starts} times: {:?}", ledger.lines());
            }
            // No worker was harmed: whatever the broker did, each call ends well.
            ok(answer);
            assert!(ends >= 1, "{id}: {:?}", ledger.lines());
        }
        assert_eq!(self.heard.doubled(), [], "a result was announced twice");
        answers.len()
    }
}

fn clustered() -> toolfleet_tests::Builder {
    fleet()
        .clustered()
        .coordinators(2)
        .workers(2)
        .slots(4)
        .env("TOOLFLEET_LIMITS__LEASE_TTL", "6s")
        .env("TOOLFLEET_LIMITS__ACK_WAIT", "8s")
}

/// The servers of the cluster.
fn nodes(fleet: &mut Fleet) -> Vec<&mut NatsServer> {
    std::iter::once(&mut fleet.nats).chain(&mut fleet.nodes).collect()
}

/// Position of the server that leads a stream.
async fn leader_of(fleet: &mut Fleet, stream: &str) -> usize {
    let broker = fleet.broker().clone();
    let leader = until("the stream has a leader", SOON, async || {
        let stream = broker.jetstream().get_stream(stream).await.ok()?;
        stream.cached_info().cluster.clone()?.leader
    })
    .await
    .unwrap();
    nodes(fleet).iter().position(|node| node.server_name() == leader).unwrap()
}

/// Every stream has a leader and two copies that are up to it.
async fn whole(fleet: &Fleet) {
    use futures::TryStreamExt as _;
    let jetstream = fleet.broker().jetstream();
    until("every stream is whole again", PATIENCE, async || {
        let streams: Vec<async_nats::jetstream::stream::Info> =
            jetstream.streams().try_collect().await.ok()?;
        let is_whole = streams.iter().all(|stream| {
            stream.cluster.as_ref().is_some_and(|cluster| {
                cluster.leader.is_some() && cluster.replicas.iter().all(|replica| replica.current)
            })
        });
        (is_whole && !streams.is_empty()).then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_race_for_a_replicated_record_are_told_who_won() {
    let fleet = clustered().start().await.unwrap();
    let urls = [fleet.nats.url(), fleet.nodes[0].url(), fleet.nodes[1].url()];
    for round in 0..10 {
        let name = CallName::direct("default", "race", "main", &format!("call-{round}"));
        let subject = fleet.broker().prefix().result(&name);
        let mut writers = Vec::new();
        for writer in 0..6_u8 {
            let broker = broker_at(&urls[usize::from(writer) % 3]).await.unwrap();
            let (subject, payload) = (subject.clone(), vec![writer].into());
            let message = Outgoing { payload, ..Outgoing::default() };
            writers.push(tokio::spawn(async move {
                let patience = tokio::time::sleep(SOON);
                broker.store_once_until(&subject, &message, patience).await
            }));
        }
        let ends = futures::future::join_all(writers).await;
        let ends: Vec<_> = ends.into_iter().map(Result::unwrap).collect();
        let stored = ends.iter().filter(|end| matches!(end, Ok(Once::Stored(_)))).count();
        let taken = ends.iter().filter(|end| matches!(end, Ok(Once::Taken))).count();
        assert_eq!((stored, taken), (1, 5), "{ends:?}");
        assert_eq!(fleet.results_of(&name).await.unwrap(), 1);
    }
    // Turns of one execution change one record, through both coordinators at once.
    let turns = (0..12).map(|number| {
        let http = fleet.http(number % 2).unwrap();
        let (turn, asked) = (format!("turn-{number}"), message(&[("c", "nap", "{\"ms\": 1}")]));
        tokio::spawn(async move { http.turn("crowded", &turn, &asked).await })
    });
    for turn in turns.collect::<Vec<_>>() {
        let answer = turn.await.unwrap().unwrap();
        assert_eq!(
            (answer.status, &answer.body["state"]),
            (200, &json!("done")),
            "{}",
            answer.text
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_outlives_the_leaders_of_its_streams() {
    let mut fleet = clustered().start().await.unwrap();
    let load = Load::start(&fleet).await;
    let prefix = fleet.broker().prefix().clone();
    for stream in [prefix.jobs_stream(), prefix.results_stream()] {
        let leader = leader_of(&mut fleet, &stream).await;
        nodes(&mut fleet)[leader].kill().await.unwrap();
        let next = until("another server leads", SOON, async || {
            let found = fleet.broker().jetstream().get_stream(&stream).await.ok()?;
            found.cached_info().cluster.clone()?.leader
        });
        next.await.unwrap();
        nodes(&mut fleet)[leader].restart().await.unwrap();
        whole(&fleet).await;
    }
    let calls = load.settle(&fleet).await;
    assert!(calls >= 2 * CALLERS, "only {calls} calls");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_outlives_a_rolling_restart() {
    let mut fleet = clustered().start().await.unwrap();
    let load = Load::start(&fleet).await;
    for number in 0..3 {
        let mut servers = nodes(&mut fleet);
        let server = &mut *servers[number];
        let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap()).unwrap();
        // Lame duck: it tells its clients to leave, and ends by itself.
        kill_process(pid, Signal::USR2).unwrap();
        tokio::time::timeout(PATIENCE, server.wait()).await.expect("it ends").unwrap();
        server.restart().await.unwrap();
        whole(&fleet).await;
    }
    let calls = load.settle(&fleet).await;
    assert!(calls >= 2 * CALLERS, "only {calls} calls");
}
