//! Calls that take their workers down each time, and what an operator does about them (CONTRACT 5.8).

use crate::asked::{SOON, failed, fleet, nap, ok, problem};
use crate::cli::{check, toolfleet};
use crate::conversation::noting;
use async_nats::jetstream::AckKind;
use async_nats::jetstream::consumer::pull;
use futures::StreamExt as _;
use serde_json::json;
use toolfleet_proto::name::CallName;
use toolfleet_proto::topology::Prefix;
use toolfleet_tests::{Fleet, until};

/// Says what it is about to do, and kills the worker above its guard while the file `poison` is there.
const KILLER: &str = r#"
[ -e "$(dirname "$0")/../poison" ] || { printf mended; exit 0; }
echo "about to kill in attempt $TOOLFLEET_ATTEMPT" >&2
sleep 2
kill -9 "$(sed 's/.*) //' /proc/$PPID/stat | cut -d' ' -f2)"
sleep 60
"#;

async fn poisoned(effect: &str) -> Fleet {
    let keys = format!("effect = \"{effect}\"\nrerun = {}", effect == "write");
    let keys = if effect == "write" { keys } else { "effect = \"read\"".to_owned() };
    // It reaches what a program that is shut in cannot.
    let fleet = fleet().slots(8).env("TOOLFLEET_WORKER__ISOLATION", "off");
    let fleet = fleet.exec_tool("killer", &keys, &noting("killer", KILLER));
    let fleet = fleet.start().await.unwrap();
    std::fs::write(fleet.dir().join("poison"), "").unwrap();
    fleet
}

/// Starts the worker again each time the tool has started an attempt that will kill it.
async fn until_laid_dead(fleet: &mut Fleet) {
    let ledger = fleet.ledger("killer");
    for attempt in 1..=3 {
        ledger.started(attempt, SOON).await.unwrap();
        let pid = fleet.workers[0].pid();
        until("the tool has killed its worker", SOON, async || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit(')')
                .next()
                .is_none_or(|rest| rest.trim_start().starts_with('Z') || rest.is_empty())
                .then_some(())
        })
        .await
        .unwrap();
        fleet.workers[0].restart().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_kills_its_workers_is_laid_dead_with_its_history_and_harms_no_other() {
    let mut fleet = poisoned("read").await;
    let http = fleet.http(0).unwrap();
    let killing = {
        let http = http.clone();
        tokio::spawn(async move { http.call_as("killer", "dead", "c", json!({})).await })
    };
    let siblings: Vec<_> = (0..5)
        .map(|number| {
            let (http, input) = (http.clone(), nap(100, &fleet.ledger(&format!("nap-{number}"))));
            tokio::spawn(
                async move { http.call_as("nap", "dead", &format!("n{number}"), input).await },
            )
        })
        .collect();
    until_laid_dead(&mut fleet).await;
    let answer = killing.await.unwrap().unwrap();
    let text = "Tool error: killer lost its worker in each of 3 attempts";
    assert_eq!(failed(&answer, "tool_crashed")["text"], text);
    for sibling in siblings {
        ok(&sibling.await.unwrap().unwrap());
    }

    let list = http.get("/v1/dead-letters").await.unwrap().body;
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list}");
    let item = &list["items"][0];
    assert_eq!(
        (&item["toolName"], &item["attempts"], &item["requeuedAs"]),
        (&json!("killer"), &json!(3), &json!(null))
    );
    let path = "/v1/dead-letters/dead/main:direct:c";
    let letter = http.get(path).await.unwrap().body;
    let history = letter["history"].as_array().unwrap();
    let workers: std::collections::BTreeSet<&str> =
        history.iter().map(|attempt| attempt["worker"].as_str().unwrap()).collect();
    assert_eq!((history.len(), workers.len()), (3, 3), "{letter}");
    for (attempt, number) in history.iter().zip(1..) {
        assert_eq!(attempt["attempt"], number);
        assert_eq!(attempt["lastWords"], format!("about to kill in attempt {number}"), "{letter}");
        assert_eq!(attempt["traceId"], answer.body["traceId"]);
    }
    requeue_and_drop(&fleet, path).await;
}

/// The cause is mended: the call is handed in again as a new one, once, and the letter is dropped.
async fn requeue_and_drop(fleet: &Fleet, path: &str) {
    let http = fleet.http(0).unwrap();
    std::fs::remove_file(fleet.dir().join("poison")).unwrap();
    for _ in 0..2 {
        let again = http.post(&format!("{path}/requeue"), &json!({})).await.unwrap();
        assert!([200, 202].contains(&again.status), "{}", again.text);
        assert_eq!(again.body["call"], "main:direct:c~2", "{}", again.text);
    }
    let call = http.get("/v1/calls/dead/main:direct:c~2?wait=20").await.unwrap();
    assert_eq!(
        (&call.body["text"], &call.body["requeuedFrom"]),
        (&json!("mended"), &json!("main:direct:c"))
    );
    assert_eq!(fleet.ledger("killer").starts().len(), 4, "requeued twice, run once");
    // The first call's own result stays as it is.
    let first = http.get("/v1/calls/dead/main:direct:c").await.unwrap();
    assert_eq!(first.body["code"], "tool_crashed");

    let (server, key) = (http.base().to_owned(), "dead:main:direct:c");
    let run = async |args: &[&str]| {
        toolfleet(&[&["dead-letters"], args, &["--server", &server]].concat(), &[]).await
    };
    let (shown, _) = check(&run(&["show", key]).await, 0);
    for part in ["about to kill in attempt 3", "main:direct:c~2 (done)", "read"] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    let (listed, _) = check(&run(&["list"]).await, 0);
    assert!(listed.contains(key), "{listed}");
    let (dropped, _) = check(&run(&["drop", key]).await, 0);
    assert_eq!(dropped.trim(), "dropped");
    check(&run(&["drop", key]).await, 1);
    problem(&http.get(path).await.unwrap(), 404, "dead_letter_not_found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_is_requeued_only_by_force_and_nothing_of_a_cancelled_execution() {
    let mut fleet = poisoned("write").await;
    let http = fleet.http(0).unwrap();
    let killing = {
        let http = http.clone();
        tokio::spawn(async move { http.call_as("killer", "dead", "c", json!({})).await })
    };
    until_laid_dead(&mut fleet).await;
    failed(&killing.await.unwrap().unwrap(), "tool_crashed");
    std::fs::remove_file(fleet.dir().join("poison")).unwrap();

    let path = "/v1/dead-letters/dead/main:direct:c/requeue";
    problem(&http.post(path, &json!({})).await.unwrap(), 409, "requeue_of_write");
    let forced = http.post(path, &json!({"force": true})).await.unwrap();
    assert!([200, 202].contains(&forced.status), "{}", forced.text);
    let call = http.get("/v1/calls/dead/main:direct:c~2?wait=20").await.unwrap();
    assert_eq!(call.body["text"], "mended", "{}", call.text);

    http.post("/v1/executions/dead/cancel", &json!({})).await.unwrap();
    problem(&http.post(path, &json!({"force": true})).await.unwrap(), 409, "execution_cancelled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_somebody_terminates_raises_an_alarm() {
    let mut fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    fleet.workers[0].kill().await.unwrap();
    let input = nap(1, &fleet.ledger("none"));
    let calling = tokio::spawn(async move { http.call_as("nap", "alarm", "c", input).await });
    let name = CallName::direct("default", "alarm", "main", "c");
    until("the call is queued", SOON, async || {
        let subject = fleet.broker().prefix().job("default", &name);
        fleet.broker().read_job(&subject).await.ok()?.map(drop)
    })
    .await
    .unwrap();
    let jobs =
        fleet.broker().jetstream().get_stream(fleet.broker().prefix().jobs_stream()).await.unwrap();
    let consumer: async_nats::jetstream::consumer::Consumer<pull::Config> =
        jobs.get_consumer(&Prefix::consumer("default")).await.unwrap();
    let mut messages = consumer.batch().max_messages(1).expires(SOON).messages().await.unwrap();
    let job = messages.next().await.unwrap().unwrap();
    job.ack_with(AckKind::Term).await.unwrap();

    let admin = fleet.admin(0).unwrap();
    until("the alarm is counted", SOON, async || {
        let page = admin.get("/metrics").await.ok()?.text;
        page.contains("toolfleet_broker_advisories_total{kind=\"terminated\"} 1").then_some(())
    })
    .await
    .unwrap();
    calling.abort();
}
