//! The coordinator that a command talks to.

use super::exit;
use reqwest::{Client, Method, Response, StatusCode};
use serde_json::Value;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

/// Where the coordinator is.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServerArgs {
    /// Address of a coordinator
    #[arg(
        long,
        value_name = "URL",
        env = "TOOLFLEET_SERVER",
        default_value = "http://127.0.0.1:8080"
    )]
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
            (detail, _) if detail.is_empty() => {
                format!("the server answered {}: {}", self.status, self.text)
            }
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

/// Nobody answers; how and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unreachable(String);

/// Why a question has no answer that is of use.
pub(crate) enum Failed {
    /// Nobody answers.
    Unreachable(Unreachable),
    /// The answer is a refusal.
    Refused(Answer),
}

impl Failed {
    /// Tells it, and gives the exit code for it.
    pub(crate) fn complain(&self) -> ExitCode {
        match self {
            Failed::Unreachable(unreachable) => exit::complain(&unreachable.0, exit::UNREACHABLE),
            Failed::Refused(answer) => answer.complain(),
        }
    }

    /// Whether the same question may be answered in a moment: a coordinator that starts again.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Failed::Unreachable(_) => true,
            Failed::Refused(answer) => answer.status == StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// How long a coordinator that answered before is asked again while it does not.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bears with a coordinator that is away for a moment.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    since: Option<Instant>,
}

impl Patience {
    /// It answered.
    pub(crate) fn restore(&mut self) {
        self.since = None;
    }

    /// Whether it is to be asked again after this failure: for 30 s from the first one.
    pub(crate) fn bears(&mut self, failed: &Failed, now: Instant) -> bool {
        failed.is_passing() && now.duration_since(*self.since.get_or_insert(now)) < PATIENCE
    }
}

/// A coordinator to ask; its connection is kept between questions.
#[derive(Clone)]
pub(crate) struct Connection {
    client: Client,
    server: String,
}

impl Connection {
    fn unreachable(&self, error: &reqwest::Error) -> Unreachable {
        unreachable(&self.server, error)
    }

    /// Asks, without a time limit: a call takes as long as it takes.
    ///
    /// # Errors
    /// Where nobody answers.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
        headers: &[(&'static str, &str)],
    ) -> Result<Answer, Unreachable> {
        let url = format!("{}{path}", self.server.trim_end_matches('/'));
        let mut request = self.client.request(method, url);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response: Response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        let text = response.text().await.map_err(|error| self.unreachable(&error))?;
        Ok(Answer { status, text })
    }

    /// Sends a body to a path.
    ///
    /// # Errors
    /// Where nobody answers, or the answer is a refusal.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<Answer, Failed> {
        let answer = self.ask(method, path, Some(body), &[]).await.map_err(Failed::Unreachable)?;
        if answer.status.is_success() { Ok(answer) } else { Err(Failed::Refused(answer)) }
    }

    /// Reads a path.
    ///
    /// # Errors
    /// Where nobody answers, or the answer is a refusal.
    pub(crate) async fn get(&self, path: &str) -> Result<Answer, Failed> {
        let answer = self.ask(Method::GET, path, None, &[]).await.map_err(Failed::Unreachable)?;
        if answer.status.is_success() { Ok(answer) } else { Err(Failed::Refused(answer)) }
    }
}

impl ServerArgs {
    /// A connection, not made before the first question.
    ///
    /// # Errors
    /// The exit code where there can be none; it has been told already.
    pub(crate) fn connection(&self) -> Result<Connection, ExitCode> {
        let client = Client::builder().build().map_err(|error| {
            exit::complain(&unreachable(&self.server, &error).0, exit::UNREACHABLE)
        })?;
        Ok(Connection { client, server: self.server.clone() })
    }

    /// Asks once, without a time limit: a call takes as long as it takes.
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
        let headers: Vec<(&'static str, &str)> =
            key.map(|key| ("idempotency-key", key)).into_iter().collect();
        let asked = self.connection()?.ask(method, path, body, &headers).await;
        asked.map_err(|unreachable| Failed::Unreachable(unreachable).complain())
    }
}

fn unreachable(server: &str, error: &reqwest::Error) -> Unreachable {
    Unreachable(format!(
        "no coordinator answers at {server}: {}; start one with `toolfleet dev`, or set --server",
        root_cause(error)
    ))
}

fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coordinator_that_is_away_is_borne_with_for_a_while_and_a_refusal_is_not() {
        let away = Failed::Unreachable(Unreachable("away".into()));
        let refused =
            Failed::Refused(Answer { status: StatusCode::NOT_FOUND, text: String::new() });
        let start = Instant::now();
        let mut patience = Patience::default();
        assert!(patience.bears(&away, start));
        assert!(patience.bears(&away, start + PATIENCE / 2));
        assert!(!patience.bears(&refused, start + PATIENCE / 2));
        assert!(!patience.bears(&away, start + PATIENCE));
        patience.restore();
        assert!(patience.bears(&away, start + PATIENCE));
    }
}
