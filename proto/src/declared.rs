//! What a tool may declare beyond its schemas, effect, clocks and bound: who may call it, who is
//! asked, what it may use and cost (CONTRACT 1.1). Absent parts leave no trace in a descriptor's hash.

use crate::descriptor::Runner;
use crate::money::Money;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Longest expression, in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 4 * 1_024;
/// Tries in one attempt, where `retry` does not name them.
pub const TRIES_DEFAULT: u32 = 3;
/// Most tries in one attempt.
pub const TRIES_MAX: u32 = 10;
/// The longest wait between two tries, where `retry` does not bound it.
pub const RETRY_WAIT_MAX_DEFAULT_MS: u64 = 5_000;
/// Most processes and open files that `[limits]` may name.
pub const LIMIT_COUNT_MAX: u64 = 1_000_000;

/// An expression in CEL, as the author wrote it: not empty, at most [`EXPRESSION_BYTES_MAX`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expression {
    /// Its text.
    pub expr: String,
}

/// Tries inside one attempt (CONTRACT 5.7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// Tries in all, from 1 to [`TRIES_MAX`].
    pub tries: u32,
    /// The longest wait between two of them, where the author bounds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_max_ms: Option<u64>,
}

/// What a dry run answers (CONTRACT 3.9).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DryRunResult {
    /// This value.
    Value(Value),
    /// What the expression yields.
    Expr(String),
}

/// Bounds of a program's processes (CONTRACT 5.11). Absent: the system's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessLimits {
    /// Memory of one process, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Time on processors of one process, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_time_ms: Option<u64>,
    /// Processes at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Open files of one process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// Size of a file that is written, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_size_bytes: Option<u64>,
}

/// Whether a tool is on (CONTRACT 2.2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Enabled {
    /// Always.
    #[default]
    On,
    /// Never.
    Off,
    /// As a flag says, asked each time.
    Flag(String),
    /// As a variable says, read each time.
    Env(String),
}

impl Enabled {
    /// Whether it is simply on.
    pub fn is_on(&self) -> bool {
        matches!(self, Enabled::On)
    }
}

/// A condition on the caller (CONTRACT 2.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CanUse {
    /// An expression over the actor.
    Expr(String),
    /// Whom to ask.
    Webhook(String),
}

/// The parts, each absent unless the author wrote it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Declared {
    /// An effect that depends on the input. The descriptor's `effect` is then the most it may yield.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect_expr: Option<Expression>,
    /// Tries inside one attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Properties of the input that must be instants in an execution with `asOf`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub time_args: Vec<String>,
    /// What a dry run answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run_result: Option<DryRunResult>,
    /// Bounds of the program's processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<ProcessLimits>,
    /// Roles that may call it; empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// An ability that a caller must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ability: Option<String>,
    /// Whether it is on.
    #[serde(skip_serializing_if = "Enabled::is_on")]
    pub enabled: Enabled,
    /// A condition on the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub can_use: Option<CanUse>,
    /// Who is asked before a call runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// A preview first (CONTRACT 4.8).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub confirm: bool,
    /// A check before the ask and before the run (CONTRACT 4.7).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub preflight: bool,
    /// The most that one call can cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
    /// Slots that a call takes, where it is not 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// A program that stays and serves calls one after another (CONTRACT 5.13).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub warm: bool,
    /// What tells whether a write took effect (CONTRACT 5.6).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<Runner>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_absent_leaves_no_trace_and_what_is_there_survives() {
        assert_eq!(serde_json::to_value(Declared::default()).unwrap(), json!({}));
        let full = json!({
            "effectExpr": {"expr": "input.dry ? 'read' : 'write'"},
            "retry": {"tries": 2, "waitMaxMs": 500},
            "timeArgs": ["until"],
            "dryRunResult": {"value": {"id": 7}},
            "limits": {"memoryBytes": 1, "cpuTimeMs": 2, "processes": 3, "openFiles": 4, "fileSizeBytes": 5},
            "roles": ["admin"],
            "ability": "refund",
            "enabled": {"flag": "refunds"},
            "canUse": {"webhook": "https://gate.example"},
            "channel": "owner",
            "confirm": true,
            "preflight": true,
            "cost": {"nano": 50, "currency": "EUR"},
            "weight": 2,
            "warm": true,
            "verify": {"kind": "exec", "command": ["./asked"]},
        });
        let read: Declared = serde_json::from_value(full.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), full);
    }
}
