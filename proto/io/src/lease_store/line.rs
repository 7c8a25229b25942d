//! The connection to the store, and when it is given up: a network that forgets a connection without a
//! word (a firewall, a host that is gone) leaves one that takes every request and answers none, for as
//! long as the system goes on sending it again. That can be a quarter of an hour.

use super::primary::Primary;
use redis::RedisError;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::Notify;

/// Requests in a row that go unanswered before the connection is made anew.
const SILENCES_MAX: u32 = 2;

/// How often the sentinels are asked which server is the primary.
const LOOK: Duration = Duration::from_secs(1);

/// A connection that is replaced where it stays silent, or where the primary has moved.
pub(super) struct Line {
    primary: Primary,
    config: ConnectionManagerConfig,
    current: RwLock<Current>,
    silences: AtomicU32,
    /// A server has said that it is no primary any more.
    demoted: Notify,
}

struct Current {
    client: redis::Client,
    connection: ConnectionManager,
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
        primary: Primary,
        config: ConnectionManagerConfig,
    ) -> Result<Line, (Primary, RedisError)> {
        let connected = async {
            let client = primary.client().await?;
            let connection =
                ConnectionManager::new_with_config(client.clone(), config.clone()).await?;
            Ok(Current { client, connection })
        };
        match connected.await {
            Ok(current) => Ok(Line {
                primary,
                config,
                current: RwLock::new(current),
                silences: AtomicU32::new(0),
                demoted: Notify::new(),
            }),
            Err(error) => Err((primary, error)),
        }
    }

    /// Follows the primary for ever, where it may move: each second, and at once when a server says that
    /// it takes no writes.
    pub(super) async fn follow(line: std::sync::Weak<Line>) {
        loop {
            let Some(held) = line.upgrade().filter(|line| line.primary.may_move()) else { return };
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = held.demoted.notified() => {}
            }
            match held.primary.client().await {
                Ok(client) => held.move_to(client),
                Err(error) => tracing::warn!(%error, "the sentinels do not name the primary"),
            }
        }
    }

    fn move_to(&self, client: redis::Client) {
        let is_same = {
            let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
            current.client.get_connection_info().addr() == client.get_connection_info().addr()
        };
        if !is_same {
            let address = client.get_connection_info().addr().to_string();
            tracing::warn!(address, "redis has another primary");
            self.connect(client);
        }
    }

    fn connect(&self, client: redis::Client) {
        match ConnectionManager::new_lazy_with_config(client.clone(), self.config.clone()) {
            Ok(connection) => {
                let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
                *current = Current { client, connection };
            }
            Err(error) => tracing::error!(%error, "no new connection to redis"),
        }
    }

    /// Takes in that a server answered that it takes no writes.
    pub(super) fn is_demoted(&self) {
        self.demoted.notify_one();
    }

    /// The connection as it is now.
    pub(super) fn get(&self) -> ConnectionManager {
        self.current.read().unwrap_or_else(PoisonError::into_inner).connection.clone()
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
        tracing::warn!("redis does not answer on this connection: it is made anew");
        let client = self.current.read().unwrap_or_else(PoisonError::into_inner).client.clone();
        self.connect(client);
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
