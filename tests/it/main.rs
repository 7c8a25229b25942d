//! Tests against real servers and real processes. One binary for all: each further one would link
//! everything again.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is how a test fails, also in the functions that tests share"
)]

mod api;
mod arguments;
mod asked;
mod brokers;
mod cancel;
mod catalog;
mod cli;
mod clients;
mod clocks;
mod conversation;
mod coordinators;
mod dev;
mod docs;
mod drain;
mod executions;
mod formats;
mod guard;
mod here;
mod keepalive;
mod loss;
mod once;
mod path;
mod python;
mod results;
mod resume;
mod spend;
mod stop;
mod topology;
mod trace;
mod turns;
mod writes;
