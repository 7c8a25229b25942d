//! `toolfleet describe`: the tools of a folder, offline.

use super::exit;
use super::output::line;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use toolfleet_io::config::Checked;
use toolfleet_io::{described, isolation};
use toolfleet_proto::describe::{Described, Pool};
use toolfleet_proto::layers::Rules;
use toolfleet_proto::manifest::Fault;

/// Arguments of `toolfleet describe`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DescribeArgs {
    /// Folder of manifests (default: worker.tools of the configuration)
    #[arg(long, value_name = "DIR")]
    tools: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) pool: PoolArgs,
}

/// By whose defaults tools are read.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PoolArgs {
    /// Pool by whose defaults the tools are read (default: worker.pool of the configuration)
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<String>,
}

impl PoolArgs {
    /// The settings that the flag stands for.
    pub(crate) fn flags(&self) -> Value {
        let mut worker = serde_json::Map::new();
        if let Some(pool) = &self.pool {
            worker.insert("pool".into(), json!(pool));
        }
        json!({ "worker": worker })
    }
}

/// The folder that was named, or the configuration's.
pub(super) fn folder<'a>(
    named: Option<&'a PathBuf>,
    checked: &'a Checked,
) -> Result<&'a Path, ExitCode> {
    named.or(checked.config.worker.tools.as_ref()).map(PathBuf::as_path).ok_or_else(|| {
        exit::complain(&"name a folder of manifests: --tools DIR, or worker.tools", exit::USAGE)
    })
}

/// Its tools; where it has faults, all of them are told.
pub(super) fn read(dir: &Path, rules: &Rules) -> Result<Vec<Described>, ExitCode> {
    described::read(dir, rules).map_err(|faults| {
        let lines: Vec<String> = faults.iter().map(Fault::to_string).collect();
        exit::complain(&lines.join("\n"), exit::CONFIG)
    })
}

/// Runs the command.
pub(crate) fn run(args: &DescribeArgs, checked: &Checked, is_json: bool) -> ExitCode {
    match describe(args, checked, is_json) {
        Ok(shown) => {
            line(&shown);
            ExitCode::SUCCESS
        }
        Err(code) => code,
    }
}

fn describe(args: &DescribeArgs, checked: &Checked, is_json: bool) -> Result<String, ExitCode> {
    let tools = read(folder(args.tools.as_ref(), checked)?, &checked.rules)?;
    let lock = checked.config.fleet.lock_file.as_deref().map(described::read_lock).transpose();
    let lock = lock.map_err(|text| exit::complain(&text, exit::CONFIG))?;
    let pool = Pool {
        name: &checked.config.worker.pool,
        tools: &tools,
        limits: &checked.limits,
        lock: lock.as_ref(),
        isolation: checked.config.worker.isolation,
        kernel: isolation::level(),
    };
    Ok(if is_json { pool.json().to_string() } else { pool.text() })
}
