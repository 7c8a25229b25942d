//! What tests ask of a fleet, and what they expect of every good answer.

use serde_json::{Value, json};
use std::time::Duration;
use toolfleet_tests::{Answer, Builder, Fleet, Ledger};

/// Longer than anything here takes on a slow machine, and shorter than patience.
pub const SOON: Duration = Duration::from_secs(30);

/// A fleet whose workers have the tools of this package.
pub fn fleet() -> Builder {
    Fleet::builder().worker_program(env!("CARGO_BIN_EXE_test-worker"))
}

/// The input of a nap that is noted in a ledger.
pub fn nap(ms: u64, ledger: &Ledger) -> Value {
    json!({"ms": ms, "ledger": ledger.path().to_string_lossy()})
}

/// An assistant message of the OpenAI Chat Completions API: id, tool and argument text of each call.
pub fn message(calls: &[(&str, &str, &str)]) -> Value {
    let calls: Vec<Value> = calls
        .iter()
        .map(|(id, tool, arguments)| {
            let function = json!({"name": tool, "arguments": arguments});
            json!({"id": id, "type": "function", "function": function})
        })
        .collect();
    json!({"role": "assistant", "content": null, "tool_calls": calls})
}

/// The body of a call that ended well.
#[track_caller]
pub fn ok(answer: &Answer) -> &Value {
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.body["ok"], true, "{}", answer.text);
    assert_eq!(answer.body["isError"], false, "{}", answer.text);
    assert_eq!(answer.body.get("code"), None, "{}", answer.text);
    &answer.body
}

/// The body of a call that was admitted and ended in an error of this code.
#[track_caller]
pub fn failed<'a>(answer: &'a Answer, code: &str) -> &'a Value {
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.body["ok"], false, "{}", answer.text);
    assert_eq!(answer.body["code"], code, "{}", answer.text);
    &answer.body
}

/// The body of a refusal, which is a whole problem document.
#[track_caller]
pub fn problem<'a>(answer: &'a Answer, status: u16, code: &str) -> &'a Value {
    assert_eq!(answer.status, status, "{}", answer.text);
    let media_type = answer.headers.get("content-type").and_then(|value| value.to_str().ok());
    let is_problem = media_type.is_some_and(|text| text.starts_with("application/problem+json"));
    assert!(is_problem, "{media_type:?}: {}", answer.text);
    for key in ["type", "title", "detail", "code", "mend"] {
        let text = answer.body[key].as_str().unwrap_or_default();
        assert!(!text.is_empty(), "{key} is missing: {}", answer.text);
    }
    assert_eq!(answer.body["status"], status, "{}", answer.text);
    assert_eq!(answer.body["code"], code, "{}", answer.text);
    &answer.body
}
