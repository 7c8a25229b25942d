//! The folder of a `dev`: data of the servers, logs, ready files of the children, and a lock.

use super::report::Failure;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A state folder that this process alone uses. One that was not asked for goes with it.
pub(super) struct StateDir {
    path: PathBuf,
    lock: File,
    temporary: Option<tempfile::TempDir>,
}

impl StateDir {
    /// Takes `given`, made where missing, or a temporary folder, and clears what an older run left
    /// except for the servers' data.
    pub(super) fn open(given: Option<&Path>) -> Result<StateDir, Failure> {
        let fault = |path: &Path, error: &dyn std::fmt::Display| {
            Failure::Configuration(format!(
                "could not use state folder {}: {error}",
                path.display()
            ))
        };
        let (path, temporary) = if let Some(path) = given {
            (std::path::absolute(path).map_err(|error| fault(path, &error))?, None)
        } else {
            let dir = tempfile::Builder::new()
                .prefix("toolfleet-dev-")
                .tempdir()
                .map_err(|error| fault(&std::env::temp_dir(), &error))?;
            (dir.path().to_path_buf(), Some(dir))
        };
        std::fs::create_dir_all(&path).map_err(|error| fault(&path, &error))?;
        let lock = File::create(path.join("lock")).map_err(|error| fault(&path, &error))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            if error == rustix::io::Errno::WOULDBLOCK {
                fault(
                    &path,
                    &"another toolfleet dev, or the children of one that was killed, use it",
                )
            } else {
                fault(&path, &error)
            }
        })?;
        for name in ["logs", "run"] {
            let dir = path.join(name);
            if dir.exists() {
                std::fs::remove_dir_all(&dir).map_err(|error| fault(&dir, &error))?;
            }
            std::fs::create_dir(&dir).map_err(|error| fault(&dir, &error))?;
        }
        for log in ["nats/nats.log", "redis/redis.log"] {
            // Mostly there is none yet; one that stays only grows on.
            let _ = std::fs::remove_file(path.join(log));
        }
        Ok(StateDir { path, lock, temporary })
    }

    /// The folder.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the folder goes at the end.
    pub(super) fn is_temporary(&self) -> bool {
        self.temporary.is_some()
    }

    /// The lock once more: it holds until every copy of it is closed, so a process that inherits one
    /// keeps the folder from a next `dev`.
    pub(super) fn lock(&self) -> std::io::Result<File> {
        self.lock.try_clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_never_share_one_folder_and_data_stays() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(Some(dir.path())).unwrap();
        std::fs::create_dir(state.path().join("nats")).unwrap();
        std::fs::write(state.path().join("nats/data"), "kept").unwrap();
        std::fs::write(state.path().join("nats/nats.log"), "old").unwrap();
        std::fs::write(state.path().join("logs/worker-1.log"), "old").unwrap();
        let second = StateDir::open(Some(dir.path())).err().unwrap();
        assert!(matches!(second, Failure::Configuration(_)));

        let inherited = state.lock().unwrap();
        drop(state);
        assert!(StateDir::open(Some(dir.path())).is_err(), "a copy of the lock holds it");
        drop(inherited);
        let again = StateDir::open(Some(dir.path())).unwrap();
        assert!(again.path().join("nats/data").exists());
        assert!(!again.path().join("nats/nats.log").exists());
        assert!(!again.path().join("logs/worker-1.log").exists());
    }

    #[test]
    fn a_temporary_folder_goes_with_its_state() {
        let state = StateDir::open(None).unwrap();
        let path = state.path().to_path_buf();
        assert!(state.is_temporary() && path.join("run").is_dir());
        drop(state);
        assert!(!path.exists());
    }
}
