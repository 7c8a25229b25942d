//! `toolfleet`, the command line. Human output by default, `--json` everywhere.

mod bench;
mod call;
mod calls;
mod cancel;
mod check;
mod completions;
mod config_show;
mod dead_letters;
mod demo;
mod describe;
pub mod dev;
mod exit;
mod here;
mod lock;
mod output;
mod serve;
mod server;
mod terminal;
mod tools;
mod topology;
mod trace;
mod turn_file;
mod watch;

use crate::api::traces::Source;
use clap::{Parser, Subcommand};
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;
use toolfleet_io::config::{self, Checked};
use toolfleet_io::telemetry;

/// An execution fleet for model tool calls: durable, leased, traced.
#[derive(Parser)]
#[command(name = "toolfleet", version, about, disable_help_subcommand = true, after_help = EXIT_CODES)]
struct Args {
    /// Configuration file (default: toolfleet.toml of the working directory, where there is one)
    #[arg(long, global = true, value_name = "FILE", env = "TOOLFLEET_CONFIG")]
    config: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 well, 1 the call failed, 2 usage, 69 not reachable, \
75 try again, 78 configuration.\nSettings: a TOML file, then TOOLFLEET_<SECTION>__<KEY>, then flags; \
`toolfleet config show` prints what holds.";

#[derive(Subcommand)]
enum Command {
    /// Run a whole fleet on this machine, for development
    Dev(dev::DevArgs),
    /// Run a coordinator
    Serve(serve::ServeArgs),
    /// Call one tool and print what comes back
    Call(call::CallArgs),
    /// Run one tool here, without a fleet, and show everything that comes of it
    Test(here::TestArgs),
    /// Hand in a model's message and print what each of its calls comes to
    Turn(turn_file::TurnArgs),
    /// List calls: those of an execution, or all that are queued or run now
    Calls(calls::CallsArgs),
    /// Follow the calls of an execution
    Watch(watch::WatchArgs),
    /// Show the tools of a folder, with every value and where it comes from; offline
    Describe(describe::DescribeArgs),
    /// Write down which versions of the tools of a folder may be offered
    Lock(lock::LockArgs),
    /// List the tools on offer
    Tools(tools::ToolsArgs),
    /// Tell every fault of a folder of tools, offline
    Check(check::CheckArgs),
    /// Cancel an execution or one of its calls
    Cancel(cancel::CancelArgs),
    /// Settle a call whose outcome is unknown, after checking what came of it
    Resolve(cancel::ResolveArgs),
    /// List, show, requeue or drop calls that took their workers down each time
    DeadLetters(dead_letters::DeadLettersArgs),
    /// Show a call's trace as a tree
    Trace(trace::TraceArgs),
    /// Show the fleet's streams, buckets and consumers, and whether they are as they must be
    Topology(topology::TopologyArgs),
    /// Measure a running `dev` with calls that do nothing
    Bench(bench::BenchArgs),
    /// Print a script that completes commands in a shell
    Completions(completions::CompletionsArgs),
    /// Show the configuration
    Config(config_show::ConfigArgs),
    /// Run one model message over a fleet of its own and print every result
    #[command(hide = true)]
    Demo(demo::DemoArgs),
    /// Ends the children of a `dev` that is gone
    #[command(hide = true)]
    DevWatchdog(dev::WatchdogArgs),
}

/// Runs the command line. The process's whole life.
pub fn main() -> ExitCode {
    telemetry::install_tls();
    let Args { config, json, command } = Args::parse();
    match command {
        Command::DevWatchdog(args) => dev::watchdog(args),
        Command::Demo(args) => block_on(demo::run(args)),
        Command::Call(args) => block_on(call::run(args, config, json)),
        Command::Test(args) => here::run(args, config, json),
        Command::Turn(args) => block_on(turn_file::run(args, json)),
        Command::Calls(args) => block_on(calls::run(args, json)),
        Command::Watch(args) => block_on(watch::run(args, json)),
        Command::Completions(args) => completions::run(&args),
        Command::Bench(args) => match load(config.as_ref(), &Value::Object(serde_json::Map::new()))
        {
            Ok(checked) => block_on(bench::run(args, checked, json)),
            Err(code) => code,
        },
        Command::Cancel(args) => block_on(cancel::run(args, json)),
        Command::Resolve(args) => block_on(cancel::resolve(args, json)),
        Command::DeadLetters(args) => block_on(dead_letters::run(args, json)),
        Command::Trace(args) => block_on(trace::run(args, json)),
        Command::Tools(args) => block_on(tools::run(args, json)),
        Command::Check(args) => match load(config.as_ref(), &args.pool.flags()) {
            Ok(checked) => check::run(&args, &checked, json),
            Err(code) => code,
        },
        Command::Serve(args) => match load(config.as_ref(), &args.flags()) {
            Ok(checked) => {
                Source::new(&checked.config.telemetry.traces_url).install();
                serve::run(args, checked)
            }
            Err(code) => code,
        },
        Command::Dev(mut args) => {
            match load(config.as_ref(), &Value::Object(serde_json::Map::new())) {
                Ok(checked) => {
                    args.config_file = config;
                    block_on(dev::run(args, checked, json))
                }
                Err(code) => code,
            }
        }
        Command::Topology(args) => match load(config.as_ref(), &args.flags()) {
            Ok(checked) => block_on(topology::run(args, checked, json)),
            Err(code) => code,
        },
        Command::Describe(args) => match load(config.as_ref(), &args.pool.flags()) {
            Ok(checked) => describe::run(&args, &checked, json),
            Err(code) => code,
        },
        Command::Lock(args) => match load(config.as_ref(), &args.pool.flags()) {
            Ok(checked) => lock::run(&args, config.as_deref(), &checked, json),
            Err(code) => code,
        },
        Command::Config(args) => {
            match load(config.as_ref(), &Value::Object(serde_json::Map::new())) {
                Ok(checked) => config_show::run(&args, &checked, json),
                Err(code) => code,
            }
        }
    }
}

fn load(file: Option<&PathBuf>, flags: &Value) -> Result<Checked, ExitCode> {
    config::load(file.map(PathBuf::as_path), flags)
        .map_err(|error| exit::complain(&error, exit::CONFIG))
}

/// Runs a command on a runtime of one thread: a command line waits, it does not compute.
fn block_on(command: impl Future<Output = ExitCode>) -> ExitCode {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(command),
        Err(error) => exit::complain(&error, exit::UNREACHABLE),
    }
}

#[cfg(test)]
mod tests {
    use super::Args;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }
}
