//! The servers of a fleet: a nats-server and a Redis of one test alone.

use anyhow::anyhow;
use std::path::{Path, PathBuf};
use toolfleet_io::broker::Broker;
use toolfleet_io::child::{
    NatsOptions, NatsServer, RedisOptions, RedisServer, find_nats_server, find_redis_server,
};
use toolfleet_io::config::{Dev, Nats};
use toolfleet_proto::topology::Prefix;

const NATS_KEY: &str = "TOOLFLEET_DEV__NATS_SERVER";
const REDIS_KEY: &str = "TOOLFLEET_DEV__REDIS_SERVER";

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
