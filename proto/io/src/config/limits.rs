//! The clocks of a fleet as they are written.

use super::text;
use serde::{Deserialize, Serialize};
use toolfleet_proto::limit::Limits;
use toolfleet_proto::unit;

/// [`Limits`] as they are written: spans with units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(
    missing_docs,
    reason = "each field is documented at its namesake in toolfleet_proto::limit::Limits"
)]
pub struct LimitsText {
    #[serde(deserialize_with = "text")]
    pub lease_ttl: String,
    #[serde(deserialize_with = "text")]
    pub lease_renew: String,
    #[serde(deserialize_with = "text")]
    pub lease_margin: String,
    #[serde(deserialize_with = "text")]
    pub kill_grace: String,
    #[serde(deserialize_with = "text")]
    pub ack_wait: String,
    #[serde(deserialize_with = "text")]
    pub cancel_grace: String,
    #[serde(deserialize_with = "text")]
    pub drain: String,
    #[serde(deserialize_with = "text")]
    pub retention: String,
    #[serde(deserialize_with = "text")]
    pub unnamed_retention: String,
    #[serde(deserialize_with = "text")]
    pub write_memory: String,
    #[serde(deserialize_with = "text")]
    pub longest_call: String,
}

impl Default for LimitsText {
    fn default() -> Self {
        let limits = Limits::default();
        let text = |ms: u64| unit::describe_ms(ms).replace(' ', "");
        LimitsText {
            lease_ttl: text(limits.lease_ttl_ms),
            lease_renew: text(limits.lease_renew_ms),
            lease_margin: text(limits.lease_margin_ms),
            kill_grace: text(limits.kill_grace_ms),
            ack_wait: text(limits.ack_wait_ms),
            cancel_grace: text(limits.cancel_grace_ms),
            drain: text(limits.drain_ms),
            retention: text(limits.retention_ms),
            unnamed_retention: text(limits.unnamed_retention_ms),
            write_memory: text(limits.write_memory_ms),
            longest_call: text(limits.longest_call_ms),
        }
    }
}

impl LimitsText {
    /// Reads the spans. Errors name every key that does not read.
    pub fn read(&self) -> Result<Limits, Vec<String>> {
        let mut faults = Vec::new();
        let mut span = |key: &str, text: &str| {
            unit::parse_duration_ms(text).unwrap_or_else(|error| {
                faults.push(format!("limits.{key}: {}", error.message));
                0
            })
        };
        let limits = Limits {
            lease_ttl_ms: span("lease_ttl", &self.lease_ttl),
            lease_renew_ms: span("lease_renew", &self.lease_renew),
            lease_margin_ms: span("lease_margin", &self.lease_margin),
            kill_grace_ms: span("kill_grace", &self.kill_grace),
            ack_wait_ms: span("ack_wait", &self.ack_wait),
            cancel_grace_ms: span("cancel_grace", &self.cancel_grace),
            drain_ms: span("drain", &self.drain),
            retention_ms: span("retention", &self.retention),
            unnamed_retention_ms: span("unnamed_retention", &self.unnamed_retention),
            write_memory_ms: span("write_memory", &self.write_memory),
            longest_call_ms: span("longest_call", &self.longest_call),
        };
        if faults.is_empty() { Ok(limits) } else { Err(faults) }
    }
}
