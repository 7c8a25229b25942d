//! Anthropic Messages: an assistant message or a whole response, as it came or as an SDK dumps it;
//! results go back as one user message.

use super::{ModelCall, Refused, is_null};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// The name of this format.
pub const ANTHROPIC: &str = "anthropic";

/// The block that calls a tool of the caller. `server_tool_use` is run by the provider.
const TOOL_USE: &str = "tool_use";

/// What tells a message of this format. Leaves that are the model's stay raw: a fault in one call's
/// input is that call's.
#[derive(Debug, Deserialize)]
struct Body {
    #[serde(rename = "type")]
    kind: Option<Box<RawValue>>,
    role: Option<Box<RawValue>>,
    content: Option<Box<RawValue>>,
    // Keys of OpenAI Chat Completions.
    tool_calls: Option<Box<RawValue>>,
    choices: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
struct BlockKind {
    #[serde(rename = "type")]
    kind: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ToolUse {
    id: Option<String>,
    name: Option<String>,
    input: Option<Box<RawValue>>,
}

/// One block of the content, its type read.
struct Block {
    kind: String,
    raw: Box<RawValue>,
}

impl Body {
    fn read(message: &str) -> Result<Body, Refused> {
        // A derived reader would take an array for an object.
        if !message.trim_start().starts_with('{') {
            return Err(unreadable("it is not an object".to_owned()));
        }
        serde_json::from_str(message).map_err(|error| unreadable(error.to_string()))
    }

    fn is_response(&self) -> bool {
        is_text(self.kind.as_deref(), "message")
    }

    fn is_assistant(&self) -> bool {
        is_text(self.role.as_deref(), "assistant")
    }

    fn has_openai_keys(&self) -> bool {
        self.tool_calls.is_some() || self.choices.is_some()
    }

    /// The blocks of the content. `None`: it is text, or absent.
    fn blocks(&self) -> Result<Option<Vec<Block>>, Refused> {
        let Some(content) = &self.content else { return Ok(None) };
        if content.get().starts_with('"') {
            return Ok(None);
        }
        let raws: Vec<Box<RawValue>> = serde_json::from_str(content.get())
            .map_err(|_| unreadable("content is neither text nor an array".to_owned()))?;
        raws.into_iter()
            .enumerate()
            .map(|(at, raw)| block(at, raw))
            .collect::<Result<_, _>>()
            .map(Some)
    }
}

fn block(at: usize, raw: Box<RawValue>) -> Result<Block, Refused> {
    let read: Option<BlockKind> =
        raw.get().starts_with('{').then(|| serde_json::from_str(raw.get()).ok()).flatten();
    let kind = read.and_then(|block| block.kind);
    let kind = kind.ok_or_else(|| unreadable(format!("content[{at}] is no block with a type")))?;
    Ok(Block { kind, raw })
}

fn is_text(raw: Option<&RawValue>, wanted: &str) -> bool {
    raw.is_some_and(|raw| serde_json::from_str(raw.get()).is_ok_and(|text: String| text == wanted))
}

fn unreadable(why: String) -> Refused {
    Refused {
        code: "message_unreadable",
        detail: format!("the body is no Anthropic message: {why}"),
        mend: "hand in the provider's assistant message or whole response, unchanged",
    }
}

/// Whether a message (without its envelope) is of this format, told by its shape alone: a response
/// of type `message`, a `tool_use` block, or an assistant's content of typed blocks where no key is
/// OpenAI's. A body that does not read is of no format.
pub fn looks_like(message: &str) -> bool {
    let Ok(body) = Body::read(message) else { return false };
    if body.is_response() {
        return true;
    }
    match body.blocks() {
        Ok(Some(blocks)) => {
            blocks.iter().any(|block| block.kind == TOOL_USE)
                || (body.is_assistant() && !body.has_openai_keys())
        }
        Ok(None) | Err(_) => false,
    }
}

/// The calls of a message or a response (without its envelope), in order. Blocks of other types are
/// passed over.
///
/// # Errors
/// `message_unreadable`: not JSON, another role than the assistant's, or a block without a type.
/// `format_unrecognised`: neither a role nor content. `message_ambiguous`: calls of another
/// provider's form beside `tool_use`.
pub fn read(message: &str) -> Result<Vec<ModelCall>, Refused> {
    let body = Body::read(message)?;
    if let Some(role) = body.role.as_deref().filter(|_| !body.is_assistant()) {
        return Err(unreadable(format!("its role is {}, not assistant", role.get())));
    }
    if body.role.is_none() && body.content.is_none() {
        return Err(Refused {
            code: "format_unrecognised",
            detail: "the body is neither an Anthropic message nor a whole response".to_owned(),
            mend: "hand in an object with role and content, or an envelope {\"message\": …}",
        });
    }
    let blocks = body.blocks()?.unwrap_or_default();
    let calls: Result<Vec<ModelCall>, Refused> =
        blocks.iter().filter(|block| block.kind == TOOL_USE).map(read_call).collect();
    let calls = calls?;
    let has_other_calls = body.tool_calls.as_deref().is_some_and(|calls| calls.get() != "[]");
    if has_other_calls && !calls.is_empty() {
        return Err(Refused {
            code: "message_ambiguous",
            detail: "the message calls tools in two providers' forms".to_owned(),
            mend: "hand in one provider's message, unchanged",
        });
    }
    Ok(calls)
}

fn read_call(block: &Block) -> Result<ModelCall, Refused> {
    let call: ToolUse =
        serde_json::from_str(block.raw.get()).map_err(|error| unreadable(error.to_string()))?;
    let input = call.input.filter(|input| !is_null(input));
    Ok(ModelCall {
        id: call.id.filter(|id| !id.is_empty()),
        name: call.name.unwrap_or_default(),
        arguments: Ok(input.map(|input| input.get().to_owned())),
    })
}

/// The messages that answer a message's calls, in the order of `results`: one user message, or none
/// where there was no call. Each result is (the provider's id, what the model reads, whether it is an
/// error); the id goes back as it came, and an error's text has its prefix already.
pub fn render(results: &[(Option<&str>, &str, bool)]) -> Vec<Value> {
    if results.is_empty() {
        return Vec::new();
    }
    let blocks: Vec<Value> = results.iter().map(|result| render_one(*result)).collect();
    vec![json!({"role": "user", "content": blocks})]
}

fn render_one((provider_id, text, is_error): (Option<&str>, &str, bool)) -> Value {
    let mut block = Map::new();
    block.insert("type".into(), json!("tool_result"));
    block.insert("tool_use_id".into(), json!(provider_id.unwrap_or_default()));
    // The API refuses an empty text block.
    if !text.is_empty() {
        block.insert("content".into(), json!([{"type": "text", "text": text}]));
    }
    if is_error {
        block.insert("is_error".into(), json!(true));
    }
    Value::Object(block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::export::golden;
    use crate::core::formats::{self, openai_chat};

    fn told(calls: &[ModelCall]) -> Value {
        let told = calls.iter().map(|call| {
            let arguments = match &call.arguments {
                Ok(text) => json!({"text": text}),
                Err(why) => json!({"fault": why}),
            };
            json!({"id": call.id, "name": call.name, "arguments": arguments})
        });
        told.collect()
    }

    #[test]
    fn messages_of_both_formats_read_as_the_golden_files_say() {
        for name in
            ["anthropic-message", "anthropic-response", "anthropic-sdk-dump", "anthropic-text-only"]
        {
            let body = golden::read(&format!("{name}.json"));
            assert!(looks_like(&body), "{name}");
            golden::check(&format!("{name}.calls.json"), &told(&read(&body).unwrap()));
        }
        for name in ["openai-chat-message", "openai-chat-response", "openai-chat-sdk-dump"] {
            let body = golden::read(&format!("{name}.json"));
            assert!(!looks_like(&body), "{name}");
            let message = formats::read(&body, Some(formats::OPENAI_CHAT)).unwrap();
            golden::check(&format!("{name}.calls.json"), &told(&message.calls));
        }
    }

    #[test]
    fn results_of_both_formats_render_as_the_golden_files_say() {
        let results = [
            (Some("toolu_01A"), "{\"sky\":\"sun\"}", false),
            (Some("functions.search:0"), "Tool error: timed out after 5 s", true),
            (Some("toolu_01A"), "", false),
            (None, "é\n\u{1F33B}", false),
        ];
        golden::check("anthropic.results.json", &render(&results).into());
        let openai: Vec<Value> =
            results.iter().map(|(id, text, _)| openai_chat::render(*id, text)).collect();
        golden::check("openai-chat.results.json", &openai.into());
        assert!(render(&[]).is_empty());
    }

    #[test]
    fn shape_tells_the_format() {
        for body in [
            r#"{"content":[{"type":"tool_use","id":"a","name":"t"}]}"#,
            r#"{"type":"message","content":null}"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"hi"}],"tool_calls":null}"#,
            r#"{"role":"assistant","content":[]}"#,
        ] {
            assert!(looks_like(body), "{body}");
        }
        for body in [
            r#"{"role":"assistant","content":"hi"}"#,
            r#"{"role":"assistant","content":null}"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"hi"}],"tool_calls":[]}"#,
            r#"{"role":"user","content":[{"type":"text","text":"hi"}]}"#,
            r#"{"role":"assistant","content":[["text"]]}"#,
            r#"{"choices":[{"message":{"role":"assistant","content":"hi"}}]}"#,
            r#"[{"type":"message"}]"#,
            "{",
        ] {
            assert!(!looks_like(body), "{body}");
        }
    }

    #[test]
    fn a_fault_in_one_input_leaves_the_others_and_digits_stay() {
        let body = r#"{"role":"assistant","content":[
            {"type":"text","text":"half \ud835"},
            {"type":"tool_use","id":"a","name":"t","input":{"x":"\ud835","n":1}},
            {"type":"tool_use","id":"b","name":"t","input":{"n":1,"n":2}},
            {"type":"tool_use","id":"c","name":"t","input": {"n": 9007199254740993.10}},
            {"type":"tool_use","id":"","name":"t","input":null},
            {"type":"tool_use","name":"t","input":"{}"}]}"#;
        let calls = read(body).unwrap();
        let texts: Vec<Option<&str>> =
            calls.iter().map(|call| call.arguments.as_ref().unwrap().as_deref()).collect();
        let wanted = [
            Some(r#"{"x":"\ud835","n":1}"#),
            Some(r#"{"n":1,"n":2}"#),
            Some(r#"{"n": 9007199254740993.10}"#),
            None,
            Some(r#""{}""#),
        ];
        assert_eq!(texts, wanted);
        assert_eq!((calls[3].id.as_deref(), calls[4].id.as_deref()), (None, None));
    }

    #[test]
    fn what_is_no_message_is_refused_by_code() {
        let code = |body: &str| read(body).unwrap_err().code;
        assert_eq!(code("{"), "message_unreadable");
        assert_eq!(code("[]"), "message_unreadable");
        assert_eq!(code(r#"{"role":"user","content":[]}"#), "message_unreadable");
        assert_eq!(code(r#"{"role":"assistant","content":{}}"#), "message_unreadable");
        assert_eq!(code(r#"{"role":"assistant","content":[{"text":"hi"}]}"#), "message_unreadable");
        assert_eq!(code(r#"{"type":"error","error":{}}"#), "format_unrecognised");
        let two = r#"{"content":[{"type":"tool_use","id":"a","name":"t"}],"tool_calls":[{}]}"#;
        assert_eq!((looks_like(two), code(two)), (true, "message_ambiguous"));
        assert!(read(r#"{"role":"assistant","content":"hi"}"#).unwrap().is_empty());
    }
}
