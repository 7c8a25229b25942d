//! Metrics: one meter provider, read by the Prometheus page and, where an endpoint is set, by the
//! OTLP exporter. Labels come from closed sets (pool, tool, outcome), never from ids.
//!
//! Names are written as `toolfleet_job_run`; the page adds the unit and, to counters, `_total`:
//! `toolfleet_job_run_seconds_bucket`, `toolfleet_jobs_submitted_total`.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Histogram, Meter, MeterProvider};
use opentelemetry_otlp::MetricExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use prometheus::{Registry, TextEncoder};
use std::sync::OnceLock;

/// Media type of [`render`]'s page.
pub const PAGE_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Upper bounds of histograms of spans, in seconds.
pub const SECONDS_BUCKETS: [f64; 14] =
    [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
/// Upper bounds of histograms of sizes, in bytes.
pub const BYTES_BUCKETS: [f64; 9] =
    [256.0, 1024.0, 4096.0, 16_384.0, 65_536.0, 131_072.0, 262_144.0, 1_048_576.0, 4_194_304.0];

static INSTALLED: OnceLock<Metrics> = OnceLock::new();

/// A part's meter. Before [`crate::telemetry::start`] it records nothing, then and later.
pub fn meter(component: &'static str) -> Meter {
    match INSTALLED.get() {
        Some(metrics) => metrics.meter(component),
        None => opentelemetry::global::meter(component),
    }
}

/// The page for `/metrics`, in Prometheus' text format. Empty before [`crate::telemetry::start`].
pub fn render() -> String {
    INSTALLED.get().map(Metrics::render).unwrap_or_default()
}

/// A histogram of spans in seconds, over [`SECONDS_BUCKETS`]. The page adds `_seconds` to `name`.
pub fn seconds_histogram(
    meter: &Meter,
    name: &'static str,
    description: &'static str,
) -> Histogram<f64> {
    meter
        .f64_histogram(name)
        .with_unit("s")
        .with_description(description)
        .with_boundaries(SECONDS_BUCKETS.to_vec())
        .build()
}

/// A histogram of sizes in bytes, over [`BYTES_BUCKETS`]. The page adds `_bytes` to `name`.
pub fn bytes_histogram(
    meter: &Meter,
    name: &'static str,
    description: &'static str,
) -> Histogram<u64> {
    meter
        .u64_histogram(name)
        .with_unit("By")
        .with_description(description)
        .with_boundaries(BYTES_BUCKETS.to_vec())
        .build()
}

/// The provider and what the page reads.
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) provider: SdkMeterProvider,
}

impl Metrics {
    /// Builds the provider with its readers, and `toolfleet_build_info` of `service`.
    pub(crate) fn new(
        service: &'static str,
        resource: Resource,
        exporter: Option<MetricExporter>,
    ) -> Result<Metrics, OTelSdkError> {
        let registry = Registry::new();
        // Scope labels would double every series' labels and say what the name says.
        let page = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .scope_info_enabled(false)
            .build()?;
        let mut builder = SdkMeterProvider::builder().with_resource(resource).with_reader(page);
        if let Some(exporter) = exporter {
            builder = builder.with_periodic_exporter(exporter);
        }
        let metrics = Metrics { registry, provider: builder.build() };
        let version = env!("CARGO_PKG_VERSION");
        metrics
            .meter("build")
            .u64_gauge("toolfleet_build_info")
            .with_description("what runs; always 1")
            .build()
            .record(1, &[KeyValue::new("version", version), KeyValue::new("component", service)]);
        Ok(metrics)
    }

    /// Whether the process has its metrics.
    pub(crate) fn installed() -> bool {
        INSTALLED.get().is_some()
    }

    /// Makes these the process' metrics. Returns whether they are the first.
    pub(crate) fn install(self) -> bool {
        let provider = self.provider.clone();
        let first = INSTALLED.set(self).is_ok();
        if first {
            opentelemetry::global::set_meter_provider(provider);
        }
        first
    }

    pub(crate) fn meter(&self, component: &'static str) -> Meter {
        self.provider.meter(component)
    }

    pub(crate) fn render(&self) -> String {
        let mut page = String::new();
        if let Err(error) = TextEncoder::new().encode_utf8(&self.registry.gather(), &mut page) {
            // What was written before stays: a page that lacks a metric is better than none.
            tracing::error!(%error, "a metric cannot be written");
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_the_names_that_dashboards_use() {
        let resource = Resource::builder_empty().with_service_name("toolfleet-test").build();
        let metrics = Metrics::new("toolfleet-test", resource, None).unwrap();
        let meter = metrics.meter("test");
        let submitted = meter.u64_counter("toolfleet_jobs_submitted").build();
        submitted.add(2, &[KeyValue::new("pool", "default")]);
        submitted.add(3, &[KeyValue::new("pool", "gpu")]);
        let run = seconds_histogram(&meter, "toolfleet_job_run", "from start to result");
        run.record(0.3, &[KeyValue::new("tool", "search")]);
        bytes_histogram(&meter, "toolfleet_result", "size of results").record(300, &[]);

        let page = metrics.render();
        let version = env!("CARGO_PKG_VERSION");
        for line in [
            "toolfleet_jobs_submitted_total{pool=\"default\"} 2",
            "toolfleet_jobs_submitted_total{pool=\"gpu\"} 3",
            "# TYPE toolfleet_job_run_seconds histogram",
            "toolfleet_job_run_seconds_bucket{tool=\"search\",le=\"0.2\"} 0",
            "toolfleet_job_run_seconds_bucket{tool=\"search\",le=\"0.5\"} 1",
            "toolfleet_job_run_seconds_bucket{tool=\"search\",le=\"300\"} 1",
            "toolfleet_job_run_seconds_count{tool=\"search\"} 1",
            "toolfleet_result_bytes_bucket{le=\"1024\"} 1",
            &format!(
                "toolfleet_build_info{{component=\"toolfleet-test\",version=\"{version}\"}} 1"
            ),
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
        }
        let types = page.matches("# TYPE toolfleet_jobs_submitted_total counter").count();
        assert_eq!(types, 1, "{page}");
    }
}
