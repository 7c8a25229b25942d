//! Advisories of the broker that mean that a job left the queue, or will not be delivered any more,
//! without anybody of the fleet having decided so.

use crate::service::Coordinator;
use futures::StreamExt as _;
use serde::Deserialize;
use toolfleet_io::broker::Error;
use toolfleet_proto::topology::Prefix;

/// The advisories that are watched, with the word that they are counted by.
pub(crate) const KINDS: [(&str, &str); 2] =
    [("MAX_DELIVERIES", "max_deliveries"), ("MSG_TERMINATED", "terminated")];

/// What an advisory says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Advisory {
    consumer: String,
    stream_seq: u64,
    deliveries: u64,
    reason: String,
}

/// Its subject, for every pool's consumer of the stream of jobs.
fn subject(advisory: &str, prefix: &Prefix) -> String {
    format!("$JS.EVENT.ADVISORY.CONSUMER.{advisory}.{}.*", prefix.jobs_stream())
}

impl Coordinator {
    /// Raises an alarm at each such advisory: a log line and a counter. Of all replicas one hears each.
    ///
    /// # Errors
    /// Where the broker takes no subscription. An account that may not subscribe hears nothing.
    pub(crate) async fn listen_to_advisories(&self) -> Result<(), Error> {
        for (advisory, kind) in KINDS {
            let group = format!("{}.alarms", self.broker.prefix().as_str());
            let heard = self
                .broker
                .client()
                .queue_subscribe(subject(advisory, self.broker.prefix()), group);
            let mut heard = heard.await.map_err(|error| Error::Silent(error.to_string()))?;
            let coordinator = self.clone();
            tokio::spawn(async move {
                while let Some(message) = heard.next().await {
                    let told: Advisory =
                        serde_json::from_slice(&message.payload).unwrap_or_default();
                    coordinator.measures.advisory(kind);
                    tracing::error!(
                        consumer = told.consumer,
                        sequence = told.stream_seq,
                        deliveries = told.deliveries,
                        reason = told.reason,
                        "{}",
                        meaning(kind)
                    );
                }
            });
        }
        Ok(())
    }
}

fn meaning(kind: &str) -> &'static str {
    if kind == "terminated" {
        "somebody terminated a job: the broker has removed it"
    } else {
        "the broker delivers a job no more: its consumer must have max_deliver -1"
    }
}
