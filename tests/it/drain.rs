//! Draining: what runs ends well where it can, honestly where it cannot, and nothing is lost.

use crate::asked::{SOON, failed, fleet, message, nap, ok};
use crate::conversation::{answered, codes, contents, noting, post_turn};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use toolfleet_proto::name::CallName;
use toolfleet_tests::{Announcements, Answer, Fleet, Http, Ledger, Member, until};

/// The first signal; the process is still there.
async fn ask_to_drain(member: &Member) {
    let pid = i32::try_from(member.pid()).ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    until("it drains", SOON, async || {
        let log = std::fs::read_to_string(member.log()).ok()?;
        log.contains("draining").then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_worker_pulls_nothing_and_finishes_under_its_leases() {
    let mut fleet = fleet().slots(2).start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let (running, later) = (fleet.ledger("running"), fleet.ledger("later"));
    // Twice as long as a lease, and shorter than the drain.
    let input = nap(4_000, &running).to_string();
    let posted =
        post_turn(&http, "e", "t", &message(&[("a", "nap-write", &input), ("b", "nap", &input)]));
    until("both run", SOON, async || (running.starts().len() == 2).then_some(())).await.unwrap();
    ask_to_drain(&fleet.workers[0]).await;
    let input = nap(1, &later).to_string();
    let queued =
        post_turn(&http, "e", "u", &message(&[("c", "nap", &input), ("d", "nap-write", &input)]));
    assert_eq!(contents(&answered(posted).await), ["1", "1"]);
    assert_eq!(running.lines().len(), 4, "{:?}", running.lines());
    until("it has ended", SOON, async || {
        let log = std::fs::read_to_string(fleet.workers[0].log()).ok()?;
        log.contains("drained").then_some(())
    })
    .await
    .unwrap();
    assert!(later.lines().is_empty(), "nothing is pulled in a drain: {:?}", later.lines());
    fleet.workers[0].restart().await.unwrap();
    let queued = answered(queued).await;
    assert_eq!(contents(&queued), ["1", "1"]);
    for call in queued.body["calls"].as_array().unwrap() {
        assert_eq!(call["attempts"], 1, "{call}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_outlasts_the_drain_is_ended_honestly_and_the_exit_is_0() {
    let mut fleet = fleet()
        .exec_tool("long-write", "effect = \"write\"", &noting("write", "sleep 20"))
        .exec_tool(
            "long-read",
            "effect = \"read\"",
            &noting("read", "[ $TOOLFLEET_ATTEMPT = 2 ] || sleep 20"),
        )
        .env("TOOLFLEET_LIMITS__DRAIN", "1s")
        .start()
        .await
        .unwrap();
    let http = fleet.http(0).unwrap();
    let posted =
        post_turn(&http, "e", "t", &message(&[("w", "long-write", ""), ("r", "long-read", "")]));
    let (write, read) = (fleet.ledger("write"), fleet.ledger("read"));
    write.started(1, SOON).await.unwrap();
    read.started(1, SOON).await.unwrap();
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    // Were the end's own time told, it would be later than this.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let since = Instant::now();
    let status = fleet.workers[0].terminate().await.unwrap();
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(since.elapsed() < Duration::from_secs(6), "{:?}", since.elapsed());
    fleet.workers[0].restart().await.unwrap();
    let answer = answered(posted).await;
    assert_eq!(codes(&answer), ["outcome_unknown", ""], "{}", answer.text);
    let contents = contents(&answer);
    let time =
        contents[0].strip_prefix("Tool error: outcome unknown: long-write started at ").unwrap();
    let (time, rest) = time.split_once(' ').unwrap();
    assert!(rest.starts_with("and its worker was lost; it may have taken effect."), "{rest}");
    // Not as texts: a whole second has no fraction.
    let time: jiff::Timestamp = time.parse().unwrap();
    let latest = i64::try_from(started.as_millis()).unwrap() + 100;
    let latest = jiff::Timestamp::from_millisecond(latest).unwrap();
    assert!(time < latest, "{time} is when it started, not when it was cut: {latest}");
    assert_eq!(answer.body["calls"][1]["attempts"], 2, "a read runs again: {}", answer.text);
    assert_eq!((write.starts().len(), write.ends().len()), (1, 0), "{:?}", write.lines());
    assert_eq!((read.starts().len(), read.ends().len()), (2, 1), "{:?}", read.lines());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_it_at_once() {
    let mut fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let ledger = fleet.ledger("cut");
    let input = nap(4_500, &ledger).to_string();
    let posted = post_turn(&http, "e", "t", &message(&[("w", "nap-write", &input)]));
    ledger.started(1, SOON).await.unwrap();
    ask_to_drain(&fleet.workers[0]).await;
    let since = Instant::now();
    let status = fleet.workers[0].terminate().await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    assert_eq!(status.code(), Some(130), "{status}");
    fleet.workers[0].restart().await.unwrap();
    let answer = answered(posted).await;
    assert_eq!(codes(&answer), ["outcome_unknown"], "{}", answer.text);
    assert_eq!((ledger.starts().len(), ledger.ends().len()), (1, 0), "{:?}", ledger.lines());

    // A coordinator with an open request likewise; the call outlives it.
    let kept = fleet.ledger("kept");
    let body = nap(4_000, &kept);
    let open = http.clone();
    let request = tokio::spawn(async move { open.call_as("nap", "e", "kept", body).await });
    kept.started(1, SOON).await.unwrap();
    let pid = i32::try_from(fleet.coordinators[0].pid()).ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    until("it takes no connection any more", SOON, async || {
        let address = http.base().strip_prefix("http://")?.to_owned();
        tokio::net::TcpStream::connect(address).await.is_err().then_some(())
    })
    .await
    .unwrap();
    let since = Instant::now();
    let status = fleet.coordinators[0].terminate().await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    assert_eq!(status.code(), Some(130), "{status}");
    assert!(request.await.unwrap().is_err(), "its request is cut");
    fleet.coordinators[0].restart().await.unwrap();
    let read = fleet.http(0).unwrap().read_call("e", "main:direct:kept", 20).await.unwrap();
    assert_eq!(
        (&read.body["state"], &read.body["result"]),
        (&json!("done"), &json!(1)),
        "{}",
        read.text
    );
    assert_eq!(kept.lines().len(), 2, "{:?}", kept.lines());
}

/// Where the coordinators are now: a restart moves them.
type Doors = Arc<Mutex<Vec<Http>>>;

/// Hands a call in, through one coordinator after the other, until one answers.
async fn ask_until_answered(
    first: usize,
    doors: &Doors,
    tool: &str,
    id: &str,
    input: Value,
) -> Answer {
    for door in first.. {
        let http = {
            let doors = doors.lock().unwrap_or_else(PoisonError::into_inner);
            doors[door % doors.len()].clone()
        };
        match http.call_as(tool, "load", id, input.clone()).await {
            // 404: a coordinator that has just started does not know the tools yet.
            Ok(answer) if ![404, 503].contains(&answer.status) => return answer,
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    unreachable!("there is always another try")
}

/// One client of the load: calls one after another, each under a name of its own, handed in again
/// through the next coordinator as long as nobody answers.
async fn client(number: usize, doors: Doors, ledger: Ledger, stop: Arc<AtomicBool>) -> Vec<Value> {
    let mut ended = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let tool = if (number + ended.len()).is_multiple_of(2) { "nap" } else { "nap-write" };
        let id = format!("c{number}-{}", ended.len());
        let ms = 50 + 130 * (ended.len() as u64 % 3);
        let asking = ask_until_answered(number, &doors, tool, &id, nap(ms, &ledger));
        let answer = tokio::time::timeout(Duration::from_secs(60), asking).await;
        let answer = answer.unwrap_or_else(|_| panic!("{id} is not answered"));
        ended.push(ok(&answer).clone());
    }
    ended
}

fn open_doors(fleet: &Fleet, doors: &Doors) {
    let all = (0..fleet.coordinators.len()).map(|number| fleet.http(number).unwrap()).collect();
    *doors.lock().unwrap_or_else(PoisonError::into_inner) = all;
}

/// A load over all coordinators of a fleet.
struct Load {
    heard: Announcements,
    doors: Doors,
    stop: Arc<AtomicBool>,
    ledger: Ledger,
    clients: Vec<tokio::task::JoinHandle<Vec<Value>>>,
}

impl Load {
    async fn start(fleet: &Fleet) -> Load {
        let heard = Announcements::listen(fleet.broker()).await.unwrap();
        let (doors, stop) = (Doors::default(), Arc::new(AtomicBool::new(false)));
        open_doors(fleet, &doors);
        let ledger = fleet.ledger("load");
        let clients = (0..6).map(|number| {
            tokio::spawn(client(number, Arc::clone(&doors), ledger.clone(), Arc::clone(&stop)))
        });
        let clients = clients.collect();
        let load = Load { heard, doors, stop, ledger, clients };
        load.goes_on().await;
        load
    }

    async fn goes_on(&self) {
        let before = self.ledger.ends().len();
        let more = async || (self.ledger.ends().len() > before + 10).then_some(());
        until("the load goes on", SOON, more).await.unwrap();
    }

    /// Ends it: every call has run exactly once, and has one result, announced once.
    async fn settle(self, fleet: &Fleet) {
        self.goes_on().await;
        self.stop.store(true, Ordering::Relaxed);
        let mut ended = Vec::new();
        for client in self.clients {
            ended.extend(client.await.unwrap());
        }
        assert!(ended.len() > 30, "a load of {} calls proves little", ended.len());
        for call in &ended {
            assert_eq!(call["attempts"], 1, "{call}");
            let name = toolfleet_tests::call_name(call).unwrap();
            assert_eq!(fleet.results_of(&name).await.unwrap(), 1, "{name}");
        }
        let (starts, ends) = (self.ledger.starts().len(), self.ledger.ends().len());
        assert_eq!((starts, ends), (ended.len(), ended.len()), "each call has run exactly once");
        assert!(self.heard.doubled().is_empty(), "{:?}", self.heard.doubled());
        // Nothing is left in the queue.
        until("the queue is empty", SOON, async || {
            let jobs = fleet.broker().prefix().jobs_stream();
            let left = toolfleet_tests::subjects(fleet.broker(), &jobs, ">").await.ok()?;
            left.is_empty().then_some(())
        })
        .await
        .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scaling_from_1_to_8_and_back_under_load_loses_doubles_and_fails_nothing() {
    let mut fleet = fleet()
        .coordinators(2)
        .workers(1)
        .env("TOOLFLEET_LIMITS__LEASE_TTL", "6s")
        .env("TOOLFLEET_LIMITS__ACK_WAIT", "8s")
        .start()
        .await
        .unwrap();
    let load = Load::start(&fleet).await;
    for _ in 0..2 {
        for count in [8, 3, 1] {
            for status in fleet.scale_workers(count).await.unwrap() {
                assert_eq!(status.code(), Some(0), "{status}");
            }
            load.goes_on().await;
        }
    }
    load.settle(&fleet).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_under_load_loses_doubles_and_fails_nothing() {
    let mut fleet = fleet()
        .coordinators(2)
        .workers(2)
        .env("TOOLFLEET_LIMITS__LEASE_TTL", "6s")
        .env("TOOLFLEET_LIMITS__ACK_WAIT", "8s")
        .start()
        .await
        .unwrap();
    let load = Load::start(&fleet).await;
    for round in 0..2 {
        for worker in 0..2 {
            let status = fleet.workers[worker].terminate().await.unwrap();
            assert_eq!(status.code(), Some(0), "worker {worker}, round {round}: {status}");
            fleet.workers[worker].restart().await.unwrap();
        }
        for coordinator in 0..2 {
            let status = fleet.coordinators[coordinator].terminate().await.unwrap();
            assert_eq!(status.code(), Some(0), "coordinator {coordinator}: {status}");
            fleet.coordinators[coordinator].restart().await.unwrap();
            open_doors(&fleet, &load.doors);
        }
    }
    load.settle(&fleet).await;
    let unknown = CallName::direct("default", "load", "main", "never");
    assert_eq!(fleet.results_of(&unknown).await.unwrap(), 0);
    let http = fleet.http(0).unwrap();
    failed(&http.call("panicker", json!({})).await.unwrap(), "tool_error");
}
