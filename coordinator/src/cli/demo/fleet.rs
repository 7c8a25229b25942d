//! The demo's own fleet: `toolfleet dev` of this very program.

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

/// How long the fleet may take until it writes its ready file.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the fleet may take to end after its signal.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause between two looks at the ready file.
const PROBE_PAUSE: Duration = Duration::from_millis(50);
/// Lines of the fleet's log that are shown after a failure.
const LOG_LINES_MAX: usize = 40;
/// Short clocks, so that a lost worker is noticed while somebody watches. The relations between them are
/// those of the defaults.
const CLOCKS: [(&str, &str); 6] = [
    ("TOOLFLEET_LIMITS__LEASE_TTL", "3s"),
    ("TOOLFLEET_LIMITS__LEASE_RENEW", "800ms"),
    ("TOOLFLEET_LIMITS__LEASE_MARGIN", "500ms"),
    ("TOOLFLEET_LIMITS__KILL_GRACE", "500ms"),
    ("TOOLFLEET_LIMITS__ACK_WAIT", "4s"),
    ("TOOLFLEET_LIMITS__CANCEL_GRACE", "1s"),
];

/// Where the fleet is.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Ready {
    /// Address of the API.
    pub(super) http: String,
}

/// A running fleet.
pub(super) struct Fleet {
    child: Child,
    folder: tempfile::TempDir,
}

impl Fleet {
    /// Starts it, its output in a log file.
    pub(super) fn start(tools: &Path) -> anyhow::Result<Fleet> {
        let folder = tempfile::Builder::new().prefix("toolfleet-demo-").tempdir()?;
        let log = std::fs::File::create(folder.path().join("fleet.log"))?;
        let child = Command::new(std::env::current_exe()?)
            .args(["dev", "--listen", "127.0.0.1:0", "--workers", "2", "--tools"])
            .arg(tools)
            .arg("--ready-file")
            .arg(folder.path().join("ready.json"))
            .envs(CLOCKS)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("toolfleet dev cannot be started")?;
        Ok(Fleet { child, folder })
    }

    /// Waits for the ready file.
    pub(super) async fn ready(&mut self) -> anyhow::Result<Ready> {
        let path = self.folder.path().join("ready.json");
        let child = &mut self.child;
        let probe = async {
            loop {
                // It is written by rename: it is there whole or not at all.
                if let Ok(text) = std::fs::read(&path) {
                    return Ok(serde_json::from_slice::<Ready>(&text)?);
                }
                if let Some(status) = child.try_wait()? {
                    bail!("the fleet ended before it was ready: {status}");
                }
                tokio::time::sleep(PROBE_PAUSE).await;
            }
        };
        match tokio::time::timeout(READY_TIMEOUT, probe).await {
            Ok(ready) => ready,
            Err(_) => bail!("the fleet was not ready within {} s", READY_TIMEOUT.as_secs()),
        }
    }

    /// Ends it with TERM and waits; one that does not end in time is killed and reported.
    pub(super) async fn stop(&mut self) -> anyhow::Result<()> {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let Some(id) = id else { return Ok(()) };
        kill_process(id, Signal::TERM).context("the fleet could not be told to end")?;
        match tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => bail!("the fleet ended badly: {status}"),
            Ok(Err(error)) => Err(error).context("the end of the fleet could not be waited for"),
            Err(_) => {
                self.child.kill().await?;
                bail!("the fleet did not end within {} s and was killed", STOP_TIMEOUT.as_secs())
            }
        }
    }

    /// The end of the fleet's log, which goes with its folder.
    pub(super) fn log_tail(&self) -> String {
        let text = std::fs::read(self.folder.path().join("fleet.log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(LOG_LINES_MAX)..].join("\n");
        format!("the end of the fleet's log:\n{tail}\nand what went wrong")
    }
}
