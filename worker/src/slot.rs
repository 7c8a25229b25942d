//! Slots before pulls: this worker asks the broker for exactly as many jobs as it has free slots
//! (DESIGN 4.2 step 1, CONTRACT 5.12). Never a prefetch.

use crate::core::pulls::{PULL_MS, Pulls, SIGN_MS};
use crate::supply::Supply;
use async_nats::StatusCode;
use async_nats::jetstream::{self, Message};
use futures::StreamExt as _;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use toolfleet_io::broker::{Broker, Error};
use toolfleet_io::clock::boot_ms;
use toolfleet_proto::topology::Prefix;

/// Pause after an answer such as "no such consumer", so that it does not become a loop.
const REFUSED_PAUSE: Duration = Duration::from_millis(250);

/// Slots of this worker. Clones share the count.
#[derive(Clone)]
pub struct Slots {
    total: usize,
    used: Arc<AtomicUsize>,
    freed: Arc<Notify>,
}

/// A slot in use: it travels with the job and is free again when dropped.
pub struct Slot {
    slots: Slots,
}

impl Slots {
    /// So many slots, all free.
    pub fn new(total: usize) -> Slots {
        Slots { total, used: Arc::default(), freed: Arc::default() }
    }

    /// How many there are.
    pub fn total(&self) -> usize {
        self.total
    }

    /// How many are in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    fn take(&self) -> Slot {
        self.used.fetch_add(1, Ordering::AcqRel);
        Slot { slots: self.clone() }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.used.fetch_sub(1, Ordering::AcqRel);
        self.slots.freed.notify_waiters();
    }
}

/// The pull loop of one pool.
pub struct Puller {
    broker: Broker,
    next_subject: String,
    inbox: String,
    slots: Slots,
    pulls: Pulls,
    is_store_silent: watch::Receiver<bool>,
    supply: Supply,
}

impl Puller {
    /// A loop for the pool's consumer. While `is_store_silent` holds `true`, nothing is pulled. What
    /// comes and what does not is told to `supply`.
    pub fn new(
        broker: Broker,
        pool: &str,
        slots: Slots,
        is_store_silent: watch::Receiver<bool>,
        supply: Supply,
    ) -> Puller {
        let next_subject = format!(
            "$JS.API.CONSUMER.MSG.NEXT.{}.{}",
            broker.prefix().jobs_stream(),
            Prefix::consumer(pool)
        );
        let inbox = broker.client().new_inbox();
        Puller {
            broker,
            next_subject,
            inbox,
            slots,
            pulls: Pulls::default(),
            is_store_silent,
            supply,
        }
    }

    /// The slots that it fills.
    pub fn slots(&self) -> Slots {
        self.slots.clone()
    }

    /// What it tells of its deliveries.
    pub fn supply(&self) -> Supply {
        self.supply.clone()
    }

    /// Pulls until `draining` fires, handing each job with its slot to `deliver`. `beat` is called
    /// in every turn of the loop: what it feeds tells a wedged loop from an idle one.
    ///
    /// # Errors
    /// Where the inbox cannot be subscribed to, or its subscription ends.
    pub async fn run(
        mut self,
        draining: CancellationToken,
        beat: impl Fn(),
        mut deliver: impl FnMut(Message, Slot),
    ) -> Result<(), Error> {
        let silent = |error: &dyn std::fmt::Display| Error::Silent(error.to_string());
        let mut answers = self
            .broker
            .client()
            .subscribe(format!("{}.*", self.inbox))
            .await
            .map_err(|error| silent(&error))?;
        let mut reconnects = self.broker.reconnects();
        reconnects.mark_unchanged();
        let mut tick = tokio::time::interval(Duration::from_millis(500));
        let freed = Arc::clone(&self.slots.freed);
        let anew = self.supply.anew();
        loop {
            beat();
            self.ask().await;
            self.supply.is_hungry(self.pulls.outstanding() > 0);
            let freed = freed.notified();
            tokio::select! {
                biased;
                () = draining.cancelled() => return Ok(()),
                answer = answers.next() => match answer {
                    Some(answer) => self.answered(answer, &mut deliver).await,
                    None => return Err(Error::Silent("the subscription of pulls ended".into())),
                },
                changed = reconnects.changed() => {
                    if changed.is_err() {
                        return Err(Error::Silent("the connection is gone".into()));
                    }
                    self.pulls.forget_all();
                }
                () = anew.notified() => self.pulls.forget_all(),
                () = freed => {}
                _ = self.is_store_silent.changed() => {}
                _ = tick.tick() => {
                    let gone = self.pulls.sweep(boot_ms());
                    if gone > 0 {
                        tracing::warn!(gone, "nothing was heard of pulls, asking again");
                    }
                }
            }
        }
    }

    async fn ask(&mut self) {
        if *self.is_store_silent.borrow() || !self.broker.is_connected() {
            return;
        }
        let batch = self.pulls.wanted(self.slots.total(), self.slots.used());
        if batch == 0 {
            return;
        }
        let number = self.pulls.opened(batch, boot_ms());
        let request = json!({
            "batch": batch, "expires": PULL_MS * 1_000_000, "idle_heartbeat": SIGN_MS * 1_000_000,
        });
        let reply = format!("{}.{number}", self.inbox);
        let client = self.broker.client();
        if let Err(error) = client
            .publish_with_reply(self.next_subject.clone(), reply, request.to_string().into())
            .await
        {
            tracing::warn!(%error, "a pull did not go out");
            self.pulls.ended(number);
        }
    }

    async fn answered(
        &mut self,
        answer: async_nats::Message,
        deliver: &mut impl FnMut(Message, Slot),
    ) {
        // A status comes on the pull's own inbox; a job keeps the subject that it was published on.
        let number = answer
            .subject
            .strip_prefix(self.inbox.as_str())
            .and_then(|rest| rest.strip_prefix('.'));
        let number = number.and_then(|number| number.parse().ok()).unwrap_or(0);
        match answer.status {
            // A pull that was given up may still be answered: the job gets a slot all the same,
            // and fewer are asked for until it is over.
            None => {
                self.pulls.delivered(boot_ms());
                self.supply.delivered();
                let message = Message { message: answer, context: self.context() };
                deliver(message, self.slots.take());
            }
            Some(StatusCode::IDLE_HEARTBEAT) => self.pulls.heard(number, boot_ms()),
            Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => self.pulls.ended(number),
            Some(status) => {
                let reason = answer.description.as_deref().unwrap_or_default();
                tracing::warn!(%status, reason, "the broker ended a pull");
                self.pulls.ended(number);
                self.supply.refused();
                tokio::time::sleep(REFUSED_PAUSE).await;
            }
        }
    }

    fn context(&self) -> jetstream::Context {
        self.broker.jetstream().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_free_again_when_its_job_is_over() {
        let slots = Slots::new(2);
        let one = slots.take();
        assert_eq!(slots.used(), 1);
        drop(one);
        assert_eq!(slots.used(), 0);
    }
}
