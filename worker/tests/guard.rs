//! The guard by itself, spoken to as a worker does.
#![expect(
    clippy::unwrap_used,
    reason = "this is how a test fails, also in the functions that tests share"
)]

#[path = "guard/bounds.rs"]
mod bounds;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::getuid;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use toolfleet_io::clock::boot_ms;

const GUARD: &str = env!("CARGO_BIN_EXE_toolfleet-guard");
const WORKER: &str = env!("CARGO_BIN_EXE_toolfleet-worker");
/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(10);
const HOUR_MS: u64 = 3_600_000;
/// A user that may do nothing here.
const NOBODY: u32 = 65_534;

/// Kinds of a report.
const ENDED: u32 = 1;
const NOT_STARTED: u32 = 2;
const LEASE_OVER: u32 = 3;

/// A program under the guard; this test is its worker.
struct Guarded {
    folder: TempDir,
    line: Option<File>,
    report: File,
    guard: Child,
}

/// What a guard finds before it starts.
fn lay() -> (TempDir, PathBuf, File) {
    let folder = tempfile::tempdir().unwrap();
    let line = folder.path().join("line");
    mknodat(CWD, &line, FileType::Fifo, Mode::from_bits_retain(0o666), 0).unwrap();
    let report = folder.path().join("report");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(report).unwrap();
    (folder, line, file)
}

fn command(folder: &Path, words: &[&str]) -> Command {
    command_of(Path::new(GUARD), folder, words)
}

fn command_of(guard: &Path, folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(guard);
    command.arg(folder.join("line")).arg(folder.join("report")).arg("--").args(words);
    command.process_group(0).current_dir(folder);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

impl Guarded {
    fn start(left_ms: u64, words: &[&str]) -> Guarded {
        let (folder, line, report) = lay();
        let line = OpenOptions::new().read(true).write(true).open(line).unwrap();
        let guard = spawn(&mut command(folder.path(), words), &line, left_ms);
        Guarded { folder, line: Some(line), report, guard }
    }

    /// A shell script; it works in the folder of the line.
    fn script(left_ms: u64, script: &str) -> Guarded {
        Guarded::start(left_ms, &["/bin/sh", "-c", script])
    }

    fn tell(&mut self, bytes: &[u8]) {
        self.line.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Waits for the guard's end: its status, and kind and value of its report.
    fn end(&mut self) -> (ExitStatus, Option<(u32, i32)>) {
        let mut status = None;
        within(|| {
            status = self.guard.try_wait().unwrap();
            status.is_some()
        });
        let mut bytes = Vec::new();
        self.report.read_to_end(&mut bytes).unwrap();
        let report = bytes.first_chunk::<8>().map(|[k0, k1, k2, k3, value @ ..]| {
            (u32::from_le_bytes([*k0, *k1, *k2, *k3]), i32::from_le_bytes(*value))
        });
        (status.unwrap(), report)
    }

    fn output(&mut self) -> String {
        io::read_to_string(self.guard.stdout.take().unwrap()).unwrap()
    }

    /// Waits for a process id that the script writes to a file of this name.
    fn pid(&self, name: &str) -> u32 {
        let path = self.folder.path().join(name);
        let read = || fs::read_to_string(&path).unwrap_or_default().trim().parse::<u32>().ok();
        within(|| read().is_some());
        read().unwrap()
    }
}

/// Starts a guard that hears at once how long the lease lasts.
fn spawn(command: &mut Command, mut line: &File, left_ms: u64) -> Child {
    line.write_all(&(boot_ms() + left_ms).to_le_bytes()).unwrap();
    spawn_fresh(command)
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // The guard ends what is left.
        self.line = None;
        let _ = self.guard.wait();
    }
}

#[track_caller]
fn within(mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < SOON, "it holds in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process is gone, or a zombie that waits for a parent outside of this test.
fn is_gone(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    stat.rsplit(')').next().unwrap().trim_start().starts_with('Z')
}

/// A tool with a child and a grandchild, none of which hears TERM or HUP.
const TREE: &str = "trap '' TERM HUP; echo $$ > tool; \
    (sh -c 'echo $$ > child; sh -c \"echo \\$\\$ > grandchild; sleep 60; :\"; :') & \
    while :; do sleep 1; done";

fn tree(guarded: &Guarded) -> [u32; 3] {
    ["tool", "child", "grandchild"].map(|name| guarded.pid(name))
}

#[test]
fn it_reports_how_the_tool_ended_and_adds_nothing() {
    for (end, raw, code) in [("exit 0", 0, 0), ("exit 3", 3 << 8, 3), ("kill -9 $$", 9, 137)] {
        let mut guarded = Guarded::script(HOUR_MS, &format!("printf out; {end}"));
        assert_eq!(guarded.output(), "out");
        let (status, report) = guarded.end();
        assert_eq!((status.code(), report), (Some(code), Some((ENDED, raw))), "{end}");
    }
}

#[test]
fn a_closed_line_ends_the_whole_group() {
    let mut guarded = Guarded::script(HOUR_MS, TREE);
    let pids = tree(&guarded);
    guarded.line = None;
    let (status, report) = guarded.end();
    assert_eq!((status.signal(), report), (Some(9), None));
    within(|| pids.iter().all(|pid| is_gone(*pid)));
}

#[test]
fn children_that_outlive_the_tool_are_watched_all_the_same() {
    let script = "sh -c 'echo $$ > child; exec sleep 60' >/dev/null & \
                  while [ ! -s child ]; do sleep 0.01; done; exit 4";
    for is_closed in [true, false] {
        let mut guarded = Guarded::script(HOUR_MS, script);
        assert_eq!(guarded.output(), "", "whoever keeps watching holds no pipe of the tool");
        assert_eq!(guarded.end().1, Some((ENDED, 4 << 8)));
        let child = guarded.pid("child");
        assert!(!is_gone(child));
        if is_closed {
            guarded.line = None;
        } else {
            guarded.tell(&(boot_ms() + 2_000).to_le_bytes());
            assert!(!is_gone(child));
        }
        within(|| is_gone(child));
    }
}

#[test]
fn it_ends_the_group_when_the_newest_instant_has_passed_and_not_before() {
    let mut guarded = Guarded::script(1_500, TREE);
    let over_at_ms = boot_ms() + 4_000;
    guarded.tell(&(boot_ms() + 2_000).to_le_bytes());
    guarded.tell(&over_at_ms.to_le_bytes());
    let pids = tree(&guarded);
    let (status, report) = guarded.end();
    let ended_at_ms = boot_ms();
    assert_eq!((status.signal(), report), (Some(9), Some((LEASE_OVER, 0))));
    assert!((over_at_ms..over_at_ms + 5_000).contains(&ended_at_ms), "{over_at_ms} {ended_at_ms}");
    within(|| pids.iter().all(|pid| is_gone(*pid)));
}

#[test]
fn what_is_no_instant_ends_the_group() {
    let mut guarded = Guarded::script(HOUR_MS, TREE);
    let pids = tree(&guarded);
    guarded.tell(b"later");
    let (status, report) = guarded.end();
    assert_eq!((status.signal(), report), (Some(9), None));
    within(|| pids.iter().all(|pid| is_gone(*pid)));
}

#[test]
fn without_a_worker_nothing_is_started() {
    let (folder, _, mut report) = lay();
    let mut guard = command(folder.path(), &["/bin/sh", "-c", ": > started"]).spawn().unwrap();
    within(|| guard.try_wait().unwrap().is_some());
    assert!(!folder.path().join("started").exists());
    let mut bytes = Vec::new();
    report.read_to_end(&mut bytes).unwrap();
    assert!(bytes.is_empty(), "{bytes:?}");
}

#[test]
fn a_program_that_does_not_start_is_reported_by_its_error_number() {
    for (program, errno) in [("/no/such", 2), ("no-such-program", 2), ("/bin", 13)] {
        let (_, report) = Guarded::start(HOUR_MS, &[program]).end();
        assert_eq!(report, Some((NOT_STARTED, errno)), "{program}");
    }
}

#[test]
fn it_kills_no_group_that_is_not_its_own() {
    let (folder, line, _) = lay();
    let _line = OpenOptions::new().read(true).write(true).open(line).unwrap();
    let mut guard = command(folder.path(), &["/bin/sh", "-c", ": > started"]);
    // Of another group: this process's.
    let own = rustix::process::getpgrp().as_raw_nonzero().get();
    let status = guard.process_group(own).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(2));
    assert!(!folder.path().join("started").exists());
}

#[test]
fn signals_of_the_tool_to_its_own_group_leave_the_guard() {
    let signals = "HUP INT QUIT USR1 USR2 ALRM TERM";
    let script = format!(
        "trap '' {signals}; for signal in {signals}; do kill -s $signal 0; done; sleep 0.1; exit 5"
    );
    let (_, report) = Guarded::script(HOUR_MS, &script).end();
    assert_eq!(report, Some((ENDED, 5 << 8)));
}

#[test]
fn term_is_the_tools_to_take() {
    let mut guarded = Guarded::script(
        HOUR_MS,
        "trap 'exit 7' TERM; echo $$ > tool; while :; do sleep 0.05; done",
    );
    guarded.pid("tool");
    let group = i32::try_from(guarded.guard.id()).unwrap();
    let group = rustix::process::Pid::from_raw(group).unwrap();
    rustix::process::kill_process_group(group, rustix::process::Signal::TERM).unwrap();
    assert_eq!(guarded.end().1, Some((ENDED, 7 << 8)));
}

/// Runs as nobody where this test is root, since nothing is hidden from root.
fn unprivileged(command: &mut Command) {
    if getuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
}

/// A copy of a program that anybody may run, wherever this was built; in a folder to be kept.
fn open_copy(program: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    open_to_all(&folder);
    let copy = folder.path().join("program");
    fs::copy(program, &copy).unwrap();
    fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
    (folder, copy)
}

/// A process that another test starts just then may hold the fresh copy open for a moment.
fn spawn_fresh(command: &mut Command) -> Child {
    let mut child = None;
    within(|| {
        match command.spawn() {
            Ok(started) => child = Some(started),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ExecutableFileBusy, "{error}"),
        }
        child.is_some()
    });
    child.unwrap()
}

fn open_to_all(folder: &TempDir) {
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    for name in ["line", "report"] {
        let path = folder.path().join(name);
        if path.exists() {
            fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
        }
    }
}

/// What is not dumpable belongs to root in /proc, whoever runs it.
fn is_concealed(pid: u32) -> bool {
    fs::metadata(format!("/proc/{pid}/environ")).is_ok_and(|metadata| metadata.uid() == 0)
}

#[test]
fn a_tool_can_neither_reach_its_guard_nor_gain_privileges() {
    let (folder, line, report) = lay();
    open_to_all(&folder);
    let line = OpenOptions::new().read(true).write(true).open(line).unwrap();
    let script = "echo $$ > tool; ls -A; ls /proc/$PPID/fd 2>/dev/null; \
                  grep NoNewPrivs /proc/self/status; read wait";
    let (_copy, program) = open_copy(GUARD);
    let mut command = command_of(&program, folder.path(), &["/bin/sh", "-c", script]);
    command.stdin(Stdio::piped());
    unprivileged(&mut command);
    let guard = spawn(&mut command, &line, HOUR_MS);
    let mut guarded = Guarded { folder, line: Some(line), report, guard };
    let tool = guarded.pid("tool");
    assert!(is_concealed(guarded.guard.id()));
    assert!(!is_concealed(tool), "a tool is as open as ever");
    drop(guarded.guard.stdin.take());
    // Of the folder only its own file, of the guard's descriptors none.
    assert_eq!(guarded.output(), "tool\nNoNewPrivs:\t1\n");
}

#[test]
fn a_worker_is_concealed() {
    // A broker that never speaks keeps it where it is.
    let broker = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    open_to_all(&folder);
    let (_copy, program) = open_copy(WORKER);
    let mut command = Command::new(program);
    command
        .current_dir(folder.path())
        .env("TOOLFLEET_NATS__URL", format!("nats://{}", broker.local_addr().unwrap()))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    unprivileged(&mut command);
    let mut worker = spawn_fresh(&mut command);
    let (_connection, _) = broker.accept().unwrap();
    let is_hidden = is_concealed(worker.id());
    worker.kill().unwrap();
    worker.wait().unwrap();
    assert!(is_hidden);
}

#[test]
fn a_worker_without_its_guard_refuses_exec_tools() {
    // On the file system of the binary, so that it can be linked to.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let worker = folder.path().join("toolfleet-worker");
    fs::hard_link(WORKER, &worker).unwrap();
    let manifest = "description = \"D\"\n[run]\nexec = [\"sh\"]\n";
    fs::create_dir(folder.path().join("tools")).unwrap();
    fs::write(folder.path().join("tools/a.toml"), manifest).unwrap();
    let mut command = Command::new(&worker);
    let output = command.args(["--tools", "tools"]).current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(78), "{said}");
    let guard = folder.path().canonicalize().unwrap().join("toolfleet-guard");
    assert!(said.starts_with(&format!("{}: exec.no-guard: ", guard.display())), "{said}");
}
