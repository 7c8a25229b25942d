//! Provider formats: a model's message in, its calls out; results in, the provider's messages out
//! (CONTRACT 3.1).

pub mod anthropic;
pub mod openai_chat;

pub use anthropic::ANTHROPIC;
pub use openai_chat::OPENAI_CHAT;

use serde::Deserialize;
use serde_json::Value;
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
    /// The format, named or recognised.
    pub format: String,
    /// The calls, in order.
    pub calls: Vec<ModelCall>,
    /// `turn` of the envelope.
    pub turn: Option<String>,
    /// `deadline` of the envelope, as it came.
    pub deadline: Option<String>,
    /// `localTools` of the envelope.
    pub local_tools: Vec<String>,
}

/// What may stand around a message.
#[derive(Debug, Deserialize)]
struct Envelope {
    message: Option<Box<RawValue>>,
    turn: Option<String>,
    format: Option<String>,
    deadline: Option<String>,
    #[serde(rename = "localTools")]
    local_tools: Option<Vec<String>>,
}

/// One result on its way to the provider's form.
#[derive(Debug, Clone, Copy)]
pub struct Answered<'a> {
    /// The provider's own id, or the one made for a call without.
    pub id: &'a str,
    /// What the model reads.
    pub text: &'a str,
    /// Whether it is an error.
    pub is_error: bool,
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

/// Formats of the contract that are not spoken yet.
const NOT_YET: [&str; 3] = ["openai-responses", "gemini", "native"];

/// Reads a body in the named format, or recognises it. `named` is `?format=`.
pub fn read(body: &str, named: Option<&str>) -> Result<Message, Refused> {
    let envelope: Envelope = serde_json::from_str(body).map_err(|error| Refused {
        code: "message_unreadable",
        detail: format!("the body is no message: {error}"),
        mend: "hand in the provider's assistant message or whole response, unchanged",
    })?;
    let inner = envelope.message.as_deref().filter(|message| !is_null(message));
    let message = inner.map_or(body, RawValue::get);
    let format = match named.or(envelope.format.as_deref()) {
        Some(format) => format.to_owned(),
        None if anthropic::looks_like(message) => ANTHROPIC.to_owned(),
        None => OPENAI_CHAT.to_owned(),
    };
    let calls = match format.as_str() {
        OPENAI_CHAT => openai_chat::read(message)?,
        ANTHROPIC => anthropic::read(message)?,
        other => return Err(not_spoken(other)),
    };
    Ok(Message {
        format,
        calls,
        turn: envelope.turn,
        deadline: envelope.deadline,
        local_tools: envelope.local_tools.unwrap_or_default(),
    })
}

/// Why a format is refused.
pub fn not_spoken(format: &str) -> Refused {
    let mend = "use format=openai-chat or format=anthropic";
    if NOT_YET.contains(&format) {
        let detail = format!("the format {format} is not spoken yet");
        Refused { code: "format_unsupported", detail, mend }
    } else {
        let detail = format!("there is no format {format:?}");
        Refused { code: "format_unknown", detail, mend }
    }
}

/// The messages that the loop appends to its conversation, in the order of the calls.
pub fn render(format: &str, results: &[Answered<'_>]) -> Vec<Value> {
    if format == ANTHROPIC {
        let results: Vec<(Option<&str>, &str, bool)> =
            results.iter().map(|result| (Some(result.id), result.text, result.is_error)).collect();
        anthropic::render(&results)
    } else {
        results.iter().map(|result| openai_chat::render(Some(result.id), result.text)).collect()
    }
}

/// Whether a raw value is `null`: such keys count as absent.
fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}
