//! Gemini `generateContent`: a whole response, a candidate of one, or a model content, in camelCase or
//! as the SDK dumps it; results go back as one user content.

use super::{Answered, ModelCall, Refused, elements, is_text};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use toolfleet_proto::json::Json;

/// Significant digits that a 64-bit float keeps of any number.
const DIGITS_KEPT: usize = 15;

/// What tells a message of this format. Leaves that are the model's stay raw: a fault in one call's
/// arguments is that call's. Signatures of thoughts stand beside the calls and are not looked at: the
/// loop hands the model's content back itself, unchanged.
#[derive(Debug, Default, Deserialize)]
struct Body {
    candidates: Option<Box<RawValue>>,
    content: Option<Box<RawValue>>,
    role: Option<Box<RawValue>>,
    parts: Option<Box<RawValue>>,
    // A response whose prompt was refused has these and no candidate.
    #[serde(rename = "promptFeedback", alias = "prompt_feedback")]
    prompt_feedback: Option<Box<RawValue>>,
    #[serde(rename = "usageMetadata", alias = "usage_metadata")]
    usage: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
struct Part {
    #[serde(rename = "functionCall", alias = "function_call")]
    function_call: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
struct FunctionCall {
    id: Option<String>,
    name: Option<String>,
    args: Option<Box<RawValue>>,
    #[serde(rename = "partialArgs", alias = "partial_args")]
    partial_args: Option<Box<RawValue>>,
    #[serde(rename = "willContinue", alias = "will_continue")]
    will_continue: Option<bool>,
}

fn unreadable(why: String) -> Refused {
    Refused::unreadable(
        "Gemini content",
        &why,
        "hand in the model's content or the whole response, unchanged",
    )
}

fn object<'a, T: Deserialize<'a>>(raw: &'a str, what: &str) -> Result<T, Refused> {
    // A derived reader would take an array for an object.
    if !raw.starts_with('{') {
        return Err(unreadable(format!("{what} is not an object")));
    }
    serde_json::from_str(raw).map_err(|error| unreadable(format!("{what}: {error}")))
}

/// Whether a message (without its envelope) is of this format, told by its shape alone: candidates, a
/// content with parts, or the parts of a model. A body that does not read is of no format.
pub fn looks_like(message: &str) -> bool {
    let Ok(body) = object::<Body>(message, "it") else { return false };
    let is_array = |raw: Option<&RawValue>| raw.is_some_and(|raw| raw.get().starts_with('['));
    let is_models = body.role.is_none() || is_text(body.role.as_deref(), "model");
    is_array(body.candidates.as_deref())
        || (is_models && is_array(body.parts.as_deref()))
        || body.content.as_deref().is_some_and(|content| {
            object::<Body>(content.get(), "it")
                .is_ok_and(|content| is_array(content.parts.as_deref()))
        })
}

/// The calls of a response, a candidate or a content (without its envelope), in order. Parts of other
/// kinds are passed over, also those that call tools of the provider.
///
/// # Errors
/// `message_unreadable`: not JSON, another role than the model's, or parts that are no objects.
/// `format_unrecognised`: neither candidates nor parts. `message_ambiguous`: several candidates call
/// tools.
pub fn read(message: &str) -> Result<Vec<ModelCall>, Refused> {
    let body: Body = object(message, "it")?;
    if let Some(candidates) = &body.candidates {
        let candidates = elements(candidates)
            .ok_or_else(|| unreadable("candidates is not an array".to_owned()))?;
        return of_candidates(&candidates);
    }
    if body.parts.is_some() || body.role.is_some() {
        return of_content(&body);
    }
    if let Some(content) = &body.content {
        return of_content(&object(content.get(), "content")?);
    }
    if body.prompt_feedback.is_some() || body.usage.is_some() {
        return Ok(Vec::new());
    }
    Err(Refused {
        code: "format_unrecognised",
        detail: "the body is neither a Gemini content nor a whole response".to_owned(),
        mend: "hand in an object with candidates or parts, or an envelope {\"message\": …}",
    })
}

fn of_candidates(candidates: &[Box<RawValue>]) -> Result<Vec<ModelCall>, Refused> {
    let mut calling: Option<Vec<ModelCall>> = None;
    for candidate in candidates {
        let candidate: Body = object(candidate.get(), "a candidate")?;
        let Some(content) = candidate.content else { continue };
        let calls = of_content(&object(content.get(), "content")?)?;
        if calls.is_empty() {
            continue;
        }
        if calling.replace(calls).is_some() {
            return Err(Refused {
                code: "message_ambiguous",
                detail: "more than one candidate calls tools".to_owned(),
                mend: "hand in the content of the candidate that the loop goes on with",
            });
        }
    }
    Ok(calling.unwrap_or_default())
}

fn of_content(content: &Body) -> Result<Vec<ModelCall>, Refused> {
    if let Some(role) = content.role.as_deref().filter(|role| !is_text(Some(role), "model")) {
        return Err(unreadable(format!("its role is {}, not model", role.get())));
    }
    let Some(parts) = &content.parts else { return Ok(Vec::new()) };
    let parts = elements(parts).ok_or_else(|| unreadable("parts is not an array".to_owned()))?;
    let mut calls = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let part: Part = object(part.get(), &format!("parts[{at}]"))?;
        if let Some(call) = part.function_call {
            calls.push(read_call(object(call.get(), &format!("parts[{at}].functionCall"))?));
        }
    }
    Ok(calls)
}

fn read_call(call: FunctionCall) -> ModelCall {
    let is_part = call.will_continue == Some(true)
        || call.partial_args.as_deref().is_some_and(|args| args.get() != "[]");
    let arguments = if is_part {
        Err("the call came in parts: hand it in once it is whole, with args".to_owned())
    } else {
        Ok(call.args.map(|args| args.get().to_owned()))
    };
    ModelCall::new(call.id, call.name, arguments)
}

/// The contents that answer a message's calls, in the order of `results`: one user content, or none
/// where there was no call. An id goes back only where the model gave one; without ids, order and name
/// tell which result is whose.
pub fn render(results: &[Answered<'_>]) -> Vec<Value> {
    if results.is_empty() {
        return Vec::new();
    }
    let parts: Vec<Value> = results.iter().map(part).collect();
    vec![json!({"role": "user", "parts": parts})]
}

fn part(result: &Answered<'_>) -> Value {
    let mut response = Map::new();
    if let Some(id) = result.provider_id {
        response.insert("id".into(), json!(id));
    }
    response.insert("name".into(), json!(result.name));
    let content = if result.code.is_some() {
        json!({"error": result.text})
    } else {
        json!({"output": output(result)})
    };
    response.insert("response".into(), content);
    json!({"functionResponse": response})
}

/// A JSON output as the value that it is, where the provider keeps it: its numbers are 64-bit floats.
/// All else as text.
fn output(result: &Answered<'_>) -> Value {
    let value = result.is_json.then(|| Json::parse(result.text).ok()).flatten();
    match value.filter(is_kept) {
        Some(value) => value.to_value(),
        None => json!(result.text),
    }
}

/// Whether 64-bit floats keep every number of a value.
fn is_kept(value: &Json) -> bool {
    match value {
        Json::Number(digits) => is_number_kept(digits),
        Json::Array(items) => items.iter().all(is_kept),
        Json::Object(members) => members.iter().all(|(_, value)| is_kept(value)),
        Json::Null | Json::Bool(_) | Json::String(_) => true,
    }
}

fn is_number_kept(digits: &str) -> bool {
    let mantissa = digits.split(['e', 'E']).next().unwrap_or_default();
    let significant = mantissa.trim_start_matches(['-', '0', '.']);
    let count = significant.bytes().filter(u8::is_ascii_digit).count();
    let is_normal = digits.parse().is_ok_and(|number: f64| count == 0 || number.is_normal());
    count <= DIGITS_KEPT && is_normal
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::formats::tests::{answered, code, texts};

    #[test]
    fn a_response_a_candidate_and_a_content_give_the_same_calls_in_both_spellings() {
        let camel = r#"{"role":"model","parts":[{"text":"hm","thought":true},
            {"functionCall":{"id":"f1","name":"t","args":{"n": 9007199254740993}},"thoughtSignature":"YWJj"},
            {"functionCall":{"name":"t"}},{"executableCode":{"code":"1"}},{"toolCall":{"id":"s"}}]}"#;
        let snake = r#"{"parts":[{"text":null,"function_call":{"id":"f1","name":"t","args":{"n": 9007199254740993},
            "partial_args":null,"will_continue":null},"thought_signature":"YWJj"},
            {"function_call":{"id":null,"name":"t","args":null}}],"role":null}"#;
        for content in [camel, snake] {
            let candidate = format!(r#"{{"content":{content},"finishReason":"STOP"}}"#);
            let response = format!(
                r#"{{"candidates":[{{"index":0,"content":null}},{candidate}],"usageMetadata":{{}}}}"#
            );
            for body in [content, &candidate, &response] {
                assert!(looks_like(body), "{body}");
                let calls = read(body).unwrap();
                let ids: Vec<Option<&str>> = calls.iter().map(|call| call.id.as_deref()).collect();
                assert_eq!(ids, [Some("f1"), None], "{body}");
                assert_eq!(texts(&calls), [Ok(Some(r#"{"n": 9007199254740993}"#)), Ok(None)]);
            }
        }
    }

    #[test]
    fn several_candidates_may_answer_and_one_may_call() {
        let text = r#"{"content":{"parts":[{"text":"hi"}]}}"#;
        let calling = r#"{"content":{"parts":[{"functionCall":{"name":"t"}}]}}"#;
        let response =
            |candidates: &[&str]| format!(r#"{{"candidates":[{}]}}"#, candidates.join(","));
        assert_eq!(read(&response(&[text, calling, text])).unwrap().len(), 1);
        assert_eq!(code(read(&response(&[calling, calling]))), "message_ambiguous");
        assert!(read(&response(&[text])).unwrap().is_empty());
        assert!(read(&response(&[])).unwrap().is_empty());
        assert!(
            read(r#"{"candidates":null,"prompt_feedback":{"block_reason":"SAFETY"}}"#)
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn a_call_in_parts_is_not_run() {
        for call in [r#""willContinue":true,"args":{}"#, r#""partial_args":[{"json_path":"$.a"}]"#]
        {
            let body = format!(r#"{{"parts":[{{"functionCall":{{"name":"t",{call}}}}}]}}"#);
            assert!(texts(&read(&body).unwrap())[0].unwrap_err().contains("whole"), "{body}");
        }
        let whole = r#"{"parts":[{"functionCall":{"name":"t","args":{},"willContinue":false,"partialArgs":[]}}]}"#;
        assert_eq!(texts(&read(whole).unwrap()), [Ok(Some("{}"))]);
    }

    #[test]
    fn one_calls_fault_is_its_own() {
        let body = r#"{"parts":[{"text":"half \ud835"},
            {"functionCall":{"name":"t","args":{"x":"\ud835"}}},
            {"functionCall":{"name":"t","args":{"n":1,"n":2}}},
            {"functionCall":{"name":"t","args":"{}"}}]}"#;
        let calls = read(body).unwrap();
        let wanted = [r#"{"x":"\ud835"}"#, r#"{"n":1,"n":2}"#, r#""{}""#];
        assert_eq!(texts(&calls), wanted.map(|text| Ok(Some(text))));
    }

    #[test]
    fn what_is_no_content_is_refused_by_code() {
        assert_eq!(code(read("{")), "message_unreadable");
        assert_eq!(code(read("[]")), "message_unreadable");
        assert_eq!(code(read(r#"{"role":"user","parts":[{"text":"hi"}]}"#)), "message_unreadable");
        assert_eq!(code(read(r#"{"parts":{}}"#)), "message_unreadable");
        assert_eq!(code(read(r#"{"parts":[["x"]]}"#)), "message_unreadable");
        assert_eq!(code(read(r#"{"parts":[{"functionCall":"t"}]}"#)), "message_unreadable");
        assert_eq!(code(read(r#"{"tool_calls":[]}"#)), "format_unrecognised");
        assert!(read(r#"{"role":"model"}"#).unwrap().is_empty());
        for body in [
            r#"{"role":"user","parts":[]}"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"hi"}]}"#,
            r#"{"content":"hi"}"#,
            r#"{"parts":null}"#,
        ] {
            assert!(!looks_like(body), "{body}");
        }
    }

    #[test]
    fn results_are_parts_of_one_content_and_ids_go_back_where_there_were_any() {
        let without = Answered { provider_id: None, name: "b", ..answered("turn:1", "text") };
        let failed = Answered { code: Some("timed_out"), ..answered("f2", "Tool error: no") };
        let contents = render(&[Answered { name: "a", ..answered("f1", "") }, without, failed]);
        let wanted = json!([{"role": "user", "parts": [
            {"functionResponse": {"id": "f1", "name": "a", "response": {"output": ""}}},
            {"functionResponse": {"name": "b", "response": {"output": "text"}}},
            {"functionResponse": {"id": "f2", "name": "t", "response": {"error": "Tool error: no"}}},
        ]}]);
        assert_eq!(Value::from(contents), wanted);
        assert!(render(&[]).is_empty());
    }

    #[test]
    fn json_is_a_value_where_a_float_keeps_its_numbers() {
        let shown = |text: &str| output(&Answered { is_json: true, ..answered("a", text) });
        for (text, value) in [
            ("null", json!(null)),
            (
                r#"{"a":[1,-2.50,123456789012345]}"#,
                json!({"a": [1, -2.5, 123_456_789_012_345_u64]}),
            ),
            (r#""text""#, json!("text")),
            ("0.000", json!(0.0)),
            ("1e300", json!(1e300)),
        ] {
            assert_eq!(shown(text), value, "{text}");
        }
        for text in ["9007199254740993", r#"{"a":0.12345678901234567890}"#, "[1e-400]", "1e-310"] {
            assert_eq!(shown(text), json!(text), "digits would be lost");
        }
        assert_eq!(shown(r#"{"a":1,"a":2}"#), json!(r#"{"a":1,"a":2}"#));
        assert_eq!(output(&answered("a", "[1]")), json!("[1]"), "text that looks like JSON");
    }
}
