//! Our own form, for loops that speak no provider's: `{"calls": [{"id", "name", "input"}]}` in, a list of
//! `{"id", "name", "isError", "code", "text"}` out.

use super::{Answered, ModelCall, Refused, elements};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

#[derive(Debug, Deserialize)]
struct Body {
    calls: Option<Box<RawValue>>,
}

/// A call. It is ours to define, so that a key that is not known is a fault, not an absent input.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    id: Option<String>,
    name: String,
    input: Option<Box<RawValue>>,
}

fn unreadable(why: String) -> Refused {
    let mend = "hand in {\"calls\": [{\"id\": …, \"name\": …, \"input\": {…}}]}; id and input may be left out";
    Refused::unreadable("message", &why, mend)
}

fn calls_of(message: &str) -> Result<Option<Box<RawValue>>, Refused> {
    // A derived reader would take an array for an object.
    if !message.starts_with('{') {
        return Err(unreadable("it is not an object".to_owned()));
    }
    let body: Result<Body, _> = serde_json::from_str(message);
    Ok(body.map_err(|error| unreadable(error.to_string()))?.calls)
}

/// Whether a message (without its envelope) is of this format: an object with an array `calls`.
pub fn looks_like(message: &str) -> bool {
    calls_of(message).is_ok_and(|calls| calls.is_some_and(|calls| calls.get().starts_with('[')))
}

/// The calls of a message (without its envelope), in order.
///
/// # Errors
/// `message_unreadable`: not JSON, or a call without a name or with a key that is not known.
/// `format_unrecognised`: no `calls`.
pub fn read(message: &str) -> Result<Vec<ModelCall>, Refused> {
    let calls = calls_of(message)?.ok_or_else(|| Refused {
        code: "format_unrecognised",
        detail: "the body has no calls".to_owned(),
        mend: "hand in {\"calls\": []} where there are none, or name the provider's format",
    })?;
    let calls = elements(&calls).ok_or_else(|| unreadable("calls is not an array".to_owned()))?;
    calls.iter().enumerate().map(|(at, raw)| read_call(at, raw)).collect()
}

fn read_call(at: usize, raw: &RawValue) -> Result<ModelCall, Refused> {
    if !raw.get().starts_with('{') {
        return Err(unreadable(format!("calls[{at}] is not an object")));
    }
    let call: Call = serde_json::from_str(raw.get())
        .map_err(|error| unreadable(format!("calls[{at}]: {error}")))?;
    let input = call.input.map(|input| input.get().to_owned());
    Ok(ModelCall::new(call.id, Some(call.name), Ok(input)))
}

/// One result. `code` is there where it is an error; `text` is what a model reads.
pub fn render(result: &Answered<'_>) -> Value {
    let mut value = Map::new();
    value.insert("id".into(), json!(result.id()));
    value.insert("name".into(), json!(result.name));
    value.insert("isError".into(), json!(result.code.is_some()));
    if let Some(code) = result.code {
        value.insert("code".into(), json!(code));
    }
    value.insert("text".into(), json!(result.text));
    Value::Object(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::formats::tests::{answered, code, texts};

    #[test]
    fn calls_are_read_and_digits_stay() {
        let body = r#"{"calls":[{"id":"a","name":"t","input":{"n": 1.10}},{"name":"t"},
            {"id":null,"name":"t","input":null},{"name":"t","input":"{}"}],"turn":"t1"}"#;
        assert!(looks_like(body));
        let calls = read(body).unwrap();
        assert_eq!(calls[0].id.as_deref(), Some("a"));
        let wanted = [Ok(Some(r#"{"n": 1.10}"#)), Ok(None), Ok(None), Ok(Some(r#""{}""#))];
        assert_eq!(texts(&calls), wanted);
        assert!(read(r#"{"calls":[]}"#).unwrap().is_empty());
    }

    #[test]
    fn what_is_no_message_is_refused_by_code() {
        for body in [
            "{",
            "[]",
            r#"{"calls":{}}"#,
            r#"{"calls":["t"]}"#,
            r#"{"calls":[{"id":"a"}]}"#,
            r#"{"calls":[{"name":"t","arguments":{}}]}"#,
        ] {
            assert_eq!(code(read(body)), "message_unreadable", "{body}");
        }
        assert_eq!(code(read(r#"{"tool_calls":[]}"#)), "format_unrecognised");
        assert!(!looks_like(r#"{"calls":3}"#) && !looks_like("[]"));
    }

    #[test]
    fn a_result_says_whose_it_is_and_how_it_ended() {
        let well = json!({"id": "a", "name": "t", "isError": false, "text": "1"});
        assert_eq!(render(&answered("a", "1")), well);
        let failed =
            Answered { code: Some("timed_out"), provider_id: None, ..answered("t:0", "no") };
        let wanted =
            json!({"id": "t:0", "name": "t", "isError": true, "code": "timed_out", "text": "no"});
        assert_eq!(render(&failed), wanted);
    }
}
