//! OpenAI Chat Completions: an assistant message, a whole response, a choice of one, or one of these
//! in an envelope; as it came or as an SDK dumps it.

use super::{ModelCall, Refused, is_null};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The name of this format.
pub const OPENAI_CHAT: &str = "openai-chat";

/// An assistant message, a whole response, or a choice of one. Leaves that are the model's stay raw: a
/// fault in one call's arguments is that call's.
#[derive(Debug, Deserialize)]
struct Body {
    choices: Option<Vec<Choice>>,
    tool_calls: Option<Vec<ToolCall>>,
    role: Option<Box<RawValue>>,
    content: Option<Box<RawValue>>,
    finish_reason: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    message: Option<Body>,
}

#[derive(Debug, Deserialize)]
struct ToolCall {
    id: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    function: Option<Function>,
    custom: Option<Custom>,
}

#[derive(Debug, Deserialize)]
struct Function {
    name: Option<String>,
    arguments: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
struct Custom {
    name: Option<String>,
}

fn unreadable(error: &serde_json::Error) -> Refused {
    Refused {
        code: "message_unreadable",
        detail: format!("the body is no message: {error}"),
        mend: "hand in the provider's assistant message or whole response, unchanged",
    }
}

/// The calls of a message or a whole response.
pub fn read(message: &str) -> Result<Vec<ModelCall>, Refused> {
    let body: Body = serde_json::from_str(message).map_err(|error| unreadable(&error))?;
    if let Some(tool_calls) = body.tool_calls {
        return tool_calls.into_iter().map(read_call).collect();
    }
    if let Some(choices) = body.choices {
        let mut calling = choices
            .into_iter()
            .filter_map(|choice| choice.message?.tool_calls)
            .filter(|calls| !calls.is_empty());
        let first = calling.next().unwrap_or_default();
        if calling.next().is_some() {
            return Err(Refused {
                code: "message_ambiguous",
                detail: "more than one choice calls tools".to_owned(),
                mend: "hand in the message of the choice that the loop goes on with",
            });
        }
        return first.into_iter().map(read_call).collect();
    }
    // Typed blocks are another provider's content: their calls must not be overlooked.
    let has_blocks = body.content.as_ref().is_some_and(|content| {
        content.get().starts_with('[')
            && !content.get().contains("\"type\":\"text\"")
            && content.get().contains("\"type\"")
    });
    if (body.role.is_some() || body.finish_reason.is_some()) && !has_blocks {
        return Ok(Vec::new());
    }
    Err(Refused {
        code: "format_unrecognised",
        detail: "the body is neither an OpenAI Chat Completions message nor a whole response"
            .to_owned(),
        mend: "hand in an object with tool_calls or choices, or an envelope {\"message\": …}",
    })
}

fn read_call(call: ToolCall) -> Result<ModelCall, Refused> {
    if call.kind.as_deref() == Some("custom") {
        return Ok(ModelCall {
            id: call.id,
            name: call.custom.and_then(|custom| custom.name).unwrap_or_default(),
            arguments: Err("free-text tools are not taken; call a function tool".to_owned()),
        });
    }
    let Some(function) = call.function else {
        return Err(Refused {
            code: "message_unreadable",
            detail: "a tool call has no function".to_owned(),
            mend: "hand in the provider's message unchanged",
        });
    };
    Ok(ModelCall {
        id: call.id.filter(|id| !id.is_empty()),
        name: function.name.unwrap_or_default(),
        arguments: read_arguments(function.arguments.as_deref()),
    })
}

/// The text of the arguments, which is a JSON string of its own.
fn read_arguments(raw: Option<&RawValue>) -> Result<Option<String>, String> {
    let Some(raw) = raw.filter(|raw| !is_null(raw)) else { return Ok(None) };
    if !raw.get().starts_with('"') {
        return Err("arguments must be a string that holds a JSON object".to_owned());
    }
    // It was read as a string already: only a half of a surrogate pair can be wrong now.
    serde_json::from_str(raw.get())
        .map(Some)
        .map_err(|error| format!("lone surrogate in the text of the arguments: {error}"))
}

/// The message for one result: `role: "tool"`, the provider's own id, one string.
pub fn render(provider_id: Option<&str>, content: &str) -> Value {
    json!({"role": "tool", "tool_call_id": provider_id.unwrap_or_default(), "content": content})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::formats::read;

    fn calls(body: &str) -> Vec<ModelCall> {
        read(body, None).unwrap().calls
    }

    #[test]
    fn a_message_a_response_and_an_envelope_give_the_same_calls() {
        let message = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"t","arguments":"{\"a\":1}"}}]}"#;
        let response = format!(
            r#"{{"id":"x","choices":[{{"index":0,"finish_reason":"tool_calls","message":{message}}}]}}"#
        );
        for body in [
            message.to_owned(),
            response.clone(),
            format!(r#"{{"message":{message}}}"#),
            format!(r#"{{"message":{response},"turn":"t1"}}"#),
        ] {
            let calls = calls(&body);
            assert_eq!(calls.len(), 1, "{body}");
            assert_eq!((calls[0].id.as_deref(), calls[0].name.as_str()), (Some("call_1"), "t"));
            assert_eq!(calls[0].arguments, Ok(Some("{\"a\":1}".to_owned())));
        }
    }

    #[test]
    fn nulls_count_as_absent_and_a_message_without_calls_is_fine() {
        assert!(
            calls(r#"{"role":"assistant","content":"hi","tool_calls":null,"refusal":null}"#)
                .is_empty()
        );
        assert!(calls(r#"{"role":"assistant","content":"hi"}"#).is_empty());
        assert!(
            calls(r#"{"choices":[{"message":{"role":"assistant","content":"hi"}}]}"#).is_empty()
        );
        let sparse = calls(
            r#"{"tool_calls":[{"id":null,"function":{"name":"t","arguments":null}},{"function":{"name":"t"}}]}"#,
        );
        assert!(sparse.iter().all(|call| call.id.is_none() && call.arguments == Ok(None)));
    }

    #[test]
    fn one_calls_broken_text_is_its_own() {
        let body = r#"{"tool_calls":[{"id":"a","function":{"name":"t","arguments":"half \ud835"}},{"id":"b","function":{"name":"t","arguments":{"a":1}}},{"id":"c","function":{"name":"t","arguments":"{}"}}]}"#;
        let calls = calls(body);
        assert!(calls[0].arguments.as_ref().unwrap_err().contains("surrogate"), "{calls:?}");
        assert!(calls[1].arguments.is_err());
        assert_eq!(calls[2].arguments, Ok(Some("{}".to_owned())));
    }

    #[test]
    fn what_is_no_message_of_this_format_is_refused_by_code() {
        let code = |body: &str, named| read(body, named).unwrap_err().code;
        assert_eq!(code("[]", None), "message_unreadable");
        assert_eq!(code("{", None), "message_unreadable");
        assert_eq!(code("{}", None), "format_unrecognised");
        assert_eq!(
            code(r#"{"role":"assistant","content":[{"type":"tool_use"}]}"#, Some("openai-chat")),
            "format_unrecognised"
        );
        assert_eq!(code(r#"{"tool_calls":[]}"#, Some("gemini")), "format_unsupported");
        assert_eq!(code(r#"{"tool_calls":[]}"#, Some("x")), "format_unknown");
        let two = r#"{"choices":[{"message":{"tool_calls":[{"function":{"name":"a"}}]}},{"message":{"tool_calls":[{"function":{"name":"b"}}]}}]}"#;
        assert_eq!(code(two, None), "message_ambiguous");
    }

    #[test]
    fn a_result_carries_the_providers_own_id() {
        let message = render(Some("call_0"), "Tool error: no");
        assert_eq!(
            message,
            json!({"role":"tool","tool_call_id":"call_0","content":"Tool error: no"})
        );
    }
}
