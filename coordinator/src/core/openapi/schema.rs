//! Schemas of OpenAPI as JSON Schema 2020-12: references become `$defs`, `nullable` a type with null.

use super::document::Document;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Levels that a schema may nest.
const DEPTH_MAX: usize = 64;
/// Keywords that hold one schema.
const ONE: [&str; 10] = [
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "not",
    "contains",
    "propertyNames",
    "if",
    "then",
    "else",
    "items",
];
/// Keywords that hold a list of schemas.
const SEVERAL: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Keywords that hold schemas by name.
const NAMED: [&str; 4] = ["properties", "patternProperties", "dependentSchemas", "$defs"];
/// What says nothing about a value.
const DROPPED: [&str; 9] = [
    "nullable",
    "example",
    "xml",
    "externalDocs",
    "discriminator",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$schema",
];

/// Converts schemas of one tool; definitions are shared between them.
pub(super) struct Schemas<'d, 'a> {
    document: &'d Document<'a>,
    /// By reference: the definition's name.
    names: BTreeMap<String, String>,
    definitions: Map<String, Value>,
}

impl<'d, 'a> Schemas<'d, 'a> {
    pub(super) fn new(document: &'d Document<'a>) -> Schemas<'d, 'a> {
        Schemas { document, names: BTreeMap::new(), definitions: Map::new() }
    }

    /// The definitions that the schemas so far refer to.
    pub(super) fn definitions(self) -> Map<String, Value> {
        self.definitions
    }

    /// One schema of a request. Properties that only answers have (`readOnly`) are left out.
    pub(super) fn convert(&mut self, schema: &'a Value) -> Result<Value, String> {
        self.convert_at(schema, 0)
    }

    fn convert_at(&mut self, schema: &'a Value, depth: usize) -> Result<Value, String> {
        if depth > DEPTH_MAX {
            return Err(format!("a schema nested deeper than {DEPTH_MAX} levels"));
        }
        let Some(members) = schema.as_object() else {
            return match schema {
                Value::Bool(_) => Ok(schema.clone()),
                _ => Err("a schema that is no object".to_owned()),
            };
        };
        let mut converted = Map::new();
        if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
            let name = self.define(reference, depth)?;
            converted.insert("$ref".to_owned(), json!(format!("#/$defs/{name}")));
            if self.document.is_3_0 {
                // What stands beside a reference does not count there.
                return Ok(Value::Object(converted));
            }
        }
        for (key, value) in members {
            let key = key.as_str();
            if key == "$ref" || key.starts_with("x-") || DROPPED.contains(&key) {
                continue;
            }
            let value = self.member(key, value, depth + 1)?;
            converted.insert(key.to_owned(), value);
        }
        self.without_read_only(members, &mut converted);
        if self.document.is_3_0 {
            exclusive(&mut converted, "exclusiveMinimum", "minimum");
            exclusive(&mut converted, "exclusiveMaximum", "maximum");
            if members.get("nullable").and_then(Value::as_bool) == Some(true) {
                return Ok(nullable(converted));
            }
        }
        Ok(Value::Object(converted))
    }

    fn member(&mut self, key: &str, value: &'a Value, depth: usize) -> Result<Value, String> {
        if SEVERAL.contains(&key) || (key == "items" && value.is_array()) {
            let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
            let converted: Result<Vec<Value>, String> =
                items.iter().map(|item| self.convert_at(item, depth)).collect();
            return converted.map(Value::Array);
        }
        if ONE.contains(&key) {
            return self.convert_at(value, depth);
        }
        if NAMED.contains(&key) {
            let mut converted = Map::new();
            for (name, schema) in value.as_object().into_iter().flatten() {
                converted.insert(name.clone(), self.convert_at(schema, depth)?);
            }
            return Ok(Value::Object(converted));
        }
        Ok(value.clone())
    }

    /// Makes a definition of what a reference leads to, once, also where it refers to itself.
    fn define(&mut self, reference: &str, depth: usize) -> Result<String, String> {
        if let Some(name) = self.names.get(reference) {
            return Ok(name.clone());
        }
        let target = self.document.follow(reference)?;
        let last = reference.rsplit('/').next().unwrap_or_default();
        let plain = super::name::property(last);
        let mut name = plain.clone();
        let mut number = 2;
        while self.names.values().any(|taken| *taken == name) {
            name = format!("{plain}_{number}");
            number += 1;
        }
        self.names.insert(reference.to_owned(), name.clone());
        let converted = self.convert_at(target, depth + 1)?;
        self.definitions.insert(name.clone(), converted);
        Ok(name)
    }

    fn without_read_only(
        &self,
        members: &'a Map<String, Value>,
        converted: &mut Map<String, Value>,
    ) {
        let properties = members.get("properties").and_then(Value::as_object);
        let is_read_only = |schema: &'a Value| {
            let resolved = self.document.resolve(schema).unwrap_or(schema);
            [schema, resolved].iter().any(|one| one.get("readOnly") == Some(&Value::Bool(true)))
        };
        let names: Vec<&String> = properties
            .into_iter()
            .flatten()
            .filter(|(_, schema)| is_read_only(schema))
            .map(|(name, _)| name)
            .collect();
        if let Some(Value::Object(properties)) = converted.get_mut("properties") {
            names.iter().for_each(|name| drop(properties.remove(*name)));
        }
        if let Some(Value::Array(required)) = converted.get_mut("required") {
            required.retain(|name| !names.iter().any(|gone| name == gone.as_str()));
        }
    }
}

/// A boolean bound of 3.0 as a number of its own.
fn exclusive(schema: &mut Map<String, Value>, exclusive: &str, bound: &str) {
    match schema.get(exclusive) {
        Some(Value::Bool(true)) => {
            schema.remove(exclusive);
            if let Some(value) = schema.remove(bound) {
                schema.insert(exclusive.to_owned(), value);
            }
        }
        Some(Value::Bool(false)) => drop(schema.remove(exclusive)),
        _ => {}
    }
}

/// A schema that also takes null.
fn nullable(mut schema: Map<String, Value>) -> Value {
    let Some(Value::String(kind)) = schema.get("type").cloned() else {
        // Without a type it is the parts that decide.
        let is_decided = SEVERAL.iter().any(|key| schema.contains_key(*key));
        return if is_decided {
            json!({"anyOf": [Value::Object(schema), {"type": "null"}]})
        } else {
            Value::Object(schema)
        };
    };
    schema.insert("type".to_owned(), json!([kind, "null"]));
    if let Some(Value::Array(words)) = schema.get_mut("enum")
        && !words.contains(&Value::Null)
    {
        words.push(Value::Null);
    }
    Value::Object(schema)
}
