//! Ready files: the one `dev` writes for its users, and those its children write for it.

use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;

/// Where everything is. Written by rename, so a reader never sees half of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReadyFile {
    /// The API, `http://host:port`.
    pub(super) http: String,
    /// Liveness, readiness and metrics, `http://host:port`.
    pub(super) admin: String,
    /// The broker, `nats://host:port`.
    pub(super) nats: String,
    /// The lease store, `redis://host:port`.
    pub(super) redis: String,
    /// The receiver that keeps traces, `http://host:port`; absent where they are sent elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) traces: Option<String>,
    /// The newest process of each child.
    pub(super) pids: Pids,
}

/// Process ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pids {
    pub(super) nats: u32,
    pub(super) redis: u32,
    pub(super) coordinator: u32,
    pub(super) workers: Vec<u32>,
}

/// What a coordinator or a worker writes once it serves. The coordinator tells its addresses, a worker
/// the names of its tools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct ChildReady {
    pub(super) pid: u32,
    #[serde(default)]
    pub(super) http: String,
    #[serde(default)]
    pub(super) admin: String,
    #[serde(default)]
    pub(super) tools: Vec<String>,
}

impl ChildReady {
    /// Reads what the process `pid` wrote; nothing where it is another's (an older run's) or no such
    /// file.
    pub(super) fn read(path: &Path, pid: u32) -> Option<ChildReady> {
        let ready: ChildReady = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        (ready.pid == pid).then_some(ready)
    }
}

/// Puts `bytes` in place of `path` in one step: written beside it, then renamed.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let path = std::path::absolute(path)?;
    let dir = path.parent().unwrap_or_else(|| Path::new("/"));
    let mut file = tempfile::Builder::new().prefix(".ready-").tempfile_in(dir)?;
    file.write_all(bytes)?;
    file.persist(&path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_childs_ready_file_counts_only_for_its_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ready");
        assert_eq!(ChildReady::read(&path, 7), None);
        std::fs::write(&path, r#"{"pid": 7, "worker": "w", "tools": ["a"]}"#).unwrap();
        assert_eq!(ChildReady::read(&path, 8), None);
        assert_eq!(ChildReady::read(&path, 7).unwrap().tools, ["a"]);
        std::fs::write(&path, r#"{"pid": 7"#).unwrap();
        assert_eq!(ChildReady::read(&path, 7), None);
    }

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ready");
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_missing_folder_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(replace(&dir.path().join("none/ready"), b"one").is_err());
    }
}
