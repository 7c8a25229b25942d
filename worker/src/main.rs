//! `toolfleet-worker`: the worker with the tools built in and those of its folder.

use std::process::ExitCode;
use toolfleet_worker::process;

/// Calls come and go as many middle-sized pieces, which the system's allocator handles slowly.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    process::main(process::Tools::new())
}
