//! Runners: what turns an invocation into an outcome.

pub mod exec;
mod expiry;
pub mod native;

pub use expiry::Expiry;

use crate::context::CallContext;
use crate::stop::{Stop, StopReason};
use std::sync::Arc;
use std::time::Duration;

/// One attempt, ready to run.
#[derive(Clone)]
pub struct Invocation {
    /// What the tool may know of its call.
    pub context: Arc<CallContext>,
    /// Validated arguments, JSON text.
    pub arguments: bytes::Bytes,
    /// Time from the tool's start.
    pub timeout: Duration,
    /// From the stop signal (TERM) to KILL.
    pub kill_grace: Duration,
    /// Bytes of output kept in memory; the rest is counted and dropped.
    pub capture_bytes_max: usize,
    /// Fires when the tool must stop.
    pub stop: Stop,
    /// When the tool must be gone, whoever stops it: the lease is over then.
    pub expiry: Expiry,
    /// Secrets that the tool names, by name.
    pub secrets: Vec<(String, String)>,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// What came of it.
    pub outcome: RunOutcome,
    /// From the tool's start to its end.
    pub duration: Duration,
    /// What was seen of a program beside its output; `None` of a native tool and of what never ran.
    pub process: Option<ProcessEnd>,
}

impl Ended {
    /// Nothing ran.
    pub fn without_a_run(outcome: RunOutcome) -> Ended {
        Ended { outcome, duration: Duration::ZERO, process: None }
    }
}

/// What was seen of a program beside its output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessEnd {
    /// `code 3`, `signal 9 (SIGKILL)`; empty where it was stopped.
    pub how: String,
    /// The end of standard error, at most 8 KB.
    pub stderr: String,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub enum RunOutcome {
    /// The tool ended well by itself.
    Output(RawOutput),
    /// The tool reported a failure, or died of one.
    Failed {
        /// What the model reads.
        message: String,
        /// Whether trying again may help.
        is_transient: bool,
    },
    /// The input that the schema took does not fit the tool's own type.
    InputRefused {
        /// What the model reads after `invalid input: `.
        message: String,
    },
    /// The attempt's time was over; the tool has been stopped.
    TimedOut,
    /// The tool was told to stop, and has stopped.
    Stopped(StopReason),
    /// Nothing of the tool ever ran.
    NotStarted {
        /// What could not be started, and why.
        message: String,
    },
}

/// What a tool gave, before it is read by its declared form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawOutput {
    /// A native tool's string.
    Text(String),
    /// A native tool's value, compact JSON text.
    Json(String),
    /// Standard output of a program.
    Captured {
        /// The first bytes, at most `capture_bytes_max`.
        bytes: Vec<u8>,
        /// How many bytes there were.
        whole_bytes: u64,
        /// Offset of the first byte that is not UTF-8, anywhere in the whole.
        invalid_utf8_at: Option<u64>,
    },
}
