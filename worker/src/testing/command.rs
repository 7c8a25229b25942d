//! `toolfleet-worker test NAME`: one call of a tool on this machine, shown whole.

use super::{TestRun, TestTool, show};
use crate::process::{EXIT_CONFIG, EXIT_FAILED, EXIT_UNREACHABLE, EXIT_USAGE, complain};
use crate::registry::Registry;
use crate::runner::threads::Threads;
use crate::service::worker_name;
use crate::stop::{Stop, StopReason};
use std::io::{Read as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;
use toolfleet_io::config::{Checked, Telemetry};
use toolfleet_io::{signal, telemetry};

/// Arguments of `toolfleet-worker test`.
#[derive(clap::Args)]
pub(crate) struct TestArgs {
    /// The tool's name
    name: String,
    /// The input, a JSON object; `@FILE` reads a file, `-` standard input
    #[arg(long, value_name = "JSON", default_value = "{}")]
    input: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The text of the input. What it is worth is judged as a model's arguments are.
fn read_input(input: &str) -> Result<String, String> {
    if input == "-" {
        let mut text = String::new();
        let read = std::io::stdin().read_to_string(&mut text);
        return read.map(|_| text).map_err(|error| format!("standard input: {error}"));
    }
    match input.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}")),
        None => Ok(input.to_owned()),
    }
}

/// Runs the command with the tools of a worker.
pub(crate) fn run(args: &TestArgs, registry: &Registry, checked: &Checked) -> ExitCode {
    let input = match read_input(&args.input) {
        Ok(input) => input,
        Err(text) => return complain(&text, EXIT_USAGE),
    };
    let tool = match TestTool::named(registry, &args.name) {
        Ok(tool) => tool,
        Err(error) => return complain(&error, EXIT_USAGE),
    };
    // What a tool says on descriptor 3 is logged; nothing is exported from here.
    let quiet = Telemetry { otlp_endpoint: String::new(), ..checked.config.telemetry.clone() };
    let telemetry = match telemetry::start("toolfleet-worker", &worker_name(), &quiet) {
        Ok(handle) => handle,
        Err(error) => return complain(&error, EXIT_CONFIG),
    };
    let made = make(&tool, input, checked);
    telemetry.flush_and_stop(Duration::from_secs(1));
    let run = match made {
        Ok(run) => run,
        Err(error) => return complain(&error, EXIT_UNREACHABLE),
    };
    let shown = if args.json { show::json(&tool, &run) } else { show::text(&tool, &run) };
    // A reader that is gone is no error.
    let _ = writeln!(std::io::stdout().lock(), "{shown}");
    if run.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILED) }
}

fn make(tool: &TestTool, input: String, checked: &Checked) -> std::io::Result<TestRun> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let grace = Duration::from_millis(checked.limits.kill_grace_ms);
    let stop = Stop::new();
    let threads = Threads::new(runtime.handle().clone());
    let call = tool.call_text(input).kill_grace(grace).stop_with(stop.clone());
    let mut call = call.on_threads(threads);
    if let Some(dir) = &checked.config.worker.secrets_dir {
        call = call.secrets_dir(dir);
    }
    let run = runtime.block_on(async {
        let interrupted = signal::on_first_signal()?;
        tokio::spawn(async move {
            interrupted.cancelled().await;
            stop.fire(StopReason::Cancelled("interrupted".into()));
        });
        // Large: kept off this stack.
        std::io::Result::Ok(Box::pin(call.run()).await)
    });
    // A blocking tool that was told to stop is abandoned.
    runtime.shutdown_timeout(Duration::from_millis(500));
    run
}

#[cfg(test)]
mod tests {
    use super::read_input;

    #[test]
    fn input_comes_from_the_command_line_or_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("in.json");
        std::fs::write(&file, "{\"a\":1}").unwrap();
        assert_eq!(read_input(&format!("@{}", file.display())).unwrap(), "{\"a\":1}");
        assert_eq!(read_input("{").unwrap(), "{");
        let missing = dir.path().join("gone");
        assert!(read_input(&format!("@{}", missing.display())).unwrap_err().contains("gone"));
    }
}
