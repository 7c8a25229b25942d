//! The catalogue at the edge: a watch on the bucket of tools feeds it, requests read a snapshot.

use crate::core::catalog::{Catalog, Offer};
use async_nats::jetstream::kv::Operation;
use futures::StreamExt as _;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::watch;
use toolfleet_io::broker::{Broker, Error};
use toolfleet_io::clock::FleetClock;

/// Tools on offer, by name.
pub type Offers = Arc<BTreeMap<String, Offer>>;

/// How often the snapshot is made anew without a change: workers fall silent without a word.
const REFRESH: Duration = Duration::from_secs(1);
/// Pause before a watch is opened again.
const AGAIN: Duration = Duration::from_millis(500);

/// The catalogue. Clones share it.
#[derive(Clone)]
pub struct Tools {
    catalog: Arc<Mutex<Catalog>>,
    offers: Arc<RwLock<Offers>>,
    clock: FleetClock,
    loaded: watch::Receiver<bool>,
}

impl Tools {
    /// Opens the watch and follows it for ever.
    pub fn start(broker: Broker, clock: FleetClock) -> Tools {
        let (is_loaded, loaded) = watch::channel(false);
        let tools = Tools { catalog: Arc::default(), offers: Arc::default(), clock, loaded };
        let follower = tools.clone();
        tokio::spawn(async move {
            loop {
                if let Err(error) = follower.follow(&broker, &is_loaded).await {
                    tracing::warn!(%error, "the catalogue is watched again");
                }
                tokio::time::sleep(AGAIN).await;
            }
        });
        tools
    }

    fn catalog(&self) -> MutexGuard<'_, Catalog> {
        self.catalog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until what the bucket holds has been read once. Cancel safe.
    pub async fn loaded(&self) {
        let mut loaded = self.loaded.clone();
        let _ = loaded.wait_for(|loaded| *loaded).await;
    }

    /// Tools on offer, at most a second old.
    pub fn offers(&self) -> Offers {
        Arc::clone(&self.offers.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a live worker has this version of a tool.
    pub fn has_live_worker(&self, tool: &str, hash: &str) -> bool {
        self.catalog().has_live_worker(tool, hash, self.clock.now_ms())
    }

    fn refresh(&self) {
        let offers = Arc::new(self.catalog().offers(self.clock.now_ms()));
        *self.offers.write().unwrap_or_else(PoisonError::into_inner) = offers;
    }

    async fn follow(&self, broker: &Broker, is_loaded: &watch::Sender<bool>) -> Result<(), Error> {
        let silent = |error: &dyn std::fmt::Display| Error::Silent(error.to_string());
        let bucket = broker.prefix().tools_bucket();
        let store =
            broker.jetstream().get_key_value(&bucket).await.map_err(|error| silent(&error))?;
        let is_empty = store.status().await.map_err(|error| silent(&error))?.values() == 0;
        let mut watch = store.watch_with_history(">").await.map_err(|error| silent(&error))?;
        let mut reconnects = broker.reconnects();
        reconnects.mark_unchanged();
        if is_empty {
            is_loaded.send_replace(true);
        }
        let mut tick = tokio::time::interval(REFRESH);
        loop {
            tokio::select! {
                biased;
                entry = watch.next() => {
                    let entry = entry.ok_or_else(|| silent(&"the watch ended"))?;
                    let entry = entry.map_err(|error| silent(&error))?;
                    self.take_in(&entry);
                    if entry.seen_current {
                        is_loaded.send_replace(true);
                    }
                    // While the whole is still being read, half of it is not shown.
                    if *is_loaded.borrow() {
                        self.refresh();
                    }
                }
                changed = reconnects.changed() => {
                    // What was written meanwhile is read again from the beginning.
                    return changed.map_err(|error| silent(&error));
                }
                _ = tick.tick() => self.refresh(),
            }
        }
    }

    fn take_in(&self, entry: &async_nats::jetstream::kv::Entry) {
        let value = (entry.operation == Operation::Put).then_some(entry.value.as_ref());
        if let Err(error) = self.catalog().apply(&entry.key, value) {
            tracing::warn!(key = entry.key, error, "an entry of the catalogue does not read");
        }
    }
}
