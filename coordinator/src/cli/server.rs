//! The coordinator that a command talks to.

use super::exit;
use reqwest::{Client, Method, Response, StatusCode};
use serde_json::Value;
use std::process::ExitCode;

/// Where the coordinator is.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServerArgs {
    /// Address of a coordinator
    #[arg(long, value_name = "URL", env = "TOOLFLEET_SERVER", default_value = "http://127.0.0.1:8080")]
    pub(crate) server: String,
}

/// An answer, read whole.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

impl Answer {
    /// The answer as JSON; `null` where it is none.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }

    /// Tells a problem document, or whatever else came, and gives the exit code for it.
    pub(crate) fn complain(&self) -> ExitCode {
        let problem = self.json();
        let text = |key: &str| problem[key].as_str().unwrap_or_default().to_owned();
        let told = match (text("detail"), text("mend")) {
            (detail, _) if detail.is_empty() => format!("the server answered {}: {}", self.status, self.text),
            (detail, mend) if mend.is_empty() => detail,
            (detail, mend) => format!("{detail}\n  to mend it: {mend}"),
        };
        let code = match self.status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => exit::TRY_AGAIN,
            _ => exit::FAILED,
        };
        exit::complain(&told, code)
    }
}

impl ServerArgs {
    /// Asks, without a time limit: a call takes as long as it takes.
    ///
    /// # Errors
    /// The exit code where nobody answers; it has been told already.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
        key: Option<&str>,
    ) -> Result<Answer, ExitCode> {
        let url = format!("{}{path}", self.server.trim_end_matches('/'));
        let unreachable = |error: reqwest::Error| {
            let text = format!(
                "no coordinator answers at {}: {}; start one with `toolfleet dev`, or set --server",
                self.server,
                root_cause(&error)
            );
            exit::complain(&text, exit::UNREACHABLE)
        };
        let client = Client::builder().build().map_err(unreachable)?;
        let mut request = client.request(method, url);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let response: Response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let text = response.text().await.map_err(unreachable)?;
        Ok(Answer { status, text })
    }
}

fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
