//! The process that ends the children of a `dev` which was killed.
//!
//! It reads the process ids from its standard input, a pipe from `dev`. The pipe ends when `dev` does,
//! however it ends; without the word `end` before, everything that still runs is ended here. Standard
//! library and system calls only: nothing that could fail to start.

use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeMap;
use std::io::BufRead;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const GRACE_MS_MAX: u64 = 10_000;
const POLL: Duration = Duration::from_millis(20);

/// Arguments of the hidden `toolfleet dev-watchdog`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct WatchdogArgs {
    /// How long children may take to end after SIGTERM, in milliseconds; at most 10,000 count
    #[arg(value_name = "DRAIN_MS")]
    pub drain_ms: u64,
}

/// Watches over the process ids told on standard input until `end` or its end. Blocks.
pub fn watchdog(args: WatchdogArgs) -> ExitCode {
    let targets = match watch(std::io::stdin().lock()) {
        Watched::Orderly => return ExitCode::SUCCESS,
        Watched::Abandoned(targets) => targets,
    };
    end_all(&targets, Duration::from_millis(args.drain_ms.min(GRACE_MS_MAX)));
    ExitCode::SUCCESS
}

/// One line from `dev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// `+PID`: a child runs.
    Started(u32),
    /// `-PID`: it was reaped.
    Ended(u32),
    /// `end`: nothing is left to watch.
    End,
}

impl Line {
    /// As it is written, with its line end.
    pub(super) fn text(self) -> String {
        match self {
            Line::Started(pid) => format!("+{pid}\n"),
            Line::Ended(pid) => format!("-{pid}\n"),
            Line::End => "end\n".into(),
        }
    }

    /// Reads a line; nothing where it is none.
    pub(super) fn parse(text: &str) -> Option<Line> {
        match text.split_at_checked(1)? {
            ("+", pid) => pid.parse().ok().map(Line::Started),
            ("-", pid) => pid.parse().ok().map(Line::Ended),
            _ => (text == "end").then_some(Line::End),
        }
    }
}

enum Watched {
    Orderly,
    Abandoned(Vec<Target>),
}

fn watch(input: impl BufRead) -> Watched {
    let mut targets = BTreeMap::new();
    for line in input.lines().map_while(Result::ok) {
        match Line::parse(&line) {
            Some(Line::Started(pid)) => {
                if let Some(target) = Target::open(pid) {
                    targets.insert(pid, target);
                }
            }
            Some(Line::Ended(pid)) => {
                targets.remove(&pid);
            }
            Some(Line::End) => return Watched::Orderly,
            None => {}
        }
    }
    Watched::Abandoned(targets.into_values().collect())
}

fn end_all(targets: &[Target], grace: Duration) {
    for target in targets {
        target.terminate();
    }
    let deadline = Instant::now() + grace;
    while targets.iter().any(Target::alive) && Instant::now() < deadline {
        std::thread::sleep(POLL);
    }
    for target in targets.iter().filter(|target| target.alive()) {
        // The leader lives, so the group's number is still the child's.
        let _ = kill_process_group(target.pid, Signal::KILL);
    }
}

/// A process held by a descriptor, so that its number can never lead to another process.
struct Target {
    pid: Pid,
    #[cfg(target_os = "linux")]
    descriptor: std::os::fd::OwnedFd,
}

#[cfg(target_os = "linux")]
impl Target {
    fn open(pid: u32) -> Option<Target> {
        let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
        let descriptor =
            rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()?;
        Some(Target { pid, descriptor })
    }

    fn terminate(&self) {
        // It may be gone in this moment.
        let _ = rustix::process::pidfd_send_signal(&self.descriptor, Signal::TERM);
    }

    /// A descriptor of a process turns readable at its end, reaped or not.
    fn alive(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut waiting = [PollFd::new(&self.descriptor, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        !matches!(poll(&mut waiting, Some(&now)), Ok(1..))
    }
}

/// Without descriptors of processes the number must do; `dev` takes it back as soon as it reaps.
#[cfg(not(target_os = "linux"))]
impl Target {
    fn open(pid: u32) -> Option<Target> {
        Pid::from_raw(i32::try_from(pid).ok()?).map(|pid| Target { pid })
    }

    fn terminate(&self) {
        let _ = rustix::process::kill_process(self.pid, Signal::TERM);
    }

    fn alive(&self) -> bool {
        rustix::process::test_kill_process(self.pid).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufReader, Read};
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Child, Command, Stdio};

    fn shell(script: &str) -> Child {
        let mut command = Command::new("/bin/sh");
        let mut child =
            command.args(["-c", script]).stdout(Stdio::piped()).process_group(0).spawn().unwrap();
        let mut said = [0; 1];
        child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        child
    }

    const POLITE: &str = "echo; exec sleep 60";
    const STUBBORN: &str = "trap '' TERM; echo; while :; do sleep 0.05; done";

    #[test]
    fn lines_are_read_as_they_are_written() {
        for line in [Line::Started(12), Line::Ended(4_000_000), Line::End] {
            assert_eq!(Line::parse(line.text().trim_end()), Some(line));
        }
        for text in ["", "+", "+-3", "12", "ended", "é1", "+4294967296"] {
            assert_eq!(Line::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_input_that_just_ends_leaves_what_still_runs() {
        let (mut first, mut second) = (shell(POLITE), shell(POLITE));
        let text = format!("+{}\nnoise\n+{}\n-{}\n", first.id(), second.id(), first.id());
        let Watched::Abandoned(targets) = watch(BufReader::new(text.as_bytes())) else {
            panic!("taken for an orderly end")
        };
        assert_eq!(targets.len(), 1);
        end_all(&targets, Duration::from_secs(10));
        assert_eq!(second.wait().unwrap().signal(), Some(15));
        assert_eq!(first.try_wait().unwrap(), None);
        first.kill().unwrap();
        first.wait().unwrap();
    }

    #[test]
    fn an_orderly_end_touches_nothing() {
        let mut child = shell(POLITE);
        let text = format!("+{}\nend\n", child.id());
        assert!(matches!(watch(BufReader::new(text.as_bytes())), Watched::Orderly));
        assert_eq!(child.try_wait().unwrap(), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn the_stubborn_are_killed_after_the_grace() {
        let mut child = shell(STUBBORN);
        let target = Target::open(child.id()).unwrap();
        assert!(target.alive());
        end_all(std::slice::from_ref(&target), Duration::from_millis(100));
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert!(!target.alive());
    }
}
