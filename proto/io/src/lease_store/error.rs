//! What goes wrong with the lease store, and how it is counted.

use crate::metrics::meter;
use opentelemetry::KeyValue;
use opentelemetry::metrics::Counter;
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// What went wrong with the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody answers.
    #[error(
        "redis at {url} is not reachable: {reason}; start a Redis 7 or Valkey, or set redis.url"
    )]
    Unreachable {
        /// Where, without a password.
        url: String,
        /// Why.
        reason: String,
    },
    /// The server is not one that leases may live in.
    #[error("redis at {url} cannot hold leases: {reason}")]
    Unfit {
        /// Where, without a password.
        url: String,
        /// What is wrong and how to mend it.
        reason: String,
    },
    /// No answer in time: it may have taken effect, now or later.
    #[error("the lease store is silent: {0}")]
    Silent(String),
    /// An answer that no script of ours gives.
    #[error("the lease store gave an answer that does not read: {0}")]
    Unreadable(String),
}

/// Kinds of errors, as they are counted.
const ERROR_KINDS: [&str; 5] = ["timeout", "connection", "readonly", "loading", "other"];

/// Counts errors by kind; every kind is there from the start.
pub(super) fn error_counter() -> Counter<u64> {
    let errors = meter("redis")
        .u64_counter("toolfleet_redis_errors")
        .with_description("requests that redis did not answer, or answered with an error")
        .build();
    ERROR_KINDS.iter().for_each(|kind| errors.add(0, &[KeyValue::new("kind", *kind)]));
    errors
}

/// One of [`ERROR_KINDS`].
pub(super) fn error_kind(error: &RedisError) -> &'static str {
    match error.kind() {
        _ if error.is_timeout() => "timeout",
        ErrorKind::Io => "connection",
        ErrorKind::Server(ServerErrorKind::ReadOnly) => "readonly",
        ErrorKind::Server(ServerErrorKind::BusyLoading) => "loading",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_kinds_of_a_closed_set() {
        let io = |kind: std::io::ErrorKind| RedisError::from(std::io::Error::from(kind));
        let server = |kind| RedisError::from((ErrorKind::Server(kind), "no"));
        for (error, kind) in [
            (io(std::io::ErrorKind::TimedOut), "timeout"),
            (io(std::io::ErrorKind::BrokenPipe), "connection"),
            (server(ServerErrorKind::ReadOnly), "readonly"),
            (server(ServerErrorKind::BusyLoading), "loading"),
            (server(ServerErrorKind::NoPerm), "other"),
        ] {
            assert_eq!(error_kind(&error), kind, "{error}");
            assert!(ERROR_KINDS.contains(&kind));
        }
    }
}
