//! Spans from OTLP's form into the API's.

use super::wire::{Any, AnyValue, Export, KeyValue, Span as Sent};
use crate::api::traces::{Link, Span};
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// Attributes of a span that are kept.
const ATTRIBUTES_MAX: usize = 64;
/// Links of a span that are kept.
const LINKS_MAX: usize = 32;
/// A longer name or value is cut, in bytes.
const TEXT_BYTES_MAX: usize = 1024;
const TRACE_ID_BYTES: usize = 16;
const SPAN_ID_BYTES: usize = 8;

/// All spans of an export, each with the id of its trace. A span whose ids are none is left out.
pub(super) fn spans(export: Export) -> impl Iterator<Item = (String, Span)> {
    export.resource_spans.into_iter().flat_map(|of_process| {
        let resource = of_process.resource.unwrap_or_default();
        let service = resource
            .attributes
            .into_iter()
            .find(|pair| pair.key == "service.name")
            .and_then(|pair| match pair.value?.value? {
                Any::Text(text) => Some(cut(text)),
                _ => None,
            })
            .unwrap_or_default();
        let sent = of_process.scope_spans.into_iter().flat_map(|of_library| of_library.spans);
        sent.filter_map(move |span| read(span, &service))
    })
}

fn read(span: Sent, service: &str) -> Option<(String, Span)> {
    let trace_id = id(&span.trace_id, TRACE_ID_BYTES)?;
    let kind = match span.kind {
        1 => "internal",
        2 => "server",
        3 => "client",
        4 => "producer",
        5 => "consumer",
        _ => "unspecified",
    };
    let status = match span.status.map_or(0, |status| status.code) {
        1 => "ok",
        2 => "error",
        _ => "unset",
    };
    let links = span.links.into_iter().take(LINKS_MAX).filter_map(|link| {
        let (trace, span) =
            (id(&link.trace_id, TRACE_ID_BYTES)?, id(&link.span_id, SPAN_ID_BYTES)?);
        Some(Link { trace_id: trace, span_id: span })
    });
    let duration_ns = span.end_time_unix_nano.saturating_sub(span.start_time_unix_nano);
    let read = Span {
        span_id: id(&span.span_id, SPAN_ID_BYTES)?,
        parent_span_id: id(&span.parent_span_id, SPAN_ID_BYTES).unwrap_or_default(),
        name: cut(span.name),
        service: service.to_owned(),
        kind: kind.to_owned(),
        start_us: span.start_time_unix_nano / 1_000,
        duration_us: duration_ns / 1_000,
        status: status.to_owned(),
        attributes: attributes(span.attributes),
        links: links.collect(),
    };
    Some((trace_id, read))
}

fn attributes(pairs: Vec<KeyValue>) -> Map<String, Value> {
    pairs.into_iter().take(ATTRIBUTES_MAX).map(|pair| (cut(pair.key), value(pair.value))).collect()
}

fn value(sent: Option<AnyValue>) -> Value {
    match sent.and_then(|sent| sent.value) {
        None => Value::Null,
        Some(Any::Text(text)) => cut(text).into(),
        Some(Any::Bool(truth)) => truth.into(),
        Some(Any::Int(number)) => number.into(),
        Some(Any::Double(number)) => number.into(),
        Some(Any::Bytes(bytes)) => cut(hex(&bytes)).into(),
        Some(Any::Array(list)) => {
            list.values.into_iter().take(ATTRIBUTES_MAX).map(|item| value(Some(item))).collect()
        }
        Some(Any::Map(list)) => Value::Object(attributes(list.values)),
    }
}

/// An id as hexadecimal digits; nothing where it has another length or is all zero.
fn id(bytes: &[u8], length: usize) -> Option<String> {
    (bytes.len() == length && bytes.iter().any(|byte| *byte != 0)).then(|| hex(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "attributes hold it so")]
    fn any(value: Any) -> Option<AnyValue> {
        Some(AnyValue { value: Some(value) })
    }

    #[test]
    fn ids_that_are_none_name_no_span() {
        let sent = Sent { trace_id: vec![1; 16], span_id: vec![2; 8], ..Sent::default() };
        let (trace_id, span) = read(sent.clone(), "s").unwrap();
        assert_eq!((trace_id, span.span_id), ("01".repeat(16), "02".repeat(8)));
        assert_eq!(span.parent_span_id, "");
        for (trace, own) in
            [(vec![0; 16], vec![2; 8]), (vec![1; 15], vec![2; 8]), (vec![1; 16], vec![])]
        {
            let sent = Sent { trace_id: trace, span_id: own, ..sent.clone() };
            assert_eq!(read(sent, "s"), None);
        }
    }

    #[test]
    fn values_keep_their_kind_and_are_cut() {
        let list = super::super::wire::ArrayValue {
            values: vec![AnyValue { value: Some(Any::Int(-1)) }, AnyValue { value: None }],
        };
        assert_eq!(value(any(Any::Array(list))), serde_json::json!([-1, null]));
        assert_eq!(value(any(Any::Bytes(vec![0xab]))), "ab");
        assert_eq!(value(any(Any::Double(f64::NAN))), Value::Null);
        let long = value(any(Any::Text("é".repeat(TEXT_BYTES_MAX))));
        assert_eq!(long.as_str().map(str::len), Some(TEXT_BYTES_MAX));
        let many = (0..=ATTRIBUTES_MAX).map(|at| KeyValue { key: at.to_string(), value: None });
        assert_eq!(attributes(many.collect()).len(), ATTRIBUTES_MAX);
    }
}
