//! The coordinator and the workers as child processes.

use super::ready::ChildReady;
use super::role::Role;
use super::traces::Variables;
use std::ffi::OsString;
use std::path::PathBuf;
use tokio::process::Command;
use toolfleet_io::child::{Error, Observer, Process};

/// How long a coordinator or worker may take until it serves, in milliseconds.
const READY_TIMEOUT_MS: u64 = 30_000;

/// Variables that would lead a child of `dev` away from its own servers.
const NOT_INHERITED: [&str; 4] = [
    "TOOLFLEET_NATS__CREDS_FILE",
    "TOOLFLEET_NATS__CA_FILE",
    "TOOLFLEET_REDIS__PASSWORD_FILE",
    "TOOLFLEET_WORKER__ADMIN_LISTEN",
];

/// What every program of one `dev` has in common.
#[derive(Clone)]
pub(super) struct Surroundings {
    /// The broker.
    pub(super) nats_url: String,
    /// The lease store.
    pub(super) redis_url: String,
    /// The state folder.
    pub(super) state: PathBuf,
    /// A configuration file that `dev` was given on its command line.
    pub(super) config_file: Option<PathBuf>,
    /// Where spans go.
    pub(super) telemetry: Variables,
    /// Hears of each process.
    pub(super) observer: Observer,
}

/// One coordinator or worker, started again as often as need be.
pub(super) struct Program {
    role: Role,
    executable: PathBuf,
    args: Vec<OsString>,
    /// The coordinator's address; a port that it chose itself is kept from then on.
    listen: Option<String>,
    surroundings: Surroundings,
    process: Option<Process>,
}

impl Program {
    /// `toolfleet serve` on `listen`.
    pub(super) fn coordinator(
        executable: PathBuf,
        listen: String,
        around: Surroundings,
    ) -> Program {
        let args = vec!["serve".into()];
        Program {
            role: Role::Coordinator,
            executable,
            args,
            listen: Some(listen),
            surroundings: around,
            process: None,
        }
    }

    /// A `toolfleet-worker`, `number` counted from 1, with the tools of `tools`.
    pub(super) fn worker(
        executable: PathBuf,
        number: usize,
        tools: Option<&PathBuf>,
        around: Surroundings,
    ) -> Program {
        let args =
            tools.map_or_else(Vec::new, |dir| vec!["--tools".into(), dir.into(), "--watch".into()]);
        Program {
            role: Role::Worker(number),
            executable,
            args,
            listen: None,
            surroundings: around,
            process: None,
        }
    }

    /// Which it is.
    pub(super) fn role(&self) -> Role {
        self.role
    }

    /// The file that holds what it writes.
    pub(super) fn log(&self) -> PathBuf {
        self.surroundings.state.join("logs").join(format!("{}.log", self.role))
    }

    /// Starts it and waits until it serves. One that is still there is ended first.
    pub(super) async fn start(&mut self) -> Result<ChildReady, Error> {
        self.kill().await?;
        let ready = self.surroundings.state.join("run").join(format!("{}.ready", self.role));
        match std::fs::remove_file(&ready) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::Files { path: ready, source });
            }
            _ => {}
        }
        let observer = Some(self.surroundings.observer.clone());
        let process =
            Process::spawn(&self.role.to_string(), self.command(&ready), &self.log(), observer)?;
        // Kept before it is ready, so that an end in between is an orderly one too.
        let process = self.process.insert(process);
        let pid = process.pid();
        let probe = || async { Ok(ChildReady::read(&ready, pid)) };
        let answer = process.until_ready(READY_TIMEOUT_MS, probe).await?;
        if let Some(address) = answer.http.strip_prefix("http://") {
            self.listen = self.listen.take().map(|_chosen| address.to_owned());
        }
        Ok(answer)
    }

    fn command(&self, ready: &std::path::Path) -> Command {
        let mut command = Command::new(&self.executable);
        command.args(&self.args);
        if let Some(listen) = &self.listen {
            command.args(["--listen", listen, "--admin-listen", listen]);
        }
        if let Some(file) = &self.surroundings.config_file {
            command.arg("--config").arg(file);
        }
        command.arg("--ready-file").arg(ready);
        for key in NOT_INHERITED {
            command.env_remove(key);
        }
        command
            .env("TOOLFLEET_NATS__URL", &self.surroundings.nats_url)
            .env("TOOLFLEET_REDIS__URL", &self.surroundings.redis_url)
            .env("TOOLFLEET_DEV_PARENT", "1");
        let telemetry = &self.surroundings.telemetry;
        command.envs(telemetry.programs.iter().map(|(key, value)| (key, value)));
        if self.role == Role::Coordinator {
            command.envs(telemetry.coordinator.iter().map(|(key, value)| (key, value)));
        }
        command
    }

    /// Its process, once it was started.
    pub(super) fn process(&mut self) -> Option<&mut Process> {
        self.process.as_mut()
    }

    /// SIGKILL; resolves when it is gone.
    pub(super) async fn kill(&mut self) -> Result<(), Error> {
        if let Some(process) = &mut self.process {
            process.kill().await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::sync::Arc;

    fn surroundings(state: &Path) -> Surroundings {
        for dir in ["logs", "run"] {
            std::fs::create_dir_all(state.join(dir)).unwrap();
        }
        Surroundings {
            nats_url: "nats://127.0.0.1:1".into(),
            redis_url: "redis://127.0.0.1:2".into(),
            state: state.into(),
            config_file: None,
            telemetry: Variables::default(),
            observer: Arc::new(|_| {}),
        }
    }

    fn script(dir: &Path, text: &str) -> PathBuf {
        let (new, path) = (dir.join("new"), dir.join("program"));
        std::fs::write(&new, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&new, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::rename(&new, &path).unwrap();
        path
    }

    #[tokio::test]
    async fn a_port_that_was_chosen_is_asked_for_again() {
        let dir = tempfile::tempdir().unwrap();
        let program = script(
            dir.path(),
            "echo \"$@\" $TOOLFLEET_NATS__URL $TOOLFLEET_REDIS__URL\n\
             echo \"{\\\"pid\\\": $$, \\\"http\\\": \\\"http://127.0.0.1:77\\\"}\" > \"$7\"\n\
             exec sleep 60",
        );
        let listen = "127.0.0.1:0".to_owned();
        let mut child = Program::coordinator(program, listen, surroundings(dir.path()));
        let first = child.start().await.unwrap();
        let second = child.start().await.unwrap();
        assert_ne!(first.pid, second.pid);
        let log = std::fs::read_to_string(child.log()).unwrap();
        let lines: Vec<&str> = log.lines().collect();
        assert!(lines[0].starts_with("serve --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0"));
        assert!(lines[1].starts_with("serve --listen 127.0.0.1:77 --admin-listen 127.0.0.1:77"));
        assert!(lines[1].ends_with("nats://127.0.0.1:1 redis://127.0.0.1:2"), "{log}");
        child.kill().await.unwrap();
    }

    #[tokio::test]
    async fn faulty_manifests_show_as_the_exit_code_and_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let program = script(dir.path(), "echo \"$1 $2: no name\" >&2; exit 78");
        let tools = PathBuf::from("faulty");
        let mut child = Program::worker(program, 1, Some(&tools), surroundings(dir.path()));
        let error = child.start().await.unwrap_err();
        let Error::Exited { status, log_tail, .. } = error else { panic!("{error}") };
        assert_eq!(status.code(), Some(78));
        assert_eq!(log_tail, "--tools faulty: no name");
    }
}
