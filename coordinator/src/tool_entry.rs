//! Takes a tool's entry out of the bucket of tools, which keeps it while its pool is scaled to zero
//! (DESIGN 10).

use crate::service::Coordinator;
use async_nats::jetstream::kv::{Operation, UpdateErrorKind};
use std::time::Duration;
use toolfleet_io::broker::Error;
use toolfleet_proto::topology::Prefix;

/// How often an entry is tried against workers that write it.
const TRIES_MAX: u32 = 20;

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// The entry is gone. Live workers that have the tool announce it again when they start again.
    Gone {
        /// The pool.
        pool: String,
        /// Workers that live and have the tool.
        workers: Vec<String>,
    },
    /// No pool announces a tool of that name, or not this one.
    Unknown,
    /// Several pools do; one is to be named.
    Ambiguous(Vec<String>),
    /// Live workers have the tool.
    Alive {
        /// The pool.
        pool: String,
        /// Their names.
        workers: Vec<String>,
    },
}

impl Coordinator {
    /// Drops a tool of a pool; without `pool`, of the only pool that announces it. Refused while live
    /// workers have it, unless forced.
    ///
    /// # Errors
    /// Where the broker is silent.
    pub(crate) async fn drop_tool(
        &self,
        name: &str,
        pool: Option<&str>,
        is_forced: bool,
    ) -> Result<Dropped, Error> {
        let pools = self.catalog.pools_of(name);
        let pool = match (pool, pools.as_slice()) {
            (Some(pool), _) if pools.iter().any(|known| known == pool) => pool.to_owned(),
            (Some(_), _) | (None, []) => return Ok(Dropped::Unknown),
            (None, [only]) => only.clone(),
            (None, _) => return Ok(Dropped::Ambiguous(pools)),
        };
        let workers = self.catalog.live_workers(&pool, name);
        if !workers.is_empty() && !is_forced {
            return Ok(Dropped::Alive { pool, workers });
        }
        self.purge_entry(&Prefix::tool_key(&pool, name)).await?;
        tracing::warn!(
            tool = name,
            pool,
            live_workers = workers.len(),
            "a tool's entry is dropped"
        );
        Ok(Dropped::Gone { pool, workers })
    }

    /// Purges a key as it stands: an announcement in between is seen first.
    async fn purge_entry(&self, key: &str) -> Result<(), Error> {
        let silent = |error: &dyn std::fmt::Display| Error::Silent(error.to_string());
        let bucket = self.broker.prefix().tools_bucket();
        let store =
            self.broker.jetstream().get_key_value(&bucket).await.map_err(|error| silent(&error))?;
        for _ in 0..TRIES_MAX {
            let found = store.entry(key).await.map_err(|error| silent(&error))?;
            let is_there =
                |entry: &async_nats::jetstream::kv::Entry| entry.operation == Operation::Put;
            let Some(found) = found.filter(is_there) else { return Ok(()) };
            match store.purge_expect_revision(key, Some(found.revision)).await {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => {}
                Err(error) => return Err(silent(&error)),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err(Error::Silent(format!("the entry {key} changes all the time")))
    }
}
