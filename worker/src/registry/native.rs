//! What a tool written in Rust declares, as a descriptor like that of a manifest.

use crate::runner::native::Native;
use crate::tool::ToolSpec;
use std::time::Duration;
use toolfleet_proto::declared::{Declared, Retry, TRIES_DEFAULT};
use toolfleet_proto::describe::Described;
use toolfleet_proto::descriptor::{Descriptor, ResultForm, Runner};
use toolfleet_proto::layers::{Origin, Origins, Own, Rules};

/// A tool written in Rust, as `describe` shows it.
pub fn describe(tool: &dyn Native, rules: &Rules) -> Described {
    let (descriptor, origins) = describe_native(tool, rules);
    let hash = descriptor.hash();
    Described { descriptor, hash, package: None, file: None, secrets: Vec::new(), origins }
}

/// The descriptor of a tool written in Rust, and where each of its values comes from.
pub(super) fn describe_native(tool: &dyn Native, rules: &Rules) -> (Descriptor, Origins) {
    let ToolSpec {
        name,
        description,
        effect,
        rerun,
        timeout,
        queue_timeout,
        total_timeout,
        max_attempts,
        tries,
        retry_wait_max,
        result_bytes_max,
        tags,
        presentation,
        declared,
    } = tool.spec();
    let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let settled = rules.settle(&Own {
        timeout_ms: timeout.map(ms),
        queue_timeout_ms: queue_timeout.map(ms),
        max_attempts,
        result_bytes_max,
    });
    let retry = (tries.is_some() || retry_wait_max.is_some()).then(|| Retry {
        tries: tries.unwrap_or(TRIES_DEFAULT),
        wait_max_ms: retry_wait_max.map(ms),
    });
    let all_attempts_ms = settled.timeout_ms.saturating_mul(settled.max_attempts.into());
    let mut origins = settled.origins;
    // Its type says both.
    (origins.effect, origins.result) = (Origin::Tool, Origin::Tool);
    if total_timeout.is_some() {
        origins.total_timeout = Origin::Tool;
    }
    let descriptor = Descriptor {
        name,
        description,
        effect,
        rerun,
        timeout_ms: settled.timeout_ms,
        queue_timeout_ms: settled.queue_timeout_ms,
        total_timeout_ms: total_timeout.map_or(all_attempts_ms, ms),
        max_attempts: settled.max_attempts,
        result_bytes_max: settled.result_bytes_max,
        input_schema: tool.input_schema(),
        output_schema: tool.output_schema(),
        result: if tool.is_text() { ResultForm::Text } else { ResultForm::Json },
        runner: Runner::Native,
        tags,
        presentation,
        declared: Declared { retry, ..declared },
    };
    (descriptor, origins)
}
