//! `toolfleet lock`: writes down which versions of tools may be offered (CONTRACT 1.12).

use super::describe::{PoolArgs, folder, read};
use super::exit;
use super::output::line;
use serde_json::{Value, json};
use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use toolfleet_io::config::Checked;
use toolfleet_io::described::{lock_of, read_lock};
use toolfleet_proto::lock::{Difference, Lock};

/// Everybody may read it: it holds no secret.
const MODE: u32 = 0o644;

/// Arguments of `toolfleet lock`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LockArgs {
    /// Folder of manifests (default: worker.tools of the configuration)
    #[arg(long, value_name = "DIR")]
    tools: Option<PathBuf>,
    /// The lock file; `-` prints it instead
    #[arg(long, value_name = "FILE", default_value = "toolfleet.lock")]
    out: PathBuf,
    /// Write nothing: tell how the tools differ from the file, and exit 1 where they do
    #[arg(long)]
    check: bool,
    /// Keep what the file has: during a rollout the versions before stay pinned
    #[arg(long, conflicts_with = "check")]
    keep: bool,
    /// Ask this worker binary for its tools, those built in or written in Rust too
    #[arg(long, value_name = "PROGRAM")]
    worker: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) pool: PoolArgs,
}

/// Runs the command.
pub(crate) fn run(
    args: &LockArgs,
    config: Option<&Path>,
    checked: &Checked,
    is_json: bool,
) -> ExitCode {
    let found = match &args.worker {
        Some(program) => of_worker(program, args, config),
        None => folder(args.tools.as_ref(), checked)
            .and_then(|dir| read(dir, &checked.rules))
            .map(|tools| lock_of(&tools)),
    };
    let done = found.and_then(|found| {
        if args.check { check(&args.out, &found, is_json) } else { write(args, found, is_json) }
    });
    done.unwrap_or_else(|code| code)
}

/// What a worker's own `describe` says, by the settings of this command.
fn of_worker(program: &Path, args: &LockArgs, config: Option<&Path>) -> Result<Lock, ExitCode> {
    let mut command = Command::new(program);
    command.args(["describe", "--json"]);
    for (flag, path) in [("--tools", args.tools.as_deref()), ("--config", config)] {
        if let Some(path) = path {
            command.arg(flag).arg(path);
        }
    }
    if let Some(pool) = &args.pool.pool {
        command.arg("--pool").arg(pool);
    }
    let output = command.stdin(std::process::Stdio::null()).output().map_err(|error| {
        exit::complain(&format!("--worker {}: {error}", program.display()), exit::USAGE)
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
        return Err(exit::complain(&said, exit::CONFIG));
    }
    let described: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let Some(tools) = described["tools"].as_array() else {
        let text = format!("--worker {}: it did not describe its tools", program.display());
        return Err(exit::complain(&text, exit::USAGE));
    };
    let pair = |tool: &'_ Value| {
        Some((tool["name"].as_str()?.to_owned(), tool["hash"].as_str()?.to_owned()))
    };
    let pairs: Vec<(String, String)> = tools.iter().filter_map(pair).collect();
    Ok(Lock::of(pairs.iter().map(|(name, hash)| (name.as_str(), hash.as_str()))))
}

fn check(file: &Path, found: &Lock, is_json: bool) -> Result<ExitCode, ExitCode> {
    let lock = read_lock(file).map_err(|text| exit::complain(&text, exit::CONFIG))?;
    let differences = lock.differences(found);
    if is_json {
        line(
            &json!({"differences": differences.iter().map(as_json).collect::<Vec<_>>()})
                .to_string(),
        );
    } else {
        differences.iter().for_each(|difference| line(&difference.to_string()));
    }
    Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

fn as_json(difference: &Difference) -> Value {
    match difference {
        Difference::Missing { name, hash } => {
            json!({"kind": "missing", "name": name, "hash": hash, "pinned": []})
        }
        Difference::Changed { name, hash, pinned } => {
            json!({"kind": "changed", "name": name, "hash": hash, "pinned": pinned})
        }
        Difference::Gone { name } => json!({"kind": "gone", "name": name}),
    }
}

fn write(args: &LockArgs, mut found: Lock, is_json: bool) -> Result<ExitCode, ExitCode> {
    let file = &args.out;
    if args.keep && file.exists() {
        let before = read_lock(file).map_err(|text| exit::complain(&text, exit::CONFIG))?;
        found.add(&before);
    }
    if file.as_os_str() == "-" {
        line(found.to_text().trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    write_by_rename(file, &found.to_text())
        .map_err(|error| exit::complain(&format!("{}: {error}", file.display()), exit::FAILED))?;
    if is_json {
        let tools: serde_json::Map<String, Value> =
            found.tools().map(|(name, hashes)| (name.to_owned(), json!(hashes))).collect();
        line(&json!({"file": file, "tools": tools}).to_string());
    } else {
        line(&format!("{}: {} tools", file.display(), found.count()));
    }
    Ok(ExitCode::SUCCESS)
}

/// A coordinator that looks meanwhile sees the file before or after, and whole.
fn write_by_rename(path: &Path, text: &str) -> std::io::Result<()> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut file = tempfile::Builder::new()
        .permissions(Permissions::from_mode(MODE))
        .tempfile_in(folder.unwrap_or_else(|| Path::new(".")))?;
    file.write_all(text.as_bytes())?;
    file.persist(path).map(|_| ()).map_err(|error| error.error)
}
