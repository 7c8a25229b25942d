//! What a fleet and its pools say of all their tools: defaults, and a house rule for names (CONTRACT
//! 1.4, 1.7).

use super::text;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toolfleet_proto::checks;
use toolfleet_proto::layers::{self, Rules};
use toolfleet_proto::topology::check_pool;
use toolfleet_proto::unit;

/// Defaults for the tools of the fleet, or of one pool. What is not set is left to the next layer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Defaults {
    /// One attempt, e.g. `10s`.
    #[serde(deserialize_with = "some_text")]
    pub timeout: Option<String>,
    /// Waiting for a worker, e.g. `2m`.
    #[serde(deserialize_with = "some_text")]
    pub queue_timeout: Option<String>,
    /// Starts of a call, 1 to 100.
    pub max_attempts: Option<u32>,
    /// Bound of a result, e.g. `64KB`.
    #[serde(deserialize_with = "some_text")]
    pub max_result_size: Option<String>,
}

/// What is set for one pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pool {
    /// Defaults for its tools.
    pub defaults: Defaults,
}

fn some_text<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    // `none` in a layer is a null here.
    text(deserializer).map(|text| Some(text).filter(|text| text != "null"))
}

impl Defaults {
    /// Reads the values. Errors name every key that does not read, below `section`.
    pub fn read(&self, section: &str) -> Result<layers::Defaults, Vec<String>> {
        let mut faults = Vec::new();
        let mut read = |key: &str, text: &Option<String>, parse: Parse, check: Check| {
            let value = match parse(text.as_deref()?) {
                Ok(value) => value,
                Err(error) => {
                    faults.push(format!("{section}.{key}: {error}"));
                    return None;
                }
            };
            faults.extend(
                check(value).map(|finding| format!("{section}.{key}: {}", finding.message)),
            );
            Some(value)
        };
        let defaults = layers::Defaults {
            timeout_ms: read("timeout", &self.timeout, unit::parse_duration_ms, |_| None),
            queue_timeout_ms: read(
                "queue_timeout",
                &self.queue_timeout,
                unit::parse_duration_ms,
                |_| None,
            ),
            max_attempts: self.max_attempts,
            result_bytes_max: read(
                "max_result_size",
                &self.max_result_size,
                unit::parse_bytes,
                checks::result_bytes,
            ),
        };
        let attempts = self.max_attempts.and_then(|attempts| checks::attempts(u64::from(attempts)));
        faults
            .extend(attempts.map(|finding| format!("{section}.max_attempts: {}", finding.message)));
        if faults.is_empty() { Ok(defaults) } else { Err(faults) }
    }
}

type Parse = fn(&str) -> Result<u64, unit::UnitError>;
type Check = fn(u64) -> Option<checks::Finding>;

/// The rules for the tools of one pool. All pools are checked, also those that are not asked for.
///
/// # Errors
/// Every key that does not read.
pub(super) fn rules(
    naming: Option<checks::Naming>,
    fleet: &Defaults,
    pools: &BTreeMap<String, Pool>,
    pool: &str,
) -> Result<Rules, Vec<String>> {
    let mut faults = Vec::new();
    let mut rules = Rules { naming, ..Rules::default() };
    match fleet.read("defaults") {
        Ok(defaults) => rules.fleet = defaults,
        Err(unread) => faults.extend(unread),
    }
    for (name, settings) in pools {
        if let Err(fault) = check_pool(name) {
            faults.push(format!("pools.{name}: {fault}"));
        }
        match settings.defaults.read(&format!("pools.{name}.defaults")) {
            Ok(defaults) if name == pool => rules.pool = defaults,
            Ok(_) => {}
            Err(unread) => faults.extend(unread),
        }
    }
    if faults.is_empty() { Ok(rules) } else { Err(faults) }
}
