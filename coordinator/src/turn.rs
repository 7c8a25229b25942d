//! A turn: every call of a model's message to its one result, in order (CONTRACT 3, DESIGN 6).

mod one;

use crate::core::admit::{self, Arguments, Names, Refusal};
use crate::core::answer::Ended;
use crate::core::catalog::Offer;
use crate::core::execution::{CallRecord, Execution, Taken, TurnRecord};
use crate::core::formats::{self, Answered, Format, Message, ModelCall};
use crate::core::mode::Mode;
use crate::core::wishes::Wishes;
use crate::core::{local, turn};
use crate::durable::Durable;
use crate::service::Coordinator;
use crate::submit::NotAccepted;
use one::Shared;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tokio::sync::Semaphore;
use toolfleet_proto::descriptor::hex;
use toolfleet_proto::name::CallName;
use toolfleet_proto::wire::Caller;
use tracing::{Instrument as _, Span};

/// Bound of the text of a call that never reached a tool.
pub const REFUSAL_BYTES_MAX: u64 = 128 * 1024;
/// Most bytes of a tool's name in a record: twice what a tool's name may have.
const RECORDED_NAME_BYTES_MAX: usize = 128;
/// The first part of a call's name where no agent made it.
pub const NODE_MAIN: &str = "main";
/// The tenant, until there is authentication (DESIGN 10).
pub const TENANT: &str = "default";
/// The actor, until there is authentication (DESIGN 10).
pub const ACTOR: &str = "local";
/// What a model reads where a call's name was used before with other arguments.
pub const CONFLICT_TEXT: &str =
    "the same call was handed in before with other arguments; give the new call an id of its own";

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
    /// The caller's baggage.
    pub baggage: String,
}

/// The caller, until there is authentication.
pub fn local_caller() -> Caller {
    Caller { actor: ACTOR.to_owned(), owner: ACTOR.to_owned(), ..Caller::default() }
}

/// One fleet call of a turn.
struct OneCall {
    names: Names,
    tool: String,
    provider_id: Option<String>,
    is_free_text: bool,
    echo: Map<String, Value>,
    checked: Result<(Offer, Arguments), Refusal>,
    arguments_hash: [u8; 32],
}

/// Runs a turn to its answer, under the turn's span. To be run in a task of its own: a caller that
/// goes away changes nothing.
///
/// # Errors
/// Where the broker is silent or the queue full. Posted again under its name it loses nothing.
pub async fn run(
    coordinator: Coordinator,
    turn: Turn,
    durable: Durable,
    span: Span,
) -> Result<Value, NotAccepted> {
    run_in(coordinator, turn, durable, span.clone()).instrument(span).await
}

async fn run_in(
    coordinator: Coordinator,
    turn: Turn,
    durable: Durable,
    span: Span,
) -> Result<Value, NotAccepted> {
    let unavailable =
        |error: toolfleet_io::broker::Error| NotAccepted::Unavailable(error.to_string());
    let before = coordinator.executions.get(TENANT, &turn.execution).await.map_err(unavailable)?;
    let (calls, left_to_loop) = split(&coordinator, &turn, before.as_ref());
    let (record, taken) =
        take_in(&coordinator, &turn, &calls, &left_to_loop).await.map_err(unavailable)?;
    let pending = durable.expect(calls.len());
    let deadline_ms = [turn.deadline_ms, record.deadline_ms].into_iter().flatten().min();
    let shared = Arc::new(Shared {
        coordinator,
        deadline_ms,
        baggage: turn.baggage.clone(),
        parallel: Semaphore::new(usize::try_from(record.max_parallel_calls).unwrap_or(1)),
        record,
    });
    let mut running = Vec::new();
    for ((call, taken), pending) in calls.into_iter().zip(taken).zip(pending) {
        let one = Arc::clone(&shared).one(call, taken, pending);
        running.push(tokio::spawn(one.instrument(span.clone())));
    }
    let mut ended = Vec::with_capacity(running.len());
    for handle in running {
        let result = handle
            .await
            .map_err(|error| NotAccepted::Unavailable(format!("a call's task ended: {error}")))?;
        ended.push(result?);
    }
    let forms = Forms { of_message: turn.message.format, of_answer: turn.message.format };
    Ok(answer(&turn.execution, &turn.name, forms, &ended, &left_to_loop))
}

/// One call's end with what its execution remembers of it.
pub type EndedCall = (CallRecord, Ended);

/// The formats of a turn.
#[derive(Clone, Copy, Debug)]
pub struct Forms {
    /// That its message came in.
    pub of_message: Format,
    /// That its results go back in.
    pub of_answer: Format,
}

/// The answer to a turn that is done.
pub fn answer(
    execution: &str,
    turn: &str,
    forms: Forms,
    ended: &[EndedCall],
    left_to_loop: &[Value],
) -> Value {
    let format = forms.of_answer;
    let is_own = format == forms.of_message;
    let texts: Vec<String> = ended.iter().map(|(_, ended)| ended.model_text()).collect();
    let answered: Vec<Answered<'_>> = ended
        .iter()
        .zip(&texts)
        .map(|((call, ended), text)| Answered {
            provider_id: call.provider_id.as_deref(),
            call_id: &ended.call_id,
            name: &ended.tool,
            text,
            code: ended.code.as_deref(),
            is_json: ended.is_json,
            is_free_text: call.is_free_text,
            echo: is_own.then_some(&call.echo),
        })
        .collect();
    json!({
        "executionId": execution,
        "turn": turn,
        "state": "done",
        "replayed": ended.iter().any(|(_, ended)| ended.is_replayed),
        "format": format.as_str(),
        "messages": formats::render(format, &answered),
        "local": left_to_loop,
        "pending": [],
        "calls": ended.iter().map(|(_, ended)| ended.entry()).collect::<Vec<_>>(),
    })
}

/// The turn's calls, checked, apart from those that the loop runs itself.
fn split(
    coordinator: &Coordinator,
    turn: &Turn,
    record: Option<&Execution>,
) -> (Vec<OneCall>, Vec<Value>) {
    let offers = coordinator.catalog.offers();
    let ids: Vec<Option<&str>> = turn.message.calls.iter().map(|call| call.id.as_deref()).collect();
    let call_ids = turn::call_ids(&turn.name, &ids);
    let (mut calls, mut left_to_loop) = (Vec::new(), Vec::new());
    for (position, (call, call_id)) in turn.message.calls.iter().zip(call_ids).enumerate() {
        let is_local = local::is_local(&turn.message.local_tools, &call.name)
            || record.is_some_and(|record| local::is_local(&record.local_tools, &call.name));
        if is_local {
            left_to_loop.push(json!({"id": call.id, "name": call.name, "position": position}));
            continue;
        }
        let checked = check(&offers, call, record);
        if let Ok((offer, arguments)) = &checked {
            coordinator.note_effect(offer, arguments);
        }
        let arguments_hash = match &checked {
            Ok((_, arguments)) => arguments.hash,
            Err(_) => admit::hash_unchecked(call),
        };
        let names = Names {
            name: CallName::of_turn(TENANT, &turn.execution, NODE_MAIN, &turn.name, &call_id),
            node: NODE_MAIN.to_owned(),
            thread: record.and_then(|record| record.thread_id.clone()).unwrap_or_default(),
            turn: turn.name.clone(),
            call_id,
            request_id: turn.request_id.clone(),
            is_unnamed: false,
            requeued_from: String::new(),
        };
        calls.push(OneCall {
            names,
            tool: recorded_name(&call.name),
            provider_id: call.id.clone(),
            is_free_text: call.is_free_text,
            echo: call.echo.clone(),
            checked,
            arguments_hash,
        });
    }
    (calls, left_to_loop)
}

/// A tool's name as records keep it: what a model made up is cut, since a record must fit a message.
fn recorded_name(name: &str) -> String {
    name[..name.floor_char_boundary(RECORDED_NAME_BYTES_MAX)].to_owned()
}

fn check(
    offers: &crate::catalog::Offers,
    call: &ModelCall,
    record: Option<&Execution>,
) -> Result<(Offer, Arguments), Refusal> {
    let offer = admit::find(offers, &call.name)?;
    admit::allow(record, offers, &call.name)?;
    let arguments = admit::check_call(offer, call, Mode::of(record))?;
    Ok((offer.clone(), arguments))
}

impl OneCall {
    fn record(&self) -> CallRecord {
        let checked = self.checked.as_ref().ok();
        let offer = checked.map(|(offer, _)| offer);
        let effect = checked.map(|(_, arguments)| arguments.judged.effect.as_str());
        CallRecord {
            call: self.names.name.call.clone(),
            call_id: self.names.call_id.clone(),
            provider_id: self.provider_id.clone(),
            is_free_text: self.is_free_text,
            echo: self.echo.clone(),
            tool: self.tool.clone(),
            arguments_hash: hex(&self.arguments_hash),
            effect: effect.unwrap_or_default().to_owned(),
            pool: offer.map_or_else(String::new, |offer| offer.pool.clone()),
            rerun: offer.is_some_and(|offer| offer.descriptor.rerun),
            is_admitted: offer.is_some(),
        }
    }
}

/// Writes the turn's calls into the execution's record: one change for the whole turn. From here on
/// they are found by name, whatever happens to this process.
async fn take_in(
    coordinator: &Coordinator,
    turn: &Turn,
    calls: &[OneCall],
    left_to_loop: &[Value],
) -> Result<(Execution, Vec<Taken>), toolfleet_io::broker::Error> {
    let now_ms = coordinator.clock.now_ms();
    let turn_record = TurnRecord {
        name: turn.name.clone(),
        format: turn.message.format.as_str().to_owned(),
        at_ms: now_ms,
        calls: calls.iter().map(OneCall::record).collect(),
        local: left_to_loop.to_vec(),
    };
    coordinator
        .executions
        .change(TENANT, &turn.execution, |record| {
            let mut record = record.unwrap_or_else(|| {
                Execution::new(&turn.execution, ACTOR, &Wishes::default(), None, now_ms)
            });
            let taken = record.take_turn(turn_record.clone(), now_ms);
            (Some(record.clone()), (record, taken))
        })
        .await
}
