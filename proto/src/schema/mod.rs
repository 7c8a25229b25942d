//! JSON Schema: what a tool takes and gives (CONTRACT 1.3, 3.3, 3.4, 6.3).
//!
//! Offline, formats asserted, nothing coerced. A schema that cannot be used is refused when the
//! tool is loaded, with a code; it never crashes the process.

mod admit;
mod fault;
mod graph;
pub(crate) mod path;

use crate::json::{DEPTH_MAX, Json};
use fault::Fault;
use graph::Node;
use jsonschema::{
    Draft, PatternOptions, Registry, RegistryBuilder, ValidationError, ValidationOptions,
    Validator, error::ValidationErrorKind,
};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The largest schema, bytes of compact JSON.
pub const SCHEMA_BYTES_MAX: usize = 256 * 1024;
/// Issues that are told in full.
pub const ISSUES_MAX: usize = 8;
/// Steps that one match of one pattern may go back.
const BACKTRACKS_MAX: usize = 100_000;

/// A compiled schema. Compile once for each tool; checking is cheap and `&self`.
#[derive(Debug)]
pub struct Schema {
    validator: Validator,
    nodes: Vec<Node>,
}

/// Why a schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CompileError {
    /// `schema.invalid`, `schema.remote-ref`, `schema.endless`, `schema.too-large` or
    /// `schema.unknown-draft`.
    pub code: &'static str,
    /// What is wrong, and where.
    pub message: String,
}

impl CompileError {
    fn new(code: &'static str, message: String) -> CompileError {
        CompileError { code, message }
    }
}

/// One thing wrong with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Where, as in `jobs[2].url`; empty for the value itself.
    pub path: String,
    /// What was expected; quotes at most 64 bytes of what was found.
    pub text: String,
}

impl Schema {
    /// Compiles a schema: 2020-12 unless `$schema` names an older draft.
    ///
    /// Refused: more than [`SCHEMA_BYTES_MAX`] bytes or 64 levels, references that leave the
    /// document or lead nowhere, and schemas that refer to themselves without end.
    pub fn compile(schema: &Value) -> Result<Schema, CompileError> {
        check_size(schema)?;
        let draft = draft_of(schema)?;
        let registry = Registry::new()
            .draft(draft)
            .retrieve_known_draft_meta_schemas(false)
            .add(graph::ROOT, draft.create_resource_ref(schema))
            .and_then(RegistryBuilder::prepare)
            .map_err(|error| graph::of_reference(&error, ""))?;
        let mut nodes = graph::read(schema, draft, &registry)?;
        let validator = options(draft).build(schema).map_err(|error| of_build(&error, schema))?;
        for node in &mut nodes {
            node.default = node.default.take().filter(|default| {
                let reference = format!("{}#{}", graph::ROOT, percent_encode(&node.pointer));
                options(draft)
                    .with_registry(&registry)
                    .with_base_uri("json-schema:///default")
                    .build(&json!({"$ref": reference}))
                    .is_ok_and(|validator| validator.is_valid(default))
            });
        }
        Ok(Schema { validator, nodes })
    }

    /// Whether a value fits.
    pub fn is_valid(&self, value: &Value) -> bool {
        self.validator.is_valid(value)
    }

    /// Whether the schema knows a property of that name at its root, in any branch that may apply
    /// there.
    pub fn has_property(&self, name: &str) -> bool {
        let mut pending = vec![0];
        let mut seen = vec![false; self.nodes.len()];
        while let Some(id) = pending.pop() {
            let Some(node) = self.nodes.get(id).filter(|_| !std::mem::replace(&mut seen[id], true))
            else {
                continue;
            };
            if node.properties.iter().any(|(property, _)| property == name) {
                return true;
            }
            pending.extend(&node.in_place);
        }
        false
    }

    /// Everything that is wrong with a value, in the validator's order; empty if it fits.
    pub fn issues(&self, value: &Value) -> Vec<Issue> {
        self.faults(value).into_iter().map(|fault| issue(value, fault)).collect()
    }

    /// Checks a value. The error is what [`describe_issues`] says of it.
    pub fn check(&self, value: &Json) -> Result<(), String> {
        let value = value.to_value();
        if self.is_valid(&value) { Ok(()) } else { Err(self.describe(&value)) }
    }

    fn faults(&self, value: &Value) -> Vec<Fault> {
        let mut faults = Vec::new();
        self.validator
            .iter_errors(value)
            .for_each(|error| fault::collect(value, &error, &mut faults));
        faults
    }

    fn describe(&self, value: &Value) -> String {
        let faults = self.faults(value);
        let count = faults.len();
        let told = faults.into_iter().take(ISSUES_MAX).map(|fault| issue(value, fault));
        describe(&told.collect::<Vec<_>>(), count)
    }
}

/// Issues as one line: at most [`ISSUES_MAX`] as `<path>: <issue>` joined by `; `, then how many
/// more.
pub fn describe_issues(issues: &[Issue]) -> String {
    describe(issues, issues.len())
}

fn describe(issues: &[Issue], count: usize) -> String {
    let told = &issues[..issues.len().min(ISSUES_MAX)];
    let mut text = String::new();
    for (at, issue) in told.iter().enumerate() {
        if at > 0 {
            text.push_str("; ");
        }
        if !issue.path.is_empty() {
            text.push_str(&issue.path);
            text.push_str(": ");
        }
        text.push_str(&issue.text);
    }
    if count > told.len() {
        let _ = write!(text, "; and {} more", count - told.len());
    }
    text
}

fn issue(value: &Value, fault: Fault) -> Issue {
    Issue { path: path::from_pointer(value, &fault.pointer), text: fault.text }
}

fn options<'r>(draft: Draft) -> ValidationOptions<'r> {
    jsonschema::options()
        .with_draft(draft)
        .offline()
        .should_validate_formats(true)
        .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(BACKTRACKS_MAX))
}

/// The draft that `$schema` names. Told apart here because an unknown one would be looked for.
fn draft_of(schema: &Value) -> Result<Draft, CompileError> {
    let Some(name) = schema.get("$schema") else { return Ok(Draft::Draft202012) };
    match name.as_str().map(|name| Draft::from_schema_uri(name.trim_end_matches('#'))) {
        Some(Draft::Unknown) | None => Err(CompileError::new(
            "schema.unknown-draft",
            format!("unknown draft {}", path::shorten(&name.to_string())),
        )),
        Some(draft) => Ok(draft),
    }
}

fn check_size(schema: &Value) -> Result<(), CompileError> {
    let mut pending = vec![(schema, 0)];
    while let Some((value, depth)) = pending.pop() {
        let below = depth + 1;
        match value {
            Value::Array(_) | Value::Object(_) if depth >= DEPTH_MAX => {
                let message = format!("nested deeper than {DEPTH_MAX} levels");
                return Err(CompileError::new("schema.too-large", message));
            }
            Value::Array(items) => pending.extend(items.iter().map(|item| (item, below))),
            Value::Object(members) => pending.extend(members.values().map(|item| (item, below))),
            _ => {}
        }
    }
    let bytes = schema.to_string().len();
    if bytes > SCHEMA_BYTES_MAX {
        let message = format!("{bytes} bytes, more than {SCHEMA_BYTES_MAX}");
        return Err(CompileError::new("schema.too-large", message));
    }
    Ok(())
}

fn of_build(error: &ValidationError<'_>, schema: &Value) -> CompileError {
    if let ValidationErrorKind::Referencing(error) = error.kind() {
        return graph::of_reference(error, "");
    }
    let mut faults = Vec::new();
    fault::collect(schema, error, &mut faults);
    let issues: Vec<Issue> = faults.into_iter().map(|fault| issue(schema, fault)).collect();
    CompileError::new("schema.invalid", describe_issues(&issues))
}

/// A JSON Pointer as a fragment of a URI.
fn percent_encode(pointer: &str) -> String {
    pointer.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

#[cfg(test)]
mod tests;
