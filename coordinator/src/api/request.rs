//! What requests share: bodies, ids of requests, trace context, deadlines.

use super::problem::Problem;
use crate::core::turn::read_key;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, FailedToBufferBody};
use axum::http::HeaderMap;
use toolfleet_proto::limit::BODY_BYTES_MAX;
use toolfleet_proto::name::check_id;
use toolfleet_proto::wire::TraceContext;

/// Header that names a call or a turn, so that it can be handed in again.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The body as text.
pub(crate) fn body_text(body: Result<Bytes, BytesRejection>) -> Result<String, Problem> {
    let bytes = body.map_err(|rejection| match rejection {
        BytesRejection::FailedToBufferBody(FailedToBufferBody::LengthLimitError(_)) => {
            Problem::too_large(format!("the body has more than {BODY_BYTES_MAX} bytes"))
        }
        other => Problem::bad_request("body_unreadable", other.to_string(), "send the whole body"),
    })?;
    String::from_utf8(bytes.to_vec()).map_err(|error| {
        Problem::bad_request(
            "body_unreadable",
            format!("the body is not UTF-8: {error}"),
            "send UTF-8",
        )
    })
}

/// The idempotency key, checked as an id.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let text = String::from_utf8(value.as_bytes().to_vec()).map_err(|_| {
        Problem::unprocessable("id_invalid", "the Idempotency-Key is not UTF-8", "send UTF-8")
    })?;
    let key = read_key(&text);
    check_id("Idempotency-Key", &key)?;
    Ok(Some(key))
}

/// The caller's trace context and baggage.
pub(crate) fn trace(headers: &HeaderMap) -> TraceContext {
    let text = |name: &str| {
        headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    TraceContext {
        traceparent: text("traceparent"),
        tracestate: text("tracestate"),
        baggage: text("baggage"),
    }
}

/// Percent-encodes one segment of a path.
pub(crate) fn encode_segment(segment: &str) -> String {
    use std::fmt::Write as _;
    segment.bytes().fold(String::with_capacity(segment.len()), |mut path, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            let _ = write!(path, "%{byte:02X}");
        }
        path
    })
}

/// A fresh id, sortable by time.
pub(crate) fn fresh_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// A deadline as it came: RFC 3339 with a zone.
pub(crate) fn deadline(text: Option<&str>, now_ms: i64) -> Result<Deadline, Problem> {
    let Some(text) = text else { return Ok(Deadline::default()) };
    let mend = "use an instant such as 2030-01-31T12:00:00Z";
    let instant = text.parse::<jiff::Timestamp>().map_err(|error| {
        Problem::unprocessable("deadline_invalid", format!("deadline: {error}"), mend)
    })?;
    let deadline_ms = instant.as_millisecond();
    let is_over = deadline_ms <= now_ms;
    let over = is_over.then(|| {
        Problem::unprocessable("deadline_invalid", format!("the deadline {text} is over"), mend)
    });
    Ok(Deadline { ms: Some(deadline_ms), over })
}

/// A deadline as a caller gave it.
#[derive(Debug, Default)]
pub(crate) struct Deadline {
    ms: Option<i64>,
    over: Option<Problem>,
}

impl Deadline {
    /// Whether it is over.
    pub(crate) fn is_over(&self) -> bool {
        self.over.is_some()
    }

    /// Milliseconds since the Unix epoch. What was handed in before is attached to, however late
    /// (CONTRACT 3.6); what is new must have time left.
    pub(crate) fn of_what_is_known(self, is_known: bool) -> Result<Option<i64>, Problem> {
        match self.over {
            Some(over) if !is_known => Err(over),
            _ => Ok(self.ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_an_instant_with_a_zone_that_is_not_over() {
        let of_new = |text, now_ms| deadline(text, now_ms).unwrap().of_what_is_known(false);
        assert_eq!(of_new(None, 0).unwrap(), None);
        let two_seconds = Some("1970-01-01T00:00:02Z");
        assert_eq!(of_new(two_seconds, 0).unwrap(), Some(2_000));
        assert!(of_new(two_seconds, 2_000).is_err());
        let over = deadline(two_seconds, 2_000).unwrap();
        assert!(over.is_over());
        assert_eq!(over.of_what_is_known(true).unwrap(), Some(2_000));
        assert!(deadline(Some("1970-01-01T00:00:02"), 0).is_err());
        assert!(deadline(Some("soon"), 0).is_err());
    }

    #[test]
    fn an_idempotency_key_is_an_id() {
        let mut headers = HeaderMap::new();
        assert_eq!(idempotency_key(&headers).unwrap(), None);
        headers.insert(IDEMPOTENCY_KEY, "\"k\"".parse().unwrap());
        assert_eq!(idempotency_key(&headers).unwrap().as_deref(), Some("k"));
        headers.insert(IDEMPOTENCY_KEY, "\"\"".parse().unwrap());
        assert!(idempotency_key(&headers).is_err());
        headers.insert(IDEMPOTENCY_KEY, "x".repeat(129).parse().unwrap());
        assert!(idempotency_key(&headers).is_err());
    }
}
