//! What running a tool may change (CONTRACT 1.8).

use crate::wire;
use serde::{Deserialize, Serialize};

/// What a call may change in the world. Undeclared is [`Effect::Write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// Changes nothing: may run again after a lost worker.
    Read,
    /// May change something; repeating the same arguments changes nothing more.
    Idempotent,
    /// Starts at most once (G5), unless its manifest says `rerun = true`.
    Write,
}

impl Effect {
    /// The word used in manifests and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Effect::Read => "read",
            Effect::Idempotent => "idempotent",
            Effect::Write => "write",
        }
    }

    /// Whether a start record must be taken before the tool starts (DESIGN 4.2 step 5).
    pub const fn needs_start_record(self, rerun: bool) -> bool {
        matches!(self, Effect::Write) && !rerun
    }
}

impl From<Effect> for wire::Effect {
    fn from(effect: Effect) -> Self {
        match effect {
            Effect::Read => wire::Effect::Read,
            Effect::Idempotent => wire::Effect::Idempotent,
            Effect::Write => wire::Effect::Write,
        }
    }
}

impl From<wire::Effect> for Effect {
    fn from(effect: wire::Effect) -> Self {
        match effect {
            wire::Effect::Read => Effect::Read,
            wire::Effect::Idempotent => Effect::Idempotent,
            wire::Effect::Write | wire::Effect::Unspecified => Effect::Write,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_write_without_rerun_takes_a_start_record() {
        assert!(Effect::Write.needs_start_record(false));
        assert!(!Effect::Write.needs_start_record(true));
        assert!(!Effect::Idempotent.needs_start_record(false));
        assert_eq!(Effect::from(wire::Effect::Unspecified), Effect::Write);
    }
}
