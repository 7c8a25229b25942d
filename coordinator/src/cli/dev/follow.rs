//! `--verbose`: what the children write to their logs, also on standard error.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const PERIOD: Duration = Duration::from_millis(100);
const READ_BYTES_MAX: u64 = 256 * 1024;

/// A log that is passed on line by line.
pub(super) struct Log {
    path: PathBuf,
    prefix: String,
    /// Only lines that begin with this are passed on, without it.
    only: Option<&'static str>,
    offset: u64,
}

impl Log {
    /// Passes on `path`, once it exists, each line after `prefix`.
    pub(super) fn new(path: PathBuf, prefix: impl std::fmt::Display) -> Log {
        Log { path, prefix: format!("[{prefix}] "), only: None, offset: 0 }
    }

    /// Passes on what a worker says of the folder that it follows.
    pub(super) fn of_tools(path: PathBuf) -> Log {
        Log { path, prefix: "tools: ".into(), only: Some("tools: "), offset: 0 }
    }

    /// Writes the whole lines that are new since the last call. `last` takes a line without end too.
    fn pass_on(&mut self, out: &mut impl Write, last: bool) -> std::io::Result<()> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.take(READ_BYTES_MAX).read_to_end(&mut bytes)?;
        let full = last || bytes.len() as u64 == READ_BYTES_MAX;
        let whole = match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            None if full => bytes.len(),
            None => 0,
        };
        self.offset += whole as u64;
        for line in String::from_utf8_lossy(&bytes[..whole]).lines() {
            match self.only {
                None => writeln!(out, "{}{line}", self.prefix)?,
                Some(mark) => {
                    if let Some(rest) = line.strip_prefix(mark) {
                        writeln!(out, "{}{rest}", self.prefix)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Passes `logs` on until `end`, and what was written until then.
pub(super) async fn follow(mut logs: Vec<Log>, end: CancellationToken) {
    loop {
        let last = tokio::time::timeout(PERIOD, end.cancelled()).await.is_ok();
        for log in &mut logs {
            // There is no log before its child first starts.
            let _ = log.pass_on(&mut std::io::stderr().lock(), last);
        }
        if last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_worker_only_its_words_on_tools_are_passed_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "INFO ready\ntools: a.toml:3: faulty\n").unwrap();
        let mut out = Vec::new();
        Log::of_tools(path).pass_on(&mut out, false).unwrap();
        assert_eq!(out, b"tools: a.toml:3: faulty\n");
    }

    #[test]
    fn lines_are_passed_on_once_and_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = Log::new(path.clone(), "worker-1");
        let mut out = Vec::new();
        assert!(log.pass_on(&mut out, false).is_err());
        std::fs::write(&path, "one\ntw").unwrap();
        log.pass_on(&mut out, false).unwrap();
        assert_eq!(out, b"[worker-1] one\n");
        std::fs::write(&path, "one\ntwo\nthree").unwrap();
        log.pass_on(&mut out, false).unwrap();
        log.pass_on(&mut out, false).unwrap();
        assert_eq!(out, b"[worker-1] one\n[worker-1] two\n");
    }
}
