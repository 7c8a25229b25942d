//! The connection to the store, and when it is given up: a network that forgets a connection without a
//! word (a firewall, a host that is gone) leaves one that takes every request and answers none, for as
//! long as the system goes on sending it again. That can be a quarter of an hour.

use redis::RedisError;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock};

/// Requests in a row that go unanswered before the connection is made anew.
const SILENCES_MAX: u32 = 2;

/// A connection that is replaced where it stays silent.
pub(super) struct Line {
    client: redis::Client,
    config: ConnectionManagerConfig,
    current: RwLock<ConnectionManager>,
    silences: AtomicU32,
}

/// What follows from one more request of those that are counted: silences so far, and whether the
/// connection is to be made anew.
fn after(silences: u32, is_silence: bool) -> (u32, bool) {
    match (is_silence, silences + 1) {
        (false, _) => (0, false),
        (true, silences) if silences >= SILENCES_MAX => (0, true),
        (true, silences) => (silences, false),
    }
}

impl Line {
    /// Connects.
    pub(super) async fn open(
        client: redis::Client,
        config: ConnectionManagerConfig,
    ) -> Result<Line, RedisError> {
        let current = ConnectionManager::new_with_config(client.clone(), config.clone()).await?;
        Ok(Line { client, config, current: RwLock::new(current), silences: AtomicU32::new(0) })
    }

    /// The connection as it is now.
    pub(super) fn get(&self) -> ConnectionManager {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes in how a request was answered. Only probes and renewals are counted, never claims: a
    /// give-back must go out behind its acquire on the same connection.
    pub(super) fn heard<T>(&self, answer: &Result<T, RedisError>) {
        let is_silence = answer.as_ref().is_err_and(RedisError::is_timeout);
        let (silences, is_over) = after(self.silences.load(Ordering::Relaxed), is_silence);
        self.silences.store(silences, Ordering::Relaxed);
        if !is_over {
            return;
        }
        match ConnectionManager::new_lazy_with_config(self.client.clone(), self.config.clone()) {
            Ok(fresh) => {
                tracing::warn!("redis does not answer on this connection: it is made anew");
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
            }
            Err(error) => tracing::error!(%error, "no new connection to redis"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_silences_in_a_row_count() {
        assert_eq!(after(0, true), (1, false));
        assert_eq!(after(1, false), (0, false));
        assert_eq!(after(1, true), (0, true), "and the new one begins from none");
    }
}
