//! Trace context between processes, as W3C text. Works without an exporter.

use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{SpanContext, TraceContextExt};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use std::collections::HashMap;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Header of the span's identity. NATS headers are case sensitive: this spelling.
pub const TRACEPARENT: &str = "traceparent";
/// Header of what vendors add.
pub const TRACESTATE: &str = "tracestate";
/// A longer `tracestate` is not passed on, in bytes: the size that W3C asks every hop to carry.
pub const TRACESTATE_BYTES_MAX: usize = 512;
/// A longer `traceparent` is not read, in bytes: four times today's form.
pub const TRACEPARENT_BYTES_MAX: usize = 220;

/// `traceparent` and `tracestate` of a span, for headers. Both empty where the span is not
/// recorded.
///
/// Fixes the span's parent: [`set_parent`] has no effect afterwards.
pub fn current_trace_context(span: &tracing::Span) -> (String, String) {
    let mut headers = HashMap::new();
    TraceContextPropagator::new().inject_context(&span.context(), &mut headers);
    let mut take = |name| headers.remove(name).unwrap_or_default();
    (take(TRACEPARENT), take(TRACESTATE))
}

/// Makes `span` a child of a span in another process. Text that does not read leaves it as it is.
///
/// To be called before the span is entered, has children or was asked for its context. Returns
/// whether the parent was set.
pub fn set_parent(span: &tracing::Span, traceparent: &str, tracestate: &str) -> bool {
    read(traceparent, tracestate).is_some_and(|parent| {
        span.set_parent(Context::new().with_remote_span_context(parent)).is_ok()
    })
}

/// Links `span` to another, e.g. to the attempt before. Text that does not read adds nothing.
pub fn add_link(span: &tracing::Span, traceparent: &str) {
    if let Some(linked) = read(traceparent, "") {
        span.add_link(linked);
    }
}

/// The trace's id as 32 hexadecimal digits, or an empty text where the span is not recorded.
///
/// Fixes the span's parent, as [`current_trace_context`] does.
pub fn trace_id(span: &tracing::Span) -> String {
    let context = span.context();
    let span = context.span();
    let id = span.span_context();
    if id.is_valid() { id.trace_id().to_string() } else { String::new() }
}

fn read(traceparent: &str, tracestate: &str) -> Option<SpanContext> {
    if traceparent.len() > TRACEPARENT_BYTES_MAX {
        return None;
    }
    let mut headers = HashMap::from([(TRACEPARENT.to_owned(), traceparent.to_owned())]);
    if tracestate.len() <= TRACESTATE_BYTES_MAX {
        headers.insert(TRACESTATE.to_owned(), tracestate.to_owned());
    }
    // An empty context, so that text that does not read never yields the span that happens to be
    // active.
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &headers);
    Some(context.span().span_context().clone()).filter(SpanContext::is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::tests::traced;
    use tracing::info_span;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn context_crosses_processes_without_an_exporter() {
        traced(|| {
            let sent = info_span!("sent");
            assert!(set_parent(&sent, PARENT, "vendor=1"));
            assert_eq!(trace_id(&sent), "4bf92f3577b34da6a3ce929d0e0e4736");
            let (traceparent, tracestate) = current_trace_context(&sent);
            assert_eq!(tracestate, "vendor=1");
            assert_ne!(traceparent, PARENT);

            let received = info_span!("received");
            assert!(set_parent(&received, &traceparent, &tracestate));
            assert_eq!(trace_id(&received), trace_id(&sent));
        });
    }

    #[test]
    fn a_parent_that_was_not_sampled_elsewhere_is_recorded_here() {
        traced(|| {
            let span = info_span!("span");
            assert!(set_parent(&span, &PARENT.replace("-01", "-00"), ""));
            assert!(current_trace_context(&span).0.ends_with("-01"));
        });
    }

    #[test]
    fn text_that_does_not_read_makes_no_parent() {
        let long = format!("{PARENT}-{}", "a".repeat(TRACEPARENT_BYTES_MAX));
        let zero = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        traced(|| {
            let outer = info_span!("outer");
            for text in ["", "00-xyz", "é", zero, PARENT.split_at(30).0, long.as_str()] {
                let span = outer.in_scope(|| info_span!("span"));
                assert!(!set_parent(&span, text, "vendor=1"), "{text}");
                add_link(&span, text);
                assert_eq!(trace_id(&span), trace_id(&outer), "{text}");
            }
        });
    }

    #[test]
    fn a_tracestate_out_of_bounds_is_left_behind() {
        traced(|| {
            for state in [format!("a={}", "b".repeat(TRACESTATE_BYTES_MAX)), "no equals".into()] {
                let span = info_span!("span");
                assert!(set_parent(&span, PARENT, &state));
                assert_eq!(current_trace_context(&span).1, "");
            }
        });
    }

    #[test]
    fn a_parent_comes_too_late_after_the_context_was_given_out() {
        traced(|| {
            let span = info_span!("span");
            let id = trace_id(&span);
            assert_eq!(id.len(), 32);
            assert!(!set_parent(&span, PARENT, ""));
            assert_eq!(trace_id(&span), id);
        });
    }

    #[test]
    fn a_span_that_is_not_recorded_has_no_context() {
        let span = tracing::Span::none();
        assert_eq!(current_trace_context(&span), (String::new(), String::new()));
        assert_eq!(trace_id(&span), "");
        assert!(!set_parent(&span, PARENT, ""));
    }
}
