//! Calls of tools on this machine, without a fleet: the worker's program makes them.

use super::exit;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// The worker's program.
const WORKER_PROGRAM: &str = "toolfleet-worker";

/// Arguments of `toolfleet test`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TestArgs {
    /// The tool's name
    name: String,
    /// The input, a JSON object; `@FILE` reads a file, `-` standard input
    #[arg(long, value_name = "JSON", default_value = "{}")]
    input: String,
    /// Folder of manifests
    #[arg(long, value_name = "DIR")]
    tools: Option<PathBuf>,
}

impl TestArgs {
    /// A call of a tool of that folder.
    pub(super) fn new(name: String, input: String, tools: PathBuf) -> TestArgs {
        TestArgs { name, input, tools: Some(tools) }
    }
}

/// Becomes `toolfleet-worker test`, which lies beside this program: its output and its end are ours.
/// Returns only where it cannot be started.
pub(crate) fn run(args: TestArgs, config: Option<PathBuf>, is_json: bool) -> ExitCode {
    let own = std::env::current_exe().unwrap_or_default();
    let worker = own.with_file_name(WORKER_PROGRAM);
    let mut words: Vec<OsString> = vec!["test".into(), args.name.into()];
    // With a sign between, so that an input that begins with a dash is one.
    words.push(format!("--input={}", args.input).into());
    for (flag, path) in [("--tools", args.tools), ("--config", config)] {
        if let Some(path) = path {
            words.extend([flag.into(), path.into_os_string()]);
        }
    }
    if is_json {
        words.push("--json".into());
    }
    let error = Command::new(&worker).args(words).exec();
    let text = format!(
        "{} could not be started: {error}; install it in the folder of this program",
        worker.display()
    );
    exit::complain(&text, exit::UNREACHABLE)
}
