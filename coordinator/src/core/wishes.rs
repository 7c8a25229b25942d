//! What a caller may say of an execution that it makes (DESIGN 6).

use super::execution::{PARALLEL_MAX, TOOL_CALLS_MAX};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use toolfleet_proto::descriptor::hex;

/// What a caller may say of an execution that it makes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
/// Each field is documented at its namesake in [`Execution`], or in the contract.
pub struct Wishes {
    pub id: Option<String>,
    pub thread_id: Option<String>,
    pub actor: Option<String>,
    pub agent: Option<String>,
    pub tools: Option<Vec<String>>,
    pub local_tools: Option<Vec<String>>,
    pub max_tool_calls: Option<u32>,
    pub max_parallel_calls: Option<u32>,
    pub deadline: Option<String>,
    pub dry_run: Option<bool>,
    pub as_of: Option<String>,
    pub exclusive: Option<bool>,
    pub cancel_on_disconnect: Option<bool>,
    pub budget: Option<Value>,
    pub secrets: Option<Value>,
    pub context: Option<Value>,
    pub labels: Option<BTreeMap<String, String>>,
}

impl Wishes {
    /// Settings that are part of the contract and not built yet: refused by name, never ignored.
    pub fn not_yet(&self) -> Vec<&'static str> {
        [
            ("agent", self.agent.is_some()),
            ("exclusive", self.exclusive.is_some()),
            ("cancelOnDisconnect", self.cancel_on_disconnect == Some(true)),
            ("budget", self.budget.is_some()),
            ("secrets", self.secrets.is_some()),
            ("context", self.context.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, is_given)| is_given.then_some(name))
        .collect()
    }

    /// Limits that are out of their range, as a sentence.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.max_tool_calls.is_some_and(|n| n == 0 || n > TOOL_CALLS_MAX) {
            faults.push(format!("maxToolCalls must be 1 to {TOOL_CALLS_MAX}"));
        }
        if self.max_parallel_calls.is_some_and(|n| n == 0 || n > PARALLEL_MAX) {
            faults.push(format!("maxParallelCalls must be 1 to {PARALLEL_MAX}"));
        }
        faults
    }

    /// The instant of `asOf`, milliseconds since the Unix epoch; the error is a sentence.
    pub fn as_of_ms(&self) -> Result<Option<i64>, String> {
        let Some(text) = self.as_of.as_deref() else { return Ok(None) };
        let instant = text.parse::<jiff::Timestamp>().map_err(|error| format!("asOf: {error}"))?;
        // Jobs carry the instant as a number, of which 0 says that there is none.
        match instant.as_millisecond() {
            0 => Err("asOf must be another instant than 1970-01-01T00:00:00Z".to_owned()),
            as_of_ms => Ok(Some(as_of_ms)),
        }
    }

    /// Hash of the wishes, the id left out.
    pub fn hash(&self) -> String {
        let rest = Wishes { id: None, ..self.clone() };
        let value = serde_json::to_value(rest).unwrap_or_default();
        hex(&toolfleet_proto::json::Json::from_value(&value).hash())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_that_are_not_built_yet_are_named_and_equal_wishes_are_equal() {
        let wishes: Wishes =
            serde_json::from_str(r#"{"budget": {}, "dryRun": true, "exclusive": true}"#).unwrap();
        assert_eq!(wishes.not_yet(), ["exclusive", "budget"]);
        assert!(serde_json::from_str::<Wishes>(r#"{"maxToolcalls": 1}"#).is_err());
        let one: Wishes =
            serde_json::from_str(r#"{"id":"a","maxToolCalls":1,"labels":{"a":"1","b":"2"}}"#)
                .unwrap();
        let two: Wishes =
            serde_json::from_str(r#"{"labels":{"b":"2","a":"1"},"maxToolCalls":1}"#).unwrap();
        assert_eq!(one.hash(), two.hash());
        assert_eq!(Wishes { max_tool_calls: Some(0), ..Wishes::default() }.faults().len(), 1);
    }

    #[test]
    fn an_instant_has_a_zone() {
        let of = |text: &str| Wishes { as_of: Some(text.into()), ..Wishes::default() }.as_of_ms();
        assert_eq!(Wishes::default().as_of_ms(), Ok(None));
        assert_eq!(of("1970-01-01T02:00:01+02:00"), Ok(Some(1_000)));
        for text in ["", "yesterday", "2025-01-01", "2025-01-01T00:00:00", "1970-01-01T00:00:00Z"] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
