//! Sees to it that jobs come: makes a consumer that was deleted again, and where jobs wait and none
//! comes asks anew, then over a new connection. What it finds is on the probe and in the metrics.

use crate::core::supply::{Look, Mend, Seen, Silence};
use crate::edge::Edge;
use async_nats::jetstream::consumer::Info;
use async_nats::jetstream::context::ConsumerInfoErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use toolfleet_io::config::TopologyMode;
use toolfleet_io::health::Health;
use toolfleet_io::topology;
use toolfleet_proto::limit::ACK_PENDING_MAX;
use toolfleet_proto::topology::Prefix;

/// How often a worker that is not fed looks at its consumer.
const LOOK: Duration = Duration::from_secs(10);
/// The same once something is suspected.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// After a refusal: a broker that elects a leader refuses too, and makes it good by itself.
const AFTER_REFUSAL: Duration = Duration::from_millis(500);
/// The check on the probe.
const CHECK: &str = "consumer";

/// What puller and looker tell each other. Clones share it.
#[derive(Clone, Default)]
pub struct Supply(Arc<Told>);

#[derive(Default)]
struct Told {
    is_hungry: AtomicBool,
    was_fed: AtomicBool,
    refused: Notify,
    anew: Arc<Notify>,
}

impl Supply {
    /// Whether jobs were asked for and not all have come.
    pub fn is_hungry(&self, is_hungry: bool) {
        self.0.is_hungry.store(is_hungry, Ordering::Relaxed);
    }

    /// A job came.
    pub fn delivered(&self) {
        self.0.was_fed.store(true, Ordering::Relaxed);
    }

    /// The broker refused a pull.
    pub fn refused(&self) {
        self.0.refused.notify_one();
    }

    /// Fires when the open pulls are to be forgotten.
    pub fn anew(&self) -> Arc<Notify> {
        Arc::clone(&self.0.anew)
    }

    /// What was seen since the last time this was asked.
    fn seen(&self) -> Seen {
        Seen {
            is_hungry: self.0.is_hungry.load(Ordering::Relaxed),
            was_fed: self.0.was_fed.swap(false, Ordering::Relaxed),
        }
    }
}

/// Looks after the supply until the worker drains.
pub async fn look_after(edge: Arc<Edge>, supply: Supply, mode: TopologyMode, health: Health) {
    let mut silence = Silence::default();
    loop {
        let pause = if silence.is_suspected() { LOOK_AGAIN } else { LOOK };
        let is_refused = tokio::select! {
            () = edge.draining.cancelled() => return,
            () = tokio::time::sleep(pause) => false,
            () = supply.0.refused.notified() => true,
        };
        if is_refused {
            tokio::time::sleep(AFTER_REFUSAL).await;
        }
        let seen = supply.seen();
        // A worker that is fed, or full, has no question.
        if seen.was_fed || !(seen.is_hungry || is_refused) {
            silence = Silence::default();
            health.set_check(CHECK, true, String::new());
            continue;
        }
        let mend = silence.judge(look(&edge).await, seen);
        let fault = mend_supply(&edge, &supply, mend, mode).await;
        let fault = fault.or_else(|| {
            silence.is_lasting().then(|| "jobs wait, and the broker hands out none".to_owned())
        });
        health.set_check(CHECK, fault.is_none(), fault.unwrap_or_default());
    }
}

async fn look(edge: &Edge) -> Look {
    match consumer_info(edge).await {
        Ok(Some(info)) => Look::Found {
            waiting: info.num_pending,
            is_full: i64::try_from(info.num_ack_pending).unwrap_or(i64::MAX) >= ACK_PENDING_MAX,
        },
        Ok(None) => Look::Missing,
        Err(reason) => {
            tracing::debug!(reason, "the consumer was not looked at");
            Look::Unanswered
        }
    }
}

/// The pool's consumer; `None`: there is none.
async fn consumer_info(edge: &Edge) -> Result<Option<Info>, String> {
    let jobs = edge.broker.prefix().jobs_stream();
    let stream = edge.broker.jetstream().get_stream_no_info(&jobs).await;
    let stream = stream.map_err(|error| error.to_string())?;
    match stream.consumer_info(Prefix::consumer(&edge.pool)).await {
        Ok(info) => Ok(Some(info)),
        Err(error) if error.kind() == ConsumerInfoErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// Does it, and says what is still wrong.
async fn mend_supply(
    edge: &Edge,
    supply: &Supply,
    mend: Mend,
    mode: TopologyMode,
) -> Option<String> {
    let consumer = Prefix::consumer(&edge.pool);
    match mend {
        Mend::Nothing => None,
        Mend::MakeConsumer if mode == TopologyMode::Check => {
            tracing::error!(consumer, "the consumer is missing, and fleet.topology is \"check\"");
            Some(format!("consumer {consumer} is missing; make it by `toolfleet topology export`"))
        }
        Mend::MakeConsumer => {
            match topology::ensure_consumer(&edge.broker, &edge.pool, &edge.limits, mode).await {
                Ok(()) => {
                    tracing::error!(consumer, "the consumer was missing and is made again");
                    edge.measures.supply_mended("consumer");
                    supply.0.anew.notify_one();
                    None
                }
                Err(error) => {
                    tracing::error!(consumer, %error, "the consumer is missing");
                    Some(format!("consumer {consumer} is missing: {error}"))
                }
            }
        }
        Mend::PullAnew => {
            tracing::warn!(consumer, "jobs wait and none comes: asking anew");
            edge.measures.supply_mended("pulls");
            supply.0.anew.notify_one();
            None
        }
        Mend::Reconnect => {
            tracing::warn!(consumer, "jobs wait and none comes: connecting anew");
            edge.measures.supply_mended("connection");
            edge.broker.reconnect().await;
            None
        }
    }
}
