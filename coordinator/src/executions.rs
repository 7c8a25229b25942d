//! Records of executions at the edge: read at the stream's leader, changed by compare-and-set.

use crate::core::execution::Execution;
use async_nats::jetstream::kv::{Store, UpdateErrorKind};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use toolfleet_io::broker::{Broker, Error, is_under_way};
use toolfleet_proto::name::escape;

/// How often a change is tried against other writers of the same record.
const TRIES_MAX: u32 = 100;

/// The bucket of executions. Clones share it.
#[derive(Clone)]
pub struct Executions {
    broker: Broker,
    bucket: String,
    turns: Turns,
}

/// Changes of the same record through this process, one after another: side by side they would only
/// refuse each other.
#[derive(Clone, Default)]
struct Turns(Arc<Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>>);

impl Turns {
    async fn take(&self, key: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, turn| turn.strong_count() > 0);
            let known = turns.get(key).and_then(Weak::upgrade);
            let turn = known.unwrap_or_default();
            turns.insert(key.to_owned(), Arc::downgrade(&turn));
            turn
        };
        turn.lock_owned().await
    }
}

impl Executions {
    /// The bucket of this broker's fleet.
    pub fn new(broker: Broker) -> Executions {
        let bucket = broker.prefix().executions_bucket();
        Executions { broker, bucket, turns: Turns::default() }
    }

    fn key(tenant: &str, id: &str) -> String {
        format!("{}.{}", escape(tenant), escape(id))
    }

    async fn store(&self) -> Result<Store, Error> {
        self.broker
            .jetstream()
            .get_key_value(&self.bucket)
            .await
            .map_err(|error| Error::Silent(error.to_string()))
    }

    /// The record and its revision, read at the leader: a replica may be behind.
    async fn read(&self, tenant: &str, id: &str) -> Result<Option<(Execution, u64)>, Error> {
        let subject = format!("$KV.{}.{}", self.bucket, Self::key(tenant, id));
        let found = self.broker.find_last(&format!("KV_{}", self.bucket), &subject).await?;
        let Some(message) = found.filter(|message| !message.payload.is_empty()) else {
            return Ok(None);
        };
        let record = serde_json::from_slice(&message.payload).map_err(|error| {
            Error::Refused(format!("the record of the execution {id}: {error}"))
        })?;
        Ok(Some((record, message.sequence)))
    }

    /// The record.
    ///
    /// # Errors
    /// Where the broker is silent or the record does not read.
    pub async fn get(&self, tenant: &str, id: &str) -> Result<Option<Execution>, Error> {
        Ok(self.read(tenant, id).await?.map(|(record, _)| record))
    }

    /// Changes a record: `change` gets what is there (`None`: nothing) and gives what is to be there
    /// and an answer; it may be asked again with a newer record. `Ok((None, …))` changes nothing.
    ///
    /// # Errors
    /// Where the broker is silent, the record does not fit one message, or others change it all the
    /// time.
    pub async fn change<T>(
        &self,
        tenant: &str,
        id: &str,
        mut change: impl FnMut(Option<Execution>) -> (Option<Execution>, T),
    ) -> Result<T, Error> {
        let silent = |error: &dyn std::fmt::Display| Error::Silent(error.to_string());
        let store = self.store().await?;
        let key = Self::key(tenant, id);
        let _turn = self.turns.take(&key).await;
        for _ in 0..TRIES_MAX {
            let found = self.read(tenant, id).await?;
            let revision = found.as_ref().map_or(0, |(_, revision)| *revision);
            let before = found.map(|(record, _)| record);
            let (after, answer) = change(before.clone());
            let Some(after) = after.filter(|after| before.as_ref() != Some(after)) else {
                return Ok(answer);
            };
            let value = serde_json::to_vec(&after).map_err(|error| silent(&error))?;
            match store.update(&key, value.into(), revision).await {
                Ok(_) => return Ok(answer),
                Err(error)
                    if error.kind() == UpdateErrorKind::WrongLastRevision
                        || is_under_way(&error) => {}
                Err(error) => return Err(silent(&error)),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Err(Error::Silent(format!("the record of the execution {id} changes all the time")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn changes_of_one_record_take_turns_and_of_two_do_not() {
        let turns = Turns::default();
        let first = turns.take("a").await;
        let _other = turns.take("b").await;
        let waiting = tokio::spawn({
            let turns = turns.clone();
            async move { drop(turns.take("a").await) }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        waiting.await.unwrap();
        drop(turns.take("c").await);
        assert!(turns.0.lock().unwrap().len() <= 2, "what nobody waits for is forgotten");
    }
}
