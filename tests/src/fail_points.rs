//! The fail points of a fleet, armed by a test (`toolfleet_io::fail_point`).

use crate::wait::until;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What happens to the first process that reaches a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It ends as by SIGKILL.
    Kill,
    /// It stops until SIGCONT.
    Stop,
    /// The task waits until [`FailPoints::go_on`].
    Hold,
}

/// The fail points of all processes of a fleet.
#[derive(Clone, Debug)]
pub struct FailPoints {
    folder: PathBuf,
}

impl FailPoints {
    /// In a folder that is there.
    pub(crate) fn at(folder: &Path) -> FailPoints {
        FailPoints { folder: folder.to_path_buf() }
    }

    /// Arms a stage once, for whichever process comes first.
    pub fn arm(&self, stage: &str, fate: Fate) -> anyhow::Result<()> {
        let what = match fate {
            Fate::Kill => "kill",
            Fate::Stop => "stop",
            Fate::Hold => "hold",
        };
        // Whole or not at all: a process may look at any time.
        let file = tempfile::NamedTempFile::new_in(&self.folder)?;
        std::fs::write(file.path(), what)?;
        file.persist(self.folder.join(stage))?;
        Ok(())
    }

    /// Waits until a stage that was armed has been reached.
    pub async fn reached(&self, stage: &str, within: Duration) -> anyhow::Result<()> {
        let reached = self.folder.join(format!("{stage}.reached"));
        until(&format!("{stage} is reached"), within, async || reached.exists().then_some(())).await
    }

    /// Lets the task go on that a stage holds.
    pub fn go_on(&self, stage: &str) -> anyhow::Result<()> {
        Ok(std::fs::remove_file(self.folder.join(format!("{stage}.reached")))?)
    }
}
