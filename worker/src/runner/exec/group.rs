//! A tool's process group: started, signalled as a whole, and never left behind.

use super::capture::Pipes;
use super::environment;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::signal::unix::{self, SignalKind};

/// Waits before each further attempt to start what could not be started for a passing cause; half
/// a second together.
const START_WAITS_MS: [u64; 5] = [20, 40, 80, 160, 200];

/// How long a killed process may take to go; one stuck in the kernel is then given up.
const REAP_TIMEOUT: Duration = Duration::from_secs(5);

/// Between two looks at a process where the runtime tells of no signals any more.
const EXIT_POLL: Duration = Duration::from_millis(20);

/// A running process group whose leader has not been reaped.
///
/// The leader stays unreaped until the group has been killed: its zombie keeps the group's number
/// from being given to somebody else. Dropped before [`Group::reap`], the whole group is killed.
pub(super) struct Group {
    leader: Pid,
    /// Wakes whenever any child of the worker has ended.
    child_ends: unix::Signal,
    is_reaped: bool,
    child: Child,
}

impl Group {
    /// Starts `command` as the leader of a group of its own. A passing cause (the file is still
    /// open for writing somewhere, the process limit) is waited out for half a second.
    pub(super) async fn start(command: &mut Command) -> io::Result<Group> {
        command.process_group(0).kill_on_drop(true);
        // Before the process starts, so that no end is missed.
        let child_ends = unix::signal(SignalKind::child())?;
        let mut waits_ms = START_WAITS_MS.iter();
        loop {
            match command.spawn() {
                Ok(child) => return Group::of(child, child_ends),
                Err(error) if is_passing(&error) => match waits_ms.next() {
                    Some(wait_ms) => tokio::time::sleep(Duration::from_millis(*wait_ms)).await,
                    None => return Err(error),
                },
                Err(error) => return Err(error),
            }
        }
    }

    fn of(child: Child, child_ends: unix::Signal) -> io::Result<Group> {
        let leader = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw)
            .ok_or_else(|| io::Error::other("the process has no id"))?;
        Ok(Group { leader, child_ends, is_reaped: false, child })
    }

    /// Our ends of the leader's pipes, once.
    pub(super) fn take_pipes(&mut self) -> Pipes {
        Pipes {
            stdin: self.child.stdin.take(),
            stdout: self.child.stdout.take(),
            stderr: self.child.stderr.take(),
        }
    }

    /// Waits until the leader has ended, and leaves it to be reaped. Cancel safe.
    pub(super) async fn exited(&mut self) {
        while !self.has_exited() {
            if self.child_ends.recv().await.is_none() {
                tokio::time::sleep(EXIT_POLL).await;
            }
        }
    }

    fn has_exited(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(self.leader), options) {
            Ok(status) => status.is_some(),
            // No such child: there is nothing to wait for.
            Err(error) => error == Errno::CHILD,
        }
    }

    /// Sends a signal to every process of the group. Nobody left to take it is fine.
    pub(super) fn signal(&self, signal: Signal) {
        match kill_process_group(self.leader, signal) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => tracing::warn!(%error, ?signal, "process group could not be signalled"),
        }
    }

    /// Kills what is left of the group and reaps the leader. Fails where the leader does not go.
    pub(super) async fn reap(mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL);
        let status =
            tokio::time::timeout(REAP_TIMEOUT, self.child.wait()).await.map_err(|_| {
                io::Error::new(io::ErrorKind::TimedOut, "it does not end when killed")
            })??;
        self.is_reaped = true;
        Ok(status)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The child is dropped after this, killed once more and reaped by the runtime.
        if !self.is_reaped {
            self.signal(Signal::KILL);
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::TXTBSY | Errno::AGAIN))
}

/// Why `program` could not be started, for people and models.
pub(super) fn start_failure(program: &str, error: &io::Error) -> String {
    let reason = match Errno::from_io_error(error) {
        // The kernel gives one code for the program and for what its first line names.
        Some(Errno::NOENT) if find(program).is_some() => "no interpreter".to_owned(),
        Some(Errno::NOENT) => "not found".to_owned(),
        Some(Errno::ACCESS) => "not executable".to_owned(),
        Some(Errno::NOEXEC) => "not executable: unknown format".to_owned(),
        Some(Errno::TXTBSY) => "text file busy".to_owned(),
        Some(Errno::AGAIN) => "the process limit is reached".to_owned(),
        _ => error.to_string(),
    };
    format!("could not start {program}: {reason}")
}

fn find(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| path.exists());
    }
    environment::PATH
        .split(':')
        .map(|folder| Path::new(folder).join(program))
        .find(|path| path.exists())
}

/// The name of a signal, `SIGKILL`; none for a real-time one.
pub(super) fn signal_name(number: i32) -> Option<&'static str> {
    const NAMES: [(Signal, &str); 21] = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
        (Signal::VTALARM, "SIGVTALRM"),
        (Signal::PROF, "SIGPROF"),
        (Signal::IO, "SIGIO"),
        (Signal::SYS, "SIGSYS"),
    ];
    NAMES.iter().find(|(signal, _)| signal.as_raw() == number).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_real_time_ones_have_not() {
        assert_eq!(signal_name(9), Some("SIGKILL"));
        assert_eq!(signal_name(11), Some("SIGSEGV"));
        assert_eq!(signal_name(40), None);
    }

    #[test]
    fn a_failure_to_start_says_which() {
        let text = |program: &str, errno: Errno| start_failure(program, &io::Error::from(errno));
        assert_eq!(text("/no/such", Errno::NOENT), "could not start /no/such: not found");
        assert_eq!(text("no-such", Errno::NOENT), "could not start no-such: not found");
        assert_eq!(text("/bin/sh", Errno::NOENT), "could not start /bin/sh: no interpreter");
        assert_eq!(text("sh", Errno::NOENT), "could not start sh: no interpreter");
        assert_eq!(text("/bin", Errno::ACCESS), "could not start /bin: not executable");
    }

    #[tokio::test]
    async fn an_exit_is_seen_before_it_is_reaped() {
        let mut group = Group::start(&mut Command::new("/bin/true")).await.unwrap();
        tokio::time::timeout(Duration::from_secs(5), group.exited()).await.unwrap();
        assert!(group.has_exited(), "still there to be reaped");
        let leader = group.leader;
        assert!(group.reap().await.unwrap().success());
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        assert_eq!(waitid(WaitId::Pid(leader), options).err(), Some(Errno::CHILD), "no zombie");
    }
}
