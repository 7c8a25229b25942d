//! Older drafts of JSON Schema in the words of 2020-12: what a provider is sent is read as 2020-12, and
//! one schema that is none costs the caller its whole request. What is shown takes what the author's
//! schema takes.

use super::walk;
use serde_json::{Map, Value, json};

/// Drafts, the oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Draft {
    D4,
    D6,
    D7,
    D2019,
    D2020,
}

/// Keywords that say something, and the first draft in which they do.
const SINCE: [(&str, Draft); 14] = [
    ("const", Draft::D6),
    ("contains", Draft::D6),
    ("propertyNames", Draft::D6),
    ("if", Draft::D7),
    ("then", Draft::D7),
    ("else", Draft::D7),
    ("dependentRequired", Draft::D2019),
    ("dependentSchemas", Draft::D2019),
    ("minContains", Draft::D2019),
    ("maxContains", Draft::D2019),
    ("unevaluatedItems", Draft::D2019),
    ("unevaluatedProperties", Draft::D2019),
    ("prefixItems", Draft::D2020),
    ("$dynamicRef", Draft::D2020),
];
/// What counts beside a reference in drafts that ignore all else there.
const BESIDE_REFERENCE: [&str; 8] =
    ["$ref", "$defs", "definitions", "title", "description", "default", "examples", "$comment"];

impl Draft {
    /// The draft that `$schema` names; the newest where it names none.
    fn of(schema: &Value) -> Draft {
        let name = schema.get("$schema").and_then(Value::as_str).unwrap_or_default();
        let drafts = [
            ("draft-04", Draft::D4),
            ("draft-06", Draft::D6),
            ("draft-07", Draft::D7),
            ("2019-09", Draft::D2019),
        ];
        let known = drafts.into_iter().find(|(part, _)| name.contains(part));
        known.map_or(Draft::D2020, |(_, draft)| draft)
    }
}

/// A schema in the words of 2020-12, without `$schema`, its definitions under `$defs`.
pub(super) fn modern(author: &Value) -> Value {
    let draft = Draft::of(author);
    let mut schema = author.clone();
    if draft < Draft::D2020 {
        walk::rewrite(&mut schema, &mut |keywords| translate(draft, keywords));
    }
    if let Value::Object(root) = &mut schema {
        root.shift_remove("$schema");
    }
    gather_definitions(schema)
}

fn translate(draft: Draft, keywords: &mut Map<String, Value>) {
    if draft < Draft::D2019 && keywords.get("$ref").is_some_and(Value::is_string) {
        keywords.retain(|key, _| BESIDE_REFERENCE.contains(&key.as_str()));
    }
    for (keyword, since) in SINCE {
        if draft < since {
            keywords.shift_remove(keyword);
        }
    }
    if draft == Draft::D4 {
        exclusive(keywords, "minimum", "exclusiveMinimum");
        exclusive(keywords, "maximum", "exclusiveMaximum");
        if keywords.get("id").is_some_and(Value::is_string) {
            keywords.shift_remove("id");
        }
    }
    if draft < Draft::D2019 {
        dependencies(keywords);
    }
    if draft == Draft::D2019 {
        keywords.shift_remove("$recursiveAnchor");
        rename(keywords, &[("$recursiveRef", "$ref")]);
    }
    tuple(keywords);
}

/// `exclusiveMinimum: true` beside `minimum` is one number now.
fn exclusive(keywords: &mut Map<String, Value>, limit: &str, flag: &str) {
    let Some(is_exclusive) = keywords.get(flag).and_then(Value::as_bool) else { return };
    keywords.shift_remove(flag);
    if is_exclusive {
        rename(keywords, &[(limit, flag)]);
    }
}

/// `dependencies` are two keywords now.
fn dependencies(keywords: &mut Map<String, Value>) {
    let Some(Value::Object(all)) = keywords.shift_remove("dependencies") else { return };
    let (names, schemas): (Map<String, Value>, Map<String, Value>) =
        all.into_iter().partition(|(_, needed)| needed.is_array());
    if !names.is_empty() {
        keywords.insert("dependentRequired".into(), Value::Object(names));
    }
    if !schemas.is_empty() {
        keywords.insert("dependentSchemas".into(), Value::Object(schemas));
    }
}

/// A list in `items` is `prefixItems` now, and what followed it is `items`.
fn tuple(keywords: &mut Map<String, Value>) {
    match keywords.get("items") {
        Some(Value::Array(items)) if items.is_empty() => drop(keywords.shift_remove("items")),
        Some(Value::Array(_)) => {}
        _ => drop(keywords.shift_remove("additionalItems")),
    }
    rename(keywords, &[("items", "prefixItems"), ("additionalItems", "items")]);
    if keywords.get("prefixItems").is_some_and(|items| !items.is_array()) {
        rename(keywords, &[("prefixItems", "items")]);
    }
}

/// Renames keywords where they stand.
fn rename(keywords: &mut Map<String, Value>, names: &[(&str, &str)]) {
    let renamed = std::mem::take(keywords).into_iter().map(|(key, value)| {
        match names.iter().find(|(from, _)| *from == key) {
            Some((_, to)) => ((*to).to_owned(), value),
            None => (key, value),
        }
    });
    *keywords = renamed.collect();
}

/// `definitions` of the root under the name that all providers know.
fn gather_definitions(mut schema: Value) -> Value {
    let mut has_ids = false;
    walk::rewrite(&mut schema, &mut |keywords| {
        has_ids |= keywords.contains_key("$id");
    });
    let Value::Object(root) = &mut schema else { return schema };
    // Below an `$id`, a reference may mean the definitions of that part.
    if has_ids || root.contains_key("$defs") || !root.contains_key("definitions") {
        return schema;
    }
    rename(root, &[("definitions", "$defs")]);
    walk::rewrite(&mut schema, &mut |keywords| {
        let reference = keywords.get("$ref").and_then(Value::as_str);
        let name = reference.and_then(|to| to.strip_prefix("#/definitions/"));
        if let Some(name) = name.map(str::to_owned) {
            keywords["$ref"] = json!(format!("#/$defs/{name}"));
        }
    });
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(draft: &str, mut schema: Value) -> Value {
        schema["$schema"] = json!(draft);
        modern(&schema)
    }

    const D4: &str = "http://json-schema.org/draft-04/schema#";
    const D7: &str = "http://json-schema.org/draft-07/schema#";

    #[test]
    fn exclusive_limits_become_numbers() {
        let schema = of(
            D4,
            json!({"id": "x", "minimum": 1, "exclusiveMinimum": true,
            "properties": {"id": {"maximum": 9, "exclusiveMaximum": false, "const": 3}}}),
        );
        let wanted = json!({"exclusiveMinimum": 1, "properties": {"id": {"maximum": 9}}});
        assert_eq!(schema.to_string(), wanted.to_string());
    }

    #[test]
    fn tuples_and_what_follows_them_are_renamed_where_they_stand() {
        let schema = of(
            D7,
            json!({"type": "array", "items": [{"type": "string"}], "additionalItems": false}),
        );
        let wanted = json!({"type": "array", "prefixItems": [{"type": "string"}], "items": false});
        assert_eq!(schema.to_string(), wanted.to_string());
        let plain = of(
            D7,
            json!({"items": {"type": "string"}, "additionalItems": false, "prefixItems": [{}]}),
        );
        assert_eq!(plain, json!({"items": {"type": "string"}}));
        assert_eq!(of(D7, json!({"items": [], "additionalItems": {}})), json!({"items": {}}));
    }

    #[test]
    fn dependencies_become_two_keywords() {
        let schema = of(
            D7,
            json!({"dependencies": {"a": ["b"], "c": {"required": ["d"]}},
            "dependentRequired": {"x": ["y"]}}),
        );
        let wanted = json!({"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"c": {"required": ["d"]}}});
        assert_eq!(schema, wanted);
    }

    #[test]
    fn what_an_old_draft_ignores_beside_a_reference_is_gone_and_words_stay() {
        let schema = of(
            D7,
            json!({"properties": {"a": {"$ref": "#/definitions/n", "minimum": 5, "description": "A."}},
            "definitions": {"n": {"type": "number"}}}),
        );
        let wanted = json!({"properties": {"a": {"$ref": "#/$defs/n", "description": "A."}},
            "$defs": {"n": {"type": "number"}}});
        assert_eq!(schema, wanted);
    }

    #[test]
    fn recursive_references_are_plain_ones() {
        let schema = of(
            "https://json-schema.org/draft/2019-09/schema",
            json!({"$recursiveAnchor": true,
            "properties": {"next": {"$recursiveRef": "#", "minProperties": 1}}}),
        );
        assert_eq!(schema, json!({"properties": {"next": {"$ref": "#", "minProperties": 1}}}));
    }

    #[test]
    fn the_newest_draft_stays_as_it_is() {
        let schema = json!({"$ref": "#/$defs/a", "minimum": 1, "dependencies": {"a": ["b"]},
            "$defs": {"a": {"items": false, "prefixItems": [{}], "const": 1}}});
        assert_eq!(modern(&schema), schema);
        assert_eq!(of("https://json-schema.org/draft/2020-12/schema", schema.clone()), schema);
        let scoped = json!({"definitions": {"a": {"$id": "a", "definitions": {}}}});
        assert_eq!(modern(&scoped), scoped, "a part with a name of its own");
        assert_eq!(modern(&json!(true)), json!(true));
    }
}
