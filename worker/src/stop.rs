//! The signal that tells a running tool to stop, and why.

use std::sync::{Arc, OnceLock};
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
}

impl Stop {
    /// A signal that has not fired.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Fires the signal. A later reason does not replace the first.
    pub fn fire(&self, reason: StopReason) {
        let _ = self.reason.set(reason);
        self.token.cancel();
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
