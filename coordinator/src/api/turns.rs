//! `POST /v1/executions/{id}/turns`: a provider's message in, its results out (DESIGN 6).

use super::executions::unavailable;
use super::problem::Problem;
use super::request::{body_text, deadline, encode_segment, fresh_id, idempotency_key, trace};
use super::respond::{Prefer, Running};
use crate::core::formats::{self, Format};
use crate::core::turn::derived_name;
use crate::durable::Durable;
use crate::service::Coordinator;
use crate::turn::{self, TENANT, Turn};
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;
use toolfleet_io::telemetry::{self, spans};
use toolfleet_proto::limit::TURN_CALLS_MAX;
use toolfleet_proto::name::check_id;
use tracing::Span;

/// Longest `?wait=` of a read.
const WAIT_SECONDS_MAX: u64 = 600;

#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    turn: Option<String>,
    format: Option<String>,
}

/// The name that the caller gave: `?turn=`, `turn` of the envelope, or `Idempotency-Key`; all that
/// are given must agree. `new`: none, and none is derived.
fn given_name(given: [Option<&str>; 3]) -> Result<Option<&str>, Problem> {
    let mut names = given.into_iter().flatten();
    let Some(first) = names.next() else { return Ok(None) };
    if names.any(|other| other != first) {
        return Err(Problem::unprocessable(
            "idempotency_conflict",
            "the turn is named twice and the names differ",
            "give the turn in one place: ?turn=, turn in the envelope, or Idempotency-Key",
        ));
    }
    check_id("turn", first)?;
    Ok(Some(first))
}

pub(crate) async fn post(
    State(coordinator): State<Coordinator>,
    Path(execution): Path<String>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    check_id("execution", &execution)?;
    let message = formats::read(&body_text(body)?, asked.format.as_deref())?;
    let calls = message.calls.len();
    if calls > TURN_CALLS_MAX {
        return Err(Problem::unprocessable(
            "too_many_calls",
            format!("the message has {calls} calls, the limit of a turn is {TURN_CALLS_MAX}"),
            "hand the calls in over several turns",
        ));
    }
    for id in message.calls.iter().filter_map(|call| call.id.as_deref()) {
        check_id("tool call id", id)?;
    }
    let key = idempotency_key(&headers)?;
    let given = given_name([asked.turn.as_deref(), message.turn.as_deref(), key.as_deref()])?;
    let ids: Vec<Option<&str>> = message.calls.iter().map(|call| call.id.as_deref()).collect();
    let name = match given {
        Some("new") => fresh_id(),
        Some(name) => name.to_owned(),
        None => derived_name(&ids).unwrap_or_else(fresh_id),
    };
    let deadline = deadline(message.deadline.as_deref(), coordinator.clock.now_ms())?;
    let is_known = deadline.is_over() && {
        let record = coordinator.executions.get(TENANT, &execution).await.map_err(unavailable)?;
        record.is_some_and(|record| record.turn(&name).is_some())
    };
    let deadline_ms = deadline.of_what_is_known(is_known)?;
    let turn = Turn {
        execution: execution.clone(),
        name: name.clone(),
        message,
        deadline_ms,
        request_id: fresh_id(),
        baggage: trace(&headers).baggage,
    };
    let span = turn_span(&execution, &name, &headers);
    let running = run(coordinator, turn, &execution, &name, span);
    running.respond(Prefer::read(&headers)).await
}

/// The turn's span, a child of the caller's where it sent one.
fn turn_span(execution: &str, name: &str, headers: &HeaderMap) -> Span {
    let span = spans::turn(execution, name);
    let caller = trace(headers);
    telemetry::set_parent(&span, &caller.traceparent, &caller.tracestate);
    span
}

/// Starts the turn in a task of its own: a caller that goes away changes nothing.
fn run(coordinator: Coordinator, turn: Turn, execution: &str, name: &str, span: Span) -> Running {
    let durable = Durable::new();
    let traceresponse = telemetry::current_trace_context(&span).0;
    let (watched, again) = (durable.clone(), (execution.to_owned(), name.to_owned()));
    let task = tokio::spawn(async move {
        match turn::run(coordinator, turn, watched, span).await {
            Ok(answer) => Ok(answer.to_string()),
            Err(reason) => Err(Problem::from(reason).with_turn(&again.0, &again.1)),
        }
    });
    Running {
        task,
        durable,
        location: location(execution, name),
        accepted: json!({"executionId": execution, "turn": name, "state": "running"}).to_string(),
        names: vec![
            ("toolfleet-execution", execution.to_owned()),
            ("toolfleet-turn", name.to_owned()),
            ("traceresponse", traceresponse),
        ],
    }
}

fn location(execution: &str, turn: &str) -> String {
    format!("/v1/executions/{}/turns/{}", encode_segment(execution), encode_segment(turn))
}

#[derive(Debug, Deserialize)]
pub(crate) struct Reading {
    wait: Option<u64>,
    format: Option<String>,
}

/// `GET /v1/executions/{id}/turns/{turn}?wait=&format=`: any replica answers.
pub(crate) async fn read(
    State(coordinator): State<Coordinator>,
    Path((execution, name)): Path<(String, String)>,
    Query(asked): Query<Reading>,
) -> Result<Response, Problem> {
    check_id("execution", &execution)?;
    check_id("turn", &name)?;
    let format = asked.format.as_deref().map(Format::of_messages).transpose()?;
    let record = coordinator.executions.get(TENANT, &execution).await.map_err(unavailable)?;
    let Some(turn) = record.as_ref().and_then(|record| record.turn(&name)) else {
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            "turn_not_found",
            "There is no such turn",
            format!("there is no turn {name:?} in the execution {execution:?}"),
            "use the turn that its answer named",
        ));
    };
    let wait = Duration::from_secs(asked.wait.unwrap_or(0).min(WAIT_SECONDS_MAX));
    let answer = coordinator.read_turn(&execution, turn, format, wait).await;
    let json = HeaderValue::from_static("application/json");
    Ok(([(CONTENT_TYPE, json)], answer.map_err(unavailable)?.to_string()).into_response())
}

#[cfg(test)]
mod tests {
    use super::given_name;

    #[test]
    fn names_that_are_given_must_agree() {
        assert_eq!(given_name([None, None, None]).unwrap(), None);
        assert_eq!(given_name([None, Some("t"), None]).unwrap(), Some("t"));
        assert_eq!(given_name([Some("t"), Some("t"), Some("t")]).unwrap(), Some("t"));
        assert!(given_name([Some("t"), None, Some("u")]).is_err());
        assert!(given_name([Some(""), None, None]).is_err());
    }
}
