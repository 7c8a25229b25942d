//! One attempt of a tool written in Rust: on a thread of its own, under its clocks.

use super::Native;
use crate::context::Context;
use crate::runner::threads::Threads;
use crate::runner::{Ended, Invocation, Rest, RunOutcome};
use crate::spend::Spend;
use crate::stop::StopReason;
use futures::FutureExt as _;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Span;

/// How long a thread may take to notice that its tool was given up: one that awaits notices at once.
const LET_GO: Duration = Duration::from_millis(50);

/// Runs one attempt on a thread of its own, so that one which blocks harms no other: it is stopped on
/// time whatever it does, and where it does not return within the kill grace its thread is abandoned.
pub async fn run(
    tool: &Arc<dyn Native>,
    invocation: &Invocation,
    spend: Spend,
    threads: &Threads,
) -> Ended {
    let (tool, arguments) = (Arc::clone(tool), invocation.arguments.clone());
    let context = context(invocation, spend);
    let (runtime, given_up) = (threads.runtime().clone(), CancellationToken::new());
    let (letting_go, span) = (given_up.clone(), Span::current());
    let name = invocation.context.tool_name.clone();
    attend_or_leave(invocation, name, threads, given_up, move || {
        let _entered = span.enter();
        // Dropped at its next await, once it was given up.
        runtime.block_on(letting_go.run_until_cancelled(body(&tool, &arguments, context))).flatten()
    })
    .await
}

async fn attend_or_leave(
    invocation: &Invocation,
    name: String,
    threads: &Threads,
    given_up: CancellationToken,
    on_thread: impl FnOnce() -> Option<RunOutcome> + Send + 'static,
) -> Ended {
    if let Some(reason) = invocation.stop.reason() {
        return Ended::unstarted(stopped(Some(reason)));
    }
    let mut thread = threads.runtime().spawn_blocking(on_thread);
    let returned = async {
        match (&mut thread).await {
            Ok(outcome) => outcome,
            Err(error) => Some(RunOutcome::Failed {
                message: format!("the tool's thread ended: {error}"),
                is_transient: false,
            }),
        }
    };
    let (mut ended, has_returned) = attend(returned, invocation).await;
    given_up.cancel();
    if !has_returned && tokio::time::timeout(LET_GO, &mut thread).await.is_err() {
        threads.abandon(name, thread);
        ended.rest = Rest::Abandoned;
    }
    ended
}

/// Runs one attempt on the runtime of the caller: for tests with a clock of their own. A tool that blocks
/// is not stopped.
pub async fn run_here(tool: &Arc<dyn Native>, invocation: &Invocation, spend: Spend) -> Ended {
    let context = context(invocation, spend);
    attend(body(tool, &invocation.arguments, context), invocation).await.0
}

fn context(invocation: &Invocation, spend: Spend) -> Context {
    Context {
        call: Arc::clone(&invocation.context),
        stop: invocation.stop.clone(),
        spend,
        reports: invocation.reports.clone(),
    }
}

/// The tool itself. A panic is a failure of the call and of nothing else. `None` where it returned only
/// after it was told to stop: what it gives then does not count.
async fn body(tool: &Arc<dyn Native>, arguments: &[u8], context: Context) -> Option<RunOutcome> {
    let stop = context.stop.clone();
    let outcome = AssertUnwindSafe(tool.run(arguments, context)).catch_unwind().await;
    let outcome = outcome.unwrap_or_else(|panic| panicked(panic.as_ref()));
    (!stop.is_fired()).then_some(outcome)
}

/// Attends to a running tool under its clocks: after a stop or the timeout it has the kill grace to
/// return. Says also whether it has returned.
async fn attend(
    body: impl Future<Output = Option<RunOutcome>>,
    invocation: &Invocation,
) -> (Ended, bool) {
    let started = Instant::now();
    let stop = &invocation.stop;
    let mut body = std::pin::pin!(body);
    let outcome = tokio::select! {
        biased;
        outcome = &mut body => Some(outcome),
        _ = stop.fired() => None,
        () = tokio::time::sleep(invocation.timeout) => { stop.fire(StopReason::TimedOut); None }
    };
    let (outcome, has_returned) = match outcome {
        Some(outcome) => (outcome.unwrap_or_else(|| stopped(stop.reason())), true),
        None => {
            // It may still tidy up; what it returns now does not count.
            let tidied = tokio::time::timeout(invocation.kill_grace, &mut body).await;
            (stopped(stop.reason()), tidied.is_ok())
        }
    };
    (
        Ended { outcome, duration: started.elapsed(), rest: Rest::Returned, process: None },
        has_returned,
    )
}

fn stopped(reason: Option<StopReason>) -> RunOutcome {
    match reason {
        Some(StopReason::TimedOut) | None => RunOutcome::TimedOut,
        Some(reason) => RunOutcome::Stopped(reason),
    }
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
    use crate::runner::RawOutput;
    use crate::stop::Stop;
    use crate::tool::{Tool, ToolError, ToolSpec};
    use schemars::JsonSchema;
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
                "report" => {
                    context.reports().progress(Some(0.5), "half");
                    context.reports().metric("rows", 3.0);
                    Ok("reported".into())
                }
                "hang" => std::future::pending().await,
                "block" => {
                    std::thread::sleep(Duration::from_millis(1_000));
                    Ok("too late".into())
                }
                other => Ok(format!("did {other}")),
            }
        }
    }

    fn invocation(arguments: &str) -> Invocation {
        Invocation {
            context: Arc::new(CallContext::default()),
            arguments: arguments.to_owned().into(),
            timeout: Duration::from_millis(300),
            kill_grace: Duration::from_millis(30),
            capture_bytes_max: 1_000,
            stop: Stop::new(),
            expiry: crate::runner::Expiry::at(u64::MAX),
            secrets: Vec::new(),
            last_words: crate::runner::LastWords::default(),
            reports: crate::reports::Reports::default(),
        }
    }

    async fn run_tool(tool: impl Native, invocation: &Invocation) -> RunOutcome {
        let (spend, _queue) = Spend::new(SpendRecord::default());
        let tool: Arc<dyn Native> = Arc::new(tool);
        let threads = Threads::new(tokio::runtime::Handle::current());
        run(&tool, invocation, spend, &threads).await.outcome
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
    async fn what_it_reports_is_kept_with_the_attempt() {
        let invocation = invocation(r#"{"mode": "report"}"#);
        assert!(matches!(run_tool(Odd, &invocation).await, RunOutcome::Output(_)));
        let kept = invocation.reports.kept().unwrap();
        assert_eq!(kept.progress.unwrap().fraction, Some(0.5));
        assert_eq!(kept.metrics[0].name, "rows");
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
    async fn what_it_gives_because_it_was_told_to_stop_does_not_count() {
        let tool: Arc<dyn Native> = Arc::new(Odd);
        let threads = Threads::new(tokio::runtime::Handle::current());
        for is_here in [false, true] {
            let mut invocation = invocation(r#"{"mode": "wait"}"#);
            (invocation.timeout, invocation.kill_grace) = (Duration::MAX, Duration::MAX);
            let stop = invocation.stop.clone();
            tokio::spawn(async move { stop.fire(StopReason::DrainOver) });
            let (spend, _queue) = Spend::new(SpendRecord::default());
            let ended = if is_here {
                run_here(&tool, &invocation, spend).await
            } else {
                run(&tool, &invocation, spend, &threads).await
            };
            assert!(matches!(ended.outcome, RunOutcome::Stopped(StopReason::DrainOver)));
            assert_eq!(ended.rest, Rest::Returned);
        }
    }

    #[tokio::test]
    async fn one_that_blocks_is_left_behind_on_time_and_counted_until_it_returns() {
        let (spend, _queue) = Spend::new(SpendRecord::default());
        let tool: Arc<dyn Native> = Arc::new(Odd);
        let threads = Threads::new(tokio::runtime::Handle::current());
        let ended = run(&tool, &invocation(r#"{"mode": "block"}"#), spend, &threads).await;
        assert!(matches!(ended.outcome, RunOutcome::TimedOut));
        assert_eq!((ended.rest, threads.abandoned()), (Rest::Abandoned, 1));
        while threads.abandoned() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    #[tokio::test]
    async fn what_was_stopped_before_it_began_does_not_begin() {
        let invocation = invocation(r#"{"mode": "x"}"#);
        invocation.stop.fire(StopReason::LeaseLost);
        let outcome = run_tool(Odd, &invocation).await;
        assert!(matches!(outcome, RunOutcome::Stopped(StopReason::LeaseLost)));
    }

    #[tokio::test]
    async fn on_the_callers_runtime_it_ends_alike() {
        let (spend, _queue) = Spend::new(SpendRecord::default());
        let tool: Arc<dyn Native> = Arc::new(Odd);
        let ended = run_here(&tool, &invocation(r#"{"mode": "hang"}"#), spend).await;
        assert!(matches!(ended.outcome, RunOutcome::TimedOut));
        assert!(ended.duration >= Duration::from_millis(300));
    }

    #[tokio::test]
    async fn echo_keeps_digits_and_order() {
        let text = r#"{"z":12345678901234567890123,"a":1.10}"#;
        let outcome = run_tool(BenchEcho, &invocation(text)).await;
        assert!(matches!(outcome, RunOutcome::Output(RawOutput::Json(back)) if back == text));
    }
}
