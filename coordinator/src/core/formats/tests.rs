//! All formats beside one another: what they read, what they give back, how they are told apart.

use super::*;
use crate::core::golden;

const OF_MESSAGES: [Format; 5] = [
    Format::OpenAiChat,
    Format::OpenAiResponses,
    Format::Anthropic,
    Format::Gemini,
    Format::Native,
];

/// Messages with golden files of their calls: `(file, format)`.
const MESSAGES: [(&str, Format); 15] = [
    ("anthropic-message", Format::Anthropic),
    ("anthropic-response", Format::Anthropic),
    ("anthropic-sdk-dump", Format::Anthropic),
    ("anthropic-text-only", Format::Anthropic),
    ("gemini-content", Format::Gemini),
    ("gemini-response", Format::Gemini),
    ("gemini-sdk-dump", Format::Gemini),
    ("native-message", Format::Native),
    ("openai-chat-message", Format::OpenAiChat),
    ("openai-chat-response", Format::OpenAiChat),
    ("openai-chat-sdk-dump", Format::OpenAiChat),
    ("openai-responses-output", Format::OpenAiResponses),
    ("openai-responses-response", Format::OpenAiResponses),
    ("openai-responses-sdk-dump", Format::OpenAiResponses),
    ("openai-responses-text-only", Format::OpenAiResponses),
];

/// A good result of the tool `t` with the provider's own id.
pub(super) fn answered<'a>(id: &'a str, text: &'a str) -> Answered<'a> {
    Answered {
        provider_id: Some(id),
        call_id: id,
        name: "t",
        text,
        code: None,
        is_json: false,
        is_free_text: false,
        echo: None,
    }
}

/// The arguments of each call.
pub(super) fn texts(calls: &[ModelCall]) -> Vec<Result<Option<&str>, &str>> {
    calls
        .iter()
        .map(|call| call.arguments.as_ref().map(Option::as_deref).map_err(String::as_str))
        .collect()
}

/// The code of a refusal.
pub(super) fn code<T>(read: Result<T, Refused>) -> &'static str {
    read.err().map_or("it was read", |refused| refused.code)
}

fn told(calls: &[ModelCall]) -> Value {
    let told = calls.iter().map(|call| {
        let arguments = match &call.arguments {
            Ok(text) => json!({"text": text}),
            Err(why) => json!({"fault": why}),
        };
        let mut told = json!({"id": call.id, "name": call.name, "arguments": arguments});
        if call.is_free_text {
            told["isFreeText"] = json!(true);
        }
        if !call.echo.is_empty() {
            told["echo"] = json!(call.echo);
        }
        told
    });
    told.collect()
}

#[test]
fn messages_read_as_the_golden_files_say_named_or_not() {
    for (name, format) in MESSAGES {
        let body = golden::read(&format!("{name}.json"));
        let recognised = super::read(&body, None).unwrap();
        assert_eq!(recognised.format, format, "{name}");
        golden::check(&format!("{name}.calls.json"), &told(&recognised.calls));
        let named = super::read(&body, Some(format.as_str())).unwrap();
        assert_eq!(told(&named.calls), told(&recognised.calls), "{name}");
        let envelope = format!(r#"{{"message":{body},"turn":"t","localTools":["x"]}}"#);
        let inside = super::read(&envelope, None).unwrap();
        assert_eq!((inside.format, inside.turn.as_deref()), (format, Some("t")), "{name}");
        assert_eq!(told(&inside.calls), told(&recognised.calls), "{name}");
    }
}

#[test]
fn no_format_takes_another_ones_message_for_one_without_calls() {
    for (name, format) in MESSAGES {
        let body = golden::read(&format!("{name}.json"));
        let calls = super::read(&body, None).unwrap().calls.len();
        for other in OF_MESSAGES.into_iter().filter(|other| *other != format) {
            let read = super::read(&body, Some(other.as_str()));
            let is_same = read.as_ref().is_ok_and(|message| message.calls.len() == calls);
            assert!(read.is_err() || is_same, "{name} as {}: {read:?}", other.as_str());
        }
    }
}

#[test]
fn results_render_as_the_golden_files_say() {
    let echo = Map::from_iter([("caller".to_owned(), json!({"type": "direct"}))]);
    let results = [
        Answered { name: "weather", is_json: true, ..answered("toolu_01A", "{\"sky\":\"sun\"}") },
        Answered {
            code: Some("timed_out"),
            ..answered("functions.search:0", "Tool error: timed out after 5 s")
        },
        answered("toolu_01A", ""),
        Answered { provider_id: None, ..answered("turn:3", "é\n\u{1F33B}") },
        Answered { is_free_text: true, ..answered("call_text", "rows: 2") },
    ];
    for format in OF_MESSAGES {
        golden::check(
            &format!("{}.results.json", format.as_str()),
            &render(format, &results).into(),
        );
        assert!(render(format, &[]).is_empty());
    }
    let echoed = [Answered { echo: Some(&echo), ..answered("a", "1") }];
    assert_eq!(render(Format::OpenAiResponses, &echoed)[0]["caller"]["type"], "direct");
}

#[test]
fn errors_have_their_prefix_in_every_format() {
    let failed = [Answered { code: Some("timed_out"), ..answered("a", "Tool error: no luck") }];
    for format in OF_MESSAGES {
        let messages = Value::from(render(format, &failed)).to_string();
        assert!(messages.contains("\"Tool error: no luck\""), "{messages}");
    }
}

#[test]
fn a_message_of_two_shapes_must_be_named() {
    let body = r#"{"tool_calls":[{"id":"a","function":{"name":"t","arguments":"{}"}}],
        "output":[{"type":"function_call","call_id":"b","name":"u","arguments":"{}"}]}"#;
    assert_eq!(code(super::read(body, None)), "message_ambiguous");
    let named = super::read(body, Some("openai-responses")).unwrap();
    assert_eq!(named.calls[0].name, "u");
    let in_envelope = format!(r#"{{"message":{body},"format":"openai-chat"}}"#);
    assert_eq!(super::read(&in_envelope, None).unwrap().calls[0].name, "t");
}

#[test]
fn what_has_no_known_shape_is_not_taken_for_a_message_without_calls() {
    for body in [
        "{}",
        "[]",
        "7",
        r#"[{"type":"tool_use","id":"a","name":"t","input":{}}]"#,
        r#"{"role":"assistant","content":[{"toolUse":{"toolUseId":"a","name":"t","input":{}}}]}"#,
        r#"{"role":"model","content":"hi"}"#,
        r#"{"steps":[{"type":"function_call","id":"a","name":"t","arguments":{}}]}"#,
        r#"[{"role":"user","content":"hi"},{"role":"assistant","tool_calls":[]}]"#,
    ] {
        let code = code(super::read(body, None));
        assert!(["format_unrecognised", "message_unreadable"].contains(&code), "{body}: {code}");
    }
}

#[test]
fn formats_are_named_for_messages_and_for_lists() {
    for format in Format::ALL {
        assert_eq!(Format::of_tools(format.as_str()), Ok(format));
    }
    assert_eq!(code(Format::of_messages("mcp")), "format_unsupported");
    assert_eq!(code(Format::of_messages("OpenAI-Chat")), "format_unknown");
    assert_eq!(code(Format::of_tools("")), "format_unknown");
}
