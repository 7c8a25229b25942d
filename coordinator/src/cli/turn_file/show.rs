//! A turn's answer for people.

use crate::cli::calls::{painted, span, text, word};
use crate::cli::terminal::Style;
use serde_json::{Value, json};

/// Lines of a result that are shown.
const LINES_MAX: usize = 6;
/// Characters of a line that are shown.
const LINE_CHARS_MAX: usize = 160;

/// What the model reads of each call, in call order: the messages say it in the provider's form.
fn contents(answer: &Value) -> Vec<String> {
    let messages = answer["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    messages.iter().flat_map(results).map(content).collect()
}

/// The results of one message: Anthropic and Gemini have all of them in one.
fn results(message: &Value) -> Vec<&Value> {
    let of_user = (message["role"] == "user").then_some(message);
    let all = of_user.and_then(|message| match message["parts"].as_array() {
        Some(parts) => Some(parts),
        None => message["content"].as_array(),
    });
    all.map_or_else(|| vec![message], |all| all.iter().collect())
}

/// A result's text: a string, blocks of text, or a response's output or error.
fn content(result: &Value) -> String {
    let response = &result["functionResponse"]["response"];
    let places = [
        &result["content"],
        &result["output"],
        &result["text"],
        &response["output"],
        &response["error"],
    ];
    match places.into_iter().find(|value| !value.is_null()) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) if !result["content"].is_null() => {
            blocks.iter().map(|block| text(block, "text")).collect()
        }
        Some(value) => value.to_string(),
        None if response.get("output").is_some() => "null".to_owned(),
        None => String::new(),
    }
}

/// Every call in order: a line of facts, then what the model reads; at last how many ended how.
pub(crate) fn render(answer: &Value, style: Style, is_full: bool) -> String {
    let calls = answer["calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    let contents = contents(answer);
    let mut rows = Vec::new();
    for (position, call) in calls.iter().enumerate() {
        // The answer's entries have no state: they have all ended.
        let mut call = call.clone();
        call["state"] = json!("done");
        let attempts = call["attempts"].as_u64().unwrap_or_default();
        rows.push(format!(
            "\n{}. {:<20} {} {:>9}  {attempts} attempt{}  {}",
            position + 1,
            text(&call, "toolName"),
            painted(&call, &format!("{:<16}", word(&call)), style),
            span(&call, "durationMs"),
            if attempts == 1 { "" } else { "s" },
            style.dim(text(&call, "idempotencyKey")),
        ));
        rows.extend(excerpt(contents.get(position).map_or("", String::as_str), is_full));
    }
    for call in answer["local"].as_array().into_iter().flatten() {
        rows.push(format!("\nleft to the loop: {} {}", text(call, "name"), text(call, "id")));
    }
    let failed = calls.iter().filter(|call| call["isError"] == true).count();
    rows.push(format!(
        "\nturn {}: {} calls, {} ok, {failed} failed",
        text(answer, "turn"),
        calls.len(),
        calls.len() - failed,
    ));
    rows.join("\n")
}

/// A text, indented: all of it, or its first lines, each cut to a width.
fn excerpt(content: &str, is_full: bool) -> Vec<String> {
    let (lines_max, chars_max) =
        if is_full { (usize::MAX, usize::MAX) } else { (LINES_MAX, LINE_CHARS_MAX) };
    let mut rows: Vec<String> = content
        .lines()
        .take(lines_max)
        .map(|row| {
            let shown: String = row.chars().take(chars_max).collect();
            let mark = if shown.len() < row.len() { " ..." } else { "" };
            format!("     {shown}{mark}")
        })
        .collect();
    let more = content.lines().count().saturating_sub(lines_max);
    if more > 0 {
        rows.push(format!("     ({more} more lines; --full shows them)"));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls() -> Value {
        json!([
            {"callId": "a", "toolName": "weather", "isError": false, "attempts": 1, "durationMs": 12},
            {"callId": "b", "toolName": "refund", "isError": true, "code": "timed_out", "attempts": 2, "durationMs": 1500},
        ])
    }

    #[test]
    fn what_the_model_reads_is_found_in_every_format() {
        let openai = json!({"messages": [
            {"role": "tool", "tool_call_id": "a", "content": "sun"},
            {"role": "tool", "tool_call_id": "b", "content": "Tool error: no"},
        ]});
        let anthropic = json!({"messages": [{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "sun"}]},
            {"type": "tool_result", "tool_use_id": "b", "is_error": true,
             "content": [{"type": "text", "text": "Tool error: no"}]},
        ]}]});
        assert_eq!(contents(&openai), ["sun", "Tool error: no"]);
        assert_eq!(contents(&anthropic), ["sun", "Tool error: no"]);
        let responses = json!({"messages": [
            {"type": "function_call_output", "call_id": "a", "output": "sun"},
            {"type": "custom_tool_call_output", "call_id": "b", "output": "Tool error: no"},
        ]});
        let gemini = json!({"messages": [{"role": "user", "parts": [
            {"functionResponse": {"name": "weather", "response": {"output": "sun"}}},
            {"functionResponse": {"name": "refund", "response": {"error": "Tool error: no"}}},
            {"functionResponse": {"name": "list", "response": {"output": [{"text": 1}]}}},
            {"functionResponse": {"name": "none", "response": {"output": null}}},
        ]}]});
        let native = json!({"messages": [
            {"id": "a", "name": "weather", "isError": false, "text": "sun"},
            {"id": "b", "name": "refund", "isError": true, "text": "Tool error: no"},
        ]});
        assert_eq!(contents(&responses), ["sun", "Tool error: no"]);
        assert_eq!(contents(&gemini), ["sun", "Tool error: no", r#"[{"text":1}]"#, "null"]);
        assert_eq!(contents(&native), ["sun", "Tool error: no"]);
        let empty = json!({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}]});
        assert_eq!(contents(&empty), [""]);
        assert!(contents(&json!({})).is_empty());
    }

    #[test]
    fn every_call_is_shown_in_order_with_its_facts() {
        let answer = json!({"turn": "t", "calls": calls(), "messages": [
            {"role": "tool", "content": "sun"}, {"role": "tool", "content": "Tool error: no"},
        ], "local": [{"id": "c", "name": "ask_user"}]});
        let style = Style::plain();
        let shown = render(&answer, style, false);
        let (first, second) = (shown.find("1. weather").unwrap(), shown.find("2. refund").unwrap());
        assert!(first < second);
        assert!(shown.contains("1.5 s  2 attempts") && shown.contains("timed_out"), "{shown}");
        assert!(shown.contains("\n     Tool error: no\n"), "{shown}");
        assert!(shown.contains("left to the loop: ask_user c"));
        assert!(shown.ends_with("turn t: 2 calls, 1 ok, 1 failed"));
    }

    #[test]
    fn a_long_text_is_cut_unless_all_is_asked_for() {
        let long = format!("{}\n2\n3\n4\n5\n6\n7\n8", "é".repeat(200));
        let cut = excerpt(&long, false);
        assert_eq!((cut.len(), cut[6].as_str()), (7, "     (2 more lines; --full shows them)"));
        assert!(cut[0].ends_with("é ..."));
        let full = excerpt(&long, true);
        assert_eq!((full.len(), full[0].chars().count()), (8, 205));
    }
}
