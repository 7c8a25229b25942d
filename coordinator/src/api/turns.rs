//! `POST /v1/executions/{id}/turns`: a provider's message in, its results out (DESIGN 6).

use super::problem::Problem;
use super::request::{body_text, deadline, fresh_id, idempotency_key, trace};
use crate::core::formats;
use crate::core::turn::derived_name;
use crate::service::Coordinator;
use crate::submit::NotAccepted;
use crate::turn::{self, Failed, Turn};
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use toolfleet_proto::limit::TURN_CALLS_MAX;
use toolfleet_proto::name::check_id;

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
    let deadline_ms = deadline(message.deadline.as_deref(), coordinator.clock.now_ms())?;
    let turn = Turn {
        execution: execution.clone(),
        name: name.clone(),
        message,
        deadline_ms,
        request_id: fresh_id(),
        trace: trace(&headers),
    };
    // In a task of its own: a caller that goes away changes nothing.
    let ran = tokio::spawn(turn::run(coordinator, turn)).await.unwrap_or_else(|error| {
        Err(Failed {
            turn: name,
            reason: NotAccepted::Unavailable(format!("the turn's task ended: {error}")),
        })
    });
    match ran {
        Ok(answer) => {
            let json = HeaderValue::from_static("application/json");
            Ok(([(CONTENT_TYPE, json)], answer.to_string()).into_response())
        }
        Err(failed) => Err(Problem::from(failed.reason).with_turn(&execution, &failed.turn)),
    }
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
