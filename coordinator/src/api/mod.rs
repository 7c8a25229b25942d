//! The HTTP API, version 1 (DESIGN 6).

mod calls;
mod dead_letters;
mod executions;
mod guard;
mod listing;
mod problem;
mod request;
mod respond;
mod spend;
mod tools;
pub(crate) mod traces;
mod turns;

pub use guard::Hosts;
pub use problem::Problem;
pub(crate) use request::encode_segment;
pub(crate) use respond::Running;

use crate::service::Coordinator;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{delete, get, post};
use std::sync::Arc;
use toolfleet_proto::limit::BODY_BYTES_MAX;

/// The routes of the API, behind the checks that hold until there is authentication.
pub fn router(coordinator: Coordinator, hosts: Hosts) -> Router {
    let hosts = Arc::new(hosts);
    Router::new()
        .route("/v1/tools", get(tools::list))
        .route("/v1/tools/{name}/call", post(calls::call))
        .route("/v1/tools/{name}/drop", post(tools::drop_entry))
        .route("/v1/catalog", get(tools::catalog))
        .route("/v1/calls", get(listing::calls))
        .route("/v1/calls/{execution}/{call}", get(calls::read))
        .route("/v1/calls/{execution}/{call}/cancel", post(executions::cancel_call))
        .route("/v1/calls/{execution}/{call}/resolve", post(executions::resolve))
        .route("/v1/dead-letters", get(dead_letters::list))
        .route("/v1/dead-letters/{execution}/{call}", get(dead_letters::show))
        .route("/v1/dead-letters/{execution}/{call}", delete(dead_letters::drop))
        .route("/v1/dead-letters/{execution}/{call}/requeue", post(dead_letters::requeue))
        .route("/v1/spend", get(spend::read))
        .route("/v1/executions", post(executions::create))
        .route("/v1/executions/{id}", get(executions::read))
        .route("/v1/executions/{id}/calls", get(executions::calls))
        .route("/v1/executions/{id}/cancel", post(executions::cancel))
        .route("/v1/executions/{id}/finish", post(executions::finish))
        .route("/v1/executions/{id}/turns", post(turns::post).get(executions::turns))
        .route("/v1/executions/{id}/turns/{turn}", get(turns::read))
        .merge(traces::routes(traces::Source::installed()))
        .fallback(problem::no_such_path)
        .method_not_allowed_fallback(problem::no_such_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(hosts, guard::check))
        .with_state(coordinator)
}
