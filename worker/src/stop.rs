//! The signal that tells a running tool to stop, and why.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Why a running tool is told to stop. The first reason stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The call was cancelled, with the caller's reason.
    Cancelled(String),
    /// The worker can no longer prove that it holds the call's lease (G6).
    LeaseLost,
    /// The drain time is over.
    DrainOver,
    /// The attempt's time is over.
    TimedOut,
}

/// A stop signal: a token and its reason. Clones share both.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    token: CancellationToken,
    reason: Arc<OnceLock<StopReason>>,
    requested_at_ms: Arc<AtomicI64>,
    fired_at: Arc<OnceLock<Instant>>,
}

impl Stop {
    /// A signal that has not fired.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Fires the signal. A later reason does not replace the first.
    pub fn fire(&self, reason: StopReason) {
        let _ = self.reason.set(reason);
        let _ = self.fired_at.set(Instant::now());
        self.token.cancel();
    }

    /// Fires it as a cancel that was asked for at this instant, on the fleet's clock.
    pub fn cancel(&self, reason: &str, requested_at_ms: i64) {
        if !self.is_fired() {
            self.requested_at_ms.store(requested_at_ms, Ordering::Release);
        }
        self.fire(StopReason::Cancelled(reason.to_owned()));
    }

    /// When the cancel was asked for; 0 where that is not known, or it is no cancel.
    pub fn requested_at_ms(&self) -> i64 {
        self.requested_at_ms.load(Ordering::Acquire)
    }

    /// How long ago it fired.
    pub fn since_fired(&self) -> Option<Duration> {
        self.fired_at.get().map(Instant::elapsed)
    }

    /// The reason, once it has fired.
    pub fn reason(&self) -> Option<StopReason> {
        self.reason.get().cloned()
    }

    /// Whether it has fired.
    pub fn is_fired(&self) -> bool {
        self.token.is_cancelled()
    }

    /// The token, for code that knows only tokens.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Waits until it fires. Cancel safe.
    pub async fn fired(&self) -> StopReason {
        self.token.cancelled().await;
        // The reason is set before the token fires.
        self.reason().unwrap_or(StopReason::LeaseLost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_stays() {
        let stop = Stop::new();
        assert_eq!(stop.reason(), None);
        stop.fire(StopReason::TimedOut);
        stop.clone().fire(StopReason::LeaseLost);
        assert_eq!(stop.reason(), Some(StopReason::TimedOut));
        assert!(stop.is_fired());
    }
}
