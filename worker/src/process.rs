//! The worker as a process: flags, faults, runtimes, exit codes. Own worker binaries with Rust tools
//! of their own call [`main`] from theirs.

use crate::bench_echo::BenchEcho;
use crate::isolation::ShutIn;
use crate::memory;
use crate::registry::{self, Builder, Programs, Registry};
use crate::runner::exec::Exec;
use crate::runner::native::Native;
use crate::service::{Error, Service, worker_name};
use crate::testing::command::{self, TestArgs};
use crate::tool::Tool;
use crate::watch::Watched;
use clap::{Parser, Subcommand};
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use toolfleet_io::config::{self, Checked};
use toolfleet_io::health::{self, Health};
use toolfleet_io::{described, isolation, signal, telemetry};
use toolfleet_proto::checks;
use toolfleet_proto::describe::{Described, Pool};
use toolfleet_proto::manifest::Fault;

/// Exit code of a call that failed.
pub(crate) const EXIT_FAILED: u8 = 1;
/// Exit code of a command line that cannot be followed.
pub(crate) const EXIT_USAGE: u8 = 2;
/// Exit code of a configuration or a tool that is faulty.
pub(crate) const EXIT_CONFIG: u8 = 78;
/// Exit code of a broker or store that is not reachable.
pub(crate) const EXIT_UNREACHABLE: u8 = 69;
/// The program that exec tools run under.
const GUARD_PROGRAM: &str = "toolfleet-guard";
/// Threads for tools in Rust and for scratch folders: more than slots and abandoned ones ever are.
const BLOCKING_THREADS_MAX: usize = 1_024;
/// How long the telemetry of the last calls may take to leave.
const FLUSH: Duration = Duration::from_secs(5);

/// Claims tool calls of one pool and runs them.
#[derive(Parser)]
#[command(name = "toolfleet-worker", version, about)]
struct Args {
    /// Configuration file (default: toolfleet.toml of the working directory, where there is one)
    #[arg(long, global = true, value_name = "FILE", env = "TOOLFLEET_CONFIG")]
    config: Option<PathBuf>,
    /// Folder of tool manifests
    #[arg(long, global = true, value_name = "DIR")]
    tools: Option<PathBuf>,
    /// Pool whose jobs this worker takes
    #[arg(long, global = true, value_name = "NAME")]
    pool: Option<String>,
    /// Calls at the same time
    #[arg(long, value_name = "N")]
    slots: Option<usize>,
    /// Address of the probes and of /metrics, e.g. 127.0.0.1:8082
    #[arg(long, value_name = "ADDR")]
    admin_listen: Option<String>,
    /// Follow the folder: a manifest that is saved is served, a faulty one is told
    #[arg(long)]
    watch: bool,
    /// Written, as JSON, once the tools can be called
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run one tool here, without a broker, and show everything that comes of it
    Test(TestArgs),
    /// Show this worker's tools, with every value and where it comes from; offline
    Describe(DescribeArgs),
}

#[derive(clap::Args)]
struct DescribeArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    fn flags(&self) -> Value {
        let mut worker = serde_json::Map::new();
        let mut set = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                worker.insert(key.to_owned(), value);
            }
        };
        set("tools", self.tools.as_ref().map(|dir| json!(dir)));
        set("pool", self.pool.as_ref().map(|pool| json!(pool)));
        set("slots", self.slots.map(|slots| json!(slots)));
        set("admin_listen", self.admin_listen.as_ref().map(|address| json!(address)));
        json!({ "worker": worker })
    }
}

/// Tools that a worker binary brings along.
#[derive(Clone, Default)]
pub struct Tools {
    native: Vec<Arc<dyn Native>>,
}

impl Tools {
    /// None yet.
    pub fn new() -> Tools {
        Tools::default()
    }

    /// Adds a tool written in Rust.
    #[must_use]
    pub fn with(mut self, tool: impl Tool) -> Tools {
        self.native.push(Arc::new(tool));
        self
    }
}

/// Runs a worker with these tools, those built in and those of its folder, until it is told to stop.
pub fn main(tools: Tools) -> ExitCode {
    // First: the environment may hold secrets.
    conceal();
    telemetry::install_tls();
    let args = Args::parse();
    let checked = match config::load(args.config.as_deref(), &args.flags()) {
        Ok(checked) => checked,
        Err(error) => return complain(&error, EXIT_CONFIG),
    };
    let registry = match gather(&tools, &checked) {
        Ok(registry) => registry,
        Err(faults) => return complain(&lines(&faults), EXIT_CONFIG),
    };
    match args.command {
        Some(Command::Test(test)) => return command::run(&test, &registry, &checked),
        Some(Command::Describe(asked)) => return describe(&tools, &checked, asked.json),
        None => {}
    }
    let watched = checked.config.worker.tools.clone().filter(|_| args.watch).map(|dir| {
        let (tools, checked) = (tools.clone(), checked.clone());
        Watched::new(dir, Arc::new(move || gather(&tools, &checked)))
    });
    let worker = worker_name();
    let telemetry = match telemetry::start("toolfleet-worker", &worker, &checked.config.telemetry) {
        Ok(handle) => handle,
        Err(error) => return complain(&error, EXIT_CONFIG),
    };
    for tool in registry.tools() {
        for warning in checks::warnings(&tool.descriptor, &checked.limits) {
            let (code, mend) = (warning.code, &warning.mend);
            tracing::warn!(tool = tool.descriptor.name, code, mend, "{}", warning.message);
        }
    }
    let slots = match checked.config.worker.slots {
        0 => registry.slots(),
        slots => slots,
    };
    memory::warn(&registry, slots);
    let root = scratch_root(&checked);
    if registry.tools().any(|tool| !tool.run.is_native()) {
        ShutIn::of(&checked, &root).tell();
    }
    // Beside the start: it may be much.
    std::thread::spawn(move || Exec::remove_leftovers(&root));
    let ended = run(checked, registry, args.ready_file, watched, worker);
    telemetry.flush_and_stop(FLUSH);
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ (Error::Topology(_) | Error::Prefix(_) | Error::Address(_))) => {
            complain(&error, EXIT_CONFIG)
        }
        Err(error) => complain(&error, EXIT_UNREACHABLE),
    }
}

pub(crate) fn complain(error: &dyn std::fmt::Display, code: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr().lock(), "{error}");
    ExitCode::from(code)
}

/// Every tool, or every fault of every tool.
fn gather(tools: &Tools, checked: &Checked) -> Result<Arc<Registry>, Vec<Fault>> {
    let mut builder = Builder::by(checked.rules.clone());
    builder.own(Arc::new(BenchEcho));
    tools.native.iter().for_each(|tool| builder.native(Arc::clone(tool)));
    if let Some(dir) = &checked.config.worker.tools {
        let scratch_root = scratch_root(checked);
        let shut_in = ShutIn::of(checked, &scratch_root);
        builder.folder(dir, &Programs { scratch_root, guard: guard_path(), shut_in });
    }
    builder.build().map(Arc::new)
}

/// Where programs get their folders.
fn scratch_root(checked: &Checked) -> PathBuf {
    checked.config.worker.scratch_dir.clone().unwrap_or_else(std::env::temp_dir)
}

/// Prints the tools, those written in Rust first.
fn describe(tools: &Tools, checked: &Checked, is_json: bool) -> ExitCode {
    let built_in: Arc<dyn Native> = Arc::new(BenchEcho);
    let native = std::iter::once(&built_in).chain(&tools.native);
    let mut described: Vec<Described> =
        native.map(|tool| registry::describe(tool.as_ref(), &checked.rules)).collect();
    let dir = checked.config.worker.tools.as_deref();
    match dir.map(|dir| described::read(dir, &checked.rules)) {
        Some(Ok(found)) => described.extend(found),
        Some(Err(faults)) => return complain(&lines(&faults), EXIT_CONFIG),
        None => {}
    }
    let pool = Pool {
        name: &checked.config.worker.pool,
        tools: &described,
        limits: &checked.limits,
        lock: None,
        isolation: checked.config.worker.isolation,
        kernel: isolation::level(),
    };
    let shown = if is_json { pool.json().to_string() } else { pool.text() };
    let _ = writeln!(std::io::stdout().lock(), "{shown}");
    ExitCode::SUCCESS
}

/// The guard of exec tools: beside this program, where it is installed or built together with it.
fn guard_path() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    own.with_file_name(GUARD_PROGRAM)
}

/// Other processes of this user, tools among them, cannot read this one's memory and environment.
fn conceal() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
            let _ =
                writeln!(std::io::stderr().lock(), "the worker's memory is not concealed: {error}");
        }
    }
}

/// Faults, one a line.
pub(crate) fn lines(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The edge on a runtime of one thread, the tools on another of many.
fn run(
    checked: Checked,
    registry: Arc<Registry>,
    ready_file: Option<PathBuf>,
    watched: Option<Watched>,
    worker: String,
) -> Result<(), Error> {
    let tools = tokio::runtime::Builder::new_multi_thread()
        .thread_name("tools")
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .enable_all()
        .build()?;
    let edge = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let health = Health::new();
    let mut admin = None;
    if !checked.config.worker.admin_listen.is_empty() {
        let key = "worker.admin_listen";
        let address = config::address(key, &checked.config.worker.admin_listen);
        let address = address.map_err(Error::Address)?;
        let address = health::serve_on_own_thread(address, health.clone())
            .map_err(|error| Error::Address(format!("{key}: {address}: {error}")))?;
        tracing::info!(%address, "probes and metrics");
        admin = Some(address);
    }
    let tools_handle = tools.handle().clone();
    let service =
        Service { checked, registry, tools: tools_handle, health, admin, ready_file, watched };
    let ended = edge.block_on(async move {
        let stop = signal::on_first_signal()?;
        Box::pin(service.run(worker, stop)).await
    });
    // Tools that still run have been told to stop; a blocking one is abandoned.
    tools.shutdown_timeout(Duration::from_millis(500));
    ended
}
