//! What a tool's expressions say of one call: its effect, and what a dry run answers (CONTRACT 1.8, 3.9).

use toolfleet_proto::code::Code;
use toolfleet_proto::declared::DryRunResult;
use toolfleet_proto::descriptor::{Descriptor, ResultForm};
use toolfleet_proto::effect::Effect;
use toolfleet_proto::expression::{CompileError, Program};
use toolfleet_proto::json::Json;
use toolfleet_proto::output::{self, Rendered};
use toolfleet_proto::schema::Schema;

/// What a dry run answers for a tool that declares nothing.
pub const ACKNOWLEDGED: &str = "Operation acknowledged.";

/// The expressions of one version of a tool, compiled. One that does not compile here (another build
/// checked it) is kept as its error: its calls are writes.
#[derive(Debug, Default)]
pub struct Expressions {
    effect: Option<Result<Program, CompileError>>,
    dry_run: Option<Result<Program, CompileError>>,
    /// Schema of the output, where a dry run has a result to check.
    output: Option<Schema>,
}

/// The effect of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// It.
    pub effect: Effect,
    /// Why the tool's expression did not tell, so that the call counts as a write.
    pub fault: Option<String>,
}

impl Expressions {
    /// Compiles what a descriptor declares.
    pub fn compile(descriptor: &Descriptor) -> Expressions {
        let declared = &descriptor.declared;
        let effect = declared.effect_expr.as_ref().map(|found| Program::compile(&found.expr));
        let dry_run = match &declared.dry_run_result {
            Some(DryRunResult::Expr(text)) => Some(Program::compile(text)),
            Some(DryRunResult::Value(_)) | None => None,
        };
        let output = descriptor.output_schema.as_ref();
        let output = output.filter(|_| declared.dry_run_result.is_some());
        let output = output.and_then(|schema| Schema::compile(schema).ok());
        Expressions { effect, dry_run, output }
    }

    /// The effect of a call with this input: checked, defaults filled in.
    pub fn effect(&self, descriptor: &Descriptor, input: &Json) -> Judged {
        let evaluated = match &self.effect {
            None => return Judged { effect: descriptor.effect, fault: None },
            Some(Err(error)) => Err(error.to_string()),
            Some(Ok(program)) => program.effect(input).map_err(|error| error.to_string()),
        };
        match evaluated {
            Ok(effect) => Judged { effect, fault: None },
            Err(fault) => Judged { effect: Effect::Write, fault: Some(fault) },
        }
    }

    /// What a dry run answers for a call with this input, within the tool's bound.
    pub fn dry_run_result(&self, descriptor: &Descriptor, input: &Json) -> Rendered {
        let bytes_max = descriptor.result_bytes_max;
        let value = match (&descriptor.declared.dry_run_result, &self.dry_run) {
            (None, _) => {
                let text = Json::String(ACKNOWLEDGED.to_owned());
                return output::render_value(&text, ResultForm::Text, None, bytes_max);
            }
            (Some(DryRunResult::Value(value)), _) => Ok(Json::from_value(value)),
            (Some(DryRunResult::Expr(_)), Some(Ok(program))) => {
                program.evaluate(input).map_err(|error| error.to_string())
            }
            (Some(DryRunResult::Expr(_)), Some(Err(error))) => Err(error.to_string()),
            (Some(DryRunResult::Expr(_)), None) => Err("it was not compiled".to_owned()),
        };
        match value {
            Ok(value) => {
                output::render_value(&value, descriptor.result, self.output.as_ref(), bytes_max)
            }
            Err(fault) => {
                let text = format!("dry run: `dry_run_result` of the tool gives nothing: {fault}");
                output::render_error(Code::ToolError, &text, bytes_max)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::catalog::tests::plain;
    use serde_json::{Value, json};
    use toolfleet_proto::declared::{Declared, Expression};

    fn tool(declared: Declared, output_schema: Option<Value>, result: ResultForm) -> Descriptor {
        Descriptor {
            effect: Effect::Write,
            result_bytes_max: 40,
            output_schema,
            result,
            declared,
            ..plain()
        }
    }

    fn dry(result: Option<DryRunResult>, output: Option<Value>, form: ResultForm) -> Rendered {
        let declared = Declared { dry_run_result: result, ..Declared::default() };
        let tool = tool(declared, output, form);
        let input = Json::parse(r#"{"cents": 500}"#).unwrap();
        Expressions::compile(&tool).dry_run_result(&tool, &input)
    }

    #[test]
    fn an_expression_that_does_not_tell_makes_a_write_and_says_why() {
        let judge = |expr: &str, input: &str| {
            let effect_expr = Some(Expression { expr: expr.into() });
            let declared = Declared { effect_expr, ..Declared::default() };
            let tool = tool(declared, None, ResultForm::Text);
            let judged = Expressions::compile(&tool).effect(&tool, &Json::parse(input).unwrap());
            (judged.effect, judged.fault)
        };
        assert_eq!(judge("input.dry ? 'read' : 'write'", r#"{"dry": true}"#), (Effect::Read, None));
        for (expr, input) in [
            ("input.dry ? 'read' : 'write'", "{}"),
            ("'READ'", "{}"),
            ("now()", "{}"),
            ("input.a.all(x, input.a.all(y, true)) ? 'read' : 'write'", &many()),
        ] {
            let (effect, fault) = judge(expr, input);
            assert_eq!((effect, fault.is_some()), (Effect::Write, true), "{expr}: {fault:?}");
        }
        let plain = Descriptor {
            effect: Effect::Idempotent,
            ..tool(Declared::default(), None, ResultForm::Text)
        };
        let judged = Expressions::compile(&plain).effect(&plain, &Json::Null);
        assert_eq!(judged, Judged { effect: Effect::Idempotent, fault: None });
    }

    fn many() -> String {
        format!(r#"{{"a": [{}1]}}"#, "1,".repeat(20_000))
    }

    #[test]
    fn a_dry_run_answers_what_the_tool_declares_in_the_tools_own_form() {
        let plain = dry(None, Some(json!({"type": "integer"})), ResultForm::Json);
        assert_eq!((plain.code, plain.text.as_str()), (None, ACKNOWLEDGED));
        let value = |value: Value| Some(DryRunResult::Value(value));
        let text = dry(value(json!("paid")), None, ResultForm::Text);
        assert_eq!((text.text.as_str(), text.form), ("paid", ResultForm::Text));
        let quoted = dry(value(json!("paid")), None, ResultForm::Json);
        assert_eq!((quoted.text.as_str(), quoted.form), ("\"paid\"", ResultForm::Json));
        let object = dry(value(json!({"id": 0})), None, ResultForm::Json);
        assert_eq!(object.structured.as_deref(), Some(r#"{"id":0}"#));
        let envelope = json!({"content": [{"type": "text", "text": "paid"}]});
        assert_eq!(dry(value(envelope), None, ResultForm::Envelope).text, "paid");
        let long = dry(value(json!("x".repeat(50))), None, ResultForm::Text);
        assert!(long.is_truncated && long.code.is_none(), "{}", long.text);
    }

    #[test]
    fn an_expression_that_gives_nothing_or_no_output_ends_in_an_error() {
        let expr = |text: &str| Some(DryRunResult::Expr(text.into()));
        let schema = || Some(json!({"type": "object", "required": ["id"]}));
        let good = dry(expr("{'id': input.cents}"), schema(), ResultForm::Json);
        assert_eq!((good.code, good.text.as_str()), (None, r#"{"id":500}"#));
        let other = dry(expr("{'name': input.cents}"), schema(), ResultForm::Json);
        assert_eq!(other.code, Some(Code::InvalidOutput));
        assert!(other.text.starts_with("invalid output: id"), "{}", other.text);
        for text in ["input.name", "now()"] {
            let nothing = dry(expr(text), schema(), ResultForm::Json);
            assert_eq!(nothing.code, Some(Code::ToolError), "{text}");
            assert!(nothing.text.starts_with("dry run: `dry_run_result`"), "{}", nothing.text);
        }
    }
}
