//! `bench-echo`: gives its input back. Built into every worker, to measure the path without a tool.

use crate::context::Context;
use crate::tool::{Tool, ToolError, ToolSpec};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The tool.
pub struct BenchEcho;

/// Any object, its text untouched, so that digits and order of keys come back as they were.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub struct Echo(Box<RawValue>);

impl JsonSchema for Echo {
    fn schema_name() -> Cow<'static, str> {
        "Echo".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object"})
    }
}

impl Tool for BenchEcho {
    type Input = Echo;
    type Output = Echo;

    fn spec(&self) -> ToolSpec {
        ToolSpec::read("bench-echo", "Gives its input back. For measuring the fleet.").tag("bench")
    }

    async fn call(&self, input: Echo, _context: Context) -> Result<Echo, ToolError> {
        Ok(input)
    }
}
