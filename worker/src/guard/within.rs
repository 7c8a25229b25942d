//! A program that is started within bounds: who sets them, and how it is told that it did not start.

use super::grant::Grant;
use super::limits::Limit;
use super::shut_in::shut_in;
use super::{START_WAITS_MS, is_passing};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions, remove_file};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// The first word of a process that bounds itself and becomes the program.
pub(super) const WITHIN: &str = "--within";

/// What is to be started.
pub(super) struct Order<'a> {
    pub(super) limits: Vec<Limit>,
    /// What it may use; none: whatever the guard may.
    pub(super) grants: Vec<Grant>,
    /// Both as they came.
    bounds: &'a [OsString],
    pub(super) program: &'a OsString,
    pub(super) words: &'a [OsString],
}

impl Order<'_> {
    /// Reads `[LIMIT|GRANT]... -- PROGRAM [WORD]...`; `None` where it is not that.
    pub(super) fn read(words: &[OsString]) -> Option<Order<'_>> {
        let dashes = words.iter().position(|word| word == "--")?;
        let (bounds, rest) = words.split_at_checked(dashes)?;
        let [_, program, words @ ..] = rest else { return None };
        let (mut limits, mut grants) = (Vec::new(), Vec::new());
        for word in bounds {
            match Grant::decode(word) {
                Some(grant) => grants.push(grant),
                None => limits.push(Limit::decode(word.to_str()?)?),
            }
        }
        Some(Order { limits, grants, bounds, program, words })
    }

    /// Shuts this thread in with what was granted, where something was.
    pub(super) fn shut_in(&self) -> io::Result<()> {
        if self.grants.is_empty() { Ok(()) } else { shut_in(&self.grants) }
    }
}

/// A start within bounds.
pub(super) struct Bounded {
    /// Takes an error number where the program could not be started.
    refusal: File,
    path: PathBuf,
}

impl Bounded {
    /// Lays the file for a refusal beside the report.
    pub(super) fn prepare(report_path: &Path) -> io::Result<Bounded> {
        let path = report_path.with_extension("refusal");
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true).mode(0o600);
        Ok(Bounded { refusal: options.open(&path)?, path })
    }

    pub(super) fn command(&self, order: &Order<'_>) -> io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(WITHIN).arg(&self.path).args(order.bounds);
        command.arg("--").arg(order.program).args(order.words);
        Ok(command)
    }

    /// The error number, once the process has ended: `None` where it became the program.
    pub(super) fn refused(&mut self) -> Option<i32> {
        // Its name goes before the bounds are set: it has not come so far.
        if remove_file(&self.path).is_ok() {
            return Some(Errno::IO.raw_os_error());
        }
        let mut bytes = [0; 4];
        self.refusal.read_exact(&mut bytes).ok()?;
        Some(i32::from_le_bytes(bytes))
    }
}

/// Sets the bounds for this process and all that it starts, and becomes the program. Returns only an
/// error. What it holds open closes by itself then.
pub(super) fn become_program(refusal: &OsStr, order: &Order<'_>) -> io::Result<Infallible> {
    let mut file = OpenOptions::new().write(true).open(refusal)?;
    remove_file(refusal)?;
    let bounded = order.shut_in().and_then(|()| order.limits.iter().try_for_each(bound));
    let error = bounded.err().unwrap_or_else(|| {
        let mut waits_ms = START_WAITS_MS.iter();
        loop {
            let error = Command::new(order.program).args(order.words).exec();
            match waits_ms.next().filter(|_| is_passing(&error)) {
                Some(wait_ms) => thread::sleep(Duration::from_millis(*wait_ms)),
                None => break error,
            }
        }
    });
    let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
    file.write_all(&errno.to_le_bytes())?;
    Err(error)
}

/// Sets one bound, hard, so that nobody below can raise it; one that is lower already stays.
fn bound(limit: &Limit) -> io::Result<()> {
    let (resource, soft, hard) = match *limit {
        Limit::Memory(bytes) => (Resource::As, bytes, bytes),
        // At the first it gets XCPU, which it may take; at the second KILL.
        Limit::CpuTime(seconds) => (Resource::Cpu, seconds, seconds.saturating_add(1)),
        Limit::Processes(count) => (Resource::Nproc, count, count),
        Limit::OpenFiles(count) => (Resource::Nofile, count, count),
        Limit::FileSize(bytes) => (Resource::Fsize, bytes, bytes),
    };
    let hard = getrlimit(resource).maximum.map_or(hard, |now| now.min(hard));
    setrlimit(resource, Rlimit { current: Some(soft.min(hard)), maximum: Some(hard) })?;
    Ok(())
}
