use super::*;

fn shown(property: Value) -> Value {
    let schema = json!({"type": "object", "properties": {"a": property},
    "$defs": {
        "city": {"type": "string", "minLength": 2, "description": "a city"},
        "node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"type": "integer"}}},
    }});
    parameters(&schema).unwrap()["properties"]["a"].clone()
}

#[test]
fn one_type_each_and_null_is_a_word_beside_it() {
    assert_eq!(
        shown(json!({"type": ["string", "null"]})),
        json!({"type": "string", "nullable": true})
    );
    let union = shown(json!({"type": ["integer", "string", "null"], "minimum": 1, "minLength": 2}));
    let wanted = json!({"anyOf": [{"type": "integer", "minimum": 1, "nullable": true},
        {"type": "string", "minLength": 2}]});
    assert_eq!(union, wanted);
    let optional = json!({"anyOf": [{"type": "string"}, {"type": "null"}], "default": null, "description": "d"});
    assert_eq!(shown(optional), json!({"type": "string", "description": "d", "nullable": true}));
    assert_eq!(shown(json!({"type": "null"}))["nullable"], true);
}

#[test]
fn a_schema_without_a_type_gets_the_one_that_its_keywords_speak_of() {
    for (schema, kind) in [
        (json!({"properties": {"x": {"type": "string"}}}), "object"),
        (json!({"minItems": 1}), "array"),
        (json!({"pattern": "a"}), "string"),
        (json!({"multipleOf": 2}), "number"),
        (json!({"const": 3}), "integer"),
        (json!({"enum": ["a", "b"]}), "string"),
    ] {
        assert_eq!(shown(schema.clone())["type"], kind, "{schema}");
    }
    let anything = shown(json!({"description": "any"}));
    let kinds: Vec<&str> = anything["anyOf"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|variant| variant["type"].as_str())
        .collect();
    assert_eq!(kinds, ["string", "number", "boolean", "object", "array"]);
    assert_eq!(
        (&anything["anyOf"][0]["nullable"], &anything["anyOf"][0]["description"]),
        (&json!(true), &json!("any"))
    );
    assert_eq!(shown(json!(true)), shown(json!({})));
}

#[test]
fn enums_are_of_text_and_other_values_stand_in_words() {
    let text = shown(json!({"type": ["string", "null"], "enum": ["a", "b", null]}));
    assert_eq!(text, json!({"type": "string", "enum": ["a", "b"], "nullable": true}));
    let numbers = shown(json!({"type": "integer", "enum": [1, 2], "description": "Level."}));
    assert_eq!(numbers, json!({"type": "integer", "description": "Level. One of 1, 2."}));
    let empty = shown(json!({"enum": ["", "x"]}));
    assert_eq!(empty, json!({"type": "string", "description": "One of \"\", \"x\"."}));
    let mixed = shown(json!({"enum": ["a", 1, true]}));
    let wanted = json!({"anyOf": [{"type": "string", "enum": ["a"]},
        {"type": "integer", "description": "One of 1."}, {"type": "boolean", "description": "One of true."}]});
    assert_eq!(mixed, wanted);
    let many: Vec<u32> = (0..50).collect();
    let told = shown(json!({"enum": many}))["description"].as_str().unwrap().to_owned();
    assert!(told.ends_with("19, …."), "{told}");
}

#[test]
fn references_are_written_out_and_circles_end_in_a_type() {
    let city = shown(json!({"$ref": "#/$defs/city", "description": "where from"}));
    assert_eq!(city, json!({"type": "string", "description": "where from", "minLength": 2}));
    let node = shown(json!({"$ref": "#/$defs/node"}));
    assert_eq!(node["properties"]["next"], json!({"type": "object"}));
    assert_eq!(node["properties"]["n"], json!({"type": "integer"}));
    assert_eq!(shown(json!({"$ref": "#elsewhere"})), shown(json!({})));
}

#[test]
fn all_of_adds_up_and_any_of_stands_alone() {
    let all = shown(
        json!({"allOf": [{"type": "string"}, {"minLength": 2}, {"$ref": "#/$defs/city"}], "maxLength": 9}),
    );
    assert_eq!(
        all,
        json!({"type": "string", "description": "a city", "minLength": 2, "maxLength": 9})
    );
    let any = shown(json!({"type": "object", "description": "Pays.", "required": ["kind"],
        "properties": {"kind": {"type": "string"}},
        "oneOf": [{"properties": {"kind": {"const": "card"}}, "description": "By card."}, {"required": ["iban"], "properties": {"iban": {"type": "string"}}}]}));
    assert_eq!(any.as_object().unwrap().len(), 1);
    let first = &any["anyOf"][0];
    assert_eq!(
        (&first["type"], &first["description"]),
        (&json!("object"), &json!("Pays. By card."))
    );
    assert_eq!(first["properties"]["kind"], json!({"type": "string", "enum": ["card"]}));
    assert_eq!(any["anyOf"][1]["required"], json!(["kind", "iban"]));
    let open = shown(json!({"anyOf": [{"type": "string"}, true]}));
    assert!(open["anyOf"].as_array().unwrap().len() > 4, "{open}");
    let nested = shown(
        json!({"anyOf": [{"anyOf": [{"type": "string"}, {"type": "integer"}]}, {"type": "boolean"}]}),
    );
    assert_eq!(nested["anyOf"].as_array().unwrap().len(), 3);
}

#[test]
fn what_the_form_cannot_say_stands_in_the_description() {
    let text = shown(
        json!({"type": "string", "format": "uri", "pattern": "^(?=h)", "default": "x", "not": {"const": "y"}}),
    );
    let told = "Format: uri. Pattern: `^(?=h)`. Default: \"x\". Further conditions hold.";
    assert_eq!(text, json!({"type": "string", "description": told}));
    let number = shown(
        json!({"type": "number", "exclusiveMinimum": 0, "maximum": 9, "exclusiveMaximum": 9.5, "multipleOf": 0.5}),
    );
    assert_eq!(number["description"], "More than 0. Less than 9.5. A multiple of 0.5.");
    assert_eq!((&number["minimum"], &number["maximum"]), (&json!(0), &json!(9)));
    let map =
        shown(json!({"type": "object", "additionalProperties": {"type": ["number", "null"]}}));
    assert_eq!(map["description"], "Other keys are free, with values of type number or null.");
    let tuple = shown(
        json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}, {"type": "string"}], "items": false, "uniqueItems": true}),
    );
    assert_eq!(tuple["items"], json!({"anyOf": [{"type": "string"}, {"type": "number"}]}));
    assert_eq!(
        tuple["description"],
        "Items in order: string, number, string. No item stands twice."
    );
    assert_eq!(shown(json!({"type": "string", "format": "date-time"}))["format"], "date-time");
    assert_eq!(shown(json!({"type": "integer", "format": "int64"}))["format"], "int64");
}

#[test]
fn names_that_the_provider_refuses_are_told_in_words() {
    let long = "x".repeat(65);
    let object = shown(json!({"type": "object", "required": ["a.b", "ok"],
        "properties": {"ok": {"type": "string"}, "a.b": {"type": "string"}, "": {}, &long: {}, "never": false}}));
    assert_eq!(
        (&object["required"], &object["propertyOrdering"]),
        (&json!(["ok"]), &json!(["ok"]))
    );
    let told = object["description"].as_str().unwrap();
    assert!(told.starts_with("It may also have \"a.b\", \"\", \"xxx"), "{told}");
}

#[test]
fn the_order_of_properties_is_said_and_no_properties_are_nothing() {
    let schema =
        json!({"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "string"}}});
    assert_eq!(parameters(&schema).unwrap()["propertyOrdering"], json!(["z", "a"]));
    assert_eq!(parameters(&json!({"type": "object", "properties": {}})), None);
    let map = parameters(
        &json!({"type": "object", "properties": {}, "additionalProperties": {"type": "string"}}),
    );
    let told = "Other keys are free, with values of type string.";
    assert_eq!(map, Some(json!({"type": "object", "description": told})));
}

#[test]
fn what_doubles_at_each_step_is_cut() {
    let mut definitions = Map::new();
    for n in 0..40 {
        let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
        definitions.insert(
            format!("d{n}"),
            json!({"type": "object", "properties": {"l": next, "r": next}, "anyOf": [next, next]}),
        );
    }
    definitions.insert("d40".into(), json!({"type": "object"}));
    let schema = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": definitions});
    assert!(parameters(&schema).unwrap().to_string().len() < 2_000_000);
}
