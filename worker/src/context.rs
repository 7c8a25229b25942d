//! What a tool sees of its call (CONTRACT 5.1).

use crate::reports::Reports;
use crate::spend::Spend;
use crate::stop::Stop;
use serde::Serialize;

/// Everything about one attempt of one call that a tool may know.
///
/// Serialised (camelCase) it is the content of the file `$TOOLFLEET_CONTEXT` of an `exec` tool.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallContext {
    /// Name of the tool.
    pub tool_name: String,
    /// Tenant of the call.
    pub tenant: String,
    /// Execution of the call.
    pub execution_id: String,
    /// Thread of the conversation; empty where the caller gave none.
    pub thread_id: String,
    /// Owner of the execution; empty where the caller gave none.
    pub owner_id: String,
    /// Who asked.
    pub actor: String,
    /// What they are.
    pub roles: Vec<String>,
    /// Name of the agent; empty where there is none.
    pub agent: String,
    /// `main`, or the agent's name: the first part of the call's name.
    pub node: String,
    /// Name of the turn; `direct` for a direct call.
    pub turn: String,
    /// The provider's id of the call, or the one made for it.
    pub call_id: String,
    /// Id of the request that handed the call in.
    pub request_id: String,
    /// The same in every replay and attempt; send it to services that take one.
    pub idempotency_key: String,
    /// Number of this attempt, from 1.
    pub attempt: u32,
    /// Fencing token: grows with every claim of the call.
    pub fence: u64,
    /// When the call must be over, RFC 3339.
    pub deadline: String,
    /// Time this attempt may take.
    pub timeout_ms: u64,
    /// What the program is started for: `execute`.
    pub phase: String,
    /// Whether nothing may be changed.
    pub dry_run: bool,
    /// The instant that the execution reasons from, RFC 3339; empty where it has none.
    pub as_of: String,
    /// W3C trace context of this attempt's span.
    pub traceparent: String,
    /// W3C trace state.
    pub tracestate: String,
    /// W3C baggage.
    pub baggage: String,
}

/// What a native tool is handed beside its input.
#[derive(Clone)]
pub struct Context {
    pub(crate) call: std::sync::Arc<CallContext>,
    pub(crate) stop: Stop,
    pub(crate) spend: Spend,
    pub(crate) reports: Reports,
}

impl Context {
    /// The ids, clocks and trace context of the call.
    pub fn call(&self) -> &CallContext {
        &self.call
    }

    /// Fires when the tool must stop: cancelled, timed out, lease lost, or the worker drains. What
    /// has not stopped when the kill grace is over is dropped at its next await point.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Reports how the call goes on: progress, partial output, components, artifacts, values, log lines.
    pub fn reports(&self) -> &Reports {
        &self.reports
    }

    /// Records what the call spends, as often as there is something to record.
    pub fn spend(&self) -> &Spend {
        &self.spend
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs read this file: a name that changed would break them.
    #[test]
    fn the_context_file_names_everything() {
        let value = serde_json::to_value(CallContext::default()).unwrap();
        let names: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        let expected = [
            "toolName",
            "tenant",
            "executionId",
            "threadId",
            "ownerId",
            "actor",
            "roles",
            "agent",
            "node",
            "turn",
            "callId",
            "requestId",
            "idempotencyKey",
            "attempt",
            "fence",
            "deadline",
            "timeoutMs",
            "phase",
            "dryRun",
            "asOf",
            "traceparent",
            "tracestate",
            "baggage",
        ];
        assert_eq!(names, expected);
    }
}
