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
use std::time::Instant;

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
                Err(error) => RunOutcome::Failed {
                    message: error.message,
                    is_transient: error.is_transient,
                },
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
    let outcome = tokio::select! {
        outcome = &mut body => Some(outcome),
        () = timeout => { stop.fire(StopReason::TimedOut); None }
        _ = stop.fired() => None,
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
    Ended { outcome, duration: started.elapsed() }
}

fn panicked(panic: &(dyn Any + Send)) -> RunOutcome {
    let words = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    RunOutcome::Failed { message: format!("the tool panicked: {words}"), is_transient: false }
}
