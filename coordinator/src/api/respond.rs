//! Answers that take long: keep-alive bytes, and `Prefer: respond-async` (DESIGN 6).

use super::problem::Problem;
use crate::durable::Durable;
use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use std::convert::Infallible;
use std::time::Duration;
use tokio::task::JoinHandle;

/// After this time without an answer the status goes out, and a space each time it has passed again:
/// a client may give up after 5 s without a byte.
const KEEP_ALIVE: Duration = Duration::from_secs(4);
/// Longest `wait=` of a Prefer header.
const WAIT_SECONDS_MAX: u64 = 3_600;

/// What a caller prefers (RFC 7240).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Prefer {
    /// Whether an answer may come before the result.
    is_async: bool,
    /// How long to wait for the result before that.
    wait: Option<Duration>,
}

impl Prefer {
    /// Not to wait at all.
    pub(crate) const ASYNC: Prefer = Prefer { is_async: true, wait: None };

    /// Reads all `Prefer` headers; what is not known is ignored, as the RFC asks.
    pub(crate) fn read(headers: &HeaderMap) -> Prefer {
        let mut prefer = Prefer::default();
        let texts = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
        for preference in texts.flat_map(|text| text.split([',', ';'])) {
            let (name, value) = preference.split_once('=').unwrap_or((preference, ""));
            match name.trim().to_ascii_lowercase().as_str() {
                "respond-async" => prefer.is_async = true,
                "wait" => {
                    let seconds = value.trim().trim_matches('"').parse::<u64>().ok();
                    prefer.wait = seconds.map(|s| Duration::from_secs(s.min(WAIT_SECONDS_MAX)));
                }
                _ => {}
            }
        }
        prefer
    }

    fn applied(self) -> String {
        match self.wait {
            Some(wait) => format!("respond-async, wait={}", wait.as_secs()),
            None => "respond-async".to_owned(),
        }
    }
}

/// A request that runs in a task of its own.
pub(crate) struct Running {
    /// The task; its text is the JSON answer.
    pub(crate) task: JoinHandle<Result<String, Problem>>,
    /// Whether what it handed in is durable.
    pub(crate) durable: Durable,
    /// Where the result can be read later.
    pub(crate) location: String,
    /// JSON answer for a caller that does not wait.
    pub(crate) accepted: String,
    /// Headers that name what runs.
    pub(crate) names: Vec<(&'static str, String)>,
}

fn ended(
    joined: Result<Result<String, Problem>, tokio::task::JoinError>,
) -> Result<String, Problem> {
    joined.unwrap_or_else(|error| {
        Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "A fault of toolfleet itself",
            format!("the request's task ended: {error}"),
            "hand the same request in again under the same name; nothing runs twice",
        ))
    })
}

impl Running {
    /// Answers: with the result where it comes soon; with 202 where the caller prefers that and all is
    /// durable; else with spaces before the result, which JSON allows.
    pub(crate) async fn respond(mut self, prefer: Prefer) -> Result<Response, Problem> {
        let patience = if prefer.is_async { prefer.wait.unwrap_or_default() } else { KEEP_ALIVE };
        if let Ok(joined) = tokio::time::timeout(patience, &mut self.task).await {
            return Ok(self.with_names(json(StatusCode::OK, Body::from(ended(joined)?))));
        }
        // Refusals come before the status goes out, and nothing is called accepted that is not durable.
        // A client that waits is kept alive also while calls wait for a slot of their turn.
        let durable = self.durable.clone();
        let all_durable = async {
            if prefer.is_async { durable.all().await } else { durable.all_but_parked().await }
        };
        tokio::select! {
            biased;
            joined = &mut self.task => {
                return Ok(self.with_names(json(StatusCode::OK, Body::from(ended(joined)?))));
            }
            () = all_durable => {}
        }
        if prefer.is_async {
            let mut response = json(StatusCode::ACCEPTED, Body::from(self.accepted.clone()));
            insert(response.headers_mut(), LOCATION, &self.location);
            insert(
                response.headers_mut(),
                HeaderName::from_static("preference-applied"),
                &prefer.applied(),
            );
            return Ok(self.with_names(response));
        }
        let Running { task, names, accepted, .. } = self;
        let response = json(StatusCode::OK, keep_alive(task, accepted));
        Ok(with_names(response, &names))
    }

    fn with_names(&self, response: Response) -> Response {
        with_names(response, &self.names)
    }
}

fn json(status: StatusCode, body: Body) -> Response {
    (status, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

fn with_names(mut response: Response, names: &[(&'static str, String)]) -> Response {
    for (name, value) in names {
        insert(response.headers_mut(), HeaderName::from_static(name), value);
    }
    response
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // An id of any characters may not fit a header; it stands in the body too.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// A space at once and every 4 s, then the answer. Where the task fails now, the answer is the state
/// that can be read again.
fn keep_alive(task: JoinHandle<Result<String, Problem>>, accepted: String) -> Body {
    let first = futures::stream::iter([Ok::<_, Infallible>(Bytes::from_static(b" "))]);
    let rest = futures::stream::unfold(Some((task, accepted)), |open| async move {
        let (mut task, accepted) = open?;
        match tokio::time::timeout(KEEP_ALIVE, &mut task).await {
            Err(_) => Some((Ok(Bytes::from_static(b" ")), Some((task, accepted)))),
            Ok(joined) => {
                let text = ended(joined).unwrap_or(accepted);
                Some((Ok(Bytes::from(text)), None))
            }
        }
    });
    Body::from_stream(futures::StreamExt::chain(first, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefer(text: &str) -> Prefer {
        let mut headers = HeaderMap::new();
        headers.insert("prefer", text.parse().unwrap());
        Prefer::read(&headers)
    }

    #[test]
    fn preferences_are_read_and_unknown_ones_ignored() {
        assert_eq!(prefer("respond-async, wait=10").applied(), "respond-async, wait=10");
        assert_eq!(prefer("Respond-Async").wait, None);
        assert_eq!(
            prefer("wait=5; foo=bar"),
            Prefer { is_async: false, wait: Some(Duration::from_secs(5)) }
        );
        assert_eq!(prefer("return=minimal"), Prefer::default());
    }
}
