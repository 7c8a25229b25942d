//! The commit: one bounded result, stored once (DESIGN 4.2 steps 7 to 9).

use super::claim::Claimed;
use super::{Delivery, Settle};
use crate::outcome::{self, Reading};
use crate::registry::Registered;
use crate::runner::{Ended, Rest, RunOutcome};
use std::time::Duration;
use toolfleet_io::telemetry::{self, spans};
use toolfleet_io::{ending, fail_point};
use toolfleet_proto::code::{self, Code};
use toolfleet_proto::effect::Effect;
use toolfleet_proto::end;
use toolfleet_proto::output::{self, Rendered};
use toolfleet_proto::wire::{
    AttemptRecord, CallResult, CancelRecord, MAY_HAVE_STARTED, NEVER_STARTED, Reports, StopEnd,
};
use tracing::{Instrument as _, Span};

/// How long the result of a tool that ended by itself is offered after its call's deadline.
const OFFER_MS: i64 = 3_600_000;
/// Pause between two tries to store a result.
const STORE_PAUSE: Duration = Duration::from_millis(200);

/// What a run comes to, before it is stored.
enum Outcome {
    /// The tool had ended by itself: the result may be offered, the stream judges.
    Offer(Rendered),
    /// A verdict on the call: only a holder inside its time may store it.
    Verdict(Rendered),
    /// The drain cut it, and another worker may run it again.
    HandBack,
    /// The lease is lost: nothing is said.
    Nothing,
}

/// What came of an attempt.
pub(super) struct Came {
    pub(super) ended: Ended,
    /// The text, should it have run out of its time.
    pub(super) timed_out: String,
    pub(super) reports: Option<Reports>,
}

impl Delivery {
    /// Stores what came of a run, and says how the delivery ends.
    pub(super) async fn commit(
        &self,
        tool: &Registered,
        claimed: &Claimed,
        attempt: AttemptRecord,
        came: Came,
        span: &Span,
    ) -> Settle {
        let Came { ended, timed_out, reports } = came;
        let claim = claimed.holder.claim.as_str();
        let is_not_started = matches!(ended.outcome, RunOutcome::NotStarted { .. });
        let (rendered, is_verdict) =
            match self.read_outcome(tool, ended.outcome, &timed_out, attempt.started_at_ms) {
                Outcome::Offer(rendered) => (rendered, false),
                Outcome::Verdict(rendered) => (rendered, true),
                Outcome::HandBack => {
                    self.edge.keeper.forget(claim);
                    self.edge.claims.release(&self.name, claim).await;
                    return Settle::HandBack { delay_ms: 0 };
                }
                Outcome::Nothing => {
                    self.edge.measures.lease_lost();
                    spans::fail(span, "lease_lost");
                    return Settle::Nothing;
                }
            };
        if let Some(code) = rendered.code {
            spans::fail(span, code.as_str());
        }
        let whole_bytes = usize::try_from(rendered.whole_bytes).unwrap_or(usize::MAX);
        spans::result(span, whole_bytes, rendered.is_truncated);
        let mut result = end::result(&self.job, &rendered, self.edge.clock.now_ms());
        result.attempts = claimed.attempt;
        result.queued_ms = (attempt.started_at_ms - result.submitted_at_ms).max(0);
        result.duration_ms = i64::try_from(ended.duration.as_millis()).unwrap_or(i64::MAX);
        let start_state = if is_not_started { NEVER_STARTED } else { MAY_HAVE_STARTED };
        start_state.clone_into(&mut result.start_state);
        if let Some(trace) = result.trace.as_mut() {
            trace.traceparent = telemetry::current_trace_context(span).0;
        }
        if result.code == Code::Cancelled.as_str() {
            result.cancel = Some(self.cancel_record(&attempt, ended.rest));
        }
        result.attempt = Some(attempt);
        result.reports = reports;
        let subject = self.edge.broker.prefix().result(&self.name);
        let kept_bytes = usize::try_from(result.kept_bytes).unwrap_or(usize::MAX);
        let committing = span.in_scope(|| spans::commit(&subject, kept_bytes));
        self.store(&result, claim, is_verdict, ended.duration).instrument(committing).await
    }

    fn cancel_record(&self, attempt: &AttemptRecord, rest: Rest) -> CancelRecord {
        let since_fired = self.stop.since_fired().unwrap_or_default();
        let since_fired_ms = i64::try_from(since_fired.as_millis()).unwrap_or(0);
        let requested_at_ms = self.stop.requested_at_ms();
        let delivered_at_ms = self.edge.clock.now_ms() - since_fired_ms;
        CancelRecord {
            requested_at_ms,
            // Two processes measure the fleet's clock to a few milliseconds.
            delivered_at_ms: delivered_at_ms.max(requested_at_ms),
            ended_at_ms: attempt.ended_at_ms,
            end: match rest {
                Rest::Returned => StopEnd::Stopped,
                Rest::Killed => StopEnd::Killed,
                Rest::Abandoned => StopEnd::Abandoned,
            }
            .into(),
        }
    }

    /// Stores the result while the lease is renewed: what is in hand is not given up to a broker that
    /// is away. Renewing ends before the lease is given back.
    async fn store(
        &self,
        result: &CallResult,
        claim: &str,
        is_verdict: bool,
        run: Duration,
    ) -> Settle {
        fail_point::reach("commit:before").await;
        let deadline_ms = self.job.clocks.map_or(0, |clocks| clocks.deadline_ms);
        loop {
            let is_held = self.edge.keeper.is_held(claim);
            if is_verdict && !is_held {
                self.edge.measures.lease_lost();
                return Settle::Nothing;
            }
            let retention_ms = self.edge.limits.unnamed_retention_ms;
            match ending::store_result(
                &self.edge.broker,
                &self.job,
                &self.name,
                result.clone(),
                retention_ms,
            )
            .await
            {
                Ok(stored) => {
                    fail_point::reach("commit:after").await;
                    // What another end was faster with was counted there.
                    if stored.is_ours {
                        self.count(&stored.result, Some(run));
                    }
                    let is_held = self.edge.keeper.is_held(claim);
                    if !is_held {
                        self.edge.measures.lease_lost();
                    }
                    self.edge.keeper.forget(claim);
                    self.edge.claims.done(&self.name, claim).await;
                    // A holder past its time acknowledges nothing; the start check ends the redelivery.
                    return if is_held { Settle::Acknowledge } else { Settle::Nothing };
                }
                Err(error) => {
                    tracing::warn!(call = %self.name, %error, "a result is not stored yet");
                }
            }
            let is_too_late = self.edge.clock.now_ms() > deadline_ms + OFFER_MS;
            if !is_held || is_too_late {
                if !is_held {
                    self.edge.measures.lease_lost();
                }
                self.edge.keeper.forget(claim);
                return Settle::Nothing;
            }
            tokio::time::sleep(STORE_PAUSE).await;
        }
    }

    fn read_outcome(
        &self,
        tool: &Registered,
        outcome: RunOutcome,
        timed_out: &str,
        started_at_ms: i64,
    ) -> Outcome {
        if let RunOutcome::Failed { is_transient, .. } = &outcome {
            tracing::debug!(call = %self.name, is_transient, "the tool reported a failure");
        }
        let bound = self.job.result_bytes_max;
        let effect = Effect::from(self.job.effect());
        match outcome::read(tool, effect, outcome, timed_out, bound) {
            Reading::Given(rendered) => Outcome::Offer(rendered),
            Reading::Verdict(rendered) => Outcome::Verdict(rendered),
            Reading::Nothing => Outcome::Nothing,
            Reading::Cut if end::needs_start_record(&self.job) => {
                let text = end::outcome_unknown(&self.job.tool, started_at_ms);
                Outcome::Verdict(output::render_error(Code::OutcomeUnknown, &text, bound))
            }
            Reading::Cut => Outcome::HandBack,
        }
    }

    /// Counts a result of ours. A tool that this worker does not have is not named: whoever published
    /// the job made the name.
    pub(crate) fn count(&self, result: &CallResult, run: Option<Duration>) {
        let tool = self.tool.as_ref().map_or("unknown", |tool| tool.descriptor.name.as_str());
        let outcome = Code::parse(&result.code).map_or(code::OK, Code::as_str);
        self.edge.measures.finished(tool, outcome, run, result.whole_bytes, result.is_truncated);
    }
}
