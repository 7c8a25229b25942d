mod any_schema;

use super::*;
use crate::core::catalog::tests::plain;
use crate::core::golden;
use serde::Deserialize;
use serde_json::Map;
use std::sync::Arc;
use toolfleet_proto::effect::Effect;
use toolfleet_proto::schema::Schema;

/// A tool of `testdata/formats/tools.json`, with inputs that its schema takes and refuses.
#[derive(Deserialize)]
struct Sample {
    name: String,
    description: String,
    effect: Effect,
    #[serde(default)]
    tags: Vec<String>,
    input: Value,
    output: Option<Value>,
    takes: Vec<Value>,
    #[serde(default)]
    refuses: Vec<Value>,
}

impl Sample {
    fn offer(&self) -> Offer {
        let descriptor = Descriptor {
            name: self.name.clone(),
            description: self.description.clone(),
            effect: self.effect,
            input_schema: self.input.clone(),
            output_schema: self.output.clone(),
            tags: self.tags.clone(),
            ..plain()
        };
        Offer {
            pool: "default".into(),
            hash: descriptor.hash(),
            input: Arc::new(Schema::compile(&descriptor.input_schema).unwrap()),
            expressions: Arc::default(),
            descriptor: Arc::new(descriptor),
            is_live: true,
        }
    }
}

fn samples() -> Vec<Sample> {
    serde_json::from_str(&golden::read("tools.json")).unwrap()
}

fn offers() -> BTreeMap<String, Offer> {
    samples().iter().map(|sample| (sample.name.clone(), sample.offer())).collect()
}

fn wish(format: Format) -> Wish {
    Wish { format, tags: Vec::new(), is_strict: false, is_openapi: false }
}

/// Every kind of list there is, with the name of its golden file.
fn wishes() -> Vec<(String, Wish)> {
    let mut all: Vec<(String, Wish)> =
        Format::ALL.map(|format| (format.as_str().to_owned(), wish(format))).into();
    for format in [Format::OpenAiChat, Format::OpenAiResponses, Format::Anthropic] {
        let strict = Wish { is_strict: true, ..wish(format) };
        all.push((format!("{}.strict", format.as_str()), strict));
    }
    let openapi = Wish { is_openapi: true, ..wish(Format::Gemini) };
    all.push(("gemini.openapi".to_owned(), openapi));
    all
}

/// The tools of a list, whatever stands around them.
fn tools(list: &Value) -> Vec<Value> {
    let tools = list["tools"].as_array().unwrap();
    match tools.first().and_then(|first| first["functionDeclarations"].as_array()) {
        Some(declarations) => declarations.clone(),
        None => tools
            .iter()
            .map(|tool| {
                tool.get("function").filter(|inner| inner.is_object()).unwrap_or(tool).clone()
            })
            .collect(),
    }
}

/// The schema of a tool's input, under whichever key. `None`: it has none.
fn schema(tool: &Value) -> Option<&Value> {
    ["parameters", "input_schema", "inputSchema", "parametersJsonSchema"]
        .iter()
        .find_map(|key| tool.get(*key))
}

/// A schema of the older form in the words of JSON Schema, so that it can be asked what it takes.
fn of_openapi(schema: &Value) -> Value {
    let mut plain = schema.clone();
    if let Value::Object(keywords) = &mut plain {
        walk::below(keywords, &mut |child| *child = of_openapi(child));
        keywords.shift_remove("propertyOrdering");
        if keywords.shift_remove("nullable") == Some(json!(true)) {
            return json!({"anyOf": [plain, {"type": "null"}]});
        }
    }
    plain
}

#[test]
fn tools_are_listed_as_the_golden_files_say() {
    for (name, wish) in wishes() {
        let (list, hash) = list(&wish, &offers());
        assert_eq!((list["hash"].as_str(), hash.len()), (Some(hash.as_str()), HASH_DIGITS));
        golden::check(&format!("{name}.tools.json"), &list);
    }
}

#[test]
fn the_samples_are_what_they_say() {
    for sample in samples() {
        let author = sample.offer().input;
        for input in &sample.takes {
            assert!(author.is_valid(input), "{} takes {input}", sample.name);
        }
        for input in &sample.refuses {
            assert!(!author.is_valid(input), "{} refuses {input}", sample.name);
        }
    }
}

#[test]
fn what_the_author_takes_every_shown_schema_takes() {
    let samples = samples();
    for (name, wish) in wishes() {
        for tool in tools(&list(&wish, &offers()).0) {
            let sample = samples.iter().find(|sample| tool["name"] == sample.name).unwrap();
            let Some(shown) = schema(&tool) else {
                assert!(wish.is_openapi, "{name}: {} has no schema", sample.name);
                continue;
            };
            let shown = if wish.is_openapi { of_openapi(shown) } else { shown.clone() };
            let compiled = Schema::compile(&shown);
            let compiled = compiled.unwrap_or_else(|error| panic!("{name}: {shown}: {error}"));
            for input in &sample.takes {
                let issues = compiled.issues(input);
                assert!(issues.is_empty(), "{name}: {} takes {input}: {issues:?}", sample.name);
            }
        }
    }
}

#[test]
fn no_list_has_what_its_provider_refuses() {
    for (name, wish) in wishes().into_iter().filter(|(_, wish)| wish.format != Format::Native) {
        for tool in tools(&list(&wish, &offers()).0) {
            let told = format!("{name}: {}", tool["name"]);
            let Some(shown) = schema(&tool) else { continue };
            assert_eq!(shown["type"], "object", "{told}");
            assert!(shown["properties"].is_object(), "{told}");
            for (draft, keyword) in [("draft", "$schema"), ("draft", "definitions"), ("id", "id")] {
                assert!(shown.get(keyword).is_none(), "{told} has {keyword} of an old {draft}");
            }
            let refused: &[&str] = match wish.format {
                Format::OpenAiChat | Format::OpenAiResponses => root::OPENAI_REFUSED,
                Format::Anthropic => root::ANTHROPIC_REFUSED,
                _ => &[],
            };
            assert!(refused.iter().all(|key| shown.get(*key).is_none()), "{told}");
            let mut all = shown.clone();
            walk::rewrite(&mut all, &mut |keywords| check_node(&wish, keywords, &told));
        }
    }
}

fn check_node(wish: &Wish, keywords: &Map<String, Value>, told: &str) {
    let is_array = keywords.get("type").is_some_and(|kind| kind.to_string().contains("array"));
    match wish.format {
        Format::OpenAiChat | Format::OpenAiResponses => {
            assert!(!is_array || keywords.contains_key("items"), "{told}: {keywords:?}");
        }
        Format::Mcp => assert!(!keywords.contains_key("x-mcp-header"), "{told}: {keywords:?}"),
        Format::Gemini if wish.is_openapi => check_openapi(keywords, told),
        Format::Gemini => {
            assert!(!is_array || keywords.contains_key("items"), "{told}: {keywords:?}");
            let reference = keywords.get("$ref").map(|to| to.as_str().unwrap_or_default());
            let is_alone =
                reference.is_none_or(|to| to.starts_with("#/$defs/") && keywords.len() == 1);
            assert!(is_alone, "{told}: {keywords:?}");
        }
        _ => {}
    }
}

fn check_openapi(keywords: &Map<String, Value>, told: &str) {
    const KNOWN: [&str; 18] = [
        "type",
        "description",
        "enum",
        "format",
        "nullable",
        "properties",
        "required",
        "propertyOrdering",
        "minProperties",
        "maxProperties",
        "items",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "anyOf",
    ];
    for key in keywords.keys() {
        assert!(KNOWN.contains(&key.as_str()), "{told}: {key} in {keywords:?}");
    }
    let is_union = keywords.contains_key("anyOf");
    let has_type = keywords.get("type").is_some_and(Value::is_string);
    assert!(has_type != is_union && (!is_union || keywords.len() == 1), "{told}: {keywords:?}");
    let values = keywords.get("enum").and_then(Value::as_array).into_iter().flatten();
    assert!(
        values.into_iter().all(|value| value.as_str().is_some_and(|text| !text.is_empty())),
        "{told}"
    );
    assert!(
        keywords.get("type") != Some(&json!("array")) || keywords.contains_key("items"),
        "{told}"
    );
}

#[test]
fn strict_is_always_written_and_true_only_where_it_is_asked_for_and_fits() {
    let marked = |wish: &Wish| -> Vec<String> {
        let tools = tools(&list(wish, &offers()).0);
        assert!(tools.iter().all(|tool| tool["strict"].is_boolean()));
        let strict = tools.iter().filter(|tool| tool["strict"] == true);
        strict.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    for format in [Format::OpenAiChat, Format::OpenAiResponses, Format::Anthropic] {
        assert!(marked(&wish(format)).is_empty());
    }
    let strict = |format| Wish { is_strict: true, ..wish(format) };
    let openai = ["no-arguments", "order", "weather"];
    assert_eq!(marked(&strict(Format::OpenAiChat)), openai);
    assert_eq!(marked(&strict(Format::OpenAiResponses)), openai);
    assert_eq!(marked(&strict(Format::Anthropic)), ["no-arguments", "order"]);
    // Asking for it changes no schema.
    for format in [Format::OpenAiChat, Format::Anthropic] {
        let schemas = |wish: &Wish| -> Vec<Option<Value>> {
            tools(&list(wish, &offers()).0).iter().map(|tool| schema(tool).cloned()).collect()
        };
        assert_eq!(schemas(&wish(format)), schemas(&strict(format)));
    }
}

#[test]
fn a_list_is_sorted_selected_by_tag_and_its_hash_names_its_state() {
    let names = |format: Format, tags: &[&str]| -> Vec<String> {
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        let (list, _) = super::list(&Wish { tags, ..wish(format) }, &offers());
        let names = tools(&list);
        names.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    for format in Format::ALL {
        let all = names(format, &[]);
        assert!(all.is_sorted() && all.len() == samples().len(), "{all:?}");
        assert_eq!(names(format, &["money", "demo"]), ["pay", "weather"]);
        assert!(names(format, &["none"]).is_empty());
        let list = |offers: &BTreeMap<String, Offer>| list(&wish(format), offers);
        let mut fewer = offers();
        fewer.remove("ping");
        assert_eq!(list(&offers()).0.to_string(), list(&offers()).0.to_string());
        assert_ne!(list(&offers()).1, list(&fewer).1);
        assert_eq!(list(&BTreeMap::new()).0["tools"], json!([]));
    }
}

#[test]
fn a_schema_that_strictness_would_change_goes_out_as_it_is() {
    let schemas = [
        json!({"type": "object", "properties": {"labels": {"type": "object", "additionalProperties": {"type": "number"}}}, "required": ["labels"]}),
        json!({"type": "object", "properties": {"any": {"type": "object", "additionalProperties": true}}, "required": ["any"]}),
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {}}),
        json!({"properties": {"a": {"type": "string"}}}),
        json!({"type": "object", "properties": {"opt": {"type": ["object", "null"], "properties": {"a": {"type": "string"}}}}}),
        json!({"type": "object", "properties": {"must": {"type": "string"}, "may": {"type": "string"}}, "required": ["must"]}),
    ];
    for schema in schemas {
        let sample = Sample {
            name: "t".into(),
            description: "d".into(),
            effect: Effect::Read,
            tags: Vec::new(),
            input: schema.clone(),
            output: None,
            takes: Vec::new(),
            refuses: Vec::new(),
        };
        let offers = BTreeMap::from([("t".to_owned(), sample.offer())]);
        for format in [Format::OpenAiChat, Format::OpenAiResponses, Format::Anthropic] {
            let (list, _) = list(&Wish { is_strict: true, ..wish(format) }, &offers);
            let tool = &tools(&list)[0];
            assert_eq!(tool["strict"], false, "{schema}");
            let mut shown = self::schema(tool).unwrap().clone();
            if schema.get("type").is_none() {
                shown.as_object_mut().unwrap().shift_remove("type");
            }
            assert_eq!(shown, schema);
        }
    }
}
