//! Every span and attribute name that toolfleet writes. Those under `gen_ai.` and `messaging.` are
//! OpenTelemetry's and still move; they are bound here and nowhere else.

/// Name of the coordinator's span of a whole turn.
pub const SPAN_TURN: &str = "turn";
/// First word of the coordinator's span of a call; the tool's name follows.
pub const SPAN_EXECUTE_TOOL: &str = "execute_tool";
/// First word of the span around the publication of a job; the destination's template follows.
pub const SPAN_PUBLISH: &str = "publish";
/// Name of the worker's short span that says who took the job.
pub const SPAN_CLAIM: &str = "claim";
/// First word of the worker's span of an attempt; the tool's name follows.
pub const SPAN_PROCESS: &str = "process";
/// First word of the worker's span of one try of several inside an attempt; the tool's name follows.
pub const SPAN_TRY: &str = "try";
/// Name of the coordinator's span for an attempt whose lease ran out.
pub const SPAN_ATTEMPT_LOST: &str = "attempt lost";
/// A worker stores a result.
pub const SPAN_COMMIT: &str = "commit";
/// A coordinator cancels a call.
pub const SPAN_CANCEL: &str = "cancel";

/// What is done: see [`OPERATION_EXECUTE_TOOL`].
pub const OPERATION: &str = "gen_ai.operation.name";
/// The one value of [`OPERATION`].
pub const OPERATION_EXECUTE_TOOL: &str = "execute_tool";
/// The tool's name.
pub const TOOL: &str = "gen_ai.tool.name";
/// `function`, `extension` or `datastore`.
pub const TOOL_TYPE: &str = "gen_ai.tool.type";
/// The call's id as the model gave it.
pub const TOOL_CALL_ID: &str = "gen_ai.tool.call.id";
/// The code of the outcome where it is not a success.
pub const ERROR_TYPE: &str = "error.type";

/// The broker: [`MESSAGING_SYSTEM_NATS`].
pub const MESSAGING_SYSTEM: &str = "messaging.system";
/// The one value of [`MESSAGING_SYSTEM`].
pub const MESSAGING_SYSTEM_NATS: &str = "nats";
/// `send`, `receive`, `process` or `settle`.
pub const MESSAGING_OPERATION_TYPE: &str = "messaging.operation.type";
/// The operation in the broker's words, e.g. `publish`.
pub const MESSAGING_OPERATION_NAME: &str = "messaging.operation.name";
/// The subject.
pub const MESSAGING_DESTINATION: &str = "messaging.destination.name";
/// The subject with placeholders: few different values.
pub const MESSAGING_DESTINATION_TEMPLATE: &str = "messaging.destination.template";
/// Size of the message, in bytes.
pub const MESSAGING_BODY_SIZE: &str = "messaging.message.body.size";
/// The durable consumer.
pub const MESSAGING_CONSUMER: &str = "messaging.consumer.group.name";

/// The execution's id.
pub const EXECUTION: &str = "toolfleet.execution";
/// The turn's id.
pub const TURN: &str = "toolfleet.turn";
/// The attempt, counted from 1.
pub const ATTEMPT: &str = "toolfleet.attempt";
/// The try within the attempt, counted from 1.
pub const TRY: &str = "toolfleet.try";
/// The fencing token of the attempt.
pub const FENCE: &str = "toolfleet.fence";
/// The worker's name.
pub const WORKER: &str = "toolfleet.worker";
/// The pool.
pub const POOL: &str = "toolfleet.pool";
/// From publication to claim, in milliseconds.
pub const QUEUE_MS: &str = "toolfleet.queue_ms";
/// How the call ended, from a closed set.
pub const OUTCOME: &str = "toolfleet.outcome";
/// Size of the result after it was bounded, in bytes.
pub const RESULT_BYTES: &str = "toolfleet.result_bytes";
/// Whether the result was cut.
pub const TRUNCATED: &str = "toolfleet.truncated";
/// Whether a dry run answered in the tool's place.
pub const STUBBED: &str = "toolfleet.stubbed";
/// Money spent, in billionths of a dollar.
pub const SPEND_AMOUNT: &str = "toolfleet.spend.amount";
/// What the money went to.
pub const SPEND_SERVICE: &str = "toolfleet.spend.service";
