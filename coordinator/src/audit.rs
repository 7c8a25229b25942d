//! The auditor of the queue (DESIGN 4.4): a broker that was killed can strand jobs, still in the stream
//! and never delivered again; and a job may outlive everybody who would end it. What G1 rests on when
//! everybody else is gone. Every coordinator audits; racing is safe.

use crate::core::audit::{self, Floor, Rounds, Suspects};
use crate::core::wait::{self, Overdue};
use crate::measure::Depth;
use crate::service::Coordinator;
use crate::submit::Queued;
use async_nats::jetstream::consumer::{Info, pull};
use async_nats::jetstream::stream::{RawMessageErrorKind, Stream};
use futures::TryStreamExt as _;
use std::time::Duration;
use toolfleet_io::broker::{Error, Once};
use toolfleet_io::fail_point;
use toolfleet_proto::topology::Prefix;

/// How often the queue is audited without a reason.
const EVERY: Duration = Duration::from_secs(30);
/// After a reconnect the broker is given time to recover its consumers.
const AFTER_RECONNECT: Duration = Duration::from_secs(3);
/// Between two looks at the same suspects.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Suspects of one round.
const SUSPECTS_MAX: usize = 1_000;
/// Jobs of a pool's queue whose clocks are looked at in one round.
const ROUND_MAX: usize = 1_000;

fn silent(error: &dyn std::fmt::Display) -> Error {
    Error::Silent(error.to_string())
}

impl Coordinator {
    /// Audits for ever: at once, on every reconnect, and every 30 s.
    pub(crate) async fn audit(self) {
        let mut reconnects = self.broker.reconnects();
        reconnects.mark_unchanged();
        let mut rounds = Rounds::default();
        loop {
            if let Err(error) = self.audit_once(&mut rounds).await {
                tracing::warn!(%error, "the queue was not audited");
            }
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                changed = reconnects.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    tokio::time::sleep(AFTER_RECONNECT).await;
                }
            }
        }
    }

    async fn audit_once(&self, rounds: &mut Rounds) -> Result<(), Error> {
        let name = self.broker.prefix().jobs_stream();
        let stream =
            self.broker.jetstream().get_stream(&name).await.map_err(|error| silent(&error))?;
        let consumers: Vec<Info> =
            stream.consumers().try_collect().await.map_err(|error| silent(&error))?;
        for consumer in &consumers {
            if let Some(pool) = Prefix::pool_of_consumer(&consumer.name) {
                self.measures.queue(pool, self.depth(&stream, consumer, pool).await?);
            }
        }
        for consumer in &consumers {
            let Some(pool) = Prefix::pool_of_consumer(&consumer.name) else { continue };
            self.free_stranded(&stream, pool).await?;
            self.end_overdue(&stream, pool, rounds).await?;
        }
        Ok(())
    }

    /// The queue of a pool. Jobs that a worker was handed are not the oldest: a call may run for hours.
    async fn depth(&self, stream: &Stream, consumer: &Info, pool: &str) -> Result<Depth, Error> {
        let filter = self.broker.prefix().jobs_of_pool(pool);
        let from = consumer.delivered.stream_sequence + 1;
        let first =
            stream.raw_message_builder().sequence(from).next_by_subject(filter).send().await;
        let oldest_ms = match first {
            Ok(job) => {
                let stored_at_ms = job.time.unix_timestamp_nanos() / 1_000_000;
                u64::try_from(i128::from(self.clock.now_ms()) - stored_at_ms).unwrap_or(0)
            }
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => 0,
            Err(error) => return Err(silent(&error)),
        };
        Ok(Depth {
            pending: consumer.num_pending,
            ack_pending: consumer.num_ack_pending as u64,
            oldest: Duration::from_millis(oldest_ms),
        })
    }

    async fn floor(&self, stream: &Stream, pool: &str) -> Result<Floor, Error> {
        // The floor first: what is acknowledged after it only shrinks the suspects.
        let consumer =
            stream.consumer_info(Prefix::consumer(pool)).await.map_err(|error| silent(&error))?;
        let info = stream.get_info().await.map_err(|error| silent(&error))?;
        Ok(Floor { ack_floor: consumer.ack_floor.stream_sequence, last: info.state.last_sequence })
    }

    async fn suspects(&self, stream: &Stream, pool: &str, floor: Floor) -> Result<Suspects, Error> {
        let filter = self.broker.prefix().jobs_of_pool(pool);
        let mut suspects = Suspects::new();
        let mut from = 1;
        while from <= floor.ack_floor && suspects.len() < SUSPECTS_MAX {
            let Some((sequence, subject)) = next_message(stream, &filter, from).await? else {
                break;
            };
            if sequence > floor.ack_floor {
                break;
            }
            suspects.insert(sequence, subject);
            from = sequence + 1;
        }
        Ok(suspects)
    }

    /// Finds jobs at or below the ack floor, twice, and publishes each again in its place.
    async fn free_stranded(&self, stream: &Stream, pool: &str) -> Result<(), Error> {
        let floor = self.floor(stream, pool).await?;
        let first = self.suspects(stream, pool, floor).await?;
        if first.is_empty() && !floor.is_ahead() {
            return Ok(());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
        let again = self.floor(stream, pool).await?;
        if floor.is_ahead() && again.is_ahead() {
            return self.make_consumer_again(stream, pool).await;
        }
        let second = self.suspects(stream, pool, again).await?;
        for (sequence, subject) in audit::stranded(&first, &second, again) {
            self.publish_in_place(stream, sequence, &subject).await?;
        }
        Ok(())
    }

    /// Copies a job byte for byte, its old sequence the expected one, then purges its subject up to the
    /// copy. A needless copy is harmless: the start check ends it.
    async fn publish_in_place(
        &self,
        stream: &Stream,
        sequence: u64,
        subject: &str,
    ) -> Result<(), Error> {
        let message = match stream.get_raw_message(sequence).await {
            Ok(message) => message,
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => return Ok(()),
            Err(error) => return Err(silent(&error)),
        };
        let copy = crate::job_message::as_it_was(message);
        match self.broker.store_after(subject, sequence, &copy).await? {
            Once::Stored(copied) => {
                fail_point::reach("copy:after").await;
                stream
                    .purge()
                    .filter(subject)
                    .sequence(copied)
                    .await
                    .map_err(|error| silent(&error))?;
                self.measures.repaired_job("stranded");
                tracing::error!(subject, sequence, copied, "a stranded job was published again");
            }
            // Somebody else was faster, or it is gone.
            Once::Taken => {}
            Once::Full => return Err(Error::Refused("the stream of jobs is full".into())),
        }
        Ok(())
    }

    /// A consumer that believes in messages which the stream never had is deleted and made again, by
    /// one auditor at a time. Pulls end with 409 and are opened again; leases and the start check absorb
    /// the redeliveries.
    async fn make_consumer_again(&self, stream: &Stream, pool: &str) -> Result<(), Error> {
        let bucket = self.broker.prefix().executions_bucket();
        let notes =
            self.broker.jetstream().get_key_value(&bucket).await.map_err(|error| silent(&error))?;
        let key = format!("=audit.{pool}");
        let now_ms = self.clock.now_ms();
        let entry = notes.entry(&key).await.map_err(|error| silent(&error))?;
        let revision = match entry {
            Some(entry) if audit::is_note_fresh(&String::from_utf8_lossy(&entry.value), now_ms) => {
                return Ok(());
            }
            Some(entry) => entry.revision,
            None => 0,
        };
        if notes.update(&key, now_ms.to_string().into(), revision).await.is_err() {
            return Ok(());
        }
        let name = Prefix::consumer(pool);
        tracing::error!(consumer = name, "the consumer is ahead of its stream and is made again");
        stream.delete_consumer(&name).await.map_err(|error| silent(&error))?;
        let config =
            toolfleet_io::topology::consumer_config(self.broker.prefix(), pool, &self.limits);
        stream.create_consumer::<pull::Config>(config).await.map_err(|error| silent(&error))?;
        self.measures.repaired_job("floor_ahead");
        Ok(())
    }

    /// Ends jobs whose time is over and that nobody waits for.
    async fn end_overdue(
        &self,
        stream: &Stream,
        pool: &str,
        rounds: &mut Rounds,
    ) -> Result<(), Error> {
        let filter = self.broker.prefix().jobs_of_pool(pool);
        let mut from = rounds.begin(pool);
        for _ in 0..ROUND_MAX {
            let Some((sequence, subject)) = next_message(stream, &filter, from).await? else {
                return Ok(());
            };
            from = sequence + 1;
            let Some(name) = self.broker.prefix().call_of_job(&subject) else { continue };
            let Ok(Some(Queued { job, .. })) = self.find_job(&name).await else { continue };
            if wait::overdue(&job, self.clock.now_ms()) != Overdue::No
                && self.end_if_overdue(&job, &name).await?
            {
                self.measures.repaired_job("overdue");
            }
        }
        rounds.go_on(pool, from);
        Ok(())
    }
}

/// The next job of a filter from a sequence on, read at the leader.
async fn next_message(
    stream: &Stream,
    filter: &str,
    from: u64,
) -> Result<Option<(u64, String)>, Error> {
    let found = stream.raw_message_builder().sequence(from).next_by_subject(filter).send().await;
    match found {
        Ok(message) => Ok(Some((message.sequence, message.subject.to_string()))),
        Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
        Err(error) => Err(silent(&error)),
    }
}
