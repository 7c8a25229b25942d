//! Soaks a fleet: `soak [--calls N] [--minutes N] [--seed N] [--coordinators N] [--workers N]
//! [--harm all|broker]`. Prints the
//! account, and exits 1 where a promise was broken.

use anyhow::{Context as _, bail};
use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use toolfleet_tests::soak::{self, Plan};

struct Args {
    calls: usize,
    minutes: f64,
    seed: u64,
    coordinators: usize,
    workers: usize,
    is_broker_only: bool,
}

fn args() -> anyhow::Result<Args> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let seed = u64::try_from(now).unwrap_or_default();
    let mut args = Args {
        calls: 10_000,
        minutes: 10.0,
        seed,
        coordinators: 3,
        workers: 4,
        is_broker_only: false,
    };
    let mut given = std::env::args().skip(1);
    while let Some(flag) = given.next() {
        let value = given.next().with_context(|| format!("{flag} has no value"))?;
        let number = || value.parse::<u64>().with_context(|| format!("{flag} {value}"));
        match flag.as_str() {
            "--calls" => args.calls = usize::try_from(number()?)?,
            "--minutes" => {
                args.minutes = value.parse().with_context(|| format!("{flag} {value}"))?
            }
            "--seed" => args.seed = number()?,
            "--coordinators" => args.coordinators = usize::try_from(number()?)?,
            "--workers" => args.workers = usize::try_from(number()?)?,
            "--harm" if value == "all" => {}
            "--harm" if value == "broker" => args.is_broker_only = true,
            _ => bail!(
                "{flag} {value}: use --calls, --minutes, --seed, --coordinators, --workers, --harm all|broker"
            ),
        }
    }
    Ok(args)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<ExitCode> {
    let args = args()?;
    let mut out = std::io::stdout();
    let Args { calls, minutes, seed, .. } = args;
    writeln!(out, "soaking {calls} calls for {minutes} minutes, seed {seed}")?;
    let worker = std::env::current_exe()?.with_file_name("test-worker");
    let fleet = soak::fleet(&worker, args.coordinators, args.workers).start().await?;
    let mut plan = Plan::new(seed, calls, Duration::from_secs_f64(minutes * 60.0), 30_000);
    plan.is_broker_only = args.is_broker_only;
    let report = soak::run(fleet, plan).await?;
    write!(out, "{report}")?;
    Ok(if report.violations().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
