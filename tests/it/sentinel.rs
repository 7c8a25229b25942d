//! A lease store whose primary is named by Redis Sentinel, and fails over.

use crate::asked::{SOON, fleet, nap, ok};
use serde_json::json;
use std::net::TcpListener;
use std::path::Path;
use tokio::process::{Child, Command};
use toolfleet_tests::{Programs, until};

/// A redis process with a configuration of its own; killed when dropped.
struct Server {
    port: u16,
    child: Child,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Server {
    async fn start(dir: &Path, name: &str, port: u16, config: &str, args: &[&str]) -> Server {
        let file = dir.join(format!("{name}.conf"));
        let common = format!("port {port}\nbind 127.0.0.1\ndir {}\nsave \"\"\n", dir.display());
        std::fs::write(&file, format!("{common}{config}\n")).unwrap();
        let program = Programs::find().unwrap().redis;
        let mut command = Command::new(program);
        command.arg(&file).args(args).stdout(std::process::Stdio::null()).kill_on_drop(true);
        let child = command.spawn().unwrap();
        let server = Server { port, child };
        until(&format!("{name} answers"), SOON, async || server.ask(&["PING"]).await)
            .await
            .unwrap();
        server
    }

    async fn ask(&self, words: &[&str]) -> Option<redis::Value> {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).ok()?;
        let mut connection = client.get_multiplexed_async_connection().await.ok()?;
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| {
            command.arg(*word);
        });
        command.query_async(&mut connection).await.ok()
    }

    async fn is_primary(&self) -> Option<()> {
        let role = format!("{:?}", self.ask(&["ROLE"]).await?);
        role.contains("master").then_some(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fleet_follows_the_primary_when_the_sentinel_names_another() {
    let dir = tempfile::tempdir().unwrap();
    let mut primary = Server::start(dir.path(), "primary", free_port(), "", &[]).await;
    let replica_of = format!("replicaof 127.0.0.1 {}\nrepl-diskless-sync-delay 0", primary.port);
    let replica = Server::start(dir.path(), "replica", free_port(), &replica_of, &[]).await;
    until("the replica is in step", SOON, async || {
        let role = format!("{:?}", replica.ask(&["ROLE"]).await?);
        role.contains("connected").then_some(())
    })
    .await
    .unwrap();
    let watch = format!(
        "sentinel monitor main 127.0.0.1 {} 1\nsentinel down-after-milliseconds main 700\n\
         sentinel failover-timeout main 3000",
        primary.port
    );
    let sentinel =
        Server::start(dir.path(), "sentinel", free_port(), &watch, &["--sentinel"]).await;
    until("the sentinel knows the replica", SOON, async || {
        let known = format!("{:?}", sentinel.ask(&["SENTINEL", "replicas", "main"]).await?);
        known.contains(&replica.port.to_string()).then_some(())
    })
    .await
    .unwrap();

    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port);
    let fleet = fleet().workers(2).env("TOOLFLEET_REDIS__URL", url).start().await.unwrap();
    let http = fleet.http(0).unwrap();
    ok(&http.call("nap", json!({"ms": 1})).await.unwrap());
    // One write runs through the failover, others are handed in meanwhile.
    let running = fleet.ledger("running");
    let call = {
        let (http, input) = (http.clone(), nap(8_000, &running));
        tokio::spawn(async move { http.call_as("nap-write", "failover", "long", input).await })
    };
    running.started(1, SOON).await.unwrap();
    primary.child.kill().await.unwrap();
    let more: Vec<_> = (0..6)
        .map(|number| {
            let (http, input) = (http.clone(), nap(10, &fleet.ledger(&format!("more-{number}"))));
            let tool = if number % 2 == 0 { "nap" } else { "nap-write" };
            tokio::spawn(async move {
                http.call_as(tool, "failover", &format!("more-{number}"), input).await
            })
        })
        .collect();
    until("the replica is the primary", SOON, async || replica.is_primary().await).await.unwrap();
    for (number, call) in more.into_iter().enumerate() {
        ok(&call.await.unwrap().unwrap());
        assert_eq!(fleet.ledger(&format!("more-{number}")).starts().len(), 1);
    }
    // Its lease could not be renewed while nobody was the primary: started once, whatever came of it.
    let answer = call.await.unwrap().unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
    let is_known = answer.body["ok"] == true || answer.body["code"] == "outcome_unknown";
    assert!(is_known, "{}", answer.text);
    assert_eq!(running.starts().len(), 1, "{:?}", running.lines());
    let keys = format!("{:?}", replica.ask(&["KEYS", "tf.v1:*"]).await.unwrap());
    assert!(keys.contains("tf.v1:"), "the new primary is the one in use: {keys}");
}
