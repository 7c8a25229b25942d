//! `toolfleet serve`: a coordinator.

use super::exit;
use crate::api::{self, Hosts};
use crate::service::{Coordinator, Error};
use serde_json::{Value, json};
use std::future::IntoFuture as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::net::TcpListener;
use toolfleet_io::config::{self, Checked};
use toolfleet_io::health::{self, Health};
use toolfleet_io::{signal, telemetry};

/// How long the telemetry of the last calls may take to leave.
const FLUSH: Duration = Duration::from_secs(5);

/// Arguments of `toolfleet serve`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Address of the API; without authentication only loopback is taken
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Address of the probes and of /metrics; the same as --listen: both on one
    #[arg(long, value_name = "ADDR")]
    admin_listen: Option<String>,
    /// Written, as JSON, once the API answers
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
}

impl ServeArgs {
    /// What was given on the command line, in the shape of the configuration.
    pub(crate) fn flags(&self) -> Value {
        let mut server = serde_json::Map::new();
        for (key, value) in [("listen", &self.listen), ("admin_listen", &self.admin_listen)] {
            if let Some(value) = value {
                server.insert(key.to_owned(), json!(value));
            }
        }
        json!({ "server": server })
    }
}

/// Reads an address; `:8080` is loopback's. Only loopback is taken while there is no authentication.
fn loopback(key: &str, text: &str) -> Result<SocketAddr, String> {
    let address = config::address(&format!("server.{key}"), text)?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err(format!(
            "server.{key}: {address} is not a loopback address, and there is no authentication yet; listen on 127.0.0.1"
        ))
    }
}

/// Runs the command until a signal ends it.
pub(crate) fn run(args: ServeArgs, checked: Checked) -> ExitCode {
    let server = checked.config.server.clone();
    let addresses = loopback("listen", &server.listen)
        .and_then(|api| Ok((api, loopback("admin_listen", &server.admin_listen)?)));
    let (api, admin) = match addresses {
        Ok(addresses) => addresses,
        Err(text) => return exit::complain(&text, exit::CONFIG),
    };
    let telemetry =
        match telemetry::start("toolfleet-coordinator", &instance(), &checked.config.telemetry) {
            Ok(handle) => handle,
            Err(error) => return exit::complain(&error, exit::CONFIG),
        };
    let is_one = server.listen == server.admin_listen;
    let ended = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| (error.to_string(), exit::UNREACHABLE))
        .and_then(|runtime| {
            let serving =
                serve(&checked, api, (!is_one).then_some(admin), args.ready_file.as_deref());
            runtime.block_on(serving)
        });
    telemetry.flush_and_stop(FLUSH);
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err((text, code)) => exit::complain(&text, code),
    }
}

fn instance() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

fn code_of(error: &Error) -> u8 {
    match error {
        Error::Topology(_) | Error::Prefix(_) | Error::Lock(_) => exit::CONFIG,
        Error::Broker(_) | Error::Store(_) => exit::UNREACHABLE,
    }
}

async fn serve(
    checked: &Checked,
    api: SocketAddr,
    admin: Option<SocketAddr>,
    ready_file: Option<&Path>,
) -> Result<(), (String, u8)> {
    let unreachable = |error: std::io::Error| (error.to_string(), exit::UNREACHABLE);
    let stop = signal::on_first_signal().map_err(unreachable)?;
    let listener = TcpListener::bind(api)
        .await
        .map_err(|error| (format!("server.listen: {api}: {error}"), exit::CONFIG))?;
    let address = listener.local_addr().map_err(unreachable)?;
    let health = Health::new();
    let admin = match admin {
        Some(admin) => health::serve_on_own_thread(admin, health.clone())
            .map_err(|error| (format!("server.admin_listen: {admin}: {error}"), exit::CONFIG))?,
        None => address,
    };
    let connecting = Coordinator::connect(checked, &health);
    let coordinator = tokio::select! {
        coordinator = connecting => coordinator.map_err(|error| (error.to_string(), code_of(&error)))?,
        () = stop.cancelled() => return Ok(()),
    };
    let mut router = api::router(coordinator, Hosts::new(&checked.config.server.allowed_hosts));
    if admin == address {
        router = router.merge(health::router(health.clone()));
    }
    tracing::warn!(%address, "no authentication: everything that reaches this loopback address may call every tool");
    tracing::info!(%address, %admin, "coordinator is ready");
    if let Some(path) = ready_file {
        write_ready(path, address, admin)
            .map_err(|error| (format!("--ready-file {}: {error}", path.display()), exit::CONFIG))?;
    }
    let drained = stop.clone();
    let serving = axum::serve(listener, router)
        .with_graceful_shutdown(async move { drained.cancelled().await })
        .into_future();
    tokio::pin!(serving);
    tokio::select! {
        served = &mut serving => return served.map_err(unreachable),
        () = stop.cancelled() => health.draining(),
    }
    // Requests in flight finish within the drain time; their calls are durable and outlive this process.
    let time = Duration::from_millis(checked.limits.drain_ms);
    if tokio::time::timeout(time, &mut serving).await.is_err() {
        tracing::warn!("the drain time is over, open requests are cut; their calls go on");
    }
    Ok(())
}

fn write_ready(path: &Path, address: SocketAddr, admin: SocketAddr) -> std::io::Result<()> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let file = tempfile::NamedTempFile::new_in(folder.unwrap_or_else(|| Path::new(".")))?;
    let ready = json!({
        "http": format!("http://{address}"),
        "admin": format!("http://{admin}"),
        "pid": std::process::id(),
    });
    std::fs::write(file.path(), ready.to_string())?;
    file.persist(path).map(|_| ()).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::loopback;

    #[test]
    fn only_loopback_is_taken_and_a_bare_port_is_loopbacks() {
        assert_eq!(loopback("listen", ":0").unwrap().to_string(), "127.0.0.1:0");
        assert!(loopback("listen", "[::1]:80").is_ok());
        assert!(loopback("listen", "0.0.0.0:80").unwrap_err().contains("no authentication"));
        assert!(loopback("listen", "nonsense").unwrap_err().contains("server.listen"));
    }
}
