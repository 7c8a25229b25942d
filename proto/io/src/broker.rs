//! NATS: the connection, and the three things that the protocol does with a stream: store once, read
//! by subject, purge a subject (DESIGN 4).

mod connect;
mod contention;

use connect::{
    Notes, authenticate, check_version, connect_patiently, leave_lame_ducks, reconnect_delay,
};
pub use connect::{is_supported, without_password};
pub use contention::is_under_way;

use crate::config::Nats;
use crate::metrics::meter;
use async_nats::HeaderMap;
use async_nats::jetstream::context::{ContextBuilder, PublishErrorKind};
use async_nats::jetstream::message::{PublishMessage, StreamMessage};
use async_nats::jetstream::{self, stream};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use toolfleet_proto::topology::Prefix;

/// Oldest nats-server that knows everything the topology asks for.
pub const SERVER_MIN: (u64, u64) = (2, 12);

/// How long a publish waits for its ack before it is sent again.
pub const ACK_TIMEOUT: Duration = Duration::from_secs(2);

/// How long one try of a read is waited for, and how often it is tried: the replica that was asked may
/// have gone in this moment, and another one answers at once.
const READ_TIMEOUT: Duration = Duration::from_secs(1);
const READ_TRIES: u32 = 3;

/// How often a silent connection is asked for a sign of life. The client gives up a connection whose
/// third ping goes unanswered, so a broker that is gone without a word is noticed within three of
/// these: 6 s. With the renewal after it that is well within an ack wait (20 s), so that the jobs in
/// hand are not delivered a second time; and a submission, which has 10 s, outlives it.
const PING_EVERY: Duration = Duration::from_secs(2);

/// How long a connect to one server may take. Of a cluster the next server is tried then: one host that
/// is gone without a word must not use up the time of a submission.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a start waits for a broker.
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);

/// What went wrong with the broker.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody answers.
    #[error(
        "nats at {url} is not reachable: {reason}; start a nats-server with JetStream, or set nats.url"
    )]
    Unreachable {
        /// Where.
        url: String,
        /// Why.
        reason: String,
    },
    /// A server that would ignore part of the topology in silence.
    #[error("nats-server {version} at {url} is too old: toolfleet needs {}.{} or newer; install it from the nats-server releases, or point nats.url at one", SERVER_MIN.0, SERVER_MIN.1)]
    TooOld {
        /// Where.
        url: String,
        /// What it says of itself.
        version: String,
    },
    /// A file of credentials or certificates does not read.
    #[error("{what} {path}: {reason}")]
    File {
        /// Which setting.
        what: &'static str,
        /// Where.
        path: String,
        /// Why.
        reason: String,
    },
    /// The broker did not answer in time, or the connection is gone.
    #[error("the broker is silent: {0}")]
    Silent(String),
    /// The broker refused.
    #[error("the broker refused: {0}")]
    Refused(String),
}

/// What came of storing a message that may exist only once.
#[derive(Debug, PartialEq, Eq)]
pub enum Once {
    /// Ours is stored, with this sequence.
    Stored(u64),
    /// Another one is stored already (10071).
    Taken,
    /// The stream is full.
    Full,
}

/// A message to store.
#[derive(Clone, Debug, Default)]
pub struct Outgoing {
    /// Headers.
    pub headers: HeaderMap,
    /// Bytes.
    pub payload: Bytes,
    /// Its own time to live, where the stream allows one.
    pub ttl: Option<Duration>,
}

/// A connection to the broker. Clones share it.
#[derive(Clone)]
pub struct Broker {
    client: async_nats::Client,
    jetstream: jetstream::Context,
    /// The same with less patience.
    reads: jetstream::Context,
    prefix: Prefix,
    results: String,
    jobs: String,
    reconnects: watch::Receiver<u64>,
    disturbances: watch::Receiver<u64>,
}

impl Broker {
    /// Connects, waiting up to 30 s for a broker that is just starting, and checks its version.
    /// Reconnects for ever afterwards, with jitter.
    pub async fn connect(config: &Nats, prefix: Prefix, name: &str) -> Result<Broker, Error> {
        let (reconnected, reconnects) = watch::channel(0_u64);
        let (disturbed, disturbances) = watch::channel(0_u64);
        let leaving = Arc::new(Notify::new());
        let counted = meter("nats")
            .u64_counter("toolfleet_nats_reconnects")
            .with_description("connects after the first")
            .build();
        counted.add(0, &[]);
        let options = || -> Result<async_nats::ConnectOptions, Error> {
            let notes = Notes {
                reconnected: reconnected.clone(),
                disturbed: disturbed.clone(),
                leaving: Arc::clone(&leaving),
                counted: counted.clone(),
            };
            Ok(authenticate(async_nats::ConnectOptions::new(), config)?
                .name(name)
                .subscription_capacity(65_536)
                .client_capacity(8_192)
                .ping_interval(PING_EVERY)
                .connection_timeout(CONNECT_TIMEOUT)
                .request_timeout(Some(Duration::from_secs(2)))
                .reconnect_delay_callback(reconnect_delay)
                .event_callback(move |event| {
                    let notes = notes.clone();
                    async move { notes.take(&event) }
                }))
        };
        let client = connect_patiently(config, options).await?;
        check_version(&without_password(&config.url), &client.server_info().version)?;
        tokio::spawn(leave_lame_ducks(client.clone(), Arc::clone(&leaving)));
        let jetstream = ContextBuilder::new()
            .timeout(Duration::from_secs(5))
            .ack_timeout(ACK_TIMEOUT)
            .max_ack_inflight(16_384)
            .build(client.clone());
        let reads = ContextBuilder::new().timeout(READ_TIMEOUT).build(client.clone());
        let (results, jobs) = (prefix.results_stream(), prefix.jobs_stream());
        Ok(Broker { client, jetstream, reads, prefix, results, jobs, reconnects, disturbances })
    }

    /// The connection itself.
    pub fn client(&self) -> &async_nats::Client {
        &self.client
    }

    /// JetStream on this connection.
    pub fn jetstream(&self) -> &jetstream::Context {
        &self.jetstream
    }

    /// The fleet's prefix.
    pub fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// Whether the connection stands.
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    /// Gives the connection up and makes a new one, where a silence shows that it serves no more.
    pub async fn reconnect(&self) {
        if let Err(error) = self.client.force_reconnect().await {
            tracing::warn!(%error, "the connection cannot be made anew");
        }
    }

    /// Grows with every connect after the first: open pulls are gone, announcements were missed.
    pub fn reconnects(&self) -> watch::Receiver<u64> {
        self.reconnects.clone()
    }

    /// Grows with every reconnect and with every message dropped by a slow subscription.
    pub fn disturbances(&self) -> watch::Receiver<u64> {
        self.disturbances.clone()
    }

    /// Stores a message unless the subject has one (expected last sequence 0). One try: an
    /// [`Error::Silent`] says nothing about whether it was stored.
    pub async fn store_once(&self, subject: &str, message: &Outgoing) -> Result<Once, Error> {
        self.store_after(subject, 0, message).await
    }

    /// Stores a message if the last one of its subject has the given sequence (0: none).
    pub async fn store_after(
        &self,
        subject: &str,
        sequence: u64,
        message: &Outgoing,
    ) -> Result<Once, Error> {
        let mut publish = PublishMessage::build()
            .payload(message.payload.clone())
            .headers(message.headers.clone())
            .expected_last_subject_sequence(sequence);
        if let Some(ttl) = message.ttl {
            publish = publish.ttl(ttl);
        }
        let ack = match self.jetstream.send_publish(subject.to_owned(), publish).await {
            Ok(ack) => ack.await,
            Err(error) => Err(error),
        };
        match ack {
            Ok(ack) => Ok(Once::Stored(ack.sequence)),
            Err(error) => match error.kind() {
                PublishErrorKind::WrongLastSequence => Ok(Once::Taken),
                PublishErrorKind::TimedOut
                | PublishErrorKind::BrokenPipe
                | PublishErrorKind::MaxAckPending
                // A broker that has just started has not recovered its streams yet.
                | PublishErrorKind::StreamNotFound => Err(Error::Silent(error.to_string())),
                _ if is_under_way(&error) => Err(Error::Silent(error.to_string())),
                _ if is_full(&error) => Ok(Once::Full),
                _ if is_passing(&error) => Err(Error::Silent(error.to_string())),
                _ => Err(Error::Refused(error.to_string())),
            },
        }
    }

    /// Stores a message unless the subject has one; sends it again on silence until `give_up` is
    /// ready. The same bytes each time.
    pub async fn store_once_until(
        &self,
        subject: &str,
        message: &Outgoing,
        give_up: impl Future<Output = ()>,
    ) -> Result<Once, Error> {
        let mut give_up = std::pin::pin!(give_up);
        loop {
            match self.store_once(subject, message).await {
                Err(Error::Silent(reason)) => {
                    let pause = tokio::time::sleep(Duration::from_millis(100));
                    tokio::select! {
                        () = &mut give_up => return Err(Error::Silent(reason)),
                        () = pause => {}
                    }
                }
                decided => return decided,
            }
        }
    }

    /// The stored result of a call, if this replica of the stream has it: proves presence, never
    /// absence.
    pub async fn read_result(&self, subject: &str) -> Result<Option<StreamMessage>, Error> {
        self.read_last(&self.results, subject).await
    }

    /// The queued job of a call by its exact subject.
    pub async fn read_job(&self, subject: &str) -> Result<Option<StreamMessage>, Error> {
        self.read_last(&self.jobs, subject).await
    }

    /// The last message of a subject of a stream.
    pub async fn read_last(
        &self,
        stream: &str,
        subject: &str,
    ) -> Result<Option<StreamMessage>, Error> {
        let handle = named(&self.reads, stream).await?;
        let mut tries = 0;
        loop {
            tries += 1;
            match handle.direct_get_last_for_subject(subject).await {
                Ok(message) => return Ok(Some(message)),
                Err(error) => match error.kind() {
                    stream::DirectGetErrorKind::NotFound => return Ok(None),
                    stream::DirectGetErrorKind::TimedOut if tries < READ_TRIES => {}
                    _ => return Err(Error::Silent(error.to_string())),
                },
            }
        }
    }

    /// The last message of a subject that may hold wildcards, read at the stream's leader.
    pub async fn find_last(
        &self,
        stream: &str,
        filter: &str,
    ) -> Result<Option<StreamMessage>, Error> {
        let handle = named(&self.reads, stream).await?;
        let mut tries = 0;
        loop {
            tries += 1;
            match handle.get_last_raw_message_by_subject(filter).await {
                Ok(message) => return Ok(Some(message)),
                Err(error) => match error.kind() {
                    stream::LastRawMessageErrorKind::NoMessageFound => return Ok(None),
                    _ if tries < READ_TRIES && error.to_string().contains("timed out") => {}
                    _ => return Err(Error::Silent(error.to_string())),
                },
            }
        }
    }

    /// Subjects of a stream that match a filter and hold a message.
    pub async fn subjects(&self, stream: &str, filter: &str) -> Result<Vec<String>, Error> {
        use futures::TryStreamExt as _;
        let handle = named(&self.jetstream, stream).await?;
        let silent = |error: &dyn std::fmt::Display| Error::Silent(error.to_string());
        let info = handle.info_with_subjects(filter).await.map_err(|error| silent(&error))?;
        let subjects: Vec<(String, usize)> =
            info.try_collect().await.map_err(|error| silent(&error))?;
        Ok(subjects.into_iter().map(|(subject, _)| subject).collect())
    }

    /// Removes every message of a subject (wildcards allowed) from a stream.
    pub async fn purge(&self, stream: &str, filter: &str) -> Result<u64, Error> {
        let handle = named(&self.jetstream, stream).await?;
        match handle.purge().filter(filter).await {
            Ok(response) => Ok(response.purged),
            Err(error) => Err(Error::Silent(error.to_string())),
        }
    }
}

async fn named(context: &jetstream::Context, stream: &str) -> Result<stream::Stream<()>, Error> {
    context.get_stream_no_info(stream).await.map_err(|error| Error::Refused(error.to_string()))
}

fn is_full(error: &jetstream::context::PublishError) -> bool {
    let text = format!("{error:?}");
    ["maximum bytes exceeded", "maximum messages exceeded", "insufficient resources"]
        .iter()
        .any(|sign| text.contains(sign))
}

/// Answers of a broker that is stopping, starting, or electing a leader.
fn is_passing(error: &jetstream::context::PublishError) -> bool {
    let text = format!("{error:?}");
    [
        "temporarily unavailable",
        "no leader",
        "not available",
        "server shutdown",
        "raft",
        "stream is offline",
    ]
    .iter()
    .any(|sign| text.contains(sign))
}
