//! What `dev` is going to start: everything that can be wrong is found before the first child runs.

use super::DevArgs;
use super::report::Failure;
use super::state::StateDir;
use super::traces::Spans;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use toolfleet_io::child::{FindError, find_nats_server, find_redis_server};
use toolfleet_io::config::{self, Checked, is_http};

const WORKER_PROGRAM: &str = "toolfleet-worker";

/// Everything decided.
pub(super) struct Plan {
    /// The executables.
    pub(super) nats_program: PathBuf,
    pub(super) redis_program: PathBuf,
    pub(super) own_program: PathBuf,
    pub(super) worker_program: PathBuf,
    /// Address of the API; port 0: any free one.
    pub(super) listen: SocketAddr,
    /// How many workers.
    pub(super) workers: usize,
    /// Their tools.
    pub(super) tools: Option<PathBuf>,
    /// The configuration file that was named on the command line.
    pub(super) config_file: Option<PathBuf>,
    /// Where to write the ready file.
    pub(super) ready_file: Option<PathBuf>,
    /// Where spans go.
    pub(super) spans: Spans,
    /// How long workers have for running jobs at the end, in milliseconds.
    pub(super) drain_ms: u64,
    /// The state folder.
    pub(super) state: StateDir,
}

impl Plan {
    /// Finds the programs, takes the state folder and checks the address.
    pub(super) fn make(args: &DevArgs, checked: &Checked) -> Result<Plan, Failure> {
        let listen = parse_listen(&args.listen).map_err(Failure::Configuration)?;
        check_free(listen)?;
        let endpoint = &checked.config.telemetry.otlp_endpoint;
        let spans = spans(args.otlp.as_deref(), endpoint).map_err(Failure::Configuration)?;
        if let Some(dir) = args.tools.as_ref().filter(|dir| !dir.is_dir()) {
            let text = format!("--tools: there is no folder {}", dir.display());
            return Err(Failure::Configuration(text));
        }
        let unavailable = |text: &str, error: &dyn std::fmt::Display| {
            Failure::Unavailable(format!("{text}: {error}"))
        };
        let cwd = std::env::current_dir()
            .map_err(|error| unavailable("there is no working directory", &error))?;
        let nats = find_nats_server(&checked.config.dev, &cwd).map_err(not_found)?;
        let redis = find_redis_server(&checked.config.dev, &cwd).map_err(not_found)?;
        let own_program = std::env::current_exe()
            .map_err(|error| unavailable("could not find this executable", &error))?;
        let worker_program = own_program.with_file_name(WORKER_PROGRAM);
        if args.workers > 0 && !worker_program.is_file() {
            return Err(Failure::Unavailable(format!(
                "there is no {}; build it with `cargo build -p {WORKER_PROGRAM}` or pass \
                 `--workers 0`",
                worker_program.display()
            )));
        }
        if let Some(path) = &args.ready_file {
            remove_stale(path)?;
        }
        Ok(Plan {
            nats_program: nats.program,
            redis_program: redis.program,
            own_program,
            worker_program,
            listen,
            workers: args.workers,
            tools: args.tools.clone(),
            config_file: args.config_file.clone(),
            ready_file: args.ready_file.clone(),
            spans,
            drain_ms: checked.limits.drain_ms,
            state: StateDir::open(args.state.as_deref())?,
        })
    }
}

fn not_found(error: FindError) -> Failure {
    match error {
        FindError::Configured { .. } => Failure::Configuration(error.to_string()),
        FindError::Missing { .. } => Failure::Unavailable(error.to_string()),
    }
}

/// `HOST:PORT` or `:PORT`; only loopback, since there is no authentication.
fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let address = config::address("--listen", text)?;
    address.ip().is_loopback().then_some(address).ok_or_else(|| {
        format!("--listen: {text} is not a loopback address, and there is no authentication")
    })
}

/// `--otlp` wins over the configuration; without either, traces are kept here.
fn spans(otlp: Option<&str>, configured: &str) -> Result<Spans, String> {
    match otlp {
        Some("none") => Ok(Spans::Sent(String::new())),
        Some(url) if is_http(url) => Ok(Spans::Sent(url.to_owned())),
        Some(text) => {
            Err(format!("--otlp: {text:?} is no url such as http://127.0.0.1:4318, and not `none`"))
        }
        None if configured.trim().is_empty() => Ok(Spans::Kept),
        None => Ok(Spans::AsConfigured),
    }
}

fn check_free(listen: SocketAddr) -> Result<(), Failure> {
    TcpListener::bind(listen).map(drop).map_err(|error| {
        Failure::Configuration(if error.kind() == std::io::ErrorKind::AddrInUse {
            format!(
                "port {} of {} is in use by another process; choose another with --listen, or \
                 any free one with `--listen :0`",
                listen.port(),
                listen.ip()
            )
        } else {
            format!("--listen: could not listen on {listen}: {error}")
        })
    })
}

/// A ready file of an earlier run would send its readers to the wrong place.
fn remove_stale(path: &Path) -> Result<(), Failure> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Failure::Configuration(
            format!("--ready-file: could not replace {}: {error}", path.display()),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_listened_on() {
        assert_eq!(parse_listen(":0").unwrap(), "127.0.0.1:0".parse().unwrap());
        assert_eq!(parse_listen("127.0.0.1:81").unwrap(), "127.0.0.1:81".parse().unwrap());
        assert_eq!(parse_listen("[::1]:81").unwrap(), "[::1]:81".parse().unwrap());
        for text in ["0.0.0.0:8080", "8080", "", "127.0.0.1:70000"] {
            assert!(parse_listen(text).is_err(), "{text}");
        }
    }

    #[test]
    fn traces_are_kept_where_nobody_wants_them_elsewhere() {
        let url = "http://127.0.0.1:4318";
        assert_eq!(spans(None, " "), Ok(Spans::Kept));
        assert_eq!(spans(None, url), Ok(Spans::AsConfigured));
        assert_eq!(spans(Some(url), "http://other"), Ok(Spans::Sent(url.into())));
        assert_eq!(spans(Some("none"), url), Ok(Spans::Sent(String::new())));
        assert!(spans(Some("127.0.0.1:4318"), "").unwrap_err().contains("--otlp"));
    }

    #[test]
    fn a_port_in_use_is_a_fault_of_the_configuration() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let failure = check_free(held.local_addr().unwrap()).unwrap_err();
        let Failure::Configuration(text) = failure else { panic!("{failure:?}") };
        assert!(text.contains("in use") && text.contains("--listen :0"), "{text}");
    }
}
