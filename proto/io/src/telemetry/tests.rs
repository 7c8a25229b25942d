use super::spans::{Attempt, Call};
use super::*;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::Uri;
use opentelemetry::trace::{SpanKind, Status};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::SpanData;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tracing::info_span;

const CALL: Call<'static> =
    Call { execution: "exec-1", turn: Some("turn-1"), call: "call-1", tool: "search", pool: "gpu" };
const ATTEMPT: Attempt<'static> =
    Attempt { call: CALL, worker: "worker-1", attempt: 2, fence: 1_700_000_000_000_000 };

/// Runs `inner` with spans that have ids and go nowhere.
pub(super) fn traced(inner: impl FnOnce()) {
    let traces = SdkTracerProvider::builder().with_sampler(Sampler::AlwaysOn).build();
    let subscriber = tracing_subscriber::registry().with(trace_layer(&traces));
    tracing::subscriber::with_default(subscriber, inner);
}

/// What was posted, by path: the bodies one after another.
type Posted = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

async fn listen() -> (String, Posted) {
    async fn take(State(posted): State<Posted>, uri: Uri, body: Bytes) {
        let mut posted = posted.lock().unwrap_or_else(PoisonError::into_inner);
        posted.entry(uri.path().to_owned()).or_default().extend_from_slice(&body);
    }
    let posted = Posted::default();
    let router = Router::new().fallback(take).with_state(Arc::clone(&posted));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, posted)
}

fn holds(posted: &Posted, path: &str, text: &str) -> bool {
    let posted = posted.lock().unwrap();
    let body = posted.get(path).map_or(&[][..], Vec::as_slice);
    body.windows(text.len()).any(|window| window == text.as_bytes())
}

/// The only test that starts telemetry: it is the process'. It guards the choice of the exporter's
/// client, since an async one loses every span without a word, and that starting inside a runtime
/// works.
#[tokio::test]
async fn spans_and_metrics_arrive_over_otlp_and_on_the_page() {
    let (url, posted) = listen().await;
    // The log filter must not cut spans.
    let config =
        Telemetry { otlp_endpoint: format!("{url}/"), log: "error".into(), ..Telemetry::default() };
    let handle = start("toolfleet-test", "instance-1", &config).unwrap();

    crate::metrics::meter("test").u64_counter("toolfleet_tests").build().add(1, &[]);
    let span = spans::process(ATTEMPT, "pool-gpu");
    span.in_scope(|| tracing::error!(error = "disk full", "the disk is full"));
    spans::fail(&span, "tool_error");
    let trace = trace_id(&span);
    drop(span);

    let page = crate::metrics::render();
    for line in [
        "toolfleet_tests_total 1",
        "toolfleet_otel_spans_dropped_total{reason=\"queue_full\"} 0",
        "toolfleet_otel_spans_dropped_total{reason=\"export_failed\"} 0",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
    }
    assert!(page.contains("toolfleet_build_info{component=\"toolfleet-test\""), "{page}");

    assert!(matches!(start("toolfleet-test", "", &config), Err(Error::AlreadyStarted)));

    let stop = move || handle.flush_and_stop(Duration::from_secs(20));
    assert!(tokio::task::spawn_blocking(stop).await.unwrap());
    let id: Vec<u8> =
        (0..32).step_by(2).map(|at| u8::from_str_radix(&trace[at..at + 2], 16).unwrap()).collect();
    let traces = posted.lock().unwrap()["/v1/traces"].clone();
    assert!(traces.windows(16).any(|window| window == id), "the trace's id is missing");
    for text in ["process search", "instance-1", "tool_error", "worker-1", "toolfleet-test"] {
        assert!(holds(&posted, "/v1/traces", text), "{text} did not arrive");
    }
    assert!(!holds(&posted, "/v1/traces", "exception"), "an error became an exception");
    assert!(holds(&posted, "/v1/metrics", "toolfleet_tests"));
}

#[test]
fn an_exporter_that_is_silent_stops_in_time() {
    // Takes the connection and never answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let exporters = Exporters::build(endpoint).unwrap();
    let queue = Queue::new(exporters.spans, Arc::default(), SPANS_QUEUED_MAX);
    let traces = SdkTracerProvider::builder().with_span_processor(queue).build();
    let subscriber = tracing_subscriber::registry().with(trace_layer(&traces));
    tracing::subscriber::with_default(subscriber, || drop(info_span!("span")));

    let handle = Handle { traces, metrics: SdkMeterProvider::default() };
    let began = std::time::Instant::now();
    assert!(!handle.flush_and_stop(Duration::from_millis(200)));
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    drop(listener);
}

/// Keeps what ends.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl opentelemetry_sdk::trace::SpanExporter for Kept {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().append(&mut batch);
        Ok(())
    }
}

fn attribute(span: &SpanData, name: &str) -> Option<String> {
    let found = span.attributes.iter().find(|pair| pair.key.as_str() == name)?;
    Some(found.value.to_string())
}

#[test]
fn the_spans_of_a_call_make_one_tree() {
    let kept = Kept::default();
    let traces = SdkTracerProvider::builder().with_simple_exporter(kept.clone()).build();
    let subscriber = tracing_subscriber::registry().with(trace_layer(&traces));
    tracing::subscriber::with_default(subscriber, || {
        let turn = spans::turn("exec-1", "turn-1");
        let call = turn.in_scope(|| spans::execute_tool(CALL));
        let publish = call.in_scope(|| spans::publish(CALL, "job.gpu.0.x", "job.{pool}", 10));
        let (traceparent, tracestate) = current_trace_context(&publish);
        let claim = spans::claim(ATTEMPT.call, ATTEMPT.worker, 3);
        spans::granted(&claim, ATTEMPT.attempt, ATTEMPT.fence);
        let first = spans::process(ATTEMPT, "pool-gpu");
        let second = spans::process(Attempt { attempt: 3, ..ATTEMPT }, "pool-gpu");
        let lost = spans::attempt_lost(ATTEMPT);
        add_link(&second, &current_trace_context(&first).0);
        for span in [&claim, &second, &lost] {
            assert!(set_parent(span, &traceparent, &tracestate), "{span:?}");
        }
        spans::result(&second, 300, true);
    });

    let kept = kept.0.lock().unwrap();
    let find = |name: &str, attempt: Option<&str>| {
        kept.iter()
            .find(|span| span.name == name && attribute(span, names::ATTEMPT).as_deref() == attempt)
            .unwrap_or_else(|| panic!("no {name} in {kept:#?}"))
    };
    let turn = find("turn", None);
    let call = find("execute_tool search", None);
    let publish = find("publish job.{pool}", None);
    let second = find("process search", Some("3"));
    let lost = find("attempt lost", Some("2"));
    let first = find("process search", Some("2")).span_context.span_id();
    for (child, parent, kind) in [
        (call, turn, SpanKind::Internal),
        (publish, call, SpanKind::Producer),
        (find("claim", Some("2")), publish, SpanKind::Client),
        (second, publish, SpanKind::Consumer),
        (lost, publish, SpanKind::Internal),
    ] {
        assert_eq!(child.parent_span_id, parent.span_context.span_id(), "{}", child.name);
        assert_eq!(child.span_context.trace_id(), turn.span_context.trace_id(), "{}", child.name);
        assert_eq!(child.span_kind, kind, "{}", child.name);
    }
    let links: Vec<_> = second.links.iter().map(|link| link.span_context.span_id()).collect();
    assert_eq!(links, [first]);
    assert_eq!(second.status, Status::Unset);
    assert_eq!(lost.status, Status::error("lost"));
    for (span, name, value) in [
        (call, names::OPERATION, "execute_tool"),
        (call, names::TURN, "turn-1"),
        (publish, names::MESSAGING_BODY_SIZE, "10"),
        (second, names::FENCE, "1700000000000000"),
        (second, names::RESULT_BYTES, "300"),
        (second, names::TRUNCATED, "true"),
        (lost, names::ERROR_TYPE, "lost"),
    ] {
        assert_eq!(attribute(span, name).as_deref(), Some(value), "{name}");
    }
}

#[test]
fn faults_of_the_configuration_have_names() {
    let config = Telemetry { log: "toolfleet=loud".into(), ..Telemetry::default() };
    assert!(matches!(start("toolfleet-test", "", &config), Err(Error::Filter(_))));
    let config = Telemetry { otlp_endpoint: "localhost:4318".into(), ..Telemetry::default() };
    assert!(matches!(start("toolfleet-test", "", &config), Err(Error::Endpoint(_))));
    assert!(matches!(Exporters::build("http://a b".into()), Err(Error::Exporter(_))));
    assert_eq!(read_endpoint(" ").unwrap(), None);
    assert_eq!(read_endpoint("https://c:4318/").unwrap().as_deref(), Some("https://c:4318"));
}
