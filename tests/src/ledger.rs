//! A file that a tool appends to: what really ran, whatever the fleet believes.

use crate::wait::until;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The lines of one ledger: `start <attempt> <pid>` and `end <attempt> <pid>`.
#[derive(Clone, Debug)]
pub struct Ledger {
    path: PathBuf,
}

impl Ledger {
    /// The ledger at a path; the file need not exist yet.
    pub fn at(path: impl Into<PathBuf>) -> Ledger {
        Ledger { path: path.into() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its lines so far.
    pub fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Attempt and process id of every start so far.
    pub fn starts(&self) -> Vec<(u32, u32)> {
        self.lines().iter().filter_map(|line| read_line(line, "start")).collect()
    }

    /// Attempt and process id of every end so far.
    pub fn ends(&self) -> Vec<(u32, u32)> {
        self.lines().iter().filter_map(|line| read_line(line, "end")).collect()
    }

    /// Waits for the start of an attempt; then the id of the process that runs it.
    pub async fn started(&self, attempt: u32, within: Duration) -> anyhow::Result<u32> {
        let what = format!("attempt {attempt} has started in {}", self.path.display());
        until(&what, within, async || {
            self.starts().into_iter().find(|(number, _)| *number == attempt).map(|(_, pid)| pid)
        })
        .await
    }
}

fn read_line(line: &str, word: &str) -> Option<(u32, u32)> {
    let mut words = line.strip_prefix(word)?.split_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_and_ends_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::at(dir.path().join("ledger"));
        assert!(ledger.lines().is_empty());
        std::fs::write(ledger.path(), "start 1 70\nstart 2 71\nend 2 71\nsta").unwrap();
        assert_eq!(ledger.starts(), [(1, 70), (2, 71)]);
        assert_eq!(ledger.ends(), [(2, 71)]);
    }
}
