//! Paths into a JSON value and quotes of it, as people and models read them: `jobs[2].url`,
//! `["a.b"]`.

use crate::json::Json;
use serde_json::Value;
use std::fmt::Write as _;

/// The longest quote of a value or a key, in bytes.
pub(crate) const QUOTE_BYTES_MAX: usize = 64;

/// Appends a member's name to a path.
pub(crate) fn push_key(path: &mut String, key: &str) {
    if is_plain(key) {
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(key);
    } else {
        let _ = write!(path, "[{}]", quote_text(key));
    }
}

/// Appends an item's index to a path.
pub(crate) fn push_index(path: &mut String, index: usize) {
    let _ = write!(path, "[{index}]");
}

fn is_plain(key: &str) -> bool {
    let mut chars = key.chars();
    let starts_well = chars.next().is_some_and(|c| c.is_alphabetic() || c == '_' || c == '$');
    let rest_is_well = chars.all(|c| c.is_alphanumeric() || matches!(c, '_' | '$' | '-'));
    starts_well && rest_is_well && key.len() <= QUOTE_BYTES_MAX
}

/// A string as JSON, at most [`QUOTE_BYTES_MAX`] bytes of it, with `…` where something was cut.
pub(crate) fn quote_text(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        let whole = Json::String(c.to_string()).to_text();
        let escaped = &whole[1..whole.len() - 1];
        if quoted.len() + escaped.len() + 1 > QUOTE_BYTES_MAX {
            quoted.push('…');
            break;
        }
        quoted.push_str(escaped);
    }
    quoted.push('"');
    quoted
}

/// A value for an issue's text: its kind, and itself within the quote's bound unless it has parts.
pub(crate) fn quote(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(bool) => format!("boolean {bool}"),
        Value::Number(number) => format!("number {number}"),
        Value::String(text) => format!("string {}", quote_text(text)),
        Value::Array(_) => "an array".into(),
        Value::Object(_) => "an object".into(),
    }
}

/// A path in this form from a JSON Pointer into `root`. The pointer itself cannot tell a key `"0"`
/// from an index; the value it points into can.
pub(crate) fn from_pointer(root: &Value, pointer: &str) -> String {
    let mut path = String::new();
    let mut here = Some(root);
    for escaped in pointer.split('/').skip(1) {
        let key = escaped.replace("~1", "/").replace("~0", "~");
        let index = key.parse::<usize>().ok();
        here = match (here, index) {
            (Some(Value::Array(items)), Some(index)) => {
                push_index(&mut path, index);
                items.get(index)
            }
            (parent, _) => {
                push_key(&mut path, &key);
                parent.and_then(|parent| parent.get(&key))
            }
        };
    }
    path
}

/// Appends a member's name to a JSON Pointer.
pub(crate) fn push_pointer(pointer: &mut String, key: &str) {
    pointer.push('/');
    pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
}

/// The first [`QUOTE_BYTES_MAX`] bytes of a text, with `…` where something was cut.
pub(crate) fn shorten(text: &str) -> String {
    if text.len() <= QUOTE_BYTES_MAX {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(QUOTE_BYTES_MAX)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_keys_are_quoted_and_plain_ones_are_not() {
        let mut path = String::new();
        push_key(&mut path, "jobs");
        push_index(&mut path, 2);
        push_key(&mut path, "a.b");
        push_key(&mut path, "città");
        push_key(&mut path, "");
        push_key(&mut path, "0");
        assert_eq!(path, "jobs[2][\"a.b\"].città[\"\"][\"0\"]");
    }

    #[test]
    fn a_pointer_reads_as_the_value_it_points_into() {
        let root = serde_json::json!({"0": [{"": 1, "a/b": [1]}]});
        assert_eq!(from_pointer(&root, "/0/0/"), "[\"0\"][0][\"\"]");
        assert_eq!(from_pointer(&root, "/0/0/a~1b/0"), "[\"0\"][0][\"a/b\"][0]");
        assert_eq!(from_pointer(&root, "/0/0/gone"), "[\"0\"][0].gone");
        assert_eq!(from_pointer(&root, ""), "");
    }

    #[test]
    fn quotes_are_bounded_and_cut_between_characters() {
        let quoted = quote_text(&"中".repeat(100));
        assert!(quoted.ends_with("…\""), "{quoted}");
        assert!(quoted.replace('…', "").len() <= QUOTE_BYTES_MAX);
        assert_eq!(quote_text("a\"b"), "\"a\\\"b\"");
        let exact = "x".repeat(QUOTE_BYTES_MAX - 2);
        assert_eq!(quote_text(&exact), format!("\"{exact}\""));
        assert_eq!(shorten(&"9".repeat(65)), format!("{}…", "9".repeat(64)));
    }
}
