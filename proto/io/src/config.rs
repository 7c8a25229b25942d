//! Configuration in layers: defaults, one TOML file, environment, flags. Read once, checked once (all
//! faults at once), then passed by value.

mod limits;
#[cfg(test)]
mod tests;
mod tools;

pub use limits::LimitsText;
pub use tools::{Defaults, Pool};

use figment::Figment;
use figment::providers::{Env, Format, Serialized, Toml};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use toolfleet_proto::checks::Naming;
use toolfleet_proto::isolation::Isolation;
use toolfleet_proto::layers::Rules;
use toolfleet_proto::limit::Limits;

/// Prefix of environment variables: `TOOLFLEET_<SECTION>__<KEY>`.
pub const ENV_PREFIX: &str = "TOOLFLEET_";

/// Everything a process of the fleet can be told. Unknown keys are faults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The fleet's name and its streams.
    pub fleet: Fleet,
    /// The broker.
    pub nats: Nats,
    /// The lease store.
    pub redis: Redis,
    /// The coordinator's API.
    pub server: Server,
    /// The worker.
    pub worker: Worker,
    /// Defaults for the tools of the fleet.
    pub defaults: Defaults,
    /// What is set for single pools, by name.
    pub pools: BTreeMap<String, Pool>,
    /// Clocks of leases and retention.
    pub limits: LimitsText,
    /// Traces, metrics, logs.
    pub telemetry: Telemetry,
    /// `toolfleet dev`.
    pub dev: Dev,
}

/// The fleet's name and its streams.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fleet {
    /// Names the fleet: several share a NATS and a Redis by different prefixes.
    #[serde(deserialize_with = "text")]
    pub prefix: String,
    /// `make`: streams and buckets are made where missing. `check`: only compared.
    pub topology: TopologyMode,
    /// A house rule for the names of tools; none: every name that providers take.
    pub naming: Option<Naming>,
    /// The lock file: a coordinator offers only the versions of tools that it has; none: all.
    pub lock_file: Option<PathBuf>,
}

/// Who makes streams and buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TopologyMode {
    /// This process, where they are missing.
    Make,
    /// An operator; this process only compares.
    Check,
}

/// The broker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Nats {
    /// `nats://host:port`, several separated by commas.
    pub url: String,
    /// A `.creds` file, read when the process starts.
    pub creds_file: Option<PathBuf>,
    /// Extra certificate authorities, PEM.
    pub ca_file: Option<PathBuf>,
}

/// The lease store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Redis {
    /// `redis://host:port`, or `redis+sentinel://host:port,host:port/NAME` where sentinels name the primary;
    /// `rediss` for TLS.
    pub url: String,
    /// A file that holds the password, so that it stands in no environment.
    pub password_file: Option<PathBuf>,
}

/// The coordinator's API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// Address of the API. Without authentication only loopback is taken.
    pub listen: String,
    /// Address of `/livez /readyz /startupz /metrics`. Equal to `listen`: both on one address.
    pub admin_listen: String,
    /// Host names that requests may carry; empty: loopback names only.
    pub allowed_hosts: Vec<String>,
}

/// The worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Worker {
    /// The pool it belongs to, and so its queue.
    #[serde(deserialize_with = "text")]
    pub pool: String,
    /// Folder of manifests; none: only the tools built in.
    pub tools: Option<PathBuf>,
    /// Calls at the same time; 0: 64, or 8 where a tool starts a process.
    pub slots: usize,
    /// Folder of secrets, one file a name.
    pub secrets_dir: Option<PathBuf>,
    /// Folder for the scratch folders of `exec` tools; none: the system's.
    pub scratch_dir: Option<PathBuf>,
    /// How far `exec` tools are shut in.
    pub isolation: Isolation,
    /// Files and folders that every `exec` tool may read and start programs from, beside its own.
    pub readable: Vec<PathBuf>,
    /// Files and folders that every `exec` tool may change, beside its own.
    pub writable: Vec<PathBuf>,
    /// Address of `/livez /readyz /startupz /metrics`; empty: none.
    pub admin_listen: String,
}

/// Traces, metrics, logs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Telemetry {
    /// OTLP over HTTP, e.g. `http://127.0.0.1:4318`; empty: nothing is exported.
    pub otlp_endpoint: String,
    /// Where a coordinator reads traces for `GET /v1/traces/{traceId}`, e.g. `http://127.0.0.1:4319`:
    /// a service that answers the same path; empty: nowhere.
    pub traces_url: String,
    /// Log filter, e.g. `info` or `toolfleet=debug`.
    pub log: String,
    /// `text` or `json`.
    pub log_format: LogFormat,
}

/// Form of the log on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// A JSON object a line.
    Json,
}

/// `toolfleet dev`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Dev {
    /// Path of a nats-server, 2.12 or newer.
    pub nats_server: Option<PathBuf>,
    /// Path of a redis-server or valkey-server, 7.0 or newer.
    pub redis_server: Option<PathBuf>,
}

impl Default for Fleet {
    fn default() -> Self {
        Fleet {
            prefix: "tf.v1".into(),
            topology: TopologyMode::Make,
            naming: None,
            lock_file: None,
        }
    }
}

impl Default for Nats {
    fn default() -> Self {
        Nats { url: "nats://127.0.0.1:4222".into(), creds_file: None, ca_file: None }
    }
}

impl Default for Redis {
    fn default() -> Self {
        Redis { url: "redis://127.0.0.1:6379".into(), password_file: None }
    }
}

impl Default for Server {
    fn default() -> Self {
        Server {
            listen: "127.0.0.1:8080".into(),
            admin_listen: "127.0.0.1:8081".into(),
            allowed_hosts: Vec::new(),
        }
    }
}

impl Default for Worker {
    fn default() -> Self {
        Worker {
            pool: "default".into(),
            tools: None,
            slots: 0,
            secrets_dir: None,
            scratch_dir: None,
            isolation: Isolation::Available,
            readable: Vec::new(),
            writable: Vec::new(),
            admin_listen: String::new(),
        }
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        Telemetry {
            otlp_endpoint: String::new(),
            traces_url: String::new(),
            log: "info,opentelemetry=warn,async_nats=warn".into(),
            log_format: LogFormat::Text,
        }
    }
}

/// Reads text that an environment variable may have made a number or a word of another kind: what it
/// means is judged with everything else, so that all faults are told at once.
fn text<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(text),
        other => Ok(other.to_string()),
    }
}

/// Why a configuration cannot be used: every fault, one a line. The process exits 78.
#[derive(Debug, thiserror::Error)]
#[error("{}", .faults.join("\n"))]
pub struct Error {
    /// Each says what, where and how to mend it.
    pub faults: Vec<String>,
}

/// A configuration that was read and checked, with its limits.
#[derive(Clone, Debug)]
pub struct Checked {
    /// As it was read.
    pub config: Config,
    /// Its clocks.
    pub limits: Limits,
    /// What holds for the tools of `worker.pool`.
    pub rules: Rules,
    /// The file that it was read from, where there was one.
    pub file: Option<PathBuf>,
}

/// Reads the layers and checks the whole. `flags` holds only what was given on the command line, in
/// the shape of [`Config`].
///
/// The file is `file`, else `toolfleet.toml` of the working directory where there is one.
pub fn load(file: Option<&std::path::Path>, flags: &Value) -> Result<Checked, Error> {
    if let Some(path) = file.filter(|path| !path.is_file()) {
        return Err(Error { faults: vec![format!("no configuration file at {}", path.display())] });
    }
    let path = file.unwrap_or_else(|| std::path::Path::new("toolfleet.toml"));
    let config: Config = Figment::from(Serialized::defaults(Config::default()))
        .merge(Toml::file(path))
        .merge(Env::prefixed(ENV_PREFIX).filter(|key| key.as_str().contains("__")).split("__"))
        .merge(Serialized::defaults(flags))
        .extract()
        .map_err(|errors| Error { faults: errors.into_iter().map(describe).collect() })?;
    let checked = check(config)?;
    Ok(Checked { file: path.is_file().then(|| path.to_owned()), ..checked })
}

fn describe(error: figment::Error) -> String {
    let origin = error
        .metadata
        .as_ref()
        .and_then(|metadata| metadata.source.as_ref())
        .map_or_else(String::new, |source| format!(" (from {source})"));
    let path =
        if error.path.is_empty() { String::new() } else { format!("{}: ", error.path.join(".")) };
    format!("{path}{}{origin}", error.kind)
}

/// Checks what types cannot: relations, names, addresses. All faults at once.
pub fn check(config: Config) -> Result<Checked, Error> {
    let mut faults = Vec::new();
    if let Err(fault) = toolfleet_proto::topology::Prefix::parse(&config.fleet.prefix) {
        faults.push(format!("fleet.prefix: {fault}"));
    }
    if let Err(fault) = toolfleet_proto::topology::check_pool(&config.worker.pool) {
        faults.push(format!("worker.pool: {fault}"));
    }
    let traces_url = config.telemetry.traces_url.trim();
    if !traces_url.is_empty() && !is_http(traces_url) {
        faults.push(format!("telemetry.traces_url: {traces_url:?} is not an http or https url"));
    }
    for (key, paths) in
        [("worker.readable", &config.worker.readable), ("worker.writable", &config.worker.writable)]
    {
        let relative = paths.iter().filter(|path| !path.is_absolute());
        faults.extend(relative.map(|path| {
            let path = path.display();
            format!("{key}: {path} is not an absolute path; write it from the root on")
        }));
    }
    let limits = match config.limits.read() {
        Ok(limits) => {
            faults.extend(limits.faults());
            limits
        }
        Err(unread) => {
            faults.extend(unread);
            Limits::default()
        }
    };
    let Config { fleet, defaults, pools, worker, .. } = &config;
    match tools::rules(fleet.naming, defaults, pools, &worker.pool) {
        Ok(rules) if faults.is_empty() => Ok(Checked { config, limits, rules, file: None }),
        Ok(_) => Err(Error { faults }),
        Err(unread) => {
            faults.extend(unread);
            Err(Error { faults })
        }
    }
}

/// Reads an address; `:8080` is the loopback's.
///
/// # Errors
/// That the text of this key is none.
pub fn address(key: &str, text: &str) -> Result<SocketAddr, String> {
    let whole = if text.starts_with(':') { format!("127.0.0.1{text}") } else { text.to_owned() };
    let first = whole.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    first.ok_or_else(|| format!("{key}: {text:?} is no address such as 127.0.0.1:8080"))
}

/// Whether text is an `http` or `https` URL, by its scheme.
pub fn is_http(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}
