//! One task per child: starts it, starts it again when it dies, ends it when told to.

use super::backoff::Backoff;
use super::member::{Member, Up};
use super::report;
use super::role::Role;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use toolfleet_io::child::Error;

/// A child that was killed has said nothing of use; one that failed says it at the end.
const LAST_LINES_MAX: usize = 8;

/// What children are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Run, and run again.
    Run,
    /// SIGTERM, and SIGKILL after this many milliseconds.
    Stop {
        /// Milliseconds.
        grace_ms: u64,
    },
    /// SIGKILL.
    Kill,
}

/// What becomes of a child.
#[derive(Debug)]
pub(super) enum Event {
    /// It is ready, for the first time or again.
    Up {
        /// Which.
        role: Role,
        /// Where.
        up: Up,
    },
    /// It died or did not start, and will be started again.
    Down {
        /// Which, how, and its last words.
        text: String,
    },
    /// Its first start failed; it is not tried again.
    Failed {
        /// Which.
        role: Role,
        /// Why.
        error: Error,
    },
}

/// Keeps `member` running until `orders` say otherwise, then ends it. Returns when it is gone.
pub(super) async fn supervise(
    mut member: Member,
    mut orders: watch::Receiver<Order>,
    events: mpsc::Sender<Event>,
) {
    tokio::select! {
        biased;
        () = told_to_end(&mut orders) => {}
        () = keep_running(&mut member, &events) => {}
    }
    end(&mut member, &mut orders).await;
}

/// Returns only when the first start failed.
async fn keep_running(member: &mut Member, events: &mpsc::Sender<Event>) {
    let role = member.role();
    let mut backoff = Backoff::default();
    let mut started_once = false;
    loop {
        let since = Instant::now();
        let text = match member.start().await {
            Ok(up) => {
                started_once = true;
                // Whoever listened is gone only when all is about to end.
                let _ = events.send(Event::Up { role, up }).await;
                let end = match member.wait().await {
                    Ok(status) => format!("{role} died ({status})"),
                    Err(error) => error.to_string(),
                };
                with_tail(end, &member.log_tail())
            }
            Err(error) if !started_once => {
                let _ = events.send(Event::Failed { role, error }).await;
                return;
            }
            Err(error) => error.to_string(),
        };
        let alive_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let wait_ms = backoff.wait_ms(alive_ms);
        let text = format!("starting {role} again in {wait_ms} ms: {text}");
        let _ = events.send(Event::Down { text }).await;
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
    }
}

fn with_tail(text: String, log_tail: &str) -> String {
    let lines: Vec<&str> = log_tail.lines().collect();
    let last = lines[lines.len().saturating_sub(LAST_LINES_MAX)..].join("\n");
    if last.is_empty() { text } else { format!("{text}; its last lines:\n{last}") }
}

async fn told_to_end(orders: &mut watch::Receiver<Order>) {
    // An error says that nobody is left to give orders: an end too.
    let _ = orders.wait_for(|order| *order != Order::Run).await;
}

async fn end(member: &mut Member, orders: &mut watch::Receiver<Order>) {
    let order = *orders.borrow();
    let ended = match order {
        Order::Stop { grace_ms } => {
            tokio::select! {
                ended = member.stop(grace_ms) => Some(ended),
                Ok(_) = orders.wait_for(|order| *order == Order::Kill) => None,
            }
        }
        Order::Run | Order::Kill => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => member.kill().await,
    };
    if let Err(error) = ended {
        report::say(&format!("could not end {}: {error}", member.role()));
    }
}
