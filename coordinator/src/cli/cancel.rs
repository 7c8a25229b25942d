//! `toolfleet cancel` and `toolfleet resolve`.

use super::exit;
use super::output::{line, table};
use super::server::{Answer, ServerArgs};
use crate::api::encode_segment;
use reqwest::Method;
use serde_json::json;
use std::process::ExitCode;
use toolfleet_proto::name::split_key;

/// Arguments of `toolfleet cancel`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CancelArgs {
    /// An execution, or a call's idempotency key
    id: String,
    /// A call of the execution; without it the whole execution is cancelled
    call: Option<String>,
    /// What the model reads
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Arguments of `toolfleet resolve`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ResolveArgs {
    /// The call's idempotency key, or its execution followed by the call
    #[arg(num_args = 1..=2, required = true, value_names = ["KEY", "CALL"])]
    id: Vec<String>,
    /// What was found out: the write took effect, or it did not
    #[arg(long, value_parser = ["done", "not-done"])]
    outcome: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// The execution and the call that an id names: a key names both.
pub(crate) fn names(id: &str, call: Option<&str>) -> (String, Option<String>) {
    match (call, split_key(id)) {
        (Some(call), _) => (id.to_owned(), Some(call.to_owned())),
        (None, Some((execution, call))) => (execution, Some(call)),
        (None, None) => (id.to_owned(), None),
    }
}

/// Runs `toolfleet cancel`.
pub(crate) async fn run(args: CancelArgs, is_json: bool) -> ExitCode {
    let (execution, call) = names(&args.id, args.call.as_deref());
    let path = match &call {
        Some(call) => call_path(&execution, call, "cancel"),
        None => format!("/v1/executions/{}/cancel", encode_segment(&execution)),
    };
    let body = args.reason.as_ref().map_or_else(|| json!({}), |reason| json!({"reason": reason}));
    let answer = match ask(&args.server, &path, &body.to_string()).await {
        Ok(answer) => answer,
        Err(code) => return code,
    };
    if is_json {
        line(&answer.text);
        return ExitCode::SUCCESS;
    }
    let value = answer.json();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    match value["calls"].as_array() {
        None => line(&text(&value["answer"])),
        Some(calls) if calls.is_empty() => line("cancelled; it has no calls"),
        Some(calls) => {
            let rows: Vec<Vec<String>> =
                calls.iter().map(|call| vec![text(&call["call"]), text(&call["answer"])]).collect();
            table(&["CALL", "ANSWER"], &rows);
        }
    }
    ExitCode::SUCCESS
}

/// Runs `toolfleet resolve`.
pub(crate) async fn resolve(args: ResolveArgs, is_json: bool) -> ExitCode {
    let (execution, call) = names(&args.id[0], args.id.get(1).map(String::as_str));
    let Some(call) = call else {
        let text = format!(
            "{:?} names no call; give its idempotency key, or execution and call",
            args.id[0]
        );
        return exit::complain(&text, exit::USAGE);
    };
    let body = json!({"outcome": args.outcome}).to_string();
    let answer = match ask(&args.server, &call_path(&execution, &call, "resolve"), &body).await {
        Ok(answer) => answer,
        Err(code) => return code,
    };
    line(if is_json { &answer.text } else { "settled" });
    ExitCode::SUCCESS
}

fn call_path(execution: &str, call: &str, verb: &str) -> String {
    format!("/v1/calls/{}/{}/{verb}", encode_segment(execution), encode_segment(call))
}

async fn ask(server: &ServerArgs, path: &str, body: &str) -> Result<Answer, ExitCode> {
    let answer = server.ask(Method::POST, path, Some(body.to_owned()), None).await?;
    if answer.status.is_success() { Ok(answer) } else { Err(answer.complain()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_execution_and_call() {
        let both = (String::from("e:1"), Some("main:t:c".to_owned()));
        assert_eq!(names("e%3A1:main:t:c", None), both);
        assert_eq!(names("e:1", Some("main:t:c")), both);
        assert_eq!(names("e1", None), ("e1".to_owned(), None));
    }
}
