//! Ends the processes of a tool whose worker is gone, or has not renewed its lease in time
//! (DESIGN 4.5).
//!
//! `toolfleet-guard LINE REPORT -- PROGRAM [WORD]...` is started by the worker as the leader of a process
//! group of its own. LINE is a FIFO whose other end the worker holds. On it come instants, 8 bytes each,
//! little-endian: milliseconds of the boot clock, the newest counts. The whole group, the guard
//! included, is killed when that instant has passed, when the other end is closed, and when something
//! else comes. REPORT is a file that takes how the tool ended. Both lose their names before the tool
//! starts, and the guard is not dumpable: a tool of the same user cannot write to either.
//!
//! `toolfleet-guard LINE REPORT GRANT... -- PROGRAM [WORD]...` shuts the program in: it may use what the
//! words grant, e.g. `read=/usr`, and signal what it has started. This must not hold for the guard, so
//! a thread shuts itself in and starts the program.
//!
//! With a LIMIT among the words, e.g. `memory=1048576`, it starts within bounds. They hold for a whole
//! process, so another one sets them for itself and then becomes the program:
//! `toolfleet-guard --within REFUSAL [LIMIT|GRANT]... -- PROGRAM [WORD]...`, where the file REFUSAL, which
//! loses its name as well, takes why it could not.
//!
//! A tool that ends may leave children, which have a moment to write what they still have to say. Then
//! `toolfleet-guard --linger INSTANT` takes the watch over, with the line as its standard input, until
//! the worker kills the group.
//!
//! A child that has left the group (`setsid`) is out of reach.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpgrp, getpid, kill_current_process_group,
    kill_process, wait,
};
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions, remove_file};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

#[path = "../runner/exec/grant.rs"]
#[cfg_attr(not(test), expect(dead_code, reason = "the worker writes what is read here"))]
mod grant;
#[path = "../runner/exec/limits.rs"]
#[cfg_attr(not(test), expect(dead_code, reason = "the worker writes what is read here"))]
mod limits;
#[path = "../runner/exec/report.rs"]
#[cfg_attr(not(test), expect(dead_code, reason = "the worker reads what is written here"))]
mod report;
#[path = "../guard/shut_in.rs"]
mod shut_in;
#[path = "../guard/within.rs"]
mod within;

use report::Report;
use within::{Bounded, Order, WITHIN, become_program};

/// The first word of a guard that keeps watching after the tool's end.
const LINGER: &str = "--linger";

/// Exit code of wrong arguments.
const EXIT_USAGE: u8 = 2;
/// Exit code where the tool was not started, or its end could not be reported.
const EXIT_FAULT: u8 = 70;
/// Added to a signal's number for the exit code, as shells do; the report is exact.
const EXIT_SIGNAL: i32 = 128;

/// Signals that a tool may send to its whole group without ending its guard.
const IGNORED: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM];

/// Waits before each further attempt to start what could not be started for a passing cause; half
/// a second together.
const START_WAITS_MS: [u64; 5] = [20, 40, 80, 160, 200];

/// The longest sleep between two looks at the clock: a suspended machine stops the time of a sleep, but
/// not that of the boot clock.
const LOOK_MS: u64 = 200;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let [word, instant] = words.as_slice()
        && word == LINGER
    {
        let Err(error) = linger(instant);
        return complain(&error, EXIT_FAULT);
    }
    if let [word, refusal, rest @ ..] = words.as_slice()
        && word == WITHIN
        && let Some(order) = Order::read(rest)
    {
        let Err(error) = become_program(refusal, &order);
        return complain(&error, EXIT_FAULT);
    }
    let order = match words.as_slice() {
        [line, report_path, rest @ ..] => Order::read(rest).map(|order| (line, report_path, order)),
        _ => None,
    };
    let Some((line, report_path, order)) = order else {
        let usage = "usage: toolfleet-guard LINE REPORT [LIMIT|GRANT]... -- PROGRAM [WORD]...";
        return complain(&usage, EXIT_USAGE);
    };
    // Otherwise the group that it kills would be somebody else's.
    if getpgrp() != getpid() {
        return complain(&"a worker starts it, as the leader of a process group", EXIT_USAGE);
    }
    let report = match OpenOptions::new().write(true).open(report_path) {
        Ok(file) => Arc::new(file),
        Err(error) => return complain(&error, EXIT_FAULT),
    };
    let guarded = Line::open(line).and_then(|line| {
        remove_file(report_path)?;
        guard(line, &report, Path::new(report_path), &order)
    });
    let (told, code) = match guarded {
        Ok(Some(Ended::Itself(status))) => (Report::Ended(status.as_raw()), exit_code(status)),
        Ok(Some(Ended::Refused(errno))) => (Report::NotStarted(errno), EXIT_FAULT),
        // The worker is gone, or has changed its mind: nobody reads.
        Ok(None) => return ExitCode::from(EXIT_FAULT),
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            (Report::NotStarted(errno), EXIT_FAULT)
        }
    };
    match report.as_ref().write_all(&told.encode()) {
        Ok(()) => ExitCode::from(code),
        Err(error) => complain(&error, EXIT_FAULT),
    }
}

fn complain(error: &dyn std::fmt::Display, code: u8) -> ExitCode {
    let _ = writeln!(io::stderr().lock(), "toolfleet-guard: {error}");
    ExitCode::from(code)
}

fn exit_code(status: WaitStatus) -> u8 {
    let signal = status.terminating_signal().unwrap_or_default();
    status.exit_status().unwrap_or(EXIT_SIGNAL + signal) as u8
}

/// How a tool came to its end.
enum Ended {
    /// With this status.
    Itself(WaitStatus),
    /// Its bounds were set, and then it could not be started: an error number.
    Refused(i32),
}

/// Runs the tool to its end. `None`: it was not started, and nobody wants to know why.
fn guard(
    mut line: Line,
    report: &Arc<File>,
    report_path: &Path,
    order: &Order<'_>,
) -> io::Result<Option<Ended>> {
    let is_told_to_end = take_signals()?;
    if !line.hear() {
        return Ok(None);
    }
    // Before the thread and the tool, so that both have it.
    harden()?;
    let (fifo, over_at_ms) = (line.fifo.try_clone()?, Arc::clone(&line.over_at_ms));
    let for_watch = Arc::clone(report);
    thread::Builder::new().spawn(move || watch(line, Some(&for_watch)))?;
    let mut bounded = None;
    let started = if order.limits.is_empty() {
        let mut command = Command::new(order.program);
        command.args(order.words);
        start_shut_in(&mut command, order, &is_told_to_end)
    } else {
        let mut command = bounded.insert(Bounded::prepare(report_path)?).command(order)?;
        start(&mut command, &is_told_to_end)
    };
    let Some(tool) = started? else { return Ok(None) };
    // A signal to the group may have come just before the tool was of it.
    if is_told_to_end.load(Ordering::SeqCst) {
        let _ = kill_process(tool, Signal::TERM);
    }
    let status = reap_until(tool)?;
    if has_children() {
        // Should it fail, they are still the worker's to kill.
        let _ = hand_over(fifo, over_at_ms.load(Ordering::SeqCst));
    }
    let refused = bounded.as_mut().and_then(Bounded::refused);
    Ok(Some(refused.map_or(Ended::Itself(status), Ended::Refused)))
}

/// Reaps whoever ends, the tool's orphans too, until the tool has ended.
fn reap_until(tool: Pid) -> io::Result<WaitStatus> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == tool => return Ok(status),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether the tool has left a descendant that lives; orphans are children of this process.
fn has_children() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Starts who keeps watching. It holds none of the tool's pipes but descriptor 3.
fn hand_over(fifo: File, over_at_ms: u64) -> io::Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(LINGER).arg(over_at_ms.to_string());
    command.stdin(fifo).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok(())
}

/// Watches on, without a tool to wait for. Returns only an error.
fn linger(instant: &OsStr) -> io::Result<Infallible> {
    take_signals()?;
    harden()?;
    let over_at_ms = instant.to_str().and_then(|text| text.parse().ok());
    let over_at_ms = over_at_ms.ok_or(Errno::INVAL)?;
    let fifo = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    watch(Line { fifo, over_at_ms: Arc::new(AtomicU64::new(over_at_ms)) }, None)
}

/// TERM is for the tool, which ends in its own time; the flag says that it came. Programs that are
/// started have their own signals as ever.
fn take_signals() -> io::Result<Arc<AtomicBool>> {
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in IGNORED {
        signal_hook::flag::register(signal, Arc::clone(&ignored))?;
    }
    let is_told_to_end = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, Arc::clone(&is_told_to_end))?;
    Ok(is_told_to_end)
}

/// No new privileges for the tool, no way into this process for it, and its orphans as children.
fn harden() -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::process::{DumpableBehavior, set_child_subreaper, set_dumpable_behavior};
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        set_child_subreaper(Some(getpid()))?;
        rustix::thread::set_no_new_privs(true)?;
    }
    Ok(())
}

/// Starts the tool from a thread that has shut itself in; this one stays as it is.
fn start_shut_in(
    command: &mut Command,
    order: &Order<'_>,
    is_told_to_end: &AtomicBool,
) -> io::Result<Option<Pid>> {
    if order.grants.is_empty() {
        return start(command, is_told_to_end);
    }
    thread::scope(|scope| {
        let shut_in = || order.shut_in().and_then(|()| start(command, is_told_to_end));
        let starter = thread::Builder::new().spawn_scoped(scope, shut_in)?;
        starter.join().unwrap_or_else(|_| Err(Errno::IO.into()))
    })
}

/// Starts the tool in this group, with everything that this process was given. A passing cause (the
/// file is still open for writing somewhere, the process limit) is waited out for half a second.
fn start(command: &mut Command, is_told_to_end: &AtomicBool) -> io::Result<Option<Pid>> {
    let mut waits_ms = START_WAITS_MS.iter();
    while !is_told_to_end.load(Ordering::SeqCst) {
        match command.spawn() {
            Ok(tool) => return Ok(i32::try_from(tool.id()).ok().and_then(Pid::from_raw)),
            Err(error) if is_passing(&error) => match waits_ms.next() {
                Some(wait_ms) => thread::sleep(Duration::from_millis(*wait_ms)),
                None => return Err(error),
            },
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn is_passing(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::TXTBSY | Errno::AGAIN))
}

/// Watches line and clock for as long as this process is there.
fn watch(mut line: Line, report: Option<&File>) -> ! {
    loop {
        // What has come counts first: this process may have been stopped itself.
        let is_heard = line.hear();
        let left_ms = line.over_at_ms.load(Ordering::SeqCst).saturating_sub(boot_ms());
        if is_heard && left_ms > 0 {
            line.wait(left_ms.min(LOOK_MS));
            continue;
        }
        if let Some(mut report) = report.filter(|_| is_heard) {
            // Where it cannot be written the group is killed all the same.
            let _ = report.write_all(&Report::LeaseOver.encode());
        }
        let _ = kill_current_process_group(Signal::KILL);
        thread::sleep(Duration::from_millis(LOOK_MS));
    }
}

/// The guard's end of the line.
struct Line {
    fifo: File,
    /// The newest instant, milliseconds of the boot clock; 0 before the first.
    over_at_ms: Arc<AtomicU64>,
}

impl Line {
    /// Opens it, and takes its name away. Does not wait for a worker that is gone.
    fn open(path: &OsStr) -> io::Result<Line> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fifo = File::from(open(path, flags, Mode::empty())?);
        remove_file(path)?;
        Ok(Line { fifo, over_at_ms: Arc::default() })
    }

    /// Takes in all that has come. `false`: the worker is gone, or does not speak as it should.
    fn hear(&mut self) -> bool {
        let mut bytes = [0; 512];
        loop {
            match self.fifo.read(&mut bytes) {
                Ok(0) => return false,
                Ok(count) => {
                    let (instants, rest) = bytes.get(..count).unwrap_or_default().as_chunks();
                    let Some(newest) = instants.last().filter(|_| rest.is_empty()) else {
                        return false;
                    };
                    self.over_at_ms.store(u64::from_le_bytes(*newest), Ordering::SeqCst);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }

    /// Waits until something comes, at most so long.
    fn wait(&self, timeout_ms: u64) {
        let nanos = i64::try_from(timeout_ms * 1_000_000).unwrap_or_default();
        let timeout = Timespec { tv_sec: nanos / 1_000_000_000, tv_nsec: nanos % 1_000_000_000 };
        // Interrupted or failed, line and clock are looked at again.
        let _ = poll(&mut [PollFd::new(&self.fifo, PollFlags::IN)], Some(&timeout));
    }
}

/// Milliseconds of the clock that the worker reckons its leases by.
fn boot_ms() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let id = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let id = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(id);
    (time.tv_sec as u64) * 1_000 + (time.tv_nsec as u64) / 1_000_000
}
