//! What a schema of one type says of its values, in the words of the form and of its descriptions.

use super::{Keywords, TOLD_BYTES_MAX, VALUES_MAX};
use crate::core::export::conjoin::types;
use serde_json::{Value, json};

/// The types that a schema names, else those that its values or keywords speak of.
pub(super) fn kinds(keywords: &Keywords) -> Vec<&'static str> {
    const ALL: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];
    const OF_KEYWORDS: [(&str, &[&str]); 4] = [
        (
            "object",
            &[
                "properties",
                "required",
                "additionalProperties",
                "patternProperties",
                "minProperties",
            ],
        ),
        ("array", &["items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"]),
        ("string", &["minLength", "maxLength", "pattern", "format", "contentMediaType"]),
        ("number", &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]),
    ];
    let known = |name: &str| ALL.into_iter().find(|kind| *kind == name);
    let named = keywords.get("type").map(types).unwrap_or_default();
    if !named.is_empty() {
        return named.into_iter().filter_map(known).collect();
    }
    let mut found: Vec<&str> = Vec::new();
    for value in fixed(keywords).unwrap_or_default() {
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        if !found.contains(&kind) {
            found.push(kind);
        }
    }
    if !found.is_empty() {
        return found;
    }
    let spoken =
        |(_, words): &&(&str, &[&str])| words.iter().any(|word| keywords.contains_key(*word));
    OF_KEYWORDS.iter().find(spoken).map(|(kind, _)| *kind).into_iter().collect()
}

/// The values of `const` or `enum`.
pub(super) fn fixed(keywords: &Keywords) -> Option<Vec<Value>> {
    match (keywords.get("const"), keywords.get("enum")) {
        (Some(value), _) => Some(vec![value.clone()]),
        (None, Some(Value::Array(values))) => Some(values.clone()),
        _ => None,
    }
}

pub(super) fn is_null(keywords: &Keywords) -> bool {
    kinds(keywords) == ["null"]
}

/// Fixed values of that type: text as an enum, the others in words. The provider refuses empty text.
pub(super) fn values(
    keywords: &Keywords,
    kind: &str,
    shown: &mut Keywords,
    remarks: &mut Vec<String>,
) {
    let Some(values) = fixed(keywords) else { return };
    let fits = |value: &&Value| match kind {
        "string" => value.is_string(),
        "integer" | "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        _ => value.is_object(),
    };
    let values: Vec<&Value> = values.iter().filter(fits).collect();
    if values.is_empty() {
        return;
    }
    if kind == "string" && values.iter().all(|value| **value != "") {
        shown.insert("enum".into(), json!(values));
        return;
    }
    let told: Vec<String> = values.iter().take(VALUES_MAX).map(|value| told(value)).collect();
    let more = if values.len() > VALUES_MAX { ", …" } else { "" };
    remarks.push(format!("One of {}{more}.", told.join(", ")));
}

pub(super) fn text(keywords: &Keywords, shown: &mut Keywords, remarks: &mut Vec<String>) {
    copy(keywords, shown, &["minLength", "maxLength"]);
    match keywords.get("format").and_then(Value::as_str) {
        Some("date-time") => drop(shown.insert("format".into(), json!("date-time"))),
        Some(format) => remarks.push(format!("Format: {format}.")),
        None => {}
    }
    for (key, word) in [("pattern", "Pattern"), ("contentMediaType", "Content")] {
        if let Some(text) = keywords.get(key).and_then(Value::as_str) {
            remarks.push(format!("{word}: `{}`.", cut(text)));
        }
    }
}

pub(super) fn number(
    keywords: &Keywords,
    kind: &str,
    shown: &mut Keywords,
    remarks: &mut Vec<String>,
) {
    copy(keywords, shown, &["minimum", "maximum"]);
    for (key, limit, word) in
        [("exclusiveMinimum", "minimum", "More"), ("exclusiveMaximum", "maximum", "Less")]
    {
        if let Some(number) = keywords.get(key).filter(|number| number.is_number()) {
            remarks.push(format!("{word} than {number}."));
            shown.entry(limit).or_insert_with(|| number.clone());
        }
    }
    if let Some(number) = keywords.get("multipleOf") {
        remarks.push(format!("A multiple of {number}."));
    }
    let known: &[&str] = if kind == "integer" { &["int32", "int64"] } else { &["float", "double"] };
    let format = keywords.get("format").and_then(Value::as_str);
    if let Some(format) = format.filter(|format| known.contains(format)) {
        shown.insert("format".into(), json!(format));
    }
}

pub(super) fn copy(keywords: &Keywords, shown: &mut Keywords, keys: &[&str]) {
    for key in keys {
        if let Some(value) = keywords.get(*key).filter(|value| value.is_number()) {
            shown.insert((*key).to_owned(), value.clone());
        }
    }
}

/// A value as a description tells it.
pub(super) fn told(value: &Value) -> String {
    cut(&value.to_string())
}

pub(super) fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(TOLD_BYTES_MAX);
    if end < text.len() { format!("{}…", &text[..end]) } else { text.to_owned() }
}
