//! All children together: started in order, kept, ended in order.

use super::member::{Member, Up};
use super::ready::{Pids, ReadyFile};
use super::report::{Failure, say};
use super::role::Role;
use super::signals::Signals;
use super::supervise::{Event, Order, supervise};
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use toolfleet_io::child::{Error, STOP_GRACE_MS};

const EVENTS_MAX: usize = 64;
/// What a worker needs besides its drain, in milliseconds.
const DRAIN_MARGIN_MS: u64 = 2_000;
/// The exit code by which a child says that its configuration cannot be used.
const EXIT_CONFIGURATION: i32 = 78;
const FAULTS_BYTES_MAX: usize = 64 * 1024;

/// Children that are ended together.
struct Group {
    tasks: JoinSet<()>,
    orders: watch::Sender<Order>,
}

impl Group {
    fn new() -> Group {
        Group { tasks: JoinSet::new(), orders: watch::Sender::new(Order::Run) }
    }

    async fn gone(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// The children of one `dev`.
pub(super) struct Fleet {
    servers: Group,
    programs: Group,
    told: mpsc::Sender<Event>,
    events: mpsc::Receiver<Event>,
    signals: Signals,
    up: BTreeMap<Role, Up>,
    traces_url: Option<String>,
}

impl Fleet {
    /// None yet. `traces_url` is the address of the receiver, where there is one.
    pub(super) fn new(signals: Signals, traces_url: Option<String>) -> Fleet {
        let (told, events) = mpsc::channel(EVENTS_MAX);
        let (servers, programs) = (Group::new(), Group::new());
        Fleet { servers, programs, told, events, signals, up: BTreeMap::new(), traces_url }
    }

    /// Starts children at the same time and waits until all are ready.
    pub(super) async fn start(&mut self, members: Vec<Member>) -> Result<(), Failure> {
        let mut awaited = BTreeSet::new();
        for member in members {
            let role = member.role();
            awaited.insert(role);
            let group = match role {
                Role::Nats | Role::Redis => &mut self.servers,
                Role::Coordinator | Role::Worker(_) => &mut self.programs,
            };
            group.tasks.spawn(supervise(member, group.orders.subscribe(), self.told.clone()));
        }
        while !awaited.iter().all(|role| self.up.contains_key(role)) {
            self.step().await?;
        }
        Ok(())
    }

    /// Waits for the next thing that happens. True where a child is ready that was not. Fails where
    /// `dev` cannot or shall not go on.
    pub(super) async fn step(&mut self) -> Result<bool, Failure> {
        let event = tokio::select! {
            biased;
            () = self.signals.next() => return Err(Failure::Interrupted),
            event = self.events.recv() => event,
        };
        match event {
            Some(Event::Up { role, up }) => {
                self.up.insert(role, up);
                Ok(true)
            }
            Some(Event::Down { text }) => {
                say(&text);
                Ok(false)
            }
            Some(Event::Failed { role, error }) => Err(failure(role, &error)),
            None => Err(Failure::Unavailable("no child is left".into())),
        }
    }

    /// Where a child is; nothing before it was ready for the first time.
    pub(super) fn up(&self, role: Role) -> Option<&Up> {
        self.up.get(&role)
    }

    /// Where traces are kept.
    pub(super) fn traces_url(&self) -> Option<&str> {
        self.traces_url.as_deref()
    }

    /// The names of all tools that workers brought.
    pub(super) fn tools(&self) -> BTreeSet<String> {
        self.up.values().flat_map(|up| up.tools.iter().cloned()).collect()
    }

    /// Where everything is; nothing before the coordinator and the servers are ready.
    pub(super) fn ready_file(&self) -> Option<ReadyFile> {
        let (nats, redis) = (self.up(Role::Nats)?, self.up(Role::Redis)?);
        let coordinator = self.up(Role::Coordinator)?;
        let workers = self
            .up
            .iter()
            .filter(|(role, _)| matches!(role, Role::Worker(_)))
            .map(|(_, up)| up.pid)
            .collect();
        Some(ReadyFile {
            http: coordinator.url.clone(),
            admin: coordinator.admin.clone(),
            nats: nats.url.clone(),
            redis: redis.url.clone(),
            traces: self.traces_url.clone(),
            pids: Pids { nats: nats.pid, redis: redis.pid, coordinator: coordinator.pid, workers },
        })
    }

    /// Ends coordinator and workers, then the servers they need to the last. True where a second
    /// signal cut it short.
    pub(super) async fn end(mut self, drain_ms: u64) -> bool {
        // Tasks that still have something to tell must not wait for a listener.
        self.events.close();
        let grace_ms = drain_ms.saturating_add(DRAIN_MARGIN_MS);
        let stages = [(true, grace_ms), (false, STOP_GRACE_MS)];
        for (programs, grace_ms) in stages {
            let group = if programs { &mut self.programs } else { &mut self.servers };
            group.orders.send_replace(Order::Stop { grace_ms });
            tokio::select! {
                () = group.gone() => {}
                () = self.signals.next() => {
                    self.kill().await;
                    return true;
                }
            }
        }
        false
    }

    async fn kill(&mut self) {
        for group in [&mut self.programs, &mut self.servers] {
            group.orders.send_replace(Order::Kill);
        }
        self.programs.gone().await;
        self.servers.gone().await;
    }
}

fn failure(role: Role, error: &Error) -> Failure {
    match error {
        Error::Exited { status, log, .. } if status.code() == Some(EXIT_CONFIGURATION) => {
            let mut faults = std::fs::read(log).unwrap_or_default();
            faults.truncate(FAULTS_BYTES_MAX);
            let faults = String::from_utf8_lossy(&faults);
            Failure::Configuration(format!(
                "{role} refuses its configuration:\n{}",
                faults.trim_end()
            ))
        }
        _ => Failure::Unavailable(format!("could not start {role}: {error}")),
    }
}
