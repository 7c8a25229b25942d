//! Networks between processes and the broker that break, fall silent, lose a message or are slow:
//! nothing lost, nothing doubled, and all of it works again within seconds.

use crate::asked::{SOON, failed, fleet, nap, ok};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use toolfleet_proto::name::CallName;
use toolfleet_tests::{
    Announcements, Answer, Builder, Fleet, Ledger, Link, Trap, Way, encode_segment, until,
};

/// A call that goes on beside the test.
pub type Call = JoinHandle<anyhow::Result<Answer>>;

/// The execution of every call here.
const EXECUTION: &str = "links";

/// Calls a tool of naps through the first coordinator; the ledger has the name of the call.
pub fn call(fleet: &Fleet, tool: &'static str, id: &str, ms: u64) -> (Call, Ledger) {
    let ledger = fleet.ledger(id);
    let (http, input, id) = (fleet.http(0).unwrap(), nap(ms, &ledger), id.to_owned());
    // A caller that is told to try again does so, under the same name.
    let call = tokio::spawn(async move {
        loop {
            let answer = http.call_as(tool, EXECUTION, &id, input.clone()).await?;
            if answer.status != 503 {
                return Ok(answer);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    (call, ledger)
}

/// The name of a call.
pub fn name(id: &str) -> CallName {
    CallName::direct("default", EXECUTION, "main", id)
}

/// The call ended well by its first attempt, which is the only one that ever started.
pub async fn ran_once(fleet: &Fleet, id: &str, (call, ledger): (Call, Ledger)) {
    let answer = call.await.unwrap().unwrap();
    let body = ok(&answer);
    assert_eq!((&body["attempts"], &body["result"]), (&json!(1), &json!(1)), "{}", answer.text);
    let (starts, ends) = (ledger.starts().len(), ledger.ends().len());
    assert_eq!((starts, ends), (1, 1), "{id}: {:?}", ledger.lines());
    assert_eq!(fleet.results_of(&name(id)).await.unwrap(), 1, "{id}");
}

/// Waits until every worker has run a call of its own, at most `within` from now.
async fn all_take_calls(fleet: &Fleet, round: &str, within: Duration) {
    let ids: Vec<String> =
        (0..fleet.workers.len()).map(|number| format!("{round}-{number}")).collect();
    let calls: Vec<_> = ids.iter().map(|id| call(fleet, "nap", id, 1_000)).collect();
    until("each worker runs a call", within, async || {
        calls.iter().all(|(_, ledger)| !ledger.starts().is_empty()).then_some(())
    })
    .await
    .unwrap();
    for (id, call) in ids.iter().zip(calls) {
        ran_once(fleet, id, call).await;
    }
}

fn one_slot_each() -> Builder {
    fleet().linked().workers(2).slots(1)
}

/// A read and a write run, one on each worker, when all links to the broker are broken by `harm`, until
/// `over` is ready. Both end well by their only attempts, and the workers take calls again.
async fn calls_outlive(harm: impl Fn(&Link), over: impl AsyncFn(&Fleet)) {
    let fleet = one_slot_each().start().await.unwrap();
    let heard = Announcements::listen(fleet.broker()).await.unwrap();
    let (read, write) =
        (call(&fleet, "nap", "read", 5_000), call(&fleet, "nap-write", "write", 5_000));
    for (_, ledger) in [&read, &write] {
        ledger.started(1, SOON).await.unwrap();
    }
    fleet.worker_links.iter().for_each(|links| harm(&links.nats));
    over(&fleet).await;
    fleet.worker_links.iter().for_each(|links| links.nats.heal());
    ran_once(&fleet, "read", read).await;
    ran_once(&fleet, "write", write).await;
    assert_eq!(heard.doubled(), [], "a result was announced twice");
    all_take_calls(&fleet, "later", Duration::from_secs(6)).await;
}

/// Until every worker has given up its connection: each tries another one.
async fn noticed(fleet: &Fleet) {
    let before: Vec<usize> =
        fleet.worker_links.iter().map(|links| links.nats.connections()).collect();
    // Three pings, 2 s apart, and what a loaded machine takes.
    until("the workers notice the silence", Duration::from_secs(10), async || {
        let has_tried =
            |(links, before): (&toolfleet_tests::Links, &usize)| links.nats.connections() > *before;
        fleet.worker_links.iter().zip(&before).all(has_tried).then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_outlive_a_broker_that_is_out_of_reach_for_longer_than_the_ack_wait() {
    calls_outlive(Link::cut, async |_| tokio::time::sleep(Duration::from_secs(4)).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_outlive_a_broker_that_falls_silent_without_a_word() {
    calls_outlive(Link::stall, noticed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_outlive_a_broker_that_hears_and_is_not_heard() {
    calls_outlive(Link::stall_down, noticed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_the_network_has_forgotten_are_given_up() {
    let fleet = fleet().linked().start().await.unwrap();
    let waiting = call(&fleet, "nap-write", "waiting", 1_000);
    waiting.1.started(1, SOON).await.unwrap();
    // What is open is never heard of again; what is new passes.
    for links in fleet.worker_links.iter().chain(&fleet.coordinator_links) {
        links.nats.forget();
    }
    let since = Instant::now();
    let later = call(&fleet, "nap-write", "later", 10);
    ran_once(&fleet, "waiting", waiting).await;
    ran_once(&fleet, "later", later).await;
    assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_report_of_progress_starts_nothing_again() {
    // Twice the ack wait, and two others that would take it.
    let fleet = fleet().linked().workers(3).start().await.unwrap();
    for links in &fleet.worker_links {
        links.nats.set(Way::Up, "+WPI", Trap::LoseMessage);
    }
    let long = call(&fleet, "nap", "long", 6_000);
    let pid = long.1.started(1, SOON).await.unwrap();
    ran_once(&fleet, "long", long).await;
    let holder = fleet.worker_of(pid).unwrap();
    assert!(fleet.worker_links[holder].nats.is_sprung(), "no report was lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_the_broker_that_is_lost_costs_no_second_run() {
    let fleet = fleet().linked().start().await.unwrap();
    let (coordinator, worker) = (&fleet.coordinator_links[0].nats, &fleet.worker_links[0].nats);
    for (id, link, lost, tool) in [
        ("job", coordinator, "\"stream\":\"TF_V1_JOBS\"", "nap-write"),
        ("announcement", coordinator, "tf.v1.done.default.links", "nap-write"),
        ("start", worker, "\"stream\":\"TF_V1_STARTS\"", "nap-write"),
        ("result", worker, "\"stream\":\"TF_V1_RESULTS\"", "nap-write"),
        ("result-of-read", worker, "\"stream\":\"TF_V1_RESULTS\"", "nap"),
    ] {
        link.set(Way::Down, lost, Trap::LoseMessage);
        ran_once(&fleet, id, call(&fleet, tool, id, 10)).await;
        assert!(link.is_sprung(), "{id}: nothing was lost");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_gets_its_result_through_a_coordinator_that_lost_the_broker() {
    let fleet = fleet().linked().start().await.unwrap();
    let link = &fleet.coordinator_links[0].nats;
    let cut: fn(&Link) = Link::cut;
    for (round, harm) in [("cut", cut), ("stall", Link::stall)] {
        // While it waits: the result is stored, and the announcement goes nowhere.
        let waiting = call(&fleet, "nap-write", &format!("{round}-waiting"), 500);
        waiting.1.started(1, SOON).await.unwrap();
        let tried = link.connections();
        harm(link);
        let stored = name(&format!("{round}-waiting"));
        until("the result is stored", SOON, async || {
            (fleet.results_of(&stored).await.ok()? == 1).then_some(())
        })
        .await
        .unwrap();
        // While it publishes: whether the job arrives is not known until the link is whole.
        let publishing = call(&fleet, "nap-write", &format!("{round}-publishing"), 10);
        until("the coordinator notices", Duration::from_secs(10), async || {
            (link.connections() > tried).then_some(())
        })
        .await
        .unwrap();
        link.heal();
        ran_once(&fleet, &format!("{round}-waiting"), waiting).await;
        ran_once(&fleet, &format!("{round}-publishing"), publishing).await;
    }
}

async fn cancel(fleet: &Fleet, id: &str) -> Value {
    let call = encode_segment(&format!("main:direct:{id}"));
    let path = format!("/v1/calls/{EXECUTION}/{call}/cancel");
    let answer = fleet.http(0).unwrap().post(&path, &json!({"reason": "enough"})).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body["answer"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_without_the_lease_store_admits_and_cancels() {
    let cut: fn(&Link) = Link::cut;
    for harm in [cut, Link::stall] {
        let fleet = fleet().linked().slots(1).start().await.unwrap();
        let running = call(&fleet, "nap", "running", 30_000);
        running.1.started(1, SOON).await.unwrap();
        harm(&fleet.coordinator_links[0].redis);
        let queued = [
            ("read", "nap", "may_have_started"),
            // Its start record proves it, whatever the lease store would have said.
            ("write", "nap-write", "never_started"),
        ];
        let calls = queued.map(|(id, tool, _)| call(&fleet, tool, id, 10));
        until("both are queued", SOON, async || {
            let jobs = fleet.broker().prefix().jobs_stream();
            let found = toolfleet_tests::subjects(fleet.broker(), &jobs, ">").await.ok()?;
            (found.len() == 3).then_some(())
        })
        .await
        .unwrap();
        let asked = queued.map(|(id, _, _)| cancel(&fleet, id));
        let said = futures::future::join_all(asked).await;
        for ((id, _, answer), said) in queued.iter().zip(said) {
            assert_eq!(said, *answer, "{id}");
        }
        assert_eq!(cancel(&fleet, "running").await, "may_have_started");
        failed(&running.0.await.unwrap().unwrap(), "cancelled");
        assert_eq!(running.1.ends().len(), 0, "it went on to its end");
        // Its slot is free: what was cancelled in the queue would start now.
        ran_once(&fleet, "later", call(&fleet, "nap", "later", 10)).await;
        for (answer, ledger) in calls {
            failed(&answer.await.unwrap().unwrap(), "cancelled");
            assert_eq!(ledger.lines(), Vec::<String>::new(), "it started after all");
        }
    }
}

/// Clocks for a fleet whose servers are far away.
const FAR_CLOCKS: [(&str, &str); 4] = [
    ("TOOLFLEET_LIMITS__LEASE_TTL", "6s"),
    ("TOOLFLEET_LIMITS__LEASE_RENEW", "2s"),
    ("TOOLFLEET_LIMITS__ACK_WAIT", "8s"),
    ("TOOLFLEET_WORKER__ADMIN_LISTEN", "127.0.0.1:0"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_is_slow_both_ways_costs_time_and_nothing_else() {
    let far =
        FAR_CLOCKS.iter().fold(fleet().linked(), |fleet, (key, value)| fleet.env(key, *value));
    let mut fleet = far.start().await.unwrap();
    for links in fleet.worker_links.iter().chain(&fleet.coordinator_links) {
        links.nats.delay(Duration::from_millis(200));
        links.redis.delay(Duration::from_millis(200));
    }
    // It must be able to start from there too.
    fleet.workers[0].restart().await.unwrap();
    // Longer than a lease.
    let calls = [("nap", "read"), ("nap-write", "write")]
        .map(|(tool, id)| (id, call(&fleet, tool, id, 6_500)));
    let stopped = call(&fleet, "nap", "stopped", 30_000);
    stopped.1.started(1, SOON).await.unwrap();
    let since = Instant::now();
    assert_eq!(cancel(&fleet, "stopped").await, "may_have_started");
    assert!(since.elapsed() < Duration::from_secs(6), "{:?}", since.elapsed());
    failed(&stopped.0.await.unwrap().unwrap(), "cancelled");
    for (id, call) in calls {
        ran_once(&fleet, id, call).await;
    }
    let page = fleet.worker_admin(0).unwrap().get("/metrics").await.unwrap().text;
    for line in [
        "toolfleet_leases_lost_total{pool=\"default\"} 0",
        "toolfleet_redis_errors_total{kind=\"timeout\"} 0",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
    }
}
