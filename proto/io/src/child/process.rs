//! One child process: its own process group, its log in a file, a bounded end.

use super::Error;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::Instant;

const POLL_MS: u64 = 15;
const TAIL_BYTES_MAX: u64 = 8 * 1024;
const TAIL_LINES_MAX: usize = 20;

/// What became of a child process; the number is its process id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It runs. Told before it is ready.
    Started(u32),
    /// It ended and was reaped; its id may belong to another process from now on.
    Ended(u32),
}

/// Is told of every process that starts and ends. Must not block for long.
pub type Observer = Arc<dyn Fn(Change) + Send + Sync>;

/// A child process in its own process group, so that Ctrl-C of a terminal does not reach it. Killed
/// when dropped.
pub struct Process {
    name: String,
    child: Child,
    pid: u32,
    log: PathBuf,
    log_offset: u64,
    observer: Option<Observer>,
    ended: bool,
}

impl Process {
    /// Runs `command`, its output appended to the file `log`, and without input. Must be called in a
    /// tokio runtime.
    pub fn spawn(
        name: &str,
        mut command: Command,
        log: &Path,
        observer: Option<Observer>,
    ) -> Result<Process, Error> {
        let files = |source| Error::Files { path: log.into(), source };
        let out = OpenOptions::new().create(true).append(true).open(log).map_err(files)?;
        let log_offset = out.metadata().map_err(files)?.len();
        let err = out.try_clone().map_err(files)?;
        command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0).kill_on_drop(true);
        let program = PathBuf::from(command.as_std().get_program());
        let child = command.spawn().map_err(|source| Error::Spawn { program, source })?;
        let pid = child.id().unwrap_or_default();
        if let Some(observer) = &observer {
            observer(Change::Started(pid));
        }
        let log = log.into();
        Ok(Process { name: name.into(), child, pid, log, log_offset, observer, ended: false })
    }

    /// Its process id, also after its end.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The file that holds its output.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Resolves when it has ended. May be dropped and called again.
    pub async fn wait(&mut self) -> Result<ExitStatus, Error> {
        let waited = self.child.wait().await;
        self.note_end(waited.map(Some)).map(Option::unwrap_or_default)
    }

    /// How it ended; nothing while it runs.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>, Error> {
        let status = self.child.try_wait();
        self.note_end(status)
    }

    fn note_end(
        &mut self,
        status: std::io::Result<Option<ExitStatus>>,
    ) -> Result<Option<ExitStatus>, Error> {
        let status = status.map_err(|source| Error::Wait { name: self.name.clone(), source })?;
        if status.is_some() && !self.ended {
            self.ended = true;
            if let Some(observer) = &self.observer {
                observer(Change::Ended(self.pid));
            }
        }
        Ok(status)
    }

    /// SIGKILL to its whole process group; resolves when it was reaped. No fault where it has ended.
    pub async fn kill(&mut self) -> Result<ExitStatus, Error> {
        if let Some(pid) = self.live_pid() {
            // A process that ended in this moment is reaped below all the same.
            let _ = kill_process_group(pid, Signal::KILL);
        }
        self.wait().await
    }

    /// SIGTERM, then SIGKILL where it still runs `grace_ms` later.
    pub async fn stop(&mut self, grace_ms: u64) -> Result<ExitStatus, Error> {
        if let Some(pid) = self.live_pid() {
            let _ = kill_process(pid, Signal::TERM);
        }
        match tokio::time::timeout(Duration::from_millis(grace_ms), self.wait()).await {
            Ok(status) => status,
            Err(_elapsed) => self.kill().await,
        }
    }

    /// Its id as long as nobody reaped it, so that no signal can reach a stranger.
    fn live_pid(&self) -> Option<Pid> {
        self.child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
    }

    /// Asks `probe` every few milliseconds until it answers. Fails when the process ends, when
    /// `timeout_ms` has passed, or when the probe itself fails.
    pub async fn until_ready<T, Answer>(
        &mut self,
        timeout_ms: u64,
        probe: impl Fn() -> Answer,
    ) -> Result<T, Error>
    where
        Answer: Future<Output = Result<Option<T>, Error>>,
    {
        let deadline = Instant::now() + Duration::from_millis(timeout_ms);
        loop {
            if let Some(status) = self.exited()? {
                let (name, log) = (self.name.clone(), self.log.clone());
                return Err(Error::Exited { name, status, log, log_tail: self.log_tail() });
            }
            if let Some(answer) = probe().await? {
                return Ok(answer);
            }
            if Instant::now() >= deadline {
                let (name, log) = (self.name.clone(), self.log.clone());
                return Err(Error::Timeout { name, timeout_ms, log, log_tail: self.log_tail() });
            }
            tokio::time::sleep(Duration::from_millis(POLL_MS)).await;
        }
    }

    /// The last lines (at most 20) that this run wrote to its log; empty where it cannot be read.
    pub fn log_tail(&self) -> String {
        tail(&self.log, self.log_offset).unwrap_or_default()
    }
}

/// The last lines (at most 20) of a log, whichever run wrote them; empty where it cannot be read.
pub fn log_tail(log: &Path) -> String {
    tail(log, 0).unwrap_or_default()
}

fn tail(log: &Path, offset: u64) -> std::io::Result<String> {
    let mut file = File::open(log)?;
    let from = offset.max(file.metadata()?.len().saturating_sub(TAIL_BYTES_MAX));
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    Ok(lines[lines.len().saturating_sub(TAIL_LINES_MAX)..].join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    async fn said(process: &mut Process, word: &str) {
        let log = process.log().to_path_buf();
        let probe = || {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let found = text.contains(word).then_some(());
            async move { Ok(found) }
        };
        process.until_ready(10_000, probe).await.unwrap();
    }

    #[tokio::test]
    async fn the_observer_hears_of_a_start_and_one_end() {
        let dir = tempfile::tempdir().unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&heard);
        let observer: Observer = Arc::new(move |change| sink.lock().unwrap().push(change));
        let log = dir.path().join("log");
        let mut process = Process::spawn("sh", shell("exit 3"), &log, Some(observer)).unwrap();
        assert_eq!(process.wait().await.unwrap().code(), Some(3));
        process.kill().await.unwrap();
        let pid = process.pid();
        assert_eq!(*heard.lock().unwrap(), vec![Change::Started(pid), Change::Ended(pid)]);
    }

    #[tokio::test]
    async fn what_ignores_term_is_killed_after_the_grace() {
        use std::os::unix::process::ExitStatusExt;
        let dir = tempfile::tempdir().unwrap();
        let script = "trap '' TERM; echo set; while :; do sleep 0.05; done";
        let mut process =
            Process::spawn("sh", shell(script), &dir.path().join("log"), None).unwrap();
        said(&mut process, "set").await;
        assert_eq!(process.stop(100).await.unwrap().signal(), Some(9));
    }

    #[tokio::test]
    async fn an_early_end_shows_the_tail_of_this_run_only() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        std::fs::write(&log, "an older run\n").unwrap();
        let script = "i=0; while [ $i -lt 50 ]; do i=$((i+1)); echo line $i; done; exit 1";
        let mut process = Process::spawn("sh", shell(script), &log, None).unwrap();
        let never = || async { Ok(None::<()>) };
        let error = process.until_ready(10_000, never).await.unwrap_err();
        let Error::Exited { log_tail, .. } = error else { panic!("{error}") };
        assert_eq!(log_tail.lines().next(), Some("line 31"));
        assert_eq!(log_tail.lines().count(), 20);

        std::fs::write(&log, "an older run\n").unwrap();
        let process = Process::spawn("sh", shell("exit 0"), &log, None).unwrap();
        assert_eq!(process.log_tail(), "");
    }

    #[tokio::test]
    async fn a_process_that_is_never_ready_runs_into_the_timeout() {
        let dir = tempfile::tempdir().unwrap();
        let mut process =
            Process::spawn("sh", shell("sleep 60"), &dir.path().join("log"), None).unwrap();
        let never = || async { Ok(None::<()>) };
        let error = process.until_ready(50, never).await.unwrap_err();
        assert!(matches!(error, Error::Timeout { timeout_ms: 50, .. }), "{error}");
    }
}
