//! Keeps the leases of this worker: renews them on a thread and a connection of their own, so that a
//! busy tool cannot starve them, and stops what can no longer be proved (G6, CONTRACT 5.5, 5.12).

use crate::core::heartbeat::{Change, Heartbeat};
use crate::measure::Measures;
use crate::runner::Expiry;
use crate::stop::{Stop, StopReason};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use toolfleet_io::clock::boot_ms;
use toolfleet_io::lease_store::LeaseStore;
use toolfleet_proto::lease::{Clock, Holder, Renewed};
use toolfleet_proto::limit::{LEASES_PER_SCRIPT_MAX, Limits};
use toolfleet_proto::name::CallName;

/// How often the keeper looks at its clocks.
const TICK: Duration = Duration::from_millis(50);
/// How soon it asks again after a silence.
const AGAIN_MS: u64 = 300;
/// Notes that wait for the edge.
const NOTES_MAX: usize = 256;

/// What the keeper tells the edge.
#[derive(Debug)]
pub enum Note {
    /// These leases were renewed: the broker may be told that their jobs are in progress.
    Renewed(Vec<CallName>),
    /// The call is marked: a cancel signal may have been lost.
    Marked(CallName),
}

struct Held {
    name: CallName,
    holder: Holder,
    stop: Stop,
    expiry: Expiry,
}

struct State {
    clock: Clock,
    heartbeat: Heartbeat,
    held: HashMap<String, Held>,
}

/// A handle on the keeper. Clones share it.
#[derive(Clone)]
pub struct Keeper {
    state: Arc<Mutex<State>>,
}

impl Keeper {
    /// A keeper that holds nothing, and the loop that keeps it: to be run on a runtime of its own.
    pub fn new(limits: &Limits) -> Keeper {
        let clock = Clock::new(limits);
        let heartbeat = Heartbeat::new(clock);
        Keeper { state: Arc::new(Mutex::new(State { clock, heartbeat, held: HashMap::new() })) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the lock is held; if it did, the map is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a lease that was granted to a request sent after `asked_at_ms` (boot clock). `stop`
    /// fires when it is lost.
    pub fn hold(&self, name: &CallName, holder: &Holder, asked_at_ms: u64, stop: &Stop) {
        let mut state = self.state();
        state.heartbeat.hold(holder.claim.clone(), asked_at_ms);
        let expiry = Expiry::at(state.clock.over_at(asked_at_ms));
        let held = Held { name: name.clone(), holder: holder.clone(), stop: stop.clone(), expiry };
        state.held.insert(holder.claim.clone(), held);
    }

    /// The claim is over: it is renewed no more.
    pub fn forget(&self, claim: &str) {
        let mut state = self.state();
        state.heartbeat.forget(claim);
        state.held.remove(claim);
    }

    /// Whether the lease is held and leaves time to stop a tool within it.
    pub fn may_start(&self, claim: &str) -> bool {
        self.state().heartbeat.may_start(claim, boot_ms())
    }

    /// When the lease is over, moved by each renewal; one that is not held is over.
    pub fn expiry(&self, claim: &str) -> Expiry {
        self.state().held.get(claim).map_or_else(|| Expiry::at(0), |held| held.expiry.clone())
    }

    /// Whether the lease is held by its own clock.
    pub fn is_held(&self, claim: &str) -> bool {
        self.may_start(claim)
    }

    /// Renews for ever. Never returns; drop it to stop.
    ///
    /// The clocks are looked at beside the renewals, not between them: one that waits for an answer, or
    /// for a connection, must not hold up the stop of what can no longer be proved.
    pub async fn keep(
        self,
        store: LeaseStore,
        limits: Limits,
        notes: mpsc::Sender<Note>,
        measures: Measures,
    ) {
        tokio::join!(self.watch_clocks(&notes), self.renew(&store, &limits, &notes, &measures));
    }

    async fn watch_clocks(&self, notes: &mpsc::Sender<Note>) {
        loop {
            tokio::time::sleep(TICK).await;
            let changes = self.state().heartbeat.overdue(boot_ms());
            self.take_in(changes, notes);
        }
    }

    async fn renew(
        &self,
        store: &LeaseStore,
        limits: &Limits,
        notes: &mpsc::Sender<Note>,
        measures: &Measures,
    ) {
        let mut next_ms = boot_ms() + limits.lease_renew_ms;
        loop {
            tokio::time::sleep(TICK).await;
            if boot_ms() >= next_ms {
                // From the moment of asking: a slow answer must not make the next one late as well.
                let asked_at_ms = boot_ms();
                let is_answered = self.renew_all(store, notes, measures).await;
                next_ms = if is_answered {
                    asked_at_ms + limits.lease_renew_ms
                } else {
                    // Two silences and the connection made anew must fit into what a lease has left.
                    boot_ms() + AGAIN_MS.min(limits.lease_renew_ms / 8)
                };
            }
        }
    }

    /// One round of renewals. `false`: some were not answered.
    async fn renew_all(
        &self,
        store: &LeaseStore,
        notes: &mpsc::Sender<Note>,
        measures: &Measures,
    ) -> bool {
        let mut is_answered = true;
        let leases: Vec<(CallName, Holder)> = {
            let state = self.state();
            let renewable = state.heartbeat.renewable(boot_ms());
            let lease =
                |claim: &String| state.held.get(claim).map(|h| (h.name.clone(), h.holder.clone()));
            renewable.iter().filter_map(lease).collect()
        };
        for chunk in leases.chunks(LEASES_PER_SCRIPT_MAX) {
            let (asked_at_ms, since) = (boot_ms(), Instant::now());
            let renewed = store.renew(chunk).await;
            measures.renewed(since.elapsed());
            match renewed {
                Ok(answers) => {
                    let answers: Vec<(String, Renewed)> =
                        chunk.iter().map(|(_, holder)| holder.claim.clone()).zip(answers).collect();
                    let changes = self.state().heartbeat.renewed(asked_at_ms, &answers);
                    self.take_in(changes, notes);
                }
                Err(error) => {
                    is_answered = false;
                    tracing::warn!(%error, leases = chunk.len(), "leases were not renewed");
                }
            }
        }
        is_answered
    }

    fn take_in(&self, changes: Vec<Change>, notes: &mpsc::Sender<Note>) {
        let mut renewed = Vec::new();
        let mut state = self.state();
        for change in changes {
            match change {
                Change::Lost { claim } => {
                    if let Some(held) = state.held.remove(&claim) {
                        tracing::warn!(call = %held.name, "execution lease lost");
                        held.stop.fire(StopReason::LeaseLost);
                    }
                }
                Change::Renewed { claim, is_marked } => {
                    // 0 where it was forgotten meanwhile: that moves nothing.
                    let asked_at_ms = state.heartbeat.asked_at_ms(&claim);
                    let over_at_ms =
                        asked_at_ms.map_or(0, |asked_ms| state.clock.over_at(asked_ms));
                    let Some(held) = state.held.get(&claim) else { continue };
                    held.expiry.move_to(over_at_ms);
                    renewed.push(held.name.clone());
                    if is_marked && !held.stop.is_fired() {
                        // A full queue sheds it: the next renewal tells it again.
                        let _ = notes.try_send(Note::Marked(held.name.clone()));
                    }
                }
            }
        }
        if !renewed.is_empty() {
            let _ = notes.try_send(Note::Renewed(renewed));
        }
    }
}

/// The queue of notes between keeper and edge.
pub fn notes() -> (mpsc::Sender<Note>, mpsc::Receiver<Note>) {
    mpsc::channel(NOTES_MAX)
}
