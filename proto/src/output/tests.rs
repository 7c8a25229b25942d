use super::*;
use proptest::prelude::*;
use serde_json::json;

fn captured(bytes: &[u8]) -> Produced<'_> {
    Produced::Captured { bytes, whole_bytes: bytes.len() as u64, invalid_utf8_at: None }
}

fn as_json(text: &str) -> Rendered {
    render(captured(text.as_bytes()), ResultForm::Json, None, 1000)
}

fn as_envelope(text: &str, schema: Option<&Schema>) -> Rendered {
    render(captured(text.as_bytes()), ResultForm::Envelope, schema, 1000)
}

fn message(rendered: &Rendered) -> (Option<Code>, &str) {
    (rendered.code, &rendered.text)
}

#[test]
fn text_is_verbatim() {
    for text in ["", "\n", "  a \r\n", "{\"content\":[]}", "Tool error: no", "null"] {
        let rendered = render(captured(text.as_bytes()), ResultForm::Text, None, 1000);
        assert_eq!(message(&rendered), (None, text));
        assert_eq!(render(Produced::Text(text), ResultForm::Text, None, 1000), rendered);
    }
}

#[test]
fn json_is_compact_with_its_digits() {
    let rendered = as_json("\u{feff} {\"b\": 123456789012345678901234567890,\n \"a\": 1.0}\n");
    assert_eq!(rendered.text, "{\"b\":123456789012345678901234567890,\"a\":1.0}");
    assert_eq!(rendered.structured.as_deref(), Some(rendered.text.as_str()));
    for text in ["null", "\"\"", "[]"] {
        let rendered = as_json(text);
        assert_eq!(message(&rendered), (None, text));
        assert_eq!(rendered.structured, None, "only an object is structured content");
    }
}

#[test]
fn what_is_not_json_is_the_tools_bug() {
    for text in ["{\"mean\": NaN, \"n\": 0}", "", "1 2", "{\"a\":1,}"] {
        let rendered = as_json(text);
        assert_eq!(rendered.code, Some(Code::InvalidOutput));
        assert!(rendered.text.starts_with("invalid output: not valid JSON: "), "{text}");
        assert_eq!(rendered.form, ResultForm::Text);
    }
    let twice = as_json("{\"a\":1,\"a\":2}");
    assert_eq!(twice.text, "invalid output: a: duplicate key");
}

#[test]
fn an_output_is_checked_against_its_schema() {
    let schema = Schema::compile(&json!({"properties": {"n": {"type": "integer"}}})).unwrap();
    let bad = render(captured(b"{\"n\":\"5\"}"), ResultForm::Json, Some(&schema), 1000);
    assert_eq!(
        message(&bad),
        (Some(Code::InvalidOutput), "invalid output: n: expected integer, got string \"5\"")
    );
    let good = render(Produced::Json("{\"n\":5}"), ResultForm::Json, Some(&schema), 1000);
    assert_eq!(message(&good), (None, "{\"n\":5}"));
    let text = Schema::compile(&json!({"type": "string", "maxLength": 2})).unwrap();
    assert_eq!(render(Produced::Text("ab"), ResultForm::Text, Some(&text), 9).code, None);
    let long = render(Produced::Text("abc"), ResultForm::Text, Some(&text), 1000);
    assert_eq!(long.code, Some(Code::InvalidOutput));
}

#[test]
fn an_output_kept_in_part_is_cut_and_never_an_error() {
    let schema = Schema::compile(&json!({"type": "array"})).unwrap();
    let bytes = "{\"a\":\"中中".as_bytes();
    let bytes = &bytes[..bytes.len() - 1];
    for form in [ResultForm::Text, ResultForm::Json, ResultForm::Envelope] {
        let produced = Produced::Captured { bytes, whole_bytes: 2_000_000, invalid_utf8_at: None };
        let rendered = render(produced, form, Some(&schema), 1000);
        assert_eq!(rendered.code, None);
        assert_eq!(
            rendered.text,
            "{\"a\":\"中\n[result truncated: 2,000,000 bytes, the first 9 kept]"
        );
        assert!(rendered.is_truncated && rendered.structured.is_none());
    }
}

#[test]
fn bytes_that_are_not_utf8_are_named() {
    let bad = Some((Some(Code::InvalidOutput), "invalid output: not valid UTF-8 at byte 2"));
    let seen = render(captured(b"ab\xff"), ResultForm::Text, None, 1000);
    assert_eq!(Some(message(&seen)), bad);
    let ends_inside = render(captured(b"ab\xe4\xb8"), ResultForm::Text, None, 1000);
    assert_eq!(Some(message(&ends_inside)), bad);
    let produced =
        Produced::Captured { bytes: b"ab", whole_bytes: 9_000, invalid_utf8_at: Some(2) };
    assert_eq!(Some(message(&render(produced, ResultForm::Json, None, 1000))), bad);
}

#[test]
fn an_envelopes_parts_become_text() {
    let rendered = as_envelope(
        r#"{"content":[{"type":"text","text":"one"},{"type":"text","text":"two"},
            {"type":"image","mimeType":"image/png","data":"AAAAAA=="},
            {"type":"resource","resource":{"uri":"file:///a","text":"abc"}},
            {"type":"resource_link","uri":"file:///b","name":"b"}],
            "structuredContent":{"n": 1.0}}"#,
        None,
    );
    assert_eq!(
        message(&rendered),
        (
            None,
            "one\ntwo\n[image image/png, 4 bytes]\n[resource file:///a, 3 bytes]\n[link file:///b]"
        )
    );
    assert_eq!(rendered.structured.as_deref(), Some("{\"n\":1.0}"));
    assert_eq!(message(&as_envelope(r#"{"content":[]}"#, None)), (None, ""));
    let bare = as_envelope(r#"{"structuredContent":{"n":1}}"#, None);
    assert_eq!(message(&bare), (None, "{\"n\":1}"));
}

#[test]
fn an_envelope_can_carry_an_error() {
    let failed = as_envelope(r#"{"content":[{"type":"text","text":"no"}],"isError":true}"#, None);
    assert_eq!(message(&failed), (Some(Code::ToolError), "no"));
    let silent = as_envelope(r#"{"content":[],"isError":true}"#, None);
    assert!(!silent.text.is_empty());
}

#[test]
fn a_malformed_envelope_is_the_tools_bug() {
    let schema = Schema::compile(&json!({"required": ["n"]})).unwrap();
    for (text, issue) in [
        ("[]", "expected an envelope, an object with content"),
        ("{}", "content: expected an array of parts"),
        (r#"{"content":[{"text":"a"}]}"#, "content[0].type: required, but missing"),
        (r#"{"content":[{"type":"text","text":1}]}"#, "content[0].text: expected string"),
        (r#"{"content":[],"isError":"yes"}"#, "isError: expected boolean"),
        (r#"{"content":[]}"#, "structuredContent: required, but missing"),
        (r#"{"content":[],"structuredContent":{}}"#, "n: required, but missing"),
    ] {
        let rendered = as_envelope(text, Some(&schema));
        let expected = format!("invalid output: {issue}");
        assert_eq!(message(&rendered), (Some(Code::InvalidOutput), expected.as_str()));
    }
}

#[test]
fn structured_content_over_the_bound_is_left_out() {
    let rendered = render(Produced::Json("{\"a\":\"bcdef\"}"), ResultForm::Json, None, 5);
    assert!(rendered.is_truncated && rendered.structured.is_none());
    assert_eq!((rendered.whole_bytes, rendered.kept_bytes), (13, 5));
}

proptest! {
    #[test]
    fn whatever_comes_is_bounded(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            "[ \\[\\]{}:,\"a0-9é中\n]{0,120}".prop_map(String::into_bytes),
        ],
        form in prop_oneof![
            Just(ResultForm::Text), Just(ResultForm::Json), Just(ResultForm::Envelope),
        ],
        more_bytes in prop_oneof![Just(0u64), 1u64..9_999],
        bytes_max in 1u64..200,
    ) {
        let whole_bytes = bytes.len() as u64 + more_bytes;
        let invalid_utf8_at = None;
        let produced = Produced::Captured { bytes: &bytes, whole_bytes, invalid_utf8_at };
        let lossy = String::from_utf8_lossy(&bytes);
        for rendered in [
            render(produced, form, None, bytes_max),
            render(Produced::Text(&lossy), form, None, bytes_max),
            render(Produced::Json(&lossy), form, None, bytes_max),
            render_error(Code::ToolError, &lossy, bytes_max),
        ] {
            prop_assert!(rendered.kept_bytes <= bytes_max);
            let kept = rendered.kept_bytes as usize;
            if rendered.is_truncated {
                prop_assert!(rendered.text[kept..].starts_with("\n[result truncated: "));
                prop_assert!(rendered.whole_bytes > rendered.kept_bytes);
            } else {
                prop_assert_eq!(rendered.text.len(), kept);
            }
            prop_assert!(rendered.structured.is_none_or(|s| s.len() as u64 <= bytes_max));
        }
    }
}

#[test]
fn an_envelope_says_whether_its_failure_may_pass() {
    let said = |text: &str| is_transient_failure(text.as_bytes());
    assert!(said(" {\"content\": [], \"isError\": true, \"transient\": true}\n"));
    assert!(!said("{\"content\": [], \"isError\": false, \"transient\": true}"));
    assert!(!said("{\"content\": [], \"isError\": true, \"transient\": \"yes\"}"));
    assert!(!said("{\"content\": [], \"isError\": true}"));
    assert!(!said("[true]") && !said("busy") && !is_transient_failure(b"\xff"));
}

/// What stands on standard output is one value, or it is invalid: never a guess at the last line.
#[test]
fn what_counts_as_json_and_what_as_text() {
    let sound = [
        "{\"rows\": 3}",
        "{\"rows\": 3}\r\n",
        "\u{feff}{\"rows\": 3}\n",
        "{\n  \"rows\": 3\n}\n\n",
    ];
    let unsound = [
        "Downloading model... 100%\n{\"rows\": 3}\n",
        "{\"rows\": 3}\nDeprecationWarning: soon\n",
        "{\"rows\": 1}\n{\"rows\": 3}\n",
    ];
    for text in sound {
        assert_eq!(message(&as_json(text)), (None, "{\"rows\":3}"), "{text:?}");
    }
    for text in unsound {
        let rendered = as_json(text);
        let (code, words) = message(&rendered);
        assert_eq!(code, Some(Code::InvalidOutput), "{text:?}");
        let start = format!("; it begins with {:?}", &text[..text.len().min(64)]);
        assert!(words.starts_with("invalid output: not valid JSON: "), "{words}");
        assert!(words.ends_with(&start.replace("\\n\"", "\"")), "{words} {start}");
    }
    for text in sound.into_iter().chain(unsound) {
        let rendered = render(captured(text.as_bytes()), ResultForm::Text, None, 1000);
        assert_eq!(message(&rendered), (None, text), "all of it, as it is");
    }
}
