//! The root of an exported schema: always an object with `properties`, without the keywords that
//! providers refuse there. One refused schema costs the caller its whole request.

use serde_json::{Map, Value, json};

/// Keywords that OpenAI refuses at the root, in non-strict schemas too.
pub(super) const OPENAI_REFUSED: &[&str] = &["oneOf", "anyOf", "allOf", "enum", "const", "not"];
/// Keywords that Anthropic refuses at the root.
pub(super) const ANTHROPIC_REFUSED: &[&str] = &["oneOf", "anyOf", "allOf"];

/// Forms that a remark names, and properties that it names of each.
const FORMS_MAX: usize = 6;
const FORM_PROPERTIES_MAX: usize = 6;
/// Keywords of a branch that the merge carries over whole, or that bind nothing.
const CARRIED: [&str; 6] = ["type", "properties", "required", "title", "description", "$comment"];

/// A schema as a model is shown it.
pub(super) struct Shown {
    /// An object schema with `properties`, the author's order kept.
    pub schema: Value,
    /// For the description: what the schema no longer says.
    pub remark: Option<String>,
}

/// The schema to show, without the keywords in `refused` at its root. What it says no longer, the
/// remark does: it refuses no input that the author's schema takes, but where a property that only some
/// branches name has another meaning in the others.
pub(super) fn shown(author: &Value, refused: &[&str]) -> Shown {
    let mut schema = inlined(author);
    let mut remarks = Vec::new();
    for key in refused {
        // `shift_remove`: the order of the other keys stays.
        let Some(removed) = schema.shift_remove(*key) else { continue };
        match (*key, removed) {
            ("allOf", Value::Array(branches)) => {
                let branches: Vec<Value> =
                    branches.iter().map(|branch| resolved(author, branch)).collect();
                merge(&mut schema, &branches, Join::All);
                if !branches.iter().all(is_carried) {
                    remarks.push("Further conditions hold between the properties.".to_owned());
                }
            }
            ("anyOf" | "oneOf", Value::Array(branches)) => {
                let branches: Vec<Value> =
                    branches.iter().map(|branch| resolved(author, branch)).collect();
                merge(&mut schema, &branches, Join::Any);
                remarks.push(forms(&branches));
            }
            _ => remarks.push("Further conditions hold for the input as a whole.".to_owned()),
        }
    }
    if !remarks.is_empty() {
        // It would refuse what only the removed branches name.
        schema.shift_remove("unevaluatedProperties");
    }
    remarks.dedup();
    let remark = (!remarks.is_empty()).then(|| remarks.join(" "));
    Shown { schema: Value::Object(as_object(schema)), remark }
}

/// How branches bind an input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Join {
    /// Every branch holds.
    All,
    /// One branch at least.
    Any,
}

/// The root as an object; a root that is a reference gets what it refers to.
fn inlined(author: &Value) -> Map<String, Value> {
    let Value::Object(root) = author else { return Map::new() };
    let Value::Object(target) = resolved(author, author) else { return root.clone() };
    let mut schema = root.clone();
    if !target.contains_key("$ref") {
        schema.shift_remove("$ref");
    }
    for (key, value) in target {
        schema.entry(key).or_insert(value);
    }
    schema
}

/// What a local reference refers to; any other schema as it is. One step: chains may be circles.
fn resolved(root: &Value, branch: &Value) -> Value {
    let pointer = branch.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix('#'));
    pointer.and_then(|pointer| root.pointer(pointer)).unwrap_or(branch).clone()
}

/// `type: object` and `properties` whatever the author left out (case B05).
fn as_object(mut schema: Map<String, Value>) -> Map<String, Value> {
    if schema.get("required").is_some_and(|required| !required.is_array()) {
        schema.shift_remove("required");
    }
    if let Some(kind) = schema.get_mut("type") {
        *kind = json!("object");
    } else {
        schema.shift_insert(0, "type".into(), json!("object"));
    }
    match schema.get_mut("properties") {
        Some(properties) if properties.is_object() => {}
        Some(properties) => *properties = json!({}),
        None => {
            let at = schema.keys().position(|key| key == "type").map_or(0, |at| at + 1);
            schema.shift_insert(at, "properties".into(), json!({}));
        }
    }
    schema
}

fn properties_of(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

fn required_of(schema: &Value) -> Vec<&str> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether the merge says all that a branch says.
fn is_carried(branch: &Value) -> bool {
    branch
        .as_object()
        .is_some_and(|branch| branch.keys().all(|key| CARRIED.contains(&key.as_str())))
}

/// Takes the branches' properties in after the root's own, and requires what every input needs.
fn merge(schema: &mut Map<String, Value>, branches: &[Value], join: Join) {
    // A property that the root does not list is refused where the root is closed.
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    let mut merged = match schema.get("properties") {
        Some(Value::Object(properties)) => properties.clone(),
        _ => Map::new(),
    };
    let own: Vec<String> = merged.keys().cloned().collect();
    let mut found: Map<String, Value> = Map::new();
    for (name, property) in branches.iter().flat_map(properties_of) {
        let variants = found.entry(name.clone()).or_insert_with(|| json!([]));
        if let Value::Array(variants) = variants
            && !variants.contains(property)
        {
            variants.push(property.clone());
        }
    }
    for (name, variants) in found {
        // The root's own word on a property holds for every branch.
        if !own.contains(&name) && !is_closed {
            merged.insert(name, joined(variants, join));
        }
    }
    if !merged.is_empty() {
        schema.insert("properties".into(), Value::Object(merged));
    }
    require(schema, branches, join);
}

/// The variants of one property as one schema.
fn joined(variants: Value, join: Join) -> Value {
    match (variants, join) {
        (Value::Array(mut one), _) if one.len() == 1 => one.remove(0),
        (variants, Join::Any) => json!({"anyOf": variants}),
        (variants, Join::All) => json!({"allOf": variants}),
    }
}

fn require(schema: &mut Map<String, Value>, branches: &[Value], join: Join) {
    let mut needed: Vec<&str> = Vec::new();
    for name in branches.iter().flat_map(required_of) {
        let is_in_all = || branches.iter().all(|branch| required_of(branch).contains(&name));
        if !needed.contains(&name) && (join == Join::All || is_in_all()) {
            needed.push(name);
        }
    }
    if needed.is_empty() {
        return;
    }
    let required = schema.entry("required").or_insert_with(|| json!([]));
    if !required.is_array() {
        *required = json!([]);
    }
    if let Value::Array(required) = required {
        for name in needed {
            if !required.iter().any(|known| known == name) {
                required.push(json!(name));
            }
        }
    }
}

/// The remark on branches of which one holds.
fn forms(branches: &[Value]) -> String {
    let named: Vec<String> = branches.iter().filter_map(form).take(FORMS_MAX).collect();
    if named.len() < branches.len().min(FORMS_MAX) {
        return "The input takes one of several forms.".to_owned();
    }
    let more = match branches.len() - named.len() {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    format!("The input takes one of several forms: {}{more}.", named.join("; "))
}

/// A form by what it needs, else by what it may have: `kind "card", number`.
fn form(branch: &Value) -> Option<String> {
    let mut names = required_of(branch);
    if names.is_empty() {
        names = properties_of(branch).map(|(name, _)| name.as_str()).collect();
    }
    let told: Vec<String> = names
        .iter()
        .take(FORM_PROPERTIES_MAX)
        .map(|name| match branch.get("properties").and_then(|all| all.get(name)?.get("const")) {
            Some(fixed @ (Value::String(_) | Value::Bool(_) | Value::Number(_))) => {
                format!("{name} {fixed}")
            }
            _ => (*name).to_owned(),
        })
        .collect();
    let more = if names.len() > told.len() { ", …" } else { "" };
    (!told.is_empty()).then(|| format!("{}{more}", told.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anthropic(schema: Value) -> (Value, Option<String>) {
        let shown = shown(&schema, ANTHROPIC_REFUSED);
        (shown.schema, shown.remark)
    }

    #[test]
    fn empty_and_half_empty_schemas_become_objects_with_properties() {
        let empty = json!({"type": "object", "properties": {}});
        for schema in [
            json!({}),
            json!(true),
            json!({"type": "object"}),
            json!({"type": "object", "properties": null}),
            json!({"type": "object", "properties": {}, "required": null}),
            json!({"type": ["object", "null"]}),
        ] {
            assert_eq!(anthropic(schema.clone()).0.to_string(), empty.to_string(), "{schema}");
        }
        let closed = json!({"type": "object", "properties": {}, "additionalProperties": false});
        let (shown, remark) = anthropic(json!({"type": "object", "additionalProperties": false}));
        assert_eq!((shown.to_string(), remark), (closed.to_string(), None));
        let named = anthropic(json!({"$schema": "http://json-schema.org/draft-07/schema#"})).0;
        assert_eq!(
            (named["type"].as_str(), named["properties"].is_object()),
            (Some("object"), true)
        );
    }

    #[test]
    fn one_of_requires_only_what_every_branch_requires() {
        let (schema, remark) = anthropic(
            json!({"required": ["id"], "properties": {"id": {}}, "oneOf": [
                {"required": ["kind", "a"], "properties": {"kind": {"const": "x"}, "a": {"type": "string"}}},
                {"required": ["b", "kind"], "properties": {"kind": {"const": "y"}, "b": {"type": "number"}}},
            ]}),
        );
        assert_eq!(schema["required"], json!(["id", "kind"]));
        assert_eq!(
            schema["properties"]["kind"],
            json!({"anyOf": [{"const": "x"}, {"const": "y"}]})
        );
        let names: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["id", "kind", "a", "b"]);
        assert!(schema.get("oneOf").is_none());
        let told = "The input takes one of several forms: kind \"x\", a; b, kind \"y\".";
        assert_eq!(remark.as_deref(), Some(told));
    }

    #[test]
    fn a_branch_that_is_no_plain_object_requires_nothing() {
        let (schema, remark) = anthropic(json!({"anyOf": [{"required": ["a"]}, true]}));
        assert_eq!(schema, json!({"type": "object", "properties": {}}));
        assert_eq!(remark.as_deref(), Some("The input takes one of several forms."));
    }

    #[test]
    fn all_of_adds_up_and_what_is_left_out_is_said() {
        let plain = json!({"allOf": [
            {"required": ["a"], "properties": {"a": {"type": "string"}}},
            {"required": ["b"], "properties": {"a": {"minLength": 1}}},
        ]});
        let (schema, remark) = anthropic(plain);
        assert_eq!(
            schema["properties"]["a"],
            json!({"allOf": [{"type": "string"}, {"minLength": 1}]})
        );
        assert_eq!((schema["required"].clone(), remark), (json!(["a", "b"]), None));
        let (_, remark) = anthropic(json!({"allOf": [{"not": {"required": ["a"]}}]}));
        assert_eq!(remark.as_deref(), Some("Further conditions hold between the properties."));
    }

    #[test]
    fn a_closed_root_takes_no_properties_from_its_branches() {
        let (schema, _) = anthropic(json!({"additionalProperties": false, "properties": {"a": {}},
            "anyOf": [{"properties": {"b": {}}}, {"properties": {"a": {"type": "string"}}}]}));
        assert_eq!(schema["properties"], json!({"a": {}}));
    }

    #[test]
    fn references_at_the_root_are_followed_once() {
        let (schema, _) = anthropic(json!({"$ref": "#/$defs/in",
            "$defs": {"in": {"type": "object", "properties": {"z": {}, "a": {}}, "required": ["z"]}}}));
        assert_eq!((&schema["required"], schema.get("$ref")), (&json!(["z"]), None));
        assert_eq!(schema["properties"].to_string(), r#"{"z":{},"a":{}}"#);
        let circle =
            anthropic(json!({"$ref": "#", "anyOf": [{"$ref": "#"}, {"$ref": "other.json"}]})).0;
        assert!(circle["properties"].is_object() && circle.get("anyOf").is_none());
    }

    #[test]
    fn what_one_provider_refuses_another_is_sent() {
        let schema = json!({"type": "object", "properties": {"a": {}}, "not": {"required": ["b"]}});
        assert_eq!(anthropic(schema.clone()), (schema.clone(), None));
        let openai = shown(&schema, OPENAI_REFUSED);
        assert_eq!(openai.schema, json!({"type": "object", "properties": {"a": {}}}));
        assert!(openai.remark.unwrap().contains("as a whole"));
    }

    #[test]
    fn a_remark_is_short_however_many_forms_there_are() {
        let branches: Vec<Value> =
            (0..50).map(|n| json!({"required": [format!("p{n}")]})).collect();
        let remark = forms(&branches);
        assert!(remark.ends_with("p5; and 44 more."), "{remark}");
    }
}
