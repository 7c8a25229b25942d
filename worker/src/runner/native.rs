//! Tools written in Rust, their types erased.

mod attempt;

pub use attempt::{run, run_here};

use super::{RawOutput, RunOutcome};
use crate::context::Context;
use crate::tool::{Tool, ToolSpec};
use schemars::JsonSchema;
use serde_json::Value;
use std::pin::Pin;
use toolfleet_proto::json::Json;

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
            let input: T::Input = match read_input(arguments) {
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

/// Reads the arguments as they are; where the type refuses them, with whole numbers written plainly. To
/// a schema `5.0` is an integer, to a decoder it is not.
fn read_input<T: serde::de::DeserializeOwned>(arguments: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(arguments).or_else(|error| {
        let text = std::str::from_utf8(arguments).unwrap_or_default();
        let Ok(json) = Json::parse(text) else { return Err(error) };
        serde_json::from_str(&json.with_whole_numbers().to_text()).map_err(|_| error)
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench_echo::BenchEcho;
    use crate::tool::ToolError;

    #[test]
    fn a_whole_number_fits_an_integer_however_it_is_written() {
        #[derive(Debug, serde::Deserialize)]
        struct Counted {
            n: i64,
            rest: serde_json::Value,
        }
        for (written, n) in [("5", 5), ("5.0", 5), ("5e0", 5), ("1e3", 1_000), ("-0.0", 0)] {
            let text = format!("{{\"n\": {written}, \"rest\": null}}");
            let read: Counted = read_input(text.as_bytes()).unwrap();
            assert_eq!((read.n, read.rest), (n, serde_json::Value::Null), "{written}");
        }
        for refused in ["5.5", "\"5\"", "1e300"] {
            let text = format!("{{\"n\": {refused}, \"rest\": null}}");
            assert!(read_input::<Counted>(text.as_bytes()).is_err(), "{refused}");
        }
    }

    #[derive(serde::Deserialize, JsonSchema)]
    struct Place {
        /// Where to look.
        place: String,
    }

    struct Weather;

    impl Tool for Weather {
        type Input = Place;
        type Output = String;

        fn spec(&self) -> ToolSpec {
            ToolSpec::read("weather", "Tells the weather")
        }

        async fn call(&self, input: Place, _: Context) -> Result<String, ToolError> {
            Ok(format!("fair in {}", input.place))
        }
    }

    #[test]
    fn field_docs_become_descriptions_and_text_has_no_output_schema() {
        let schema = Weather.input_schema();
        assert_eq!(schema["properties"]["place"]["description"], "Where to look.");
        assert_eq!(schema.get("title"), None);
        assert!(Weather.is_text() && Weather.output_schema().is_none());
        assert_eq!(BenchEcho.output_schema().unwrap()["type"], "object");
    }
}
