//! What is really in the streams.

use crate::wait::until;
use anyhow::Context as _;
use async_nats::jetstream::message::StreamMessage;
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use toolfleet_io::broker::Broker;
use toolfleet_proto::name::CallName;

/// The tenant of every call as long as there is no authentication.
const TENANT: &str = "default";

/// The name of the call that an answer of the API is about.
pub fn call_name(body: &Value) -> anyhow::Result<CallName> {
    let text = |key: &str| {
        let text = body[key].as_str().map(str::to_owned);
        text.with_context(|| format!("the answer has no {key}: {body}"))
    };
    Ok(CallName { tenant: TENANT.into(), execution: text("executionId")?, call: text("call")? })
}

/// Subjects of a stream that fit a filter, with the number of messages each.
pub async fn subjects(
    broker: &Broker,
    stream: &str,
    filter: &str,
) -> anyhow::Result<BTreeMap<String, usize>> {
    let stream = broker.jetstream().get_stream(stream).await?;
    Ok(stream.info_with_subjects(filter).await?.try_collect().await?)
}

/// The last message of each subject of a stream that fits a filter, in the order of the subjects.
pub async fn messages(
    broker: &Broker,
    stream: &str,
    filter: &str,
) -> anyhow::Result<Vec<StreamMessage>> {
    let handle = broker.jetstream().get_stream(stream).await?;
    let mut found = Vec::new();
    for subject in subjects(broker, stream, filter).await?.into_keys() {
        found.push(handle.get_last_raw_message_by_subject(&subject).await?);
    }
    Ok(found)
}

/// Counts the announcements of stored results, by call.
pub struct Announcements {
    heard: Arc<Mutex<BTreeMap<CallName, usize>>>,
    listener: tokio::task::JoinHandle<()>,
}

impl Announcements {
    /// Listens from now on, also after a reconnect.
    pub async fn listen(broker: &Broker) -> anyhow::Result<Announcements> {
        let subject = format!("{}.done.>", broker.prefix().as_str());
        let mut messages = broker.client().subscribe(subject).await?;
        broker.client().flush().await?;
        let heard = Arc::new(Mutex::new(BTreeMap::new()));
        let (sink, prefix) = (Arc::clone(&heard), broker.prefix().clone());
        let listener = tokio::spawn(async move {
            while let Some(message) = messages.next().await {
                if let Some(name) = prefix.call_of_done(&message.subject) {
                    let mut heard = sink.lock().unwrap_or_else(PoisonError::into_inner);
                    *heard.entry(name).or_default() += 1;
                }
            }
        });
        Ok(Announcements { heard, listener })
    }

    /// How often the result of a call was announced so far.
    pub fn of(&self, name: &CallName) -> usize {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.get(name).copied().unwrap_or_default()
    }

    /// The same once it was heard of: an answer may be faster than its announcement.
    pub async fn once_heard(&self, name: &CallName) -> usize {
        let heard = async || (self.of(name) > 0).then_some(());
        let _ = until("the result is announced", Duration::from_secs(10), heard).await;
        self.of(name)
    }

    /// Calls that were announced more than once.
    pub fn doubled(&self) -> Vec<CallName> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.iter().filter(|(_, count)| **count > 1).map(|(name, _)| name.clone()).collect()
    }
}

impl Drop for Announcements {
    fn drop(&mut self) {
        self.listener.abort();
    }
}
