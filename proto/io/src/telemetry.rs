//! Traces, metrics and logs: started once, before the runtimes, and stopped last.
//!
//! Trace ids are made and carried also where nothing is exported, so that a fleet of which only a
//! part exports still has whole traces.

mod context;
pub mod names;
mod queue;
pub mod spans;

pub use context::{
    TRACEPARENT, TRACEPARENT_BYTES_MAX, TRACESTATE, TRACESTATE_BYTES_MAX, add_link,
    current_trace_context, set_parent, trace_id,
};

use crate::config::{LogFormat, Telemetry};
use crate::metrics::Metrics;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{MetricExporter, Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use queue::{Counts, Queue, SPANS_QUEUED_MAX};
use std::io::IsTerminal;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterExt, FilterFn, LevelFilter, ParseError, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// One export may take this long, further tries included.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why telemetry cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `telemetry.log` does not read.
    #[error("telemetry.log is not a log filter: {0}")]
    Filter(#[from] ParseError),
    /// `telemetry.otlp_endpoint` does not read.
    #[error("telemetry.otlp_endpoint is not an http or https url: {0}")]
    Endpoint(String),
    /// The exporters cannot be built.
    #[error("no otlp exporter can be built: {0}")]
    Exporter(String),
    /// The metrics page cannot be built.
    #[error("no metrics page can be built: {0}")]
    Metrics(#[from] opentelemetry_sdk::error::OTelSdkError),
    /// A second start, or another log subscriber in this process.
    #[error("telemetry was started already in this process")]
    AlreadyStarted,
}

/// Makes ring the process' TLS provider; without one, the first TLS connection would panic. The
/// first line of every main; further calls do nothing.
pub fn install_tls() {
    // An error says that there is a provider already, which is all that is needed.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Starts logs, traces and metrics for the whole process.
///
/// `service` is the OpenTelemetry service name, `instance` tells processes of one service apart. To
/// be called once, before the runtimes exist; inside one it works too, but blocks for some
/// milliseconds. Errors leave nothing exported, and the process should end.
pub fn start(service: &'static str, instance: &str, config: &Telemetry) -> Result<Handle, Error> {
    install_tls();
    let filter = EnvFilter::builder().parse(&config.log)?;
    let endpoint = read_endpoint(&config.otlp_endpoint)?;
    // Looked at before anything is built: what is built and dropped again would export on its way
    // out.
    if Metrics::installed() {
        return Err(Error::AlreadyStarted);
    }
    let exporters = endpoint.map(Exporters::build).transpose()?;
    let resource = Resource::builder()
        .with_service_name(service)
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attribute(KeyValue::new("service.instance.id", instance.to_owned()))
        .build();
    let (spans, measures) =
        exporters.map_or((None, None), |both| (Some(both.spans), Some(both.metrics)));

    let metrics = Metrics::new(service, resource.clone(), measures)?;
    let mut builder =
        SdkTracerProvider::builder().with_sampler(Sampler::AlwaysOn).with_resource(resource);
    if let Some(exporter) = spans {
        let counts = Arc::new(Counts::default());
        show_dropped(&metrics, Arc::clone(&counts));
        builder = builder.with_span_processor(Queue::new(exporter, counts, SPANS_QUEUED_MAX));
    }
    let traces = builder.build();
    let handle = Handle { traces: traces.clone(), metrics: metrics.provider.clone() };

    tracing_subscriber::registry()
        .with(trace_layer(&traces))
        .with(log_layer(filter, config.log_format))
        .try_init()
        .map_err(|_| Error::AlreadyStarted)?;
    if !metrics.install() {
        return Err(Error::AlreadyStarted);
    }
    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
    opentelemetry::global::set_tracer_provider(traces);
    Ok(handle)
}

/// What was started. Dropped without a stop, the last spans may be lost.
#[derive(Debug)]
#[must_use]
pub struct Handle {
    traces: SdkTracerProvider,
    metrics: SdkMeterProvider,
}

impl Handle {
    /// Hands over what still waits and stops the exporters, for at most `within`. Spans that end
    /// later are lost. Returns whether all of it was handed over.
    ///
    /// Blocks: from async code through `spawn_blocking`.
    pub fn flush_and_stop(self, within: Duration) -> bool {
        let (done, wait) = mpsc::sync_channel(1);
        // On a thread of its own: the exporter's client may be neither used nor dropped in a
        // runtime, and an export cannot be broken off, only left behind.
        let stop = move || {
            let flushed = self.traces.force_flush().is_ok();
            let stopped = self.traces.shutdown_with_timeout(within).is_ok();
            let metrics = self.metrics.shutdown().is_ok();
            // Nobody waits any more after `within`.
            let _ = done.try_send(flushed && stopped && metrics);
        };
        thread::Builder::new().name("telemetry-stop".into()).spawn(stop).is_ok()
            && wait.recv_timeout(within).unwrap_or(false)
    }
}

struct Exporters {
    spans: SpanExporter,
    metrics: MetricExporter,
}

impl Exporters {
    /// OTLP over HTTP to `endpoint`.
    fn build(endpoint: String) -> Result<Exporters, Error> {
        install_tls();
        // The blocking client brings a runtime of its own, which may not be built inside another.
        thread::spawn(move || Exporters::build_here(&endpoint))
            .join()
            .map_err(|_| Error::Exporter("its thread ended early".into()))?
    }

    fn build_here(endpoint: &str) -> Result<Exporters, Error> {
        let fault =
            |error: opentelemetry_otlp::ExporterBuildError| Error::Exporter(error.to_string());
        let spans = SpanExporter::builder()
            .with_http()
            .with_endpoint(format!("{endpoint}/v1/traces"))
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(EXPORT_TIMEOUT)
            .build()
            .map_err(fault)?;
        let metrics = MetricExporter::builder()
            .with_http()
            .with_endpoint(format!("{endpoint}/v1/metrics"))
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(EXPORT_TIMEOUT)
            .build()
            .map_err(fault)?;
        Ok(Exporters { spans, metrics })
    }
}

/// The endpoint without its last slash; none where it is empty.
fn read_endpoint(text: &str) -> Result<Option<String>, Error> {
    let endpoint = text.trim().trim_end_matches('/');
    if endpoint.is_empty() {
        return Ok(None);
    }
    if endpoint.starts_with("http://") || endpoint.starts_with("https://") {
        return Ok(Some(endpoint.to_owned()));
    }
    Err(Error::Endpoint(endpoint.to_owned()))
}

fn show_dropped(metrics: &Metrics, counts: Arc<Counts>) {
    let reason = |value: &'static str| [KeyValue::new("reason", value)];
    // The instrument itself need not be kept: its callback lives in the provider.
    let _ = metrics
        .meter("telemetry")
        .u64_observable_counter("toolfleet_otel_spans_dropped")
        .with_description("spans that were not exported")
        .with_callback(move |observer| {
            observer.observe(counts.queue_full(), &reason("queue_full"));
            observer.observe(counts.export_failed(), &reason("export_failed"));
        })
        .build();
}

/// Spans become OpenTelemetry spans whatever the log filter says, or trace ids would break off.
///
/// Errors stay in the log: a span says what failed by its status and `error.type`, set on purpose,
/// so an event is neither an exception nor a status.
fn trace_layer<S>(traces: &SdkTracerProvider) -> impl Layer<S> + use<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    tracing_opentelemetry::layer()
        .with_tracer(traces.tracer("toolfleet"))
        .with_error_fields_to_exceptions(false)
        .with_error_records_to_exceptions(false)
        .with_error_events_to_exceptions(false)
        .with_error_events_to_status(false)
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        // The current span is tracing's; a second notion of it would only cost.
        .with_context_activation(false)
        .with_filter(filter_fn(is_ours).with_max_level_hint(LevelFilter::INFO))
}

/// Whether a span or event goes into traces. Not those of libraries, above all not the exporter's
/// own.
fn is_ours(metadata: &Metadata<'_>) -> bool {
    *metadata.level() <= Level::INFO && metadata.target().starts_with("toolfleet")
}

fn log_layer<S>(filter: EnvFilter, format: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    // A line says what happened; the spans around it, with all their fields, are in the trace.
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method is not general enough over its lifetime"
    )]
    let is_event: FilterFn = FilterFn::new(|metadata| metadata.is_event());
    let filter = FilterExt::<S>::and(filter, is_event);
    match format {
        LogFormat::Text => {
            layer.with_ansi(std::io::stderr().is_terminal()).with_filter(filter).boxed()
        }
        LogFormat::Json => layer.json().with_ansi(false).with_filter(filter).boxed(),
    }
}

#[cfg(test)]
mod tests;
