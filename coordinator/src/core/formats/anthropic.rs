//! Anthropic Messages: an assistant message or a whole response, as it came or as an SDK dumps it;
//! results go back as one user message.

use super::{Answered, ModelCall, Refused, Typed, UNCHANGED, is_null, is_text, typed};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

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
struct ToolUse {
    id: Option<String>,
    name: Option<String>,
    input: Option<Box<RawValue>>,
    toolset_name: Option<Box<RawValue>>,
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
    fn blocks(&self) -> Result<Option<Vec<Typed>>, Refused> {
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

fn block(at: usize, raw: Box<RawValue>) -> Result<Typed, Refused> {
    typed(raw).ok_or_else(|| unreadable(format!("content[{at}] is no block with a type")))
}

fn unreadable(why: String) -> Refused {
    Refused::unreadable("Anthropic message", &why, UNCHANGED)
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
/// `format_unrecognised`: neither a role nor content, or calls of another provider's form alone.
/// `message_ambiguous`: such calls beside `tool_use`.
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
    match (has_other_calls, calls.is_empty()) {
        (false, _) => Ok(calls),
        (true, true) => Err(Refused {
            code: "format_unrecognised",
            detail: "the message calls tools in OpenAI's form".to_owned(),
            mend: "name the format that the message has, or leave it to be recognised",
        }),
        (true, false) => Err(Refused {
            code: "message_ambiguous",
            detail: "the message calls tools in two providers' forms".to_owned(),
            mend: "hand in one provider's message, unchanged",
        }),
    }
}

fn read_call(block: &Typed) -> Result<ModelCall, Refused> {
    let call: ToolUse =
        serde_json::from_str(block.raw.get()).map_err(|error| unreadable(error.to_string()))?;
    let input = call.input.filter(|input| !is_null(input));
    let input = input.map(|input| input.get().to_owned());
    let read = ModelCall::new(call.id, call.name, Ok(input));
    Ok(read.with_echo("toolset_name", call.toolset_name.as_deref()))
}

/// The messages that answer a message's calls, in the order of `results`: one user message, or none
/// where there was no call.
pub fn render(results: &[Answered<'_>]) -> Vec<Value> {
    if results.is_empty() {
        return Vec::new();
    }
    let blocks: Vec<Value> = results.iter().map(render_one).collect();
    vec![json!({"role": "user", "content": blocks})]
}

fn render_one(result: &Answered<'_>) -> Value {
    let mut block = Map::new();
    block.insert("type".into(), json!("tool_result"));
    block.insert("tool_use_id".into(), json!(result.id()));
    // The API refuses an empty text block.
    if !result.text.is_empty() {
        block.insert("content".into(), json!([{"type": "text", "text": result.text}]));
    }
    if result.code.is_some() {
        block.insert("is_error".into(), json!(true));
    }
    block.extend(result.echo.cloned().unwrap_or_default());
    Value::Object(block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::formats::tests::answered;

    #[test]
    fn the_toolset_is_repeated() {
        let body = r#"{"role":"assistant","content":[
            {"type":"tool_use","id":"a","name":"t","input":{},"toolset_name":"browser","caller":{"type":"direct"}},
            {"type":"tool_use","id":"b","name":"t","input":{},"toolset_name":null}]}"#;
        let calls = read(body).unwrap();
        let echo = &calls[0].echo;
        assert_eq!(Value::Object(echo.clone()), json!({"toolset_name": "browser"}));
        assert!(calls[1].echo.is_empty());
        let messages = render(&[Answered { echo: Some(echo), ..answered("a", "1") }]);
        assert_eq!(messages[0]["content"][0]["toolset_name"], "browser");
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
        let openai = r#"{"role":"assistant","content":null,"tool_calls":[{}]}"#;
        assert_eq!(code(openai), "format_unrecognised");
        assert!(read(r#"{"role":"assistant","content":"hi"}"#).unwrap().is_empty());
    }
}
