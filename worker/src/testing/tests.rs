//! The helper itself, with tools written in Rust and time that is virtual.

use super::*;
use crate::context::Context;
use crate::tool::{ToolError, ToolSpec};
use schemars::JsonSchema;
use serde_json::json;

#[derive(serde::Deserialize, JsonSchema)]
struct Wish {
    /// What to do.
    what: String,
    #[serde(default = "many")]
    /// How often.
    times: u64,
}

fn many() -> u64 {
    3
}

/// Does what it is told.
struct Obliging(ToolSpec);

impl Tool for Obliging {
    type Input = Wish;
    type Output = Value;

    fn spec(&self) -> ToolSpec {
        self.0.clone()
    }

    async fn call(&self, wish: Wish, context: Context) -> Result<Value, ToolError> {
        match wish.what.as_str() {
            "spend" => {
                for n in 0..wish.times {
                    let amount = Amount {
                        service: "search".into(),
                        amount: format!("0.{n}0"),
                        currency: "USD".into(),
                        quantity: "1".into(),
                        unit: "query".into(),
                    };
                    let recorded = context.spend().record(amount).await;
                    recorded.map_err(|error| ToolError::new(error.to_string()))?;
                }
                Err(ToolError::new("spent for nothing"))
            }
            "sleep" => {
                tokio::time::sleep(Duration::from_secs(wish.times)).await;
                Ok(json!({"slept": wish.times}))
            }
            "wait" => {
                let reason = context.stop().fired().await;
                Err(ToolError::new(format!("{reason:?}")))
            }
            "tell" => Ok(json!({
                "attempt": context.call().attempt,
                "execution": context.call().execution_id,
                "timeoutMs": context.call().timeout_ms,
            })),
            _ => Ok(json!("words ".repeat(usize::try_from(wish.times).unwrap_or(0)))),
        }
    }
}

fn read() -> TestTool {
    let spec = ToolSpec::read("oblige", "Does what it is told");
    TestTool::new(Obliging(spec.timeout(Duration::from_secs(60)).result_bytes_max(1_000))).unwrap()
}

#[tokio::test(start_paused = true)]
async fn time_is_virtual_and_a_timeout_is_a_worker_s() {
    let before = std::time::Instant::now();
    let run = read().call(json!({"what": "sleep", "times": 59})).run().await;
    assert_eq!(run.model_reads.as_deref(), Some(r#"{"slept":59}"#));
    assert_eq!(
        (run.duration, run.structured.clone()),
        (Duration::from_secs(59), Some(json!({"slept": 59})))
    );
    let run = read().call(json!({"what": "sleep", "times": 61})).run().await;
    assert_eq!((run.code, run.is_ok()), (Some("timed_out"), false));
    assert_eq!(run.model_reads.as_deref(), Some("Tool error: timed out after 60 s"));
    // The tool has the kill grace to end after the timeout.
    assert_eq!(run.duration, Duration::from_secs(61));
    let write = ToolSpec::write("oblige", "Does").timeout(Duration::from_secs(1));
    let run = TestTool::new(Obliging(write)).unwrap().call(json!({"what": "sleep"})).run().await;
    assert_eq!(
        run.model_reads.as_deref(),
        Some(
            "Tool error: timed out after 1 s; it may have taken effect, check before calling it again"
        )
    );
    assert!(before.elapsed() < Duration::from_secs(20), "none of it took its time");
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_stop_is_what_a_worker_makes_of_it() {
    let stop = async |tool: TestTool, reason| {
        let call = tool.call(json!({"what": "wait"}));
        call.stop_after(Duration::from_secs(5), reason).run().await
    };
    let run = stop(read(), StopReason::Cancelled("no longer needed".into())).await;
    assert_eq!(
        (run.code, run.model_reads.as_deref()),
        (Some("cancelled"), Some("Tool error: no longer needed"))
    );
    assert_eq!(run.duration, Duration::from_secs(5));
    let run = stop(read(), StopReason::DrainOver).await;
    assert_eq!((run.code, run.model_reads.clone(), run.is_ok()), (None, None, false));
    let write = TestTool::new(Obliging(ToolSpec::write("oblige", "Does"))).unwrap();
    let run = stop(write, StopReason::DrainOver).await;
    assert_eq!(run.code, Some("outcome_unknown"));
    assert!(
        run.model_reads.unwrap().starts_with("Tool error: outcome unknown: oblige started at ")
    );
}

#[tokio::test(start_paused = true)]
async fn spend_is_recorded_also_where_the_call_fails_and_however_much_it_is() {
    let run = read().call(json!({"what": "spend", "times": 2})).run().await;
    assert_eq!(
        (run.code, run.model_reads.as_deref()),
        (Some("tool_error"), Some("Tool error: spent for nothing"))
    );
    let amounts: Vec<&str> = run.spend.iter().map(|spent| spent.amount.as_str()).collect();
    assert_eq!(amounts, ["0", "0.1"]);
    let run = read().call(json!({"what": "spend", "times": 1_000})).run().await;
    assert_eq!(run.spend.len(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn input_is_checked_and_filled_in_and_output_is_bounded() {
    let run =
        read().call_text(r#"{"what": "tell"}"#).context(|context| context.attempt = 2).run().await;
    assert_eq!(run.input.as_deref(), Ok(r#"{"what":"tell","times":3}"#));
    let told = json!({"attempt": 2, "execution": "test", "timeoutMs": 60_000});
    assert_eq!(
        (run.structured.clone(), run.output_check.clone()),
        (Some(told), OutputCheck::NotDeclared)
    );
    for (sent, refusal) in [
        (r#"{"what": 5}"#, "invalid input: what: expected string, got number 5"),
        ("[]", "invalid input: expected an object, got an array"),
    ] {
        let run = read().call_text(sent).run().await;
        assert_eq!(run.input, Err(refusal.to_owned()));
        assert_eq!((run.code, run.output.clone()), (Some("invalid_input"), None));
        assert_eq!(run.model_reads, Some(format!("Tool error: {refusal}")));
    }
    let run = read().call(json!({"what": "talk", "times": 500})).run().await;
    assert!(run.is_ok() && run.is_truncated && run.kept_bytes <= 1_000);
    assert_eq!(run.output.map(|text| text.len()), Some(3_000));
    let text = run.model_reads.unwrap();
    assert!(text.ends_with("bytes, the first 995 kept]"), "{text}");
}

#[test]
fn a_tool_that_a_worker_would_not_start_with_is_no_tool_here() {
    let faults = TestTool::new(Obliging(ToolSpec::read("no name", "")));
    assert!(faults.err().unwrap().to_string().contains("tool.name-invalid"));
}

#[tokio::test(start_paused = true)]
async fn a_run_is_shown_whole_for_people_and_as_json() {
    let tool = read();
    let run = tool.call(json!({"what": "spend", "times": 1})).run().await;
    let text = show::text(&tool, &run);
    for part in [
        "oblige: read, native, timeout 60 s, bound 1,000 bytes, hash ",
        "input: fits; the tool gets:\n  {\"what\":\"spend\",\"times\":1}",
        "spend: 0 USD to search for 1 query",
        "the model reads, tool_error:\n  Tool error: spent for nothing",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let value: Value = serde_json::from_str(&show::json(&tool, &run)).unwrap();
    assert_eq!((&value["ok"], &value["code"]), (&json!(false), &json!("tool_error")));
    assert_eq!(value["input"]["given"], json!({"what": "spend", "times": 1}));
    assert_eq!(value["spend"][0]["service"], "search");
    assert_eq!(value["model"]["text"], "Tool error: spent for nothing");
}
