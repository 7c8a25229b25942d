//! OpenAI Chat Completions: an assistant message, a whole response, a choice of one, or one of these
//! in an envelope; as it came or as an SDK dumps it.

use super::{Message, ModelCall, Refused, is_null};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// What may stand at the top of a body. Leaves that are the model's stay raw: a fault in one call's
/// arguments is that call's.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    message: Option<Box<RawValue>>,
    turn: Option<String>,
    format: Option<String>,
    deadline: Option<String>,
    #[serde(rename = "localTools")]
    local_tools: Option<Vec<String>>,
    choices: Option<Vec<Choice>>,
    #[serde(rename = "tool_calls")]
    tool_calls: Option<Vec<ToolCall>>,
    role: Option<Box<RawValue>>,
    content: Option<Box<RawValue>>,
    #[serde(rename = "finish_reason")]
    finish_reason: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    message: Option<Assistant>,
}

#[derive(Debug, Deserialize)]
struct Assistant {
    choices: Option<Vec<Choice>>,
    tool_calls: Option<Vec<ToolCall>>,
    role: Option<Box<RawValue>>,
    content: Option<Box<RawValue>>,
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

impl Envelope {
    /// Reads a body without looking into the model's own values.
    pub fn read(body: &str) -> Result<Envelope, Refused> {
        serde_json::from_str(body).map_err(|error| unreadable(&error))
    }

    /// The format that the envelope names.
    pub fn format(&self) -> Option<String> {
        self.format.clone()
    }

    /// The calls of the message, and what the envelope says around them.
    pub fn into_message(self) -> Result<Message, Refused> {
        let calls = match &self.message {
            Some(message) if !is_null(message) => {
                let inner: Assistant =
                    serde_json::from_str(message.get()).map_err(|error| unreadable(&error))?;
                calls_of(inner.choices, inner.tool_calls, inner.role.is_some(), inner.content.as_deref())?
            }
            _ => calls_of(
                self.choices,
                self.tool_calls,
                self.role.is_some() || self.finish_reason.is_some(),
                self.content.as_deref(),
            )?,
        };
        Ok(Message {
            calls,
            turn: self.turn,
            deadline: self.deadline,
            local_tools: self.local_tools.unwrap_or_default(),
        })
    }
}

fn calls_of(
    choices: Option<Vec<Choice>>,
    tool_calls: Option<Vec<ToolCall>>,
    is_message: bool,
    content: Option<&RawValue>,
) -> Result<Vec<ModelCall>, Refused> {
    if let Some(tool_calls) = tool_calls {
        return tool_calls.into_iter().map(read_call).collect();
    }
    if let Some(choices) = choices {
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
    // Anthropic's and Gemini's messages have a role too, and their calls must not be overlooked.
    let holds_other_calls = content.is_some_and(|content| {
        content.get().contains("\"tool_use\"") && content.get().starts_with('[')
    });
    if is_message && !holds_other_calls {
        return Ok(Vec::new());
    }
    Err(Refused {
        code: "format_unrecognised",
        detail: "the body is neither an OpenAI Chat Completions message nor a whole response".to_owned(),
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
    serde_json::from_str(raw.get()).map(Some).map_err(|error| format!("not readable text: {error}"))
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
        let response = format!(r#"{{"id":"x","choices":[{{"index":0,"finish_reason":"tool_calls","message":{message}}}]}}"#);
        for body in [message.to_owned(), response.clone(), format!(r#"{{"message":{message}}}"#), format!(r#"{{"message":{response},"turn":"t1"}}"#)] {
            let calls = calls(&body);
            assert_eq!(calls.len(), 1, "{body}");
            assert_eq!((calls[0].id.as_deref(), calls[0].name.as_str()), (Some("call_1"), "t"));
            assert_eq!(calls[0].arguments, Ok(Some("{\"a\":1}".to_owned())));
        }
    }

    #[test]
    fn nulls_count_as_absent_and_a_message_without_calls_is_fine() {
        assert!(calls(r#"{"role":"assistant","content":"hi","tool_calls":null,"refusal":null}"#).is_empty());
        assert!(calls(r#"{"role":"assistant","content":"hi"}"#).is_empty());
        assert!(calls(r#"{"choices":[{"message":{"role":"assistant","content":"hi"}}]}"#).is_empty());
        let sparse = calls(r#"{"tool_calls":[{"id":null,"function":{"name":"t","arguments":null}},{"function":{"name":"t"}}]}"#);
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
        assert_eq!(code(r#"{"role":"assistant","content":[{"type":"tool_use"}]}"#, None), "format_unrecognised");
        assert_eq!(code(r#"{"tool_calls":[]}"#, Some("anthropic")), "format_unsupported");
        assert_eq!(code(r#"{"tool_calls":[]}"#, Some("x")), "format_unknown");
        let two = r#"{"choices":[{"message":{"tool_calls":[{"function":{"name":"a"}}]}},{"message":{"tool_calls":[{"function":{"name":"b"}}]}}]}"#;
        assert_eq!(code(two, None), "message_ambiguous");
    }

    #[test]
    fn a_result_carries_the_providers_own_id() {
        let message = render(Some("call_0"), "Tool error: no");
        assert_eq!(message, json!({"role":"tool","tool_call_id":"call_0","content":"Tool error: no"}));
    }
}
