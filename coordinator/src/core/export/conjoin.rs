//! Two schemas that both hold, as one. Where they cannot be joined the first one's word counts, so that
//! what comes out takes whatever both take.

use serde_json::{Map, Value};

/// Words, of which the second's are the nearer ones.
const WORDS: [&str; 6] = ["title", "description", "default", "examples", "$comment", "deprecated"];
/// Keywords that say something only beside another one.
const BESIDE: [(&str, &str); 4] =
    [("minContains", "contains"), ("maxContains", "contains"), ("then", "if"), ("else", "if")];
/// Limits of which the greater one, or the lesser one, is the closer one.
const AT_LEAST: [&str; 5] =
    ["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"];
const AT_MOST: [&str; 5] =
    ["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"];

/// Both schemas as one.
pub(super) fn conjoin(
    mut first: Map<String, Value>,
    second: Map<String, Value>,
) -> Map<String, Value> {
    let had = first.clone();
    for (key, value) in second {
        let beside = BESIDE.iter().find(|(keyword, _)| *keyword == key);
        if beside.is_some_and(|(_, other)| had.contains_key(*other)) {
            continue;
        }
        match first.get_mut(&key) {
            None => drop(first.insert(key, value)),
            Some(known) => join(&key, known, value),
        }
    }
    first
}

fn join(key: &str, known: &mut Value, value: Value) {
    match (key, &mut *known, value) {
        ("properties" | "patternProperties", Value::Object(known), Value::Object(more)) => {
            for (name, property) in more {
                let both = match known.shift_remove(&name) {
                    Some(Value::Object(one)) => match property {
                        Value::Object(two) => Value::Object(conjoin(one, two)),
                        _ => Value::Object(one),
                    },
                    Some(Value::Bool(false)) => Value::Bool(false),
                    Some(_) | None => property,
                };
                known.insert(name, both);
            }
        }
        ("required", Value::Array(known), Value::Array(more)) => {
            let new = more.into_iter().filter(|name| !known.contains(name)).collect::<Vec<_>>();
            known.extend(new);
        }
        ("allOf", Value::Array(known), Value::Array(more)) => known.extend(more),
        ("type", _, value) => {
            let both = common_types(known, &value);
            if let Some(both) = both {
                *known = both;
            }
        }
        (key, _, value) if WORDS.contains(&key) => *known = value,
        (key, _, value) => {
            let (Some(one), Some(two)) = (known.as_f64(), value.as_f64()) else { return };
            let is_closer =
                (AT_LEAST.contains(&key) && two > one) || (AT_MOST.contains(&key) && two < one);
            if is_closer {
                *known = value;
            }
        }
    }
}

/// The names of types of a `type`.
pub(super) fn types(kind: &Value) -> Vec<&str> {
    match kind {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Types that both take; `None`: there is none.
fn common_types(one: &Value, two: &Value) -> Option<Value> {
    let (one, two) = (types(one), types(two));
    let common = one.iter().filter_map(|kind| match *kind {
        "number" if !two.contains(&"number") && two.contains(&"integer") => Some("integer"),
        "integer" if two.contains(&"number") => Some("integer"),
        kind => two.contains(&kind).then_some(kind),
    });
    match common.collect::<Vec<_>>().as_slice() {
        [] => None,
        [kind] => Some(Value::from(*kind)),
        kinds => Some(Value::from(kinds.to_vec())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn both(one: Value, two: Value) -> Value {
        match (one, two) {
            (Value::Object(one), Value::Object(two)) => Value::Object(conjoin(one, two)),
            _ => panic!("objects"),
        }
    }

    #[test]
    fn properties_requirements_types_and_limits_add_up() {
        let joined = both(
            json!({"type": ["object", "null"], "required": ["a"], "minProperties": 1, "maxProperties": 9,
                "properties": {"a": {"type": "number", "minimum": 2}, "b": true, "c": {"title": "old"}}}),
            json!({"type": "object", "required": ["b", "a"], "minProperties": 2, "maxProperties": 10,
                "properties": {"a": {"type": "integer", "minimum": 1}, "b": {"type": "string"}, "c": {"title": "new"}}}),
        );
        let wanted = json!({"type": "object", "required": ["a", "b"], "minProperties": 2, "maxProperties": 9,
            "properties": {"a": {"type": "integer", "minimum": 2}, "b": {"type": "string"}, "c": {"title": "new"}}});
        assert_eq!(joined, wanted);
    }

    #[test]
    fn what_cannot_be_joined_is_the_first_ones() {
        let joined = both(
            json!({"pattern": "a", "type": "string", "anyOf": [{}], "contains": {}, "if": {}}),
            json!({"pattern": "b", "type": "integer", "anyOf": [true], "minContains": 2, "then": {"const": 1}}),
        );
        let first =
            json!({"pattern": "a", "type": "string", "anyOf": [{}], "contains": {}, "if": {}});
        assert_eq!(joined, first);
    }
}
