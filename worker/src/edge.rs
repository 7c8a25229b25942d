//! What every delivery needs at the worker's edge.

use crate::claim::Claims;
use crate::lease::Keeper;
use crate::measure::Measures;
use crate::registry::Shared;
use crate::runner::threads::Threads;
use crate::running::Running;
use std::path::PathBuf;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use toolfleet_io::broker::Broker;
use toolfleet_io::clock::FleetClock;
use toolfleet_io::lease_store::LeaseStore;
use toolfleet_proto::limit::Limits;

/// Shared by all deliveries of a worker.
pub struct Edge {
    /// The broker.
    pub broker: Broker,
    /// The lease store, for what is not batched.
    pub store: LeaseStore,
    /// Leases taken and given back.
    pub claims: Claims,
    /// Leases kept.
    pub keeper: Keeper,
    /// Calls in hand.
    pub running: Running,
    /// Tools.
    pub registry: Shared,
    /// Where programs are attended to.
    pub tools: tokio::runtime::Handle,
    /// Where tools in Rust run.
    pub threads: Threads,
    /// Clocks.
    pub limits: Limits,
    /// The pool.
    pub pool: String,
    /// This worker's name, new with every process.
    pub worker: String,
    /// The fleet's clock.
    pub clock: FleetClock,
    /// Fires when the worker drains: nothing is started any more.
    pub draining: CancellationToken,
    /// `true` while the lease store does not answer: nothing is pulled.
    pub is_store_silent: watch::Sender<bool>,
    /// Folder of secrets.
    pub secrets_dir: Option<PathBuf>,
    /// Counters.
    pub measures: Measures,
}
