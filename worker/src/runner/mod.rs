//! Runners: what turns an invocation into an outcome.

pub mod exec;
mod expiry;
mod last_words;
pub mod native;
pub mod threads;

pub use expiry::Expiry;
pub use last_words::LastWords;

use crate::context::CallContext;
use crate::reports::Reports;
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
    /// Where the runner says what the tool said last.
    pub last_words: LastWords,
    /// Takes what the tool reports while it runs.
    pub reports: Reports,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// What came of it.
    pub outcome: RunOutcome,
    /// From the tool's start to its end.
    pub duration: Duration,
    /// How a tool that was stopped came to rest.
    pub rest: Rest,
    /// What was seen of a program beside its output; `None` of a native tool and of what never ran.
    pub process: Option<ProcessEnd>,
}

impl Ended {
    /// Of a tool that was never started.
    pub fn unstarted(outcome: RunOutcome) -> Ended {
        Ended { outcome, duration: Duration::ZERO, rest: Rest::Returned, process: None }
    }
}

/// How a tool that was told to stop came to rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rest {
    /// It returned by itself, within its grace where it was told to stop.
    #[default]
    Returned,
    /// Its processes were killed when the grace was over.
    Killed,
    /// It keeps its thread.
    Abandoned,
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
