//! The API as a caller sees it.

use anyhow::Context as _;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;

/// Longer than any call of a test may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A client of one coordinator. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Http {
    client: reqwest::Client,
    base: String,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// The body as it came.
    pub text: String,
    /// The body as JSON; null where it is none.
    pub body: Value,
}

impl Http {
    /// A client of the coordinator at `http://host:port`.
    pub fn new(base: impl Into<String>) -> anyhow::Result<Http> {
        toolfleet_io::telemetry::install_tls();
        let client = reqwest::Client::builder().no_proxy().timeout(REQUEST_TIMEOUT).build()?;
        Ok(Http { client, base: base.into() })
    }

    /// Where it sends to.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// A request that the caller completes.
    pub fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base))
    }

    /// Sends a request and reads the whole answer.
    pub async fn send(&self, request: reqwest::RequestBuilder) -> anyhow::Result<Answer> {
        let response = request.send().await.context("no answer")?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.context("the answer broke off")?;
        let body = serde_json::from_str(text.trim()).unwrap_or(Value::Null);
        Ok(Answer { status, headers, text, body })
    }

    /// GET.
    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.send(self.request(reqwest::Method::GET, path)).await
    }

    /// POST of a JSON text, as it is.
    pub async fn post_text(&self, path: &str, text: String) -> anyhow::Result<Answer> {
        let request = self.request(reqwest::Method::POST, path);
        self.send(request.header(CONTENT_TYPE, "application/json").body(text)).await
    }

    /// POST of a JSON value.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.post_text(path, body.to_string()).await
    }

    /// Calls a tool with an input alone.
    pub async fn call(&self, tool: &str, input: Value) -> anyhow::Result<Answer> {
        self.post(&call_path(tool), &json!({ "input": input })).await
    }

    /// Calls a tool under an execution and a call id, so that it can be asked for again.
    pub async fn call_as(
        &self,
        tool: &str,
        execution: &str,
        call_id: &str,
        input: Value,
    ) -> anyhow::Result<Answer> {
        let body = json!({"input": input, "executionId": execution, "callId": call_id});
        self.post(&call_path(tool), &body).await
    }

    /// Calls a tool in an execution under an `Idempotency-Key`.
    pub async fn call_keyed(
        &self,
        tool: &str,
        execution: &str,
        key: &str,
        input: Value,
    ) -> anyhow::Result<Answer> {
        let request = self
            .request(reqwest::Method::POST, &call_path(tool))
            .header(CONTENT_TYPE, "application/json")
            .header("Idempotency-Key", key)
            .body(json!({"input": input, "executionId": execution}).to_string());
        self.send(request).await
    }

    /// Posts a turn of an execution.
    pub async fn turn(
        &self,
        execution: &str,
        turn: &str,
        message: &Value,
    ) -> anyhow::Result<Answer> {
        let (execution, turn) = (encode_segment(execution), encode_segment(turn));
        self.post(&format!("/v1/executions/{execution}/turns?turn={turn}"), message).await
    }

    /// Reads a call, waiting up to `wait_s` seconds for its end.
    pub async fn read_call(
        &self,
        execution: &str,
        call: &str,
        wait_s: u64,
    ) -> anyhow::Result<Answer> {
        let (execution, call) = (encode_segment(execution), encode_segment(call));
        self.get(&format!("/v1/calls/{execution}/{call}?wait={wait_s}")).await
    }
}

fn call_path(tool: &str) -> String {
    format!("/v1/tools/{}/call", encode_segment(tool))
}

/// One segment of a path or value of a query, percent-encoded.
pub fn encode_segment(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut segment, byte| {
        if byte.is_ascii_alphanumeric() || b"-_~.".contains(&byte) {
            segment.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(segment, "%{byte:02X}");
        }
        segment
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_keep_nothing_that_a_path_would_read() {
        assert_eq!(encode_segment("a.b/c d:é?"), "a.b%2Fc%20d%3A%C3%A9%3F");
    }
}
