//! `toolfleet-worker`: the worker with the tools built in and those of its folder.

use std::process::ExitCode;
use toolfleet_worker::process;

fn main() -> ExitCode {
    process::main(process::Tools::new())
}
