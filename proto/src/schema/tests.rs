use super::*;
use proptest::prelude::*;

fn schema(schema: &Value) -> Schema {
    Schema::compile(schema).unwrap()
}

fn refusal(schema: &Value) -> &'static str {
    Schema::compile(schema).unwrap_err().code
}

fn issues(definition: &Value, value: &Value) -> String {
    describe_issues(&schema(definition).issues(value))
}

fn admitted(definition: &Value, arguments: &str) -> Result<String, String> {
    schema(definition).admit(&Json::parse(arguments).unwrap()).map(|json| json.to_text())
}

#[test]
fn schemas_that_never_end_are_refused() {
    for endless in [
        json!({"$ref": "#"}),
        json!({"$ref": ""}),
        json!({"$ref": "#/$defs/a", "$defs": {
            "a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}}),
        json!({"$defs": {"a": {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/a"}]}}}),
        json!({"$id": "https://a.example/b", "$defs": {"p": {"$id": "part", "$ref": "/part"}}}),
        json!({"$dynamicAnchor": "node", "anyOf": [{"$dynamicRef": "#node"}]}),
        json!({"$schema": "https://json-schema.org/draft/2019-09/schema",
            "$recursiveAnchor": true, "if": {"$recursiveRef": "#"}}),
    ] {
        assert_eq!(refusal(&endless), "schema.endless", "{endless}");
    }
}

#[test]
fn recursion_that_goes_into_the_value_is_fine() {
    let tree = json!({"$ref": "#/$defs/node", "$defs": {"node": {
        "required": ["name"],
        "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}}});
    let value = json!({"name": "a", "children": [{"name": "b"}, {"children": []}]});
    assert_eq!(issues(&tree, &value), "children[1].name: required, but missing");
    let dynamic = json!({"$dynamicAnchor": "node", "type": "object",
        "additionalProperties": {"$dynamicRef": "#node"}});
    assert_eq!(issues(&dynamic, &json!({"a": {"b": 1}})), "a.b: expected object, got number 1");
}

#[test]
fn schemas_that_cannot_be_used_are_refused_with_a_code() {
    assert_eq!(refusal(&json!({"$ref": "https://a.example/shape.json"})), "schema.remote-ref");
    assert_eq!(refusal(&json!({"items": {"$ref": "file:///shape.json"}})), "schema.remote-ref");
    let draft_07 = "http://json-schema.org/draft-07/schema#";
    assert_eq!(refusal(&json!({"items": {"$ref": draft_07}})), "schema.remote-ref");
    assert_eq!(refusal(&json!({"items": {"$ref": "#/$defs/gone"}})), "schema.invalid");
    assert_eq!(refusal(&json!({"items": {"$ref": "#gone"}})), "schema.invalid");
    assert_eq!(refusal(&json!({"$schema": "https://a.example/draft"})), "schema.unknown-draft");
    assert_eq!(refusal(&json!({"$schema": 7})), "schema.unknown-draft");
    assert_eq!(refusal(&json!({"pattern": "("})), "schema.invalid");
    assert_eq!(refusal(&json!("text")), "schema.invalid");
    let typo = Schema::compile(&json!({"properties": {"a": {"minimum": "1"}}})).unwrap_err();
    assert_eq!(typo.to_string(), "properties.a.minimum: expected number, got string \"1\"");
}

#[test]
fn schemas_are_bounded() {
    let nested = |levels: usize| (1..levels).fold(json!({}), |inner, _| json!({"not": inner}));
    assert!(Schema::compile(&nested(CHAIN)).is_ok());
    assert_eq!(refusal(&nested(CHAIN + 1)), "schema.too-large", "a chain on one value");
    let deep = (0..DEPTH_MAX).fold(json!({}), |inner, _| json!({"items": inner}));
    assert_eq!(refusal(&deep), "schema.too-large");
    assert_eq!(refusal(&json!({"description": "x".repeat(SCHEMA_BYTES_MAX)})), "schema.too-large");
    let mut doubling = serde_json::Map::new();
    for level in 0..20 {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        doubling.insert(format!("d{level}"), json!({"allOf": [next, next]}));
    }
    doubling.insert("d20".into(), json!(true));
    assert_eq!(refusal(&json!({"$defs": doubling})), "schema.too-large", "work doubles by level");
}

const CHAIN: usize = 32;

#[test]
fn older_drafts_are_read_by_their_own_rules() {
    let old = json!({"$schema": "http://json-schema.org/draft-04/schema#",
        "properties": {"n": {"minimum": 0, "exclusiveMinimum": true}}});
    assert_eq!(issues(&old, &json!({"n": 0})), "n: expected more than 0, got number 0");
    let tuple = json!({"items": [{"type": "number"}]});
    assert_eq!(refusal(&tuple), "schema.invalid");
    let draft_07 = json!({"$schema": "http://json-schema.org/draft-07/schema#",
        "items": [{"type": "number"}]});
    assert_eq!(issues(&draft_07, &json!(["1"])), "[0]: expected number, got string \"1\"");
}

#[test]
fn issues_name_the_member_at_fault() {
    let closed = json!({"additionalProperties": false});
    assert_eq!(
        issues(&closed, &json!({"a": 1, "b.c": 2})),
        "a: not a known property; [\"b.c\"]: not a known property"
    );
    let property = json!({"properties": {"additionalProperties": false}});
    let value = json!({"additionalProperties": {"x": 1}});
    assert_eq!(issues(&property, &value), "additionalProperties: not allowed");
    let names = json!({"properties": {"m": {"propertyNames": {"maxLength": 1}}}});
    assert_eq!(
        issues(&names, &json!({"m": {"ab": 1}})),
        "m.ab: not a valid property name: expected at most 1 character, got string \"ab\""
    );
    let digits = json!({"properties": {"0": {"items": {"type": "null"}}}});
    assert_eq!(issues(&digits, &json!({"0": [1]})), "[\"0\"][0]: expected null, got number 1");
    let dependent = json!({"dependentRequired": {"card": ["cvc"]}});
    assert_eq!(issues(&dependent, &json!({"card": 1})), "cvc: required, but missing");
}

#[test]
fn issues_of_a_union_belong_to_the_branch_that_was_meant() {
    let tagged = json!({"properties": {"by": {"oneOf": [
        {"properties": {"kind": {"const": "mail"}, "to": {"format": "email"}}, "required": ["kind"]},
        {"properties": {"kind": {"const": "sms"}, "to": {"maxLength": 2}}, "required": ["kind"]},
    ]}}});
    assert_eq!(
        issues(&tagged, &json!({"by": {"kind": "sms", "to": "a@b.example"}})),
        "by.to: expected at most 2 characters, got string \"a@b.example\""
    );
    assert_eq!(
        issues(&tagged, &json!({"by": {"kind": "fax"}})),
        "by.kind: expected one of \"mail\", \"sms\", got string \"fax\""
    );
    let nullable = json!({"anyOf": [{"type": "integer", "maximum": 9}, {"type": "null"}]});
    assert_eq!(issues(&nullable, &json!(10)), "expected at most 9, got number 10");
    assert_eq!(issues(&nullable, &json!("5")), "expected integer or null, got string \"5\"");
    let tied = json!({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]});
    assert_eq!(issues(&tied, &json!({})), "fits none of the 2 allowed forms");
    let both = json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
    assert_eq!(
        issues(&both, &json!({"a": 1, "b": 1})),
        "fits more than one form where one is allowed"
    );
}

#[test]
fn issues_are_short_and_counted() {
    let huge = json!({"enum": (0..600).collect::<Vec<_>>()});
    assert_eq!(issues(&huge, &json!(600)), "expected one of 600 allowed values, got number 600");
    let many = issues(&json!({"items": {"type": "integer"}}), &json!(vec!["x"; 20_000]));
    assert!(many.starts_with("[0]: expected integer, got string \"x\"; [1]: "), "{many}");
    assert!(many.ends_with("; and 19992 more") && many.len() < 1000);
    let long = issues(&json!({"type": "integer"}), &json!("x".repeat(2_000_000)));
    assert!(long.len() < 120 && long.ends_with("…\""), "{long}");
    let member = "k".repeat(100_000);
    assert!(issues(&json!({"additionalProperties": false}), &json!({member: 1})).len() < 120);
}

#[test]
fn formats_are_asserted_and_unknown_ones_ignored() {
    let when = json!({"properties": {"w": {"format": "date-time"}, "s": {"format": "shoe-size"}}});
    assert_eq!(
        issues(&when, &json!({"w": "2026-02-30T10:00:00Z", "s": "44"})),
        "w: expected the format \"date-time\", got string \"2026-02-30T10:00:00Z\""
    );
}

#[test]
fn a_costly_pattern_gives_up() {
    let costly = json!({"pattern": "^(?:(a+)+\\1)+$(?=x)"});
    let text = format!("{}b", "a".repeat(60));
    assert_eq!(issues(&costly, &json!(text)), "too costly to match with the pattern");
}

#[test]
fn a_null_that_may_be_absent_is_absent() {
    let optional = json!({"required": ["q"], "additionalProperties": false, "properties": {
        "q": {"type": "string"}, "limit": {"type": "integer"}, "note": {"type": ["string", "null"]},
        "in": {"type": "array", "items": {"properties": {"a": {"enum": ["x"]}}}}}});
    assert_eq!(admitted(&optional, r#"{"q":"x","limit":null}"#).unwrap(), r#"{"q":"x"}"#);
    assert_eq!(
        admitted(&optional, r#"{"q":"x","note":null}"#).unwrap(),
        r#"{"q":"x","note":null}"#
    );
    assert_eq!(
        admitted(&optional, r#"{"q":"x","in":[{"a":"x"},{"a":null,"b":null}]}"#).unwrap(),
        r#"{"q":"x","in":[{"a":"x"},{"b":null}]}"#
    );
    assert_eq!(
        admitted(&optional, r#"{"q":null,"limit":null}"#).unwrap_err(),
        "q: expected string, got null"
    );
    assert_eq!(
        admitted(&optional, r#"{"q":"x","lmit":null}"#).unwrap_err(),
        "lmit: not a known property",
        "a name that the schema does not have is no optional property"
    );
    assert_eq!(
        admitted(&json!({"items": {"type": "string"}}), "[null]").unwrap_err(),
        "[0]: expected string, got null"
    );
    let union = json!({"properties": {"o": {"anyOf": [
        {"type": "object", "properties": {"a": {"type": "string"}}}, {"type": "null"}]}}});
    assert_eq!(admitted(&union, r#"{"o":{"a":null}}"#).unwrap(), r#"{"o":{}}"#);
}

#[test]
fn defaults_come_only_where_they_are_valid() {
    let defaults = json!({"properties": {
        "limit": {"type": "integer", "minimum": 1, "default": 10},
        "mode": {"enum": ["a", "b"], "default": "z"},
        "a.b/c": {"type": "boolean", "default": false},
        "sort": {"$ref": "#/$defs/sort"},
        "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}},
        "gone": {"type": "object", "properties": {"x": {"default": 1}}}},
        "$defs": {"sort": {"type": "string", "default": "date"},
            "row": {"properties": {"n": {"type": "integer", "default": 0}}}}});
    assert_eq!(
        admitted(&defaults, r#"{"limit":null,"rows":[{},{"n":12345678901234567890123}]}"#).unwrap(),
        r#"{"rows":[{"n":0},{"n":12345678901234567890123}],"limit":10,"a.b/c":false,"sort":"date"}"#
    );
    assert_eq!(
        admitted(&json!({"default": {"a": 1}}), "{}").unwrap(),
        "{}",
        "the root has a value"
    );
}

#[test]
fn defaults_that_break_the_whole_are_left_out() {
    let dependent = json!({"properties": {"card": {"default": "x"}},
        "dependentRequired": {"card": ["cvc"]}});
    assert_eq!(admitted(&dependent, "{}").unwrap(), "{}");
    let endless = json!({"properties": {"child": {"$ref": "#", "default": {}}}});
    assert_eq!(admitted(&endless, "{}").unwrap(), r#"{"child":{}}"#);
}

#[test]
fn properties_are_found_in_every_branch_of_the_root_and_not_below() {
    let schema = schema(&json!({"properties": {"a": {"properties": {"deep": true}}},
        "anyOf": [{"$ref": "#/$defs/b"}, {"not": {"properties": {"c": true}}}],
        "$defs": {"b": {"properties": {"b": true}}, "d": {"properties": {"d": true}}}}));
    for (name, is_there) in [("a", true), ("b", true), ("c", true), ("deep", false), ("d", false)] {
        assert_eq!(schema.has_property(name), is_there, "{name}");
    }
}

#[test]
fn numbers_are_judged_by_value_and_handed_on_as_written() {
    let whole = json!({"properties": {"n": {"type": "integer"}}});
    for digits in ["5", "5.0", "5e0", "1e3", "-0", "123456789012345678901234567890"] {
        let arguments = format!("{{\"n\":{digits}}}");
        assert_eq!(admitted(&whole, &arguments).unwrap(), arguments);
    }
    assert!(admitted(&whole, "{\"n\":5.5}").is_err());
    assert!(admitted(&whole, "{\"n\":\"5\"}").is_err(), "nothing is coerced");
}

proptest! {
    #[test]
    fn what_is_admitted_is_valid_and_admitted_again_unchanged(
        q in prop_oneof![Just("null".to_owned()), Just("\"x\"".into()), Just("5".into())],
        limit in prop_oneof![Just("null".to_owned()), "[0-9]{1,3}", Just("\"5\"".into())],
        note in prop_oneof![Just("null".to_owned()), Just("\"y\"".into())],
    ) {
        let schema = schema(&json!({"required": ["q"], "properties": {
            "q": {"type": "string"},
            "limit": {"type": "integer", "default": 10},
            "note": {"type": "string"}}}));
        let text = format!("{{\"q\":{q},\"limit\":{limit},\"note\":{note}}}");
        if let Ok(arguments) = Json::parse(&text)
            && let Ok(admitted) = schema.admit(&arguments)
        {
            prop_assert!(schema.is_valid(&admitted.to_value()));
            prop_assert_eq!(schema.admit(&admitted).unwrap(), admitted);
        }
    }
}
