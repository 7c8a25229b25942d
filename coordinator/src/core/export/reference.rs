//! References within a schema: what they lead to, and schemas in which they stand alone.

use super::conjoin::{conjoin, types};
use super::walk;
use serde_json::{Map, Value, json};

/// Subschemas that are looked at: what is shared by many may be written out many times.
const NODES_MAX: usize = 5_000;
/// References that lead to references.
const CHAIN_MAX: usize = 32;

/// What a local reference leads to, by its JSON Pointer; `None`: nothing, or by another way.
pub(super) fn target<'a>(root: &'a Value, reference: &str) -> Option<&'a Map<String, Value>> {
    let pointer = decoded(reference.strip_prefix('#')?)?;
    root.pointer(&pointer)?.as_object()
}

/// A fragment without its percent-encoding.
fn decoded(fragment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// The types of what a reference leads to, to be shown where it cannot be followed further.
pub(super) fn type_of(root: &Value, reference: &str) -> Option<Value> {
    let mut reference = reference;
    for _ in 0..CHAIN_MAX {
        let found = target(root, reference)?;
        if let Some(kind) = found.get("type").filter(|kind| !types(kind).is_empty()) {
            return Some(kind.clone());
        }
        reference = found.get("$ref")?.as_str()?;
    }
    None
}

/// A schema whose references lead into the root's `$defs` and have nothing beside them; the others are
/// written out, and where they come back to themselves only their type is said.
pub(super) fn alone(schema: &Value) -> Value {
    let mut alone = Alone { root: schema, inside: Vec::new(), nodes_left: NODES_MAX };
    let mut result = schema.clone();
    if let Value::Object(root) = &mut result {
        walk::below(root, &mut |child| alone.visit(child));
    }
    result
}

struct Alone<'a> {
    root: &'a Value,
    /// References that are being written out.
    inside: Vec<String>,
    nodes_left: usize,
}

impl Alone<'_> {
    fn visit(&mut self, schema: &mut Value) {
        let Value::Object(keywords) = schema else { return };
        self.nodes_left = self.nodes_left.saturating_sub(1);
        let depth = self.inside.len();
        while let Some(reference) = keywords.get("$ref").and_then(Value::as_str).map(str::to_owned)
        {
            let is_defined = reference.starts_with("#/$defs/");
            let found = target(self.root, &reference);
            if keywords.len() == 1 && is_defined && found.is_some() {
                break;
            }
            keywords.shift_remove("$ref");
            let is_open = !self.inside.contains(&reference) && self.nodes_left > 0;
            match found {
                Some(found) if is_open => {
                    let mut found = found.clone();
                    // Of the root: they are found there.
                    found.shift_remove("$defs");
                    *keywords = conjoin(found, std::mem::take(keywords));
                    self.inside.push(reference);
                }
                Some(_) if is_defined => {
                    *keywords = Map::from_iter([("$ref".to_owned(), json!(reference))]);
                    break;
                }
                Some(_) => {
                    if let (Some(kind), false) =
                        (type_of(self.root, &reference), keywords.contains_key("type"))
                    {
                        keywords.insert("type".into(), kind);
                    }
                }
                None => {}
            }
        }
        walk::below(keywords, &mut |child| self.visit(child));
        self.inside.truncate(depth);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_followed_as_they_are_written() {
        let root =
            json!({"$defs": {"a/b": {"type": "string"}, "ü": {"$ref": "#/$defs/a~1b"}, "x": 1}});
        assert_eq!(type_of(&root, "#/$defs/a~1b"), Some(json!("string")));
        assert_eq!(type_of(&root, "#/$defs/%C3%BC"), Some(json!("string")));
        assert!(target(&root, "#").is_some());
        for nowhere in ["#/$defs/x", "#/none", "other", "#anchor", "#/%zz", "#/%C3"] {
            assert!(target(&root, nowhere).is_none(), "{nowhere}");
        }
    }

    #[test]
    fn plain_references_into_definitions_stay() {
        let schema = json!({"properties": {"a": {"$ref": "#/$defs/n"}},
            "$defs": {"n": {"properties": {"next": {"$ref": "#/$defs/n"}}}}});
        assert_eq!(alone(&schema), schema);
    }

    #[test]
    fn a_reference_with_company_is_written_out_once() {
        let schema = json!({"properties": {"a": {"$ref": "#/$defs/n", "description": "first", "minimum": 3}},
            "$defs": {"n": {"type": "integer", "minimum": 1, "description": "n"}}});
        let shown = alone(&schema);
        let wanted = json!({"type": "integer", "minimum": 3, "description": "first"});
        assert_eq!(shown["properties"]["a"], wanted);
        let circle = json!({"properties": {"a": {"$ref": "#/$defs/n", "description": "d"}},
            "$defs": {"n": {"type": "object", "properties": {"next": {"$ref": "#/$defs/n", "title": "t"}}}}});
        let shown = alone(&circle);
        assert_eq!(shown["properties"]["a"]["properties"]["next"], json!({"$ref": "#/$defs/n"}));
        assert_eq!(shown["$defs"]["n"]["properties"]["next"]["title"], "t");
    }

    #[test]
    fn references_elsewhere_are_written_out_and_circles_are_cut() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "object", "properties": {"x": {"type": "string"}}},
            "b": {"$ref": "#/properties/a"},
            "c": {"$ref": "#/properties/b"},
            "children": {"type": "array", "items": {"$ref": "#"}},
            "lost": {"$ref": "elsewhere", "title": "t"},
        }});
        let shown = alone(&schema);
        let a = json!({"type": "object", "properties": {"x": {"type": "string"}}});
        assert_eq!((&shown["properties"]["b"], &shown["properties"]["c"]), (&a, &a));
        assert_eq!(shown["properties"]["lost"], json!({"title": "t"}));
        let inner = &shown["properties"]["children"]["items"]["properties"]["children"]["items"];
        assert_eq!(inner, &json!({"type": "object"}), "once written out, then its type");
        assert!(!shown.to_string().contains("$ref"));
    }

    #[test]
    fn what_doubles_at_each_step_is_cut() {
        let mut definitions = Map::new();
        for n in 0..40 {
            let next = format!("#/$defs/d{}", n + 1);
            let twice = json!({"type": "object", "properties": {
                "l": {"$ref": next, "title": "l"}, "r": {"$ref": next, "title": "r"}}});
            definitions.insert(format!("d{n}"), twice);
        }
        definitions.insert("d40".into(), json!({"type": "string"}));
        let schema = json!({"properties": {"a": {"$ref": "#/$defs/d0", "title": "a"}}, "$defs": definitions});
        assert!(alone(&schema).to_string().len() < 2_000_000);
    }
}
