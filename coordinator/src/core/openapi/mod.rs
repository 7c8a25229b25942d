//! Tools from an OpenAPI document (CONTRACT 1.14): one manifest an operation, to be read and edited.
//! OpenAPI 3.0 and 3.1, as JSON. Nothing is fetched: references stay in the document.

mod document;
mod name;
mod operation;
mod schema;
mod security;
#[cfg(test)]
mod tests;

use document::Document;
use serde_json::Value;
use toolfleet_proto::effect::Effect;

/// Tools that are written unless all are asked for: a model chooses badly among more.
pub const TOOLS_MAX: usize = 40;
/// The program that every imported tool runs.
pub const PROGRAM: &str = "http_call.py";

/// The methods of a path item, in the order in which its operations are listed.
const METHODS: [&str; 8] = ["get", "head", "post", "put", "patch", "delete", "options", "trace"];

/// A tool made of an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// Its name.
    pub name: String,
    /// `GET /pets/{petId}`.
    pub operation: String,
    /// By its method.
    pub effect: Effect,
    /// Its manifest, JSON.
    pub manifest: Value,
    /// Names of the secrets that it needs, each with what it holds.
    pub secrets: Vec<(String, String)>,
}

/// What a document comes to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Import {
    /// Tools, in the order of the document.
    pub tools: Vec<Imported>,
    /// Operations of which no tool was made, each with the reason.
    pub left_out: Vec<(String, String)>,
}

/// The effect of a method: what its definition promises.
fn effect(method: &str) -> Effect {
    match method {
        "get" | "head" => Effect::Read,
        "put" | "delete" => Effect::Idempotent,
        _ => Effect::Write,
    }
}

/// Makes a tool of every operation. `server` stands in for the document's own servers.
///
/// # Errors
/// Where it is no OpenAPI document of a known version. What is wrong with one operation leaves out that
/// one.
pub fn convert(root: &Value, server: Option<&str>) -> Result<Import, String> {
    let document = Document::new(root)?;
    let paths = root.get("paths").and_then(Value::as_object);
    let mut import = Import::default();
    let mut found = Vec::new();
    for (path, item) in paths.into_iter().flatten() {
        let item = match document.resolve(item) {
            Ok(item) => item,
            Err(why) => {
                import.left_out.push((path.clone(), why));
                continue;
            }
        };
        let methods = METHODS.iter().filter_map(|method| Some((*method, item.get(method)?)));
        found.extend(methods.map(|(method, operation)| (method, path.as_str(), item, operation)));
    }
    let names = name::names(found.iter().map(|(method, path, _, operation)| {
        let id = operation.get("operationId").and_then(Value::as_str);
        (id, *method, *path)
    }));
    for ((method, path, item, operation), name) in found.into_iter().zip(names) {
        let label = format!("{} {path}", method.to_uppercase());
        let place = operation::Place { document: &document, method, path, item, operation };
        match operation::tool(&place, &name, server) {
            Ok(tool) => import.tools.push(tool),
            Err(why) => import.left_out.push((label, why)),
        }
    }
    Ok(import)
}
