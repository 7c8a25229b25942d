//! JSON as a tree with lines. `serde_json` gives no places: they are found from where the parts of the
//! text lie in it.

use super::{DEPTH_MAX, Kind, Member, Node, Reader};
use crate::json::Members;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::HashSet;

impl<'a> Reader<'a> {
    pub(super) fn json(&mut self) -> Option<Node> {
        // The first pass checks the whole text, its depth and its numbers; the second one, over raw
        // parts, finds places and keys given twice.
        let checked = serde_json::from_str::<Value>(self.text)
            .and_then(|_| serde_json::from_str::<&'a RawValue>(self.text));
        match checked {
            Ok(raw) => self.json_node(raw.get(), 0),
            Err(error) => {
                let line = u32::try_from(error.line()).unwrap_or(u32::MAX).max(1);
                let message = error.to_string();
                let message = message.split(" at line ").next().unwrap_or_default().to_owned();
                self.problem(line, message);
                None
            }
        }
    }

    /// Offset of a part of the text that is read.
    fn offset(&self, part: &str) -> usize {
        (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize)
    }

    fn json_node(&mut self, part: &'a str, depth: usize) -> Option<Node> {
        let offset = self.offset(part);
        let line = self.lines.at(offset);
        if depth > DEPTH_MAX {
            self.too_deep(line);
            return None;
        }
        let kind = match part.as_bytes().first()? {
            b'{' => {
                let Members::<String>(parts) = serde_json::from_str(part).ok()?;
                let mut seen = HashSet::new();
                let mut members = Vec::with_capacity(parts.len());
                for (key, raw) in parts {
                    let line = self.json_key_line(raw.get());
                    if !seen.insert(key.clone()) {
                        self.problem(line, format!("key `{key}` is given twice"));
                    }
                    let node = self.json_node(raw.get(), depth + 1)?;
                    members.push(Member { key, line, node });
                }
                Kind::Table(members)
            }
            b'[' => {
                let parts: Vec<&'a RawValue> = serde_json::from_str(part).ok()?;
                let mut items = Vec::with_capacity(parts.len());
                for raw in parts {
                    items.push(self.json_node(raw.get(), depth + 1)?);
                }
                Kind::List(items)
            }
            _ => match serde_json::from_str(part).ok()? {
                Value::Bool(flag) => Kind::Bool(flag),
                Value::Number(_) if is_beyond_64_bits(part) => {
                    Kind::Alien("an integer above 64 bits")
                }
                Value::Number(number) => Kind::Number(number),
                Value::String(text) => Kind::Text(text),
                Value::Null | Value::Array(_) | Value::Object(_) => Kind::Null,
            },
        };
        Some(Node { line, kind })
    }

    /// The line of the key before a member's value: back over the colon and white space.
    fn json_key_line(&self, value: &str) -> u32 {
        let before = self.text.get(..self.offset(value)).unwrap_or_default().trim_end();
        let before = before.strip_suffix(':').unwrap_or(before).trim_end();
        self.lines.at(before.len().saturating_sub(1))
    }
}

/// A whole number that would lose digits, as it would in TOML.
fn is_beyond_64_bits(digits: &str) -> bool {
    let is_whole = digits.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    is_whole && digits.parse::<i64>().is_err() && digits.parse::<u64>().is_err()
}
