//! Tools in our own form: all that a caller may know of them.

use crate::core::catalog::Offer;
use serde_json::{Value, json};
use toolfleet_proto::descriptor::Descriptor;

/// The effect of every call, or that it depends on the call.
fn effect(descriptor: &Descriptor) -> &'static str {
    if descriptor.declared.effect_expr.is_some() { "dynamic" } else { descriptor.effect.as_str() }
}

/// One tool, its schemas as the author wrote them.
pub(super) fn tool(offer: &Offer) -> Value {
    let descriptor = &offer.descriptor;
    let mut value = json!({
        "name": descriptor.name,
        "description": descriptor.description,
        "effect": effect(descriptor),
        "inputSchema": descriptor.input_schema,
        "tags": descriptor.tags,
        "pool": offer.pool,
        "hash": offer.hash,
        "runner": descriptor.runner.kind(),
        "timeoutMs": descriptor.timeout_ms,
        "queueTimeoutMs": descriptor.queue_timeout_ms,
        "totalTimeoutMs": descriptor.total_timeout_ms,
        "maxAttempts": descriptor.max_attempts,
        "rerun": descriptor.rerun,
        "resultBytesMax": descriptor.result_bytes_max,
        "isLive": offer.is_live,
    });
    if let Some(object) = value.as_object_mut() {
        if let Some(schema) = &descriptor.output_schema {
            object.insert("outputSchema".into(), schema.clone());
        }
        if let Some(presentation) = &descriptor.presentation {
            object.insert("presentation".into(), presentation.clone());
        }
    }
    value
}
