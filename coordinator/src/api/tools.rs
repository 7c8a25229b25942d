//! `GET /v1/tools`: what may be called (CONTRACT 3.2); the catalogue behind it, for operators (CONTRACT
//! 1.4, DESIGN 10).

use super::executions::unavailable;
use super::problem::Problem;
use super::request::body_text;
use crate::core::export::{self, Wish};
use crate::core::formats::Format;
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

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Asked {
    format: Option<String>,
    agent: Option<String>,
    tags: Option<String>,
    strict: Option<String>,
    schema: Option<String>,
}

impl Asked {
    fn wish(&self) -> Result<Wish, Problem> {
        let format = self.format.as_deref().map_or(Ok(Format::Native), Format::of_tools)?;
        let tags = self.tags.iter().flat_map(|tags| tags.split(','));
        let tags = tags.map(str::trim).filter(|tag| !tag.is_empty()).map(str::to_owned).collect();
        let is_strict = choice("strict", self.strict.as_deref(), ["false", "true"])?;
        let is_openapi = choice("schema", self.schema.as_deref(), ["json-schema", "openapi"])?;
        Ok(Wish { format, tags, is_strict, is_openapi })
    }
}

/// Whether the second of two values is asked for; the first is the default.
fn choice(name: &str, value: Option<&str>, values: [&str; 2]) -> Result<bool, Problem> {
    let value = value.unwrap_or(values[0]);
    if values.contains(&value) {
        return Ok(value == values[1]);
    }
    Err(Problem::unprocessable(
        "option_invalid",
        format!("{name} is {value:?}"),
        &format!("use {name}={} or {name}={}", values[0], values[1]),
    ))
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
    let (list, hash) = export::list(&asked.wish()?, &coordinator.catalog.offers());
    let etag = format!("\"{hash}\"");
    if is_known(&headers, &etag) {
        return Ok((StatusCode::NOT_MODIFIED, [(ETAG, etag)]).into_response());
    }
    let headers = [(CONTENT_TYPE, "application/json".to_owned()), (ETAG, etag)];
    Ok((headers, list.to_string()).into_response())
}

/// Whether the caller has the list of that tag: `If-None-Match` names it, among others or as weak (a
/// proxy that compresses makes it so), or takes any (RFC 9110).
fn is_known(headers: &HeaderMap, etag: &str) -> bool {
    let values = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == etag)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_tag_is_found_however_it_is_given() {
        let known = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(IF_NONE_MATCH, value.parse().unwrap());
            }
            is_known(&headers, "\"abc\"")
        };
        assert!(known(&["\"abc\""]) && known(&["W/\"abc\""]) && known(&["*"]));
        assert!(known(&["\"x\", W/\"abc\""]) && known(&["\"x\"", "\"abc\""]));
        assert!(!known(&[]) && !known(&["abc"]) && !known(&["\"abcd\""]));
    }

    #[test]
    fn wishes_are_read_and_unknown_ones_refused() {
        let asked = Asked {
            format: Some("gemini".into()),
            tags: Some(" a, b,".into()),
            schema: Some("openapi".into()),
            ..Asked::default()
        };
        let wish = asked.wish().unwrap();
        assert_eq!((wish.format, wish.is_openapi, wish.is_strict), (Format::Gemini, true, false));
        assert_eq!(wish.tags, ["a", "b"]);
        assert_eq!(Asked::default().wish().unwrap().format, Format::Native);
        for asked in [
            Asked { format: Some("x".into()), ..Asked::default() },
            Asked { strict: Some("yes".into()), ..Asked::default() },
            Asked { schema: Some(String::new()), ..Asked::default() },
        ] {
            assert!(asked.wish().is_err(), "{asked:?}");
        }
    }
}
