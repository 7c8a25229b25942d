//! Gemini's function declarations, with the schema in one of two forms.

use super::{Shown, openapi, reference, root, walk};
use serde_json::{Map, Value, json};
use toolfleet_proto::descriptor::Descriptor;

/// The value of `tools`: one entry with all declarations, and none where there is no tool, since the
/// provider refuses an empty list of declarations.
pub(super) fn tools(declarations: Vec<Value>) -> Vec<Value> {
    if declarations.is_empty() {
        return Vec::new();
    }
    vec![json!({"functionDeclarations": declarations})]
}

/// One declaration, its schema as JSON Schema.
pub(super) fn with_json_schema(tool: &Descriptor) -> Value {
    let shown = root::shown(&super::dialect::modern(&tool.input_schema), &[]);
    let mut schema = reference::alone(&shown.schema);
    walk::with_items(&mut schema);
    declaration(tool, &shown, "parametersJsonSchema", Some(schema))
}

/// One declaration, its schema in the older form.
pub(super) fn with_openapi(tool: &Descriptor) -> Value {
    let modern = super::dialect::modern(&tool.input_schema);
    let shown = root::shown(&modern, root::ANTHROPIC_REFUSED);
    let parameters = openapi::parameters(&shown.schema);
    declaration(tool, &shown, "parameters", parameters)
}

fn declaration(tool: &Descriptor, shown: &Shown, key: &str, schema: Option<Value>) -> Value {
    let mut declaration = Map::new();
    declaration.insert("name".into(), json!(tool.name));
    declaration.insert("description".into(), json!(super::describe(tool, shown)));
    if let Some(schema) = schema {
        declaration.insert(key.to_owned(), schema);
    }
    Value::Object(declaration)
}
