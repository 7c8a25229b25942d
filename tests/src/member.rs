//! One process of a fleet: started, watched until it is ready, and treated badly.

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use tokio::process::Command;
use toolfleet_io::child::Process;

/// How long a process may take until it is ready: machines that build at the same time are slow.
const READY_TIMEOUT_MS: u64 = 45_000;
/// From TERM to KILL where a test asks for an orderly end: longer than any drain of a test.
const TERMINATE_GRACE_MS: u64 = 20_000;

/// How a process is started.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Its name, for logs: `coordinator-1`.
    pub name: String,
    /// The executable.
    pub program: PathBuf,
    /// Its arguments; `--ready-file FILE` is appended.
    pub args: Vec<String>,
    /// Its environment beside what is inherited and not of toolfleet.
    pub env: Vec<(String, String)>,
    /// Its working directory; log and ready file are in it.
    pub dir: PathBuf,
}

impl Recipe {
    /// The command, without variables of toolfleet or OpenTelemetry that this process has.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.dir).args(&self.args);
        clean_environment(&mut command);
        command.envs(self.env.iter().cloned());
        command
    }

    fn ready_file(&self) -> PathBuf {
        self.dir.join(format!("{}.ready.json", self.name))
    }
}

/// Takes every inherited variable of toolfleet and of OpenTelemetry out of a command.
pub fn clean_environment(command: &mut Command) {
    for (key, _) in std::env::vars_os() {
        let name = key.to_string_lossy();
        if name.starts_with("TOOLFLEET_") || name.starts_with("OTEL_") {
            command.env_remove(&key);
        }
    }
}

/// A process that was ready at least once. Killed when dropped.
pub struct Member {
    recipe: Recipe,
    process: Process,
    ready: Value,
}

impl Member {
    /// Starts it and waits until it has written its ready file.
    pub async fn start(recipe: Recipe) -> anyhow::Result<Member> {
        let mut process = launch(&recipe)?;
        let ready = until_ready(&recipe, &mut process).await?;
        Ok(Member { recipe, process, ready })
    }

    /// How another one like it is started.
    pub fn recipe(&self, name: &str) -> Recipe {
        Recipe { name: name.to_owned(), ..self.recipe.clone() }
    }

    /// What it wrote into its ready file.
    pub fn ready(&self) -> &Value {
        &self.ready
    }

    /// A text of its ready file, e.g. `http`; empty where there is none.
    pub fn told(&self, key: &str) -> String {
        self.ready[key].as_str().unwrap_or_default().to_owned()
    }

    /// Reads its ready file again, which some processes keep true; null where it cannot be read.
    pub fn ready_now(&self) -> Value {
        let bytes = std::fs::read(self.recipe.ready_file()).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// Id of the newest process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its log, of all its runs.
    pub fn log(&self) -> &Path {
        self.process.log()
    }

    /// SIGKILL; resolves when it is gone.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill().await?;
        Ok(())
    }

    /// SIGSTOP: it does nothing until [`Member::resume`].
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// SIGCONT.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// SIGTERM, and how it ended; killed where it takes longer than 20 s.
    pub async fn terminate(&mut self) -> anyhow::Result<ExitStatus> {
        Ok(self.process.stop(TERMINATE_GRACE_MS).await?)
    }

    /// Starts it again as it was; one that still runs is killed first.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.process.kill().await?;
        self.process = launch(&self.recipe)?;
        self.ready = until_ready(&self.recipe, &mut self.process).await?;
        Ok(())
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        let pid = pid.context("a process without an id")?;
        kill_process(pid, signal).with_context(|| format!("{} got no signal", self.recipe.name))
    }
}

fn launch(recipe: &Recipe) -> anyhow::Result<Process> {
    let ready_file = recipe.ready_file();
    // An older run's file would be read as this one's.
    match std::fs::remove_file(&ready_file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let mut command = recipe.command();
    command.arg("--ready-file").arg(&ready_file);
    let log = recipe.dir.join(format!("{}.log", recipe.name));
    Ok(Process::spawn(&recipe.name, command, &log, None)?)
}

async fn until_ready(recipe: &Recipe, process: &mut Process) -> anyhow::Result<Value> {
    let ready_file = recipe.ready_file();
    let probe = || {
        let ready = std::fs::read(&ready_file).ok();
        let ready = ready.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        async move { Ok(ready) }
    };
    Ok(process.until_ready(READY_TIMEOUT_MS, probe).await?)
}
