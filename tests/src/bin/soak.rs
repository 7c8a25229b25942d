//! Soaks a fleet and prints the account; exits 1 where a promise was broken.

use clap::Parser;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use toolfleet_tests::soak::{self, HarmKind, Plan};

/// Hands calls in while everything is killed, paused and emptied, and accounts for each.
#[derive(Parser)]
#[command(name = "soak")]
struct Args {
    /// How many calls
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    calls: usize,
    /// How long faults are done
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    minutes: f64,
    /// What everything random comes from; without it the time
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How many coordinators
    #[arg(long, value_name = "N", default_value_t = 3)]
    coordinators: usize,
    /// How many workers
    #[arg(long, value_name = "N", default_value_t = 4)]
    workers: usize,
    /// Which faults: all; broker: killed brokers and paused workers; rolling: replaced in order; scaling: from one worker to eight and back; none
    #[arg(long, value_name = "KIND", default_value = "all", value_parser = ["all", "broker", "rolling", "scaling", "none"])]
    harm: String,
    /// Where to copy the logs of all processes at the end
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let seed = args.seed.unwrap_or(u64::try_from(now_ms)?);
    let mut out = std::io::stdout();
    writeln!(out, "soaking {} calls for {} minutes, seed {seed}", args.calls, args.minutes)?;
    let worker = std::env::current_exe()?.with_file_name("test-worker");
    let fleet = soak::fleet(&worker, args.coordinators, args.workers).start().await?;
    let plan = Plan {
        harm: match args.harm.as_str() {
            "broker" => HarmKind::Broker,
            "rolling" => HarmKind::Rolling,
            "scaling" => HarmKind::Scaling,
            "none" => HarmKind::None,
            _ => HarmKind::All,
        },
        keep: args.keep,
        ..Plan::new(seed, args.calls, Duration::from_secs_f64(args.minutes * 60.0), 30_000)
    };
    let report = soak::run(fleet, plan).await?;
    write!(out, "{report}")?;
    Ok(if report.violations().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
