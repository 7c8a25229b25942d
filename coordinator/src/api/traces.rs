//! `GET /v1/traces/{traceId}`: a trace, asked of the service that keeps it. A coordinator keeps none.

use super::problem::Problem;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use reqwest::redirect;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::OnceLock;
use std::time::Duration;

/// How long the service that keeps traces may take for a whole answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// A larger trace is not passed on, in bytes.
const TRACE_BYTES_MAX: usize = 64 << 20;
/// Length of a trace id, in hexadecimal digits.
const TRACE_ID_DIGITS: usize = 32;

/// A trace, as far as it was kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Trace {
    /// 32 hexadecimal digits.
    pub(crate) trace_id: String,
    /// Its spans by their start.
    pub(crate) spans: Vec<Span>,
    /// Spans that were received and did not fit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) spans_dropped: u64,
}

/// One span of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Span {
    /// 16 hexadecimal digits.
    pub(crate) span_id: String,
    /// 16 hexadecimal digits; empty at the root.
    pub(crate) parent_span_id: String,
    /// Its name.
    pub(crate) name: String,
    /// `service.name` of the process that sent it.
    pub(crate) service: String,
    /// `internal`, `server`, `client`, `producer`, `consumer` or `unspecified`.
    pub(crate) kind: String,
    /// Microseconds since 1970.
    pub(crate) start_us: u64,
    /// Microseconds.
    pub(crate) duration_us: u64,
    /// `unset`, `ok` or `error`.
    pub(crate) status: String,
    /// By name.
    pub(crate) attributes: Map<String, Value>,
    /// Spans it refers to beside its parent.
    pub(crate) links: Vec<Link>,
}

/// A reference to a span, of the same trace or another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Link {
    /// 32 hexadecimal digits.
    pub(crate) trace_id: String,
    /// 16 hexadecimal digits.
    pub(crate) span_id: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A trace id in its one form, lower case; nothing where the text is none.
pub(crate) fn parse_trace_id(text: &str) -> Option<String> {
    let is_id = text.len() == TRACE_ID_DIGITS
        && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        && text.bytes().any(|byte| byte != b'0');
    is_id.then(|| text.to_ascii_lowercase())
}

/// The service that keeps traces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source {
    /// Without its last slash; empty: there is none.
    url: String,
}

impl Source {
    /// The service at `url`, as `telemetry.traces_url` has it.
    pub(crate) fn new(url: &str) -> Source {
        Source { url: url.trim().trim_end_matches('/').to_owned() }
    }

    /// Names the service of this process, before it serves. Only the first counts.
    pub(crate) fn install(self) {
        let _ = INSTALLED.set(self);
    }

    /// The service of this process; none before [`Source::install`].
    pub(super) fn installed() -> Source {
        INSTALLED.get().cloned().unwrap_or_default()
    }
}

/// Set once from the checked configuration, read once where the routes are made.
static INSTALLED: OnceLock<Source> = OnceLock::new();

/// The route, with `source` behind it.
pub(super) fn routes<S: Clone + Send + Sync + 'static>(source: Source) -> Router<S> {
    Router::new().route("/v1/traces/{id}", get(read)).with_state(source)
}

async fn read(State(source): State<Source>, Path(id): Path<String>) -> Result<Response, Problem> {
    let Some(id) = parse_trace_id(&id) else {
        return Err(Problem::unprocessable(
            "id_invalid",
            format!("{id:?} is not a trace id"),
            "use the traceId of an answer: 32 hexadecimal digits, not all of them 0",
        ));
    };
    if source.url.is_empty() {
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            "traces_not_kept",
            "Traces are not kept here",
            "this coordinator knows no service that keeps traces",
            "use `toolfleet dev`, set telemetry.traces_url, or look where telemetry.otlp_endpoint sends them",
        ));
    }
    match tokio::time::timeout(TIMEOUT, ask(&source.url, &id)).await {
        Ok(Ok((StatusCode::OK, body))) => {
            let json = HeaderValue::from_static("application/json");
            Ok(([(CONTENT_TYPE, json)], Body::from(body)).into_response())
        }
        Ok(Ok((StatusCode::NOT_FOUND, _))) => Err(Problem::new(
            StatusCode::NOT_FOUND,
            "trace_not_found",
            "There is no such trace",
            format!("no span of the trace {id} is kept"),
            "ask again in a second: spans arrive after their call; old traces make room for new ones",
        )),
        Ok(Ok((status, _))) => {
            Err(unreachable(format!("the service that keeps traces answers {status}")))
        }
        Ok(Err(text)) => Err(unreachable(text)),
        Err(_) => Err(unreachable(format!(
            "no answer from the service that keeps traces in {} s",
            TIMEOUT.as_secs()
        ))),
    }
}

fn unreachable(detail: String) -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "traces_unreachable",
        "The traces cannot be read",
        detail,
        "check telemetry.traces_url and the service behind it; calls are not concerned",
    )
}

/// What the service answers. Errors are words for the caller.
async fn ask(url: &str, id: &str) -> Result<(StatusCode, Bytes), String> {
    let told = |error: reqwest::Error| {
        format!("the service that keeps traces does not answer: {}", error.without_url())
    };
    let client = reqwest::Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .timeout(TIMEOUT)
        .build()
        .map_err(told)?;
    let mut response = client.get(format!("{url}/v1/traces/{id}")).send().await.map_err(told)?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(told)? {
        if body.len() + chunk.len() > TRACE_BYTES_MAX {
            return Err(format!("the trace has more than {TRACE_BYTES_MAX} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok((status, body.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    async fn serve(router: Router) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }

    async fn answer(source: &str, id: &str) -> (u16, String) {
        toolfleet_io::telemetry::install_tls();
        let url = serve(routes::<()>(Source::new(source)).with_state(())).await;
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let response = client.get(format!("{url}/v1/traces/{id}")).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    #[test]
    fn a_trace_id_has_one_form() {
        assert_eq!(parse_trace_id(&ID.to_uppercase()).as_deref(), Some(ID));
        let zero = "0".repeat(32);
        for text in ["", "4bf9", "4bf92f3577b34da6a3ce929d0e0e473g", zero.as_str(), "é"] {
            assert_eq!(parse_trace_id(text), None, "{text}");
        }
    }

    #[tokio::test]
    async fn what_the_service_keeps_is_passed_on() {
        async fn kept(Path(id): Path<String>) -> Response {
            if id == ID {
                "{\"spans\":[]}".into_response()
            } else {
                StatusCode::NOT_FOUND.into_response()
            }
        }
        let keeper = serve(Router::new().route("/v1/traces/{id}", get(kept))).await;
        let slash = format!("{keeper}/");
        assert_eq!(answer(&slash, &ID.to_uppercase()).await, (200, "{\"spans\":[]}".into()));
        let (status, text) = answer(&keeper, &ID.replace('4', "5")).await;
        assert!(status == 404 && text.contains("trace_not_found"), "{text}");
        let (status, text) = answer(&keeper, "..%2Fmetrics").await;
        assert!(status == 422 && text.contains("id_invalid"), "{text}");
    }

    #[tokio::test]
    async fn without_a_service_or_an_answer_there_is_a_problem() {
        let (status, text) = answer("", ID).await;
        assert!(status == 404 && text.contains("traces_not_kept"), "{text}");
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (status, text) = answer(&format!("http://{free}"), ID).await;
        assert!(status == 503 && text.contains("traces_unreachable"), "{text}");
        assert!(
            !text.contains(&free.to_string()),
            "the address is the operator's own business: {text}"
        );
        // Takes the connection and never answers.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (status, text) = answer(&format!("http://{}", silent.local_addr().unwrap()), ID).await;
        assert!(status == 503 && text.contains("traces_unreachable"), "{text}");
    }
}
