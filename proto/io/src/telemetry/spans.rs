//! The spans of a call, from the turn to the attempt. Made here only, so that both processes agree
//! on names and attributes. Arguments and results are never on a span.

use super::names;
use opentelemetry::trace::Status;
use tracing::{Span, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// What names a call on its spans.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The execution's id.
    pub execution: &'a str,
    /// The turn's id, if the call belongs to one.
    pub turn: Option<&'a str>,
    /// The call's id.
    pub call: &'a str,
    /// The tool's name.
    pub tool: &'a str,
    /// The pool that runs it.
    pub pool: &'a str,
}

/// One attempt of a call.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The call.
    pub call: Call<'a>,
    /// The worker's name.
    pub worker: &'a str,
    /// Counted from 1.
    pub attempt: u32,
    /// The fencing token.
    pub fence: u64,
}

/// The coordinator's span of a whole turn. The root of a trace where the caller sent no context.
pub fn turn(execution: &str, turn: &str) -> Span {
    info_span!(
        names::SPAN_TURN,
        otel.kind = "server",
        { names::EXECUTION } = execution,
        { names::TURN } = turn,
    )
}

/// The coordinator's span of a call: from its acceptance to its result.
pub fn execute_tool(call: Call<'_>) -> Span {
    info_span!(
        names::SPAN_EXECUTE_TOOL,
        otel.name = format!("{} {}", names::SPAN_EXECUTE_TOOL, call.tool),
        otel.kind = "internal",
        { names::OPERATION } = names::OPERATION_EXECUTE_TOOL,
        { names::TOOL } = call.tool,
        { names::TOOL_CALL_ID } = call.call,
        { names::EXECUTION } = call.execution,
        { names::TURN } = call.turn,
        { names::POOL } = call.pool,
    )
}

/// The span around the publication of a job. Its context goes into the job's headers.
///
/// `template` is `subject` with placeholders, and part of the span's name: it must have few values.
pub fn publish(call: Call<'_>, subject: &str, template: &str, body_bytes: usize) -> Span {
    info_span!(
        names::SPAN_PUBLISH,
        otel.name = format!("{} {template}", names::SPAN_PUBLISH),
        otel.kind = "producer",
        { names::MESSAGING_SYSTEM } = names::MESSAGING_SYSTEM_NATS,
        { names::MESSAGING_OPERATION_TYPE } = "send",
        { names::MESSAGING_OPERATION_NAME } = "publish",
        { names::MESSAGING_DESTINATION } = subject,
        { names::MESSAGING_DESTINATION_TEMPLATE } = template,
        { names::MESSAGING_BODY_SIZE } = signed(body_bytes as u64),
        { names::TOOL } = call.tool,
        { names::TOOL_CALL_ID } = call.call,
        { names::POOL } = call.pool,
    )
}

/// A span that a worker makes and ends when it has asked for a job's lease: an open span would die
/// with it. Set the parent; its context goes to the store, for the next attempt to link to.
///
/// `queue_ms` is the time from publication to claim, in milliseconds.
pub fn claim(call: Call<'_>, worker: &str, queue_ms: u64) -> Span {
    info_span!(
        names::SPAN_CLAIM,
        otel.kind = "client",
        { names::MESSAGING_SYSTEM } = names::MESSAGING_SYSTEM_NATS,
        { names::MESSAGING_OPERATION_TYPE } = "receive",
        { names::MESSAGING_OPERATION_NAME } = "claim",
        { names::TOOL } = call.tool,
        { names::TOOL_CALL_ID } = call.call,
        { names::EXECUTION } = call.execution,
        { names::TURN } = call.turn,
        { names::POOL } = call.pool,
        { names::WORKER } = worker,
        { names::QUEUE_MS } = signed(queue_ms),
        { names::ATTEMPT } = tracing::field::Empty,
        { names::FENCE } = tracing::field::Empty,
        { names::OUTCOME } = tracing::field::Empty,
    )
}

/// Notes on a claim what the store granted.
pub fn granted(claim: &Span, attempt: u32, fence: u64) {
    claim.record(names::ATTEMPT, attempt);
    claim.record(names::FENCE, signed(fence));
    claim.record(names::OUTCOME, "granted");
}

/// Notes on a claim why it came to no run, a word of a closed set.
pub fn not_granted(claim: &Span, outcome: &'static str) {
    claim.record(names::OUTCOME, outcome);
}

/// The worker's span of an attempt, from the start of the tool to its stored result.
///
/// `consumer` is the durable consumer that delivered the job. The parent is the publication, from
/// the job's headers; the attempt before is linked.
pub fn process(attempt: Attempt<'_>, consumer: &str) -> Span {
    info_span!(
        names::SPAN_PROCESS,
        otel.name = format!("{} {}", names::SPAN_PROCESS, attempt.call.tool),
        otel.kind = "consumer",
        { names::MESSAGING_SYSTEM } = names::MESSAGING_SYSTEM_NATS,
        { names::MESSAGING_OPERATION_TYPE } = "process",
        { names::MESSAGING_OPERATION_NAME } = "process",
        { names::MESSAGING_CONSUMER } = consumer,
        { names::TOOL } = attempt.call.tool,
        { names::TOOL_CALL_ID } = attempt.call.call,
        { names::EXECUTION } = attempt.call.execution,
        { names::TURN } = attempt.call.turn,
        { names::POOL } = attempt.call.pool,
        { names::WORKER } = attempt.worker,
        { names::ATTEMPT } = attempt.attempt,
        { names::FENCE } = signed(attempt.fence),
    )
}

/// The worker's span of one try of a tool that may be tried again: a child of the attempt's, and what the
/// tool's own spans hang below. `number` counts from 1.
pub fn one_try(attempt: &Span, tool: &str, number: u32) -> Span {
    info_span!(
        parent: attempt,
        names::SPAN_TRY,
        otel.name = format!("{} {tool}", names::SPAN_TRY),
        otel.kind = "internal",
        { names::TOOL } = tool,
        { names::TRY } = number,
    )
}

/// The worker's span around the storing of a result, until the stream has judged. A child of the
/// attempt's.
pub fn commit(subject: &str, body_bytes: usize) -> Span {
    info_span!(
        names::SPAN_COMMIT,
        otel.kind = "producer",
        { names::MESSAGING_SYSTEM } = names::MESSAGING_SYSTEM_NATS,
        { names::MESSAGING_OPERATION_TYPE } = "send",
        { names::MESSAGING_OPERATION_NAME } = "commit",
        { names::MESSAGING_DESTINATION } = subject,
        { names::MESSAGING_BODY_SIZE } = signed(body_bytes as u64),
    )
}

/// The coordinator's span of a cancel, from its mark to its answer. Its parent is the call's
/// publication, so that it stands in the call's trace.
pub fn cancel(call: Call<'_>) -> Span {
    info_span!(
        names::SPAN_CANCEL,
        otel.kind = "internal",
        { names::TOOL } = call.tool,
        { names::TOOL_CALL_ID } = call.call,
        { names::EXECUTION } = call.execution,
        { names::TURN } = call.turn,
        { names::POOL } = call.pool,
        { names::OUTCOME } = tracing::field::Empty,
    )
}

/// How a cancel was answered, a word of a closed set.
pub fn answered(cancel: &Span, answer: &'static str) {
    cancel.record(names::OUTCOME, answer);
}

/// The coordinator's note that an attempt's lease ran out: its own span was lost with the worker.
pub fn attempt_lost(attempt: Attempt<'_>) -> Span {
    let span = info_span!(
        names::SPAN_ATTEMPT_LOST,
        otel.kind = "internal",
        { names::TOOL } = attempt.call.tool,
        { names::TOOL_CALL_ID } = attempt.call.call,
        { names::EXECUTION } = attempt.call.execution,
        { names::TURN } = attempt.call.turn,
        { names::POOL } = attempt.call.pool,
        { names::WORKER } = attempt.worker,
        { names::ATTEMPT } = attempt.attempt,
        { names::FENCE } = signed(attempt.fence),
    );
    fail(&span, "lost");
    span
}

/// Marks a span as failed with a code from a closed set. A success is left unmarked.
pub fn fail(span: &Span, code: &'static str) {
    span.set_attribute(names::ERROR_TYPE, code);
    span.set_status(Status::error(code));
}

/// Notes on a call's span that a dry run answered in the tool's place.
pub fn stubbed(execute_tool: &Span) {
    execute_tool.set_attribute(names::STUBBED, true);
}

/// How an attempt ended: `result_bytes` after bounding, and whether the result was cut.
pub fn result(span: &Span, result_bytes: usize, truncated: bool) {
    span.set_attribute(names::RESULT_BYTES, signed(result_bytes as u64));
    span.set_attribute(names::TRUNCATED, truncated);
}

/// Span attributes have no unsigned integers.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
