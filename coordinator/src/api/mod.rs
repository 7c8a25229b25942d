//! The HTTP API, version 1 (DESIGN 6).

mod calls;
mod guard;
mod problem;
mod request;
mod tools;
mod turns;

pub use guard::Hosts;
pub use problem::Problem;

use crate::service::Coordinator;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{get, post};
use std::sync::Arc;
use toolfleet_proto::limit::BODY_BYTES_MAX;

/// The routes of the API, behind the checks that hold until there is authentication.
pub fn router(coordinator: Coordinator, hosts: Hosts) -> Router {
    let hosts = Arc::new(hosts);
    Router::new()
        .route("/v1/tools", get(tools::list))
        .route("/v1/tools/{name}/call", post(calls::call))
        .route("/v1/calls/{execution}/{call}", get(calls::read))
        .route("/v1/executions/{id}/turns", post(turns::post))
        .fallback(problem::no_such_path)
        .method_not_allowed_fallback(problem::no_such_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(hosts, guard::check))
        .with_state(coordinator)
}
