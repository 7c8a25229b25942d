//! Executions: made, read, listed, cancelled, finished (DESIGN 6, CONTRACT 5.4).

use super::problem::Problem;
use super::request::{body_text, deadline, fresh_id};
use crate::cancel::{Answer, ExecutionAnswer, REASON_DEFAULT, call_name};
use crate::core::answer::Ended;
use crate::core::execution::{Execution, Settled, State as Phase};
use crate::core::wishes::Wishes;
use crate::service::Coordinator;
use crate::submit::NotAccepted;
use crate::turn::{ACTOR, TENANT};
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use toolfleet_io::broker::Error;
use toolfleet_io::ending;
use toolfleet_proto::code::Code;
use toolfleet_proto::name::check_id;
use toolfleet_proto::wire::MAY_HAVE_STARTED;

/// Most entries of one page.
const PAGE_MAX: usize = 500;
/// Entries of a page where nothing is asked.
const PAGE_DEFAULT: usize = 100;
/// Most bytes of a reason.
const REASON_BYTES_MAX: usize = 4 * 1024;

pub(crate) fn unavailable(error: Error) -> Problem {
    Problem::from(NotAccepted::Unavailable(error.to_string()))
}

fn not_found(id: &str) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "execution_not_found",
        "There is no such execution",
        format!("there is no execution {id:?}"),
        "make it with POST /v1/executions, or hand a turn in under its id",
    )
}

/// `POST /v1/executions`: 201; the same id and body again 200; another body 409.
pub(crate) async fn create(
    State(coordinator): State<Coordinator>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let text = body_text(body)?;
    let text = if text.trim().is_empty() { "{}" } else { &text };
    let wishes: Wishes = serde_json::from_str(text).map_err(|error| {
        Problem::bad_request("body_unreadable", error.to_string(), "send an object of known keys")
    })?;
    check_wishes(&wishes)?;
    let id = wishes.id.clone().unwrap_or_else(fresh_id);
    check_id("id", &id)?;
    let now_ms = coordinator.clock.now_ms();
    let deadline = deadline(wishes.deadline.as_deref(), now_ms)?;
    let is_known = deadline.is_over()
        && coordinator.executions.get(TENANT, &id).await.map_err(unavailable)?.is_some();
    let deadline_ms = deadline.of_what_is_known(is_known)?;
    if let Err(fault) = wishes.as_of_ms() {
        let mend = "use an instant with a zone such as 2025-01-31T12:00:00Z";
        return Err(Problem::unprocessable("as_of_invalid", fault, mend));
    }
    let made = Execution::new(&id, ACTOR, &wishes, deadline_ms, now_ms);
    let (record, is_new) = coordinator
        .executions
        .change(TENANT, &id, |record| match record {
            Some(record) => (None, (record, false)),
            None => (Some(made.clone()), (made.clone(), true)),
        })
        .await
        .map_err(unavailable)?;
    if record.made_with != wishes.hash() {
        return Err(Problem::new(
            StatusCode::CONFLICT,
            "execution_conflict",
            "The execution exists with other settings",
            format!("the execution {id:?} was made with another body"),
            "use another id, or the body it was made with",
        ));
    }
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(record.summary())).into_response())
}

fn check_wishes(wishes: &Wishes) -> Result<(), Problem> {
    if let Some(actor) = wishes.actor.as_deref().filter(|actor| *actor != ACTOR) {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "act_for_forbidden",
            "This credential may not act for others",
            format!("the actor {actor:?} is not this caller"),
            "leave actor out: until there is authentication the actor is local",
        ));
    }
    let not_yet = wishes.not_yet();
    if !not_yet.is_empty() {
        return Err(Problem::unprocessable(
            "not_yet",
            format!("not built yet: {}", not_yet.join(", ")),
            "leave these settings out",
        ));
    }
    let faults = wishes.faults();
    if faults.is_empty() {
        Ok(())
    } else {
        Err(Problem::unprocessable(
            "limit_invalid",
            faults.join("; "),
            "choose limits inside their range",
        ))
    }
}

async fn record_of(coordinator: &Coordinator, id: &str) -> Result<Execution, Problem> {
    check_id("execution", id)?;
    let record = coordinator.executions.get(TENANT, id).await.map_err(unavailable)?;
    record.ok_or_else(|| not_found(id))
}

/// `GET /v1/executions/{id}`.
pub(crate) async fn read(
    State(coordinator): State<Coordinator>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    Ok(Json(record_of(&coordinator, &id).await?.summary()))
}

#[derive(Debug, Deserialize)]
pub(crate) struct Page {
    limit: Option<usize>,
    cursor: Option<String>,
}

/// A page of a list: its items and the cursor of the next.
fn page<T>(all: Vec<T>, asked: &Page) -> Result<(Vec<T>, Option<String>), Problem> {
    let from = match asked.cursor.as_deref() {
        None => 0,
        Some(cursor) => cursor.parse::<usize>().map_err(|_| {
            Problem::unprocessable(
                "cursor_invalid",
                format!("no such cursor: {cursor:?}"),
                "use nextCursor of the page before",
            )
        })?,
    };
    let limit = asked.limit.unwrap_or(PAGE_DEFAULT).clamp(1, PAGE_MAX);
    let total = all.len();
    let items: Vec<T> = all.into_iter().skip(from).take(limit).collect();
    let next = (from + items.len() < total).then(|| (from + items.len()).to_string());
    Ok((items, next))
}

/// `GET /v1/executions/{id}/calls`: every call in order, with its state.
pub(crate) async fn calls(
    State(coordinator): State<Coordinator>,
    Path(id): Path<String>,
    Query(asked): Query<Page>,
) -> Result<Json<Value>, Problem> {
    let record = record_of(&coordinator, &id).await?;
    let all: Vec<(String, String, String)> = record
        .calls()
        .map(|(turn, call)| (turn.to_owned(), call.call.clone(), call.tool.clone()))
        .collect();
    let (some, next) = page(all, &asked)?;
    let mut items = Vec::with_capacity(some.len());
    for (turn, call, tool) in some {
        let name = call_name(&id, &call);
        let result = ending::read_result(&coordinator.broker, &name).await.map_err(unavailable)?;
        let mut item = match result {
            Some(result) => {
                let mut item = Ended::of_result(&result, false).entry();
                item["state"] = json!("done");
                item
            }
            None => {
                json!({"call": call, "toolName": tool, "state": coordinator.open_state(&name).await})
            }
        };
        item["turn"] = json!(turn);
        items.push(item);
    }
    Ok(Json(json!({"items": items, "nextCursor": next})))
}

/// `GET /v1/executions/{id}/turns`.
pub(crate) async fn turns(
    State(coordinator): State<Coordinator>,
    Path(id): Path<String>,
    Query(asked): Query<Page>,
) -> Result<Json<Value>, Problem> {
    let record = record_of(&coordinator, &id).await?;
    let all: Vec<Value> = record
        .turns
        .iter()
        .map(|turn| json!({"turn": turn.name, "format": turn.format, "calls": turn.calls.len(), "at": toolfleet_proto::end::instant(turn.at_ms)}))
        .collect();
    let (items, next) = page(all, &asked)?;
    Ok(Json(json!({"items": items, "nextCursor": next})))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reason {
    reason: Option<String>,
}

fn read_reason(body: Result<Bytes, BytesRejection>) -> Result<String, Problem> {
    let text = body_text(body)?;
    let text = if text.trim().is_empty() { "{}" } else { &text };
    let body: Reason = serde_json::from_str(text).map_err(|error| {
        Problem::bad_request("body_unreadable", error.to_string(), "send {\"reason\": \"…\"}")
    })?;
    let reason = body
        .reason
        .filter(|reason| !reason.trim().is_empty())
        .unwrap_or_else(|| REASON_DEFAULT.to_owned());
    if reason.len() > REASON_BYTES_MAX {
        return Err(Problem::unprocessable(
            "reason_too_long",
            format!("the reason has {} bytes, the limit is {REASON_BYTES_MAX}", reason.len()),
            "say it shorter: a model reads it",
        ));
    }
    Ok(reason)
}

/// `POST /v1/executions/{id}/cancel`.
pub(crate) async fn cancel(
    State(coordinator): State<Coordinator>,
    Path(id): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Value>, Problem> {
    check_id("execution", &id)?;
    let reason = read_reason(body)?;
    // In a task of its own: a canceller that hangs up half-way leaves nothing half done.
    let (worker, execution) = (coordinator.clone(), id.clone());
    let cancelling =
        tokio::spawn(async move { worker.cancel_execution(&execution, &reason).await });
    match cancelling
        .await
        .map_err(|error| unavailable(Error::Silent(error.to_string())))?
        .map_err(unavailable)?
    {
        ExecutionAnswer::Unknown => Err(not_found(&id)),
        ExecutionAnswer::Ended(state) => Err(Problem::new(
            StatusCode::CONFLICT,
            "execution_finished",
            "The execution takes no calls any more",
            format!("the execution {id:?} is {}", json!(state).as_str().unwrap_or_default()),
            "nothing is to be done: nothing of it runs that was not handed in before",
        )),
        ExecutionAnswer::Cancelled(answers) => {
            let calls: Vec<Value> = answers
                .into_iter()
                .map(|(call, answer)| json!({"call": call, "answer": answer.as_str()}))
                .collect();
            Ok(Json(json!({"executionId": id, "state": "cancelled", "calls": calls})))
        }
    }
}

/// `POST /v1/executions/{id}/finish`: no calls are taken any more; what runs goes on.
pub(crate) async fn finish(
    State(coordinator): State<Coordinator>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    check_id("execution", &id)?;
    let now_ms = coordinator.clock.now_ms();
    let record = coordinator
        .executions
        .change(TENANT, &id, |record| match record {
            Some(mut record) if record.state == Phase::Open => {
                record.state = Phase::Finished;
                record.ended_at_ms = Some(now_ms);
                (Some(record.clone()), Some(record))
            }
            other => (None, other),
        })
        .await
        .map_err(unavailable)?;
    record.map(|record| Json(record.summary())).ok_or_else(|| not_found(&id))
}

/// `POST /v1/calls/{execution}/{call}/cancel`.
pub(crate) async fn cancel_call(
    State(coordinator): State<Coordinator>,
    Path((execution, call)): Path<(String, String)>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    check_id("execution", &execution)?;
    let reason = read_reason(body)?;
    let name = call_name(&execution, &call);
    let worker = coordinator.clone();
    let cancelling = tokio::spawn(async move { worker.cancel_call(&name, &reason).await });
    let answer = cancelling
        .await
        .map_err(|error| unavailable(Error::Silent(error.to_string())))?
        .map_err(unavailable)?;
    let status = if answer == Answer::Unknown { StatusCode::NOT_FOUND } else { StatusCode::OK };
    if status == StatusCode::NOT_FOUND {
        return Err(Problem::new(
            status,
            "call_not_found",
            "There is no such call",
            format!("there is no call {call:?} in the execution {execution:?}"),
            "use the execution and call that its answer named",
        ));
    }
    let body = json!({"executionId": execution, "call": call, "answer": answer.as_str()});
    Ok((status, Json(body)).into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resolution {
    outcome: String,
}

/// `POST /v1/calls/{execution}/{call}/resolve`: a person has checked what came of a write.
pub(crate) async fn resolve(
    State(coordinator): State<Coordinator>,
    Path((execution, call)): Path<(String, String)>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Value>, Problem> {
    check_id("execution", &execution)?;
    let mend = "send {\"outcome\": \"done\"} or {\"outcome\": \"not-done\"}";
    let body: Resolution = serde_json::from_str(&body_text(body)?)
        .map_err(|error| Problem::bad_request("body_unreadable", error.to_string(), mend))?;
    if !["done", "not-done"].contains(&body.outcome.as_str()) {
        return Err(Problem::unprocessable(
            "outcome_invalid",
            format!("no such outcome: {:?}", body.outcome),
            mend,
        ));
    }
    let name = call_name(&execution, &call);
    let result = ending::read_result(&coordinator.broker, &name).await.map_err(unavailable)?;
    // One that was held back never ran: the call that it equals is the one to settle.
    let is_unknown = result.is_some_and(|result| {
        result.code == Code::OutcomeUnknown.as_str() && result.start_state == MAY_HAVE_STARTED
    });
    let settled = Settled { outcome: body.outcome.clone(), at_ms: coordinator.clock.now_ms() };
    let is_recorded = coordinator
        .executions
        .change(TENANT, &execution, |record| match record {
            Some(mut record) if is_unknown && record.call(&call).is_some() => {
                record.settled.insert(call.clone(), settled.clone());
                (Some(record), true)
            }
            _ => (None, false),
        })
        .await
        .map_err(unavailable)?;
    if is_recorded {
        Ok(Json(json!({"executionId": execution, "call": call, "outcome": body.outcome})))
    } else {
        Err(Problem::new(
            StatusCode::CONFLICT,
            "nothing_to_resolve",
            "There is nothing to settle",
            format!("the call {call:?} of the execution {execution:?} has no unknown outcome"),
            "resolve the call that started and whose code is outcome_unknown, not one that was held back",
        ))
    }
}
