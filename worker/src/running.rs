//! The calls that this worker has in hand. A call is entered before its lease is asked for, so that a
//! cancel finds it (DESIGN 4.2 step 2).

use crate::stop::{Stop, StopReason};
use async_nats::jetstream::AckKind;
use async_nats::jetstream::message::Acker;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use toolfleet_proto::name::CallName;

struct Entry {
    acker: Arc<Acker>,
    stop: Stop,
}

/// Calls in hand, by name. Clones share the map.
#[derive(Clone, Default)]
pub struct Running {
    calls: Arc<Mutex<HashMap<CallName, Entry>>>,
}

/// A call in hand. Dropped, it leaves the map.
pub struct InHand {
    running: Running,
    name: CallName,
}

impl Running {
    fn calls(&self) -> MutexGuard<'_, HashMap<CallName, Entry>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a call. `None`: it is in hand already, and the broker has delivered it again; only the
    /// ack handle was replaced, since the newest delivery is the one to acknowledge.
    pub fn enter(&self, name: &CallName, acker: Acker, stop: &Stop) -> Option<InHand> {
        let acker = Arc::new(acker);
        let mut calls = self.calls();
        if let Some(entry) = calls.get_mut(name) {
            entry.acker = acker;
            return None;
        }
        calls.insert(name.clone(), Entry { acker, stop: stop.clone() });
        Some(InHand { running: self.clone(), name: name.clone() })
    }

    /// Stops a call that is in hand, for a cancel that was asked for at this instant. `false`: it is not.
    pub fn cancel(&self, name: &CallName, reason: &str, requested_at_ms: i64) -> bool {
        match self.calls().get(name) {
            Some(entry) => {
                entry.stop.cancel(reason, requested_at_ms);
                true
            }
            None => false,
        }
    }

    /// Stops every call in hand.
    pub fn stop_all(&self, reason: &StopReason) -> usize {
        let calls = self.calls();
        calls.values().for_each(|entry| entry.stop.fire(reason.clone()));
        calls.len()
    }

    /// How many are in hand.
    pub fn count(&self) -> usize {
        self.calls().len()
    }

    /// Tells the broker that these jobs are in progress. Only for leases that were renewed.
    pub async fn in_progress(&self, names: &[CallName]) {
        let ackers: Vec<Arc<Acker>> = {
            let calls = self.calls();
            names.iter().filter_map(|name| calls.get(name).map(|e| Arc::clone(&e.acker))).collect()
        };
        for acker in ackers {
            if let Err(error) = acker.ack_with(AckKind::Progress).await {
                tracing::debug!(%error, "no in-progress ack");
            }
        }
    }
}

impl InHand {
    /// The handle of the newest delivery.
    pub fn acker(&self) -> Option<Arc<Acker>> {
        self.running.calls().get(&self.name).map(|entry| Arc::clone(&entry.acker))
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        self.running.calls().remove(&self.name);
    }
}
