//! `toolfleet trace ID`: a call's trace as a tree.

mod show;
mod tree;
mod width;

use super::exit;
use super::output::line;
use super::server::{Answer, ServerArgs};
use crate::api::encode_segment;
use crate::api::traces::{Trace, parse_trace_id};
use reqwest::{Method, StatusCode};
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;
use toolfleet_proto::name::split_key;

/// How long spans that are on their way are waited for.
const SPANS_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// Arguments of `toolfleet trace`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TraceArgs {
    /// A trace id, a call's idempotency key, or an execution followed by a call of it
    #[arg(num_args = 1..=2, required = true, value_names = ["ID", "CALL"])]
    id: Vec<String>,
    #[command(flatten)]
    server: ServerArgs,
}

/// What an id names.
#[derive(Debug, PartialEq, Eq)]
enum Named {
    Trace(String),
    Call { execution: String, call: String },
}

/// Reads the arguments; nothing where they name neither a trace nor a call.
fn named(id: &str, call: Option<&str>) -> Option<Named> {
    if let Some(call) = call {
        return Some(Named::Call { execution: id.to_owned(), call: call.to_owned() });
    }
    parse_trace_id(id)
        .map(Named::Trace)
        .or_else(|| split_key(id).map(|(execution, call)| Named::Call { execution, call }))
}

/// Runs the command.
pub(crate) async fn run(args: TraceArgs, is_json: bool) -> ExitCode {
    match show(&args, is_json).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(code) => code,
    }
}

async fn show(args: &TraceArgs, is_json: bool) -> Result<(), ExitCode> {
    let id = &args.id[0];
    let trace_id = match named(id, args.id.get(1).map(String::as_str)) {
        Some(Named::Trace(trace_id)) => trace_id,
        Some(Named::Call { execution, call }) => of_call(&args.server, &execution, &call).await?,
        None => {
            let text = format!(
                "{id:?} names neither a trace nor a call; give 32 hexadecimal digits, an idempotency \
                 key, or execution and call"
            );
            return Err(exit::complain(&text, exit::USAGE));
        }
    };
    print(&args.server, &trace_id, is_json).await
}

/// Prints a trace once no span of it is missing.
///
/// # Errors
/// The exit code where it cannot be had; it has been told already.
pub(crate) async fn print(
    server: &ServerArgs,
    trace_id: &str,
    is_json: bool,
) -> Result<(), ExitCode> {
    let answer = settled(server, trace_id).await?;
    if is_json {
        line(&answer.text);
        return Ok(());
    }
    let trace: Trace = serde_json::from_str(&answer.text).map_err(|error| {
        exit::complain(&format!("the answer is not a trace: {error}"), exit::FAILED)
    })?;
    let width = width::of_terminal();
    show::lines(&trace, width).iter().for_each(|text| line(text));
    Ok(())
}

/// The trace of a call.
async fn of_call(server: &ServerArgs, execution: &str, call: &str) -> Result<String, ExitCode> {
    let path = format!("/v1/calls/{}/{}", encode_segment(execution), encode_segment(call));
    let answer = server.ask(Method::GET, &path, None, None).await?;
    if !answer.status.is_success() {
        return Err(answer.complain());
    }
    let call = answer.json();
    if let Some(trace_id) = call["traceId"].as_str().and_then(parse_trace_id) {
        return Ok(trace_id);
    }
    Err(match call["state"].as_str() {
        Some("done") => exit::complain(&"the call was not traced", exit::FAILED),
        state => {
            let state = state.unwrap_or("open");
            let text = format!("the call is {state}; its trace is named by its result");
            exit::complain(&text, exit::TRY_AGAIN)
        }
    })
}

/// Asks for a trace until no span is missing, for at most [`SPANS_TIMEOUT`].
async fn settled(server: &ServerArgs, trace_id: &str) -> Result<Answer, ExitCode> {
    let path = format!("/v1/traces/{trace_id}");
    let deadline = Instant::now() + SPANS_TIMEOUT;
    loop {
        let answer = server.ask(Method::GET, &path, None, None).await?;
        let may_grow = if answer.status.is_success() {
            serde_json::from_str::<Trace>(&answer.text)
                .is_ok_and(|trace| !tree::is_whole(&trace.spans))
        } else {
            answer.status == StatusCode::NOT_FOUND && answer.json()["code"] == "trace_not_found"
        };
        if may_grow && Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
        } else if answer.status.is_success() {
            return Ok(answer);
        } else {
            return Err(answer.complain());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_a_trace_or_a_call() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        let call = |execution: &str, call: &str| {
            Some(Named::Call { execution: execution.into(), call: call.into() })
        };
        assert_eq!(named(id, None), Some(Named::Trace(id.into())));
        assert_eq!(named(id, Some("main:t:c")), call(id, "main:t:c"));
        assert_eq!(named("e%3A1:main:t:c", None), call("e:1", "main:t:c"));
        assert_eq!(named("e1", None), None);
        assert_eq!(named("", None), None);
    }
}
