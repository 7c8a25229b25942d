//! `toolfleet dev`, whole: it comes, heals, and goes.

use crate::asked::{SOON, ok};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;
use tokio::sync::SemaphorePermit;
use toolfleet_tests::{
    Http, Member, Programs, Recipe, SHORT_CLOCKS, TOOLFLEET, binary, fleet_turn, until,
};

/// The drain of the short clocks, and what `dev` may add to it.
const END: Duration = Duration::from_secs(5 + 5);

struct Dev {
    member: Member,
    _folder: tempfile::TempDir,
    _turn: SemaphorePermit<'static>,
}

impl Dev {
    async fn start() -> Dev {
        let folder = tempfile::Builder::new().prefix("toolfleet-test-").tempdir().unwrap();
        Dev::start_in(folder, &[]).await
    }

    async fn start_in(folder: tempfile::TempDir, more: &[&str]) -> Dev {
        let turn = fleet_turn().await.unwrap();
        let clocks = SHORT_CLOCKS.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let state = folder.path().join("state").to_string_lossy().into_owned();
        let args = ["dev", "--listen", "127.0.0.1:0", "--workers", "2", "--state", &state];
        let recipe = Recipe {
            name: "dev".into(),
            program: binary(TOOLFLEET).unwrap(),
            args: args.iter().chain(more).map(|&word| word.to_owned()).collect(),
            env: Programs::find().unwrap().env().into_iter().chain(clocks).collect(),
            dir: folder.path().to_path_buf(),
        };
        Dev { member: Member::start(recipe).await.unwrap(), _folder: folder, _turn: turn }
    }

    async fn call_works(&self) {
        let http = Http::new(self.member.told("http")).unwrap();
        until("a call through dev ends well", SOON, async || {
            let answer = http.call("bench-echo", json!({"n": 1})).await.ok()?;
            (answer.status == 200 && answer.body["ok"] == true).then_some(())
        })
        .await
        .unwrap();
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("---- the end of dev:\n{}", toolfleet_io::child::log_tail(self.member.log()));
        }
    }
}

fn pid(value: &Value) -> Pid {
    let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
    number.and_then(Pid::from_raw).unwrap_or_else(|| panic!("no process id: {value}"))
}

/// Every process of the ready file.
fn all_pids(ready: &Value) -> Vec<Pid> {
    let pids = &ready["pids"];
    let workers = pids["workers"].as_array().unwrap().iter();
    [&pids["nats"], &pids["redis"], &pids["coordinator"]]
        .into_iter()
        .chain(workers)
        .map(pid)
        .collect()
}

async fn until_gone(pids: &[Pid], within: Duration) {
    until("every child of dev is gone", within, async || {
        pids.iter().all(|pid| test_kill_process(*pid).is_err()).then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_comes_serves_and_ends_in_order() {
    let mut dev = Dev::start().await;
    let ready = dev.member.ready_now();
    for (key, scheme) in [("http", "http"), ("admin", "http"), ("nats", "nats"), ("redis", "redis")]
    {
        let start = format!("{scheme}://127.0.0.1:");
        assert!(ready[key].as_str().is_some_and(|url| url.starts_with(&start)), "{key}: {ready}");
    }
    let pids = all_pids(&ready);
    assert_eq!(pids.len(), 5, "{ready}");
    let http = Http::new(dev.member.told("http")).unwrap();
    ok(&http.call("bench-echo", json!({"n": 1})).await.unwrap());
    let admin = Http::new(dev.member.told("admin")).unwrap();
    assert_eq!(admin.get("/readyz").await.unwrap().status, 200);

    let ended = tokio::time::timeout(END, dev.member.terminate()).await;
    let status = ended.expect("it ends within its drain and 5 s").unwrap();
    assert_eq!(status.code(), Some(0), "{status}");
    // They were waited for: none may outlive it.
    until_gone(&pids, Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_killed_comes_back_at_its_address() {
    let dev = Dev::start().await;
    let before = dev.member.ready_now();
    for place in ["/pids/workers/0", "/pids/nats", "/pids/redis", "/pids/coordinator"] {
        let old = dev.member.ready_now().pointer(place).cloned().unwrap();
        kill_process(pid(&old), Signal::KILL).unwrap();
        let what = format!("{place} is another process");
        let now = until(&what, SOON, async || {
            let now = dev.member.ready_now();
            now.pointer(place).is_some_and(|new| new.is_number() && *new != old).then_some(now)
        })
        .await
        .unwrap();
        for key in ["http", "admin", "nats", "redis"] {
            assert_eq!(now[key], before[key], "{key} after {place}");
        }
        dev.call_works().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_children_of_a_killed_dev_end_by_themselves() {
    let mut dev = Dev::start().await;
    let pids = all_pids(&dev.member.ready_now());
    dev.member.kill().await.unwrap();
    until_gone(&pids, END).await;
}

/// A read whose script says `words`.
fn save(tools: &Path, name: &str, timeout: &str, words: &str) {
    let manifest = format!(
        "description = \"Says {words}\"\neffect = \"read\"\ntimeout = {timeout}\n[run]\nexec = [\"./{name}.sh\"]\n"
    );
    let script = tools.join(format!("{name}.sh"));
    std::fs::write(&script, format!("#!/bin/sh\nprintf '%s' '{words}'\n")).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(tools.join(format!("{name}.toml")), manifest).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_saved_tool_is_live_and_a_faulty_one_leaves_the_last_good_one() {
    let folder = tempfile::Builder::new().prefix("toolfleet-test-").tempdir().unwrap();
    let tools = folder.path().join("tools");
    std::fs::create_dir(&tools).unwrap();
    save(&tools, "greet", "\"5s\"", "hello");
    let dev = Dev::start_in(folder, &["--tools", tools.to_str().unwrap()]).await;
    let http = Http::new(dev.member.told("http")).unwrap();
    let says = async |name: &str, words: &str| {
        until(&format!("{name} says {words}"), SOON, async || {
            let answer = http.call(name, json!({})).await.ok()?;
            (answer.body["result"] == words).then_some(())
        })
        .await
        .unwrap();
    };
    says("greet", "hello").await;
    save(&tools, "part", "\"5s\"", "good bye");
    says("part", "good bye").await;
    save(&tools, "greet", "\"6s\"", "good day");
    says("greet", "good day").await;
    let timeout_ms = async || {
        let listed = http.get("/v1/tools").await.ok()?;
        let tools = listed.body["tools"].as_array()?.clone();
        tools.iter().find(|tool| tool["name"] == "greet")?["timeoutMs"].as_u64()
    };
    until("the changed manifest is on offer", SOON, async || {
        (timeout_ms().await == Some(6_000)).then_some(())
    })
    .await
    .unwrap();

    save(&tools, "greet", "6", "never served");
    until("the fault is told with file, line and mend", SOON, async || {
        let log = toolfleet_io::child::log_tail(dev.member.log());
        let is_told = log.contains("greet.toml:3: units.missing")
            && log.contains("the last good tools go on serving");
        is_told.then_some(())
    })
    .await
    .unwrap();
    assert_eq!(timeout_ms().await, Some(6_000), "the last good one");
}
