//! `toolfleet call NAME --input JSON`.

use super::exit;
use super::here::{self, TestArgs};
use super::output::line;
use super::server::ServerArgs;
use crate::api::encode_segment;
use reqwest::Method;
use serde_json::json;
use serde_json::value::RawValue;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `toolfleet call`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CallArgs {
    /// The tool's name
    name: String,
    /// The input, a JSON object; `@FILE` reads a file, `-` standard input
    #[arg(long, value_name = "JSON", default_value = "{}")]
    input: String,
    /// Execution that the call belongs to
    #[arg(long, value_name = "ID")]
    execution: Option<String>,
    /// Names the call: the same key again attaches to it and runs nothing twice
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Run the tool here, from this folder of manifests and without a fleet, and show everything that
    /// comes of it; as `toolfleet test`
    #[arg(long, value_name = "DIR", conflicts_with_all = ["execution", "idempotency_key"])]
    dir: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
}

fn read_input(input: &str) -> Result<String, String> {
    let mut text = input.to_owned();
    if input == "-" {
        text.clear();
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(|error| format!("standard input: {error}"))?;
    } else if let Some(path) = input.strip_prefix('@') {
        text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    }
    match serde_json::from_str::<&RawValue>(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(format!(
            "--input is not JSON: {error}; give an object such as '{{\"city\": \"Oslo\"}}'"
        )),
    }
}

/// Runs the command.
pub(crate) async fn run(args: CallArgs, config: Option<PathBuf>, is_json: bool) -> ExitCode {
    if let Some(dir) = args.dir {
        return here::run(TestArgs::new(args.name, args.input, dir), config, is_json);
    }
    let input = match read_input(&args.input) {
        Ok(input) => input,
        Err(text) => return exit::complain(&text, exit::USAGE),
    };
    let mut body = format!("{{\"input\":{input}");
    if let Some(execution) = &args.execution {
        body.push_str(&format!(",\"executionId\":{}", json!(execution)));
    }
    body.push('}');
    let path = format!("/v1/tools/{}/call", encode_segment(&args.name));
    let key = args.idempotency_key.as_deref();
    let answer = match args.server.ask(Method::POST, &path, Some(body), key).await {
        Ok(answer) => answer,
        Err(code) => return code,
    };
    if !answer.status.is_success() {
        return answer.complain();
    }
    let value = answer.json();
    if is_json {
        line(&answer.text);
    } else {
        line(value["text"].as_str().unwrap_or_default());
    }
    if value["isError"].as_bool() == Some(true) {
        ExitCode::from(exit::FAILED)
    } else {
        ExitCode::SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_that_is_not_json_is_a_usage_error() {
        assert_eq!(read_input("{\"a\": 1}").unwrap(), "{\"a\": 1}");
        assert!(read_input("{a: 1}").unwrap_err().contains("--input is not JSON"));
    }
}
