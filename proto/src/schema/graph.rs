//! A schema's subschemas and how they apply one another: found before the validator is built, so
//! that a schema which never ends is refused instead of exhausting the stack.

use super::{CompileError, path::push_pointer};
use jsonschema::{Draft, ReferencingError, Registry, Uri, uri};
use serde_json::Value;
use std::collections::HashMap;

/// Where the document stands; never fetched from.
pub(super) const ROOT: &str = "json-schema:///root";
/// The longest chain of subschemas that apply to one and the same value.
const CHAIN_MAX: usize = 32;
/// How many subschemas may apply to one and the same value, each counted as often as it applies.
const WORK_MAX: u64 = 50_000;

/// One subschema.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    /// JSON Pointer in the document.
    pub(super) pointer: String,
    /// Its `default`.
    pub(super) default: Option<Value>,
    /// Its `properties`, by name.
    pub(super) properties: Vec<(String, usize)>,
    /// The schemas of an array's first items.
    pub(super) prefix: Vec<usize>,
    /// The schema of the other items.
    pub(super) items: Option<usize>,
    /// What applies to the same value whatever it is: `$ref` and `allOf`.
    pub(super) always: Vec<usize>,
    /// Everything that may apply to the same value, `always` included.
    pub(super) in_place: Vec<usize>,
}

/// The subschemas of a document, the root first. Refuses references that leave the document, lead
/// nowhere, or come back to their start without going into the value.
pub(super) fn read(
    schema: &Value,
    draft: Draft,
    registry: &Registry<'_>,
) -> Result<Vec<Node>, CompileError> {
    let mut places = HashMap::new();
    note_places(schema, &mut String::new(), &mut places);
    let base = uri::from_str(ROOT).map_err(|error| of_reference(&error, ROOT))?;
    let mut walk = Walk {
        registry,
        id_keyword: if draft == Draft::Draft4 { "id" } else { "$id" },
        places,
        nodes: Vec::new(),
        seen: HashMap::new(),
        pending: Vec::new(),
        dynamic: Vec::new(),
        anchors: Vec::new(),
    };
    walk.enter(schema, &base)?;
    while let Some((id, subschema, base)) = walk.pending.pop() {
        walk.visit(id, subschema, base)?;
    }
    // A dynamic reference may end at any anchor of its name.
    for (id, name) in &walk.dynamic {
        let targets = walk.anchors.iter().filter(|(_, anchor)| anchor == name);
        walk.nodes[*id].in_place.extend(targets.map(|(target, _)| *target));
    }
    check_end(&walk.nodes)?;
    Ok(walk.nodes)
}

/// Turns an error of the reference machinery into ours.
pub(super) fn of_reference(error: &ReferencingError, reference: &str) -> CompileError {
    match error {
        ReferencingError::Unretrievable { uri, .. } => CompileError::new(
            "schema.remote-ref",
            format!("the reference to {uri:?} leaves the document, and nothing is fetched"),
        ),
        ReferencingError::UnknownSpecification { specification } => {
            CompileError::new("schema.unknown-draft", format!("unknown draft {specification:?}"))
        }
        _ if reference.is_empty() => CompileError::new("schema.invalid", error.to_string()),
        _ => CompileError::new(
            "schema.invalid",
            format!("the reference {reference:?} leads nowhere"),
        ),
    }
}

fn note_places(value: &Value, pointer: &mut String, places: &mut HashMap<*const Value, String>) {
    places.insert(std::ptr::from_ref(value), pointer.clone());
    let parent = pointer.len();
    let mut note = |key: &str, value: &Value| {
        push_pointer(pointer, key);
        note_places(value, pointer, places);
        pointer.truncate(parent);
    };
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| note(&index.to_string(), item));
        }
        Value::Object(members) => members.iter().for_each(|(name, value)| note(name, value)),
        _ => {}
    }
}

struct Walk<'r> {
    registry: &'r Registry<'r>,
    id_keyword: &'static str,
    /// Where each part of the document stands. A part is known by its address.
    places: HashMap<*const Value, String>,
    nodes: Vec<Node>,
    seen: HashMap<*const Value, usize>,
    pending: Vec<(usize, &'r Value, Uri<String>)>,
    dynamic: Vec<(usize, String)>,
    anchors: Vec<(usize, String)>,
}

impl<'r> Walk<'r> {
    /// The number of a subschema, which is queued the first time. `None` for what is no schema.
    fn enter(
        &mut self,
        schema: &'r Value,
        base: &Uri<String>,
    ) -> Result<Option<usize>, CompileError> {
        if !matches!(schema, Value::Object(_) | Value::Bool(_)) {
            return Ok(None);
        }
        let address = std::ptr::from_ref(schema);
        if let Some(id) = self.seen.get(&address) {
            return Ok(Some(*id));
        }
        let Some(pointer) = self.places.get(&address).cloned() else {
            return Err(CompileError::new(
                "schema.remote-ref",
                "a reference leaves the document, and nothing is fetched".into(),
            ));
        };
        let id = self.nodes.len();
        self.nodes.push(Node { pointer, ..Node::default() });
        self.seen.insert(address, id);
        self.pending.push((id, schema, base.clone()));
        Ok(Some(id))
    }

    fn visit(
        &mut self,
        id: usize,
        schema: &'r Value,
        mut base: Uri<String>,
    ) -> Result<(), CompileError> {
        let Value::Object(keywords) = schema else { return Ok(()) };
        if let Some(own) = keywords.get(self.id_keyword).and_then(Value::as_str)
            && !own.starts_with('#')
        {
            let own = own.trim_end_matches('#');
            let resolved = self.registry.resolve_uri(&base.borrow(), own);
            base = (*resolved.map_err(|error| of_reference(&error, own))?).clone();
        }
        self.nodes[id].default = keywords.get("default").cloned();
        for (keyword, value) in keywords {
            match keyword.as_str() {
                "$ref" | "$dynamicRef" | "$recursiveRef" => {
                    self.refer(id, keyword, value, &base)?;
                }
                "$dynamicAnchor" => {
                    self.anchors.extend(value.as_str().map(|name| (id, name.to_owned())));
                }
                "$recursiveAnchor" if value == &Value::Bool(true) => {
                    self.anchors.push((id, String::new()));
                }
                _ => self.apply(id, keyword, value, &base)?,
            }
        }
        Ok(())
    }

    fn refer(
        &mut self,
        id: usize,
        keyword: &str,
        value: &Value,
        base: &Uri<String>,
    ) -> Result<(), CompileError> {
        let Some(reference) = value.as_str() else { return Ok(()) };
        let resolved = self.registry.resolver(base.clone()).lookup(reference);
        let resolved = resolved.map_err(|error| of_reference(&error, reference))?;
        let base = resolved.resolver().base_uri();
        let target = self.enter(resolved.contents(), &base)?;
        self.nodes[id].in_place.extend(target);
        if keyword == "$ref" {
            self.nodes[id].always.extend(target);
        } else {
            let name = reference.rsplit_once('#').map_or("", |(_, name)| name);
            self.dynamic.push((id, name.to_owned()));
        }
        Ok(())
    }

    /// Enters the subschemas of a keyword that is no reference.
    fn apply(
        &mut self,
        id: usize,
        keyword: &str,
        value: &'r Value,
        base: &Uri<String>,
    ) -> Result<(), CompileError> {
        match keyword {
            "allOf" | "anyOf" | "oneOf" => {
                for item in value.as_array().into_iter().flatten() {
                    let branch = self.enter(item, base)?;
                    self.nodes[id].in_place.extend(branch);
                    if keyword == "allOf" {
                        self.nodes[id].always.extend(branch);
                    }
                }
            }
            "not" | "if" | "then" | "else" => {
                let branch = self.enter(value, base)?;
                self.nodes[id].in_place.extend(branch);
            }
            "dependentSchemas" | "dependencies" => {
                for item in value.as_object().into_iter().flat_map(|members| members.values()) {
                    let branch = self.enter(item, base)?;
                    self.nodes[id].in_place.extend(branch);
                }
            }
            "properties" | "patternProperties" | "$defs" | "definitions" => {
                for (name, item) in value.as_object().into_iter().flatten() {
                    let child = self.enter(item, base)?;
                    if keyword == "properties" {
                        let property = child.map(|child| (name.clone(), child));
                        self.nodes[id].properties.extend(property);
                    }
                }
            }
            "items" | "prefixItems" => {
                for item in value.as_array().into_iter().flatten() {
                    let child = self.enter(item, base)?;
                    self.nodes[id].prefix.extend(child);
                }
                if keyword == "items" && !value.is_array() {
                    self.nodes[id].items = self.enter(value, base)?;
                }
            }
            "additionalItems"
            | "additionalProperties"
            | "contains"
            | "contentSchema"
            | "propertyNames"
            | "unevaluatedItems"
            | "unevaluatedProperties" => {
                self.enter(value, base)?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Takes away, again and again, what applies nothing that is left; a rest is a cycle. The order
/// gives the length of each chain and the work of each node on the way, without recursion.
fn check_end(nodes: &[Node]) -> Result<(), CompileError> {
    let mut parents = vec![Vec::new(); nodes.len()];
    let mut open: Vec<usize> = nodes.iter().map(|node| node.in_place.len()).collect();
    for (id, node) in nodes.iter().enumerate() {
        node.in_place.iter().for_each(|child| parents[*child].push(id));
    }
    let mut chain = vec![1usize; nodes.len()];
    let mut work = vec![1u64; nodes.len()];
    let mut ready: Vec<usize> = (0..nodes.len()).filter(|id| open[*id] == 0).collect();
    while let Some(id) = ready.pop() {
        if chain[id] > CHAIN_MAX || work[id] > WORK_MAX {
            return Err(CompileError::new(
                "schema.too-large",
                format!("too many subschemas apply to one value at {}", place(&nodes[id])),
            ));
        }
        for parent in parents[id].clone() {
            chain[parent] = chain[parent].max(chain[id] + 1);
            work[parent] = work[parent].saturating_add(work[id]);
            open[parent] -= 1;
            if open[parent] == 0 {
                ready.push(parent);
            }
        }
    }
    // What is left of a cycle and of what leads to it; a step to what is left stays in there.
    let Some(mut at) = open.iter().position(|left| *left > 0) else { return Ok(()) };
    let mut walked = vec![false; nodes.len()];
    while !walked[at] {
        walked[at] = true;
        at = nodes[at].in_place.iter().copied().find(|child| open[*child] > 0).unwrap_or(at);
    }
    Err(CompileError::new(
        "schema.endless",
        format!("{} refers to itself without end", place(&nodes[at])),
    ))
}

fn place(node: &Node) -> String {
    if node.pointer.is_empty() { "the root".into() } else { format!("#{}", node.pointer) }
}
