//! `toolfleet dev`: a whole fleet on this machine, of real servers and real processes, that goes as it
//! came.
//!
//! Every child is in a process group of its own, so Ctrl-C of a terminal reaches only `dev`, which
//! ends them in order. A watchdog ends them when `dev` itself is killed.

mod backoff;
mod catalogue;
mod fleet;
mod follow;
mod guard;
mod member;
mod plan;
mod program;
mod ready;
mod report;
mod role;
mod signals;
mod state;
mod supervise;
mod traces;
mod watchdog;

pub use watchdog::{WatchdogArgs, watchdog};

use fleet::Fleet;
use guard::{Guard, Recipe};
use member::Member;
use plan::Plan;
use program::{Program, Surroundings};
use report::{Failure, say};
use role::Role;
use signals::Signals;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use toolfleet_io::child::{NatsOptions, Observer, RedisOptions};
use toolfleet_io::config::Checked;
use traces::{Receiver, Spans};

const CATALOGUE_TIMEOUT: Duration = Duration::from_secs(30);
/// As a shell tells an end by SIGINT: a second signal cut the end short.
const EXIT_INTERRUPTED: u8 = 130;

/// Arguments of `toolfleet dev`.
#[derive(Clone, Debug, clap::Args)]
pub struct DevArgs {
    /// Address of the API; `:0` takes any free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub listen: String,
    /// How many workers
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub workers: usize,
    /// Folder of tool manifests; without it only the built-in tools
    #[arg(long, value_name = "DIR")]
    pub tools: Option<PathBuf>,
    /// Folder for data and logs, kept between runs; without it a temporary one
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Where to write addresses and process ids as JSON once every tool can be called
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
    /// Send traces and metrics to this OTLP endpoint, such as http://127.0.0.1:4318, instead of keeping
    /// the last traces for `toolfleet trace`; `none` sends them nowhere
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// Show what the children write
    #[arg(long)]
    pub verbose: bool,
    /// The configuration file given to `toolfleet` itself, handed on to the children as `--config`.
    #[arg(skip)]
    pub config_file: Option<PathBuf>,
}

/// Runs a fleet until SIGINT, SIGTERM or SIGHUP, or until it cannot be started. With `json` the
/// addresses go to standard output as one JSON line instead of words.
///
/// Exit codes: 0 after an orderly end, 69 where a child cannot be started, 78 where the configuration
/// or a manifest cannot be used, 130 where a second signal cut the end short.
pub async fn run(args: DevArgs, checked: Checked, json: bool) -> ExitCode {
    match dev(&args, &checked, json).await {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            failure.say();
            ExitCode::from(failure.code())
        }
    }
}

async fn dev(args: &DevArgs, checked: &Checked, json: bool) -> Result<u8, Failure> {
    let plan = Plan::make(args, checked)?;
    let unavailable = |error: std::io::Error| Failure::Unavailable(error.to_string());
    let signals = Signals::install().map_err(unavailable)?;
    let guard = Guard::start(Recipe {
        program: plan.own_program.clone(),
        drain_ms: plan.drain_ms,
        lock: plan.state.lock().map_err(unavailable)?,
    })
    .map_err(|error| Failure::Unavailable(format!("could not start the watchdog: {error}")))?;

    let quiet = CancellationToken::new();
    let logs = if args.verbose { logs(&plan) } else { words_on_tools(&plan) };
    let follower = tokio::spawn(follow::follow(logs, quiet.clone()));

    // Until the children are gone: they send their last spans on their way out.
    let receiver = match plan.spans {
        Spans::Kept => Some(Receiver::start().await.map_err(unavailable)?),
        Spans::Sent(_) | Spans::AsConfigured => None,
    };
    let traces_url = receiver.as_ref().map(|receiver| receiver.url().to_owned());
    let mut fleet = Fleet::new(signals, traces_url);
    let failure = match drive(&mut fleet, &plan, guard.observer(), json).await {
        Ok(never) => match never {},
        Err(failure) => failure,
    };
    failure.say();
    if matches!(failure, Failure::Interrupted) {
        say("stopping; a second signal kills what still runs");
    }
    let cut_short = fleet.end(plan.drain_ms).await;
    quiet.cancel();
    let _ = follower.await;
    guard.end().await;
    Ok(if cut_short { EXIT_INTERRUPTED } else { failure.code() })
}

/// All workers follow the same folder: one of them is enough to hear.
fn words_on_tools(plan: &Plan) -> Vec<follow::Log> {
    if plan.tools.is_none() || plan.workers == 0 {
        return Vec::new();
    }
    let path = plan.state.path().join("logs").join(format!("{}.log", Role::Worker(1)));
    vec![follow::Log::of_tools(path)]
}

fn logs(plan: &Plan) -> Vec<follow::Log> {
    let state = plan.state.path();
    let workers = (1..=plan.workers).map(Role::Worker);
    let programs = std::iter::once(Role::Coordinator).chain(workers);
    let mut logs: Vec<follow::Log> = programs
        .map(|role| follow::Log::new(state.join("logs").join(format!("{role}.log")), role))
        .collect();
    logs.push(follow::Log::new(state.join("nats/nats.log"), Role::Nats));
    logs.push(follow::Log::new(state.join("redis/redis.log"), Role::Redis));
    logs
}

/// Starts everything in order, says where it is, and keeps the ready file true.
async fn drive(
    fleet: &mut Fleet,
    plan: &Plan,
    observer: Observer,
    json: bool,
) -> Result<std::convert::Infallible, Failure> {
    let state = plan.state.path();
    fleet.start(servers(plan, &observer)).await?;
    let url = |role| fleet.up(role).map(|up| up.url.clone()).unwrap_or_default();
    let around = Surroundings {
        nats_url: url(Role::Nats),
        redis_url: url(Role::Redis),
        state: state.into(),
        config_file: plan.config_file.clone(),
        telemetry: traces::variables(&plan.spans, fleet.traces_url()),
        observer,
    };
    let listen = plan.listen.to_string();
    let coordinator = Program::coordinator(plan.own_program.clone(), listen, around.clone());
    fleet.start(vec![Member::Program(coordinator)]).await?;
    let workers = (1..=plan.workers).map(|number| {
        let (program, tools) = (plan.worker_program.clone(), plan.tools.as_ref());
        Member::Program(Program::worker(program, number, tools, around.clone()))
    });
    fleet.start(workers.collect()).await?;
    let tools = callable(fleet, plan).await?;
    write_ready_file(fleet, plan).map_err(Failure::Configuration)?;
    announce(fleet, plan, &tools, json);
    loop {
        if fleet.step().await?
            && let Err(text) = write_ready_file(fleet, plan)
        {
            say(&text);
        }
    }
}

fn servers(plan: &Plan, observer: &Observer) -> Vec<Member> {
    let state = plan.state.path();
    let nats = NatsOptions::new(&plan.nats_program, state.join("nats"));
    let redis =
        RedisOptions { program: plan.redis_program.clone(), dir: state.join("redis"), port: None };
    vec![
        Member::Nats { options: nats, observer: observer.clone(), server: None },
        Member::Redis { options: redis, observer: observer.clone(), server: None },
    ]
}

/// Waits until the coordinator lists every tool of the workers; then all it lists.
async fn callable(fleet: &mut Fleet, plan: &Plan) -> Result<BTreeSet<String>, Failure> {
    let mut wanted = fleet.tools();
    if plan.workers > 0 {
        wanted.insert(catalogue::BUILT_IN.into());
    }
    let http = fleet.up(Role::Coordinator).map(|up| up.url.clone()).unwrap_or_default();
    let listed = catalogue::until_listed(&http, &wanted, CATALOGUE_TIMEOUT);
    tokio::pin!(listed);
    loop {
        tokio::select! {
            listed = &mut listed => return listed.map_err(|text| {
                Failure::Unavailable(format!("{text}{}", last_words(plan)))
            }),
            changed = fleet.step() => drop(changed?),
        }
    }
}

/// The ends of the coordinator's and the workers' logs.
fn last_words(plan: &Plan) -> String {
    let workers = (1..=plan.workers).map(Role::Worker);
    let words: Vec<String> = std::iter::once(Role::Coordinator)
        .chain(workers)
        .map(|role| {
            let path = plan.state.path().join("logs").join(format!("{role}.log"));
            (role, toolfleet_io::child::log_tail(&path))
        })
        .filter(|(_, text)| !text.is_empty())
        .map(|(role, text)| format!("\nthe last lines of {role}:\n{text}"))
        .collect();
    words.concat()
}

fn write_ready_file(fleet: &Fleet, plan: &Plan) -> Result<(), String> {
    let (Some(path), Some(file)) = (&plan.ready_file, fleet.ready_file()) else { return Ok(()) };
    let text = |error: &dyn std::fmt::Display| {
        format!("--ready-file: could not write {}: {error}", path.display())
    };
    let bytes = serde_json::to_vec(&file).map_err(|error| text(&error))?;
    ready::replace(path, &bytes).map_err(|error| text(&error))
}

/// Says on standard output where everything is. A closed one is no fault.
fn announce(fleet: &Fleet, plan: &Plan, tools: &BTreeSet<String>, json: bool) {
    let Some(file) = fleet.ready_file() else { return };
    let mut out = std::io::stdout().lock();
    if json {
        let line = serde_json::to_string(&file).unwrap_or_default();
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        return;
    }
    let names: Vec<&str> = tools.iter().map(String::as_str).collect();
    let traces = match (&plan.spans, &file.traces) {
        (_, Some(url)) => format!("{url} (the last ones; see `toolfleet trace`)"),
        (Spans::Sent(url), None) if url.is_empty() => "none".to_owned(),
        (Spans::Sent(url), None) => format!("sent to {url}"),
        (Spans::Kept | Spans::AsConfigured, None) => "sent as configured".to_owned(),
    };
    let kept = if plan.state.is_temporary() { "removed at the end" } else { "kept" };
    let _ = writeln!(
        out,
        "toolfleet dev is ready\n  http     {}\n  admin    {}\n  nats     {}\n  redis    {}\n  \
         traces   {traces}\n  workers  {}\n  tools    {}\n  state    {} ({kept})\npress Ctrl-C to stop",
        file.http,
        file.admin,
        file.nats,
        file.redis,
        plan.workers,
        names.join(", "),
        plan.state.path().display(),
    )
    .and_then(|()| out.flush());
}
