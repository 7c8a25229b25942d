//! OpenAI Responses: a whole response or its `output` items, as they came or as an SDK dumps them;
//! results go back as one input item a call.

use super::{Answered, ModelCall, Refused, Typed, elements, is_null, is_text, typed};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// The item that calls a function.
const FUNCTION_CALL: &str = "function_call";
/// The item that calls a free-text tool.
const CUSTOM_CALL: &str = "custom_tool_call";
/// What such items' results are called.
const RESULTS: [&str; 2] = ["function_call_output", "custom_tool_call_output"];
/// Items of which a response always has one, beside those that call something.
const USUAL: [&str; 2] = ["message", "reasoning"];

#[derive(Debug, Deserialize)]
struct Body {
    output: Option<Box<RawValue>>,
}

/// A call, or a result of one. Leaves that are the model's stay raw: a fault in one call's arguments
/// is that call's. `id` is the item's own and pairs with nothing.
#[derive(Debug, Deserialize)]
struct Call {
    call_id: Option<String>,
    name: Option<String>,
    arguments: Option<Box<RawValue>>,
    input: Option<Box<RawValue>>,
    status: Option<Box<RawValue>>,
    caller: Option<Box<RawValue>>,
}

fn unreadable(why: &str) -> Refused {
    Refused::unreadable(
        "OpenAI response",
        why,
        "hand in the whole response or its output, unchanged",
    )
}

fn unrecognised(why: &str) -> Refused {
    Refused {
        code: "format_unrecognised",
        detail: format!("the body is neither an OpenAI response nor its output: {why}"),
        mend: "hand in an object with output, its array, or an envelope {\"message\": …}",
    }
}

/// The raw items of a response or an array. `None`: neither.
fn raw_items(message: &str) -> Result<Option<Vec<Box<RawValue>>>, serde_json::Error> {
    if message.starts_with('[') {
        return serde_json::from_str(message).map(Some);
    }
    if !message.starts_with('{') {
        return Ok(None);
    }
    let body: Body = serde_json::from_str(message)?;
    Ok(body.output.as_deref().and_then(elements))
}

fn items(message: &str) -> Result<Vec<Typed>, Refused> {
    let raws = raw_items(message).map_err(|error| unreadable(&error.to_string()))?;
    let raws = raws.ok_or_else(|| unrecognised("it has no output"))?;
    let read = raws.into_iter().enumerate().map(|(at, raw)| {
        typed(raw).ok_or_else(|| unreadable(&format!("output[{at}] is no item with a type")))
    });
    read.collect()
}

/// Whether a message (without its envelope) is of this format, told by its shape alone: typed items,
/// one of them a message, reasoning or a call. A body that does not read is of no format.
pub fn looks_like(message: &str) -> bool {
    let is_known = |item: &Typed| {
        let kind = item.kind.as_str();
        USUAL.contains(&kind) || kind == CUSTOM_CALL || kind.ends_with("_call")
    };
    let is_empty_output = || {
        message.starts_with('{')
            && raw_items(message).ok().flatten().is_some_and(|raws| raws.is_empty())
    };
    items(message).is_ok_and(|items| items.iter().any(is_known)) || is_empty_output()
}

/// The calls of a response or of its items (without its envelope), in order. Calls that somebody else
/// answers (`web_search_call`, `mcp_call`, `computer_call`, …), those that have their result beside
/// them, and all other items are passed over.
///
/// # Errors
/// `message_unreadable`: not JSON, or an item without a type. `format_unrecognised`: no output, or
/// calls of the Interactions API, which have an object for arguments and no `call_id`.
pub fn read(message: &str) -> Result<Vec<ModelCall>, Refused> {
    let items = items(message)?;
    let read = |item: &Typed| -> Result<Call, Refused> {
        serde_json::from_str(item.raw.get()).map_err(|error| unreadable(&error.to_string()))
    };
    let results = items.iter().filter(|item| RESULTS.contains(&item.kind.as_str())).map(read);
    let answered: Vec<String> = results
        .filter_map(|result| result.map(|call| call.call_id).transpose())
        .collect::<Result<_, _>>()?;
    let mut calls = Vec::new();
    for item in &items {
        let is_custom = item.kind == CUSTOM_CALL;
        if item.kind != FUNCTION_CALL && !is_custom {
            continue;
        }
        let call = read(item)?;
        if call.call_id.as_ref().is_some_and(|id| answered.contains(id)) {
            continue;
        }
        calls.push(if is_custom { call.of_text() } else { call.of_function()? });
    }
    Ok(calls)
}

impl Call {
    fn of_text(self) -> ModelCall {
        ModelCall::of_text(self.call_id, self.name, self.input.as_deref())
            .with_echo("caller", self.caller.as_deref())
    }

    fn of_function(self) -> Result<ModelCall, Refused> {
        let raw = self.arguments.as_deref().filter(|raw| !is_null(raw));
        let is_text = raw.is_none_or(|raw| raw.get().starts_with('"'));
        if !is_text && self.call_id.is_none() {
            return Err(unrecognised("a function_call has no call_id"));
        }
        let arguments = if is_cut(self.status.as_deref()) {
            Err("the call is marked as incomplete: make it again, whole".to_owned())
        } else {
            super::openai_chat::read_arguments(raw)
        };
        let call = ModelCall::new(self.call_id, self.name, arguments);
        Ok(call.with_echo("caller", self.caller.as_deref()))
    }
}

/// Whether the provider says that it cut the call: its arguments are not all that the model meant.
fn is_cut(status: Option<&RawValue>) -> bool {
    is_text(status, "incomplete")
}

/// The input item for one result: the provider's own `call_id`, one string.
pub fn render(result: &Answered<'_>) -> Value {
    let kind = if result.is_free_text { RESULTS[1] } else { RESULTS[0] };
    let mut item = Map::new();
    item.insert("type".into(), json!(kind));
    item.insert("call_id".into(), json!(result.id()));
    item.insert("output".into(), json!(result.text));
    item.extend(result.echo.cloned().unwrap_or_default());
    Value::Object(item)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::formats::tests::{answered, code, texts};

    #[test]
    fn only_calls_that_are_ours_and_open_are_read() {
        let body = r#"[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"},
            {"type":"web_search_call","id":"ws_1","status":"completed"},
            {"type":"mcp_call","id":"mcp_1","name":"t","arguments":"{}","server_label":"s"},
            {"type":"computer_call","id":"cu_1","call_id":"call_c","action":{}},
            {"type":"shell_call","call_id":"call_s","action":{}},
            {"type":"function_call","id":"fc_1","call_id":"call_old","name":"t","arguments":"{}"},
            {"type":"function_call_output","call_id":"call_old","output":"1"},
            {"type":"function_call","id":"fc_2","call_id":"call_new","name":"t","arguments":"{\"n\":9007199254740993}"},
            {"type":"something_new","anything":{"n":1}}]"#;
        assert!(looks_like(body));
        let calls = read(body).unwrap();
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0].id.as_deref(), Some("call_new"));
        assert_eq!(texts(&calls), [Ok(Some("{\"n\":9007199254740993}"))]);
    }

    #[test]
    fn free_text_becomes_the_argument_input() {
        let body = r#"{"output":[
            {"type":"custom_tool_call","call_id":"a","name":"sql","input":"select \"x\"\n"},
            {"type":"custom_tool_call","call_id":"b","name":"sql","input":"\ud835"},
            {"type":"custom_tool_call","call_id":"c","name":"sql","input":{"a":1}},
            {"type":"custom_tool_call","call_id":"d","name":"sql"}]}"#;
        let calls = read(body).unwrap();
        let texts = texts(&calls);
        assert_eq!(texts[0], Ok(Some(r#"{"input":"select \"x\"\n"}"#)));
        assert!(texts[1].unwrap_err().contains("lone surrogate"), "{texts:?}");
        assert!(texts[2].unwrap_err().contains("must be a string"), "{texts:?}");
        assert_eq!(texts[3], Ok(Some(r#"{"input":""}"#)));
        assert!(calls.iter().all(|call| call.is_free_text));
    }

    #[test]
    fn one_calls_fault_is_its_own() {
        let body = r#"[{"type":"function_call","call_id":"a","name":"t","arguments":"half \ud835"},
            {"type":"function_call","call_id":"b","name":"t","arguments":{"a":1}},
            {"type":"function_call","call_id":"c","name":"t","arguments":"{}","status":"incomplete"},
            {"type":"function_call","call_id":"d","name":"t","arguments":null,"status":"in_progress"},
            {"type":"function_call","call_id":"","name":"t","arguments":"{}","status":null}]"#;
        let calls = read(body).unwrap();
        let texts = texts(&calls);
        assert!(texts[0].unwrap_err().contains("surrogate"));
        assert!(texts[1].unwrap_err().contains("must be a string"));
        assert!(texts[2].unwrap_err().contains("incomplete"));
        assert_eq!((texts[3], texts[4]), (Ok(None), Ok(Some("{}"))));
        assert_eq!(calls[4].id, None, "an empty id is none");
    }

    #[test]
    fn the_caller_is_repeated_and_nothing_else() {
        let long = "x".repeat(600);
        let body = format!(
            r#"[{{"type":"function_call","call_id":"a","name":"t","arguments":"{{}}","namespace":"crm","async":true,
                "caller":{{"type":"program","caller_id":"call_p"}}}},
               {{"type":"custom_tool_call","call_id":"b","name":"t","input":"","caller":null}},
               {{"type":"function_call","call_id":"c","name":"t","arguments":"","caller":{{"type":"{long}"}}}}]"#
        );
        let calls = read(&body).unwrap();
        let caller = json!({"type": "program", "caller_id": "call_p"});
        let echo = &calls[0].echo;
        assert_eq!(Value::Object(echo.clone()), json!({"caller": caller}));
        assert!(calls[1].echo.is_empty() && calls[2].echo.is_empty());
        let item = render(&Answered { echo: Some(echo), ..answered("a", "1") });
        let wanted = json!({"type": "function_call_output", "call_id": "a", "output": "1", "caller": caller});
        assert_eq!(item, wanted);
        let text = render(&Answered { is_free_text: true, ..answered("b", "") });
        assert_eq!(text, json!({"type": "custom_tool_call_output", "call_id": "b", "output": ""}));
    }

    #[test]
    fn shape_tells_the_format() {
        for body in [
            r#"{"object":"response","output":[]}"#,
            r#"{"output":[{"type":"message","content":[]}]}"#,
            r#"[{"type":"function_call","call_id":"a","name":"t","arguments":"{}"}]"#,
        ] {
            assert!(looks_like(body), "{body}");
        }
        for body in [
            "[]",
            "{",
            r#"{"output":null}"#,
            r#"{"output":"text"}"#,
            r#"[{"role":"user","content":"hi"}]"#,
            r#"[{"type":"tool_use","id":"a","name":"t","input":{}}]"#,
            r#"[{"type":"text","text":"hi"}]"#,
            r#"[["function_call"]]"#,
        ] {
            assert!(!looks_like(body), "{body}");
        }
    }

    #[test]
    fn what_is_no_response_is_refused_by_code() {
        assert_eq!(code(read("{")), "message_unreadable");
        assert_eq!(code(read("[{}]")), "message_unreadable");
        assert_eq!(code(read(r#"[{"role":"user","content":"hi"}]"#)), "message_unreadable");
        assert_eq!(code(read("7")), "format_unrecognised");
        assert_eq!(code(read(r#"{"role":"assistant","tool_calls":[]}"#)), "format_unrecognised");
        let interactions = r#"[{"type":"function_call","id":"1","name":"t","arguments":{}}]"#;
        assert_eq!(code(read(interactions)), "format_unrecognised");
        assert!(read("[]").unwrap().is_empty());
    }
}
