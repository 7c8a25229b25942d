//! `toolfleet`: the coordinator and the one command-line tool of the system.

use std::process::ExitCode;

/// Calls come and go as many middle-sized pieces, which the system's allocator handles slowly.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    toolfleet_coordinator::cli::main()
}
