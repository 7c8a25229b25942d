//! A fleet of one test.

use crate::builder::{Builder, FAIL_POINTS, coordinator_http};
use crate::fail_points::FailPoints;
use crate::http::Http;
use crate::ledger::Ledger;
use crate::link::Link;
use crate::member::{Member, Recipe};
use crate::streams::subjects;
use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use tempfile::TempDir;
use tokio::sync::SemaphorePermit;
use toolfleet_io::broker::Broker;
use toolfleet_io::child::{NatsServer, RedisServer, log_tail};
use toolfleet_io::ending;
use toolfleet_proto::name::CallName;
use toolfleet_proto::wire::CallResult;

/// Servers, coordinators and workers of one test. All of it is killed when dropped; where the test
/// fails, the ends of all logs are shown first.
pub struct Fleet {
    /// `toolfleet serve`.
    pub coordinators: Vec<Member>,
    /// The workers.
    pub workers: Vec<Member>,
    /// The broker.
    pub nats: NatsServer,
    /// The other servers of its cluster, where it is one.
    pub nodes: Vec<NatsServer>,
    /// The lease store.
    pub redis: RedisServer,
    /// The coordinators' links, where the fleet has some.
    pub coordinator_links: Vec<Links>,
    /// The workers' links, where the fleet has some.
    pub worker_links: Vec<Links>,
    broker: Broker,
    logs: Vec<(String, PathBuf)>,
    folder: TempDir,
    _turn: SemaphorePermit<'static>,
}

/// The links of one process.
pub struct Links {
    /// To the broker.
    pub nats: Link,
    /// To the lease store.
    pub redis: Link,
}

/// What a fleet has before its own processes run.
pub(crate) struct Parts {
    pub(crate) folder: TempDir,
    pub(crate) nats: NatsServer,
    pub(crate) nodes: Vec<NatsServer>,
    pub(crate) redis: RedisServer,
    pub(crate) broker: Broker,
    pub(crate) turn: SemaphorePermit<'static>,
}

impl Fleet {
    /// A fleet to be made.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn of(parts: Parts) -> Fleet {
        let mut logs = vec![
            ("nats-server".to_owned(), parts.nats.log().to_path_buf()),
            ("redis-server".to_owned(), parts.redis.log().to_path_buf()),
        ];
        logs.extend(parts.nodes.iter().enumerate().map(|(number, node)| {
            (format!("nats-server {}", number + 1), node.log().to_path_buf())
        }));
        Fleet {
            coordinators: Vec::new(),
            workers: Vec::new(),
            nats: parts.nats,
            nodes: parts.nodes,
            coordinator_links: Vec::new(),
            worker_links: Vec::new(),
            redis: parts.redis,
            broker: parts.broker,
            logs,
            folder: parts.folder,
            _turn: parts.turn,
        }
    }

    /// Starts processes side by side and takes each in.
    pub(crate) async fn start(
        &mut self,
        recipes: Vec<Recipe>,
        add: impl Fn(&mut Fleet, Member),
    ) -> anyhow::Result<()> {
        let started = futures::future::try_join_all(recipes.into_iter().map(Member::start)).await?;
        for member in started {
            add(self, member);
        }
        Ok(())
    }

    pub(crate) fn add_coordinator(&mut self, member: Member) {
        let name = format!("coordinator-{}", self.coordinators.len());
        self.logs.push((name, member.log().to_path_buf()));
        self.coordinators.push(member);
    }

    pub(crate) fn add_worker(&mut self, member: Member) {
        let name = format!("worker-{}", self.workers.len());
        self.logs.push((name, member.log().to_path_buf()));
        self.workers.push(member);
    }

    /// Starts workers like the first one, side by side, until there are so many; or ends the last ones in
    /// order, side by side. Says how the ones that ended did.
    pub async fn scale_workers(&mut self, count: usize) -> anyhow::Result<Vec<ExitStatus>> {
        let now = self.workers.len();
        if count > now {
            // A name of its own for each that ever was: logs are kept.
            let first = self.logs.len();
            let recipe = |number| self.workers[0].recipe(&format!("worker-{number}"));
            let recipes = (first..first + count - now).map(recipe).collect();
            self.start(recipes, Fleet::add_worker).await?;
            return Ok(Vec::new());
        }
        let mut leaving = self.workers.split_off(count);
        futures::future::try_join_all(leaving.iter_mut().map(Member::terminate)).await
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// What may befall its processes.
    pub fn fail_points(&self) -> FailPoints {
        FailPoints::at(&self.dir().join(FAIL_POINTS))
    }

    /// A ledger for the tools of this fleet.
    pub fn ledger(&self, name: &str) -> Ledger {
        Ledger::at(self.dir().join(format!("{name}.ledger")))
    }

    /// A client of a coordinator as it runs now: a restart may change its port.
    pub fn http(&self, coordinator: usize) -> anyhow::Result<Http> {
        coordinator_http(&self.coordinators[coordinator])
    }

    /// A client of the probes and metrics of a coordinator.
    pub fn admin(&self, coordinator: usize) -> anyhow::Result<Http> {
        let ready = self.coordinators[coordinator].ready();
        Http::new(ready["admin"].as_str().context("the ready file has no admin")?)
    }

    /// A client of the probes and metrics of a worker that has an admin address.
    pub fn worker_admin(&self, worker: usize) -> anyhow::Result<Http> {
        let ready = self.workers[worker].ready();
        Http::new(ready["admin"].as_str().context("the ready file has no admin")?)
    }

    /// The test's own connection to the broker.
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// The position of the worker with this process id.
    pub fn worker_of(&self, pid: u32) -> anyhow::Result<usize> {
        let found = self.workers.iter().position(|worker| worker.pid() == pid);
        found.with_context(|| format!("no worker has the process id {pid}"))
    }

    /// The stored result of a call.
    pub async fn result(&self, name: &CallName) -> anyhow::Result<CallResult> {
        let result = ending::read_result(&self.broker, name).await?;
        result.with_context(|| format!("{name} has no stored result"))
    }

    /// How many results of a call are stored.
    pub async fn results_of(&self, name: &CallName) -> anyhow::Result<usize> {
        let prefix = self.broker.prefix();
        let subject = prefix.result(name);
        let found = subjects(&self.broker, &prefix.results_stream(), &subject).await?;
        Ok(found.get(&subject).copied().unwrap_or_default())
    }

    /// A connection to the lease store.
    pub async fn redis_connection(&self) -> anyhow::Result<redis::aio::MultiplexedConnection> {
        let client = redis::Client::open(self.redis.url())?;
        // Longer than any harm that a test does to it.
        let patience = Some(std::time::Duration::from_secs(30));
        let config = redis::AsyncConnectionConfig::new()
            .set_response_timeout(patience)
            .set_connection_timeout(patience);
        Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (name, path) in &self.logs {
                eprintln!("---- the end of {name}:\n{}", log_tail(path));
            }
        }
    }
}
