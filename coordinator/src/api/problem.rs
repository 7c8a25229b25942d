//! Problem documents (RFC 9457) with a stable code and a way to mend it (DESIGN 10).

use crate::core::admit::Refusal;
use crate::core::formats::Refused;
use crate::submit::NotAccepted;
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use toolfleet_proto::code::Code;
use toolfleet_proto::limit::{BODY_BYTES_MAX, ID_BYTES_MAX};
use toolfleet_proto::name;

/// Seconds that a caller is asked to wait before it tries again.
const RETRY_AFTER: &str = "1";

/// A refusal of a whole request.
#[derive(Debug, Clone)]
pub struct Problem {
    status: StatusCode,
    code: &'static str,
    title: &'static str,
    detail: String,
    mend: String,
    turn: Option<String>,
    execution: Option<String>,
}

impl Problem {
    /// A problem.
    pub fn new(
        status: StatusCode,
        code: &'static str,
        title: &'static str,
        detail: impl Into<String>,
        mend: impl Into<String>,
    ) -> Problem {
        Problem {
            status,
            code,
            title,
            detail: detail.into(),
            mend: mend.into(),
            turn: None,
            execution: None,
        }
    }

    /// The turn to post again.
    #[must_use]
    pub fn with_turn(mut self, execution: &str, turn: &str) -> Problem {
        self.turn = Some(turn.to_owned());
        self.execution = Some(execution.to_owned());
        self
    }

    /// A fault in the request's own form.
    pub fn bad_request(code: &'static str, detail: impl Into<String>, mend: &str) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, code, "The request does not read", detail, mend)
    }

    /// A request that reads and cannot be served.
    pub fn unprocessable(code: &'static str, detail: impl Into<String>, mend: &str) -> Problem {
        Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            code,
            "The request cannot be served",
            detail,
            mend,
        )
    }

    /// A body over the limit.
    pub fn too_large(detail: impl Into<String>) -> Problem {
        Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            "The body is too large",
            detail,
            format!("send at most {BODY_BYTES_MAX} bytes"),
        )
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = json!({
            "type": format!("urn:toolfleet:problem:{}", self.code),
            "title": self.title,
            "status": self.status.as_u16(),
            "detail": self.detail,
            "code": self.code,
            "mend": self.mend,
        });
        if let (Some(turn), Some(execution)) = (&self.turn, &self.execution) {
            body["turn"] = json!(turn);
            body["executionId"] = json!(execution);
        }
        let mut response = (self.status, body.to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
        }
        for (key, value) in
            [("toolfleet-execution", &self.execution), ("toolfleet-turn", &self.turn)]
        {
            if let Some(Ok(value)) = value.as_ref().map(|value| HeaderValue::from_str(value)) {
                headers.insert(HeaderName::from_static(key), value);
            }
        }
        response
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Problem {
        Problem::unprocessable(refused.code, refused.detail, refused.mend)
    }
}

impl From<name::Error> for Problem {
    fn from(error: name::Error) -> Problem {
        Problem::unprocessable(
            "id_invalid",
            error.to_string(),
            &format!("use 1 to {ID_BYTES_MAX} bytes of any characters"),
        )
    }
}

impl From<Refusal> for Problem {
    /// Of a direct call: the caller is no model, so a refusal is the answer.
    fn from(refusal: Refusal) -> Problem {
        match refusal.code {
            Code::ToolNotFound => Problem::new(
                StatusCode::NOT_FOUND,
                "tool_not_found",
                "There is no such tool",
                refusal.text,
                "use a name of GET /v1/tools",
            ),
            Code::InvalidInput => Problem::new(
                StatusCode::BAD_REQUEST,
                "invalid_input",
                "The input does not fit the tool",
                refusal.text,
                "mend the input by the tool's inputSchema",
            ),
            Code::ToolForbidden => Problem::new(
                StatusCode::FORBIDDEN,
                "tool_forbidden",
                "The tool may not be called here",
                refusal.text,
                "call a tool that the execution allows",
            ),
            Code::ToolUnpinned => Problem::unprocessable(
                "tool_unpinned",
                refusal.text,
                "review the version and write it into the lock file with `toolfleet lock`",
            ),
            code => Problem::unprocessable(code.as_str(), refusal.text, code.meaning()),
        }
    }
}

impl From<NotAccepted> for Problem {
    fn from(reason: NotAccepted) -> Problem {
        match reason {
            NotAccepted::Conflict => Problem::unprocessable(
                "idempotency_conflict",
                crate::turn::CONFLICT_TEXT,
                "use another Idempotency-Key, turn or callId",
            ),
            NotAccepted::QueueFull => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "queue_full",
                "The queue is full",
                "the stream of jobs has reached its size",
                "try again after the time in Retry-After",
            ),
            NotAccepted::ResultsFull => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "results_full",
                "There is no room for results",
                "the stream of results, or of start records, is nearly full",
                "try again after the time in Retry-After; an operator raises the stream's size",
            ),
            NotAccepted::Unavailable(reason) => Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "unavailable",
                "The fleet cannot take calls now",
                reason,
                "hand the same request in again under the same name; nothing runs twice",
            ),
        }
    }
}

/// Nothing is served at that path.
pub(crate) async fn no_such_path(uri: Uri) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "path_not_found",
        "There is nothing at this path",
        format!("nothing is served at {}", uri.path()),
        "see docs/http.md for the paths of the API",
    )
}

/// The path takes other methods.
pub(crate) async fn no_such_method(uri: Uri) -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "The path takes another method",
        format!("{} does not take this method", uri.path()),
        "see the header Allow",
    )
}
