//! What has gone wrong with schemas elsewhere, and must not go wrong here.
#![expect(
    clippy::unwrap_used,
    reason = "this is how a test fails, also in the functions that tests share"
)]

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use toolfleet_proto::json::Json;
use toolfleet_proto::schema::Schema;

/// A verdict comes within 100 ms; a machine busy with other tests is given ten times that.
const VERDICT: Duration = Duration::from_secs(1);

fn compile(text: &str) -> Result<Schema, &'static str> {
    let started = Instant::now();
    let schema = Schema::compile(&serde_json::from_str(text).unwrap()).map_err(|error| error.code);
    assert!(started.elapsed() < VERDICT, "{text} took {:?}", started.elapsed());
    schema
}

fn admit(schema: &Schema, arguments: &str) -> Result<String, String> {
    let started = Instant::now();
    let admitted = schema.admit(&Json::parse(arguments).unwrap()).map(|json| json.to_text());
    assert!(started.elapsed() < VERDICT, "{arguments} took {:?}", started.elapsed());
    admitted
}

#[test]
fn references_that_come_back_to_themselves_end_nothing() {
    for (text, code) in [
        (r#"{"$ref": ""}"#, "schema.endless"),
        (r##"{"$ref": "#"}"##, "schema.endless"),
        (
            r##"{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
                "$ref": "#/$defs/a"}"##,
            "schema.endless",
        ),
        (
            r##"{"$defs": {"root": {"oneOf": [{"type": "object", "properties": {"n": {"type": "number"}}},
                {"$ref": "#/$defs/root"}]}}, "type": "object",
                "patternProperties": {".*": {"$ref": "#/$defs/root"}}}"##,
            "schema.endless",
        ),
        (
            r##"{"type": "object", "properties": {"x": {"$ref": "#/$defs/missing"}}}"##,
            "schema.invalid",
        ),
    ] {
        assert_eq!(compile(text).err(), Some(code), "{text}");
    }
    // Goes into the value with each round, so it ends with the value.
    let closed = r##"{"type": "object", "allOf": [{"$ref": "#/$defs/p"}], "unevaluatedProperties": false,
        "$defs": {"p": {"type": "object", "required": ["q"], "properties": {
            "q": {"allOf": [{"$ref": "#/$defs/p"}], "unevaluatedProperties": false}}}}}"##;
    let refusal = admit(&compile(closed).unwrap(), r#"{"x": {"n": 3}}"#).unwrap_err();
    assert!(refusal.contains("q: required, but missing"), "{refusal}");
}

#[test]
fn an_honest_recursive_schema_tells_the_full_path() {
    let text = r##"{"type": "object", "properties": {"root": {"$ref": "#/$defs/node"}},
        "required": ["root"], "$defs": {"node": {"type": "object", "properties": {
            "name": {"type": "string"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["name"], "additionalProperties": false}}}"##;
    let schema = compile(text).unwrap();
    let deep = r#"{"root":{"name":"a","children":[{"name":"b","children":[{"name":"c","children":[{"name":"d"}]}]}]}}"#;
    assert_eq!(admit(&schema, deep).unwrap(), deep);
    let bad =
        r#"{"root":{"name":"a","children":[{"name":"b","children":[{"name":"ok"},{"name":7}]}]}}"#;
    assert_eq!(
        admit(&schema, bad).unwrap_err(),
        "root.children[0].children[1].name: expected string, got number 7"
    );
}

#[test]
fn the_authors_schema_judges_and_every_key_of_a_map_arrives() {
    for (text, arguments) in [
        (
            r#"{"type":"object","properties":{"labels":{"type":"object","additionalProperties":{"type":"number"}}},"required":["labels"]}"#,
            r#"{"labels":{"cpu":1.5,"mem":2}}"#,
        ),
        (
            r#"{"type":"object","properties":{"any":{"type":"object","additionalProperties":true}},"required":["any"]}"#,
            r#"{"any":{"k":[1,{"z":null}]}}"#,
        ),
        (
            r#"{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":{}}"#,
            r#"{"a":"x","extra":1}"#,
        ),
        (r#"{"properties":{"a":{"type":"string"}}}"#, r#"{"a":"x"}"#),
        (
            r#"{"type":"object","properties":{"opt":{"type":["object","null"],"properties":{"a":{"type":"string"}}}}}"#,
            r#"{"opt":{"a":"x"}}"#,
        ),
        (
            r#"{"type":"object","properties":{"must":{"type":"string"},"may":{"type":"string"}},"required":["must"]}"#,
            r#"{"must":"x"}"#,
        ),
    ] {
        assert_eq!(admit(&compile(text).unwrap(), arguments).unwrap(), arguments, "{text}");
    }
}

#[test]
fn empty_and_half_empty_schemas_take_what_they_say() {
    let open = [
        "{}",
        "true",
        r#"{"type": "object"}"#,
        r#"{"$schema": "http://json-schema.org/draft-07/schema#"}"#,
    ];
    for text in open {
        let schema = compile(text).unwrap();
        for arguments in ["{}", r#"{"extra":1}"#] {
            assert_eq!(admit(&schema, arguments).unwrap(), arguments, "{text}");
        }
    }
    let closed = compile(r#"{"type": "object", "additionalProperties": false}"#).unwrap();
    assert_eq!(admit(&closed, "{}").unwrap(), "{}");
    assert_eq!(admit(&closed, r#"{"extra":1}"#).unwrap_err(), "extra: not a known property");
    for text in [
        r#"{"type": "object", "properties": null}"#,
        r#"{"type": "object", "properties": {}, "required": null}"#,
    ] {
        assert_eq!(compile(text).err(), Some("schema.invalid"), "{text}");
    }
}

#[test]
fn patterns_are_judged_in_time_or_refused_at_load() {
    let slow = compile(r#"{"properties": {"slow": {"pattern": "^(a+)+$"}}}"#).unwrap();
    let text = format!("{{\"slow\":\"{}!\"}}", "a".repeat(64));
    assert!(admit(&slow, &text).unwrap_err().starts_with("slow: expected a match of"));

    let ahead = r#"{"properties": {"ahead": {"pattern": "^(?=.*[0-9])(?=.*[a-z]).{8,}$"}}}"#;
    let ahead = compile(ahead).unwrap();
    assert!(admit(&ahead, r#"{"ahead":"abcdefgh"}"#).unwrap_err().starts_with("ahead: "));
    assert!(admit(&ahead, r#"{"ahead":"abcdefg1"}"#).is_ok());

    // A million repetitions: larger than an engine may become.
    let blowup = compile(r#"{"properties": {"blowup": {"pattern": "^(((a{100}){100}){100})$"}}}"#);
    assert_eq!(blowup.err(), Some("schema.invalid"));
}

#[test]
fn many_costly_matches_cost_no_more_than_one() {
    let costly = compile(r#"{"items": {"pattern": "^(?:(a+)+\\1)+$(?=x)"}}"#).unwrap();
    let item = format!("{}b", "a".repeat(40));
    let many = Value::from(vec![item; 5_000]);
    let refusal = admit(&costly, &many.to_string()).unwrap_err();
    assert_eq!(refusal, "[0]: too costly to match with the pattern");
    // Also where another fault comes first.
    let mixed = compile(
        r#"{"required": ["a"], "properties": {"a": {"type": "string"}},
            "additionalProperties": {"items": {"pattern": "^(?:(a+)+\\1)+$(?=x)"}}}"#,
    );
    let refusal = admit(&mixed.unwrap(), &format!("{{\"a\":1,\"b\":{many}}}")).unwrap_err();
    assert!(refusal.contains("a: expected string") || refusal.contains("too costly"), "{refusal}");
}

#[test]
fn formats_are_asserted_and_an_invalid_default_is_never_filled_in() {
    let schema = compile(
        r#"{"type": "object", "required": ["when"], "properties": {
            "when": {"type": "string", "format": "date-time"},
            "mail": {"type": "string", "format": "email"},
            "limit": {"type": "integer", "minimum": 1, "default": 10},
            "mode": {"type": "string", "enum": ["a", "b"], "default": "z"}}}"#,
    )
    .unwrap();
    for (arguments, place) in [
        (r#"{"when": "tomorrow"}"#, "when: "),
        (r#"{"when": "2026-02-30T10:00:00Z"}"#, "when: "),
        (r#"{"when": "2026-02-03T10:00:00Z", "mail": "not-an-address"}"#, "mail: "),
    ] {
        let refusal = admit(&schema, arguments).unwrap_err();
        assert!(refusal.starts_with(&format!("{place}expected the format")), "{refusal}");
    }
    assert_eq!(
        admit(&schema, r#"{"when":"2026-02-03T10:00:00Z"}"#).unwrap(),
        r#"{"when":"2026-02-03T10:00:00Z","limit":10}"#
    );
}

#[test]
fn a_whole_number_is_one_however_it_is_written() {
    let schema = compile(r#"{"properties": {"n": {"type": "integer"}}}"#).unwrap();
    for digits in ["5", "5.0", "5e0", "1e3"] {
        let arguments = format!("{{\"n\":{digits}}}");
        assert_eq!(admit(&schema, &arguments).unwrap(), arguments);
    }
    assert_eq!(admit(&schema, r#"{"n":5.5}"#).unwrap_err(), "n: expected integer, got number 5.5");
}

#[test]
fn a_refusal_never_repeats_a_large_value() {
    let schema = Schema::compile(&json!({"properties": {"retries": {"type": "integer"},
        "ids": {"type": "array", "items": {"type": "integer"}}}}))
    .unwrap();
    let secret = "CANARY-s3cr3ts3cr3ts3cr3ts3cr3t";
    let long = format!("{{\"retries\":\"{}{secret}\"}}", "x".repeat(2 * 1024 * 1024));
    let refusal = admit(&schema, &long).unwrap_err();
    assert!(!refusal.contains("CANARY") && refusal.len() < 200, "{refusal}");
    let many = json!({"ids": vec!["bad"; 20_000]}).to_string();
    let refusal = admit(&schema, &many).unwrap_err();
    assert!(refusal.ends_with("; and 19992 more") && refusal.len() < 1_024, "{refusal}");
}

#[test]
fn each_draft_is_read_by_its_own_rules() {
    for (draft, schema, good, bad, place) in [
        (
            "http://json-schema.org/draft-04/schema#",
            r#""properties": {"n": {"minimum": 0, "exclusiveMinimum": true}}"#,
            r#"{"n":1}"#,
            r#"{"n":0}"#,
            "n: expected more than 0",
        ),
        (
            "http://json-schema.org/draft-06/schema#",
            r##""definitions": {"id": {"const": 7}}, "properties": {"n": {"$ref": "#/definitions/id"}}"##,
            r#"{"n":7}"#,
            r#"{"n":8}"#,
            "n: expected 7",
        ),
        (
            "http://json-schema.org/draft-07/schema",
            r#""dependencies": {"until": ["from"]}, "if": {"required": ["x"]}, "then": {"required": ["y"]}"#,
            r#"{"x":1,"y":2}"#,
            r#"{"until":1}"#,
            "from: required",
        ),
        (
            "https://json-schema.org/draft/2019-09/schema",
            r##""$defs": {"p": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/p"}},
                "dependentRequired": {"a": ["b"]}, "unevaluatedProperties": {"type": "integer"}"##,
            r#"{"a":"x","b":1}"#,
            r#"{"a":"x"}"#,
            "b: required",
        ),
        (
            "https://json-schema.org/draft/2020-12/schema",
            r#""properties": {"at": {"prefixItems": [{"type": "number"}], "items": false}}"#,
            r#"{"at":[1]}"#,
            r#"{"at":[1,2]}"#,
            "at[1]: not allowed",
        ),
    ] {
        let schema = compile(&format!("{{\"$schema\": \"{draft}\", {schema}}}")).unwrap();
        assert_eq!(admit(&schema, good).unwrap(), good, "{draft}");
        let refusal = admit(&schema, bad).unwrap_err();
        assert!(refusal.starts_with(place), "{draft}: {refusal}");
    }
}
