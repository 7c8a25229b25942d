//! `GET /v1/tools`: what may be called (CONTRACT 3.2); the catalogue behind it, for operators (CONTRACT
//! 1.4, DESIGN 10).

use super::executions::unavailable;
use super::problem::Problem;
use super::request::body_text;
use crate::core::catalog::native_list;
use crate::core::{export, formats};
use crate::service::Coordinator;
use crate::tool_entry::Dropped;
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, Query, State};
use axum::http::header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    format: Option<String>,
    agent: Option<String>,
    tags: Option<String>,
}

pub(crate) async fn list(
    State(coordinator): State<Coordinator>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if let Some(agent) = asked.agent {
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            "agent_not_found",
            "There is no such agent",
            format!("there is no agent {agent:?}"),
            "leave agent out: the fleet has no agents yet",
        ));
    }
    let tags: Vec<String> = asked
        .tags
        .iter()
        .flat_map(|tags| tags.split(','))
        .map(str::trim)
        .filter(|tag| !tag.is_empty())
        .map(str::to_owned)
        .collect();
    let offers = coordinator.catalog.offers();
    let (list, hash) = match asked.format.as_deref() {
        None | Some("native") => native_list(&offers, &tags),
        Some(format) => {
            export::list(format, &offers, &tags).ok_or_else(|| formats::not_spoken(format))?
        }
    };
    let etag = format!("\"{hash}\"");
    if headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == etag.as_bytes()) {
        return Ok((StatusCode::NOT_MODIFIED, [(ETAG, etag)]).into_response());
    }
    let headers = [(CONTENT_TYPE, "application/json".to_owned()), (ETAG, etag)];
    Ok((headers, list.to_string()).into_response())
}

/// `GET /v1/catalog`: what each pool announces, who has it, and why it is not offered.
pub(crate) async fn catalog(State(coordinator): State<Coordinator>) -> Json<Value> {
    Json(coordinator.catalog.report())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Drop {
    pool: Option<String>,
    force: bool,
}

/// `POST /v1/tools/{name}/drop`: takes a pool's entry of a tool out of the catalogue.
pub(crate) async fn drop_entry(
    State(coordinator): State<Coordinator>,
    Path(name): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Value>, Problem> {
    let text = body_text(body)?;
    let asked: Drop = if text.trim().is_empty() {
        Drop::default()
    } else {
        serde_json::from_str(&text).map_err(|error| {
            let mend = "send {} or {\"pool\": \"NAME\", \"force\": true}";
            Problem::bad_request("body_unreadable", error.to_string(), mend)
        })?
    };
    let dropped = coordinator.drop_tool(&name, asked.pool.as_deref(), asked.force).await;
    match dropped.map_err(unavailable)? {
        Dropped::Gone { pool, workers } => {
            Ok(Json(json!({"name": name, "pool": pool, "liveWorkers": workers})))
        }
        Dropped::Unknown => {
            let of_pool =
                asked.pool.map_or_else(String::new, |pool| format!(" of the pool {pool:?}"));
            Err(Problem::new(
                StatusCode::NOT_FOUND,
                "tool_not_found",
                "There is no such tool",
                format!("the catalogue has no tool {name:?}{of_pool}"),
                "use a name and a pool of GET /v1/catalog",
            ))
        }
        Dropped::Ambiguous(pools) => Err(Problem::unprocessable(
            "pool_missing",
            format!("several pools announce {name:?}: {}", pools.join(", ")),
            "name one of them in pool",
        )),
        Dropped::Alive { pool, workers } => Err(Problem::new(
            StatusCode::CONFLICT,
            "tool_alive",
            "Live workers have the tool",
            format!("live workers of the pool {pool} have {name:?}: {}", workers.join(", ")),
            "stop them or take the tool from them first, or force it",
        )),
    }
}
