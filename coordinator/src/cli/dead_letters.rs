//! `toolfleet dead-letters`: calls that took their workers down each time (CONTRACT 5.8).

use super::calls::{every_page, text};
use super::cancel::names;
use super::exit;
use super::output::{line, table};
use super::server::ServerArgs;
use crate::api::encode_segment;
use reqwest::Method;
use serde_json::{Value, json};
use std::process::ExitCode;

/// Arguments of `toolfleet dead-letters`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DeadLettersArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum What {
    /// List them
    List {
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Show one with its history
    Show(Named),
    /// Hand its call in again, as a new call linked to it
    Requeue {
        #[command(flatten)]
        named: Named,
        /// Also a write, which may have taken effect already
        #[arg(long)]
        force: bool,
    },
    /// Remove one
    Drop(Named),
}

#[derive(Clone, Debug, clap::Args)]
struct Named {
    /// The call's idempotency key, or its execution followed by the call
    #[arg(num_args = 1..=2, required = true, value_names = ["KEY", "CALL"])]
    id: Vec<String>,
    #[command(flatten)]
    server: ServerArgs,
}

impl Named {
    fn path(&self) -> Result<String, ExitCode> {
        let (execution, call) = names(&self.id[0], self.id.get(1).map(String::as_str));
        let call = call.ok_or_else(|| {
            let told = format!(
                "{:?} names no call; give its idempotency key, or execution and call",
                self.id[0]
            );
            exit::complain(&told, exit::USAGE)
        })?;
        Ok(format!("/v1/dead-letters/{}/{}", encode_segment(&execution), encode_segment(&call)))
    }

    async fn ask(
        &self,
        method: Method,
        verb: &str,
        body: Option<Value>,
    ) -> Result<super::server::Answer, ExitCode> {
        let path = format!("{}{verb}", self.path()?);
        let body = body.map(|body| body.to_string());
        let answer = self.server.ask(method, &path, body, None).await?;
        if answer.status.is_success() { Ok(answer) } else { Err(answer.complain()) }
    }
}

/// Runs the command.
pub(crate) async fn run(args: DeadLettersArgs, is_json: bool) -> ExitCode {
    let done = match args.what {
        What::List { server } => list(&server, is_json).await,
        What::Show(named) => show(&named, is_json).await,
        What::Requeue { named, force } => requeue(&named, force, is_json).await,
        What::Drop(named) => named.ask(Method::DELETE, "", None).await.map(|answer| {
            line(if is_json { &answer.text } else { "dropped" });
        }),
    };
    done.map_or_else(|code| code, |()| ExitCode::SUCCESS)
}

async fn list(server: &ServerArgs, is_json: bool) -> Result<(), ExitCode> {
    let connection = server.connection()?;
    let items = every_page(&connection, "/v1/dead-letters", "").await;
    let items = items.map_err(|failed| failed.complain())?;
    if is_json {
        line(&json!({"items": items, "nextCursor": null}).to_string());
    } else if items.is_empty() {
        line("no dead letters");
    } else {
        let rows: Vec<Vec<String>> = items.iter().map(row).collect();
        table(&["KEY", "TOOL", "POOL", "ATTEMPTS", "AT", "REQUEUED AS"], &rows);
    }
    Ok(())
}

fn row(item: &Value) -> Vec<String> {
    vec![
        text(item, "idempotencyKey").to_owned(),
        text(item, "toolName").to_owned(),
        text(item, "pool").to_owned(),
        item["attempts"].to_string(),
        text(item, "at").to_owned(),
        requeued(item),
    ]
}

fn requeued(item: &Value) -> String {
    match item["requeuedAs"]["call"].as_str() {
        Some(call) => format!("{call} ({})", text(&item["requeuedAs"], "state")),
        None => "-".to_owned(),
    }
}

async fn show(named: &Named, is_json: bool) -> Result<(), ExitCode> {
    let answer = named.ask(Method::GET, "", None).await?;
    if is_json {
        line(&answer.text);
        return Ok(());
    }
    let letter = answer.json();
    for (what, told) in [
        ("call", text(&letter, "idempotencyKey").to_owned()),
        ("tool", text(&letter, "toolName").to_owned()),
        ("pool", text(&letter, "pool").to_owned()),
        ("effect", text(&letter["job"], "effect").to_owned()),
        ("why", text(&letter, "reason").to_owned()),
        ("submitted", text(&letter["job"], "submittedAt").to_owned()),
        ("laid dead", text(&letter, "at").to_owned()),
        ("arguments", text(&letter["job"], "arguments").to_owned()),
        ("requeued as", requeued(&letter)),
    ] {
        line(&format!("{what:<12} {told}"));
    }
    line("");
    let history = letter["history"].as_array().cloned().unwrap_or_default();
    let rows: Vec<Vec<String>> = history.iter().map(attempt_row).collect();
    table(&["ATTEMPT", "CLAIMED", "WORKER", "TRACE", "LAST WORDS"], &rows);
    Ok(())
}

fn attempt_row(attempt: &Value) -> Vec<String> {
    vec![
        attempt["attempt"].to_string(),
        text(attempt, "claimedAt").to_owned(),
        text(attempt, "worker").to_owned(),
        text(attempt, "traceId").to_owned(),
        // Of several lines the last: the rest is in the JSON.
        text(attempt, "lastWords").lines().last().unwrap_or("-").to_owned(),
    ]
}

async fn requeue(named: &Named, force: bool, is_json: bool) -> Result<(), ExitCode> {
    let answer = named.ask(Method::POST, "/requeue", Some(json!({"force": force}))).await?;
    if is_json {
        line(&answer.text);
        return Ok(());
    }
    let call = answer.json();
    line(&format!(
        "requeued as {}; read it with `toolfleet calls {}`, or ask /v1/calls",
        text(&call, "idempotencyKey"),
        text(&call, "executionId"),
    ));
    Ok(())
}
