//! Where subschemas stand in a schema.

use serde_json::{Map, Value};

/// Keywords whose value is a schema.
const ONE: [&str; 12] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords whose value may be a list of schemas.
const LIST: [&str; 5] = ["allOf", "anyOf", "items", "oneOf", "prefixItems"];
/// Keywords whose value is schemas by name.
const BY_NAME: [&str; 6] =
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];

/// Calls `change` on each schema right below a schema's keywords, in their order.
pub(super) fn below(keywords: &mut Map<String, Value>, change: &mut dyn FnMut(&mut Value)) {
    for (key, value) in keywords.iter_mut() {
        let key = key.as_str();
        match value {
            Value::Array(items) if LIST.contains(&key) => items.iter_mut().for_each(&mut *change),
            Value::Object(named) if BY_NAME.contains(&key) => {
                named.values_mut().filter(|value| !value.is_array()).for_each(&mut *change);
            }
            Value::Object(_) | Value::Bool(_) if ONE.contains(&key) => change(value),
            _ => {}
        }
    }
}

/// Calls `change` on a schema and on all below it that are objects, the deepest first.
pub(super) fn rewrite(schema: &mut Value, change: &mut dyn FnMut(&mut Map<String, Value>)) {
    let Value::Object(keywords) = schema else { return };
    below(keywords, &mut |child| rewrite(child, change));
    change(keywords);
}

/// Gives arrays without `items` one that takes anything: it says the same, and some providers refuse a
/// whole request for its absence.
pub(super) fn with_items(schema: &mut Value) {
    rewrite(schema, &mut |keywords| {
        let is_array = match keywords.get("type") {
            Some(Value::String(kind)) => kind == "array",
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "array"),
            _ => false,
        };
        if is_array && !keywords.contains_key("items") {
            keywords.insert("items".into(), Value::Object(Map::new()));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn schemas_are_found_and_what_only_looks_like_one_is_not() {
        let mut schema = json!({
            "properties": {"items": {"type": "array"}, "not": {"items": [{"a": 1}, true]}},
            "enum": [{"properties": {"x": {}}}], "default": {"items": {}}, "const": {"not": {}},
            "dependencies": {"a": ["b"], "c": {"if": {}}}, "additionalProperties": {"anyOf": [{}]},
        });
        let mut seen = 0;
        rewrite(&mut schema, &mut |_| seen += 1);
        // The root, two properties, an item, a dependency with its condition, two below the last.
        assert_eq!(seen, 8);
    }

    #[test]
    fn arrays_get_items_that_take_anything() {
        let mut schema = json!({"type": ["array", "null"], "prefixItems": [{"type": "array"}],
            "properties": {"type": {"type": "string"}}});
        with_items(&mut schema);
        assert_eq!(
            (&schema["items"], &schema["prefixItems"][0]["items"]),
            (&json!({}), &json!({}))
        );
        assert!(schema["properties"]["type"].get("items").is_none());
    }
}
