//! One call of a turn, from its place in the record to its result.

use super::{CONFLICT_TEXT, EndedCall, OneCall, REFUSAL_BYTES_MAX, TENANT};
use crate::core::admit::{self, Arguments, Refusal};
use crate::core::answer::Ended;
use crate::core::catalog::Offer;
use crate::core::execution::{Execution, Taken};
use crate::core::mode::Mode;
use crate::durable::Pending;
use crate::service::Coordinator;
use crate::submit::NotAccepted;
use std::sync::Arc;
use tokio::sync::Semaphore;
use toolfleet_io::telemetry;
use toolfleet_proto::code::Code;
use toolfleet_proto::effect::Effect;
use toolfleet_proto::wire::TraceContext;
use tracing::Span;

/// What the calls of a turn share.
pub(super) struct Shared {
    pub coordinator: Coordinator,
    pub record: Execution,
    pub deadline_ms: Option<i64>,
    pub baggage: String,
    /// One slot for each call that is queued or runs.
    pub parallel: Semaphore,
}

impl Shared {
    /// Takes one call to its result: held back, refused, run or attached to one that runs.
    pub async fn one(
        self: Arc<Self>,
        call: OneCall,
        taken: Taken,
        mut pending: Pending,
    ) -> Result<EndedCall, NotAccepted> {
        let mut ended = match self.end(&call, taken, &mut pending).await {
            Ok(ended) => ended,
            Err(NotAccepted::Conflict) => {
                self.coordinator.measures.rejected(Code::IdempotencyConflict.as_str());
                Ended::refused(Code::IdempotencyConflict, CONFLICT_TEXT, REFUSAL_BYTES_MAX)
            }
            Err(reason) => return Err(reason),
        };
        ended.call.clone_from(&call.names.name.call);
        ended.call_id.clone_from(&call.names.call_id);
        ended.idempotency_key = call.names.name.idempotency_key();
        ended.tool.clone_from(&call.tool);
        if ended.trace_id.is_empty() {
            ended.trace_id = telemetry::trace_id(&Span::current());
        }
        Ok((call.record(), ended))
    }

    async fn end(
        &self,
        call: &OneCall,
        taken: Taken,
        pending: &mut Pending,
    ) -> Result<Ended, NotAccepted> {
        let refusal = match (&taken, &call.checked) {
            (Taken::Closed(closed), _) => Refusal { code: closed.code, text: closed.text.clone() },
            (_, Err(refusal)) => refusal.clone(),
            (Taken::New | Taken::Known, Ok((offer, arguments))) => {
                return self.run(call, offer, arguments, pending).await;
            }
        };
        self.coordinator.refuse(&call.names, &call.record(), &refusal).await
    }

    async fn run(
        &self,
        call: &OneCall,
        offer: &Offer,
        arguments: &Arguments,
        pending: &mut Pending,
    ) -> Result<Ended, NotAccepted> {
        let trace = TraceContext { baggage: self.baggage.clone(), ..TraceContext::default() };
        let mode = Mode::of(Some(&self.record));
        if let Err(refusal) = admit::check_time_again(offer, arguments, mode) {
            return self.coordinator.refuse(&call.names, &call.record(), &refusal).await;
        }
        if mode.is_stubbed(arguments.judged.effect) {
            let stub = self.coordinator.stub(offer, arguments, &call.names, trace, mode);
            return stub.await;
        }
        let mut has_waited = false;
        // One slot of the turn for each call that is queued or runs.
        let slot = match self.parallel.try_acquire() {
            Ok(slot) => Some(slot),
            Err(_) => {
                has_waited = true;
                pending.park();
                self.parallel.acquire().await.ok()
            }
        };
        let effect = arguments.judged.effect;
        if let Some(ended) = self.ended_already(call, effect, has_waited).await? {
            return Ok(ended);
        }
        let execution = Some(self.record.id.as_str());
        let ended = self
            .coordinator
            .execute(
                offer,
                arguments,
                &call.names,
                self.deadline_ms,
                trace,
                mode,
                execution,
                pending,
            )
            .await;
        drop(slot);
        ended
    }

    /// How a call ended before it was published: an equal write's outcome is unknown, or its execution
    /// was closed while it waited for a slot of its turn.
    async fn ended_already(
        &self,
        call: &OneCall,
        effect: Effect,
        has_waited: bool,
    ) -> Result<Option<Ended>, NotAccepted> {
        let unavailable =
            |error: toolfleet_io::broker::Error| NotAccepted::Unavailable(error.to_string());
        let coordinator = &self.coordinator;
        let closed = if has_waited { coordinator.closed(&self.record.id).await? } else { None };
        let refusal = match closed {
            Some(closed) => Some(Refusal { code: closed.code, text: closed.text }),
            // One that is known too: whoever took it in may not have come to this.
            None => self.held_back(call, effect, has_waited).await?,
        };
        let Some(refusal) = refusal else { return Ok(None) };
        // Another coordinator that was handed the same turn has queued it: submitting attaches to it.
        if coordinator.find_job(&call.names.name).await.map_err(unavailable)?.is_some() {
            return Ok(None);
        }
        if refusal.code == Code::Cancelled {
            // With its mark and the start record of a write, so that it is true.
            let cancelled = coordinator.cancel_call(&call.names.name, &refusal.text).await;
            cancelled.map_err(unavailable)?;
        }
        coordinator.refuse(&call.names, &call.record(), &refusal).await.map(Some)
    }

    /// A write whose equal ended with an unknown outcome is not run until that is settled
    /// (CONTRACT 5.6).
    async fn held_back(
        &self,
        call: &OneCall,
        effect: Effect,
        has_waited: bool,
    ) -> Result<Option<Refusal>, NotAccepted> {
        if effect != Effect::Write {
            return Ok(None);
        }
        // While it waited, an equal may have ended or been settled.
        let anew = if has_waited {
            let record = self.coordinator.executions.get(TENANT, &self.record.id).await;
            record.map_err(|error| NotAccepted::Unavailable(error.to_string()))?
        } else {
            None
        };
        self.coordinator.held_back(anew.as_ref().unwrap_or(&self.record), &call.record()).await
    }
}
