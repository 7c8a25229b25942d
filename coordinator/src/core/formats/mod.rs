//! Provider formats: a model's message in, its calls out; results in, the provider's messages out
//! (CONTRACT 3.1).

pub mod anthropic;
pub mod gemini;
pub mod native;
pub mod openai_chat;
pub mod openai_responses;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// A form of messages, of lists of tools, or of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenAI Chat Completions.
    OpenAiChat,
    /// OpenAI Responses.
    OpenAiResponses,
    /// Anthropic Messages.
    Anthropic,
    /// Gemini `generateContent`.
    Gemini,
    /// Model Context Protocol: lists of tools only.
    Mcp,
    /// Our own.
    Native,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 6] = [
        Format::OpenAiChat,
        Format::OpenAiResponses,
        Format::Anthropic,
        Format::Gemini,
        Format::Mcp,
        Format::Native,
    ];

    /// Its name in requests, answers and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Format::OpenAiChat => "openai-chat",
            Format::OpenAiResponses => "openai-responses",
            Format::Anthropic => "anthropic",
            Format::Gemini => "gemini",
            Format::Mcp => "mcp",
            Format::Native => "native",
        }
    }

    /// The format of messages of that name.
    ///
    /// # Errors
    /// `format_unknown`, or `format_unsupported` for one that has lists of tools only.
    pub fn of_messages(name: &str) -> Result<Format, Refused> {
        let mend = "use format=openai-chat, openai-responses, anthropic, gemini or native";
        match Format::named(name) {
            Some(Format::Mcp) => Err(Refused {
                code: "format_unsupported",
                detail: format!("the format {name} has lists of tools and no messages"),
                mend,
            }),
            Some(format) => Ok(format),
            None => Err(unknown(name, mend)),
        }
    }

    /// The format of lists of tools of that name.
    ///
    /// # Errors
    /// `format_unknown`.
    pub fn of_tools(name: &str) -> Result<Format, Refused> {
        let mend = "use format=openai-chat, openai-responses, anthropic, gemini, mcp or native";
        Format::named(name).ok_or_else(|| unknown(name, mend))
    }

    fn named(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.as_str() == name)
    }
}

fn unknown(name: &str, mend: &'static str) -> Refused {
    Refused { code: "format_unknown", detail: format!("there is no format {name:?}"), mend }
}

/// One call as the model sent it.
#[derive(Debug, Clone)]
pub struct ModelCall {
    /// The provider's id, as it came; `None`: absent.
    pub id: Option<String>,
    /// The tool's name, as it came.
    pub name: String,
    /// The arguments' text, or why there is none to read.
    pub arguments: Result<Option<String>, String>,
    /// Whether it calls a free-text tool: its text is the argument `input`.
    pub is_free_text: bool,
    /// Members that its result repeats in the format that it came in.
    pub echo: Map<String, Value>,
}

impl ModelCall {
    /// A call with named arguments. An empty id counts as absent.
    fn new(
        id: Option<String>,
        name: Option<String>,
        arguments: Result<Option<String>, String>,
    ) -> ModelCall {
        ModelCall {
            id: id.filter(|id| !id.is_empty()),
            name: name.unwrap_or_default(),
            arguments,
            is_free_text: false,
            echo: Map::new(),
        }
    }

    /// A call of a free-text tool. Its text is handed on as the one argument `input`.
    fn of_text(id: Option<String>, name: Option<String>, input: Option<&RawValue>) -> ModelCall {
        let text = match input {
            None => Ok(String::new()),
            Some(raw) if raw.get().starts_with('"') => serde_json::from_str(raw.get())
                .map_err(|error| format!("lone surrogate in the text of the call: {error}")),
            Some(_) => Err("the input of a free-text call must be a string".to_owned()),
        };
        let arguments = text.map(|text| Some(json!({"input": text}).to_string()));
        ModelCall { is_free_text: true, ..ModelCall::new(id, name, arguments) }
    }

    /// The call with a member that its result repeats; one that is absent or long is left out.
    fn with_echo(mut self, key: &str, value: Option<&RawValue>) -> ModelCall {
        let value = value.filter(|raw| !is_null(raw) && raw.get().len() <= ECHO_BYTES_MAX);
        if let Some(value) = value.and_then(|raw| serde_json::from_str(raw.get()).ok()) {
            self.echo.insert(key.to_owned(), value);
        }
        self
    }
}

/// Longest member that a result repeats: it is kept in the execution's record.
const ECHO_BYTES_MAX: usize = 512;

/// What a caller handed over.
#[derive(Debug)]
pub struct Message {
    /// The format, named or recognised.
    pub format: Format,
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
#[derive(Debug, Default, Deserialize)]
struct Envelope {
    message: Option<Box<RawValue>>,
    turn: Option<String>,
    format: Option<String>,
    deadline: Option<String>,
    #[serde(rename = "localTools")]
    local_tools: Option<Vec<String>>,
    context: Option<Box<RawValue>>,
}

/// One result on its way to the provider's form.
#[derive(Debug, Clone, Copy)]
pub struct Answered<'a> {
    /// The provider's own id, where it gave one.
    pub provider_id: Option<&'a str>,
    /// Id within the turn.
    pub call_id: &'a str,
    /// The tool's name as it was called.
    pub name: &'a str,
    /// What the model reads, with the prefix of an error.
    pub text: &'a str,
    /// The code; `None`: it ended well.
    pub code: Option<&'a str>,
    /// Whether the text is one whole JSON value.
    pub is_json: bool,
    /// Whether it answers a call of a free-text tool.
    pub is_free_text: bool,
    /// Members to repeat, where it goes back in the format that it came in.
    pub echo: Option<&'a Map<String, Value>>,
}

impl<'a> Answered<'a> {
    /// The id that goes back: the provider's own, else the one made for the call.
    fn id(&self) -> &'a str {
        self.provider_id.unwrap_or(self.call_id)
    }
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

/// How a provider's body that does not read is mended.
const UNCHANGED: &str = "hand in the provider's assistant message or whole response, unchanged";

impl Refused {
    /// A body that does not read as what it should be.
    fn unreadable(what: &str, why: &str, mend: &'static str) -> Refused {
        let detail = format!("the body is no {what}: {why}");
        Refused { code: "message_unreadable", detail, mend }
    }
}

/// Reads a body in the named format, or recognises it. `named` is `?format=`.
///
/// # Errors
/// As the reader of the format tells, and `message_ambiguous` where the body has the shape of
/// several formats.
pub fn read(body: &str, named: Option<&str>) -> Result<Message, Refused> {
    let envelope: Envelope = if body.trim_start().starts_with('[') {
        // The items of a response are an array, which has no envelope.
        Envelope::default()
    } else {
        serde_json::from_str(body)
            .map_err(|error| Refused::unreadable("message", &error.to_string(), UNCHANGED))?
    };
    let inner = envelope.message.as_deref().filter(|message| !is_null(message));
    if inner.is_some() && envelope.context.is_some_and(|context| !is_null(&context)) {
        return Err(Refused {
            code: "not_yet",
            detail: "`context` of the envelope is not built yet".to_owned(),
            mend: "leave it out: no tool would see it",
        });
    }
    let message = inner.map_or(body, RawValue::get).trim();
    let format = match named.or(envelope.format.as_deref()) {
        Some(format) => Format::of_messages(format)?,
        None => recognise(message)?,
    };
    let calls = match format {
        Format::OpenAiChat => openai_chat::read(message)?,
        Format::OpenAiResponses => openai_responses::read(message)?,
        Format::Anthropic => anthropic::read(message)?,
        Format::Gemini => gemini::read(message)?,
        Format::Native | Format::Mcp => native::read(message)?,
    };
    Ok(Message {
        format,
        calls,
        turn: envelope.turn,
        deadline: envelope.deadline,
        local_tools: envelope.local_tools.unwrap_or_default(),
    })
}

/// Whether a message has a format's shape.
type Test = fn(&str) -> bool;

/// The one format whose shape a message has.
fn recognise(message: &str) -> Result<Format, Refused> {
    let tests: [(Format, Test); 5] = [
        (Format::OpenAiResponses, openai_responses::looks_like),
        (Format::Anthropic, anthropic::looks_like),
        (Format::Gemini, gemini::looks_like),
        (Format::Native, native::looks_like),
        (Format::OpenAiChat, openai_chat::looks_like),
    ];
    let found: Vec<Format> =
        tests.into_iter().filter(|(_, test)| test(message)).map(|(format, _)| format).collect();
    match found.as_slice() {
        [format] => Ok(*format),
        [] => Err(Refused {
            code: "format_unrecognised",
            detail: "the body has the shape of no known message".to_owned(),
            mend: "hand in the provider's assistant message or whole response, unchanged, and name \
                   its format",
        }),
        several => {
            let names: Vec<&str> = several.iter().map(|format| format.as_str()).collect();
            let detail = format!("the body has the shape of several formats: {}", names.join(", "));
            let mend = "hand in one provider's message, unchanged, and name its format";
            Err(Refused { code: "message_ambiguous", detail, mend })
        }
    }
}

/// The messages that the loop appends to its conversation, in the order of the calls.
pub fn render(format: Format, results: &[Answered<'_>]) -> Vec<Value> {
    match format {
        Format::OpenAiChat => results.iter().map(openai_chat::render).collect(),
        Format::OpenAiResponses => results.iter().map(openai_responses::render).collect(),
        Format::Anthropic => anthropic::render(results),
        Format::Gemini => gemini::render(results),
        Format::Native | Format::Mcp => results.iter().map(native::render).collect(),
    }
}

/// The elements of a raw array; `None`: it is none.
fn elements(raw: &RawValue) -> Option<Vec<Box<RawValue>>> {
    raw.get().starts_with('[').then(|| serde_json::from_str(raw.get()).ok()).flatten()
}

/// One thing with a `type`: a content block, an output item.
struct Typed {
    kind: String,
    raw: Box<RawValue>,
}

#[derive(Debug, Deserialize)]
struct Kind {
    #[serde(rename = "type")]
    kind: Option<String>,
}

/// A value as a thing with a `type`; `None`: it is no object or has none.
fn typed(raw: Box<RawValue>) -> Option<Typed> {
    // A derived reader would take an array for an object.
    let read: Option<Kind> =
        raw.get().starts_with('{').then(|| serde_json::from_str(raw.get()).ok()).flatten();
    let kind = read?.kind?;
    Some(Typed { kind, raw })
}

/// Whether a raw value is that string.
fn is_text(raw: Option<&RawValue>, wanted: &str) -> bool {
    raw.is_some_and(|raw| serde_json::from_str(raw.get()).is_ok_and(|text: String| text == wanted))
}

/// Whether a raw value is `null`: such keys count as absent.
fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}

#[cfg(test)]
mod tests;
