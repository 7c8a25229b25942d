//! The receiver of a `dev`: takes OTLP over HTTP from the fleet and keeps the last traces in memory.

mod kept;
mod read;
mod wire;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use kept::{Bounds, Kept};
use prost::Message as _;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use wire::Export;

/// A larger export is refused, in bytes: many times a batch of the fleet.
const EXPORT_BYTES_MAX: usize = 4 << 20;
/// A web page can only send this type after asking, and nobody answers its question.
const MEDIA_TYPE: &str = "application/x-protobuf";
/// What sets how long spans may wait for their batch, in milliseconds.
const PACE_KEY: &str = "OTEL_BSP_SCHEDULE_DELAY";
/// A trace is looked at right after its call.
const PACE_MS: &str = "200";
const ENDPOINT_KEY: &str = "TOOLFLEET_TELEMETRY__OTLP_ENDPOINT";
const TRACES_KEY: &str = "TOOLFLEET_TELEMETRY__TRACES_URL";

/// Where the spans of the fleet go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Spans {
    /// To the receiver of this `dev`.
    Kept,
    /// To this endpoint; empty: nowhere.
    Sent(String),
    /// Where the configuration says, which the children read themselves.
    AsConfigured,
}

/// Variables for the children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Variables {
    /// For every program.
    pub(super) programs: Vec<(&'static str, String)>,
    /// For the coordinator alone.
    pub(super) coordinator: Vec<(&'static str, String)>,
}

/// What tells the children where spans go; `receiver` is the address of the receiver that runs.
pub(super) fn variables(spans: &Spans, receiver: Option<&str>) -> Variables {
    let endpoint = match (spans, receiver) {
        (_, Some(url)) => url.to_owned(),
        (Spans::Sent(url), None) => url.clone(),
        (Spans::Kept | Spans::AsConfigured, None) => return Variables::default(),
    };
    let mut programs = vec![(ENDPOINT_KEY, endpoint)];
    if std::env::var_os(PACE_KEY).is_none() {
        programs.push((PACE_KEY, PACE_MS.to_owned()));
    }
    let coordinator = receiver.map(|url| (TRACES_KEY, url.to_owned())).into_iter().collect();
    Variables { programs, coordinator }
}

/// The receiver. Ends when it is dropped.
#[derive(Debug)]
pub(super) struct Receiver {
    url: String,
    server: JoinHandle<()>,
}

impl Receiver {
    /// Listens on a free port of the loopback address.
    pub(super) async fn start() -> std::io::Result<Receiver> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?.to_string();
        let url = format!("http://{address}");
        let router = router(address, Bounds::default());
        let server = tokio::spawn(async move {
            // Ends only when it is aborted.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Receiver { url, server })
    }

    /// Its address, `http://host:port`.
    pub(super) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

type Shared = Arc<Mutex<Kept>>;

fn router(address: String, bounds: Bounds) -> Router {
    Router::new()
        .route("/v1/traces", post(take))
        .route("/v1/traces/{id}", get(give))
        // The exporter of the fleet sends metrics to the same place; /metrics of each process has them.
        .route("/v1/metrics", post(StatusCode::OK))
        .layer(DefaultBodyLimit::max(EXPORT_BYTES_MAX))
        .layer(middleware::from_fn_with_state(Arc::<str>::from(address), own_host))
        .with_state(Arc::new(Mutex::new(Kept::new(bounds))))
}

/// Refuses a web page that comes here under a name of its own.
async fn own_host(State(address): State<Arc<str>>, request: Request, next: Next) -> Response {
    match request.headers().get(HOST) {
        Some(host) if host.as_bytes() == address.as_bytes() => next.run(request).await,
        _ => StatusCode::FORBIDDEN.into_response(),
    }
}

async fn take(State(kept): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    let media_type = HeaderValue::from_static(MEDIA_TYPE);
    if headers.get(CONTENT_TYPE) != Some(&media_type) {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
    }
    let Ok(export) = Export::decode(body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    for (trace_id, span) in read::spans(export) {
        kept.add(&trace_id, span);
    }
    // An empty body is the protobuf answer without a partial success.
    [(CONTENT_TYPE, media_type)].into_response()
}

async fn give(State(kept): State<Shared>, Path(id): Path<String>) -> Response {
    let trace = kept.lock().unwrap_or_else(PoisonError::into_inner).read(&id);
    match trace {
        Some(trace) => axum::Json(trace).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

#[cfg(test)]
mod tests;
