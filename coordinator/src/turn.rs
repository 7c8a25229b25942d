//! A turn: every call of a model's message to its one result, in order (CONTRACT 3, DESIGN 6).

use crate::core::admit::{self, Names, Refusal};
use crate::core::answer::Ended;
use crate::core::catalog::Offer;
use crate::core::formats::{Message, ModelCall, OPENAI_CHAT, openai_chat};
use crate::core::{local, turn};
use crate::service::Coordinator;
use crate::submit::NotAccepted;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Semaphore;
use toolfleet_io::telemetry::{self, spans};
use toolfleet_proto::code::Code;
use toolfleet_proto::limit::PARALLEL_CALLS_MAX;
use toolfleet_proto::name::CallName;
use toolfleet_proto::wire::{Caller, TraceContext};
use tracing::{Instrument as _, Span};

/// Bound of the text of a call that never reached a tool.
pub const REFUSAL_BYTES_MAX: u64 = 128 * 1024;
/// The first part of a call's name where no agent made it.
pub const NODE_MAIN: &str = "main";
/// The tenant, until there is authentication (DESIGN 10).
pub const TENANT: &str = "default";
/// The actor, until there is authentication (DESIGN 10).
pub const ACTOR: &str = "local";

/// A turn, named and ready to run.
pub struct Turn {
    /// The execution.
    pub execution: String,
    /// The turn's name.
    pub name: String,
    /// What was handed over.
    pub message: Message,
    /// The caller's deadline, fleet's clock.
    pub deadline_ms: Option<i64>,
    /// Id of the request.
    pub request_id: String,
    /// The caller's trace context.
    pub trace: TraceContext,
}

/// Why a turn is answered with an error as a whole. Posted again under its name it loses nothing.
pub struct Failed {
    /// The turn's name.
    pub turn: String,
    /// Why.
    pub reason: NotAccepted,
}

/// The caller, until there is authentication.
pub fn local_caller() -> Caller {
    Caller { actor: ACTOR.to_owned(), owner: ACTOR.to_owned(), ..Caller::default() }
}

/// Runs a turn to its answer. To be run in a task of its own: a caller that goes away changes
/// nothing.
pub async fn run(coordinator: Coordinator, turn: Turn) -> Result<Value, Failed> {
    let span = spans::turn(&turn.execution, &turn.name);
    telemetry::set_parent(&span, &turn.trace.traceparent, &turn.trace.tracestate);
    run_in(coordinator, turn, span.clone()).instrument(span).await
}

async fn run_in(coordinator: Coordinator, turn: Turn, span: Span) -> Result<Value, Failed> {
    let turn = Arc::new(turn);
    let ids: Vec<Option<&str>> = turn.message.calls.iter().map(|call| call.id.as_deref()).collect();
    let call_ids = turn::call_ids(&turn.name, &ids);
    let parallel = Arc::new(Semaphore::new(PARALLEL_CALLS_MAX));
    let mut running = Vec::new();
    let mut left_to_loop = Vec::new();
    for (position, call) in turn.message.calls.iter().enumerate() {
        if local::is_local(&turn.message.local_tools, &call.name) {
            left_to_loop.push(json!({"id": call.id, "name": call.name, "position": position}));
            continue;
        }
        let one = one_call(coordinator.clone(), Arc::clone(&turn), position, call_ids[position].clone(), Arc::clone(&parallel));
        running.push((position, tokio::spawn(one.instrument(span.clone()))));
    }
    let (mut messages, mut calls, mut is_replayed) = (Vec::new(), Vec::new(), false);
    for (position, handle) in running {
        let ended = match handle.await {
            Ok(Ok(ended)) => ended,
            Ok(Err(reason)) => return Err(Failed { turn: turn.name.clone(), reason }),
            Err(error) => {
                let text = format!("the call's task ended: {error}");
                Ended::refused(Code::Internal, &text, REFUSAL_BYTES_MAX)
            }
        };
        is_replayed |= ended.is_replayed;
        let provider_id = turn.message.calls[position].id.as_deref();
        let answered_id = provider_id.unwrap_or(&call_ids[position]);
        messages.push(openai_chat::render(Some(answered_id), &ended.model_text()));
        calls.push(ended.entry());
    }
    Ok(json!({
        "executionId": turn.execution,
        "turn": turn.name,
        "state": "done",
        "replayed": is_replayed,
        "format": OPENAI_CHAT,
        "messages": messages,
        "local": left_to_loop,
        "pending": [],
        "calls": calls,
    }))
}

async fn one_call(
    coordinator: Coordinator,
    turn: Arc<Turn>,
    position: usize,
    call_id: String,
    parallel: Arc<Semaphore>,
) -> Result<Ended, NotAccepted> {
    let call = &turn.message.calls[position];
    let names = Names {
        name: CallName::of_turn(TENANT, &turn.execution, NODE_MAIN, &turn.name, &call_id),
        node: NODE_MAIN.to_owned(),
        turn: turn.name.clone(),
        call_id,
        request_id: turn.request_id.clone(),
        is_unnamed: false,
    };
    let mut ended = match admit_and_run(&coordinator, &turn, call, &names, &parallel).await {
        Ok(ended) => ended,
        Err(Stopped::Refused(refusal)) => {
            coordinator.measures.rejected(refusal.code.as_str());
            Ended::refused(refusal.code, &refusal.text, REFUSAL_BYTES_MAX)
        }
        Err(Stopped::NotAccepted(NotAccepted::Conflict)) => {
            coordinator.measures.rejected(Code::IdempotencyConflict.as_str());
            Ended::refused(Code::IdempotencyConflict, CONFLICT_TEXT, REFUSAL_BYTES_MAX)
        }
        Err(Stopped::NotAccepted(reason)) => return Err(reason),
    };
    ended.call.clone_from(&names.name.call);
    ended.call_id.clone_from(&names.call_id);
    ended.idempotency_key = names.name.idempotency_key();
    ended.tool.clone_from(&call.name);
    if ended.trace_id.is_empty() {
        ended.trace_id = telemetry::trace_id(&Span::current());
    }
    Ok(ended)
}

/// What a model reads where a call's name was used before with other arguments.
pub const CONFLICT_TEXT: &str =
    "the same call was handed in before with other arguments; give the new call an id of its own";

enum Stopped {
    Refused(Refusal),
    NotAccepted(NotAccepted),
}

async fn admit_and_run(
    coordinator: &Coordinator,
    turn: &Turn,
    call: &ModelCall,
    names: &Names,
    parallel: &Semaphore,
) -> Result<Ended, Stopped> {
    let offers = coordinator.catalog.offers();
    let offer = admit::find(&offers, &call.name).map_err(Stopped::Refused)?;
    let arguments = admit::check_call(offer, call).map_err(Stopped::Refused)?;
    // One slot of the turn for each call that is queued or runs.
    let _slot = parallel.acquire().await;
    coordinator
        .execute(offer, &arguments, names, turn.deadline_ms, baggage_only(&turn.trace))
        .await
        .map_err(Stopped::NotAccepted)
}

/// The turn's span is the parent already; only the baggage goes on.
fn baggage_only(trace: &TraceContext) -> TraceContext {
    TraceContext { baggage: trace.baggage.clone(), ..TraceContext::default() }
}

impl Coordinator {
    /// Queues one admitted call and waits for its result, under a span of its own: a child of the
    /// current span, or of `trace` where that names one.
    pub(crate) async fn execute(
        &self,
        offer: &Offer,
        arguments: &admit::Arguments,
        names: &Names,
        deadline_ms: Option<i64>,
        trace: TraceContext,
    ) -> Result<Ended, NotAccepted> {
        let span = spans::execute_tool(spans::Call {
            execution: &names.name.execution,
            turn: Some(names.turn.as_str()),
            call: &names.call_id,
            tool: &offer.descriptor.name,
            pool: &offer.pool,
        });
        telemetry::set_parent(&span, &trace.traceparent, &trace.tracestate);
        self.execute_in(&span, offer, arguments, names, deadline_ms, trace).instrument(span.clone()).await
    }

    async fn execute_in(
        &self,
        span: &Span,
        offer: &Offer,
        arguments: &admit::Arguments,
        names: &Names,
        deadline_ms: Option<i64>,
        trace: TraceContext,
    ) -> Result<Ended, NotAccepted> {
        let clocks = admit::clocks(offer, self.clock.now_ms(), deadline_ms);
        let job = admit::job(offer, arguments, names, clocks, &local_caller(), trace);
        let accepted = self.submit(job).await?;
        let ended = self.result(accepted).await;
        if let Some(code) = ended.code.as_deref().and_then(Code::parse) {
            spans::fail(span, code.as_str());
        }
        Ok(ended)
    }
}
