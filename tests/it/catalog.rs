//! What several pools announce, which versions may be offered, and entries that are taken out.

use crate::asked::{SOON, message, ok, problem};
use crate::cli::{check, toolfleet};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use toolfleet_tests::{Fleet, Http, Member, Recipe, SHORT_CLOCKS, WORKER, binary, until};

/// Writes a tool that prints a word.
fn write_tool(dir: &Path, name: &str, word: &str) {
    let manifest = format!(
        "description = \"Says {word}\"\neffect = \"read\"\n[run]\nexec = [\"echo\", \"{word}\"]\n"
    );
    fs::write(dir.join(format!("{name}.toml")), manifest).unwrap();
}

/// A worker of another pool.
async fn join(fleet: &mut Fleet, pool: &str, tools: &Path) {
    let servers =
        [("TOOLFLEET_NATS__URL", fleet.nats.url()), ("TOOLFLEET_REDIS__URL", fleet.redis.url())];
    let clocks = SHORT_CLOCKS.iter().map(|(key, value)| (*key, (*value).to_owned()));
    let recipe = Recipe {
        name: format!("worker-{pool}"),
        program: binary(WORKER).unwrap(),
        args: vec!["--pool".into(), pool.into(), "--tools".into(), tools.display().to_string()],
        env: servers
            .into_iter()
            .chain(clocks)
            .map(|(key, value)| (key.to_owned(), value))
            .collect(),
        dir: fleet.dir().to_path_buf(),
    };
    fleet.workers.push(Member::start(recipe).await.unwrap());
}

/// The entry of a pool's tool in the catalogue.
async fn entry(http: &Http, name: &str, pool: &str) -> Option<Value> {
    let answer = http.get("/v1/catalog").await.ok()?;
    let items = answer.body["items"].as_array()?.clone();
    items.into_iter().find(|item| item["name"] == *name && item["pool"] == *pool)
}

/// The pool that new calls of a tool go to.
async fn pool_of(http: &Http, name: &str) -> Option<String> {
    let answer = http.get("/v1/tools").await.ok()?;
    let tools = answer.body["tools"].as_array()?;
    let tool = tools.iter().find(|tool| tool["name"] == *name)?;
    tool["pool"].as_str().map(str::to_owned)
}

async fn gauge(fleet: &Fleet, reason: &str) -> Option<u64> {
    let page = fleet.admin(0).ok()?.get("/metrics").await.ok()?.text;
    let series = format!("toolfleet_tools_withheld{{reason=\"{reason}\"}} ");
    page.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_name_in_several_pools_is_one_tool_or_is_withheld() {
    let (same, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_tool(same.path(), "greet", "hello");
    write_tool(other.path(), "greet", "bonjour");
    let mut fleet = Fleet::builder().tools_of(same.path()).start().await.unwrap();
    let http = fleet.http(0).unwrap();
    assert_eq!(pool_of(&http, "greet").await.as_deref(), Some("default"));

    // The same version: new calls go to the pool that announced last.
    join(&mut fleet, "green", same.path()).await;
    until("new calls go to green", SOON, async || {
        (pool_of(&http, "greet").await? == "green").then_some(())
    })
    .await
    .unwrap();
    assert_eq!(ok(&http.call("greet", json!({})).await.unwrap())["text"], "hello\n");

    // Another version of a newcomer: withheld, told, counted.
    join(&mut fleet, "rogue", other.path()).await;
    let withheld = until("the newcomer is withheld", SOON, async || {
        let entry = entry(&http, "greet", "rogue").await?;
        (entry["withheld"]["reason"] == "another_hash").then_some(entry)
    })
    .await
    .unwrap();
    assert_eq!(withheld["isOffered"], false, "{withheld}");
    assert_eq!(withheld["withheld"]["offeredPool"], "green", "{withheld}");
    assert_eq!(withheld["versions"][0]["workers"][0]["isLive"], true, "{withheld}");
    assert_eq!(ok(&http.call("greet", json!({})).await.unwrap())["text"], "hello\n");
    until("it is counted", SOON, async || {
        (gauge(&fleet, "another_hash").await? >= 1).then_some(())
    })
    .await
    .unwrap();
    let server = http.base().to_owned();
    let env = [("TOOLFLEET_SERVER", server.as_str())];
    let (out, _) = check(&toolfleet(&["tools"], &env).await, 0);
    assert!(out.contains("of the pool rogue; the pool green had the name first"), "{out}");
    let (out, _) = check(&toolfleet(&["tools", "--versions"], &env).await, 0);
    assert!(out.lines().filter(|line| line.starts_with("greet ")).count() == 3, "{out}");

    // An entry goes by hand, and not while a live worker has it.
    let (_, err) = check(&toolfleet(&["tools", "drop", "greet"], &env).await, 1);
    assert!(err.contains("default, green, rogue"), "{err}");
    let drop_rogue = ["tools", "drop", "greet", "--pool", "rogue"];
    let (_, err) = check(&toolfleet(&drop_rogue, &env).await, 1);
    assert!(err.contains("live workers of the pool rogue"), "{err}");
    let refused = http.post("/v1/tools/greet/drop", &json!({"pool": "rogue"})).await.unwrap();
    problem(&refused, 409, "tool_alive");
    fleet.workers[2].terminate().await.unwrap();
    until("the worker has left", SOON, async || {
        let workers = entry(&http, "greet", "rogue").await?["versions"][0]["workers"].clone();
        (workers == json!([])).then_some(())
    })
    .await
    .unwrap();
    check(&toolfleet(&drop_rogue, &env).await, 0);
    until("its entry is gone", SOON, async || {
        entry(&http, "greet", "rogue").await.is_none().then_some(())
    })
    .await
    .unwrap();
    check(&toolfleet(&drop_rogue, &env).await, 1);

    // Forced, it goes although its worker lives; a worker that starts again brings it back.
    let forced = json!({"pool": "green", "force": true});
    let dropped = http.post("/v1/tools/greet/drop", &forced).await.unwrap();
    assert_eq!(
        (dropped.status, dropped.body["liveWorkers"].as_array().map(Vec::len)),
        (200, Some(1))
    );
    until("new calls go to the pool that is left", SOON, async || {
        (pool_of(&http, "greet").await? == "default").then_some(())
    })
    .await
    .unwrap();
    fleet.workers[1].restart().await.unwrap();
    until("green is back", SOON, async || entry(&http, "greet", "green").await.map(drop))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_versions_of_the_lock_file_are_offered() {
    let (tools, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_tool(tools.path(), "greet", "hello");
    write_tool(tools.path(), "part", "bye");
    let lock = place.path().join("toolfleet.lock");
    let (lock, dir) = (lock.to_str().unwrap(), tools.path().to_str().unwrap());
    let worker = binary(WORKER).unwrap();
    let write = ["lock", "--tools", dir, "--out", lock, "--worker", worker.to_str().unwrap()];
    check(&toolfleet(&write, &[]).await, 0);
    let fleet = Fleet::builder()
        .tools_of(tools.path())
        .env("TOOLFLEET_FLEET__LOCK_FILE", lock)
        .start()
        .await
        .unwrap();
    let http = fleet.http(0).unwrap();
    ok(&http.call("greet", json!({})).await.unwrap());

    // What is pinned is another version from now on.
    let text = fs::read_to_string(lock).unwrap();
    let pinned = text.lines().find_map(|line| line.strip_prefix("greet = ")).unwrap();
    fs::write(lock, text.replace(pinned, &format!("\"{}\"", "0".repeat(64)))).unwrap();
    let refused = until("it is not offered any more", SOON, async || {
        let answer = http.call("greet", json!({})).await.ok()?;
        (answer.status != 200).then_some(answer)
    })
    .await
    .unwrap();
    let detail = problem(&refused, 422, "tool_unpinned")["detail"].as_str().unwrap().to_owned();
    let announced = pinned.trim_matches('"')[..12].to_owned();
    assert!(detail.contains(&announced) && detail.contains("000000000000"), "{detail}");
    assert_eq!(pool_of(&http, "greet").await, None);
    ok(&http.call("part", json!({})).await.unwrap());
    let asked = message(&[("call_1", "greet", "{}"), ("call_2", "part", "{}")]);
    let turn = http.turn("e1", "t1", &asked);
    let answer = turn.await.unwrap();
    let calls = answer.body["calls"].as_array().unwrap();
    assert_eq!(
        (&calls[0]["code"], &calls[1]["isError"]),
        (&json!("tool_unpinned"), &json!(false)),
        "{}",
        answer.text
    );
    until("it is counted", SOON, async || (gauge(&fleet, "unpinned").await? == 1).then_some(()))
        .await
        .unwrap();
    let env = [("TOOLFLEET_SERVER", http.base())];
    let (out, _) = check(&toolfleet(&["tools"], &env).await, 0);
    assert!(
        out.contains("not offered: greet") && out.contains("the lock file has 000000000000"),
        "{out}"
    );

    // Both versions, as in a rollout, and it is offered again.
    check(&toolfleet(&[&write[..], &["--keep"]].concat(), &[]).await, 0);
    until("it is offered again", SOON, async || pool_of(&http, "greet").await.map(drop))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_file_that_does_not_read_stops_the_start() {
    let place = tempfile::tempdir().unwrap();
    let lock = place.path().join("toolfleet.lock");
    fs::write(&lock, "version = 7\n").unwrap();
    let env = [("TOOLFLEET_FLEET__LOCK_FILE", lock.to_str().unwrap())];
    let (_, err) = check(&toolfleet(&["serve", "--listen", "127.0.0.1:0"], &env).await, 78);
    assert!(err.contains("fleet.lock_file") && err.contains("version 7"), "{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_are_described_and_locked_without_a_fleet() {
    let (tools, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_tool(tools.path(), "greet", "hello");
    fs::write(
        tools.path().join("pay.toml"),
        "description = \"Pays\"\ntimeout = \"40s\"\nsecrets = [\"BANK_KEY\"]\n[run]\nexec = [\"true\"]\n",
    )
    .unwrap();
    let dir = tools.path().to_str().unwrap();
    let (out, _) = check(&toolfleet(&["describe", "--tools", dir], &[]).await, 0);
    for line in [
        "pool default: 2 tools",
        "  timeout      40 s              tool",
        "  effect       write             built in",
        "  secrets      BANK_KEY",
    ] {
        assert!(out.lines().any(|found| found == line), "{line} is not in\n{out}");
    }
    assert!(out.contains("warning: a write may run for 40 s and a drain waits 30 s"), "{out}");
    let (out, _) = check(&toolfleet(&["describe", "--tools", dir, "--json"], &[]).await, 0);
    let described: Value = serde_json::from_str(&out).unwrap();
    let pay = &described["tools"][1];
    assert_eq!((&pay["name"], &pay["timeoutMs"]), (&json!("pay"), &json!(40_000)), "{out}");
    assert_eq!(pay["origins"]["timeoutMs"], "tool", "{out}");
    check(&toolfleet(&["describe"], &[]).await, 2);

    // The defaults of a pool are part of its tools' versions, whoever reads them.
    let settings = place.path().join("fleet.toml");
    fs::write(&settings, "[pools.gpu.defaults]\nmax_attempts = 1\n").unwrap();
    let settings = ["--config", settings.to_str().unwrap()];
    let of_gpu = ["--tools", dir, "--pool", "gpu"];
    let args = [&["describe", "--json"][..], &settings, &of_gpu].concat();
    let (out, _) = check(&toolfleet(&args, &[]).await, 0);
    let gpu: Value = serde_json::from_str(&out).unwrap();
    let found = &gpu["tools"][1];
    assert_eq!(
        (&found["maxAttempts"], &found["origins"]["maxAttempts"]),
        (&json!(1), &json!("pool"))
    );
    assert_ne!(found["hash"], pay["hash"]);
    let worker = binary(WORKER).unwrap();
    for more in [vec![], vec!["--worker", worker.to_str().unwrap()]] {
        let args = [&["lock", "--out", "-"][..], &settings, &of_gpu, &more].concat();
        let (out, _) = check(&toolfleet(&args, &[]).await, 0);
        assert!(out.contains(&format!("pay = {}", found["hash"])), "{out}");
    }

    let lock = place.path().join("toolfleet.lock");
    let lock = lock.to_str().unwrap();
    let locked = async |more: &[&str]| {
        toolfleet(&[&["lock", "--tools", dir, "--out", lock], more].concat(), &[]).await
    };
    check(&locked(&[]).await, 0);
    let first = fs::read_to_string(lock).unwrap();
    check(&locked(&[]).await, 0);
    assert_eq!(fs::read_to_string(lock).unwrap(), first, "stable");
    assert!(first.contains(&format!("pay = {}", pay["hash"])), "{first}");
    check(&locked(&["--check"]).await, 0);
    write_tool(tools.path(), "greet", "good day");
    write_tool(tools.path(), "extra", "more");
    fs::remove_file(tools.path().join("pay.toml")).unwrap();
    let (out, _) = check(&locked(&["--check"]).await, 1);
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("+ extra ") && lines[1].starts_with("~ greet "), "{out}");
    assert_eq!(lines[2], "- pay, in the lock and not there");
    assert_eq!(fs::read_to_string(lock).unwrap(), first, "nothing is written");
    fs::write(tools.path().join("bad.toml"), "timeout = 1\n").unwrap();
    let (_, err) = check(&locked(&[]).await, 78);
    assert!(err.contains("manifest.missing") && err.contains("units.missing"), "{err}");
    // A worker describes what it brings itself, too.
    let output = tokio::process::Command::new(binary(WORKER).unwrap()).arg("describe").output();
    let (out, _) = check(&output.await.unwrap(), 0);
    assert!(out.contains("bench-echo: Gives its input back."), "{out}");
}
