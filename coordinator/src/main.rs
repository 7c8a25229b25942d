//! `toolfleet`: the coordinator and the one command-line tool of the system.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolfleet_coordinator::cli::main()
}
