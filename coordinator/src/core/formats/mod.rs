//! Provider formats: a model's message in, its calls out; results in, the provider's messages out
//! (CONTRACT 3.1).

pub mod openai_chat;

use serde_json::value::RawValue;

/// One call as the model sent it.
#[derive(Debug, Clone)]
pub struct ModelCall {
    /// The provider's id, as it came; `None`: absent.
    pub id: Option<String>,
    /// The tool's name, as it came.
    pub name: String,
    /// The arguments' text, or why there is none to read.
    pub arguments: Result<Option<String>, String>,
}

/// What a caller handed over.
#[derive(Debug, Default)]
pub struct Message {
    /// The calls, in order.
    pub calls: Vec<ModelCall>,
    /// `turn` of the envelope.
    pub turn: Option<String>,
    /// `deadline` of the envelope, as it came.
    pub deadline: Option<String>,
    /// `localTools` of the envelope.
    pub local_tools: Vec<String>,
}

/// Why a message is refused as a whole. Nothing of it was run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Refused {
    /// Stable code.
    pub code: &'static str,
    /// What is wrong and where.
    pub detail: String,
    /// How to mend it.
    pub mend: &'static str,
}

/// Formats that are named, and whether they are spoken yet.
const OTHER_FORMATS: [&str; 4] = ["anthropic", "openai-responses", "gemini", "native"];

/// The name of OpenAI Chat Completions.
pub const OPENAI_CHAT: &str = "openai-chat";

/// Reads a body in the named format, or recognises it. `named` is `?format=`.
pub fn read(body: &str, named: Option<&str>) -> Result<Message, Refused> {
    let envelope = openai_chat::Envelope::read(body)?;
    let format = named.map(str::to_owned).or_else(|| envelope.format());
    match format.as_deref() {
        None | Some(OPENAI_CHAT) => envelope.into_message(),
        Some(other) if OTHER_FORMATS.contains(&other) => Err(Refused {
            code: "format_unsupported",
            detail: format!("the format {other} is not spoken yet"),
            mend: "hand in an OpenAI Chat Completions message",
        }),
        Some(other) => Err(Refused {
            code: "format_unknown",
            detail: format!("there is no format {other:?}"),
            mend: "use format=openai-chat",
        }),
    }
}

/// Whether a raw value is `null`: such keys count as absent.
fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}
