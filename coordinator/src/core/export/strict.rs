//! Whether a schema is in a provider's strict subset as it stands. Nothing is changed to make it fit:
//! that would change what it means (maps would be emptied, optional properties demanded). In doubt it
//! is not.

use serde_json::{Map, Value};
use std::collections::HashSet;

/// Limits of OpenAI's subset, all parts of a schema together.
const OPENAI_PROPERTIES_MAX: usize = 5_000;
const OPENAI_DEPTH_MAX: usize = 10;
const OPENAI_ENUM_VALUES_MAX: usize = 1_000;
const OPENAI_CHARS_MAX: usize = 120_000;
/// An enum of text with more values than this may have so many characters.
const OPENAI_LARGE_ENUM: usize = 250;
const OPENAI_LARGE_ENUM_CHARS_MAX: usize = 15_000;

/// Keywords that both take.
const COMMON: [&str; 9] = [
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "anyOf",
    "enum",
    "const",
    "description",
];
const OPENAI_MORE: [&str; 10] = [
    "title",
    "pattern",
    "format",
    "multipleOf",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minItems",
    "maxItems",
];
const ANTHROPIC_MORE: [&str; 3] = ["title", "format", "minItems"];
const TYPES: [&str; 7] = ["object", "array", "string", "integer", "number", "boolean", "null"];
const OPENAI_FORMATS: [&str; 9] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];
const ANTHROPIC_FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"];

/// A provider with a strict subset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subset {
    /// Both APIs of OpenAI.
    OpenAi,
    /// Anthropic Messages.
    Anthropic,
}

/// Whether a root schema is in the subset as it stands.
pub(super) fn is_strict(schema: &Value, subset: Subset) -> bool {
    let Value::Object(root) = schema else { return false };
    let is_object = root.get("type").is_some_and(|kind| kind == "object");
    let no_definitions = Map::new();
    let definitions = match root.get("$defs") {
        None => &no_definitions,
        Some(Value::Object(definitions)) => definitions,
        Some(_) => return false,
    };
    let mut check = Check { subset, definitions, properties: 0, enum_values: 0, chars: 0 };
    let mut plain = root.clone();
    plain.shift_remove("$defs");
    check.chars += definitions.keys().map(|name| name.chars().count()).sum::<usize>();
    is_object
        && !root.contains_key("anyOf")
        && check.is_node(&plain, 1)
        && definitions.values().all(|definition| match definition {
            Value::Object(definition) => check.is_node(definition, 1),
            _ => false,
        })
        && (subset == Subset::OpenAi || !has_circle(root, definitions))
        && check.is_within_limits()
}

/// What has been seen of a schema.
struct Check<'a> {
    subset: Subset,
    definitions: &'a Map<String, Value>,
    properties: usize,
    enum_values: usize,
    chars: usize,
}

impl Check<'_> {
    fn is_within_limits(&self) -> bool {
        self.subset != Subset::OpenAi
            || (self.properties <= OPENAI_PROPERTIES_MAX
                && self.enum_values <= OPENAI_ENUM_VALUES_MAX
                && self.chars <= OPENAI_CHARS_MAX)
    }

    fn is_node(&mut self, node: &Map<String, Value>, depth: usize) -> bool {
        if let Some(reference) = node.get("$ref") {
            let name = reference.as_str().and_then(|to| to.strip_prefix("#/$defs/"));
            return node.len() == 1 && name.is_some_and(|name| self.definitions.contains_key(name));
        }
        let more: &[&str] = match self.subset {
            Subset::OpenAi => &OPENAI_MORE,
            Subset::Anthropic => &ANTHROPIC_MORE,
        };
        let is_known =
            node.keys().all(|key| COMMON.contains(&key.as_str()) || more.contains(&key.as_str()));
        let is_deep = self.subset == Subset::OpenAi && depth > OPENAI_DEPTH_MAX;
        is_known
            && !is_deep
            && has_good_type(node)
            && self.has_good_values(node)
            && has_good_words(node, self.subset)
            && self.is_object(node, depth)
            && self.is_array(node, depth)
            && self.are_variants(node, depth)
    }

    fn has_good_values(&mut self, node: &Map<String, Value>) -> bool {
        let is_plain = |value: &Value| !value.is_object() && !value.is_array();
        let chars = |value: &Value| value.as_str().map_or(0, |text| text.chars().count());
        if let Some(value) = node.get("const") {
            self.chars += chars(value);
            if !is_plain(value) {
                return false;
            }
        }
        let Some(values) = node.get("enum") else { return true };
        let Value::Array(values) = values else { return false };
        let total: usize = values.iter().map(chars).sum();
        self.enum_values += values.len();
        self.chars += total;
        let is_too_long = values.len() > OPENAI_LARGE_ENUM && total > OPENAI_LARGE_ENUM_CHARS_MAX;
        values.iter().all(is_plain) && (self.subset != Subset::OpenAi || !is_too_long)
    }

    fn is_object(&mut self, node: &Map<String, Value>, depth: usize) -> bool {
        let is_closed = node.get("additionalProperties") == Some(&Value::Bool(false));
        let (Some(Value::Object(properties)), true) = (node.get("properties"), is_closed) else {
            let keys = ["properties", "required", "additionalProperties"];
            return !may_be(node, "object") && !keys.iter().any(|key| node.contains_key(*key));
        };
        if !may_be(node, "object") {
            return false;
        }
        self.properties += properties.len();
        self.chars += properties.keys().map(|name| name.chars().count()).sum::<usize>();
        let required: Option<HashSet<&str>> = match node.get("required") {
            Some(Value::Array(names)) => names.iter().map(Value::as_str).collect(),
            Some(_) => None,
            None => Some(HashSet::new()),
        };
        let Some(required) = required else { return false };
        let is_listed = properties.keys().all(|name| required.contains(name.as_str()));
        let is_complete = required.len() == properties.len() && is_listed;
        let needs_all = self.subset == Subset::OpenAi;
        (is_complete && node.contains_key("required") || !needs_all)
            && required.iter().all(|name| properties.contains_key(*name))
            && properties.values().all(|property| match property {
                Value::Object(property) => self.is_node(property, depth + 1),
                _ => false,
            })
    }

    fn is_array(&mut self, node: &Map<String, Value>, depth: usize) -> bool {
        match node.get("items") {
            None => !may_be(node, "array"),
            Some(Value::Object(items)) => may_be(node, "array") && self.is_node(items, depth + 1),
            Some(_) => false,
        }
    }

    fn are_variants(&mut self, node: &Map<String, Value>, depth: usize) -> bool {
        match node.get("anyOf") {
            None => true,
            Some(Value::Array(variants)) => variants.iter().all(|variant| match variant {
                Value::Object(variant) => self.is_node(variant, depth),
                _ => false,
            }),
            Some(_) => false,
        }
    }
}

/// One of the known types, or a list of them; variants and fixed values need none.
fn has_good_type(node: &Map<String, Value>) -> bool {
    let is_type = |kind: &Value| kind.as_str().is_some_and(|kind| TYPES.contains(&kind));
    match node.get("type") {
        None => ["anyOf", "enum", "const"].iter().any(|key| node.contains_key(*key)),
        Some(Value::Array(kinds)) => !kinds.is_empty() && kinds.iter().all(is_type),
        Some(kind) => is_type(kind),
    }
}

/// Whether a schema names this type.
fn may_be(node: &Map<String, Value>, kind: &str) -> bool {
    match node.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|one| one == kind),
        Some(one) => one == kind,
        None => false,
    }
}

/// Formats, patterns and counts that the subset knows.
fn has_good_words(node: &Map<String, Value>, subset: Subset) -> bool {
    let formats: &[&str] = match subset {
        Subset::OpenAi => &OPENAI_FORMATS,
        Subset::Anthropic => &ANTHROPIC_FORMATS,
    };
    let has_format = |format: &Value| format.as_str().is_some_and(|name| formats.contains(&name));
    // Look-around and other groups of that kind are not known everywhere.
    let is_simple = |pattern: &Value| pattern.as_str().is_some_and(|text| !text.contains("(?"));
    let is_few = |count: &Value| subset == Subset::OpenAi || count.as_u64().is_some_and(|n| n <= 1);
    node.get("format").is_none_or(has_format)
        && node.get("pattern").is_none_or(is_simple)
        && node.get("minItems").is_none_or(is_few)
}

/// Whether definitions come back to themselves.
fn has_circle(root: &Map<String, Value>, definitions: &Map<String, Value>) -> bool {
    let mut references = HashSet::new();
    for definition in definitions.values() {
        note_references(definition, &mut references);
    }
    let mut of_root = root.clone();
    of_root.shift_remove("$defs");
    note_references(&Value::Object(of_root), &mut references);
    references.into_iter().any(|name| {
        let (mut seen, mut open) = (HashSet::new(), vec![name.clone()]);
        while let Some(next) = open.pop() {
            let mut below = HashSet::new();
            if let Some(definition) = definitions.get(&next) {
                note_references(definition, &mut below);
            }
            if below.contains(&name) {
                return true;
            }
            open.extend(below.into_iter().filter(|name| seen.insert(name.clone())));
        }
        false
    })
}

fn note_references(schema: &Value, found: &mut HashSet<String>) {
    let mut schema = schema.clone();
    super::walk::rewrite(&mut schema, &mut |keywords| {
        let reference = keywords.get("$ref").and_then(Value::as_str);
        found.extend(reference.and_then(|to| to.strip_prefix("#/$defs/")).map(str::to_owned));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn both(schema: &Value) -> (bool, bool) {
        (is_strict(schema, Subset::OpenAi), is_strict(schema, Subset::Anthropic))
    }

    fn with(property: Value) -> Value {
        json!({"type": "object", "additionalProperties": false, "required": ["a"], "properties": {"a": property}})
    }

    #[test]
    fn a_closed_object_that_requires_all_is_in_both() {
        for property in [
            json!({"type": "string"}),
            json!({"type": ["string", "null"], "description": "d", "title": "t"}),
            json!({"type": "array", "items": {"type": "integer"}, "minItems": 1}),
            json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
            json!({"enum": ["a", 1, null]}),
            json!({"type": "string", "format": "uuid"}),
            with(json!({"const": true})),
        ] {
            assert_eq!(both(&with(property.clone())), (true, true), "{property}");
        }
    }

    #[test]
    fn what_would_have_to_be_changed_is_in_neither() {
        for property in [
            json!({}),
            json!(true),
            json!({"type": "object", "additionalProperties": {"type": "number"}}),
            json!({"type": "object", "properties": {}}),
            json!({"type": "object"}),
            json!({"type": "array"}),
            json!({"type": "array", "items": true}),
            json!({"oneOf": [{"type": "string"}]}),
            json!({"allOf": [{"type": "string"}]}),
            json!({"type": "string", "minLength": 1}),
            json!({"type": "string", "default": "x"}),
            json!({"type": "string", "format": "iban"}),
            json!({"type": "word"}),
            json!({"enum": [{"a": 1}]}),
            json!({"$ref": "#/$defs/none"}),
            json!({"not": {"type": "string"}}),
            json!({"type": "string", "properties": {}, "additionalProperties": false}),
        ] {
            assert_eq!(both(&with(property.clone())), (false, false), "{property}");
        }
        let mut open = with(json!({"type": "string"}));
        open["additionalProperties"] = json!(true);
        let mut rooted = with(json!({"type": "string"}));
        rooted["anyOf"] = json!([{"type": "object"}]);
        for schema in [json!({}), json!(true), json!({"type": "object"}), open, rooted] {
            assert_eq!(both(&schema), (false, false), "{schema}");
        }
    }

    #[test]
    fn the_two_differ_where_the_providers_do() {
        let mut optional = with(json!({"type": "string"}));
        optional["required"] = json!([]);
        assert_eq!(both(&optional), (false, true));
        let unknown = json!({"type": "object", "additionalProperties": false, "required": ["b"],
            "properties": {"a": {"type": "string"}}});
        assert_eq!(both(&unknown), (false, false));
        assert_eq!(both(&with(json!({"type": "integer", "minimum": 1}))), (true, false));
        let three = json!({"type": "array", "items": {"type": "string"}, "minItems": 3});
        assert_eq!(both(&with(three)), (true, false));
        assert_eq!(both(&with(json!({"type": "string", "format": "uri"}))), (false, true));
        assert_eq!(both(&with(json!({"type": "string", "pattern": "^a+$"}))), (true, false));
        assert_eq!(both(&with(json!({"type": "string", "pattern": "^(?=a)"}))), (false, false));
    }

    #[test]
    fn references_lead_into_definitions_and_stand_alone() {
        let node = with(json!({"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}));
        let mut schema = with(json!({"$ref": "#/$defs/node"}));
        schema["$defs"] = json!({"node": node, "leaf": {"type": "string"}});
        assert_eq!(both(&schema), (true, false), "a circle");
        schema["$defs"]["node"] = with(json!({"$ref": "#/$defs/leaf"}));
        assert_eq!(both(&schema), (true, true));
        schema["properties"]["a"] = json!({"$ref": "#/$defs/leaf", "description": "d"});
        assert_eq!(both(&schema), (false, false));
    }

    #[test]
    fn size_has_limits() {
        let values = |count: usize, length: usize| -> Value {
            let values: Vec<String> = (0..count).map(|n| format!("{n:0length$}")).collect();
            with(json!({"type": "string", "enum": values}))
        };
        assert_eq!(both(&values(1_000, 4)), (true, true));
        assert!(!both(&values(1_001, 4)).0);
        assert!(!both(&values(251, 60)).0, "15,060 characters");
        let mut deep = json!({"type": "string"});
        for _ in 0..9 {
            deep = with(deep);
        }
        assert!(both(&deep).0);
        assert!(!both(&with(with(deep))).0);
    }
}
