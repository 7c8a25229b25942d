//! The runner of `exec` tools: one process per attempt (CONTRACT 1.2, 5.1, 5.11).

mod capture;
mod environment;
#[cfg_attr(not(test), expect(dead_code, reason = "the guard reads what is written here"))]
mod grant;
mod group;
mod guard;
#[cfg_attr(not(test), expect(dead_code, reason = "the guard reads what is written here"))]
mod limits;
mod over;
#[cfg_attr(not(test), expect(dead_code, reason = "the guard writes what is read here"))]
mod report;
mod scratch;
mod side;
#[cfg(test)]
mod tests;
mod walls;

use super::{Ended, Invocation, ProcessEnd, RawOutput, Rest, RunOutcome};
use crate::spend::Spend;
use crate::stop::StopReason;
use capture::Streams;
use group::Group;
use report::Report;
use rustix::io::Errno;
use rustix::process::Signal;
use scratch::Scratch;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use toolfleet_proto::declared::ProcessLimits;
pub use walls::Walls;

/// How long a background child may hold the output open once the tool itself has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The exit code by which a program says that trying again may help, as `sysexits.h` has it.
const EX_TEMPFAIL: i32 = 75;

/// The kernel has one code for both.
const OR_SHUT_OUT: &str =
    ", or it needs a file outside of what the tool may use: see worker.readable";

/// A tool that is a program: JSON arguments on standard input, its result on standard output.
#[derive(Clone, Debug)]
pub struct Exec {
    command: Vec<String>,
    scratch_root: PathBuf,
    guard: Option<PathBuf>,
    limits: ProcessLimits,
    walls: Option<Walls>,
}

impl Exec {
    /// A program with its words, no shell. The first word is an absolute path, or a name that is
    /// looked up in `/usr/local/bin:/usr/bin:/bin`. Each attempt gets a folder of its own under
    /// `scratch_root`, which is made where it is missing.
    pub fn new(command: Vec<String>, scratch_root: PathBuf) -> Exec {
        Exec { command, scratch_root, guard: None, limits: ProcessLimits::default(), walls: None }
    }

    /// Removes what attempts of workers that were killed have left under a root. Blocks.
    pub fn remove_leftovers(scratch_root: &Path) {
        scratch::sweep(scratch_root);
    }

    /// The same, under the guard program at this path: where the worker is killed, or stopped beyond
    /// the invocation's expiry, the guard kills the tool's group (DESIGN 4.5).
    #[must_use]
    pub fn under(self, guard: PathBuf) -> Exec {
        Exec { guard: Some(guard), ..self }
    }

    /// The same within these bounds, which the guard sets and the program cannot raise; without a guard
    /// there are none.
    #[must_use]
    pub fn within(self, limits: ProcessLimits) -> Exec {
        Exec { limits, ..self }
    }

    /// The same between these walls, which the guard puts up: it may use what they let it, and its own
    /// scratch folder and context file. Without a guard there are none.
    #[must_use]
    pub fn between(self, walls: Option<Walls>) -> Exec {
        Exec { walls, ..self }
    }

    /// Runs one attempt to its end. Nothing of it is left afterwards: neither a process of its
    /// group nor a file of its scratch folder; the same holds where the future is dropped.
    ///
    /// Returns at most `kill_grace` and the time to clean up after the timeout or the stop signal.
    /// What the tool gives once it was told to stop does not count.
    ///
    /// What the tool says on descriptor 3 while it runs goes to `spend`, to the invocation's reports and
    /// to the log.
    pub async fn run(&self, invocation: &Invocation, spend: Option<Spend>) -> Ended {
        if let Some(reason) = invocation.stop.reason() {
            return Ended::unstarted(stopped(reason));
        }
        let made = Scratch::create(self.scratch_root.clone(), Arc::clone(&invocation.context));
        let scratch = match made.await {
            Ok(scratch) => scratch,
            Err(error) => return not_started(format!("could not make a scratch folder: {error}")),
        };
        let ended = self.run_in(&scratch, invocation, spend).await;
        scratch.remove().await;
        ended
    }

    async fn run_in(
        &self,
        scratch: &Scratch,
        invocation: &Invocation,
        spend: Option<Spend>,
    ) -> Ended {
        let Some((program, words)) = self.command.split_first() else {
            return not_started("could not start the tool: its command is empty".to_owned());
        };
        let mut guarded = match self.lay_guarded(scratch, invocation) {
            Ok(guarded) => guarded,
            Err(error) => return not_started(format!("could not prepare the guard: {error}")),
        };
        let mut command = self.command(program, words, guarded.as_ref(), scratch, invocation);
        let said = match side::open(&mut command) {
            Ok(said) => said,
            Err(error) => return not_started(format!("could not open descriptor 3: {error}")),
        };
        let group = match Group::start(&mut command).await {
            Ok(group) => group,
            Err(error) if guarded.is_some() => {
                return not_started(format!("could not start the guard: {error}"));
            }
            Err(error) => return not_started(group::start_failure(program, &error)),
        };
        // It holds our copy of the tool's end of descriptor 3.
        drop(command);
        let (reports, work) = (invocation.reports.clone(), scratch.work().to_owned());
        let listening = side::Listener { spend, reports, work }.listen(said);
        let started = Instant::now();
        let mut streams = Streams::new(invocation.capture_bytes_max);
        let (cause, status, rest) = attend(group, &mut streams, invocation).await;
        side::finish(listening).await;
        let report = guarded.as_mut().and_then(|(_, shared)| shared.report());
        let (cause, status) = match (cause, report) {
            (Cause::Itself, Some(Report::NotStarted(errno))) => {
                let error = io::Error::from_raw_os_error(errno);
                let mut failure = group::start_failure(program, &error);
                if self.walls.is_some() && Errno::from_io_error(&error) == Some(Errno::ACCESS) {
                    failure.push_str(OR_SHUT_OUT);
                }
                return not_started(failure);
            }
            (Cause::Itself, Some(Report::LeaseOver)) => {
                (Cause::Stopped(StopReason::LeaseLost), status)
            }
            (Cause::Itself, Some(Report::Ended(raw))) => {
                (Cause::Itself, Ok(ExitStatus::from_raw(raw)))
            }
            // Without a guard, or with one that was ended itself.
            (cause, _) => (cause, status),
        };
        let how = match (&cause, &status) {
            (Cause::Itself, Ok(status)) => describe(*status),
            _ => String::new(),
        };
        let process = Some(ProcessEnd { how, stderr: streams.stderr.text() });
        let outcome = judge(cause, status, streams, &self.limits);
        Ended { outcome, duration: started.elapsed(), rest, process }
    }

    /// The program, or its guard, in the folder and the environment of an attempt.
    fn command(
        &self,
        program: &str,
        words: &[String],
        guarded: Option<&(&Path, guard::Shared)>,
        scratch: &Scratch,
        invocation: &Invocation,
    ) -> Command {
        let mut command = match guarded {
            Some((guard, shared)) => {
                let grants = self.walls.as_ref().map(|walls| walls.around(scratch));
                let limits = over::each(&self.limits);
                shared.command(guard, &limits, &grants.unwrap_or_default(), program, words)
            }
            None => {
                let mut command = Command::new(program);
                command.args(words);
                command
            }
        };
        command
            .current_dir(scratch.work())
            .env_clear()
            .envs(environment::variables(&invocation.context, &invocation.secrets))
            .env("HOME", scratch.work())
            .env("TMPDIR", scratch.work())
            .env("TOOLFLEET_CONTEXT", scratch.context_file())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// What this attempt shares with its guard, and the guard's path.
    fn lay_guarded(
        &self,
        scratch: &Scratch,
        invocation: &Invocation,
    ) -> io::Result<Option<(&Path, guard::Shared)>> {
        let Some(guard) = &self.guard else { return Ok(None) };
        let (line, report) = (scratch.beside("line"), scratch.beside("report"));
        Ok(Some((guard, guard::Shared::lay(line, report, &invocation.expiry)?)))
    }
}

/// Why a run came to its end.
enum Cause {
    /// The leader ended by itself.
    Itself,
    Stopped(StopReason),
    TimedOut,
}

/// Sees a process group through to its end. The clock of the timeout starts here.
async fn attend(
    mut group: Group,
    streams: &mut Streams,
    invocation: &Invocation,
) -> (Cause, io::Result<ExitStatus>, Rest) {
    let mut clock = pin!(sleep(invocation.timeout));
    let leader_gone = CancellationToken::new();
    let pipes = group.take_pipes();
    let mut pump =
        pin!(streams.pump(pipes, &invocation.arguments, &leader_gone, &invocation.last_words));
    let mut is_drained = false;
    let cause = loop {
        // In this order: a tool that has ended is neither stopped nor timed out.
        tokio::select! {
            biased;
            () = group.exited() => break Cause::Itself,
            reason = invocation.stop.fired() => break Cause::Stopped(reason),
            () = &mut clock => break Cause::TimedOut,
            () = &mut pump, if !is_drained => is_drained = true,
        }
    };
    let patience = if let Cause::Itself = cause {
        DRAIN_TIMEOUT
    } else {
        group.signal(Signal::TERM);
        invocation.kill_grace
    };
    // Both ways the group is given until its leader is gone and nobody holds the pipes: a leader
    // that ends at once must not cost its children their grace.
    let at_rest = async {
        let mut has_exited = false;
        while !(has_exited && is_drained) {
            tokio::select! {
                biased;
                () = group.exited(), if !has_exited => {
                    has_exited = true;
                    leader_gone.cancel();
                }
                () = &mut pump, if !is_drained => is_drained = true,
            }
        }
    };
    let mut rest = Rest::Returned;
    if timeout(patience, at_rest).await.is_err() {
        tracing::debug!("tool left processes that hold its pipes; killing them");
        rest = Rest::Killed;
    }
    (cause, group.reap().await, rest)
}

fn judge(
    cause: Cause,
    status: io::Result<ExitStatus>,
    streams: Streams,
    limits: &ProcessLimits,
) -> RunOutcome {
    let status = match (cause, status) {
        (Cause::Stopped(reason), _) => return stopped(reason),
        (Cause::TimedOut, _) => return RunOutcome::TimedOut,
        (Cause::Itself, Ok(status)) => status,
        (Cause::Itself, Err(error)) => {
            return failed(format!("ended in an unknown way: {error}"), &streams);
        }
    };
    match (status.code(), status.signal()) {
        (Some(0), _) => {
            let (bytes, whole_bytes, invalid_utf8_at) = streams.stdout.finish();
            RunOutcome::Output(RawOutput::Captured { bytes, whole_bytes, invalid_utf8_at })
        }
        (Some(code), _) => RunOutcome::Failed {
            message: with_stderr(format!("exited with {}", describe(status)), &streams),
            is_transient: code == EX_TEMPFAIL,
        },
        (None, Some(signal)) => {
            let limit = over::told_by(signal, limits).map(|limit| format!(", {limit}"));
            let how = format!("killed by {}{}", describe(status), limit.unwrap_or_default());
            failed(how, &streams)
        }
        (None, None) => failed(format!("ended in an unknown way: {status}"), &streams),
    }
}

/// `code 3`, `signal 9 (SIGKILL)`.
fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("code {code}"),
        (None, Some(signal)) => match group::signal_name(signal) {
            Some(name) => format!("signal {signal} ({name})"),
            None => format!("signal {signal}"),
        },
        (None, None) => status.to_string(),
    }
}

fn failed(how: String, streams: &Streams) -> RunOutcome {
    RunOutcome::Failed { message: with_stderr(how, streams), is_transient: false }
}

fn with_stderr(how: String, streams: &Streams) -> String {
    let stderr = streams.stderr.text();
    if stderr.is_empty() { how } else { format!("{how}: {stderr}") }
}

fn stopped(reason: StopReason) -> RunOutcome {
    match reason {
        StopReason::TimedOut => RunOutcome::TimedOut,
        reason => RunOutcome::Stopped(reason),
    }
}

fn not_started(message: String) -> Ended {
    Ended::unstarted(RunOutcome::NotStarted { message })
}
