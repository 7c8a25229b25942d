//! `toolfleet tools`.

use super::output::{line, table};
use super::server::ServerArgs;
use reqwest::Method;
use serde_json::Value;
use std::process::ExitCode;
use toolfleet_proto::unit;

/// Arguments of `toolfleet tools`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ToolsArgs {
    #[command(flatten)]
    server: ServerArgs,
}

/// Characters of a description that a row shows.
const DESCRIPTION_CHARS: usize = 60;

/// Runs the command.
pub(crate) async fn run(args: ToolsArgs, is_json: bool) -> ExitCode {
    let answer = match args.server.ask(Method::GET, "/v1/tools", None, None).await {
        Ok(answer) => answer,
        Err(code) => return code,
    };
    if !answer.status.is_success() {
        return answer.complain();
    }
    if is_json {
        line(&answer.text);
        return ExitCode::SUCCESS;
    }
    let list = answer.json();
    let empty = Vec::new();
    let tools = list["tools"].as_array().unwrap_or(&empty);
    if tools.is_empty() {
        line("no tool is on offer; a worker with --tools DIR announces the manifests of a folder");
    } else {
        let rows: Vec<Vec<String>> = tools.iter().map(row).collect();
        table(&["NAME", "EFFECT", "POOL", "TIMEOUT", "WORKER", "DESCRIPTION"], &rows);
    }
    ExitCode::SUCCESS
}

fn row(tool: &Value) -> Vec<String> {
    let text = |key: &str| tool[key].as_str().unwrap_or_default().to_owned();
    let description = text("description");
    let short: String = description.chars().take(DESCRIPTION_CHARS).collect();
    let worker = if tool["isLive"].as_bool() == Some(true) { "live" } else { "none" };
    vec![
        text("name"),
        text("effect"),
        text("pool"),
        unit::describe_ms(tool["timeoutMs"].as_u64().unwrap_or(0)),
        worker.to_owned(),
        short.lines().next().unwrap_or_default().to_owned(),
    ]
}
