//! The servers of a fleet: a nats-server and a Redis of one test alone.

use crate::wait::until;
use anyhow::anyhow;
use async_nats::jetstream::stream::{self, Info};
use futures::TryStreamExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toolfleet_io::broker::Broker;
use toolfleet_io::child::{
    NatsOptions, NatsServer, RedisOptions, RedisServer, find_nats_server, find_redis_server,
};
use toolfleet_io::config::{Dev, Nats, TopologyMode};
use toolfleet_io::topology;
use toolfleet_proto::limit::Limits;
use toolfleet_proto::topology::Prefix;

const NATS_KEY: &str = "TOOLFLEET_DEV__NATS_SERVER";
const REDIS_KEY: &str = "TOOLFLEET_DEV__REDIS_SERVER";

/// How long a cluster may take to elect its leaders and to copy what it holds.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(60);

/// How often the servers of a cluster are started before it is given up.
const CLUSTER_TRIES: u32 = 5;

/// The executables of the servers.
#[derive(Clone, Debug)]
pub struct Programs {
    /// A nats-server.
    pub nats: PathBuf,
    /// A redis-server or valkey-server.
    pub redis: PathBuf,
}

impl Programs {
    /// Finds them as `toolfleet dev` does, from the root of the workspace.
    pub fn find() -> anyhow::Result<Programs> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let named = |key| std::env::var_os(key).map(PathBuf::from);
        let dev = Dev { nats_server: named(NATS_KEY), redis_server: named(REDIS_KEY) };
        Ok(Programs {
            nats: find_nats_server(&dev, &root)?.program,
            redis: find_redis_server(&dev, &root)?.program,
        })
    }

    /// The variables that name them to `toolfleet dev`.
    pub fn env(&self) -> Vec<(String, String)> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        vec![(NATS_KEY.into(), text(&self.nats)), (REDIS_KEY.into(), text(&self.redis))]
    }
}

/// Starts a cluster of three nats-servers in folders below `dir`, and a Redis.
pub async fn clustered(dir: &Path) -> anyhow::Result<(Vec<NatsServer>, RedisServer)> {
    let programs = Programs::find()?;
    let redis =
        RedisOptions { program: programs.redis.clone(), dir: dir.join("redis"), port: None };
    let redis = RedisServer::start(redis).await?;
    let mut tries = 0;
    loop {
        tries += 1;
        // A port that was free can be taken before its server has it.
        match nodes(&programs, &dir.join(format!("cluster-{tries}"))).await {
            Ok(nodes) => return Ok((nodes, redis)),
            Err(error) if tries >= CLUSTER_TRIES => return Err(error),
            Err(_) => {}
        }
    }
}

async fn nodes(programs: &Programs, dir: &Path) -> anyhow::Result<Vec<NatsServer>> {
    // Their ends of the routes must be known before they run; all are held until all are known.
    let listen = || std::net::TcpListener::bind(("127.0.0.1", 0));
    let held = [listen()?, listen()?, listen()?];
    let mut ports = Vec::new();
    for listener in &held {
        ports.push(listener.local_addr()?.port());
    }
    drop(held);
    let routes: Vec<String> = ports.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
    let routes = routes.join(", ");
    let start = |(number, port): (usize, &u16)| {
        let further = format!(
            "cluster {{\n  name: toolfleet-test\n  listen: \"127.0.0.1:{port}\"\n  routes: [{routes}]\n}}\n\
             lame_duck_duration: \"30s\"\nlame_duck_grace_period: \"1s\""
        );
        let options = NatsOptions::new(programs.nats.clone(), dir.join(format!("nats-{number}")));
        NatsServer::start(NatsOptions { further, ..options })
    };
    Ok(futures::future::try_join_all(ports.iter().enumerate().map(start)).await?)
}

/// Makes the topology with three replicas of everything, and waits until all of them are there.
pub async fn replicate(broker: &Broker) -> anyhow::Result<()> {
    let limits = Limits::default();
    until("the cluster has a leader and the topology", CLUSTER_TIMEOUT, async || {
        topology::ensure(broker, &limits, TopologyMode::Make).await.ok()
    })
    .await?;
    let jetstream = broker.jetstream();
    let streams: Vec<Info> = jetstream.streams().try_collect().await?;
    for stream in &streams {
        let config = stream::Config { num_replicas: 3, ..stream.config.clone() };
        until("the stream is updated", CLUSTER_TIMEOUT, async || {
            jetstream.update_stream(config.clone()).await.ok()
        })
        .await?;
    }
    until("every stream has three replicas", CLUSTER_TIMEOUT, async || {
        let streams: Vec<Info> = jetstream.streams().try_collect().await.ok()?;
        let is_whole = |stream: &Info| {
            stream.cluster.as_ref().is_some_and(|cluster| {
                cluster.leader.is_some()
                    && cluster.replicas.len() == 2
                    && cluster.replicas.iter().all(|replica| replica.current)
            })
        };
        streams.iter().all(is_whole).then_some(())
    })
    .await
}

/// Starts both servers in folders below `dir`, on ports of their own.
pub async fn servers(dir: &Path) -> anyhow::Result<(NatsServer, RedisServer)> {
    let programs = Programs::find()?;
    let nats = NatsOptions::new(programs.nats, dir.join("nats"));
    let redis = RedisOptions { program: programs.redis, dir: dir.join("redis"), port: None };
    let (nats, redis) = tokio::join!(NatsServer::start(nats), RedisServer::start(redis));
    Ok((nats?, redis?))
}

/// The prefix of every fleet of the testkit: the default one.
pub fn prefix() -> anyhow::Result<Prefix> {
    Prefix::parse("tf.v1").map_err(|fault| anyhow!(fault))
}

/// A connection of the test itself.
pub async fn broker_at(url: &str) -> anyhow::Result<Broker> {
    let config = Nats { url: url.to_owned(), ..Nats::default() };
    Ok(Broker::connect(&config, prefix()?, "testkit").await?)
}
