//! Tools as an MCP server lists them.

use super::{dialect, root, walk};
use serde_json::{Map, Value, json};
use toolfleet_proto::descriptor::Descriptor;
use toolfleet_proto::effect::Effect;

/// An annotation that makes clients send an argument as a header too, and leave a tool out where it is
/// misplaced. Nothing here reads such headers.
const HEADER_ANNOTATION: &str = "x-mcp-header";

/// One tool. An output schema is shown where it is an object's: older revisions know no other, and some
/// clients drop the whole list for one.
pub(super) fn tool(tool: &Descriptor) -> Value {
    let mut shown = Map::new();
    shown.insert("name".into(), json!(tool.name));
    shown.insert("description".into(), json!(tool.description));
    let input = root::shown(&dialect::modern(&tool.input_schema), &[]).schema;
    shown.insert("inputSchema".into(), without_headers(input));
    let output = tool.output_schema.as_ref().map(dialect::modern);
    let is_object = |schema: &Value| schema.get("type").is_some_and(|kind| kind == "object");
    if let Some(output) = output.filter(is_object) {
        shown.insert("outputSchema".into(), without_headers(output));
    }
    shown.insert("annotations".into(), annotations(tool.effect));
    Value::Object(shown)
}

/// Hints from the effect, which is the most that any call may have. What may change something is said to
/// be destructive: the effect does not tell.
fn annotations(effect: Effect) -> Value {
    match effect {
        Effect::Read => json!({"readOnlyHint": true}),
        Effect::Idempotent => {
            json!({"readOnlyHint": false, "destructiveHint": true, "idempotentHint": true})
        }
        Effect::Write => {
            json!({"readOnlyHint": false, "destructiveHint": true, "idempotentHint": false})
        }
    }
}

fn without_headers(mut schema: Value) -> Value {
    walk::rewrite(&mut schema, &mut |keywords| {
        keywords.shift_remove(HEADER_ANNOTATION);
    });
    schema
}
