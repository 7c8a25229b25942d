//! Runs tools written in Rust.

use super::{Ended, Invocation, RawOutput, RunOutcome};
use crate::context::Context;
use crate::spend::Spend;
use crate::stop::StopReason;
use crate::tool::{Tool, ToolSpec};
use futures::FutureExt as _;
use schemars::JsonSchema;
use serde_json::Value;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use tokio::time::Instant;

/// A tool whose types are erased.
pub trait Native: Send + Sync + 'static {
    /// Name, description, effect, clocks, bound.
    fn spec(&self) -> ToolSpec;
    /// Schema of the input.
    fn input_schema(&self) -> Value;
    /// Schema of the output; `None` for text and for anything goes.
    fn output_schema(&self) -> Option<Value>;
    /// Whether the output is text rather than JSON.
    fn is_text(&self) -> bool;
    /// Runs one attempt to its end, without clocks.
    fn run<'a>(
        &'a self,
        arguments: &'a [u8],
        context: Context,
    ) -> Pin<Box<dyn Future<Output = RunOutcome> + Send + 'a>>;
}

/// The schema of a type, without what only documents it.
fn schema_of<T: JsonSchema>() -> Value {
    let mut schema = schemars::schema_for!(T).to_value();
    if let Some(object) = schema.as_object_mut() {
        object.remove("title");
        object.remove("$schema");
    }
    schema
}

impl<T: Tool> Native for T {
    fn spec(&self) -> ToolSpec {
        Tool::spec(self)
    }

    fn input_schema(&self) -> Value {
        schema_of::<T::Input>()
    }

    fn output_schema(&self) -> Option<Value> {
        let schema = schema_of::<T::Output>();
        let says_nothing = schema.as_object().is_none_or(serde_json::Map::is_empty);
        (!self.is_text() && !says_nothing).then_some(schema)
    }

    fn is_text(&self) -> bool {
        schema_of::<T::Output>().get("type").and_then(Value::as_str) == Some("string")
    }

    fn run<'a>(
        &'a self,
        arguments: &'a [u8],
        context: Context,
    ) -> Pin<Box<dyn Future<Output = RunOutcome> + Send + 'a>> {
        Box::pin(async move {
            let input: T::Input = match serde_json::from_slice(arguments) {
                Ok(input) => input,
                Err(error) => return RunOutcome::InputRefused { message: error.to_string() },
            };
            match self.call(input, context).await {
                Ok(output) => read_output(&output),
                Err(error) => {
                    RunOutcome::Failed { message: error.message, is_transient: error.is_transient }
                }
            }
        })
    }
}

fn read_output(output: &impl serde::Serialize) -> RunOutcome {
    let text = match serde_json::to_string(output) {
        Ok(text) => text,
        Err(error) => {
            return RunOutcome::Failed {
                message: format!("the output is not JSON: {error}"),
                is_transient: false,
            };
        }
    };
    // A string is read verbatim.
    match serde_json::from_str::<String>(&text) {
        Ok(string) => RunOutcome::Output(RawOutput::Text(string)),
        Err(_) => RunOutcome::Output(RawOutput::Json(text)),
    }
}

/// Runs one attempt under its clocks: after a stop or the timeout the tool has the kill grace to
/// return, then it is dropped. A panic is a failure of the call and of nothing else.
pub async fn run(tool: &Arc<dyn Native>, invocation: &Invocation, spend: Spend) -> Ended {
    let started = Instant::now();
    let stop = invocation.stop.clone();
    let context = Context { call: Arc::clone(&invocation.context), stop: stop.clone(), spend };
    let body = AssertUnwindSafe(tool.run(&invocation.arguments, context)).catch_unwind();
    let mut body = std::pin::pin!(body);
    let timeout = tokio::time::sleep(invocation.timeout);
    // In this order: what a tool returns because it was told to stop does not count.
    let outcome = tokio::select! {
        biased;
        _ = stop.fired() => None,
        outcome = &mut body => Some(outcome),
        () = timeout => { stop.fire(StopReason::TimedOut); None }
    };
    let outcome = match outcome {
        Some(outcome) => outcome.unwrap_or_else(|panic| panicked(panic.as_ref())),
        None => {
            // It may still tidy up; what it returns now does not count.
            let _ = tokio::time::timeout(invocation.kill_grace, &mut body).await;
            match stop.reason() {
                Some(StopReason::TimedOut) | None => RunOutcome::TimedOut,
                Some(reason) => RunOutcome::Stopped(reason),
            }
        }
    };
    Ended { outcome, duration: started.elapsed(), process: None }
}

fn panicked(panic: &(dyn Any + Send)) -> RunOutcome {
    let words = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    RunOutcome::Failed { message: format!("the tool panicked: {words}"), is_transient: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench_echo::BenchEcho;
    use crate::context::CallContext;
    use crate::stop::Stop;
    use crate::tool::ToolError;
    use std::time::Duration;
    use toolfleet_proto::wire::SpendRecord;

    #[derive(serde::Deserialize, JsonSchema)]
    struct Mode {
        /// What to do.
        mode: String,
    }

    struct Odd;

    impl Tool for Odd {
        type Input = Mode;
        type Output = String;

        fn spec(&self) -> ToolSpec {
            ToolSpec::read("odd", "Does odd things")
        }

        async fn call(&self, input: Mode, context: Context) -> Result<String, ToolError> {
            match input.mode.as_str() {
                "panic" => panic!("gone wrong"),
                "fail" => Err(ToolError::transient("busy")),
                "wait" => {
                    context.stop().fired().await;
                    Ok("tidied up".into())
                }
                "hang" => std::future::pending().await,
                other => Ok(format!("did {other}")),
            }
        }
    }

    fn invocation(arguments: &str) -> Invocation {
        Invocation {
            context: Arc::new(CallContext::default()),
            arguments: arguments.to_owned().into(),
            timeout: Duration::from_millis(30),
            kill_grace: Duration::from_millis(30),
            capture_bytes_max: 1_000,
            stop: Stop::new(),
            expiry: crate::runner::Expiry::at(u64::MAX),
            secrets: Vec::new(),
        }
    }

    async fn run_tool(tool: impl Native, invocation: &Invocation) -> RunOutcome {
        let (spend, _queue) = Spend::new(SpendRecord::default());
        let tool: Arc<dyn Native> = Arc::new(tool);
        run(&tool, invocation, spend).await.outcome
    }

    #[tokio::test]
    async fn each_way_to_end_is_its_own_outcome() {
        let run =
            |arguments: &'static str| async move { run_tool(Odd, &invocation(arguments)).await };
        assert!(
            matches!(run(r#"{"mode": "x"}"#).await, RunOutcome::Output(RawOutput::Text(text)) if text == "did x")
        );
        assert!(matches!(
            run(r#"{"mode": "fail"}"#).await,
            RunOutcome::Failed { is_transient: true, .. }
        ));
        assert!(
            matches!(run(r#"{"mode": "panic"}"#).await, RunOutcome::Failed { message, .. } if message == "the tool panicked: gone wrong")
        );
        assert!(matches!(run(r#"{"mode": 5}"#).await, RunOutcome::InputRefused { .. }));
        assert!(matches!(run(r#"{"mode": "wait"}"#).await, RunOutcome::TimedOut));
        assert!(matches!(run(r#"{"mode": "hang"}"#).await, RunOutcome::TimedOut));
    }

    #[tokio::test]
    async fn a_stop_is_told_with_its_reason() {
        let invocation = invocation(r#"{"mode": "hang"}"#);
        invocation.stop.fire(StopReason::Cancelled("no longer needed".into()));
        let outcome = run_tool(Odd, &invocation).await;
        assert!(
            matches!(outcome, RunOutcome::Stopped(StopReason::Cancelled(reason)) if reason == "no longer needed")
        );
    }

    #[tokio::test]
    async fn echo_keeps_digits_and_order() {
        let text = r#"{"z":12345678901234567890123,"a":1.10}"#;
        let outcome = run_tool(BenchEcho, &invocation(text)).await;
        assert!(matches!(outcome, RunOutcome::Output(RawOutput::Json(back)) if back == text));
    }

    #[test]
    fn field_docs_become_descriptions_and_text_has_no_output_schema() {
        let schema = Odd.input_schema();
        assert_eq!(schema["properties"]["mode"]["description"], "What to do.");
        assert_eq!(schema.get("title"), None);
        assert!(Odd.is_text() && Odd.output_schema().is_none());
        assert_eq!(BenchEcho.output_schema().unwrap()["type"], "object");
    }
}
