//! The worker's process: builds the edge, announces, pulls, drains (DESIGN 4.2, 10).

use crate::announce::Announcer;
use crate::cancel;
use crate::claim::Claims;
use crate::drive;
use crate::edge::Edge;
use crate::lease::{Keeper, Note, notes};
use crate::measure::Measures;
use crate::registry::{Registry, Shared};
use crate::runner::threads::Threads;
use crate::running::Running;
use crate::slot::{Puller, Slots};
use crate::stop::StopReason;
use crate::supply::{self, Supply};
use crate::watch::Watched;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolfleet_io::broker::{self, Broker};
use toolfleet_io::clock::FleetClock;
use toolfleet_io::config::Checked;
use toolfleet_io::health::{self, Health};
use toolfleet_io::lease_store::{self, LeaseStore};
use toolfleet_io::topology;
use toolfleet_proto::topology::Prefix;

/// How often the store's clock and its health are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// How soon a silent store is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// How long the calls in hand may take to settle after the drain has stopped their tools.
const SETTLE: Duration = Duration::from_secs(3);

/// Why a worker cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The broker.
    #[error(transparent)]
    Broker(#[from] broker::Error),
    /// The lease store.
    #[error(transparent)]
    Store(#[from] lease_store::Error),
    /// The topology.
    #[error(transparent)]
    Topology(#[from] topology::Error),
    /// The prefix.
    #[error("fleet.prefix: {0}")]
    Prefix(String),
    /// The address of probes and metrics.
    #[error("{0}")]
    Address(String),
    /// The thread that keeps the leases.
    #[error("the lease thread could not start: {0}")]
    Thread(#[from] std::io::Error),
}

/// What a worker is built from.
pub struct Service {
    /// Configuration, checked.
    pub checked: Checked,
    /// Tools, checked.
    pub registry: Arc<Registry>,
    /// Where tools run: not the runtime of the edge.
    pub tools: tokio::runtime::Handle,
    /// Probes.
    pub health: Health,
    /// Where the probes answer.
    pub admin: Option<SocketAddr>,
    /// Written by rename once this worker's tools can be called.
    pub ready_file: Option<PathBuf>,
    /// A folder that is followed while the worker runs.
    pub watched: Option<Watched>,
}

/// `<host>-<pid>-<random>`: new with every process, so that no claim survives a restart.
pub fn worker_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let random = uuid::Uuid::new_v4().simple().to_string();
    let host: String =
        host.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(40).collect();
    format!("{host}-{}-{}", std::process::id(), &random[..6])
}

impl Service {
    /// Runs until `stop` fires, then drains. Call it on the edge's own runtime.
    ///
    /// # Errors
    /// Where a start is not possible: nothing was pulled then.
    pub async fn run(self, worker: String, stop: CancellationToken) -> Result<(), Error> {
        let prefix = Prefix::parse(&self.checked.config.fleet.prefix).map_err(Error::Prefix)?;
        let (limits, config) = (self.checked.limits, &self.checked.config);
        let (pool, mode) = (config.worker.pool.clone(), config.fleet.topology);
        let clock = FleetClock::new();
        let broker =
            Broker::connect(&config.nats, prefix.clone(), &format!("toolfleet-worker {worker}"))
                .await?;
        let store = LeaseStore::connect(&config.redis, prefix, &limits, clock.clone()).await?;
        ensure_topology(&broker, &self.checked, &pool).await?;
        let slots = Slots::new(match config.worker.slots {
            0 => self.registry.slots(),
            slots => slots,
        });
        let keeper = Keeper::new(&limits);
        let (note_sender, note_queue) = notes();
        let measures = Measures::new(&pool);
        start_lease_thread(keeper.clone(), &self.checked, note_sender, measures.clone())?;
        let running = Running::default();
        let registry = Shared::new(Arc::clone(&self.registry));
        cancel::listen(&broker, &worker, running.clone()).await?;
        let (is_store_silent, store_watch) = watch::channel(false);
        let threads = Threads::new(self.tools.clone());
        let edge = Arc::new(Edge {
            claims: Claims::start(store.clone(), worker.clone()),
            broker: broker.clone(),
            store,
            keeper,
            running,
            registry: registry.clone(),
            tools: self.tools.clone(),
            threads: threads.clone(),
            limits,
            pool: pool.clone(),
            worker: worker.clone(),
            clock: clock.clone(),
            draining: CancellationToken::new(),
            is_store_silent,
            secrets_dir: config.worker.secrets_dir.clone(),
            measures: measures.clone(),
        });
        measures.observe(slots.clone(), self.health.clone(), edge.draining.clone());
        measures.observe_threads(threads);
        tokio::spawn(take_notes(Arc::clone(&edge), note_queue));
        tokio::spawn(look_after(Arc::clone(&edge), self.health.clone()));
        let announcer =
            Announcer::open(&broker, &pool, &worker, registry.clone(), slots.clone(), clock)
                .await?;
        let supply = Supply::default();
        let look = supply::look_after(Arc::clone(&edge), supply.clone(), mode, self.health.clone());
        tokio::spawn(look);
        let puller = Puller::new(broker, &pool, slots.clone(), store_watch, supply);
        let deliveries = TaskTracker::new();
        let pulling =
            tokio::spawn(pull(Arc::clone(&edge), puller, deliveries.clone(), self.health.clone()));
        announcer.announce_patiently().await?;
        let speaking = tokio::spawn(announcer.clone().keep());
        if let Some(watched) = &self.watched {
            tokio::spawn(watched.clone().follow(registry, announcer.clone(), measures));
        }
        self.is_ready(&worker);
        stop.cancelled().await;
        self.health.draining();
        speaking.abort();
        drain(&edge, &announcer, &deliveries, pulling).await;
        Ok(())
    }

    fn is_ready(&self, worker: &str) {
        self.health.started();
        self.health.set_ready(true);
        let tools: Vec<&str> =
            self.registry.tools().map(|tool| tool.descriptor.name.as_str()).collect();
        tracing::info!(worker, tools = tools.len(), "worker is ready");
        if let Some(path) = &self.ready_file {
            let mut text =
                serde_json::json!({"pid": std::process::id(), "worker": worker, "tools": tools});
            if let Some(address) = self.admin {
                text["admin"] = format!("http://{address}").into();
            }
            if let Err(error) = write_by_rename(path, &text.to_string()) {
                tracing::error!(path = %path.display(), %error, "the ready file was not written");
            }
        }
    }
}

/// Writes a file so that a reader sees it whole or not at all.
fn write_by_rename(path: &std::path::Path, text: &str) -> std::io::Result<()> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let file =
        tempfile::NamedTempFile::new_in(folder.unwrap_or_else(|| std::path::Path::new(".")))?;
    std::fs::write(file.path(), text)?;
    file.persist(path).map(|_| ()).map_err(|error| error.error)
}

/// Streams are made by coordinators; a worker that comes first waits for them, then makes its own
/// consumer where it may.
async fn ensure_topology(broker: &Broker, checked: &Checked, pool: &str) -> Result<(), Error> {
    let mode = checked.config.fleet.topology;
    let mut waited = 0;
    loop {
        let done = topology::ensure_consumer(broker, pool, &checked.limits, mode).await;
        match done {
            Err(topology::Error::Broker { what, reason }) if waited < 120 => {
                if waited % 20 == 0 {
                    tracing::warn!(
                        what,
                        reason,
                        "the topology is not there yet; is a coordinator running?"
                    );
                }
                waited += 1;
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
            done => return Ok(done?),
        }
    }
}

/// Renewals run on a thread, a runtime and a connection of their own.
fn start_lease_thread(
    keeper: Keeper,
    checked: &Checked,
    notes: mpsc::Sender<Note>,
    measures: Measures,
) -> Result<(), Error> {
    let (config, limits) = (checked.config.clone(), checked.limits);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("leases".into()).spawn(move || {
        runtime.block_on(async move {
            let Ok(prefix) = Prefix::parse(&config.fleet.prefix) else { return };
            // The edge's connection was checked a moment ago; this one is for the same server.
            loop {
                match LeaseStore::connect(&config.redis, prefix.clone(), &limits, FleetClock::new())
                    .await
                {
                    Ok(store) => return keeper.keep(store, limits, notes, measures).await,
                    Err(error) => tracing::error!(%error, "leases cannot be renewed"),
                }
            }
        });
    })?;
    Ok(())
}

/// What the keeper tells: in-progress acks for renewed leases, cancels whose signal was lost.
async fn take_notes(edge: Arc<Edge>, mut notes: mpsc::Receiver<Note>) {
    while let Some(note) = notes.recv().await {
        match note {
            Note::Renewed(names) => edge.running.in_progress(&names).await,
            Note::Marked(name) => match edge.store.read_mark(&name).await {
                Ok(Some(mark)) => {
                    edge.running.cancel(&name, &mark.reason, mark.at_ms);
                }
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "the mark was not read"),
            },
        }
    }
}

/// The store's clock and health, the heartbeat of this runtime.
async fn look_after(edge: Arc<Edge>, health: Health) {
    loop {
        health.beat(health::now_ms());
        let probe = match edge.store.measure_clock().await {
            Ok(()) => edge.store.probe(&edge.worker).await,
            Err(error) => Err(error),
        };
        let is_silent = probe.is_err();
        let detail = probe.err().map_or_else(String::new, |error| error.to_string());
        health.set_check("redis", !is_silent, detail);
        health.set_check("nats", edge.broker.is_connected(), String::new());
        edge.is_store_silent
            .send_if_modified(|silent| std::mem::replace(silent, is_silent) != is_silent);
        let mut silent = edge.is_store_silent.subscribe();
        let pause = if is_silent { ASK_AGAIN } else { LOOK };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            // A claim met silence: ask soon, so that pulling goes on as soon as the store is back.
            () = async { drop(silent.wait_for(|silent| *silent).await) }, if !is_silent => {
                tokio::time::sleep(ASK_AGAIN).await;
            }
        }
    }
}

async fn pull(edge: Arc<Edge>, first: Puller, deliveries: TaskTracker, health: Health) {
    let (slots, supply) = (first.slots(), first.supply());
    let mut puller = Some(first);
    loop {
        let next = puller.take().unwrap_or_else(|| {
            Puller::new(
                edge.broker.clone(),
                &edge.pool,
                slots.clone(),
                edge.is_store_silent.subscribe(),
                supply.clone(),
            )
        });
        let deliver = |message, slot| {
            deliveries.spawn(drive::drive(Arc::clone(&edge), message, slot));
        };
        match next.run(edge.draining.clone(), || health.beat(health::now_ms()), deliver).await {
            Ok(()) => return,
            Err(error) => tracing::warn!(%error, "pulling again"),
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Stops pulling, hands back what has not started, lets what runs finish within the drain time while
/// its leases are renewed, then stops the rest.
async fn drain(
    edge: &Arc<Edge>,
    announcer: &Announcer,
    deliveries: &TaskTracker,
    pulling: tokio::task::JoinHandle<()>,
) {
    let since = Instant::now();
    tracing::info!(calls = edge.running.count(), "draining");
    edge.draining.cancel();
    announcer.leave().await;
    let _ = pulling.await;
    deliveries.close();
    let time = Duration::from_millis(edge.limits.drain_ms);
    if tokio::time::timeout(time, deliveries.wait()).await.is_err() {
        let cut = edge.running.stop_all(&StopReason::DrainOver);
        edge.measures.drain_forced(cut);
        tracing::warn!(calls = cut, "the drain time is over");
        let grace = Duration::from_millis(edge.limits.kill_grace_ms) + SETTLE;
        let _ = tokio::time::timeout(grace, deliveries.wait()).await;
    }
    let _ = tokio::time::timeout(Duration::from_secs(1), edge.broker.client().flush()).await;
    edge.measures.drained(since.elapsed());
    tracing::info!("drained");
}
