//! `toolfleet bench`: what a fleet carries, measured from outside through its HTTP API.

mod announced;
mod cpu;
mod load;

use super::exit;
use super::output::{line, table};
use super::terminal::Target;
use announced::Announced;
use cpu::{Processes, Used};
use load::{Load, Taken};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use toolfleet_io::broker::Broker;
use toolfleet_io::config::Checked;
use toolfleet_proto::topology::Prefix;
use toolfleet_proto::unit::thousands;

/// Calls before the measured time: connections are made, caches are warm.
const WARM_UP: Duration = Duration::from_secs(1);
/// How long a second result is waited for after the last call of a setting.
const STRAGGLE: Duration = Duration::from_millis(250);

/// Arguments of `toolfleet bench`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// The ready file of a running `toolfleet dev`
    #[arg(long, value_name = "FILE")]
    ready_file: PathBuf,
    /// Calls in flight, one measurement for each
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,64,256",
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    in_flight: Vec<u32>,
    /// Seconds that each measurement takes, after a warm-up of one second
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
}

/// Where the fleet is: what `dev` wrote.
#[derive(Debug, Deserialize)]
struct Ready {
    http: String,
    nats: String,
    pids: Pids,
}

#[derive(Debug, Deserialize)]
struct Pids {
    nats: u32,
    redis: u32,
    coordinator: u32,
    workers: Vec<u32>,
}

impl Ready {
    fn read(path: &Path) -> Result<Ready, String> {
        let told = |error: &dyn std::fmt::Display| {
            let path = path.display();
            format!(
                "--ready-file {path}: {error}; start a fleet with `toolfleet dev --ready-file {path}`"
            )
        };
        let text = std::fs::read(path).map_err(|error| told(&error))?;
        serde_json::from_slice(&text).map_err(|error| told(&error))
    }

    fn processes(&self) -> Processes {
        Processes {
            client: vec![std::process::id()],
            coordinator: vec![self.pids.coordinator],
            workers: self.pids.workers.clone(),
            nats: vec![self.pids.nats],
            redis: vec![self.pids.redis],
        }
    }
}

/// One line of the measurement, in the form of the yardstick.
#[derive(Debug, Serialize)]
struct Measured {
    /// Calls that began and ended well within the measured time.
    calls: u64,
    calls_per_s: u64,
    p50_us: u64,
    p99_us: u64,
    /// Processor time over the calls, by process; null where the system does not tell.
    cpu_us_per_call: Used<Option<f64>>,
    /// Calls without an answer, or with one that is not well, warm-up included.
    lost: u64,
    /// Results that were announced for a call that had one.
    second_results: u64,
    setting: Setting,
}

#[derive(Debug, Serialize)]
struct Setting {
    workers: usize,
    in_flight: u32,
}

/// Runs the command. Exit code 1 where a call was lost or had a second result.
pub(crate) async fn run(args: BenchArgs, checked: Checked, is_json: bool) -> ExitCode {
    let ready = match Ready::read(&args.ready_file) {
        Ok(ready) => ready,
        Err(told) => return exit::complain(&told, exit::USAGE),
    };
    let prefix = match Prefix::parse(&checked.config.fleet.prefix) {
        Ok(prefix) => prefix,
        Err(error) => return exit::complain(&format!("fleet.prefix: {error}"), exit::CONFIG),
    };
    let mut nats = checked.config.nats;
    nats.url.clone_from(&ready.nats);
    let broker = match Broker::connect(&nats, prefix, "toolfleet bench").await {
        Ok(broker) => broker,
        Err(error) => return exit::complain(&error, exit::UNREACHABLE),
    };
    let mut measured = Vec::with_capacity(args.in_flight.len());
    for in_flight in &args.in_flight {
        progress(&format!("measuring {in_flight} in flight for {} s", args.seconds));
        let one = measure(&ready, &broker, *in_flight, args.seconds).await;
        progress("");
        match one {
            Ok(one) if is_json => {
                line(&serde_json::to_string(&one).unwrap_or_default());
                measured.push(one);
            }
            Ok(one) => measured.push(one),
            Err(told) => return exit::complain(&told, exit::UNREACHABLE),
        }
    }
    if !is_json {
        show(&measured);
    }
    let is_well = measured.iter().all(|one| one.lost == 0 && one.second_results == 0);
    if is_well { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) }
}

/// Says on a terminal what goes on, in place of what was said before.
fn progress(text: &str) {
    if Target::Err.is_terminal() {
        Target::Err.write(&format!("\r{text}\x1b[K"));
    }
}

async fn measure(
    ready: &Ready,
    broker: &Broker,
    in_flight: u32,
    seconds: u32,
) -> Result<Measured, String> {
    let announced = Announced::listen(broker).await.map_err(|error| error.to_string())?;
    let load = Load::new(&ready.http, in_flight, WARM_UP, Duration::from_secs(seconds.into()))
        .map_err(|error| format!("the client cannot be made: {error}"))?;
    let processes = ready.processes();
    let (taken, before) = load.run(|| processes.used_us()).await;
    let after = processes.used_us();
    tokio::time::sleep(STRAGGLE).await;
    let heard = announced.end().await;
    if heard.has_gaps {
        Target::Err
            .write("toolfleet: announcements were missed; second results may not all be counted\n");
    }
    let Taken { mut latencies_us, lost } = taken;
    latencies_us.sort_unstable();
    let calls = latencies_us.len() as u64;
    Ok(Measured {
        calls,
        calls_per_s: (calls as f64 / f64::from(seconds)).round() as u64,
        p50_us: percentile(&latencies_us, 0.50),
        p99_us: percentile(&latencies_us, 0.99),
        cpu_us_per_call: after.since(&before).per_call(calls),
        lost,
        second_results: heard.second_results,
        setting: Setting { workers: ready.pids.workers.len(), in_flight },
    })
}

/// A percentile of sorted numbers; 0 where there are none.
fn percentile(sorted: &[u64], share: f64) -> u64 {
    let position = sorted.len().saturating_sub(1) as f64 * share;
    sorted.get(position as usize).copied().unwrap_or(0)
}

fn show(measured: &[Measured]) {
    let cpu = |used: Option<f64>| used.map_or_else(|| "-".to_owned(), |us| format!("{us:.0}"));
    let rows: Vec<Vec<String>> = measured
        .iter()
        .map(|one| {
            let used = &one.cpu_us_per_call;
            vec![
                one.setting.in_flight.to_string(),
                one.setting.workers.to_string(),
                thousands(one.calls),
                thousands(one.calls_per_s),
                thousands(one.p50_us),
                thousands(one.p99_us),
                cpu(used.client),
                cpu(used.coordinator),
                cpu(used.workers),
                cpu(used.nats),
                cpu(used.redis),
                one.lost.to_string(),
                one.second_results.to_string(),
            ]
        })
        .collect();
    line("times in microseconds; processor time of each process per call");
    table(
        &[
            "IN FLIGHT",
            "WORKERS",
            "CALLS",
            "CALLS/S",
            "P50",
            "P99",
            "CLIENT",
            "COORDINATOR",
            "WORKERS",
            "NATS",
            "REDIS",
            "LOST",
            "SECOND",
        ],
        &rows,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_numbers_that_are_there() {
        let numbers: Vec<u64> = (1..=100).collect();
        assert_eq!((percentile(&numbers, 0.5), percentile(&numbers, 0.99)), (50, 99));
        assert_eq!((percentile(&[7], 0.99), percentile(&[], 0.5)), (7, 0));
    }

    #[test]
    fn a_ready_file_that_is_not_there_says_how_to_have_one() {
        let told = Ready::read(Path::new("/none/such")).unwrap_err();
        assert!(told.contains("toolfleet dev --ready-file"), "{told}");
    }
}
