//! The worker's side of a guard (DESIGN 4.5): the line on which it hears until when the lease lasts,
//! and the report that it leaves.

use super::grant::Grant;
use super::limits::Limit;
use super::report::{REPORT_BYTES, Report};
use crate::runner::expiry::Expiry;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::process::Command;

/// What a guard and its worker share for one attempt. Dropped, the guard hears that the worker is done
/// with it.
pub(super) struct Shared {
    line_path: PathBuf,
    report_path: PathBuf,
    report: File,
    /// The write end; the only one.
    _line: Arc<File>,
}

impl Shared {
    /// Makes line and report at these two fresh paths, and tells the line of `expiry` from now on. The
    /// guard takes both names away before it starts the tool. Fails as the file system does.
    pub(super) fn lay(
        line_path: PathBuf,
        report_path: PathBuf,
        expiry: &Expiry,
    ) -> io::Result<Shared> {
        mknodat(CWD, &line_path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        // For both: opened only for writing it would wait for the guard, which is not there yet.
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let line = Arc::new(File::from(open(&line_path, flags, Mode::empty())?));
        let report = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&report_path)?;
        expiry.tell(&line)?;
        Ok(Shared { line_path, report_path, report, _line: line })
    }

    /// The program under the guard, within these bounds, with what it may use; no grants: with everything.
    pub(super) fn command(
        &self,
        guard: &Path,
        limits: &[Limit],
        grants: &[Grant],
        program: &str,
        words: &[String],
    ) -> Command {
        let mut command = Command::new(guard);
        command.arg(&self.line_path).arg(&self.report_path);
        command.args(limits.iter().map(|limit| limit.encode()));
        command.args(grants.iter().map(Grant::encode));
        command.arg("--").arg(program).args(words);
        command
    }

    /// What the guard has left behind, once it is gone; `None` where it left nothing.
    pub(super) fn report(&mut self) -> Option<Report> {
        let mut bytes = [0; REPORT_BYTES];
        self.report.read_exact(&mut bytes).ok()?;
        Report::decode(bytes)
    }
}
