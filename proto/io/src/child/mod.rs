//! Real nats-server and Redis processes as children, for `toolfleet dev` and for tests: on ports that
//! are proved to be their own, in process groups of their own, with a bounded start and end.
//!
//! A port that merely answers proves nothing: another program may hold it. So a server counts as ours
//! only when it names itself as the process that was started here; a stranger is refused.

mod find;
mod nats;
mod process;
mod redis;

pub use find::{FindError, Found, Origin, Version, find_nats_server, find_redis_server};
pub use nats::{NatsOptions, NatsServer};
pub use process::{Change, Observer, Process, log_tail};
pub use redis::{RedisOptions, RedisServer};

use std::path::PathBuf;

/// How long a server may take from its start to its first proved answer, in milliseconds.
pub const READY_TIMEOUT_MS: u64 = 20_000;

/// How long a server may take to end after SIGTERM before it is killed, in milliseconds.
pub const STOP_GRACE_MS: u64 = 2_000;

/// Why a child could not be started or watched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program could not be run at all.
    #[error("could not run {}: {source}", .program.display())]
    Spawn {
        /// What was to be run.
        program: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file or folder of the child could not be made or read.
    #[error("could not use {}: {source}", .path.display())]
    Files {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The child ended before it was ready.
    #[error("{name} ended before it was ready ({status}){}", said(.log_tail, .log))]
    Exited {
        /// The child's name.
        name: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// Its log.
        log: PathBuf,
        /// The last lines of this run in its log.
        log_tail: String,
    },
    /// The child was not ready in time.
    #[error("{name} was not ready within {timeout_ms} ms{}", said(.log_tail, .log))]
    Timeout {
        /// The child's name.
        name: String,
        /// The time it had.
        timeout_ms: u64,
        /// Its log.
        log: PathBuf,
        /// The last lines of this run in its log.
        log_tail: String,
    },
    /// Another process answers on the child's port.
    #[error("port {port} is held by another process: wanted {wanted}, found {found}")]
    Stranger {
        /// The port.
        port: u16,
        /// What the child would have said of itself.
        wanted: String,
        /// What was said.
        found: String,
    },
    /// No free port was found.
    #[error("found no free port on 127.0.0.1 for {name} in {attempts} attempts")]
    NoPort {
        /// The child's name.
        name: String,
        /// How many ports were tried.
        attempts: u32,
    },
    /// The system could not say how the child fares.
    #[error("could not wait for {name}: {source}")]
    Wait {
        /// The child's name.
        name: String,
        /// The system's reason.
        source: std::io::Error,
    },
}

fn said(log_tail: &str, log: &std::path::Path) -> String {
    if log_tail.is_empty() {
        format!("; its log {} is empty", log.display())
    } else {
        format!("; the last lines of {}:\n{log_tail}", log.display())
    }
}
