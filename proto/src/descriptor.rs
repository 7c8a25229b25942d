//! What a tool is, however it was authored (CONTRACT 1.1, 1.11).

use crate::{bound, declared::Declared, effect::Effect, json::Json};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// How an output is read (CONTRACT 6.2). Declared, never guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResultForm {
    /// Verbatim text.
    Text,
    /// Exactly one JSON value.
    Json,
    /// `{ "content": […], "isError": …, "structuredContent": … }`.
    Envelope,
}

/// What runs a tool, as far as its behaviour depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Runner {
    /// A Rust type of the worker binary.
    Native,
    /// A program; the words as the manifest has them.
    Exec {
        /// Program and arguments. No shell.
        command: Vec<String>,
    },
}

impl Runner {
    /// The runner's kind, a closed set for labels and attributes.
    pub const fn kind(&self) -> &'static str {
        match self {
            Runner::Native => "native",
            Runner::Exec { .. } => "exec",
        }
    }
}

/// Everything about a tool that its callers and its workers must agree on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// `^[A-Za-z_][A-Za-z0-9_-]{0,63}$`.
    pub name: String,
    /// Written for the model.
    pub description: String,
    /// What a call may change.
    pub effect: Effect,
    /// A write that honours the idempotency key and may be started again.
    pub rerun: bool,
    /// One attempt.
    pub timeout_ms: u64,
    /// Waiting for a worker.
    pub queue_timeout_ms: u64,
    /// All attempts together.
    pub total_timeout_ms: u64,
    /// Starts before the call is given up.
    pub max_attempts: u32,
    /// Bound of what the model reads, bytes of UTF-8.
    pub result_bytes_max: u64,
    /// JSON Schema of the arguments, the author's order of properties kept.
    pub input_schema: Value,
    /// JSON Schema of the output, where one is declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// How the output is read.
    pub result: ResultForm,
    /// What runs it.
    pub runner: Runner,
    /// Words to select tools by.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Words for people, never shown to the model (CONTRACT 1.9), as the author gave them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presentation: Option<Value>,
    /// What else the author declares; absent parts are not written.
    #[serde(flatten)]
    pub declared: Declared,
}

impl Descriptor {
    /// Hex SHA-256 over everything that changes behaviour: all fields but the words for people and
    /// the tags, and our own texts (the truncation marker). Key order does not count.
    pub fn hash(&self) -> String {
        let mut value = serde_json::to_value(self).unwrap_or(Value::Null);
        if let Some(object) = value.as_object_mut() {
            object.remove("presentation");
            object.remove("tags");
        }
        let mut hasher = Sha256::new();
        hasher.update(Json::from_value(&value).canonical());
        hasher.update(bound::MARKER_FORM);
        hex(&hasher.finalize())
    }
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Whether a name is one that every provider takes (CONTRACT 1.4).
pub fn is_tool_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let starts_well = bytes.first().is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_');
    let rest_is_well = bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_' || *b == b'-');
    starts_well && rest_is_well && bytes.len() <= 64
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    /// A tool with nothing to find fault with; tests say only what theirs has otherwise.
    pub(crate) fn sound() -> Descriptor {
        Descriptor {
            name: "find".into(),
            description: "Finds".into(),
            effect: Effect::Read,
            rerun: false,
            timeout_ms: 30_000,
            queue_timeout_ms: 60_000,
            total_timeout_ms: 90_000,
            max_attempts: 3,
            result_bytes_max: 131_072,
            input_schema: json!({"type": "object"}),
            output_schema: None,
            result: ResultForm::Text,
            runner: Runner::Native,
            tags: vec![],
            presentation: None,
            declared: Declared::default(),
        }
    }

    #[test]
    fn the_hash_moves_with_behaviour_and_not_with_words_for_people() {
        let first = sound();
        let relabelled = Descriptor {
            tags: vec!["crm".into()],
            presentation: Some(json!({"label": "Find"})),
            ..sound()
        };
        let slower = Descriptor { timeout_ms: 31_000, ..sound() };
        assert_eq!(first.hash(), relabelled.hash());
        assert_ne!(first.hash(), slower.hash());
        assert_eq!(first.hash().len(), 64);
    }

    /// Jobs carry the hash: one that moved without reason would strand what is queued at an upgrade.
    #[test]
    fn the_hash_of_a_tool_that_declares_nothing_more_stays() {
        assert_eq!(
            sound().hash(),
            "09fcad4d8ee982b6bc09e0979d2a514539462e12feb2f82ba7fad3c7f33a5e6e"
        );
        let limited =
            Descriptor { declared: Declared { weight: Some(2), ..Declared::default() }, ..sound() };
        assert_ne!(sound().hash(), limited.hash());
    }

    #[test]
    fn a_descriptor_survives_the_catalogue() {
        let text = serde_json::to_string(&sound()).unwrap();
        assert_eq!(serde_json::from_str::<Descriptor>(&text).unwrap(), sound());
    }

    #[test]
    fn names_that_a_provider_would_refuse_are_no_tool_names() {
        for good in ["a", "_a", "search-issues-tool", &"a".repeat(64)] {
            assert!(is_tool_name(good), "{good}");
        }
        for bad in ["", "1a", "-a", "a b", "a.b", "ä", &"a".repeat(65)] {
            assert!(!is_tool_name(bad), "{bad}");
        }
    }
}
