//! The bounded way of finished spans to the exporter. What does not fit is dropped and counted, so
//! that an exporter that is down costs neither memory nor time.

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Finished spans that may wait for the exporter, those being exported included.
pub(super) const SPANS_QUEUED_MAX: usize = 4096;

/// How many spans wait and how many were lost, by cause. Never decreases but for `queued`.
#[derive(Debug, Default)]
pub(super) struct Counts {
    queued: AtomicUsize,
    queue_full: AtomicU64,
    export_failed: AtomicU64,
}

impl Counts {
    /// Spans that found the queue full.
    pub(super) fn queue_full(&self) -> u64 {
        self.queue_full.load(Ordering::Relaxed)
    }

    /// Spans that the exporter gave up on.
    pub(super) fn export_failed(&self) -> u64 {
        self.export_failed.load(Ordering::Relaxed)
    }

    fn enter(&self, queued_max: usize) -> bool {
        let next = |queued: usize| (queued < queued_max).then_some(queued + 1);
        let entered = self.queued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok();
        if !entered {
            self.queue_full.fetch_add(1, Ordering::Relaxed);
        }
        entered
    }

    fn leave(&self, spans: usize, exported: bool) {
        self.queued.fetch_sub(spans, Ordering::Relaxed);
        if !exported {
            self.export_failed.fetch_add(spans as u64, Ordering::Relaxed);
        }
    }
}

/// A batch processor that never holds more than its bound. The SDK's own bound drops too, but tells
/// its count only at shutdown.
#[derive(Debug)]
pub(super) struct Queue {
    batches: BatchSpanProcessor,
    counts: Arc<Counts>,
    queued_max: usize,
}

impl Queue {
    /// A queue of at most `queued_max` spans before `exporter`. The pace of batches comes from
    /// `OTEL_BSP_SCHEDULE_DELAY` and `OTEL_BSP_MAX_EXPORT_BATCH_SIZE`.
    pub(super) fn new<E: SpanExporter + 'static>(
        exporter: E,
        counts: Arc<Counts>,
        queued_max: usize,
    ) -> Queue {
        let config = BatchConfigBuilder::default().with_max_queue_size(queued_max).build();
        let exporter = Counted { exporter, counts: Arc::clone(&counts) };
        let batches = BatchSpanProcessor::builder(exporter).with_batch_config(config).build();
        Queue { batches, counts, queued_max }
    }
}

impl SpanProcessor for Queue {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() && self.counts.enter(self.queued_max) {
            self.batches.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

#[derive(Debug)]
struct Counted<E> {
    exporter: E,
    counts: Arc<Counts>,
}

impl<E: SpanExporter> SpanExporter for Counted<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let result = self.exporter.export(batch).await;
        self.counts.leave(spans, result.is_ok());
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    // Forwarded by name: the OTLP exporter overrides this one, not the one with a timeout.
    fn shutdown(&self) -> OTelSdkResult {
        self.exporter.shutdown()
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry::trace::{Span as _, Tracer, TracerProvider};
    use opentelemetry_sdk::error::OTelSdkError;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use std::sync::Mutex;
    use std::sync::mpsc::Receiver;

    /// Fails each batch, but only once it is told to go on.
    #[derive(Debug)]
    struct Down(Mutex<Receiver<()>>);

    impl SpanExporter for Down {
        async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
            self.0.lock().unwrap().recv().ok();
            Err(OTelSdkError::InternalFailure("down".into()))
        }
    }

    #[test]
    fn an_exporter_that_is_down_costs_a_bounded_queue() {
        let (go_on, wait) = std::sync::mpsc::sync_channel(1);
        let counts = Arc::new(Counts::default());
        let queue = Queue::new(Down(Mutex::new(wait)), Arc::clone(&counts), 3);
        let provider = SdkTracerProvider::builder().with_span_processor(queue).build();
        let tracer = provider.tracer("test");
        for _ in 0..10 {
            tracer.start("span").end();
        }
        assert_eq!((counts.queue_full(), counts.export_failed()), (7, 0));

        drop(go_on);
        // The result is of no interest: the batches fail, and that is what is counted.
        let _ = provider.force_flush();
        assert_eq!((counts.queue_full(), counts.export_failed()), (7, 3));
        tracer.start("span").end();
        assert_eq!(counts.queue_full(), 7, "the failed spans left the queue");
    }
}
