//! A Redis (or Valkey) of our own.

use super::process::{Observer, Process};
use super::{Error, READY_TIMEOUT_MS, STOP_GRACE_MS};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
const REPLY_BYTES_MAX: u64 = 64 * 1024;
const PORT_ATTEMPTS: u32 = 10;

/// What a [`RedisServer`] is started with.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// The redis-server or valkey-server executable.
    pub program: PathBuf,
    /// Its folder: append-only file and log. Made where missing; kept at the end.
    pub dir: PathBuf,
    /// Its port on 127.0.0.1; none: any free one, kept from then on.
    pub port: Option<u16>,
}

/// A running Redis on 127.0.0.1 that keeps an append-only file and never evicts. Killed when dropped.
pub struct RedisServer {
    options: RedisOptions,
    observer: Option<Observer>,
    process: Process,
    port: u16,
}

impl RedisServer {
    /// Starts it and waits until it has proved itself ours by its process id.
    pub async fn start(options: RedisOptions) -> Result<RedisServer, Error> {
        RedisServer::start_observed(options, None).await
    }

    /// As [`RedisServer::start`]; `observer` hears of its processes, also of later restarts.
    pub async fn start_observed(
        mut options: RedisOptions,
        observer: Option<Observer>,
    ) -> Result<RedisServer, Error> {
        options.dir = std::path::absolute(&options.dir)
            .map_err(|source| Error::Files { path: options.dir.clone(), source })?;
        if let Some(port) = options.port {
            let process = launch(&options, port, observer.clone()).await?;
            return Ok(RedisServer { options, observer, process, port });
        }
        // Redis cannot choose a port itself, and a port seen free can be taken before it binds.
        for _ in 0..PORT_ATTEMPTS {
            let port = free_port()
                .map_err(|source| Error::Files { path: "127.0.0.1:0".into(), source })?;
            match launch(&options, port, observer.clone()).await {
                Ok(process) => return Ok(RedisServer { options, observer, process, port }),
                Err(error) if lost_port(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::NoPort { name: "redis-server".into(), attempts: PORT_ATTEMPTS })
    }

    /// Starts it again on the same port and folder; one that still runs is stopped first.
    pub async fn restart(&mut self) -> Result<(), Error> {
        self.stop().await?;
        self.process = launch(&self.options, self.port, self.observer.clone()).await?;
        Ok(())
    }

    /// `redis://127.0.0.1:PORT`; the same after a restart.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
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

fn free_port() -> std::io::Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn lost_port(error: &Error) -> bool {
    match error {
        Error::Stranger { .. } => true,
        Error::Exited { log_tail, .. } => log_tail.contains("Address already in use"),
        _ => false,
    }
}

async fn launch(
    options: &RedisOptions,
    port: u16,
    observer: Option<Observer>,
) -> Result<Process, Error> {
    let dir = &options.dir;
    std::fs::create_dir_all(dir).map_err(|source| Error::Files { path: dir.clone(), source })?;
    let mut command = Command::new(&options.program);
    command
        .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
        .args(["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""])
        .args(["--maxmemory-policy", "noeviction"])
        .arg("--dir")
        .arg(dir);
    let mut process = Process::spawn("redis-server", command, &dir.join("redis.log"), observer)?;
    let pid = process.pid();
    let probe = || async move { Ok(proves(port, pid).await?.then_some(())) };
    process.until_ready(READY_TIMEOUT_MS, probe).await?;
    Ok(process)
}

/// Whether the server on `port` is the process `pid` and takes commands. Not there yet, or still
/// loading, is `false`; another process is an error.
async fn proves(port: u16, pid: u32) -> Result<bool, Error> {
    let Ok(Ok(Some(answer))) = tokio::time::timeout(PROBE_TIMEOUT, ask(port)).await else {
        return Ok(false);
    };
    let found = process_id(&answer.info);
    if found == Some(pid) {
        return Ok(answer.takes_commands);
    }
    Err(Error::Stranger {
        port,
        wanted: format!("redis-server with pid {pid}"),
        found: found.map_or_else(|| "no redis-server".into(), |pid| format!("pid {pid}")),
    })
}

struct Answer {
    info: String,
    takes_commands: bool,
}

/// `INFO server` and `PING` in one go; nothing where the other side closes without a word.
async fn ask(port: u16) -> std::io::Result<Option<Answer>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(b"*2\r\n$4\r\nINFO\r\n$6\r\nserver\r\n*1\r\n$4\r\nPING\r\n").await?;
    let mut replies = BufReader::new(stream.take(REPLY_BYTES_MAX));
    let mut head = Vec::new();
    if replies.read_until(b'\n', &mut head).await? == 0 {
        return Ok(None);
    }
    let Some(length) = bulk_length(&String::from_utf8_lossy(&head)) else {
        return Ok(Some(Answer { info: String::new(), takes_commands: false }));
    };
    // The text is followed by a line end of its own.
    let mut info = vec![0; length.min(REPLY_BYTES_MAX as usize) + 2];
    replies.read_exact(&mut info).await?;
    let mut pong = Vec::new();
    replies.read_until(b'\n', &mut pong).await?;
    let info = String::from_utf8_lossy(&info).into_owned();
    Ok(Some(Answer { info, takes_commands: pong.starts_with(b"+PONG") }))
}

fn bulk_length(head: &str) -> Option<usize> {
    head.strip_prefix('$')?.trim_end().parse().ok()
}

fn process_id(info: &str) -> Option<u32> {
    info.lines().find_map(|line| line.strip_prefix("process_id:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::find::found_for_tests;

    fn options(dir: &Path) -> RedisOptions {
        RedisOptions { program: found_for_tests().1, dir: dir.into(), port: None }
    }

    #[tokio::test]
    async fn a_server_keeps_its_port_over_kill_and_restart() {
        let dir = tempfile::tempdir().unwrap();
        let mut server = RedisServer::start(options(dir.path())).await.unwrap();
        let (url, pid) = (server.url(), server.pid());
        server.kill().await.unwrap();
        server.restart().await.unwrap();
        assert_eq!(server.url(), url);
        assert_ne!(server.pid(), pid);
        assert!(server.stop().await.unwrap().success(), "{}", server.log_tail());
    }

    #[tokio::test]
    async fn a_held_port_is_never_adopted() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let server = RedisServer::start(options(first.path())).await.unwrap();
        let mut wanted = options(second.path());
        wanted.port = Some(server.port());
        let error = RedisServer::start(wanted).await.err().unwrap();
        assert!(lost_port(&error), "{error}");
    }

    #[tokio::test]
    async fn a_stranger_that_is_no_redis_is_refused() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stranger = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        });
        let error = proves(port, 1).await.unwrap_err();
        assert!(matches!(error, Error::Stranger { .. }), "{error}");
        stranger.await.unwrap();
    }

    #[test]
    fn the_process_id_is_read_from_info() {
        assert_eq!(process_id("# Server\r\nprocess_id:42\r\nport:1\r\n"), Some(42));
        assert_eq!(process_id("# Server\r\nport:1\r\n"), None);
        assert_eq!(bulk_length("$12\r\n"), Some(12));
        assert_eq!(bulk_length("-ERR no\r\n"), None);
    }
}
