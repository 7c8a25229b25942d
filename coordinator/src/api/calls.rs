//! Calls without a model, and looking at a call (CONTRACT 9, DESIGN 6).

use super::executions::unavailable;
use super::problem::Problem;
use super::request::{body_text, deadline, fresh_id, idempotency_key, trace};
use super::respond::Prefer;
use crate::core::admit::{self, Names};
use crate::core::answer::{Ended, cancel_value};
use crate::core::mode::Mode;
use crate::direct::Direct;
use crate::reading::{done_answer, open_call};
use crate::service::Coordinator;
use crate::turn::{NODE_MAIN, TENANT};
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::Duration;
use tokio::time::Instant;
use toolfleet_proto::name::{CallName, check_id};

/// Longest `?wait=` of a read.
const WAIT_SECONDS_MAX: u64 = 600;
/// The execution of direct calls that name themselves but no execution.
const EXECUTION_DIRECT: &str = "direct";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Body {
    input: Option<Box<RawValue>>,
    execution_id: Option<String>,
    turn: Option<String>,
    call_id: Option<String>,
    node: Option<String>,
    deadline: Option<String>,
}

/// Names a direct call: by its own names or its key; fresh where it gives none.
fn names(body: &Body, key: Option<String>) -> Result<Names, Problem> {
    if let (Some(key), Some(id)) = (&key, body.call_id.as_ref().or(body.turn.as_ref()))
        && key != id
    {
        return Err(Problem::unprocessable(
            "idempotency_conflict",
            "Idempotency-Key and callId or turn are both given and differ",
            "give one of them",
        ));
    }
    let is_named = key.is_some() || body.call_id.is_some() || body.turn.is_some();
    let is_unnamed = !is_named && body.execution_id.is_none();
    let node = body.node.clone().unwrap_or_else(|| NODE_MAIN.to_owned());
    let execution = match &body.execution_id {
        Some(id) => id.clone(),
        None if is_named => EXECUTION_DIRECT.to_owned(),
        None => fresh_id(),
    };
    let turn = body.turn.clone().filter(|_| key.is_none()).unwrap_or_else(|| "direct".to_owned());
    let call_id = key
        .or_else(|| body.call_id.clone())
        .unwrap_or_else(|| if is_named { format!("{turn}:0") } else { fresh_id() });
    for (what, id) in
        [("executionId", &execution), ("node", &node), ("turn", &turn), ("callId", &call_id)]
    {
        check_id(what, id)?;
    }
    Ok(Names {
        name: CallName::of_turn(TENANT, &execution, &node, &turn, &call_id),
        node,
        turn,
        call_id,
        request_id: fresh_id(),
        is_unnamed,
        thread: String::new(),
        requeued_from: String::new(),
    })
}

fn json_answer(text: String) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response()
}

pub(crate) async fn call(
    State(coordinator): State<Coordinator>,
    Path(tool): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let text = body_text(body)?;
    let body: Body = serde_json::from_str(&text).map_err(|error| {
        Problem::bad_request("body_unreadable", error.to_string(), "send {\"input\": {…}}")
    })?;
    let mut names = names(&body, idempotency_key(&headers)?)?;
    let deadline = deadline(body.deadline.as_deref(), coordinator.clock.now_ms())?;
    let record = match &body.execution_id {
        Some(id) => coordinator.executions.get(TENANT, id).await.map_err(unavailable)?,
        None => None,
    };
    let input = body.input.as_deref().map(RawValue::get);
    let mode = Mode::of(record.as_ref());
    let admitted =
        admit::direct(&coordinator.catalog.offers(), record.as_ref(), &tool, input, mode);
    if deadline.is_over() || admitted.is_err() {
        // What was handed in before is attached to, whatever has become of its tool and its time.
        let known = if names.is_unnamed { None } else { coordinator.known(&names, input).await? };
        if let Some(running) = known {
            return running.respond(Prefer::read(&headers)).await;
        }
    }
    let deadline_ms = deadline.of_what_is_known(false)?;
    let (offer, arguments) = admitted.map_err(|refusal| {
        coordinator.measures.rejected(refusal.code.as_str());
        Problem::from(refusal)
    })?;
    coordinator.note_effect(&offer, &arguments);
    let is_bound = body.execution_id.is_some();
    names.thread = record.as_ref().and_then(|record| record.thread_id.clone()).unwrap_or_default();
    let direct = Direct { offer, arguments, names, deadline_ms, is_bound, mode };
    let running = direct.start(coordinator, record, trace(&headers));
    running.respond(Prefer::read(&headers)).await
}

#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    wait: Option<u64>,
}

/// `GET /v1/calls/{execution}/{call}?wait=SECONDS`: any replica answers for any call.
pub(crate) async fn read(
    State(coordinator): State<Coordinator>,
    Path((execution, call)): Path<(String, String)>,
    Query(asked): Query<Asked>,
) -> Result<Response, Problem> {
    check_id("execution", &execution)?;
    let name = CallName { tenant: TENANT.to_owned(), execution, call };
    let wait = Duration::from_secs(asked.wait.unwrap_or(0).min(WAIT_SECONDS_MAX));
    let until = Instant::now() + wait;
    let mut attached = coordinator.attach(&name).await.map_err(unavailable)?;
    let mut tool = attached.as_ref().map(|accepted| accepted.tool().to_owned());
    if attached.is_none() {
        // One that waits for a slot of its turn is listed, and has no job yet.
        tool = coordinator.listed_tool(&name).await.map_err(unavailable)?;
        if tool.is_some() {
            attached = coordinator.attach_until(&name, until).await.map_err(unavailable)?;
        }
    }
    let Some(tool) = tool else {
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            "call_not_found",
            "There is no such call",
            format!("there is no call {:?} in the execution {:?}", name.call, name.execution),
            "use the execution and call that its answer named; results are kept for the retention only",
        ));
    };
    let ended = match attached {
        Some(accepted) => {
            let left = until.saturating_duration_since(Instant::now());
            let left = if accepted.is_done() { Duration::from_secs(1) } else { left };
            tokio::time::timeout(left, coordinator.result(accepted)).await.ok()
        }
        None => None,
    };
    Ok(json_answer(match ended {
        // Nothing was handed in again: it is only read.
        Some(ended) => done_answer(&Ended { is_replayed: false, ..ended }, &name.execution),
        None => {
            let (state, worker) = coordinator.open_state_and_worker(&name).await;
            let mut open = open_call(&name, &tool, state, worker.as_deref());
            if let Some(cancel) = coordinator.open_cancel(&name).await {
                open["cancel"] = cancel_value(&cancel);
            }
            open.to_string()
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> Body {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_call_without_names_is_fresh_and_one_with_names_is_not() {
        let one = names(&body("{}"), None).unwrap();
        let two = names(&body("{}"), None).unwrap();
        assert_ne!(one.name, two.name);
        assert!(one.is_unnamed && one.name.call.starts_with("main:direct:"));
        let keyed = names(&body("{}"), Some("k:1".into())).unwrap();
        assert_eq!(
            (keyed.name.execution.as_str(), keyed.name.call.as_str()),
            ("direct", "main:direct:k%3A1")
        );
        assert!(!keyed.is_unnamed);
        let bound = names(&body(r#"{"executionId":"e"}"#), None).unwrap();
        assert!(!bound.is_unnamed && bound.name.execution == "e");
    }

    #[test]
    fn two_names_that_differ_are_refused() {
        assert!(names(&body(r#"{"callId":"a"}"#), Some("b".into())).is_err());
        assert!(names(&body(r#"{"callId":"a"}"#), Some("a".into())).is_ok());
        assert!(names(&body(r#"{"executionId":""}"#), None).is_err());
    }

    #[test]
    fn a_turn_names_its_calls() {
        let named = names(&body(r#"{"turn":"t","executionId":"e","node":"n"}"#), None).unwrap();
        assert_eq!(named.name.call, "n:t:t%3A0");
    }
}
