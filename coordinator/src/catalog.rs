//! The catalogue at the edge: a watch on the bucket of tools feeds it, requests read a snapshot.

use crate::core::catalog::{Catalog, Offered, Why, Withheld};
use crate::measure::Measures;
use async_nats::jetstream::kv::Operation;
use futures::StreamExt as _;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use toolfleet_io::broker::{Broker, Error};
use toolfleet_io::clock::FleetClock;
use toolfleet_io::described::read_lock;
use toolfleet_proto::lock::Lock;

/// Tools on offer, by name, and what is not offered.
pub type Offers = Arc<Offered>;

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
    measures: Measures,
}

/// A lock file that is followed: what is in it holds within a second.
pub struct LockFile {
    path: PathBuf,
    seen: Option<Stamp>,
    lock: Lock,
}

/// Size and time of change of a file.
type Stamp = (u64, Option<SystemTime>);

impl LockFile {
    /// Reads it.
    ///
    /// # Errors
    /// That it cannot be read, or what in it does not read.
    pub fn open(path: PathBuf) -> Result<LockFile, String> {
        let lock = read_lock(&path)?;
        Ok(LockFile { seen: stamp(&path), path, lock })
    }

    /// What it has now, where that changed. A file that does not read any more changes nothing.
    fn changed(&mut self) -> Option<Lock> {
        let now = stamp(&self.path);
        if now == self.seen {
            return None;
        }
        self.seen = now;
        match read_lock(&self.path) {
            Ok(lock) => {
                tracing::info!(path = %self.path.display(), tools = lock.count(), "the lock file is read again");
                Some(lock)
            }
            Err(error) => {
                tracing::error!(error, "the lock file does not read; what it had before holds on");
                None
            }
        }
    }
}

fn stamp(path: &std::path::Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.len(), metadata.modified().ok()))
}

/// Logs that a tool is not offered, once.
fn tell(withheld: &Withheld) {
    let Withheld { name, pool, hash, why } = withheld;
    match why {
        Why::AnotherHash { pool: offered, hash: other } => tracing::warn!(
            tool = name,
            pool,
            hash,
            offered,
            other,
            "not offered: another pool had the name first, with another version"
        ),
        Why::Unpinned { pinned } => {
            tracing::warn!(tool = name, pool, hash, ?pinned, "not offered: not in the lock file");
        }
    }
}

impl Tools {
    /// Opens the watch and follows it for ever, and the lock file where there is one.
    pub fn start(
        broker: Broker,
        clock: FleetClock,
        lock_file: Option<LockFile>,
        measures: Measures,
    ) -> Tools {
        let (is_loaded, loaded) = watch::channel(false);
        let (catalog, offers) = (Arc::default(), Arc::default());
        let tools = Tools { catalog, offers, clock, loaded, measures };
        if let Some(file) = lock_file {
            tools.catalog().set_lock(file.lock.clone());
            tokio::spawn(tools.clone().follow_lock(file));
        }
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

    /// Live workers of a pool that have a tool.
    pub fn live_workers(&self, pool: &str, tool: &str) -> Vec<String> {
        self.catalog().live_workers(pool, tool, self.clock.now_ms())
    }

    /// Pools that announce a tool.
    pub fn pools_of(&self, tool: &str) -> Vec<String> {
        self.catalog().pools_of(tool)
    }

    /// Every entry with its versions and workers, and why one is not offered.
    pub fn report(&self) -> Value {
        self.catalog().report(self.clock.now_ms())
    }

    fn refresh(&self) {
        let offers = Arc::new(self.catalog().offered(self.clock.now_ms()));
        for reason in Why::ALL {
            let count = offers.withheld.iter().filter(|one| one.why.as_str() == reason).count();
            self.measures.withheld(reason, count as u64);
        }
        let before = std::mem::replace(
            &mut *self.offers.write().unwrap_or_else(PoisonError::into_inner),
            Arc::clone(&offers),
        );
        let new = offers.withheld.iter().filter(|one| !before.withheld.contains(one));
        new.for_each(tell);
    }

    async fn follow_lock(self, mut file: LockFile) {
        loop {
            tokio::time::sleep(REFRESH).await;
            if let Some(lock) = file.changed() {
                self.catalog().set_lock(lock);
                self.refresh();
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_file_is_followed_and_a_faulty_one_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("toolfleet.lock");
        assert!(LockFile::open(path.clone()).is_err());
        std::fs::write(&path, Lock::default().to_text()).unwrap();
        let mut file = LockFile::open(path.clone()).unwrap();
        assert_eq!(file.changed(), None);
        let lock = Lock::of([("find", "a".repeat(64).as_str())]);
        std::fs::write(&path, lock.to_text()).unwrap();
        assert_eq!(file.changed(), Some(lock));
        std::fs::write(&path, "version = 7").unwrap();
        assert_eq!(file.changed(), None);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.changed(), None);
    }
}
