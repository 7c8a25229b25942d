//! The side of `dev` on the pipe to its watchdog.

use super::backoff::Backoff;
use super::report;
use super::watchdog::Line;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use toolfleet_io::child::{Change, Observer};

const END_TIMEOUT: Duration = Duration::from_secs(1);

/// How a watchdog is started.
pub(super) struct Recipe {
    /// This executable.
    pub(super) program: PathBuf,
    /// How long children may take to end, in milliseconds.
    pub(super) drain_ms: u64,
    /// The lock of the state folder: the watchdog holds it until the children are gone.
    pub(super) lock: File,
}

/// A watchdog that is kept running, and that knows every child.
pub(super) struct Guard {
    told: Arc<Mutex<Told>>,
    ending: oneshot::Sender<()>,
    keeper: JoinHandle<()>,
}

#[derive(Default)]
struct Told {
    pids: BTreeSet<u32>,
    pipe: Option<File>,
}

impl Told {
    /// A watchdog that is gone is started again by the keeper, and is told everything then.
    fn write(&mut self, line: Line) {
        if let Some(pipe) = &mut self.pipe {
            let _ = pipe.write_all(line.text().as_bytes());
        }
    }
}

impl Guard {
    /// Starts the watchdog, and another one whenever it dies.
    pub(super) fn start(recipe: Recipe) -> std::io::Result<Guard> {
        let told = Arc::new(Mutex::new(Told::default()));
        let child = spawn(&recipe, &told)?;
        let (ending, ended) = oneshot::channel();
        let keeper = tokio::spawn(keep(recipe, Arc::clone(&told), child, ended));
        Ok(Guard { told, ending, keeper })
    }

    /// What children are to be started with, so that the watchdog knows them.
    pub(super) fn observer(&self) -> Observer {
        let told = Arc::clone(&self.told);
        Arc::new(move |change| {
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            match change {
                Change::Started(pid) => {
                    told.pids.insert(pid);
                    told.write(Line::Started(pid));
                }
                Change::Ended(pid) => {
                    told.pids.remove(&pid);
                    told.write(Line::Ended(pid));
                }
            }
        })
    }

    /// An orderly end: all children are gone.
    pub(super) async fn end(self) {
        // First, so that the keeper does not take the end for a death.
        let _ = self.ending.send(());
        {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            told.write(Line::End);
            told.pipe = None;
        }
        let _ = self.keeper.await;
    }
}

fn spawn(recipe: &Recipe, told: &Mutex<Told>) -> std::io::Result<Child> {
    let mut command = Command::new(&recipe.program);
    command
        .arg("dev-watchdog")
        .arg(recipe.drain_ms.to_string())
        .stdin(Stdio::piped())
        // Nothing is written to it: to inherit it is to hold the lock.
        .stdout(recipe.lock.try_clone()?)
        .stderr(Stdio::null())
        .process_group(0);
    let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
    let mut child = command.spawn()?;
    told.pipe = child.stdin.take().map(|pipe| pipe.into_owned_fd().map(File::from)).transpose()?;
    for pid in told.pids.clone() {
        told.write(Line::Started(pid));
    }
    Ok(child)
}

async fn keep(
    recipe: Recipe,
    told: Arc<Mutex<Told>>,
    first: Child,
    mut ended: oneshot::Receiver<()>,
) {
    let mut child = Some(first);
    let mut backoff = Backoff::default();
    loop {
        let since = Instant::now();
        if let Some(running) = &mut child {
            tokio::select! {
                biased;
                _ = &mut ended => {
                    let _ = tokio::time::timeout(END_TIMEOUT, running.wait()).await;
                    return;
                }
                _ = running.wait() => {}
            }
        }
        let wait_ms = backoff.wait_ms(u64::try_from(since.elapsed().as_millis()).unwrap_or(0));
        report::say(&format!("the watchdog ended; starting another in {wait_ms} ms"));
        tokio::select! {
            _ = &mut ended => return,
            () = tokio::time::sleep(Duration::from_millis(wait_ms)) => {}
        }
        child = spawn(&recipe, &told)
            .inspect_err(|error| report::say(&format!("could not start a watchdog: {error}")))
            .ok();
    }
}
