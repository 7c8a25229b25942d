//! A worker with tools that tests can watch: what they did stands in a ledger of their own.

use schemars::JsonSchema;
use serde::Deserialize;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use toolfleet_worker::spend::Amount;
use toolfleet_worker::{Context, Tool, ToolError, ToolSpec, process};

fn main() -> ExitCode {
    let tools = process::Tools::new().with(Nap).with(NapIdempotent).with(NapWrite).with(Ticker);
    let tools = tools.with(Spender).with(Panicker).with(Big).with(Blocker).with(Spinner);
    process::main(tools)
}

/// Sleeps.
struct Nap;
/// The same as an idempotent tool.
struct NapIdempotent;
/// The same as a write.
struct NapWrite;
/// Notes every few milliseconds that it still runs.
struct Ticker;
/// Spends, then sleeps.
struct Spender;
/// Blocks its thread.
struct Blocker;
/// Keeps a processor busy.
struct Spinner;
/// Panics.
struct Panicker;
/// Returns a lot.
struct Big;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NapInput {
    /// How long to sleep, in milliseconds.
    ms: u64,
    /// File to append to at start and end.
    #[serde(default)]
    ledger: Option<String>,
}

impl NapInput {
    async fn nap(&self, context: &Context) -> Result<u32, ToolError> {
        let attempt = context.call().attempt;
        self.note("start", context)?;
        tokio::time::sleep(Duration::from_millis(self.ms)).await;
        self.note("end", context)?;
        Ok(attempt)
    }

    /// One write, so that lines of several processes never mix.
    fn note(&self, word: &str, context: &Context) -> Result<(), ToolError> {
        let Some(path) = &self.ledger else { return Ok(()) };
        let (attempt, fence) = (context.call().attempt, context.call().fence);
        let at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let at_ms = at.unwrap_or_default().as_millis();
        let line = format!("{word} {attempt} {} {fence} {at_ms}\n", std::process::id());
        std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .map_err(|error| ToolError::new(format!("the ledger {path}: {error}")))
    }
}

impl Tool for Nap {
    type Input = NapInput;
    type Output = u32;

    fn spec(&self) -> ToolSpec {
        ToolSpec::read("nap", "Sleeps and returns the number of its attempt")
    }

    async fn call(&self, input: NapInput, context: Context) -> Result<u32, ToolError> {
        input.nap(&context).await
    }
}

impl Tool for NapIdempotent {
    type Input = NapInput;
    type Output = u32;

    fn spec(&self) -> ToolSpec {
        ToolSpec::idempotent("nap-idempotent", "Sleeps, as an idempotent tool")
    }

    async fn call(&self, input: NapInput, context: Context) -> Result<u32, ToolError> {
        input.nap(&context).await
    }
}

impl Tool for NapWrite {
    type Input = NapInput;
    type Output = u32;

    fn spec(&self) -> ToolSpec {
        ToolSpec::write("nap-write", "Sleeps, as a write")
    }

    async fn call(&self, input: NapInput, context: Context) -> Result<u32, ToolError> {
        input.nap(&context).await
    }
}

impl Tool for Ticker {
    type Input = NapInput;
    type Output = u32;

    fn spec(&self) -> ToolSpec {
        ToolSpec::read("ticker", "Notes every 20 ms that it runs, with the time")
    }

    async fn call(&self, input: NapInput, context: Context) -> Result<u32, ToolError> {
        let (attempt, until) =
            (context.call().attempt, Instant::now() + Duration::from_millis(input.ms));
        input.note("start", &context)?;
        while Instant::now() < until {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            input.note(&format!("tick {}", now.as_millis()), &context)?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        input.note("end", &context)?;
        Ok(attempt)
    }
}

impl Tool for Spender {
    type Input = NapInput;
    type Output = u32;

    fn spec(&self) -> ToolSpec {
        ToolSpec::read("spender", "Records three amounts, then sleeps")
    }

    async fn call(&self, input: NapInput, context: Context) -> Result<u32, ToolError> {
        for amount in ["0.0025", "1.000000001", "12"] {
            let amount = Amount {
                service: "search".into(),
                amount: amount.into(),
                currency: "USD".into(),
                quantity: "3".into(),
                unit: "queries".into(),
            };
            let recorded = context.spend().record(amount).await;
            recorded.map_err(|error| ToolError::new(error.to_string()))?;
        }
        input.nap(&context).await
    }
}

impl Tool for Blocker {
    type Input = NapInput;
    type Output = u32;

    fn spec(&self) -> ToolSpec {
        ToolSpec::read("blocker", "Blocks its thread and looks at no signal")
            .timeout(Duration::from_millis(300))
            .queue_timeout(Duration::from_secs(6))
    }

    async fn call(&self, input: NapInput, context: Context) -> Result<u32, ToolError> {
        input.note("start", &context)?;
        std::thread::sleep(Duration::from_millis(input.ms));
        input.note("end", &context)?;
        Ok(context.call().attempt)
    }
}

impl Tool for Spinner {
    type Input = NapInput;
    type Output = u32;

    fn spec(&self) -> ToolSpec {
        ToolSpec::read("spinner", "Computes without ever awaiting")
    }

    async fn call(&self, input: NapInput, context: Context) -> Result<u32, ToolError> {
        input.note("start", &context)?;
        let until = std::time::Instant::now() + Duration::from_millis(input.ms);
        while std::time::Instant::now() < until {
            std::hint::spin_loop();
        }
        input.note("end", &context)?;
        Ok(context.call().attempt)
    }
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

impl Tool for Panicker {
    type Input = Nothing;
    type Output = String;

    fn spec(&self) -> ToolSpec {
        ToolSpec::read("panicker", "Panics")
    }

    #[expect(clippy::panic, reason = "the worker must outlive a tool that does this")]
    async fn call(&self, _input: Nothing, _context: Context) -> Result<String, ToolError> {
        panic!("this tool always panics")
    }
}

#[derive(Deserialize, JsonSchema)]
struct BigInput {
    /// Bytes of text to return.
    bytes: usize,
}

impl Tool for Big {
    type Input = BigInput;
    type Output = String;

    fn spec(&self) -> ToolSpec {
        ToolSpec::read("big", "Returns text of characters of several bytes").result_bytes_max(4_000)
    }

    async fn call(&self, input: BigInput, _context: Context) -> Result<String, ToolError> {
        // Three bytes each, so that most bounds fall into the middle of one.
        let mut text = "\u{20ac}".repeat(input.bytes / 3);
        text.push_str(&"x".repeat(input.bytes % 3));
        Ok(text)
    }
}
