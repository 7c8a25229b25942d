//! Taking arguments in: a null that stands for an absent property goes, defaults come (CONTRACT
//! 1.3, 3.3). Works on the parsed text, so that digits stay.

use super::{Schema, fault::Fault, graph::Node, path::push_pointer};
use crate::json::Json;
use serde_json::Value;
use std::collections::HashSet;

/// Rounds of taking nulls away before the arguments are judged as they are.
const ROUNDS_MAX: usize = 64;

impl Schema {
    /// The arguments as the tool gets them: a `null` for a property that is neither required nor
    /// nullable is dropped, at any depth, and defaults of absent properties are filled in. A
    /// default that is itself invalid, or would make the arguments invalid, is left out.
    ///
    /// The error is the text that follows `invalid input: `.
    pub fn admit(&self, arguments: &Json) -> Result<Json, String> {
        let mut dropped = HashSet::new();
        let mut required = HashSet::new();
        for _ in 0..ROUNDS_MAX {
            let candidate = without(arguments, &mut String::new(), &dropped);
            let value = candidate.to_value();
            if self.is_valid(&value) {
                return Ok(self.with_defaults(candidate));
            }
            if !drop_nulls(&self.faults(&value), &value, &mut dropped, &mut required) {
                return Err(self.describe(&value));
            }
        }
        Err(self.describe(&without(arguments, &mut String::new(), &dropped).to_value()))
    }

    fn with_defaults(&self, arguments: Json) -> Json {
        if self.nodes.iter().all(|node| node.default.is_none()) {
            return arguments;
        }
        let mut filled = arguments.clone();
        fill(&self.nodes, 0, &mut filled);
        if self.is_valid(&filled.to_value()) { filled } else { arguments }
    }
}

/// Marks the nulls at fault as absent, and those that turn out to be required as present again.
/// Whether anything changed.
fn drop_nulls(
    faults: &[Fault],
    value: &Value,
    dropped: &mut HashSet<String>,
    required: &mut HashSet<String>,
) -> bool {
    let mut is_changed = false;
    for fault in faults {
        if fault.is_missing {
            if dropped.remove(&fault.pointer) {
                required.insert(fault.pointer.clone());
                is_changed = true;
            }
        } else if !fault.is_unknown
            && !required.contains(&fault.pointer)
            && is_null_member(value, &fault.pointer)
        {
            is_changed |= dropped.insert(fault.pointer.clone());
        }
    }
    is_changed
}

fn is_null_member(value: &Value, pointer: &str) -> bool {
    let Some((parent, _)) = pointer.rsplit_once('/') else { return false };
    value.pointer(pointer).is_some_and(Value::is_null)
        && value.pointer(parent).is_some_and(Value::is_object)
}

/// The value without the members at those pointers.
fn without(json: &Json, pointer: &mut String, dropped: &HashSet<String>) -> Json {
    if dropped.is_empty() {
        return json.clone();
    }
    let parent = pointer.len();
    match json {
        Json::Array(items) => {
            let mut kept = Vec::with_capacity(items.len());
            for (index, item) in items.iter().enumerate() {
                push_pointer(pointer, &index.to_string());
                kept.push(without(item, pointer, dropped));
                pointer.truncate(parent);
            }
            Json::Array(kept)
        }
        Json::Object(members) => {
            let mut kept = Vec::with_capacity(members.len());
            for (name, value) in members {
                push_pointer(pointer, name);
                if !dropped.contains(pointer.as_str()) {
                    kept.push((name.clone(), without(value, pointer, dropped)));
                }
                pointer.truncate(parent);
            }
            Json::Object(kept)
        }
        other => other.clone(),
    }
}

/// Fills in the defaults of absent properties. A default is taken as it stands: nothing is filled
/// in inside it, which also ends a schema whose default needs itself.
fn fill(nodes: &[Node], id: usize, json: &mut Json) {
    let node = &nodes[id];
    match json {
        Json::Object(members) => {
            let mut absent = Vec::new();
            for (name, child) in &node.properties {
                match members.iter_mut().find(|(member, _)| member == name) {
                    Some((_, value)) => fill(nodes, *child, value),
                    None => absent.extend(
                        default_of(nodes, *child)
                            .map(|value| (name.clone(), Json::from_value(value))),
                    ),
                }
            }
            members.extend(absent);
        }
        Json::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                if let Some(child) = node.prefix.get(index).copied().or(node.items) {
                    fill(nodes, child, item);
                }
            }
        }
        _ => return,
    }
    node.always.iter().for_each(|id| fill(nodes, *id, json));
}

/// A subschema's own default, else the first of those it refers to.
fn default_of(nodes: &[Node], id: usize) -> Option<&Value> {
    let node = &nodes[id];
    node.default.as_ref().or_else(|| node.always.iter().find_map(|id| default_of(nodes, *id)))
}
