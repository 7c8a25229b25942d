//! Schemas and inputs at random: what the author's schema takes, every shown schema takes.

use super::*;
use proptest::prelude::*;
use proptest::sample::select;

/// `(the name of the draft, where its definitions stand)`.
const DRAFTS: [(&str, &str); 4] = [
    ("http://json-schema.org/draft-04/schema#", "definitions"),
    ("http://json-schema.org/draft-07/schema#", "definitions"),
    ("https://json-schema.org/draft/2019-09/schema", "$defs"),
    ("https://json-schema.org/draft/2020-12/schema", "$defs"),
];

/// Any small value.
fn value() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..6).prop_map(Value::from),
        select(vec![0.5, 2.5, -1.5]).prop_map(Value::from),
        select(vec!["", "a", "bb", "ccc"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            object_of(inner),
        ]
    })
    .boxed()
}

fn object_of(inner: impl Strategy<Value = Value> + 'static) -> impl Strategy<Value = Value> {
    let name = select(vec!["a", "b", "c", "d-e"]).prop_map(str::to_owned);
    prop::collection::btree_map(name, inner, 0..4)
        .prop_map(|members| Value::Object(members.into_iter().collect()))
}

/// A schema that says of what type a value is.
fn leaf() -> BoxedStrategy<Value> {
    prop_oneof![
        (0_u64..3, 1_u64..4)
            .prop_map(|(min, max)| json!({"type": "string", "minLength": min, "maxLength": max})),
        (-2_i64..2, 1_i64..5).prop_map(
            |(min, max)| json!({"type": ["integer", "null"], "minimum": min, "maximum": max})
        ),
        (0_i64..2).prop_map(|limit| json!({"type": "number", "MORE_THAN": limit})),
        Just(json!({"type": "boolean"})),
        Just(json!({"type": ["string", "number", "boolean"], "description": "d"})),
        prop::collection::vec(value(), 1..4).prop_map(|values| json!({"enum": values})),
        (-3_i64..6).prop_map(|value| json!({"type": "integer", "const": value})),
    ]
    .boxed()
}

/// A reference, alone or with company that some drafts ignore.
fn reference() -> BoxedStrategy<Value> {
    let to = select(vec!["#/DEFS/x", "#/DEFS/y", "#/properties/a", "#/properties/b"]);
    (to, any::<bool>())
        .prop_map(|(to, is_alone)| {
            if is_alone {
                json!({"$ref": to})
            } else {
                json!({"$ref": to, "minimum": 3, "minLength": 2, "description": "r"})
            }
        })
        .boxed()
}

fn below_the_root() -> BoxedStrategy<Value> {
    let plain = prop_oneof![3 => leaf(), 1 => reference()];
    plain
        .prop_recursive(3, 16, 3, |inner| {
            let inner = inner.boxed();
            let several = prop::collection::vec(inner.clone(), 1..4);
            prop_oneof![
                object(inner.clone()),
                inner
                    .clone()
                    .prop_map(|items| json!({"type": "array", "items": items, "maxItems": 2})),
                several
                    .clone()
                    .prop_map(|items| json!({"type": "array", "TUPLE": items, "REST": false})),
                (several.clone(), inner.clone()).prop_map(
                    |(items, rest)| json!({"type": "array", "TUPLE": items, "REST": rest})
                ),
                (several.clone(), select(vec!["anyOf", "oneOf", "allOf"]))
                    .prop_map(|(variants, key)| json!({key: variants, "description": "v"})),
                (object(inner.clone()), several, select(vec!["anyOf", "oneOf", "allOf"])).prop_map(
                    |(mut object, variants, key)| {
                        object[key] = Value::from(variants);
                        object
                    }
                ),
                (object(inner.clone()), inner).prop_map(|(mut object, condition)| {
                    object["dependencies"] = json!({"a": ["b"], "c": condition});
                    object
                }),
            ]
        })
        .boxed()
}

fn object(inner: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    let required = prop::collection::btree_set(select(vec!["a", "b"]), 0..2);
    let rest = prop_oneof![
        Just(None),
        any::<bool>().prop_map(|is_open| Some(json!(is_open))),
        inner.clone().prop_map(Some)
    ];
    (object_of(inner), required, rest)
        .prop_map(|(properties, required, rest)| {
            let mut object = json!({"type": "object", "properties": properties});
            if !required.is_empty() {
                object["required"] = json!(required);
            }
            if let Some(rest) = rest {
                object["additionalProperties"] = rest;
            }
            object
        })
        .boxed()
}

/// A whole input schema: the words that differ between drafts are put in.
fn author() -> BoxedStrategy<Value> {
    (object(below_the_root()), leaf(), below_the_root(), select(DRAFTS.to_vec()))
        .prop_map(|(mut root, x, y, (draft, definitions))| {
            root["DEFS"] = json!({"x": x, "y": y});
            for name in ["a", "b"] {
                // What references into properties lead to.
                let properties = root["properties"].as_object_mut().unwrap();
                properties.entry(name).or_insert_with(|| json!({"$ref": "#/DEFS/x", "minimum": 3}));
            }
            let is_newest = draft.contains("2020");
            let (tuple, rest) =
                if is_newest { ("prefixItems", "items") } else { ("items", "additionalItems") };
            let mut text = root.to_string();
            for (word, name) in [("DEFS", definitions), ("TUPLE", tuple), ("REST", rest)] {
                text = text.replace(word, name);
            }
            let limit = if draft.contains("draft-04") {
                "\"exclusiveMinimum\":true,\"minimum\":"
            } else {
                "\"exclusiveMinimum\":"
            };
            let text = text.replace("\"MORE_THAN\":", limit);
            let mut author: Value = serde_json::from_str(&text).unwrap();
            author["$schema"] = json!(draft);
            author
        })
        .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_global_rejects: 100_000, ..ProptestConfig::default() })]

    #[test]
    fn what_any_author_takes_every_shown_schema_takes(
        author in author(),
        inputs in prop::collection::vec(object_of(value()), 40),
    ) {
        // One that refers to itself without end is none.
        let Ok(compiled) = Schema::compile(&author) else { return Err(TestCaseError::reject("no schema")) };
        let taken: Vec<&Value> = inputs.iter().filter(|input| compiled.is_valid(input)).collect();
        let sample = Sample {
            name: "t".into(), description: "d".into(), effect: Effect::Read, tags: Vec::new(),
            input: author.clone(), output: None, takes: Vec::new(), refuses: Vec::new(),
        };
        let offers = BTreeMap::from([("t".to_owned(), sample.offer())]);
        for (name, wish) in wishes() {
            let list = list(&wish, &offers).0;
            let tool = &tools(&list)[0];
            let Some(shown) = schema(tool) else { continue };
            if wish.format != Format::Native {
                let mut all = shown.clone();
                walk::rewrite(&mut all, &mut |keywords| check_node(&wish, keywords, &name));
            }
            let shown = if wish.is_openapi { of_openapi(shown) } else { shown.clone() };
            let compiled = Schema::compile(&shown);
            prop_assert!(compiled.is_ok(), "{}: {}: {:?}", name, shown, compiled.err());
            let compiled = compiled.unwrap();
            for input in &taken {
                let issues = compiled.issues(input);
                prop_assert!(issues.is_empty(), "{}: {} refuses {}: {:?}", name, shown, input, issues);
            }
        }
    }
}
