//! Takes one delivery through claim, start, run and commit (DESIGN 4.2). The order of the steps was
//! model-checked; each check is there because a run without it broke a guarantee.

mod claim;
mod commit;
mod names;
mod run;
mod start;
mod tries;

use crate::core::attempt::{self, Triage, UNREADABLE_DELAY_MS};
use crate::edge::Edge;
use crate::registry::Registered;
use crate::slot::Slot;
use crate::stop::Stop;
use async_nats::jetstream::message::Acker;
use async_nats::jetstream::{AckKind, Message};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use toolfleet_io::ending::name_of;
use toolfleet_proto::name::CallName;
use toolfleet_proto::wire::{self, Job};

/// How long a double ack is waited for. A timeout is no error: the start check ends a redelivery.
const ACK_TIMEOUT: Duration = Duration::from_secs(1);

/// What is done with the delivery at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settle {
    /// A result is stored: the job may go.
    Acknowledge,
    /// Somebody else, or this worker later.
    HandBack {
        /// Delay before the next delivery.
        delay_ms: u64,
    },
    /// A holder past its time sends nothing (DESIGN 4.2 step 9).
    Nothing,
}

/// One delivery on its way.
pub(crate) struct Delivery {
    edge: Arc<Edge>,
    job: Job,
    /// The job as it was published, byte for byte.
    bytes: Bytes,
    name: CallName,
    tool: Option<Arc<Registered>>,
    /// The broker has delivered it before, to this worker or another.
    is_redelivered: bool,
    stop: Stop,
}

/// Drives a delivery to its end. The slot is free when this returns.
pub async fn drive(edge: Arc<Edge>, message: Message, slot: Slot) {
    // Only a hint: a broker that was killed counts from 1 again.
    let is_redelivered = message.info().is_ok_and(|info| info.delivered > 1);
    let (message, acker) = message.split();
    let job = match wire::read_job(&message.payload) {
        Ok(job) => job,
        Err(error) => {
            tracing::warn!(subject = %message.subject, %error, "handing back a job that does not read");
            return settle(&acker, Settle::HandBack { delay_ms: UNREADABLE_DELAY_MS }).await;
        }
    };
    let name = name_of(&job);
    let tool = edge.registry.find(&job.tool, &job.descriptor_hash);
    // One more thread that may block is one too many: this worker has the tool for others only.
    let tool = tool.filter(|tool| !(tool.run.is_native() && edge.threads.are_used_up()));
    if let Triage::HandBack { delay_ms } =
        attempt::triage(&job, tool.is_some(), edge.clock.now_ms())
    {
        tracing::debug!(call = %name, tool = %job.tool, "handing back a job of another version");
        return settle(&acker, Settle::HandBack { delay_ms }).await;
    }
    let stop = Stop::new();
    let Some(in_hand) = edge.running.enter(&name, acker, &stop) else {
        edge.measures.redelivered();
        return;
    };
    let delivery = Delivery { edge, job, bytes: message.payload, name, tool, is_redelivered, stop };
    let end = Box::pin(delivery.go(&in_hand)).await;
    if let Some(acker) = in_hand.acker() {
        settle(&acker, end).await;
    }
    drop(slot);
}

/// Tells the broker. Jitter spreads the redeliveries of jobs that were handed back together.
async fn settle(acker: &Acker, settle: Settle) {
    let result = match settle {
        Settle::Nothing => return,
        Settle::Acknowledge => match tokio::time::timeout(ACK_TIMEOUT, acker.double_ack()).await {
            Ok(result) => result,
            Err(_) => {
                tracing::debug!("no answer to an ack");
                return;
            }
        },
        Settle::HandBack { delay_ms } => {
            let jitter_ms = if delay_ms == 0 { 0 } else { jitter_ms(250) };
            let delay = Duration::from_millis(delay_ms + jitter_ms);
            acker.ack_with(AckKind::Nak((!delay.is_zero()).then_some(delay))).await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, ?settle, "the broker was not told");
    }
}

fn jitter_ms(below: u64) -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().1 % below.max(1)
}
