//! `/v1/dead-letters`: calls that lost their worker in each of their attempts (CONTRACT 5.8).

use super::executions::unavailable;
use super::problem::Problem;
use super::request::{fresh_id, trace};
use super::respond::Prefer;
use crate::core::execution::State as ExecutionState;
use crate::core::mode::Mode;
use crate::core::{admit, dead_letter};
use crate::dead_letters::Found;
use crate::direct::Direct;
use crate::service::Coordinator;
use crate::turn::TENANT;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use futures::StreamExt as _;
use serde::Deserialize;
use serde_json::{Value, json};
use toolfleet_proto::name::{CallName, check_id};

/// Most entries of one page.
const PAGE_MAX: usize = 500;
/// Entries of a page where nothing is asked.
const PAGE_DEFAULT: usize = 100;
/// Letters that are read at the same time.
const AT_ONCE: usize = 16;

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Asked {
    limit: Option<usize>,
    cursor: Option<String>,
}

/// `GET /v1/dead-letters?limit=&cursor=`, by pool and name.
pub(crate) async fn list(
    State(coordinator): State<Coordinator>,
    Query(asked): Query<Asked>,
) -> Result<Json<Value>, Problem> {
    let limit = asked.limit.unwrap_or(PAGE_DEFAULT).clamp(1, PAGE_MAX);
    let prefix = coordinator.broker.prefix();
    let (stream, filter) = (prefix.dead_stream(), prefix.dead_of_tenant(TENANT));
    let mut subjects = coordinator.broker.subjects(&stream, &filter).await.map_err(unavailable)?;
    subjects.sort_unstable();
    subjects.retain(|subject| asked.cursor.as_ref().is_none_or(|after| subject > after));
    let next = (subjects.len() > limit).then(|| subjects[limit - 1].clone());
    subjects.truncate(limit);
    let names = subjects.iter().filter_map(|subject| prefix.call_of_dead(subject));
    let mut entries = futures::stream::iter(names.collect::<Vec<_>>())
        .map(|name| {
            let coordinator = coordinator.clone();
            async move {
                let Some(found) = coordinator.dead_letter(&name).await? else { return Ok(None) };
                let requeued = coordinator.requeued(&found).await?;
                let requeued = requeued.as_ref().map(|(call, state)| (call.as_str(), *state));
                Ok(Some(dead_letter::entry(&found.name, &found.letter, requeued)))
            }
        })
        .buffered(AT_ONCE);
    let mut items = Vec::new();
    while let Some(entry) = entries.next().await {
        items.extend(entry.map_err(unavailable)?);
    }
    Ok(Json(json!({"items": items, "nextCursor": next})))
}

async fn find(
    coordinator: &Coordinator,
    execution: String,
    call: String,
) -> Result<Found, Problem> {
    check_id("execution", &execution)?;
    let name = CallName { tenant: TENANT.to_owned(), execution, call };
    let found = coordinator.dead_letter(&name).await.map_err(unavailable)?;
    found.ok_or_else(|| not_found(&name))
}

fn not_found(name: &CallName) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "dead_letter_not_found",
        "There is no such dead letter",
        format!(
            "the call {:?} of the execution {:?} has no dead letter",
            name.call, name.execution
        ),
        "use a call of GET /v1/dead-letters; letters are kept for 7 days, or until they are dropped",
    )
}

/// `GET /v1/dead-letters/{execution}/{call}`.
pub(crate) async fn show(
    State(coordinator): State<Coordinator>,
    Path((execution, call)): Path<(String, String)>,
) -> Result<Json<Value>, Problem> {
    let found = find(&coordinator, execution, call).await?;
    let requeued = coordinator.requeued(&found).await.map_err(unavailable)?;
    let requeued = requeued.as_ref().map(|(call, state)| (call.as_str(), *state));
    Ok(Json(dead_letter::whole(&found.name, &found.letter, found.job.as_ref(), requeued)))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Wanted {
    force: bool,
}

/// `POST /v1/dead-letters/{execution}/{call}/requeue` with `{"force": true}` for a write.
pub(crate) async fn requeue(
    State(coordinator): State<Coordinator>,
    Path((execution, call)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let wanted: Wanted = if body.is_empty() {
        Wanted::default()
    } else {
        serde_json::from_slice(&body).map_err(|error| {
            Problem::bad_request(
                "body_unreadable",
                error.to_string(),
                "send {\"force\": true} or {}",
            )
        })?
    };
    let found = find(&coordinator, execution, call).await?;
    let Some(job) = &found.job else {
        return Err(Problem::unprocessable(
            "dead_letter_unreadable",
            "the job in it was written by a newer build",
            "requeue it through a coordinator of that build",
        ));
    };
    if dead_letter::is_write(job) && !wanted.force {
        return Err(Problem::new(
            StatusCode::CONFLICT,
            "requeue_of_write",
            "The call may have taken effect already",
            format!("{} is a write, and each of its attempts may have taken effect", job.tool),
            "check what it did, then requeue it with {\"force\": true}",
        ));
    }
    let record = coordinator.executions.get(TENANT, &found.name.execution).await;
    if record.map_err(unavailable)?.is_some_and(|record| record.state == ExecutionState::Cancelled)
    {
        return Err(Problem::new(
            StatusCode::CONFLICT,
            "execution_cancelled",
            "The execution is cancelled",
            format!("nothing of the execution {:?} starts any more", found.name.execution),
            "call the tool in another execution",
        ));
    }
    let names = found.next_names(job, fresh_id());
    check_id("callId", &names.call_id)?;
    // The version that is offered now: it may be the one that was mended.
    let offers = coordinator.catalog.offers();
    let offer = admit::find(&offers, &job.tool).map_err(Problem::from)?.clone();
    let mode = Mode::of_job(job);
    let arguments =
        admit::check(&offer, Some(&dead_letter::arguments(job)), mode).map_err(Problem::from)?;
    coordinator.note_effect(&offer, &arguments);
    // An operator's act: it is no call of the loop, so no record counts it.
    let direct = Direct { offer, arguments, names, deadline_ms: None, is_bound: false, mode };
    let running = direct.start(coordinator.clone(), None, trace(&headers));
    let prefer =
        if headers.contains_key("prefer") { Prefer::read(&headers) } else { Prefer::ASYNC };
    running.respond(prefer).await
}

/// `DELETE /v1/dead-letters/{execution}/{call}`.
pub(crate) async fn drop(
    State(coordinator): State<Coordinator>,
    Path((execution, call)): Path<(String, String)>,
) -> Result<Json<Value>, Problem> {
    check_id("execution", &execution)?;
    let name = CallName { tenant: TENANT.to_owned(), execution, call };
    if coordinator.drop_dead_letter(&name).await.map_err(unavailable)? {
        Ok(Json(json!({"dropped": true})))
    } else {
        Err(not_found(&name))
    }
}
