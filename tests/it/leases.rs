//! Leases under fire: the lease store out of reach, its answers lost or late, its scripts gone, its
//! server a replica; workers that wake after they were taken for dead (cases D12, E01 to E12).

use crate::asked::{SOON, failed, fleet, nap, ok};
use crate::conversation::noting;
use crate::links::{call, name, ran_once};
use serde_json::json;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use toolfleet_tests::{Answer, Fleet, Ledger, Trap, Way, encode_segment, until};

/// What a key held, and from when on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    at_ms: u128,
    value: Option<String>,
}

/// Looks at the lease of a call every few milliseconds, and keeps every change.
struct Watched {
    changes: Arc<Mutex<Vec<Held>>>,
    watcher: tokio::task::JoinHandle<()>,
}

fn now_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()
}

fn note(kept: &Mutex<Vec<Held>>, held: Held) {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.last().is_none_or(|last| last.value != held.value) {
        kept.push(held);
    }
}

impl Watched {
    async fn start(fleet: &Fleet, id: &str) -> Watched {
        let key = fleet.broker().prefix().lease_key(&name(id));
        let mut redis = fleet.redis_connection().await.unwrap();
        let changes: Arc<Mutex<Vec<Held>>> = Arc::default();
        let kept = Arc::clone(&changes);
        let watcher = tokio::spawn(async move {
            loop {
                let at_ms = now_ms();
                let value: Option<String> =
                    redis::cmd("GET").arg(&key).query_async(&mut redis).await.unwrap();
                note(&kept, Held { at_ms, value });
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        Watched { changes, watcher }
    }

    fn changes(&self) -> Vec<Held> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The newest value that is none of these. A tool may start, and say so, before the next look at
    /// the lease that it started under.
    async fn seen_after(&self, known: &[&str], within: Duration) -> String {
        until("the lease is seen", within, async || {
            let newest = self.changes().pop()?.value?;
            (!known.contains(&newest.as_str())).then_some(newest)
        })
        .await
        .unwrap()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

/// When the first attempt was last known to run, by its own word.
fn last_tick_ms(ledger: &Ledger) -> u128 {
    let of_first = |line: &String| {
        let mut words = line.strip_prefix("tick ")?.split_whitespace();
        let at_ms = words.next()?.parse().ok()?;
        (words.next()? == "1").then_some(at_ms)
    };
    ledger.lines().iter().filter_map(of_first).max().expect("the first attempt has ticked")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_is_stopped_before_a_lease_that_cannot_be_renewed_has_run_out() {
    let mut fleet = fleet()
        .linked()
        .workers(2)
        .env("TOOLFLEET_LIMITS__LEASE_TTL", "4s")
        .env("TOOLFLEET_LIMITS__LEASE_MARGIN", "1s")
        .env("TOOLFLEET_LIMITS__ACK_WAIT", "5s")
        .start()
        .await
        .unwrap();
    let watched = Watched::start(&fleet, "long").await;
    let (long, ledger) = call(&fleet, "ticker", "long", 6_000);
    let pid = ledger.started(1, SOON).await.unwrap();
    let holder = fleet.worker_of(pid).unwrap();
    // Dropped, not refused; the other worker still reaches it.
    fleet.worker_links[holder].redis.stall();
    let answer = long.await.unwrap().unwrap();
    assert_eq!(ok(&answer)["attempts"], 2, "{}", answer.text);
    let other = fleet.workers[1 - holder].pid();
    assert_eq!((ledger.starts().len(), ledger.ends()), (2, vec![(2, other)]));
    assert_eq!(fleet.results_of(&name("long")).await.unwrap(), 1);

    let changes = watched.changes();
    let first = changes.iter().position(|held| held.value.is_some()).unwrap();
    let over = &changes[first + 1];
    let stopped_ms = last_tick_ms(&ledger);
    assert!(stopped_ms < over.at_ms, "it ran until {stopped_ms}, its lease until {over:?}");

    // Its path comes back, and it works as before, alone.
    fleet.worker_links[holder].redis.heal();
    fleet.workers[1 - holder].kill().await.unwrap();
    let later = call(&fleet, "nap", "later", 10);
    let since = Instant::now();
    later.1.started(1, SOON).await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(8), "{:?}", since.elapsed());
    ran_once(&fleet, "later", later).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_store_that_is_back_in_time_stops_nothing() {
    let fleet = fleet().linked().workers(2).env("TOOLFLEET_LIMITS__LEASE_TTL", "4s");
    let fleet = fleet.env("TOOLFLEET_LIMITS__ACK_WAIT", "5s").start().await.unwrap();
    for (id, is_cut) in [("stalled", false), ("cut", true)] {
        let long = call(&fleet, "nap", id, 5_000);
        let pid = long.1.started(1, SOON).await.unwrap();
        let link = &fleet.worker_links[fleet.worker_of(pid).unwrap()].redis;
        if is_cut {
            link.cut();
        } else {
            link.stall();
        }
        tokio::time::sleep(Duration::from_millis(600)).await;
        link.heal();
        ran_once(&fleet, id, long).await;
    }
}

/// Leases that are far longer than the test waits: only a worker that asks again starts the call soon.
fn patient() -> toolfleet_tests::Builder {
    [("LEASE_TTL", "20s"), ("LEASE_RENEW", "5s"), ("ACK_WAIT", "26s")]
        .iter()
        .fold(fleet().linked(), |fleet, (key, value)| {
            fleet.env(&format!("TOOLFLEET_LIMITS__{key}"), *value)
        })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_answer_is_lost_or_late_is_undone_and_made_again() {
    let fleet = patient().start().await.unwrap();
    let link = &fleet.worker_links[0].redis;
    for (id, trap) in [
        ("lost", Trap::LoseConnection),
        // An answer is waited for a second at most.
        ("late", Trap::Hold(Duration::from_millis(1_800))),
    ] {
        link.set(Way::Down, "granted", trap);
        let since = Instant::now();
        let claimed = call(&fleet, "nap-write", id, 10);
        ran_once(&fleet, id, claimed).await;
        assert!(link.is_sprung(), "{id}: no answer was in the way");
        assert!(since.elapsed() < Duration::from_secs(9), "{id}: {:?}", since.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_the_network_has_forgotten_is_given_up() {
    let fleet = fleet()
        .linked()
        .env("TOOLFLEET_LIMITS__LEASE_TTL", "4s")
        .env("TOOLFLEET_LIMITS__ACK_WAIT", "5s")
        .start()
        .await
        .unwrap();
    let link = &fleet.worker_links[0].redis;
    let before = link.connections();
    // What is open is never heard of again; what is new would pass.
    link.forget();
    let since = Instant::now();
    ran_once(&fleet, "later", call(&fleet, "nap", "later", 5_000)).await;
    assert!(link.connections() > before, "the old connection still serves");
    assert!(since.elapsed() < Duration::from_secs(25), "{:?}", since.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_wakes_takes_nothing_from_the_one_that_took_over() {
    let script = noting("sleepy", "[ $TOOLFLEET_ATTEMPT = 3 ] || sleep 60\nprintf third");
    let keys = "effect = \"read\"\ntimeout = \"40s\"";
    let mut fleet = fleet().workers(2).exec_tool("sleepy", keys, &script).start().await.unwrap();
    let (http, ledger) = (fleet.http(0).unwrap(), fleet.ledger("sleepy"));
    let asked =
        tokio::spawn(async move { http.call_as("sleepy", "links", "sleepy", json!({})).await });
    let watched = Watched::start(&fleet, "sleepy").await;
    ledger.started(1, SOON).await.unwrap();
    let first = watched.seen_after(&[], SOON).await;
    let holder = fleet.workers.iter().position(|worker| holds(&first, worker.ready())).unwrap();
    fleet.workers[holder].pause().unwrap();
    ledger.started(2, SOON).await.unwrap();
    let second = watched.seen_after(&[&first], SOON).await;
    assert!(holds(&second, fleet.workers[1 - holder].ready()), "{second}");
    let taken_over = watched.changes().len();
    fleet.workers[holder].resume().unwrap();
    // Longer than the woken one takes to say whatever it has to say.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let changes = watched.changes();
    assert_eq!(changes.len(), taken_over, "the lease was touched: {changes:?}");
    assert!(changes.last().unwrap().value.is_some());
    assert_eq!(ledger.starts().len(), 2, "{:?}", ledger.lines());

    // The call is still owed: whatever the woken one has acknowledged, it did not take it away.
    fleet.workers[1 - holder].kill().await.unwrap();
    let answer = asked.await.unwrap().unwrap();
    assert_eq!((&ok(&answer)["attempts"], &ok(&answer)["text"]), (&json!(3), &json!("third")));
    assert_eq!((ledger.starts().len(), ledger.ends().len()), (3, 1), "{:?}", ledger.lines());
    assert_eq!(fleet.results_of(&name("sleepy")).await.unwrap(), 1);
}

/// Whether a lease of this value is the worker's that wrote this ready file.
fn holds(value: &str, ready: &serde_json::Value) -> bool {
    value.split('|').nth(1) == ready["worker"].as_str()
}

/// Every lease of the store that has no expiry, or too long a one.
const ENDLESS: &str = "
local bad = {}
for _, key in ipairs(redis.call('KEYS', 'tf.v1:x:*')) do
  local left, value = redis.call('PTTL', key), redis.call('GET', key)
  if left == -1 or left > 5000 or (value and value ~= 'done' and left > 2000) then
    bad[#bad + 1] = key .. ' ' .. tostring(value) .. ' ' .. left
  end
end
return bad";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lease_is_ever_without_an_expiry() {
    const CALLS: usize = 240;
    let mut fleet = fleet().workers(2).slots(4).start().await.unwrap();
    let mut redis = fleet.redis_connection().await.unwrap();
    let watcher = tokio::spawn(async move {
        let script = redis::Script::new(ENDLESS);
        let mut looks = 0_u32;
        loop {
            let bad: Vec<String> = script.invoke_async(&mut redis).await.unwrap();
            assert_eq!(bad, Vec::<String>::new(), "after {looks} looks");
            looks += 1;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let http = fleet.http(0).unwrap();
    let load = tokio::spawn(async move {
        use futures::StreamExt as _;
        let calls = (0..CALLS).map(|number| {
            let http = http.clone();
            async move {
                let input = json!({"ms": number % 60});
                http.call_as("nap", "links", &format!("short-{number}"), input).await
            }
        });
        futures::stream::iter(calls).buffer_unordered(8).collect::<Vec<_>>().await
    });
    for round in 0..4 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        fleet.workers[round % 2].restart().await.unwrap();
    }
    for answer in load.await.unwrap() {
        ok(&answer.unwrap());
    }
    assert!(!watcher.is_finished(), "{:?}", watcher.await);
    watcher.abort();
}

/// Leases that are claims, not the mark of a stored result.
const CLAIMS: &str = "
local held = {}
for _, key in ipairs(redis.call('KEYS', 'tf.v1:x:*')) do
  local value = redis.call('GET', key)
  if value and value ~= 'done' then held[#held + 1] = key .. ' ' .. value end
end
return held";

async fn scripts_run(redis: &mut redis::aio::MultiplexedConnection) -> String {
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(redis).await.unwrap();
    let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:"));
    line.unwrap_or_default().split(',').next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_renewal_outlives_its_call() {
    let fleet = fleet()
        .env("TOOLFLEET_LIMITS__LEASE_RENEW", "100ms")
        .exec_tool("late", "effect = \"read\"\ntimeout = \"300ms\"", "sleep 5")
        .start()
        .await
        .unwrap();
    let http = fleet.http(0).unwrap();
    let call = async |tool: &str, id: String, input| {
        http.call_as(tool, "links", &id, input).await.unwrap()
    };
    for round in 0..15 {
        let cancelled = {
            let ledger = fleet.ledger(&format!("stop-{round}"));
            let id = format!("stop-{round}");
            let asked = tokio::spawn({
                let (http, input) = (http.clone(), nap(30_000, &ledger));
                async move { http.call_as("nap", "links", &id, input).await }
            });
            ledger.started(1, SOON).await.unwrap();
            let path = encode_segment(&format!("main:direct:stop-{round}"));
            let path = format!("/v1/calls/links/{path}/cancel");
            async {
                http.post(&path, &json!({})).await.unwrap();
                asked.await.unwrap().unwrap()
            }
            .await
        };
        failed(&cancelled, "cancelled");
        let bad = json!({"ms": 1, "ledger": "/no/such/folder/ledger"});
        let (well, error, panic, late) = tokio::join!(
            call("nap", format!("well-{round}"), json!({"ms": round * 3})),
            call("nap", format!("error-{round}"), bad),
            call("panicker", format!("panic-{round}"), json!({})),
            call("late", format!("late-{round}"), json!({})),
        );
        ok(&well);
        failed(&error, "tool_error");
        failed(&panic, "tool_error");
        failed(&late, "timed_out");
    }
    let mut redis = fleet.redis_connection().await.unwrap();
    // Three renewals after the last end.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let held: Vec<String> = redis::Script::new(CLAIMS).invoke_async(&mut redis).await.unwrap();
    assert_eq!(held, Vec::<String>::new());
    let before = scripts_run(&mut redis).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(scripts_run(&mut redis).await, before, "something still renews");
}

/// A load of naps through one coordinator, all at once.
fn load(fleet: &Fleet, calls: usize) -> Vec<tokio::task::JoinHandle<anyhow::Result<Answer>>> {
    let http = fleet.http(0).unwrap();
    let call = |number: usize| {
        let (http, input) = (http.clone(), json!({"ms": 100 + number % 7 * 50}));
        let id = format!("load-{number}");
        tokio::spawn(async move { http.call_as("nap", "links", &id, input).await })
    };
    (0..calls).map(call).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_the_lease_store_has_forgotten_are_loaded_again() {
    let fleet = fleet().workers(2).slots(4).start().await.unwrap();
    let mut redis = fleet.redis_connection().await.unwrap();
    let long = call(&fleet, "nap-write", "long", 3_000);
    let load = load(&fleet, 60);
    while !load.iter().all(tokio::task::JoinHandle::is_finished) {
        let _: String = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut redis).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for call in load {
        let answer = call.await.unwrap().unwrap();
        assert_eq!(ok(&answer)["attempts"], 1, "{}", answer.text);
    }
    ran_once(&fleet, "long", long).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_store_that_is_a_replica_for_a_while_loses_no_call_and_is_told() {
    let fleet = fleet().env("TOOLFLEET_WORKER__ADMIN_LISTEN", "127.0.0.1:0").start().await.unwrap();
    let mut redis = fleet.redis_connection().await.unwrap();
    let admin = fleet.worker_admin(0).unwrap();
    let ready = async || admin.get("/readyz?verbose").await.ok();
    until("the worker is ready", SOON, async || (ready().await?.status == 200).then_some(()))
        .await
        .unwrap();
    let running = call(&fleet, "nap", "running", 4_000);
    running.1.started(1, SOON).await.unwrap();
    let become_replica = ["127.0.0.1", "1"];
    let _: String =
        redis::cmd("REPLICAOF").arg(&become_replica).query_async(&mut redis).await.unwrap();
    let load = load(&fleet, 20);
    let told = until("the worker says so", SOON, async || {
        ready().await.filter(|answer| answer.status == 503)
    })
    .await
    .unwrap();
    assert!(told.text.contains("READONLY") || told.text.contains("read only"), "{}", told.text);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let _: String =
        redis::cmd("REPLICAOF").arg(&["NO", "ONE"]).query_async(&mut redis).await.unwrap();
    until("the worker is ready again", SOON, async || (ready().await?.status == 200).then_some(()))
        .await
        .unwrap();
    for call in load {
        ok(&call.await.unwrap().unwrap());
    }
    // Its lease could not be renewed: stopped, and run again.
    let answer = running.0.await.unwrap().unwrap();
    assert_eq!(ok(&answer)["attempts"], 2, "{}", answer.text);
    assert_eq!(running.1.starts().len(), 2, "{:?}", running.1.lines());
    assert_eq!(fleet.results_of(&name("running")).await.unwrap(), 1);
}
