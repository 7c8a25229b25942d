//! One admitted call from its job to its result, and what keeps a call from being admitted: shared by
//! turns and direct calls.

use crate::cancel::call_name;
use crate::core::admit::{self, Arguments, Names, Refusal};
use crate::core::answer::Ended;
use crate::core::catalog::Offer;
use crate::core::execution::{CallRecord, Execution};
use crate::core::mode::Mode;
use crate::durable::Pending;
use crate::service::Coordinator;
use crate::submit::NotAccepted;
use crate::turn::{REFUSAL_BYTES_MAX, TENANT, local_caller};
use toolfleet_io::telemetry::{self, spans};
use toolfleet_io::{ending, fail_point};
use toolfleet_proto::code::{self, Code};
use toolfleet_proto::json::Json;
use toolfleet_proto::wire::{CallResult, MAY_HAVE_STARTED, NEVER_STARTED, TraceContext};
use tracing::{Instrument as _, Span};

/// The span of a call: a child of the current one, or of `trace` where that names one.
fn call_span(offer: &Offer, names: &Names, trace: &TraceContext) -> Span {
    let span = spans::execute_tool(spans::Call {
        execution: &names.name.execution,
        turn: Some(names.turn.as_str()),
        call: &names.call_id,
        tool: &offer.descriptor.name,
        pool: &offer.pool,
    });
    telemetry::set_parent(&span, &trace.traceparent, &trace.tracestate);
    span
}

impl Coordinator {
    /// Whether an equal write of the execution ended with an unknown outcome that nobody has settled.
    pub(crate) async fn held_back(
        &self,
        record: &Execution,
        new: &CallRecord,
    ) -> Result<Option<Refusal>, NotAccepted> {
        for equal in record.unsettled_equals(new) {
            let name = call_name(&record.id, &equal.call);
            let result = ending::read_result(&self.broker, &name)
                .await
                .map_err(|error| NotAccepted::Unavailable(error.to_string()))?;
            // One that was held back itself says nothing new: the one that started is what counts.
            let is_unknown = |result: &CallResult| {
                result.code == Code::OutcomeUnknown.as_str()
                    && result.start_state == MAY_HAVE_STARTED
            };
            if let Some(result) = result.filter(is_unknown) {
                return Ok(Some(Refusal { code: Code::OutcomeUnknown, text: result.text() }));
            }
        }
        Ok(None)
    }

    /// Why an execution takes no calls now, read anew.
    pub(crate) async fn closed(
        &self,
        execution: &str,
    ) -> Result<Option<crate::core::execution::Closed>, NotAccepted> {
        let record = self
            .executions
            .get(TENANT, execution)
            .await
            .map_err(|error| NotAccepted::Unavailable(error.to_string()))?;
        let now_ms = self.clock.now_ms();
        // A limit that was reached meanwhile does not concern calls that were admitted before.
        Ok(record
            .and_then(|record| record.closed(now_ms))
            .filter(|closed| closed.code != Code::LimitExceeded))
    }

    /// Queues one admitted call and waits for its result, under a span of its own: a child of the
    /// current span, or of `trace` where that names one. `execution`: the record to look at once more
    /// between the job's PubAck and "accepted" (DESIGN 4.3).
    #[expect(
        clippy::too_many_arguments,
        reason = "each is one fact of the call, and all callers have them apart"
    )]
    pub(crate) async fn execute(
        &self,
        offer: &Offer,
        arguments: &Arguments,
        names: &Names,
        deadline_ms: Option<i64>,
        trace: TraceContext,
        mode: Mode,
        execution: Option<&str>,
        pending: &mut Pending,
    ) -> Result<Ended, NotAccepted> {
        let span = call_span(offer, names, &trace);
        let executing = async {
            let clocks = admit::clocks(offer, self.clock.now_ms(), deadline_ms);
            let job = admit::job(offer, arguments, names, clocks, &local_caller(), trace, mode);
            let accepted = self.submit(job).await?;
            fail_point::reach("accept:before").await;
            if let Some(execution) = execution.filter(|_| !accepted.is_done())
                && let Some(closed) = self.closed(execution).await?
                && closed.code == Code::Cancelled
            {
                // Rare, and large: it would be moved with every call.
                let cancelled = Box::pin(self.cancel_call(&names.name, &closed.text)).await;
                cancelled.map_err(|error| NotAccepted::Unavailable(error.to_string()))?;
            }
            pending.done();
            Ok(self.result(accepted).await)
        };
        let ended = executing.instrument(span.clone()).await?;
        if let Some(code) = ended.code.as_deref().and_then(Code::parse) {
            spans::fail(&span, code.as_str());
        }
        Ok(ended)
    }

    /// Answers a call of a dry run in the tool's place: nothing is queued, and the result is stored like any
    /// other (CONTRACT 3.9). Handed in again, it reads the one that is there.
    pub(crate) async fn stub(
        &self,
        offer: &Offer,
        arguments: &Arguments,
        names: &Names,
        trace: TraceContext,
        mode: Mode,
    ) -> Result<Ended, NotAccepted> {
        let span = call_span(offer, names, &trace);
        spans::stubbed(&span);
        let now_ms = self.clock.now_ms();
        let (traceparent, tracestate) = telemetry::current_trace_context(&span);
        let trace = TraceContext { traceparent, tracestate, ..trace };
        let clocks = admit::clocks(offer, now_ms, None);
        let job = admit::job(offer, arguments, names, clocks, &local_caller(), trace, mode);
        let input = Json::parse(&arguments.admitted).unwrap_or(Json::Null);
        let rendered = offer.expressions.dry_run_result(&offer.descriptor, &input);
        let result = toolfleet_proto::end::result(&job, &rendered, now_ms);
        let result = CallResult { is_stubbed: true, ..result };
        let retention_ms = self.limits.unnamed_retention_ms;
        let stored = ending::store_result(&self.broker, &job, &names.name, result, retention_ms)
            .instrument(span.clone())
            .await
            .map_err(|error| NotAccepted::Unavailable(error.to_string()))?;
        if stored.result.arguments_hash != job.arguments_hash {
            return Err(NotAccepted::Conflict);
        }
        let ended = Ended::of_result(&stored.result, !stored.is_new);
        let code = ended.code.as_deref().and_then(Code::parse);
        if let Some(code) = code {
            spans::fail(&span, code.as_str());
        }
        if stored.is_new {
            self.measures.stubbed(&offer.pool, code.map_or(code::OK, Code::as_str));
        }
        Ok(ended)
    }

    /// Tells of a tool whose expression did not say what a call may change.
    pub(crate) fn note_effect(&self, offer: &Offer, arguments: &Arguments) {
        if let Some(fault) = &arguments.judged.fault {
            self.measures.effect_fault();
            let tool = offer.descriptor.name.as_str();
            tracing::warn!(tool, fault, "the effect's expression failed, the call is a write");
        }
    }

    /// Stores the result of a call that is not admitted, so that it reads the same ever after; or reads
    /// the one that was there first.
    pub(crate) async fn refuse(
        &self,
        names: &Names,
        record: &CallRecord,
        refusal: &Refusal,
    ) -> Result<Ended, NotAccepted> {
        let mut job = crate::cancel::job_of_record(&names.name, &names.turn, record);
        let (traceparent, tracestate) = telemetry::current_trace_context(&Span::current());
        job.trace = Some(TraceContext { traceparent, tracestate, ..TraceContext::default() });
        job.is_unnamed = names.is_unnamed;
        let hash = job.arguments_hash.clone();
        let rendered =
            toolfleet_proto::output::render_error(refusal.code, &refusal.text, REFUSAL_BYTES_MAX);
        let mut result = toolfleet_proto::end::result(&job, &rendered, self.clock.now_ms());
        result.queued_ms = 0;
        if refusal.code == Code::Cancelled {
            NEVER_STARTED.clone_into(&mut result.start_state);
        }
        result.submitted_at_ms = result.stored_at_ms;
        let retention_ms = self.limits.unnamed_retention_ms;
        let stored = ending::store_result(&self.broker, &job, &names.name, result, retention_ms)
            .await
            .map_err(|error| NotAccepted::Unavailable(error.to_string()))?;
        if stored.result.arguments_hash != hash {
            return Err(NotAccepted::Conflict);
        }
        if stored.is_new {
            self.measures.rejected(refusal.code.as_str());
        }
        Ok(Ended::of_result(&stored.result, !stored.is_new))
    }
}
