//! `GET /v1/tools`: what may be called (CONTRACT 3.2).

use super::problem::Problem;
use crate::core::catalog::native_list;
use crate::core::{export, formats};
use crate::service::Coordinator;
use axum::extract::{Query, State};
use axum::http::header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;

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
