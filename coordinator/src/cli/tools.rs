//! `toolfleet tools`: what is on offer, what each pool announces, and an entry taken out.

use super::output::{line, table};
use super::server::{Connection, ServerArgs};
use crate::api::encode_segment;
use reqwest::Method;
use serde_json::{Value, json};
use std::process::ExitCode;
use toolfleet_proto::lock::short;
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
    /// Show every version that a pool announces, who has it, and why it is not offered
    #[arg(long, conflicts_with_all = ["format", "tags"])]
    versions: bool,
    /// Address of a coordinator
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "TOOLFLEET_SERVER",
        default_value = "http://127.0.0.1:8080"
    )]
    server: String,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Action {
    /// Take a tool that no worker brings any more out of the catalogue
    Drop {
        /// The tool's name
        name: String,
        /// The pool, where several announce the tool
        #[arg(long, value_name = "NAME")]
        pool: Option<String>,
        /// Also where live workers have it; they announce it again when they start again
        #[arg(long)]
        force: bool,
    },
}

/// Characters of a description that a row shows.
const DESCRIPTION_CHARS: usize = 60;

/// Runs the command.
pub(crate) async fn run(args: ToolsArgs, is_json: bool) -> ExitCode {
    let connection = match (ServerArgs { server: args.server.clone() }).connection() {
        Ok(connection) => connection,
        Err(code) => return code,
    };
    let done = match &args.action {
        Some(Action::Drop { name, pool, force }) => {
            let body = json!({"pool": pool, "force": force}).to_string();
            drop_entry(&connection, name, body, is_json).await
        }
        None if args.versions => versions(&connection, is_json).await,
        None => list(&connection, &args, is_json).await,
    };
    done.err().unwrap_or(ExitCode::SUCCESS)
}

async fn drop_entry(
    connection: &Connection,
    name: &str,
    body: String,
    is_json: bool,
) -> Result<(), ExitCode> {
    let path = format!("/v1/tools/{}/drop", encode_segment(name));
    let answer =
        connection.send(Method::POST, &path, body).await.map_err(|failed| failed.complain())?;
    let dropped = answer.json();
    if is_json {
        line(&answer.text);
    } else {
        let text = |key: &str| dropped[key].as_str().unwrap_or_default();
        line(&format!("{} of the pool {} is dropped", text("name"), text("pool")));
    }
    Ok(())
}

async fn list(connection: &Connection, args: &ToolsArgs, is_json: bool) -> Result<(), ExitCode> {
    let answer = connection.get(&args.path()).await.map_err(|failed| failed.complain())?;
    // Another format has not what the table shows.
    if is_json || args.format.is_some() {
        line(&answer.text);
        return Ok(());
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
    // What is not offered has no tags to be asked for.
    if args.tags.is_some() {
        return Ok(());
    }
    let catalog = connection.get("/v1/catalog").await.map_err(|failed| failed.complain())?.json();
    let items = catalog["items"].as_array().unwrap_or(&empty);
    items.iter().filter_map(|item| withheld(&item["withheld"])).for_each(|text| line(&text));
    Ok(())
}

/// Why a pool's tool is not offered.
fn withheld(withheld: &Value) -> Option<String> {
    let text = |key: &str| withheld[key].as_str().unwrap_or_default();
    let (name, pool, hash) = (text("name"), text("pool"), short(text("hash")));
    match text("reason") {
        "another_hash" => Some(format!(
            "not offered: {name} {hash} of the pool {pool}; the pool {} had the name first, with {}",
            text("offeredPool"),
            short(text("offeredHash"))
        )),
        "unpinned" => {
            let pinned: Vec<&str> = withheld["pinned"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|hash| hash.as_str().map(short))
                .collect();
            let lock = if pinned.is_empty() { "nothing".to_owned() } else { pinned.join(", ") };
            Some(format!("not offered: {name} {hash} of the pool {pool}; the lock file has {lock}"))
        }
        _ => None,
    }
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

async fn versions(connection: &Connection, is_json: bool) -> Result<(), ExitCode> {
    let answer = connection.get("/v1/catalog").await.map_err(|failed| failed.complain())?;
    if is_json {
        line(&answer.text);
        return Ok(());
    }
    let catalog = answer.json();
    let items = catalog["items"].as_array().into_iter().flatten();
    let rows: Vec<Vec<String>> = items.flat_map(version_rows).collect();
    table(&["NAME", "POOL", "HASH", "OFFERED", "PINNED", "LAST ANNOUNCED", "WORKERS"], &rows);
    Ok(())
}

fn version_rows(item: &Value) -> Vec<Vec<String>> {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let versions = item["versions"].as_array().into_iter().flatten();
    versions
        .map(|version| {
            let pinned = match version["isPinned"].as_bool() {
                Some(true) => "yes",
                Some(false) => "no",
                None => "-",
            };
            let workers = version["workers"].as_array().into_iter().flatten();
            let (live, gone): (Vec<&Value>, Vec<&Value>) =
                workers.partition(|worker| worker["isLive"].as_bool() == Some(true));
            let mut names: Vec<String> = live.iter().map(|worker| text(worker, "worker")).collect();
            names.extend(gone.iter().map(|worker| {
                format!("{} (last seen {})", text(worker, "worker"), text(worker, "lastSeenAt"))
            }));
            vec![
                text(item, "name"),
                text(item, "pool"),
                short(&text(version, "hash")).to_owned(),
                if version["isOffered"].as_bool() == Some(true) { "yes" } else { "no" }.to_owned(),
                pinned.to_owned(),
                text(version, "lastAnnouncedAt"),
                if names.is_empty() { "none".to_owned() } else { names.join(", ") },
            ]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_offered_says_why() {
        let hash = "a".repeat(64);
        let other = json!({"name": "find", "pool": "b", "hash": hash, "reason": "another_hash",
            "offeredPool": "a", "offeredHash": "b".repeat(64)});
        assert_eq!(
            withheld(&other).unwrap(),
            "not offered: find aaaaaaaaaaaa of the pool b; the pool a had the name first, with bbbbbbbbbbbb"
        );
        let unpinned =
            json!({"name": "find", "pool": "b", "hash": hash, "reason": "unpinned", "pinned": []});
        assert!(withheld(&unpinned).unwrap().ends_with("the lock file has nothing"));
        assert_eq!(withheld(&Value::Null), None);
    }

    #[test]
    fn a_version_shows_who_has_it() {
        let item = json!({"name": "find", "pool": "a", "versions": [{
            "hash": "a".repeat(64), "isOffered": true, "isPinned": null, "lastAnnouncedAt": "T",
            "workers": [{"worker": "w1", "isLive": true}, {"worker": "w2", "isLive": false, "lastSeenAt": "U"}],
        }]});
        let row = &version_rows(&item)[0];
        assert_eq!(row[2..], ["aaaaaaaaaaaa", "yes", "-", "T", "w1, w2 (last seen U)"]);
    }
}
