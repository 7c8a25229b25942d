//! Fail points: named places in the protocol at which a test ends, stops or holds the process, where a
//! signal from outside is too coarse. Only builds with debug assertions have them; in a release build
//! [`reach`] is empty.
//!
//! They are armed by files: `TOOLFLEET_FAIL_POINTS` names a folder, and a file of it named like a stage
//! says what happens to the first process that reaches the stage. Reaching it renames the file to
//! `<stage>.reached`, so that each file works once, whoever comes.
//!
//! | content | what happens |
//! |---|---|
//! | `kill` | the process ends as by SIGKILL |
//! | `stop` | the process stops as by SIGSTOP, until SIGCONT |
//! | `hold` | this task waits until `<stage>.reached` is removed; all others go on |
//!
//! | stage | where |
//! |---|---|
//! | `publish:before`, `publish:after` | a coordinator around the job's publish and its ack |
//! | `accept:before` | between the job's ack and the last look at its execution |
//! | `cancel:before`, `mark:after` | before and after a canceller has set its mark |
//! | `end:before`, `end:after` | around storing the result of a call that its tool did not end |
//! | `tombstone:after` | a tombstone is stored, the result is not |
//! | `copy:after` | the auditor between the copy of a stranded job and the purge |
//! | `claim:before`, `claim:after` | a worker around ACQUIRE |
//! | `check:after` | a worker has looked for a result |
//! | `start:before`, `start:after` | around the start record of a write |
//! | `run:before`, `run:after` | around the tool |
//! | `commit:before`, `commit:after` | around storing a tool's result |

/// The variable that names the folder.
pub const FOLDER: &str = "TOOLFLEET_FAIL_POINTS";

/// Passes a stage. Cancel safe.
#[cfg(not(debug_assertions))]
#[inline]
#[expect(clippy::unused_async, reason = "one signature for both builds")]
pub async fn reach(_stage: &'static str) {}

/// Passes a stage, or does what the stage's file says. Cancel safe.
#[cfg(debug_assertions)]
pub async fn reach(stage: &'static str) {
    if let Some(folder) = armed::folder() {
        armed::reach(folder, stage).await;
    }
}

#[cfg(debug_assertions)]
mod armed {
    use std::path::{Path, PathBuf};
    use std::sync::OnceLock;
    use std::time::Duration;

    /// How often a held task looks whether it may go on.
    const LOOK: Duration = Duration::from_millis(5);

    /// The folder that the environment names, read once.
    pub(super) fn folder() -> Option<&'static Path> {
        static SET: OnceLock<Option<PathBuf>> = OnceLock::new();
        SET.get_or_init(|| std::env::var_os(super::FOLDER).map(PathBuf::from)).as_deref()
    }

    pub(super) async fn reach(folder: &Path, stage: &str) {
        let reached = folder.join(format!("{stage}.reached"));
        // The rename takes it: of many that come at once, one.
        if std::fs::rename(folder.join(stage), &reached).is_err() {
            return;
        }
        let what = std::fs::read_to_string(&reached).unwrap_or_default();
        tracing::warn!(stage, what = what.trim(), "a fail point was reached");
        match what.trim() {
            "kill" => signal(rustix::process::Signal::KILL),
            "stop" => signal(rustix::process::Signal::STOP),
            _ => {
                while reached.exists() {
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
    }

    fn signal(signal: rustix::process::Signal) {
        let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[tokio::test]
        async fn a_file_holds_the_first_that_comes_and_nobody_else() {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("claim:after"), "hold").unwrap();
            let path = folder.path().to_path_buf();
            let held = tokio::spawn(async move { reach(&path, "claim:after").await });
            let reached = folder.path().join("claim:after.reached");
            while !reached.exists() {
                tokio::time::sleep(LOOK).await;
            }
            reach(folder.path(), "claim:after").await;
            reach(folder.path(), "start:after").await;
            assert!(!held.is_finished());
            std::fs::remove_file(&reached).unwrap();
            held.await.unwrap();
        }
    }
}
