//! An OpenAPI document, and the references in it.

use serde_json::Value;

/// References that are followed one after the other.
const HOPS_MAX: usize = 32;

/// A document of a known version.
pub(super) struct Document<'a> {
    root: &'a Value,
    /// Whether its schemas are those of OpenAPI 3.0, which are no JSON Schema.
    pub(super) is_3_0: bool,
}

impl<'a> Document<'a> {
    pub(super) fn new(root: &'a Value) -> Result<Document<'a>, String> {
        let version = root.get("openapi").and_then(Value::as_str);
        match version {
            Some(version) if version.starts_with("3.0.") => Ok(Document { root, is_3_0: true }),
            Some(version) if version.starts_with("3.1.") => Ok(Document { root, is_3_0: false }),
            Some(version) => Err(format!("OpenAPI {version} is not read: only 3.0 and 3.1 are")),
            None if root.get("swagger").is_some() => {
                Err("this is Swagger 2: convert it to OpenAPI 3 first".to_owned())
            }
            None => Err("this is no OpenAPI document: it has no `openapi`".to_owned()),
        }
    }

    pub(super) fn root(&self) -> &'a Value {
        self.root
    }

    /// The value itself, or what its `$ref` leads to.
    pub(super) fn resolve(&self, value: &'a Value) -> Result<&'a Value, String> {
        let mut value = value;
        for _ in 0..HOPS_MAX {
            match value.get("$ref").and_then(Value::as_str) {
                None => return Ok(value),
                Some(reference) => value = self.follow(reference)?,
            }
        }
        Err("references that lead in a circle".to_owned())
    }

    /// What a local reference leads to.
    pub(super) fn follow(&self, reference: &str) -> Result<&'a Value, String> {
        let Some(pointer) = reference.strip_prefix('#') else {
            return Err(format!("the reference {reference:?} leaves the document"));
        };
        let pointer = percent_decoded(pointer);
        self.root
            .pointer(&pointer)
            .ok_or_else(|| format!("the reference {reference:?} leads nowhere"))
    }
}

/// `%7B` and the like in the fragment of a reference.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        match (first, byte) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
