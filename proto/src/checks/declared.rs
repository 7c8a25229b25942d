//! Checks of what a tool declares beyond its schemas and clocks.

use super::Finding;
use crate::code::Code;
use crate::declared::{Declared, DryRunResult};
use crate::descriptor::{Descriptor, ResultForm};
use crate::expression::Program;
use crate::json::Json;
use crate::output;
use crate::schema::Schema;
use serde_json::Value;

/// Everything that is wrong with what a tool declares.
pub(super) fn of(descriptor: &Descriptor) -> Vec<Finding> {
    let Declared { effect_expr, time_args: names, dry_run_result: result, .. } =
        &descriptor.declared;
    let mut found = Vec::new();
    found.extend(effect_expr.iter().filter_map(|found| expression("effect", &found.expr)));
    let input = Schema::compile(&descriptor.input_schema).ok();
    found.extend(names.iter().filter_map(|name| time_arg(name, input.as_ref())));
    found.extend(match result {
        Some(DryRunResult::Expr(text)) => expression("dry_run_result", text),
        Some(DryRunResult::Value(value)) => {
            dry_run_result(value, descriptor.result, descriptor.output_schema.as_ref())
        }
        None => None,
    });
    found
}

/// An expression over the input compiles.
pub fn expression(key: &str, text: &str) -> Option<Finding> {
    let error = Program::compile(text).err()?;
    Some(Finding::new(
        "tool.expression-invalid",
        format!("the expression of `{key}` cannot be used: {error}"),
        "correct it: CEL over `input`, as in `has(input.dry) ? 'read' : 'write'`",
    ))
}

/// A name of `time_args` is a property of the input. `input` is `None` after a fault of its own.
pub fn time_arg(name: &str, input: Option<&Schema>) -> Option<Finding> {
    input.is_some_and(|schema| !schema.has_property(name)).then(|| {
        Finding::new(
            "tool.time-args-invalid",
            format!("the input has no property `{name}`"),
            "name a property of `[input]`, or add it there",
        )
    })
}

/// What a dry run answers could be an output of the tool.
pub fn dry_run_result(value: &Value, form: ResultForm, output: Option<&Value>) -> Option<Finding> {
    // A schema that does not compile is a fault of its own.
    let schema = output.and_then(|schema| Schema::compile(schema).ok());
    let rendered = output::render_value(&Json::from_value(value), form, schema.as_ref(), u64::MAX);
    (rendered.code == Some(Code::InvalidOutput)).then(|| {
        Finding::new(
            "tool.dry-run-result-invalid",
            format!("`dry_run_result` is no output of the tool: {}", rendered.text),
            "write what the tool itself could answer",
        )
    })
}
