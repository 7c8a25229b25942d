//! Announces this worker and its tools in the bucket of tools (DESIGN 4, 10).

use crate::registry::Shared;
use crate::slot::Slots;
use async_nats::jetstream::kv::{Store, UpdateErrorKind};
use std::time::Duration;
use toolfleet_io::broker::{Broker, Error, is_under_way};
use toolfleet_io::clock::FleetClock;
use toolfleet_proto::catalog::{HEARTBEAT_MS, ToolEntry, Version, WorkerEntry};
use toolfleet_proto::topology::Prefix;

/// How long a start may try to announce its tools.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often one tool's entry is tried against other workers that write it.
const TRIES_MAX: u32 = 50;

/// Says what this worker has, at start and every few seconds.
#[derive(Clone)]
pub struct Announcer {
    store: Store,
    pool: String,
    worker: String,
    registry: Shared,
    slots: Slots,
    clock: FleetClock,
}

impl Announcer {
    /// Opens the bucket.
    ///
    /// # Errors
    /// Where it is missing or the broker is silent.
    pub async fn open(
        broker: &Broker,
        pool: &str,
        worker: &str,
        registry: Shared,
        slots: Slots,
        clock: FleetClock,
    ) -> Result<Announcer, Error> {
        let bucket = broker.prefix().tools_bucket();
        let store = broker
            .jetstream()
            .get_key_value(&bucket)
            .await
            .map_err(|error| Error::Refused(format!("bucket {bucket}: {error}")))?;
        let (pool, worker) = (pool.to_owned(), worker.to_owned());
        Ok(Announcer { store, pool, worker, registry, slots, clock })
    }

    /// Announces every tool and this worker: afterwards they can be called.
    ///
    /// # Errors
    /// Where an entry could not be written.
    pub async fn announce(&self) -> Result<(), Error> {
        for tool in self.registry.now().tools() {
            let version = Version {
                hash: tool.hash.clone(),
                descriptor: tool.descriptor.clone(),
                announced_at_ms: self.clock.now_ms(),
                announced_by: self.worker.clone(),
                last_announced_at_ms: 0,
            };
            self.announce_tool(version).await?;
        }
        self.beat().await
    }

    /// The same at the start, again and again for a while: a cluster that elects a leader is no reason
    /// to end.
    ///
    /// # Errors
    /// The last one, where the broker never took it.
    pub async fn announce_patiently(&self) -> Result<(), Error> {
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            match self.announce().await {
                Err(Error::Silent(reason)) if tokio::time::Instant::now() < until => {
                    tracing::warn!(reason, "the tools are not announced yet");
                }
                announced => return announced,
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    async fn announce_tool(&self, version: Version) -> Result<(), Error> {
        let key = Prefix::tool_key(&self.pool, &version.descriptor.name);
        let silent = |error: &dyn std::fmt::Display| Error::Silent(error.to_string());
        for _ in 0..TRIES_MAX {
            let found = self.store.entry(&key).await.map_err(|error| silent(&error))?;
            let (entry, revision) = match &found {
                Some(found) => (
                    serde_json::from_slice::<ToolEntry>(&found.value).unwrap_or_default(),
                    found.revision,
                ),
                None => (ToolEntry::default(), 0),
            };
            let Some(next) = entry.with(version.clone()) else { return Ok(()) };
            let value = serde_json::to_vec(&next).map_err(|error| silent(&error))?;
            match self.store.update(&key, value.into(), revision).await {
                Ok(_) => return Ok(()),
                // Another worker wrote it in between, or writes it now: read again.
                Err(error)
                    if error.kind() == UpdateErrorKind::WrongLastRevision
                        || is_under_way(&error) => {}
                Err(error) => return Err(silent(&error)),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(Error::Silent(format!("the entry of {} changes all the time", version.descriptor.name)))
    }

    /// One word of life.
    async fn beat(&self) -> Result<(), Error> {
        let entry = WorkerEntry {
            pool: self.pool.clone(),
            worker: self.worker.clone(),
            last_seen_ms: self.clock.now_ms(),
            tools: self
                .registry
                .now()
                .tools()
                .map(|tool| (tool.descriptor.name.clone(), tool.hash.clone()))
                .collect(),
            slots: self.slots.total(),
            slots_used: self.slots.used(),
            build: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let value =
            serde_json::to_vec(&entry).map_err(|error| Error::Refused(error.to_string()))?;
        let key = Prefix::worker_key(&self.pool, &self.worker);
        self.store
            .put(&key, value.into())
            .await
            .map_err(|error| Error::Silent(error.to_string()))?;
        Ok(())
    }

    /// Speaks until dropped. After a silence of the broker the tools are announced again too: a
    /// broker that lost its data has lost them.
    pub async fn keep(self) {
        let mut was_silent = false;
        loop {
            tokio::time::sleep(Duration::from_millis(HEARTBEAT_MS)).await;
            let spoken = if was_silent { self.announce().await } else { self.beat().await };
            was_silent = spoken.is_err();
            if let Err(error) = spoken {
                tracing::warn!(%error, "no word of life");
            }
        }
    }

    /// Takes tools off the list that no folder has any more. For one machine's development fleet: in a
    /// fleet an entry goes by an operator's hand.
    pub async fn drop_tools(&self, names: &[String]) {
        for name in names {
            if let Err(error) = self.store.purge(Prefix::tool_key(&self.pool, name)).await {
                tracing::warn!(tool = name, %error, "a tool that is gone is still listed");
            }
        }
    }

    /// Takes this worker out, so that nothing waits for it.
    pub async fn leave(&self) {
        let key = Prefix::worker_key(&self.pool, &self.worker);
        if let Err(error) = self.store.purge(&key).await {
            tracing::debug!(%error, "the worker's entry stays until it is old");
        }
    }
}
