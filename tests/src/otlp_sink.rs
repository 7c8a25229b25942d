//! A receiver of OTLP over HTTP for tests: keeps every span, counts metrics.

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use prost::Message;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A larger export is refused, in bytes.
const BODY_BYTES_MAX: usize = 16 << 20;
/// Time between two looks of [`OtlpSink::wait_for`].
const LOOK: Duration = Duration::from_millis(20);

/// One span as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkSpan {
    /// 32 hexadecimal digits.
    pub trace_id: String,
    /// 16 hexadecimal digits.
    pub span_id: String,
    /// 16 hexadecimal digits; empty at the root.
    pub parent_span_id: String,
    /// The span's name.
    pub name: String,
    /// `internal`, `server`, `client`, `producer`, `consumer` or `unspecified`.
    pub kind: String,
    /// `service.name` of the process that sent it.
    pub service: String,
    /// Attributes, each value as text.
    pub attributes: BTreeMap<String, String>,
    /// Trace and span ids of the spans it links to.
    pub links: Vec<(String, String)>,
    /// Whether its status is an error.
    pub status_error: bool,
    /// Start, nanoseconds since 1970.
    pub start_ns: u64,
    /// End, nanoseconds since 1970.
    pub end_ns: u64,
}

/// The receiver. Ends when it is dropped.
#[derive(Debug)]
pub struct OtlpSink {
    addr: SocketAddr,
    received: Arc<Received>,
    server: tokio::task::JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Received {
    spans: Mutex<Vec<SinkSpan>>,
    metrics_requests: AtomicU64,
    metrics_bytes: AtomicU64,
}

impl OtlpSink {
    /// Listens on a free port of the loopback address.
    #[expect(clippy::expect_used, reason = "a test that cannot listen cannot go on")]
    pub async fn start() -> OtlpSink {
        let received = Arc::new(Received::default());
        let router = Router::new()
            .route("/v1/traces", post(take_traces))
            .route("/v1/metrics", post(take_metrics))
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .with_state(Arc::clone(&received));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind loopback");
        let addr = listener.local_addr().expect("address of the listener");
        let server = tokio::spawn(async move {
            // Ends only when it is aborted.
            let _ = axum::serve(listener, router).await;
        });
        OtlpSink { addr, received, server }
    }

    /// What to set as `telemetry.otlp_endpoint`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// All spans so far, in the order of their arrival.
    pub fn spans(&self) -> Vec<SinkSpan> {
        self.received.spans.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Exports of metrics so far, and their bytes.
    pub fn metrics(&self) -> (u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.received.metrics_requests), read(&self.received.metrics_bytes))
    }

    /// Waits until `what` holds of all spans so far, and returns them. Panics with the names seen
    /// after `within`.
    #[expect(clippy::panic, reason = "this is how a test fails")]
    pub async fn wait_for(
        &self,
        what: impl Fn(&[SinkSpan]) -> bool,
        within: Duration,
    ) -> Vec<SinkSpan> {
        let look = async {
            loop {
                let spans = self.spans();
                if what(&spans) {
                    return spans;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        if let Ok(spans) = tokio::time::timeout(within, look).await {
            return spans;
        }
        let spans = self.spans();
        let names: Vec<_> = spans.iter().map(|span| (&span.service, &span.name)).collect();
        panic!("the spans did not arrive within {within:?}; seen: {names:?}");
    }
}

impl Drop for OtlpSink {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn take_traces(State(received): State<Arc<Received>>, body: Bytes) -> StatusCode {
    let Ok(request) = ExportTraceServiceRequest::decode(body) else {
        return StatusCode::BAD_REQUEST;
    };
    let mut spans = received.spans.lock().unwrap_or_else(PoisonError::into_inner);
    for resource_spans in request.resource_spans {
        let resource = resource_spans.resource.map(|resource| resource.attributes);
        let service =
            texts(resource.unwrap_or_default()).remove("service.name").unwrap_or_default();
        let found = resource_spans.scope_spans.into_iter().flat_map(|scope| scope.spans);
        spans.extend(found.map(|span| read_span(span, &service)));
    }
    StatusCode::OK
}

async fn take_metrics(State(received): State<Arc<Received>>, body: Bytes) -> StatusCode {
    received.metrics_requests.fetch_add(1, Ordering::Relaxed);
    received.metrics_bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
    StatusCode::OK
}

fn read_span(span: Span, service: &str) -> SinkSpan {
    let kind = match span.kind() {
        SpanKind::Unspecified => "unspecified",
        SpanKind::Internal => "internal",
        SpanKind::Server => "server",
        SpanKind::Client => "client",
        SpanKind::Producer => "producer",
        SpanKind::Consumer => "consumer",
    };
    SinkSpan {
        trace_id: hex(&span.trace_id),
        span_id: hex(&span.span_id),
        parent_span_id: hex(&span.parent_span_id),
        kind: kind.to_owned(),
        service: service.to_owned(),
        links: span.links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect(),
        status_error: span.status.is_some_and(|status| status.code() == SpanStatus::Error),
        start_ns: span.start_time_unix_nano,
        end_ns: span.end_time_unix_nano,
        attributes: texts(span.attributes),
        name: span.name,
    }
}

fn texts(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    attributes.into_iter().map(|pair| (pair.key, text(pair.value))).collect()
}

fn text(value: Option<AnyValue>) -> String {
    use any_value::Value;
    match value.and_then(|value| value.value) {
        None => String::new(),
        Some(Value::StringValue(text)) => text,
        Some(Value::BoolValue(value)) => value.to_string(),
        Some(Value::IntValue(value)) => value.to_string(),
        Some(Value::DoubleValue(value)) => value.to_string(),
        Some(Value::BytesValue(bytes)) => hex(&bytes),
        Some(other) => format!("{other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use opentelemetry_proto::tonic::trace::v1::span::Link;
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Status};

    fn pair(key: &str, value: any_value::Value) -> KeyValue {
        let value = Some(AnyValue { value: Some(value) });
        KeyValue { key: key.into(), value, ..KeyValue::default() }
    }

    async fn post_bytes(url: String, body: Vec<u8>) -> u16 {
        toolfleet_io::telemetry::install_tls();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        client.post(url).body(body).send().await.unwrap().status().as_u16()
    }

    #[tokio::test]
    async fn a_span_is_kept_as_it_was_sent() {
        let sink = OtlpSink::start().await;
        let span = Span {
            trace_id: vec![0xab; 16],
            span_id: vec![1; 8],
            name: "process search".into(),
            kind: SpanKind::Consumer.into(),
            start_time_unix_nano: 5,
            end_time_unix_nano: 9,
            attributes: vec![pair("toolfleet.attempt", any_value::Value::IntValue(2))],
            links: vec![Link { trace_id: vec![2; 16], span_id: vec![3; 8], ..Link::default() }],
            status: Some(Status { code: SpanStatus::Error.into(), ..Status::default() }),
            ..Span::default()
        };
        let service = any_value::Value::StringValue("toolfleet-worker".into());
        let attributes = vec![pair("service.name", service)];
        let request = ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(Resource { attributes, ..Resource::default() }),
                scope_spans: vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }],
                ..ResourceSpans::default()
            }],
        };
        let url = sink.url();
        assert_eq!(post_bytes(format!("{url}/v1/traces"), request.encode_to_vec()).await, 200);
        assert_eq!(post_bytes(format!("{url}/v1/traces"), vec![0xff]).await, 400);
        assert_eq!(post_bytes(format!("{url}/v1/metrics"), vec![1, 2, 3]).await, 200);

        let spans = sink.wait_for(|spans| !spans.is_empty(), Duration::from_secs(5)).await;
        let expected = SinkSpan {
            trace_id: "ab".repeat(16),
            span_id: "01".repeat(8),
            parent_span_id: String::new(),
            name: "process search".into(),
            kind: "consumer".into(),
            service: "toolfleet-worker".into(),
            attributes: BTreeMap::from([("toolfleet.attempt".into(), "2".into())]),
            links: vec![("02".repeat(16), "03".repeat(8))],
            status_error: true,
            start_ns: 5,
            end_ns: 9,
        };
        assert_eq!(spans, [expected]);
        assert_eq!(sink.metrics(), (1, 3));
    }

    #[tokio::test]
    #[should_panic(expected = "did not arrive within")]
    async fn waiting_in_vain_ends() {
        let sink = OtlpSink::start().await;
        sink.wait_for(|spans| !spans.is_empty(), Duration::from_millis(50)).await;
    }
}
