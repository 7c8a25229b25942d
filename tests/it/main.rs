//! Tests against real servers and real processes. One binary for all: each further one would link
//! everything again.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is how a test fails, also in the functions that tests share"
)]

mod again;
mod api;
mod arguments;
mod as_of;
mod asked;
mod audit;
mod blocking;
mod brokers;
mod cancel;
mod cancelling;
mod catalog;
mod check;
mod cli;
mod clients;
mod clocks;
mod cluster;
mod consumers;
mod conversation;
mod coordinators;
mod crash_table;
mod dead_letters;
mod dev;
mod docs;
mod drain;
mod dry_runs;
mod executions;
mod formats;
mod forms;
mod full;
mod guard;
mod here;
mod interleavings;
mod isolation;
mod keepalive;
mod leases;
mod limits;
mod links;
mod loss;
mod made;
mod once;
mod path;
mod python;
mod reports;
mod results;
mod resume;
mod retries;
mod sentinel;
mod skew;
mod soak;
mod spend;
mod stop;
mod topology;
mod trace;
mod turns;
mod versions;
mod writes;

/// What `toolfleet new --rust` makes: it compiles, and its own test runs here.
#[path = "../../coordinator/src/cli/new/worker.rs"]
#[expect(dead_code, reason = "its main is not this program's")]
mod new_worker;
