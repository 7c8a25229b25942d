//! Which calls of a request are durable already (DESIGN 6): what may be told a caller depends on it.

use std::sync::Arc;
use tokio::sync::watch;

/// How many calls of a request are still to become durable.
#[derive(Clone)]
pub struct Durable {
    open: Arc<watch::Sender<Open>>,
}

/// Calls that are not durable yet.
struct Open {
    /// All of them.
    calls: usize,
    /// Those among them that wait for a slot of their turn.
    parked: usize,
}

/// One call that is to become durable. Dropped, it counts as durable: it has ended.
pub struct Pending {
    durable: Option<Durable>,
    is_parked: bool,
}

impl Durable {
    /// Not known yet how many; [`Durable::expect`] says it.
    pub fn new() -> Durable {
        Durable { open: Arc::new(watch::channel(Open { calls: usize::MAX, parked: 0 }).0) }
    }

    /// So many calls are to become durable.
    pub fn expect(&self, calls: usize) -> Vec<Pending> {
        self.open.send_replace(Open { calls, parked: 0 });
        let pending = || Pending { durable: Some(self.clone()), is_parked: false };
        (0..calls).map(|_| pending()).collect()
    }

    /// Waits until all are. Cancel safe.
    pub async fn all(&self) {
        let mut open = self.open.subscribe();
        let _ = open.wait_for(|open| open.calls == 0).await;
    }

    /// Waits until all are, or wait for a slot of their turn: those are in the execution's record, and
    /// what they wait for may take long. Cancel safe.
    pub async fn all_but_parked(&self) {
        let mut open = self.open.subscribe();
        let _ = open.wait_for(|open| open.calls == open.parked).await;
    }
}

impl Pending {
    /// It is durable.
    pub fn done(&mut self) {
        if let Some(durable) = self.durable.take() {
            durable.open.send_modify(|open| {
                open.calls = open.calls.saturating_sub(1);
                open.parked = open.parked.saturating_sub(usize::from(self.is_parked));
            });
        }
    }

    /// It waits for a slot of its turn; until it is durable it counts as waiting.
    pub fn park(&mut self) {
        if let Some(durable) = self.durable.as_ref().filter(|_| !self.is_parked) {
            self.is_parked = true;
            durable.open.send_modify(|open| open.parked += 1);
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.done();
    }
}
