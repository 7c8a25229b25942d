//! The last traces, in bounded memory.

use crate::api::traces::{Span, Trace};
use serde_json::{Map, Value};
use std::collections::{HashMap, VecDeque};

/// What a span takes beside its texts, in bytes, roughly.
const SPAN_BYTES: usize = 512;
/// What an attribute takes beside its texts, in bytes, roughly.
const ATTRIBUTE_BYTES: usize = 64;

/// How much is kept. What comes over one of them drives the oldest trace out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Traces.
    pub(super) traces_max: usize,
    /// Spans of all traces together.
    pub(super) spans_max: usize,
    /// Size of all spans together, roughly.
    pub(super) bytes_max: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { traces_max: 500, spans_max: 20_000, bytes_max: 32 << 20 }
    }
}

#[derive(Debug, Default)]
struct Entry {
    /// By span id: a span that is sent again replaces itself.
    spans: HashMap<String, Span>,
    bytes: usize,
    dropped: u64,
}

/// Traces by their ids.
#[derive(Debug)]
pub(super) struct Kept {
    bounds: Bounds,
    traces: HashMap<String, Entry>,
    /// By the arrival of their first span.
    order: VecDeque<String>,
    spans: usize,
    bytes: usize,
}

impl Kept {
    /// None yet.
    pub(super) fn new(bounds: Bounds) -> Kept {
        Kept { bounds, traces: HashMap::new(), order: VecDeque::new(), spans: 0, bytes: 0 }
    }

    /// Keeps a span. A trace that alone comes over a bound takes no more, and counts what it misses.
    pub(super) fn add(&mut self, trace_id: &str, span: Span) {
        if !self.traces.contains_key(trace_id) {
            self.order.push_back(trace_id.to_owned());
        }
        let entry = self.traces.entry(trace_id.to_owned()).or_default();
        let (old, new) = (entry.spans.get(&span.span_id).map(size), size(&span));
        let spans = entry.spans.len() + usize::from(old.is_none());
        let bytes = (entry.bytes - old.unwrap_or(0)).saturating_add(new);
        if spans > self.bounds.spans_max || bytes > self.bounds.bytes_max {
            entry.dropped = entry.dropped.saturating_add(1);
        } else {
            self.spans += spans - entry.spans.len();
            self.bytes = self.bytes - entry.bytes + bytes;
            entry.bytes = bytes;
            entry.spans.insert(span.span_id.clone(), span);
        }
        self.make_room(trace_id);
    }

    fn make_room(&mut self, newest: &str) {
        while self.order.len() > self.bounds.traces_max
            || self.spans > self.bounds.spans_max
            || self.bytes > self.bounds.bytes_max
        {
            // The trace that just grew stays: it fits alone.
            let Some(at) = self.order.iter().position(|id| id != newest) else { return };
            let Some(entry) = self.order.remove(at).and_then(|id| self.traces.remove(&id)) else {
                return;
            };
            self.spans -= entry.spans.len();
            self.bytes -= entry.bytes;
        }
    }

    /// A trace, its spans by their start; nothing where no span of it is kept.
    pub(super) fn read(&self, trace_id: &str) -> Option<Trace> {
        let entry = self.traces.get(trace_id)?;
        let mut spans: Vec<Span> = entry.spans.values().cloned().collect();
        spans.sort_by(|a, b| (a.start_us, &a.span_id).cmp(&(b.start_us, &b.span_id)));
        Some(Trace { trace_id: trace_id.to_owned(), spans, spans_dropped: entry.dropped })
    }
}

fn size(span: &Span) -> usize {
    let texts = span.name.len() + span.service.len();
    SPAN_BYTES + texts + map_size(&span.attributes) + span.links.len() * SPAN_BYTES
}

fn map_size(map: &Map<String, Value>) -> usize {
    map.iter().map(|(key, value)| key.len() + value_size(value)).sum()
}

fn value_size(value: &Value) -> usize {
    ATTRIBUTE_BYTES
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(value_size).sum(),
            Value::Object(map) => map_size(map),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(id: usize, name_bytes: usize) -> Span {
        Span { span_id: id.to_string(), name: "n".repeat(name_bytes), ..Span::default() }
    }

    fn bounds(traces_max: usize, spans_max: usize) -> Bounds {
        Bounds { traces_max, spans_max, bytes_max: 1 << 20 }
    }

    #[test]
    fn the_oldest_trace_makes_room() {
        let mut kept = Kept::new(bounds(2, 10));
        for id in ["a", "b", "a", "c"] {
            kept.add(id, span(1, 1));
        }
        assert_eq!(kept.read("a"), None, "its first span is the oldest");
        assert!(kept.read("b").is_some() && kept.read("c").is_some());
    }

    #[test]
    fn spans_drive_traces_out_before_their_number_does() {
        let mut kept = Kept::new(bounds(100, 3));
        kept.add("a", span(1, 1));
        (0..3).for_each(|at| kept.add("b", span(at, 1)));
        assert_eq!(kept.read("a"), None);
        assert_eq!(kept.read("b").unwrap().spans.len(), 3);
    }

    #[test]
    fn a_trace_that_is_too_large_alone_tells_what_it_misses() {
        let mut kept = Kept::new(bounds(100, 3));
        (0..5).for_each(|at| kept.add("a", span(at, 1)));
        kept.add("a", span(0, 7));
        let trace = kept.read("a").unwrap();
        assert_eq!((trace.spans.len(), trace.spans_dropped), (3, 2));
        assert_eq!(trace.spans[0].name.len(), 7, "sent again");
    }

    #[test]
    fn bounds_hold_and_counts_are_true() {
        let bounds = Bounds { traces_max: 4, spans_max: 9, bytes_max: 5_000 };
        let mut kept = Kept::new(bounds);
        let (mut seed, mut dropped) = (7_usize, 0);
        let mut draw = |below: usize| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..5_000 {
            // One trace gets most, so that it lives long enough to meet a bound alone.
            let trace = draw(32).saturating_sub(24).to_string();
            kept.add(&trace, span(draw(12), draw(400)));
            assert!(kept.traces.len() <= bounds.traces_max);
            assert!(kept.spans <= bounds.spans_max && kept.bytes <= bounds.bytes_max);
            assert_eq!(kept.order.len(), kept.traces.len());
            let all = || kept.traces.values().flat_map(|entry| entry.spans.values());
            assert_eq!(kept.spans, all().count());
            assert_eq!(kept.bytes, all().map(size).sum::<usize>());
            dropped += kept.read(&trace).unwrap().spans_dropped;
        }
        assert!(dropped > 0, "no trace met a bound alone");
    }
}
