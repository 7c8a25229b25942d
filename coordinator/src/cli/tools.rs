//! `toolfleet tools`.

use super::output::{line, table};
use super::server::ServerArgs;
use crate::api::encode_segment;
use reqwest::Method;
use serde_json::Value;
use std::process::ExitCode;
use toolfleet_proto::unit;

/// Arguments of `toolfleet tools`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ToolsArgs {
    /// Print the definitions for a model's request, as JSON: openai-chat, openai-responses, anthropic,
    /// gemini, mcp or native
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,
    /// Only tools with one of these tags, comma-separated
    #[arg(long, value_name = "TAGS")]
    tags: Option<String>,
    /// Mark tools as strict whose schema is in the provider's strict subset as it stands
    #[arg(long, requires = "format")]
    strict: bool,
    /// The form of Gemini's schemas: json-schema or openapi
    #[arg(long, value_name = "FORM", requires = "format")]
    schema: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Characters of a description that a row shows.
const DESCRIPTION_CHARS: usize = 60;

/// Runs the command.
pub(crate) async fn run(args: ToolsArgs, is_json: bool) -> ExitCode {
    let answer = match args.server.ask(Method::GET, &args.path(), None, None).await {
        Ok(answer) => answer,
        Err(code) => return code,
    };
    if !answer.status.is_success() {
        return answer.complain();
    }
    // Another format has not what the table shows.
    if is_json || args.format.is_some() {
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

impl ToolsArgs {
    fn path(&self) -> String {
        let strict = self.strict.then(|| "true".to_owned());
        let asked = [
            ("format", &self.format),
            ("tags", &self.tags),
            ("strict", &strict),
            ("schema", &self.schema),
        ];
        let given = asked.iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
        let query: Vec<String> =
            given.map(|(name, value)| format!("{name}={}", encode_segment(value))).collect();
        if query.is_empty() {
            "/v1/tools".to_owned()
        } else {
            format!("/v1/tools?{}", query.join("&"))
        }
    }
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
