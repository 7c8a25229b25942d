//! The coordinator as a part: built from a configuration, stateless beside its connections.

use crate::catalog::{LockFile, Tools};
use crate::deliver::Deliver;
use crate::executions::Executions;
use crate::measure::Measures;
use crate::room::Room;
use std::sync::Arc;
use std::time::Duration;
use toolfleet_io::broker::{self, Broker};
use toolfleet_io::clock::FleetClock;
use toolfleet_io::config::Checked;
use toolfleet_io::health::{self, Health};
use toolfleet_io::lease_store::{self, LeaseStore};
use toolfleet_io::topology;
use toolfleet_proto::limit::Limits;
use toolfleet_proto::topology::Prefix;

/// How often the store's clock is measured.
const LOOK: Duration = Duration::from_secs(5);

/// Why a coordinator cannot run.
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
    /// The lock file.
    #[error("fleet.lock_file: {0}")]
    Lock(String),
}

/// A coordinator. Clones share everything; any replica answers for any call.
#[derive(Clone)]
pub struct Coordinator(Arc<Parts>);

/// What a coordinator consists of.
pub struct Parts {
    /// The broker.
    pub(crate) broker: Broker,
    /// The lease store.
    pub(crate) store: LeaseStore,
    /// The fleet's clock.
    pub(crate) clock: FleetClock,
    /// Clocks.
    pub(crate) limits: Limits,
    /// Tools on offer.
    pub(crate) catalog: Tools,
    /// Results.
    pub(crate) deliver: Deliver,
    /// Records of executions.
    pub(crate) executions: Executions,
    /// Room for what will end.
    pub(crate) room: Room,
    /// Counters.
    pub(crate) measures: Measures,
}

impl std::ops::Deref for Coordinator {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl Coordinator {
    /// Connects, makes or compares the topology, loads the catalogue.
    ///
    /// # Errors
    /// Where broker or store are not reachable or not fit, or the topology is not as it must be.
    pub async fn connect(checked: &Checked, health: &Health) -> Result<Coordinator, Error> {
        let config = &checked.config;
        let prefix = Prefix::parse(&config.fleet.prefix).map_err(Error::Prefix)?;
        let lock_file = config.fleet.lock_file.clone().map(LockFile::open).transpose();
        let lock_file = lock_file.map_err(Error::Lock)?;
        let clock = FleetClock::new();
        let broker = Broker::connect(&config.nats, prefix.clone(), "toolfleet-coordinator").await?;
        let store =
            LeaseStore::connect(&config.redis, prefix, &checked.limits, clock.clone()).await?;
        topology::ensure(&broker, &checked.limits, config.fleet.topology).await?;
        let measures = Measures::new();
        let catalog = Tools::start(broker.clone(), clock.clone(), lock_file, measures.clone());
        // A bucket that cannot be read yet is no reason not to serve.
        let _ = tokio::time::timeout(Duration::from_secs(5), catalog.loaded()).await;
        let coordinator = Coordinator(Arc::new(Parts {
            deliver: Deliver::new(broker.clone()),
            executions: Executions::new(broker.clone()),
            broker,
            store,
            clock,
            limits: checked.limits,
            catalog,
            room: Room::default(),
            measures,
        }));
        tokio::spawn(coordinator.clone().watch_room());
        tokio::spawn(coordinator.clone().look_after(health.clone()));
        tokio::spawn(coordinator.clone().audit());
        if let Err(error) = coordinator.listen_to_advisories().await {
            tracing::warn!(%error, "no advisory of the broker is heard");
        }
        health.started();
        health.set_ready(true);
        Ok(coordinator)
    }

    /// The heartbeat of this runtime and the store's clock. A broker or store that blips makes no
    /// replica unready: all would go at once, and submissions answer "try again" meanwhile.
    async fn look_after(self, health: Health) {
        loop {
            health.beat(health::now_ms());
            if let Err(error) = self.store.measure_clock().await {
                tracing::warn!(%error, "the store's clock is not measured");
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}
