//! OpenAI Chat Completions: an assistant message, a whole response, a choice of one, or one of these
//! in an envelope; as it came or as an SDK dumps it.

use super::{Answered, ModelCall, Refused, UNCHANGED, elements, is_null, is_text, typed};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// What the kinds of parts that call something have in their names, whichever provider's they are.
const CALLING: [&str; 2] = ["tool", "call"];

/// An assistant message, a whole response, or a choice of one. Leaves that are the model's stay raw: a
/// fault in one call's arguments is that call's.
#[derive(Debug, Deserialize)]
struct Body {
    choices: Option<Vec<Choice>>,
    tool_calls: Option<Vec<ToolCall>>,
    role: Option<Box<RawValue>>,
    content: Option<Box<RawValue>>,
    finish_reason: Option<Box<RawValue>>,
    // What `tool_calls` were before there could be several.
    function_call: Option<Box<RawValue>>,
}

/// What tells a message of this format.
#[derive(Debug, Deserialize)]
struct Shape {
    choices: Option<Box<RawValue>>,
    tool_calls: Option<Box<RawValue>>,
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
    input: Option<Box<RawValue>>,
}

fn unreadable(why: &str) -> Refused {
    Refused::unreadable("message", why, UNCHANGED)
}

fn object<'a, T: Deserialize<'a>>(message: &'a str) -> Result<T, Refused> {
    // A derived reader would take an array for an object.
    if !message.starts_with('{') {
        return Err(unreadable("it is not an object"));
    }
    serde_json::from_str(message).map_err(|error| unreadable(&error.to_string()))
}

/// Whether a content calls nothing: text, none, or parts that are no calls.
fn is_plain(content: Option<&RawValue>) -> bool {
    let Some(content) = content.filter(|content| !is_null(content)) else { return true };
    content.get().starts_with('"')
        || elements(content).is_some_and(|parts| {
            parts.into_iter().all(|part| {
                typed(part).is_some_and(|part| !CALLING.iter().any(|word| part.kind.contains(word)))
            })
        })
}

/// Whether a message (without its envelope) is of this format, told by its shape alone: calls, choices,
/// or an assistant's plain content. Typed blocks without `tool_calls` are Anthropic's.
pub fn looks_like(message: &str) -> bool {
    let Ok(shape) = object::<Shape>(message) else { return false };
    let has_calls = shape.tool_calls.as_deref().is_some_and(|calls| calls.get() != "[]");
    let is_array = shape.content.as_deref().is_some_and(|content| content.get().starts_with('['));
    let is_assistant = match &shape.role {
        Some(role) => is_text(Some(role), "assistant"),
        None => shape.finish_reason.is_some(),
    };
    let is_message = is_assistant && is_plain(shape.content.as_deref());
    has_calls
        || shape.choices.is_some()
        || (is_message && (!is_array || shape.tool_calls.is_some()))
}

/// The calls of a message or a whole response (without its envelope), in order.
///
/// # Errors
/// `message_unreadable`: not JSON, another role than the assistant's, or a call without a function.
/// `format_unrecognised`: neither calls, nor choices, nor plain content. `message_ambiguous`: several
/// choices call tools.
pub fn read(message: &str) -> Result<Vec<ModelCall>, Refused> {
    let body: Body = object(message)?;
    if let Some(role) = body.role.as_deref().filter(|role| !is_text(Some(role), "assistant")) {
        return Err(unreadable(&format!("its role is {}, not assistant", role.get())));
    }
    let calls = body.tool_calls.as_deref().unwrap_or_default();
    if body.function_call.is_some() && calls.is_empty() {
        return Err(unreadable(
            "function_call is the form before tool_calls: offer tools, not functions",
        ));
    }
    if let Some(choices) = body.choices.filter(|_| calls.is_empty()) {
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
    let is_message =
        body.tool_calls.is_some() || body.role.is_some() || body.finish_reason.is_some();
    let calls = body.tool_calls.unwrap_or_default();
    // Other blocks are another provider's content: their calls must not be overlooked.
    if !is_message || (calls.is_empty() && !is_plain(body.content.as_deref())) {
        return Err(Refused {
            code: "format_unrecognised",
            detail: "the body is neither an OpenAI Chat Completions message nor a whole response"
                .to_owned(),
            mend: "hand in an object with tool_calls or choices, or an envelope {\"message\": …}",
        });
    }
    calls.into_iter().map(read_call).collect()
}

fn read_call(call: ToolCall) -> Result<ModelCall, Refused> {
    if call.kind.as_deref() == Some("custom") {
        let (name, input) = call.custom.map_or((None, None), |custom| (custom.name, custom.input));
        return Ok(ModelCall::of_text(call.id, name, input.as_deref()));
    }
    let Some(function) = call.function else {
        return Err(Refused {
            code: "message_unreadable",
            detail: "a tool call has no function".to_owned(),
            mend: "hand in the provider's message unchanged",
        });
    };
    Ok(ModelCall::new(call.id, function.name, read_arguments(function.arguments.as_deref())))
}

/// The text of the arguments, which is a JSON string of its own.
pub(super) fn read_arguments(raw: Option<&RawValue>) -> Result<Option<String>, String> {
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
pub fn render(result: &Answered<'_>) -> Value {
    json!({"role": "tool", "tool_call_id": result.id(), "content": result.text})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::formats::read;
    use crate::core::formats::tests::{answered, texts};

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
        assert_eq!(code("[]", Some("openai-chat")), "message_unreadable");
        assert_eq!(code("{", None), "message_unreadable");
        assert_eq!(code("{}", Some("openai-chat")), "format_unrecognised");
        let user = r#"{"role":"user","content":"hi"}"#;
        assert_eq!(code(user, Some("openai-chat")), "message_unreadable");
        assert_eq!(
            code(r#"{"role":"assistant","content":[{"type":"tool_use"}]}"#, Some("openai-chat")),
            "format_unrecognised"
        );
        let old =
            r#"{"role":"assistant","content":null,"function_call":{"name":"t","arguments":"{}"}}"#;
        assert_eq!(code(old, None), "message_unreadable");
        let candidate = r#"{"content":{"parts":[]},"finish_reason":"STOP"}"#;
        assert_eq!(code(candidate, Some("openai-chat")), "format_unrecognised");
        assert_eq!(code(r#"{"tool_calls":[]}"#, Some("mcp")), "format_unsupported");
        assert_eq!(code(r#"{"tool_calls":[]}"#, Some("x")), "format_unknown");
        let two = r#"{"choices":[{"message":{"tool_calls":[{"function":{"name":"a"}}]}},{"message":{"tool_calls":[{"function":{"name":"b"}}]}}]}"#;
        assert_eq!(code(two, None), "message_ambiguous");
    }

    #[test]
    fn free_text_becomes_the_argument_input() {
        let body = r#"{"tool_calls":[{"id":"a","type":"custom","custom":{"name":"sql","input":"select 1"}},
            {"id":"b","type":"custom","custom":{"name":"sql","input":7}},{"id":"c","type":"custom"}]}"#;
        let calls = calls(body);
        assert_eq!(texts(&calls)[0], Ok(Some(r#"{"input":"select 1"}"#)));
        assert!(texts(&calls)[1].unwrap_err().contains("must be a string"));
        assert!(calls[0].is_free_text && calls[0].name == "sql" && calls[2].name.is_empty());
    }

    #[test]
    fn a_result_carries_the_providers_own_id() {
        let message = render(&answered("call_0", "Tool error: no"));
        assert_eq!(
            message,
            json!({"role":"tool","tool_call_id":"call_0","content":"Tool error: no"})
        );
    }
}
