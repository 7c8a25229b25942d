//! What names a delivery on its spans.

use super::Delivery;
use super::claim::Claimed;
use toolfleet_io::telemetry::{self, spans};
use tracing::Span;

impl Delivery {
    /// The call, as spans name it.
    pub(super) fn call(&self) -> spans::Call<'_> {
        spans::Call {
            execution: &self.name.execution,
            turn: Some(self.job.turn.as_str()),
            call: &self.job.call_id,
            tool: &self.job.tool,
            pool: &self.edge.pool,
        }
    }

    /// The attempt, as spans name it.
    pub(super) fn attempt_of<'a>(&'a self, claimed: &'a Claimed) -> spans::Attempt<'a> {
        spans::Attempt {
            call: self.call(),
            worker: &self.edge.worker,
            attempt: claimed.attempt,
            fence: claimed.holder.fence,
        }
    }

    /// Makes a span a child of the job's publication, and so part of the turn's one trace (G10).
    pub(super) fn adopt(&self, span: &Span) {
        if let Some(trace) = &self.job.trace {
            telemetry::set_parent(span, &trace.traceparent, &trace.tracestate);
        }
    }

    /// From submission to now.
    pub(super) fn queued_ms(&self) -> u64 {
        let submitted = self.job.clocks.map_or(0, |clocks| clocks.submitted_at_ms);
        u64::try_from(self.edge.clock.now_ms() - submitted).unwrap_or(0)
    }
}
