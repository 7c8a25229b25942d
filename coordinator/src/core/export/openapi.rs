//! Gemini's older form of schemas, a subset of OpenAPI 3.0: one type each, `nullable`, enums of text,
//! `anyOf` alone, no references. What it cannot say stands in the descriptions. It takes what the
//! author's schema takes, with two exceptions: a schema that names no type gets the one that its keywords
//! speak of, and arrays in a place where anything may stand are shown two deep.

mod scalar;

use super::conjoin::conjoin;
use super::reference::{target, type_of};
use scalar::{copy, is_null, kinds, number, text, told, values};
use serde_json::{Map, Value, json};

/// Subschemas that are looked at: what is shared by many is written out for each.
const NODES_MAX: usize = 5_000;
/// Values that a description tells.
const VALUES_MAX: usize = 20;
/// Bytes of one value, or of one other thing, that a description tells.
const TOLD_BYTES_MAX: usize = 120;
/// Characters of a parameter's name.
const NAME_CHARS_MAX: usize = 64;
/// Keywords that the form has no words for, and that no description can tell briefly.
const CONDITIONS: [&str; 10] = [
    "not",
    "if",
    "dependentRequired",
    "dependentSchemas",
    "propertyNames",
    "patternProperties",
    "contains",
    "unevaluatedProperties",
    "unevaluatedItems",
    "$dynamicRef",
];

/// A root schema, an object, as the value of `parameters`. `None`: nothing is to be said of its
/// properties, and the provider wants no empty schema.
pub(super) fn parameters(schema: &Value) -> Option<Value> {
    let mut converter = Converter { root: schema, inside: Vec::new(), nodes_left: NODES_MAX };
    let shown = converter.convert(schema);
    let says_something = ["properties", "description", "anyOf"];
    says_something.iter().any(|key| shown.contains_key(*key)).then_some(Value::Object(shown))
}

type Keywords = Map<String, Value>;

struct Converter<'a> {
    root: &'a Value,
    /// References that are being written out.
    inside: Vec<String>,
    nodes_left: usize,
}

impl Converter<'_> {
    fn convert(&mut self, schema: &Value) -> Keywords {
        let Value::Object(keywords) = schema else { return anything(2, None) };
        let depth = self.inside.len();
        let flat = self.flat(keywords.clone());
        let shown = self.shown(flat);
        self.inside.truncate(depth);
        shown
    }

    /// A schema without `$ref` and `allOf`.
    fn flat(&mut self, mut keywords: Keywords) -> Keywords {
        self.nodes_left = self.nodes_left.saturating_sub(1);
        let reference = keywords.shift_remove("$ref");
        let branches = keywords.shift_remove("allOf");
        if let Some(reference) = reference.as_ref().and_then(Value::as_str) {
            let is_open = self.nodes_left > 0 && !self.inside.iter().any(|open| open == reference);
            match target(self.root, reference) {
                Some(found) if is_open => {
                    let found = found.clone();
                    self.inside.push(reference.to_owned());
                    keywords = conjoin(self.flat(found), keywords);
                }
                _ => {
                    if let Some(kind) = type_of(self.root, reference) {
                        keywords.entry("type").or_insert(kind);
                    }
                }
            }
        }
        for branch in branches.as_ref().and_then(Value::as_array).into_iter().flatten() {
            if let Value::Object(branch) = branch {
                keywords = conjoin(keywords, self.flat(branch.clone()));
            }
        }
        keywords
    }

    fn shown(&mut self, mut keywords: Keywords) -> Keywords {
        if self.nodes_left == 0 {
            keywords.retain(|key, _| key == "type" || key == "description");
        }
        for key in ["anyOf", "oneOf"] {
            let Some(Value::Array(variants)) = keywords.shift_remove(key) else { continue };
            return self.variants(&keywords, &variants);
        }
        let kinds = kinds(&keywords);
        let is_nullable = kinds.contains(&"null");
        let kinds: Vec<&str> = kinds.into_iter().filter(|kind| *kind != "null").collect();
        let mut shown = match kinds.as_slice() {
            [] if is_nullable => described("string", keywords.get("description"), "Always null."),
            [] => anything(2, keywords.get("description")),
            [kind] => self.of_type(&keywords, kind),
            kinds => {
                let each = kinds.iter().map(|kind| self.of_type(&keywords, kind)).collect();
                one_of(each)
            }
        };
        if is_nullable {
            nullable(&mut shown);
        }
        shown
    }

    /// Each variant with all that stands beside them, since `anyOf` stands alone.
    fn variants(&mut self, beside: &Keywords, variants: &[Value]) -> Keywords {
        let (mut shown, mut is_nullable) = (Vec::new(), false);
        for variant in variants {
            let variant = match variant {
                Value::Object(variant) => variant.clone(),
                Value::Bool(true) => Map::new(),
                _ => continue,
            };
            let depth = self.inside.len();
            let flat = self.flat(variant);
            if is_null(&flat) {
                is_nullable = true;
            } else {
                let words = joined_words(beside, &flat);
                let mut both = conjoin(beside.clone(), flat);
                if let Some(words) = words {
                    both.insert("description".into(), words);
                }
                let variant = self.shown(both);
                if !shown.contains(&variant) {
                    shown.push(variant);
                }
            }
            self.inside.truncate(depth);
        }
        let mut shown = match shown.len() {
            0 if is_nullable => described("string", beside.get("description"), "Always null."),
            0 => anything(2, beside.get("description")),
            _ => one_of(shown),
        };
        if is_nullable {
            nullable(&mut shown);
        }
        shown
    }

    fn of_type(&mut self, keywords: &Keywords, kind: &str) -> Keywords {
        let mut shown = Map::new();
        let mut remarks = Vec::new();
        shown.insert("type".into(), json!(kind));
        values(keywords, kind, &mut shown, &mut remarks);
        match kind {
            "object" => self.object(keywords, &mut shown, &mut remarks),
            "array" => self.array(keywords, &mut shown, &mut remarks),
            "string" => text(keywords, &mut shown, &mut remarks),
            "integer" | "number" => number(keywords, kind, &mut shown, &mut remarks),
            _ => {}
        }
        if let Some(default) = keywords.get("default").filter(|default| !default.is_null()) {
            remarks.push(format!("Default: {}.", told(default)));
        }
        if CONDITIONS.iter().any(|key| keywords.contains_key(*key)) {
            remarks.push("Further conditions hold.".to_owned());
        }
        let description = keywords.get("description").and_then(Value::as_str);
        let words = description.into_iter().chain(remarks.iter().map(String::as_str));
        if let Some(words) = sentences(words) {
            shown.shift_insert(1, "description".into(), json!(words));
        }
        shown
    }

    fn object(&mut self, keywords: &Keywords, shown: &mut Keywords, remarks: &mut Vec<String>) {
        let none = Map::new();
        let all = keywords.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let mut properties = Map::new();
        let mut left_out = Vec::new();
        for (name, property) in all.iter().filter(|(_, property)| **property != Value::Bool(false))
        {
            if is_name(name) {
                properties.insert(name.clone(), Value::Object(self.convert(property)));
            } else {
                left_out.push(told(&json!(name)));
            }
        }
        if !left_out.is_empty() {
            left_out.truncate(VALUES_MAX);
            remarks.push(format!("It may also have {}.", left_out.join(", ")));
        }
        if let Some(Value::Object(values)) = keywords.get("additionalProperties") {
            let depth = self.inside.len();
            let values = self.flat(values.clone());
            self.inside.truncate(depth);
            remarks.push(match kinds(&values).as_slice() {
                [] => "Other keys are free.".to_owned(),
                kinds => {
                    format!("Other keys are free, with values of type {}.", kinds.join(" or "))
                }
            });
        }
        let required = keywords.get("required").and_then(Value::as_array);
        let is_shown =
            |name: &&Value| name.as_str().is_some_and(|name| properties.contains_key(name));
        let required: Vec<Value> =
            required.into_iter().flatten().filter(is_shown).cloned().collect();
        if !properties.is_empty() {
            let order: Vec<&String> = properties.keys().collect();
            let order = json!(order);
            shown.insert("properties".into(), Value::Object(properties));
            if !required.is_empty() {
                shown.insert("required".into(), required.into());
            }
            shown.insert("propertyOrdering".into(), order);
        }
        copy(keywords, shown, &["minProperties", "maxProperties"]);
    }

    /// `string, number or null, any` of the first items of a tuple.
    fn kinds_of_each(&mut self, items: &[Value]) -> String {
        let mut each = Vec::new();
        for item in items.iter().take(VALUES_MAX) {
            let depth = self.inside.len();
            let flat = item.as_object().map(|item| self.flat(item.clone())).unwrap_or_default();
            self.inside.truncate(depth);
            let kinds = kinds(&flat);
            each.push(if kinds.is_empty() { "any".to_owned() } else { kinds.join(" or ") });
        }
        let more = if items.len() > VALUES_MAX { ", …" } else { "" };
        format!("{}{more}", each.join(", "))
    }

    fn array(&mut self, keywords: &Keywords, shown: &mut Keywords, remarks: &mut Vec<String>) {
        let first = keywords.get("prefixItems").and_then(Value::as_array);
        let rest = keywords.get("items");
        let items = match (first, rest) {
            (None, None | Some(Value::Bool(_))) => anything(1, None),
            (None, Some(items)) => self.convert(items),
            (Some(first), rest) => {
                remarks.push(format!("Items in order: {}.", self.kinds_of_each(first)));
                let mut each: Vec<Keywords> = first.iter().map(|item| self.convert(item)).collect();
                match rest {
                    Some(Value::Bool(false)) => {}
                    Some(rest @ Value::Object(_)) => each.push(self.convert(rest)),
                    _ => each.push(anything(1, None)),
                }
                let mut different: Vec<Keywords> = Vec::new();
                each.into_iter().for_each(|item| {
                    if !different.contains(&item) {
                        different.push(item);
                    }
                });
                one_of(different)
            }
        };
        shown.insert("items".into(), Value::Object(items));
        copy(keywords, shown, &["minItems", "maxItems"]);
        if keywords.get("uniqueItems") == Some(&Value::Bool(true)) {
            remarks.push("No item stands twice.".to_owned());
        }
    }
}

/// Whether a parameter may have this name: the provider refuses the whole request for another.
fn is_name(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|other| other.is_ascii_alphanumeric() || other == '_')
        && name.len() <= NAME_CHARS_MAX
}

/// Sentences one after the other. `None`: there is none.
fn sentences<'a>(words: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut text = String::new();
    for sentence in words {
        if !text.is_empty() {
            let is_ended = text.ends_with(['.', '!', '?', ':', ';', '…', ')']);
            text.push_str(if is_ended { " " } else { ". " });
        }
        text.push_str(sentence);
    }
    (!text.is_empty()).then_some(text)
}

/// What stands beside variants and what a variant says itself.
fn joined_words(beside: &Keywords, variant: &Keywords) -> Option<Value> {
    let both = [beside, variant];
    let words =
        both.iter().filter_map(|keywords| keywords.get("description").and_then(Value::as_str));
    sentences(words).map(Value::from)
}

fn described(kind: &str, description: Option<&Value>, remark: &str) -> Keywords {
    let description = description.and_then(Value::as_str);
    let words = sentences(description.into_iter().chain([remark]));
    Map::from_iter([("type".to_owned(), json!(kind)), ("description".to_owned(), json!(words))])
}

/// One schema of several: the one, or all of them beside one another.
fn one_of(variants: Vec<Keywords>) -> Keywords {
    let mut flat: Vec<Keywords> = Vec::new();
    for mut variant in variants {
        let Some(Value::Array(inner)) = variant.shift_remove("anyOf") else {
            flat.push(variant);
            continue;
        };
        for one in inner {
            if let Value::Object(one) = one {
                flat.push(one);
            }
        }
    }
    if flat.len() == 1 {
        return flat.remove(0);
    }
    Map::from_iter([("anyOf".to_owned(), json!(flat))])
}

/// Takes `null` as well. Nothing may stand beside `anyOf`, so that its first variant says it.
fn nullable(shown: &mut Keywords) {
    match shown.get_mut("anyOf").and_then(|variants| variants.get_mut(0)) {
        Some(Value::Object(first)) => drop(first.insert("nullable".into(), json!(true))),
        _ => drop(shown.insert("nullable".into(), json!(true))),
    }
}

/// Any value: every schema must have a type. Arrays in it are shown to a depth.
fn anything(arrays: usize, description: Option<&Value>) -> Keywords {
    let mut variants: Vec<Value> =
        ["string", "number", "boolean", "object"].map(|kind| json!({"type": kind})).to_vec();
    if let Some(description) = description {
        variants[0]["description"] = description.clone();
    }
    variants[0]["nullable"] = json!(true);
    if arrays > 0 {
        variants.push(json!({"type": "array", "items": anything(arrays - 1, None)}));
    }
    Map::from_iter([("anyOf".to_owned(), Value::Array(variants))])
}

#[cfg(test)]
mod tests;
