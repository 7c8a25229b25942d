//! The tries of one attempt (CONTRACT 5.7): on one worker, under one lease and the attempt's one clock.

use super::Delivery;
use super::claim::Claimed;
use crate::core::tries::{self, FailedTry, Plan};
use crate::outcome;
use crate::registry::{Registered, Run};
use crate::reports::Reports;
use crate::runner::{Ended, Invocation, LastWords, RawOutput, RunOutcome, native};
use crate::spend::Spend;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use toolfleet_io::telemetry::spans;
use toolfleet_proto::descriptor::ResultForm;
use toolfleet_proto::effect::Effect;
use toolfleet_proto::output;
use toolfleet_proto::wire::AttemptRecord;
use tracing::{Instrument as _, Span};

/// What all tries of an attempt share.
pub(super) struct Tries<'a> {
    pub(super) delivery: &'a Delivery,
    pub(super) tool: &'a Registered,
    pub(super) claimed: &'a Claimed,
    pub(super) attempt: &'a AttemptRecord,
    /// Time of the attempt, from the first try's start: later tries and the waits are in it.
    pub(super) timeout_ms: u64,
    pub(super) secrets: Vec<(String, String)>,
    pub(super) last_words: LastWords,
    pub(super) reports: Reports,
    pub(super) spend: Spend,
    /// The attempt's.
    pub(super) span: &'a Span,
}

impl Tries<'_> {
    /// Tries until the tool ends in another way than by a passing failure, or no further try is due.
    /// Gives how the last one ended, with the time from the first one's start, and how many there were.
    pub(super) async fn run(self) -> (Ended, u32) {
        let delivery = self.delivery;
        let retry = self.tool.descriptor.declared.retry.as_ref();
        let plan = tries::plan(Effect::from(delivery.job.effect()), retry);
        let began = Instant::now();
        let mut number = 0;
        loop {
            number += 1;
            let before = began.elapsed();
            let (mut ended, is_passing) = self.try_once(plan, number, self.left_ms(before)).await;
            if number > 1 {
                ended.duration = began.elapsed();
            }
            if !is_passing {
                return (ended, number);
            }
            let took_ms = ms(began.elapsed().saturating_sub(before));
            let left_ms = self.left_ms(began.elapsed());
            let random = uuid::Uuid::new_v4().as_u64_pair().1;
            let failed = FailedTry { number, took_ms, left_ms };
            let Some(wait_ms) = tries::wait_before_next(plan, failed, random) else {
                return (ended, number);
            };
            tracing::debug!(call = %delivery.name, number, wait_ms, "a passing failure: tried again");
            tokio::select! {
                biased;
                reason = delivery.stop.fired() => {
                    ended.outcome = RunOutcome::Stopped(reason);
                    return (ended, number);
                }
                () = sleep(Duration::from_millis(wait_ms)) => {}
            }
            delivery.edge.measures.tried_again(&self.tool.descriptor.name);
        }
    }

    fn left_ms(&self, since_start: Duration) -> u64 {
        self.timeout_ms.saturating_sub(ms(since_start))
    }

    /// One try, and whether it failed for a passing cause. Where there may be others it has a span of
    /// its own, below the attempt's.
    async fn try_once(&self, plan: Plan, number: u32, left_ms: u64) -> (Ended, bool) {
        let span = match plan.tries {
            1 => self.span.clone(),
            _ => spans::one_try(self.span, &self.tool.descriptor.name, number),
        };
        let ended = self.start(left_ms, &span).await;
        let is_passing = is_passing(self.tool.descriptor.result, &ended.outcome);
        if plan.tries > 1 && is_passing {
            spans::fail(&span, "transient");
        }
        (ended, is_passing)
    }

    async fn start(&self, left_ms: u64, span: &Span) -> Ended {
        let delivery = self.delivery;
        let context = delivery.context(self.claimed, self.attempt, self.timeout_ms, left_ms, span);
        let invocation = Invocation {
            context: Arc::new(context),
            arguments: delivery.job.arguments.clone(),
            timeout: Duration::from_millis(left_ms),
            kill_grace: Duration::from_millis(delivery.edge.limits.kill_grace_ms),
            capture_bytes_max: outcome::capture_bytes_max(
                self.tool.descriptor.result,
                delivery.job.result_bytes_max,
            ),
            stop: delivery.stop.clone(),
            expiry: delivery.edge.keeper.expiry(&self.claimed.holder.claim),
            secrets: self.secrets.clone(),
            last_words: self.last_words.clone(),
            reports: self.reports.clone(),
        };
        let spend = self.spend.clone();
        let running = match self.tool.run.clone() {
            Run::Native(native) => {
                let threads = delivery.edge.threads.clone();
                let run = async move { native::run(&native, &invocation, spend, &threads).await };
                // Attended to here: its own thread may block.
                Ok(run.instrument(span.clone()).await)
            }
            Run::Exec(exec) => {
                let run = async move { exec.run(&invocation, Some(spend)).await };
                delivery.edge.tools.spawn(run.instrument(span.clone())).await
            }
        };
        running.unwrap_or_else(|error| {
            Ended::unstarted(RunOutcome::Failed {
                message: format!("the tool's task ended: {error}"),
                is_transient: false,
            })
        })
    }
}

/// Whether the tool itself said that trying again may help.
fn is_passing(form: ResultForm, outcome: &RunOutcome) -> bool {
    match outcome {
        RunOutcome::Failed { is_transient, .. } => *is_transient,
        RunOutcome::Output(RawOutput::Captured { bytes, whole_bytes, .. }) => {
            form == ResultForm::Envelope
                && bytes.len() as u64 == *whole_bytes
                && output::is_transient_failure(bytes)
        }
        _ => false,
    }
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_tool_calls_passing_is() {
        let failed = |is_transient| RunOutcome::Failed { message: "busy".into(), is_transient };
        let captured = |text: &str, whole_bytes| {
            RunOutcome::Output(RawOutput::Captured {
                bytes: text.into(),
                whole_bytes,
                invalid_utf8_at: None,
            })
        };
        assert!(is_passing(ResultForm::Text, &failed(true)));
        assert!(!is_passing(ResultForm::Text, &failed(false)));
        assert!(!is_passing(ResultForm::Text, &RunOutcome::TimedOut));
        let said = r#"{"content":[],"isError":true,"transient":true}"#;
        let whole = said.len() as u64;
        assert!(is_passing(ResultForm::Envelope, &captured(said, whole)));
        assert!(!is_passing(ResultForm::Envelope, &captured(said, whole + 1)), "only a part of it");
        assert!(!is_passing(ResultForm::Json, &captured(said, whole)), "never guessed");
    }
}
