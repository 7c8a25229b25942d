//! Defaults in layers, and which of them won (CONTRACT 1.7): the tool's own value, else its pool's
//! default, else the fleet's, else what is built in.

use crate::checks::{
    MAX_ATTEMPTS_DEFAULT, Naming, QUEUE_TIMEOUT_DEFAULT_MS, RESULT_BYTES_DEFAULT,
    TIMEOUT_DEFAULT_MS,
};
use serde::Serialize;

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The tool says it.
    Tool,
    /// A default of its pool.
    Pool,
    /// A default of the fleet.
    Fleet,
    /// Nobody says it.
    BuiltIn,
}

impl Origin {
    /// The origin in words for people.
    pub const fn words(self) -> &'static str {
        match self {
            Origin::Tool => "tool",
            Origin::Pool => "pool",
            Origin::Fleet => "fleet",
            Origin::BuiltIn => "built in",
        }
    }
}

/// One layer of defaults; absent: the next layer decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    /// One attempt, milliseconds.
    pub timeout_ms: Option<u64>,
    /// Waiting for a worker, milliseconds.
    pub queue_timeout_ms: Option<u64>,
    /// Starts of a call.
    pub max_attempts: Option<u32>,
    /// Bound of a result, bytes.
    pub result_bytes_max: Option<u64>,
}

/// What a fleet and a pool say of all their tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The house rule for names, where there is one.
    pub naming: Option<Naming>,
    /// Defaults of the pool.
    pub pool: Defaults,
    /// Defaults of the fleet.
    pub fleet: Defaults,
}

/// What a tool says itself.
pub type Own = Defaults;

/// The layers come to this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// One attempt, milliseconds.
    pub timeout_ms: u64,
    /// Waiting for a worker, milliseconds.
    pub queue_timeout_ms: u64,
    /// Starts of a call.
    pub max_attempts: u32,
    /// Bound of a result, bytes.
    pub result_bytes_max: u64,
    /// Where each comes from.
    pub origins: Origins,
}

/// Where the values of one tool come from, by the keys of its manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Origins {
    /// Of `effect`: the tool, or built in.
    pub effect: Origin,
    /// Of the form of the output: the tool, or built in, by whether it declares a schema.
    pub result: Origin,
    /// Of `timeout`.
    pub timeout: Origin,
    /// Of `queue_timeout`.
    pub queue_timeout: Origin,
    /// Of `total_timeout`: the tool, or built in, which is `timeout` times `max_attempts`.
    pub total_timeout: Origin,
    /// Of `max_attempts`.
    pub max_attempts: Origin,
    /// Of `max_result_size`.
    pub max_result_size: Origin,
}

impl Rules {
    /// Lays a tool's own values over the defaults.
    pub fn settle(&self, own: &Own) -> Settled {
        let (timeout_ms, timeout) = self.pick(own, |layer| layer.timeout_ms, TIMEOUT_DEFAULT_MS);
        let (queue_timeout_ms, queue_timeout) =
            self.pick(own, |layer| layer.queue_timeout_ms, QUEUE_TIMEOUT_DEFAULT_MS);
        let (max_attempts, attempts) =
            self.pick(own, |layer| layer.max_attempts, MAX_ATTEMPTS_DEFAULT);
        let (result_bytes_max, max_result_size) =
            self.pick(own, |layer| layer.result_bytes_max, RESULT_BYTES_DEFAULT);
        Settled {
            timeout_ms,
            queue_timeout_ms,
            max_attempts,
            result_bytes_max,
            origins: Origins {
                effect: Origin::BuiltIn,
                result: Origin::BuiltIn,
                timeout,
                queue_timeout,
                total_timeout: Origin::BuiltIn,
                max_attempts: attempts,
                max_result_size,
            },
        }
    }

    fn pick<T>(&self, own: &Own, of: fn(&Defaults) -> Option<T>, built_in: T) -> (T, Origin) {
        let layers =
            [(own, Origin::Tool), (&self.pool, Origin::Pool), (&self.fleet, Origin::Fleet)];
        layers
            .into_iter()
            .find_map(|(layer, origin)| of(layer).map(|value| (value, origin)))
            .unwrap_or((built_in, Origin::BuiltIn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_layer_wins_and_says_so() {
        let rules = Rules {
            naming: None,
            pool: Defaults {
                timeout_ms: Some(2),
                queue_timeout_ms: Some(2),
                ..Defaults::default()
            },
            fleet: Defaults {
                timeout_ms: Some(3),
                queue_timeout_ms: Some(3),
                max_attempts: Some(3),
                ..Defaults::default()
            },
        };
        let settled = rules.settle(&Own { timeout_ms: Some(1), ..Own::default() });
        assert_eq!((settled.timeout_ms, settled.origins.timeout), (1, Origin::Tool));
        assert_eq!((settled.queue_timeout_ms, settled.origins.queue_timeout), (2, Origin::Pool));
        assert_eq!((settled.max_attempts, settled.origins.max_attempts), (3, Origin::Fleet));
        assert_eq!(
            (settled.result_bytes_max, settled.origins.max_result_size),
            (RESULT_BYTES_DEFAULT, Origin::BuiltIn)
        );
        assert_eq!(serde_json::to_value(settled.origins).unwrap()["max_result_size"], "built-in");
    }
}
