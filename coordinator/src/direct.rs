//! Direct calls: one call without a model (CONTRACT 9.1).

use crate::api::{Problem, Running, encode_segment};
use crate::core::admit::{self, Arguments, Names, Refusal};
use crate::core::answer::Ended;
use crate::core::catalog::Offer;
use crate::core::execution::{CallRecord, Execution, Taken, TurnRecord};
use crate::core::mode::Mode;
use crate::core::wishes::Wishes;
use crate::durable::{Durable, Pending};
use crate::reading::open_call;
use crate::service::Coordinator;
use crate::submit::NotAccepted;
use crate::turn::{ACTOR, TENANT};
use serde_json::Map;
use tokio::task::JoinHandle;
use toolfleet_io::telemetry;
use toolfleet_proto::code::Code;
use toolfleet_proto::descriptor::hex;
use toolfleet_proto::effect::Effect;
use toolfleet_proto::name::CallName;
use toolfleet_proto::wire::TraceContext;

/// A direct call, checked and named.
pub(crate) struct Direct {
    pub(crate) offer: Offer,
    pub(crate) arguments: Arguments,
    pub(crate) names: Names,
    pub(crate) deadline_ms: Option<i64>,
    /// Whether the caller named an execution.
    pub(crate) is_bound: bool,
    /// How it is run, where its execution's record does not tell.
    pub(crate) mode: Mode,
}

impl Coordinator {
    /// A call of these names that was handed in before, attached to; `None`: there is neither a result nor
    /// a job of it. Asks nothing of its tool, which may be gone.
    pub(crate) async fn known(
        &self,
        names: &Names,
        input: Option<&str>,
    ) -> Result<Option<Running>, Problem> {
        let attached = self.attach(&names.name).await;
        let attached =
            attached.map_err(|error| Problem::from(NotAccepted::Unavailable(error.to_string())))?;
        let Some(accepted) = attached else { return Ok(None) };
        if accepted.arguments_hash() != admit::hash_of_text(input) {
            self.measures.rejected(Code::IdempotencyConflict.as_str());
            return Err(Problem::from(NotAccepted::Conflict));
        }
        let durable = Durable::new();
        durable.expect(1).iter_mut().for_each(Pending::done);
        let open = open_call(&names.name, accepted.tool(), "queued", None).to_string();
        let (coordinator, execution) = (self.clone(), names.name.execution.clone());
        let task = tokio::spawn(async move {
            Ok(coordinator.result(accepted).await.direct_answer(&execution))
        });
        Ok(Some(running(task, durable, &names.name, open)))
    }
}

/// A direct call that runs, or is attached to.
fn running(
    task: JoinHandle<Result<String, Problem>>,
    durable: Durable,
    name: &CallName,
    accepted: String,
) -> Running {
    let (execution, call) = (name.execution.clone(), name.call.clone());
    Running {
        task,
        durable,
        location: format!("/v1/calls/{}/{}", encode_segment(&execution), encode_segment(&call)),
        accepted,
        names: vec![("toolfleet-execution", execution), ("toolfleet-call", call)],
    }
}

impl Direct {
    /// Starts the call in a task of its own: a caller that goes away changes nothing. `record`: of its
    /// execution, where there is one.
    pub(crate) fn start(
        self,
        coordinator: Coordinator,
        record: Option<Execution>,
        trace: TraceContext,
    ) -> Running {
        let name = self.names.name.clone();
        let durable = Durable::new();
        let pending = durable.expect(1).pop();
        let accepted = open_call(&name, &self.offer.descriptor.name, "queued", None).to_string();
        let task = tokio::spawn(async move {
            let execution = self.names.name.execution.clone();
            let turn = self.names.turn.clone();
            match self.run(&coordinator, record, trace, pending).await {
                Ok(ended) => Ok(ended.direct_answer(&execution)),
                Err(reason) => Err(Problem::from(reason).with_turn(&execution, &turn)),
            }
        });
        running(task, durable, &name, accepted)
    }

    async fn run(
        self,
        coordinator: &Coordinator,
        record: Option<Execution>,
        trace: TraceContext,
        pending: Option<Pending>,
    ) -> Result<Ended, NotAccepted> {
        let Some(mut pending) = pending else {
            return Err(NotAccepted::Unavailable("no task".into()));
        };
        // An execution that exists counts and lists the call; for one that does not, only a write makes
        // a record, which is what holds back its equals should its outcome be unknown.
        let is_recorded = self.is_bound && (record.is_some() || self.effect() == Effect::Write);
        let call = self.record();
        let (mut deadline_ms, mut mode) = (self.deadline_ms, self.mode);
        if is_recorded {
            let (record, taken) = self.take_in(coordinator, &call).await?;
            deadline_ms = [deadline_ms, record.deadline_ms].into_iter().flatten().min();
            mode = Mode::of(Some(&record));
            if let Some(refusal) = self.refusal(coordinator, &record, taken, &call).await? {
                let mut ended = coordinator.refuse(&self.names, &call, &refusal).await?;
                if ended.trace_id.is_empty() {
                    ended.trace_id = telemetry::trace_id(&tracing::Span::current());
                }
                return Ok(ended);
            }
        }
        if mode.is_stubbed(self.effect()) {
            let stub =
                coordinator.stub(&self.offer, &self.arguments, &self.names, trace, mode).await;
            pending.done();
            return stub;
        }
        let execution = is_recorded.then_some(self.names.name.execution.as_str());
        coordinator
            .execute(
                &self.offer,
                &self.arguments,
                &self.names,
                deadline_ms,
                trace,
                mode,
                execution,
                &mut pending,
            )
            .await
    }

    fn effect(&self) -> Effect {
        self.arguments.judged.effect
    }

    /// Why the call is not run, as its execution tells.
    async fn refusal(
        &self,
        coordinator: &Coordinator,
        record: &Execution,
        taken: Taken,
        call: &CallRecord,
    ) -> Result<Option<Refusal>, NotAccepted> {
        let mode = Mode::of(Some(record));
        if let Taken::Closed(closed) = taken {
            return Ok(Some(Refusal { code: closed.code, text: closed.text }));
        }
        if let Err(refusal) = admit::check_time_again(&self.offer, &self.arguments, mode) {
            return Ok(Some(refusal));
        }
        // One that is known too: whoever took it in may not have come to this.
        if self.effect() == Effect::Write && !mode.is_stubbed(Effect::Write) {
            return self.held_back(coordinator, record, call).await;
        }
        Ok(None)
    }

    /// Why a write must not be queued; one that is queued already is attached to.
    async fn held_back(
        &self,
        coordinator: &Coordinator,
        record: &Execution,
        call: &CallRecord,
    ) -> Result<Option<Refusal>, NotAccepted> {
        let Some(refusal) = coordinator.held_back(record, call).await? else { return Ok(None) };
        let queued = coordinator.find_job(&self.names.name).await;
        let queued = queued.map_err(|error| NotAccepted::Unavailable(error.to_string()))?;
        Ok(queued.is_none().then_some(refusal))
    }

    fn record(&self) -> CallRecord {
        CallRecord {
            call: self.names.name.call.clone(),
            call_id: self.names.call_id.clone(),
            provider_id: None,
            is_free_text: false,
            echo: Map::new(),
            tool: self.offer.descriptor.name.clone(),
            arguments_hash: hex(&self.arguments.hash),
            effect: self.effect().as_str().to_owned(),
            pool: self.offer.pool.clone(),
            rerun: self.offer.descriptor.rerun,
            is_admitted: true,
        }
    }

    async fn take_in(
        &self,
        coordinator: &Coordinator,
        call: &CallRecord,
    ) -> Result<(Execution, Taken), NotAccepted> {
        let now_ms = coordinator.clock.now_ms();
        let id = self.names.name.execution.as_str();
        let turn = TurnRecord {
            name: self.names.turn.clone(),
            format: "native".to_owned(),
            at_ms: now_ms,
            calls: vec![call.clone()],
            local: Vec::new(),
        };
        let taken = coordinator.executions.change(TENANT, id, |record| {
            let mut record = record
                .unwrap_or_else(|| Execution::new(id, ACTOR, &Wishes::default(), None, now_ms));
            let taken = record.take_turn(turn.clone(), now_ms).pop().unwrap_or(Taken::Known);
            (Some(record.clone()), (record, taken))
        });
        taken.await.map_err(|error| NotAccepted::Unavailable(error.to_string()))
    }
}
