//! A worker with one tool. `cargo run -- test my-tool` runs the tool once, `cargo run` serves it.

use std::process::ExitCode;
use toolfleet_worker::{Context, Tool, ToolError, ToolSpec, process};

/// Its fields are what the tool needs: clients, settings.
struct WordCount;

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The text.
    #[serde(default = "example")]
    text: String,
}

fn example() -> String {
    "hello world".to_owned()
}

#[derive(serde::Serialize, schemars::JsonSchema)]
struct Output {
    /// How many words it has.
    words: usize,
}

impl Tool for WordCount {
    type Input = Input;
    type Output = Output;

    fn spec(&self) -> ToolSpec {
        ToolSpec::read("my-tool", "Counts the words of a text")
    }

    async fn call(&self, input: Input, _context: Context) -> Result<Output, ToolError> {
        Ok(Output { words: input.text.split_whitespace().count() })
    }
}

fn main() -> ExitCode {
    process::main(process::Tools::new().with(WordCount))
}

#[cfg(test)]
mod tests {
    use super::WordCount;
    use serde_json::json;
    use toolfleet_worker::testing::TestTool;

    #[tokio::test]
    async fn words_are_counted() {
        let run = TestTool::new(WordCount).unwrap().call(json!({"text": "a b c"})).run().await;
        assert_eq!(run.structured, Some(json!({"words": 3})));
    }
}
