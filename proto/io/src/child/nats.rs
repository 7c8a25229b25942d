//! A nats-server of our own.

use super::process::{Observer, Process};
use super::{Error, READY_TIMEOUT_MS, STOP_GRACE_MS};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
const INFO_BYTES_MAX: u64 = 64 * 1024;

/// What a [`NatsServer`] is started with.
#[derive(Clone, Debug)]
pub struct NatsOptions {
    /// The nats-server executable.
    pub program: PathBuf,
    /// Its folder: configuration, log and `data`. Made where missing; kept at the end.
    pub dir: PathBuf,
    /// Its port on 127.0.0.1; none: any free one, kept from then on.
    pub port: Option<u16>,
    /// What it calls itself, and the proof that it is ours: must not be used by any other server.
    pub server_name: String,
    /// Further lines of its configuration; empty: none.
    pub further: String,
}

impl NatsOptions {
    /// Any port and a random server name.
    pub fn new(program: impl Into<PathBuf>, dir: impl Into<PathBuf>) -> NatsOptions {
        let server_name = format!("toolfleet-{}", uuid::Uuid::new_v4().simple());
        NatsOptions {
            program: program.into(),
            dir: dir.into(),
            port: None,
            server_name,
            further: String::new(),
        }
    }
}

/// A running nats-server with JetStream on 127.0.0.1. Killed when dropped.
pub struct NatsServer {
    options: NatsOptions,
    observer: Option<Observer>,
    process: Process,
    port: u16,
}

impl NatsServer {
    /// Starts it and waits until it has proved itself ours by its server name.
    pub async fn start(options: NatsOptions) -> Result<NatsServer, Error> {
        NatsServer::start_observed(options, None).await
    }

    /// As [`NatsServer::start`]; `observer` hears of its processes, also of later restarts.
    pub async fn start_observed(
        mut options: NatsOptions,
        observer: Option<Observer>,
    ) -> Result<NatsServer, Error> {
        options.dir = std::path::absolute(&options.dir)
            .map_err(|source| Error::Files { path: options.dir.clone(), source })?;
        let (process, port) = launch(&options, options.port, observer.clone()).await?;
        Ok(NatsServer { options, observer, process, port })
    }

    /// Starts it again on the same port and folder; one that still runs is stopped first.
    pub async fn restart(&mut self) -> Result<(), Error> {
        self.stop().await?;
        let launched = launch(&self.options, Some(self.port), self.observer.clone()).await?;
        self.process = launched.0;
        Ok(())
    }

    /// `nats://127.0.0.1:PORT`; the same after a restart.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What it calls itself.
    pub fn server_name(&self) -> &str {
        &self.options.server_name
    }

    /// The process id of the newest run.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The file that holds its log.
    pub fn log(&self) -> &Path {
        self.process.log()
    }

    /// The last lines of the newest run's log.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }

    /// Resolves when it has ended. May be dropped and called again.
    pub async fn wait(&mut self) -> Result<ExitStatus, Error> {
        self.process.wait().await
    }

    /// SIGKILL; resolves when it is gone.
    pub async fn kill(&mut self) -> Result<ExitStatus, Error> {
        self.process.kill().await
    }

    /// SIGTERM, then SIGKILL after [`STOP_GRACE_MS`].
    pub async fn stop(&mut self) -> Result<ExitStatus, Error> {
        self.process.stop(STOP_GRACE_MS).await
    }
}

async fn launch(
    options: &NatsOptions,
    port: Option<u16>,
    observer: Option<Observer>,
) -> Result<(Process, u16), Error> {
    let dir = &options.dir;
    let config = dir.join("nats.conf");
    std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::write(&config, config_text(options, port)))
        .map_err(|source| Error::Files { path: config.clone(), source })?;
    let mut command = Command::new(&options.program);
    command.arg("--config").arg(&config).current_dir(dir);
    if port.is_none() {
        command.arg("--ports_file_dir").arg(dir);
    }
    let mut process = Process::spawn("nats-server", command, &dir.join("nats.log"), observer)?;
    let pid = process.pid();
    let probe = || async move {
        let Some(port) = port.or_else(|| ports_file(dir, pid)) else { return Ok(None) };
        Ok(proves(port, &options.server_name).await?.then_some(port))
    };
    let port = process.until_ready(READY_TIMEOUT_MS, probe).await?;
    Ok((process, port))
}

/// `sync_interval` bounds what a power loss can take; the default is two minutes.
fn config_text(options: &NatsOptions, port: Option<u16>) -> String {
    let port = port.map_or_else(|| "-1".to_owned(), |port| port.to_string());
    format!(
        "server_name: {}\nhost: \"127.0.0.1\"\nport: {port}\njetstream {{\n  store_dir: {}\n  \
         sync_interval: \"100ms\"\n}}\n{}\n",
        quoted(&options.server_name),
        quoted(&options.dir.join("data").to_string_lossy()),
        options.further,
    )
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The port that the server itself wrote down: a file `PROGRAM_PID.ports`. It is asked again while
/// the file is missing or half written.
fn ports_file(dir: &Path, pid: u32) -> Option<u16> {
    #[derive(Deserialize)]
    struct Ports {
        nats: Vec<String>,
    }
    let suffix = format!("_{pid}.ports");
    let path = std::fs::read_dir(dir)
        .ok()?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().ends_with(&suffix))?;
    let ports: Ports = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    ports.nats.first()?.rsplit(':').next()?.parse().ok()
}

/// Whether the server on `port` says that it is `server_name`. Not there yet is `false`; another name
/// is an error.
async fn proves(port: u16, server_name: &str) -> Result<bool, Error> {
    let Ok(Some(line)) = tokio::time::timeout(PROBE_TIMEOUT, greeting(port)).await else {
        return Ok(false);
    };
    match name_in_info(&line) {
        Some(name) if name == server_name => Ok(true),
        found => Err(Error::Stranger {
            port,
            wanted: format!("nats-server {server_name}"),
            found: found.map_or_else(|| "no nats-server".into(), |n| format!("nats-server {n}")),
        }),
    }
}

async fn greeting(port: u16) -> Option<String> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let mut line = Vec::new();
    BufReader::new(stream.take(INFO_BYTES_MAX)).read_until(b'\n', &mut line).await.ok()?;
    // A server that goes down in this moment closes without a word: that is no stranger.
    (!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned())
}

fn name_in_info(line: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Info {
        server_name: String,
    }
    let info: Info = serde_json::from_str(line.strip_prefix("INFO ")?.trim_end()).ok()?;
    Some(info.server_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::find::found_for_tests;
    use std::os::unix::process::ExitStatusExt;

    #[tokio::test]
    async fn a_server_keeps_its_port_over_kill_and_restart() {
        let dir = tempfile::tempdir().unwrap();
        let options = NatsOptions::new(found_for_tests().0, dir.path());
        let mut server = NatsServer::start(options).await.unwrap();
        let (url, pid) = (server.url(), server.pid());
        assert_eq!(server.kill().await.unwrap().signal(), Some(9));
        server.restart().await.unwrap();
        assert_eq!(server.url(), url);
        assert_ne!(server.pid(), pid);
        let config = std::fs::read_to_string(dir.path().join("nats.conf")).unwrap();
        assert!(config.contains("sync_interval"), "{config}");
        server.stop().await.unwrap();
        assert!(dir.path().join("data").is_dir());
    }

    #[tokio::test]
    async fn a_held_port_is_never_adopted() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let program = found_for_tests().0;
        let server = NatsServer::start(NatsOptions::new(&program, first.path())).await.unwrap();
        let mut options = NatsOptions::new(&program, second.path());
        options.port = Some(server.port());
        let error = NatsServer::start(options).await.err().unwrap();
        assert!(matches!(error, Error::Stranger { .. } | Error::Exited { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_dropped_server_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let options = NatsOptions::new(found_for_tests().0, dir.path());
        let server = NatsServer::start(options).await.unwrap();
        let port = server.port();
        drop(server);
        for _ in 0..500 {
            if TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("port {port} still answers");
    }

    #[test]
    fn names_are_read_from_info_and_nothing_else() {
        let line = "INFO {\"server_id\":\"N\",\"server_name\":\"a\"} \r\n";
        assert_eq!(name_in_info(line).as_deref(), Some("a"));
        assert_eq!(name_in_info("+OK\r\n"), None);
        assert_eq!(name_in_info("INFO {\"server_id\":\"N\"}\r\n"), None);
    }

    #[test]
    fn paths_are_quoted() {
        assert_eq!(quoted("a \"b\" \\c"), "\"a \\\"b\\\" \\\\c\"");
    }
}
