//! Calls of tools without a broker (CONTRACT 6.8): both validations, the runner, the bound and the
//! record of spend are those of a worker; queue, lease and stored result are not there.
//!
//! Time is tokio's. In a test with `#[tokio::test(start_paused = true)]` (tokio's feature
//! `test-util`, among one's dev-dependencies) it is virtual for tools written in Rust: a timeout of
//! an hour is over at once, and durations are exact. Programs live in real time; call them from a
//! runtime whose time runs.
//!
//! ```
//! # use toolfleet_worker::{Context, Tool, ToolError, ToolSpec};
//! use serde_json::json;
//! use std::time::Duration;
//! use toolfleet_worker::StopReason;
//! use toolfleet_worker::testing::TestTool;
//!
//! # #[derive(serde::Deserialize, schemars::JsonSchema)]
//! # struct Wait { seconds: u64 }
//! struct Waiter;
//!
//! impl Tool for Waiter {
//!     // …
//! #   type Input = Wait;
//! #   type Output = String;
//! #   fn spec(&self) -> ToolSpec {
//! #       ToolSpec::read("wait", "Waits").timeout(Duration::from_secs(60))
//! #   }
//! #   async fn call(&self, input: Wait, _context: Context) -> Result<String, ToolError> {
//! #       tokio::time::sleep(Duration::from_secs(input.seconds)).await;
//! #       Ok(format!("waited {} s", input.seconds))
//! #   }
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let tool = TestTool::new(Waiter).unwrap();
//! let run = tool.call(json!({"seconds": 59})).run().await;
//! assert_eq!(run.model_reads.as_deref(), Some("waited 59 s"));
//! assert_eq!(run.duration, Duration::from_secs(59));
//!
//! let run = tool.call(json!({"seconds": 61})).run().await;
//! assert_eq!(run.code, Some("timed_out"));
//! assert_eq!(run.model_reads.as_deref(), Some("Tool error: timed out after 60 s"));
//!
//! let cancelled = StopReason::Cancelled("no longer needed".into());
//! let run = tool.call(json!({"seconds": 9})).stop_after(Duration::from_secs(3), cancelled).run().await;
//! assert_eq!(run.code, Some("cancelled"));
//!
//! let run = tool.call(json!({"seconds": "nine"})).run().await;
//! assert_eq!(
//!     run.input.unwrap_err(),
//!     "invalid input: seconds: expected integer, got string \"nine\""
//! );
//! # }
//! ```

pub(crate) mod command;
mod run;
mod show;
#[cfg(test)]
mod tests;

use crate::context::CallContext;
use crate::isolation::ShutIn;
use crate::outcome::{self, CAPTURE_WHOLE_BYTES};
use crate::process::lines;
use crate::registry::{Builder, Programs, Registered, Registry, Run};
use crate::reports::Reports;
pub use crate::runner::ProcessEnd;
use crate::runner::threads::Threads;
use crate::runner::{Ended, Expiry, Invocation, LastWords, RunOutcome, native};
use crate::secrets;
use crate::spend::{Amount, Spend};
use crate::stop::{Stop, StopReason};
use crate::tool::Tool;
pub use run::{OutputCheck, TestRun};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use toolfleet_io::clock::FleetClock;
use toolfleet_proto::arguments;
use toolfleet_proto::end;
use toolfleet_proto::limit::Limits;
use toolfleet_proto::manifest::Fault;
use toolfleet_proto::money;
use toolfleet_proto::near;
use toolfleet_proto::wire::SpendRecord;

/// The execution of every call made here.
const EXECUTION: &str = "test";

/// Why there is no tool to call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Faults that a worker would refuse to start with, one a line.
    #[error("{}", lines(.0))]
    Faulty(Vec<Fault>),
    /// No tool of that name; the text names those that there are.
    #[error("{0}")]
    NotFound(String),
}

/// A tool, checked as a worker checks it at its start.
#[derive(Clone)]
pub struct TestTool {
    tool: Arc<Registered>,
}

impl TestTool {
    /// A tool written in Rust.
    ///
    /// # Errors
    /// Everything that a worker would refuse to start with: its name, its schemas, its bound.
    pub fn new(tool: impl Tool) -> Result<TestTool, Error> {
        let name = tool.spec().name;
        let mut builder = Builder::default();
        builder.native(Arc::new(tool));
        TestTool::named(&builder.build().map_err(Error::Faulty)?, &name)
    }

    /// A tool of a folder of manifests. `guard` is the path of `toolfleet-guard`, under which programs
    /// run.
    ///
    /// # Errors
    /// All faults of the whole folder, as a worker tells them, or that it has no tool of that name.
    pub fn from_folder(dir: &Path, name: &str, guard: &Path) -> Result<TestTool, Error> {
        let mut builder = Builder::default();
        let scratch_root = std::env::temp_dir();
        let shut_in = ShutIn::available(&scratch_root);
        builder.folder(dir, &Programs { scratch_root, guard: guard.into(), shut_in });
        TestTool::named(&builder.build().map_err(Error::Faulty)?, name)
    }

    pub(crate) fn named(registry: &Registry, name: &str) -> Result<TestTool, Error> {
        let names: Vec<&str> = registry.tools().map(|tool| tool.descriptor.name.as_str()).collect();
        let tool = registry
            .named(name)
            .ok_or_else(|| Error::NotFound(near::not_found_text(name, &names)))?;
        Ok(TestTool { tool: Arc::clone(tool) })
    }

    /// A call with these arguments, as a model would send them.
    pub fn call(&self, arguments: Value) -> TestCall {
        self.call_text(arguments.to_string())
    }

    /// The same from text, whatever it is: digits stay, and what is no JSON is refused as a worker's
    /// fleet refuses it.
    pub fn call_text(&self, arguments: impl Into<String>) -> TestCall {
        TestCall {
            tool: Arc::clone(&self.tool),
            arguments: arguments.into(),
            context: first_attempt(&self.tool),
            secrets: Vec::new(),
            secrets_dir: None,
            kill_grace: Duration::from_millis(Limits::default().kill_grace_ms),
            stop: Stop::new(),
            stop_after: None,
            threads: None,
        }
    }
}

/// The context of a first attempt; `run` sets its clocks.
fn first_attempt(tool: &Registered) -> CallContext {
    let call_id = uuid::Uuid::now_v7().to_string();
    CallContext {
        tool_name: tool.descriptor.name.clone(),
        tenant: "default".into(),
        execution_id: EXECUTION.into(),
        actor: "local".into(),
        phase: "execute".into(),
        node: "main".into(),
        turn: "direct".into(),
        idempotency_key: format!("{EXECUTION}:main:direct:{call_id}"),
        request_id: call_id.clone(),
        call_id,
        attempt: 1,
        fence: 1,
        ..CallContext::default()
    }
}

/// A call that is still to be made: the first attempt of execution `test`, under a fresh call id,
/// unless said otherwise.
#[must_use]
pub struct TestCall {
    tool: Arc<Registered>,
    arguments: String,
    context: CallContext,
    secrets: Vec<(String, String)>,
    secrets_dir: Option<PathBuf>,
    kill_grace: Duration,
    stop: Stop,
    stop_after: Option<(Duration, StopReason)>,
    threads: Option<Threads>,
}

impl TestCall {
    /// Changes what the tool sees of its call. Timeout and deadline are set by the run.
    pub fn context(mut self, change: impl FnOnce(&mut CallContext)) -> TestCall {
        change(&mut self.context);
        self
    }

    /// Gives a secret, if the tool names it.
    pub fn secret(mut self, name: impl Into<String>, value: impl Into<String>) -> TestCall {
        self.secrets.push((name.into(), value.into()));
        self
    }

    /// Looks secrets up in a folder, one file a name, before this process' environment.
    pub fn secrets_dir(mut self, dir: impl Into<PathBuf>) -> TestCall {
        self.secrets_dir = Some(dir.into());
        self
    }

    /// From the stop signal to the end of a tool that does not heed it; 2 s unless said otherwise.
    pub fn kill_grace(mut self, grace: Duration) -> TestCall {
        self.kill_grace = grace;
        self
    }

    /// Stops the tool so long after its start, if it still runs: a cancel, a lost lease, a drain.
    pub fn stop_after(mut self, span: Duration, reason: StopReason) -> TestCall {
        self.stop_after = Some((span, reason));
        self
    }

    /// Stops the tool when this signal fires.
    pub(crate) fn stop_with(mut self, stop: Stop) -> TestCall {
        self.stop = stop;
        self
    }

    /// Runs a tool in Rust on a thread of its own, as a worker does: one that blocks is left behind on
    /// time. Without it, it runs on the caller's runtime, whose time may be virtual.
    pub(crate) fn on_threads(mut self, threads: Threads) -> TestCall {
        self.threads = Some(threads);
        self
    }

    /// Makes the call.
    pub async fn run(mut self) -> TestRun {
        let admitted = match arguments::admit(&self.tool.input_schema, Some(&self.arguments)) {
            Ok(admitted) => admitted.given.to_text(),
            Err(refusal) => return TestRun::refused(refusal, bound_of(&self.tool)),
        };
        let timeout_ms = self.tool.descriptor.timeout_ms;
        self.context.timeout_ms = timeout_ms;
        let deadline_ms = FleetClock::new().now_ms().saturating_add_unsigned(timeout_ms);
        self.context.deadline = end::instant(deadline_ms);
        let (ended, spend) = self.attempt(&admitted).await;
        TestRun::read(&self.tool, admitted, ended, spend)
    }

    async fn attempt(&self, admitted: &str) -> (Ended, Vec<Amount>) {
        let mut secrets = self.secrets.clone();
        let tool = &self.tool;
        secrets.retain(|(name, _)| tool.secrets.contains(name));
        let is_given = |name: &String| secrets.iter().any(|(given, _)| given == name);
        let wanted: Vec<String> =
            tool.secrets.iter().filter(|name| !is_given(name)).cloned().collect();
        match secrets::look_up(self.secrets_dir.as_deref(), &wanted) {
            Ok(found) => secrets.extend(found),
            Err(message) => {
                let outcome = RunOutcome::NotStarted { message };
                return (Ended::unstarted(outcome), Vec::new());
            }
        }
        let invocation = Invocation {
            context: Arc::new(self.context.clone()),
            arguments: admitted.to_owned().into(),
            timeout: Duration::from_millis(tool.descriptor.timeout_ms),
            kill_grace: self.kill_grace,
            capture_bytes_max: CAPTURE_WHOLE_BYTES.max(capture_bytes_max(tool)),
            stop: self.stop.clone(),
            // No lease runs out here; the guard ends the program with this process.
            expiry: Expiry::at(u64::MAX),
            secrets,
            last_words: LastWords::default(),
            reports: Reports::default(),
        };
        let (spend, records) = Spend::new(SpendRecord::default());
        let body = async {
            match (&tool.run, &self.threads) {
                (Run::Native(tool), Some(threads)) => {
                    native::run(tool, &invocation, spend, threads).await
                }
                (Run::Native(tool), None) => native::run_here(tool, &invocation, spend).await,
                (Run::Exec(exec), _) => exec.run(&invocation, Some(spend)).await,
            }
        };
        self.attend(body, records).await
    }

    /// Takes in what is spent, and stops the run when it is to be stopped.
    async fn attend(
        &self,
        body: impl Future<Output = Ended>,
        mut records: mpsc::Receiver<SpendRecord>,
    ) -> (Ended, Vec<Amount>) {
        let mut body = pin!(body);
        let after = self.stop_after.as_ref().map_or(Duration::MAX, |(span, _)| *span);
        let mut is_over = pin!(tokio::time::sleep(after));
        let mut spent = Vec::new();
        let ended = loop {
            tokio::select! {
                biased;
                ended = &mut body => break ended,
                Some(record) = records.recv() => spent.push(amount_of(record)),
                () = &mut is_over, if !self.stop.is_fired() => {
                    if let Some((_, reason)) = &self.stop_after {
                        self.stop.fire(reason.clone());
                    }
                }
            }
        };
        while let Ok(record) = records.try_recv() {
            spent.push(amount_of(record));
        }
        (ended, spent)
    }
}

fn bound_of(tool: &Registered) -> u64 {
    tool.descriptor.result_bytes_max
}

/// What a worker would keep of the output.
fn capture_bytes_max(tool: &Registered) -> usize {
    outcome::capture_bytes_max(tool.descriptor.result, bound_of(tool))
}

fn amount_of(record: SpendRecord) -> Amount {
    Amount {
        service: record.service,
        amount: money::describe_nano(record.amount_nano),
        currency: record.currency,
        quantity: record.quantity,
        unit: record.unit,
    }
}
