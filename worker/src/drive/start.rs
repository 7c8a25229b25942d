//! The start record of a write: exactly one attempt may ever take it (DESIGN 4.2 step 5, G5).

use super::claim::Claimed;
use super::{Delivery, Settle};
use crate::core::attempt::{ForeignRecord, judge_foreign_record};
use crate::stop::StopReason;
use std::time::Duration;
use toolfleet_io::broker::{Error, Once};
use toolfleet_io::{ending, fail_point};
use toolfleet_proto::code::Code;
use toolfleet_proto::end::{self, End, Record};
use toolfleet_proto::wire::{AttemptRecord, StartRecord};

/// Delay of a job whose start record could not be stored.
const RECORD_DELAY_MS: u64 = 2_000;

/// What came of asking to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permission {
    /// No record is needed.
    NotNeeded,
    /// The record is ours, with this sequence.
    Ours(u64),
    /// The delivery is over.
    Over(Settle),
    /// The store has forgotten an earlier claim: wait one lease time, then claim again.
    WaitOneTtl,
}

impl Delivery {
    /// Takes the start record where the call needs one.
    pub(crate) async fn ask_to_start(
        &self,
        claimed: &Claimed,
        attempt: &AttemptRecord,
        has_waited: bool,
    ) -> Permission {
        if !end::needs_start_record(&self.job) {
            return Permission::NotNeeded;
        }
        let subject = self.edge.broker.prefix().start(&self.name);
        let record = end::start_record(&self.job, attempt, self.edge.clock.now_ms());
        let message = ending::start_message(&record);
        loop {
            // Looked at before it is sent, and again before each time it is sent again.
            if let Some(settle) = self.must_not_start(claimed, None).await {
                return Permission::Over(settle);
            }
            fail_point::reach("start:before").await;
            match self.edge.broker.store_once(&subject, &message).await {
                Ok(Once::Stored(sequence)) => {
                    fail_point::reach("start:after").await;
                    return Permission::Ours(sequence);
                }
                Ok(Once::Taken) => return self.judge_taken(claimed, has_waited).await,
                Ok(Once::Full) => {
                    tracing::error!("the stream of start records is full: writes wait");
                    return Permission::Over(self.give_back(claimed, RECORD_DELAY_MS).await);
                }
                // Published again inside the lease's time; a record that did arrive is ours by id.
                Err(Error::Silent(reason)) => {
                    tracing::warn!(call = %self.name, reason, "no answer to a start record");
                }
                Err(error) => {
                    tracing::error!(call = %self.name, %error, "a start record was refused");
                    return Permission::Over(self.give_back(claimed, RECORD_DELAY_MS).await);
                }
            }
        }
    }

    async fn judge_taken(&self, claimed: &Claimed, has_waited: bool) -> Permission {
        let (sequence, found) = loop {
            match ending::read_record(&self.edge.broker, &self.name).await {
                Ok(Some(found)) => break found,
                Ok(None) | Err(_) => {
                    if let Some(settle) = self.must_not_start(claimed, None).await {
                        return Permission::Over(settle);
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        };
        if is_of(&found, &claimed.holder.claim) {
            return Permission::Ours(sequence);
        }
        let record = end::read_record(&found);
        if matches!(record, Record::Tombstone { .. }) {
            return Permission::Over(self.end_by_record(claimed).await);
        }
        let lease = [(self.name.clone(), claimed.holder.clone())];
        let is_ours = match self.edge.store.renew(&lease).await {
            Ok(answers) => answers.first().is_some_and(|renewed| renewed.is_ours),
            Err(_) => false,
        };
        match judge_foreign_record(is_ours, claimed.attempt, has_waited) {
            ForeignRecord::Stop => {
                self.edge.measures.lease_lost();
                self.edge.keeper.forget(&claimed.holder.claim);
                Permission::Over(Settle::Nothing)
            }
            ForeignRecord::WaitOneTtl => {
                self.edge.keeper.forget(&claimed.holder.claim);
                self.edge.claims.give_back(&self.name, &claimed.holder.claim).await;
                Permission::WaitOneTtl
            }
            ForeignRecord::OutcomeUnknown => Permission::Over(self.end_by_record(claimed).await),
        }
    }

    /// Stores what the record says: a tombstone's reason, or that the outcome is unknown.
    async fn end_by_record(&self, claimed: &Claimed) -> Settle {
        let wish = End {
            code: Code::OutcomeUnknown,
            text: String::new(),
            claims: claimed.attempt.saturating_sub(1),
            is_unheld_for_sure: false,
            requested_at_ms: self.stop.requested_at_ms(),
        };
        let settle = self.end_without_run(&wish).await;
        self.edge.keeper.forget(&claimed.holder.claim);
        match settle {
            Settle::Acknowledge => self.edge.claims.done(&self.name, &claimed.holder.claim).await,
            _ => self.edge.claims.give_back(&self.name, &claimed.holder.claim).await,
        }
        settle
    }

    /// Whether the tool must not be started any more, and how the delivery ends then. `record`: the
    /// sequence of our own start record, taken back where nothing starts.
    pub(crate) async fn must_not_start(
        &self,
        claimed: &Claimed,
        record: Option<u64>,
    ) -> Option<Settle> {
        if let Some(StopReason::Cancelled(reason)) = self.stop.reason() {
            return Some(self.end_cancelled(claimed, record, &reason).await);
        }
        if self.edge.draining.is_cancelled() {
            self.take_back(record).await;
            return Some(self.give_back(claimed, 0).await);
        }
        if self.stop.is_fired() || !self.edge.keeper.may_start(&claimed.holder.claim) {
            self.edge.measures.lease_lost();
            self.take_back(record).await;
            let _ = self.give_back(claimed, 0).await;
            return Some(Settle::Nothing);
        }
        None
    }

    async fn end_cancelled(&self, claimed: &Claimed, record: Option<u64>, reason: &str) -> Settle {
        self.take_back(record).await;
        let end = End {
            code: Code::Cancelled,
            text: reason.to_owned(),
            claims: claimed.attempt.saturating_sub(1),
            is_unheld_for_sure: true,
            requested_at_ms: self.stop.requested_at_ms(),
        };
        let settle = self.end_without_run(&end).await;
        self.edge.keeper.forget(&claimed.holder.claim);
        match settle {
            Settle::Acknowledge => self.edge.claims.done(&self.name, &claimed.holder.claim).await,
            _ => self.edge.claims.give_back(&self.name, &claimed.holder.claim).await,
        }
        settle
    }

    /// Gives lease and count back: nothing was started.
    pub(crate) async fn give_back(&self, claimed: &Claimed, delay_ms: u64) -> Settle {
        self.edge.keeper.forget(&claimed.holder.claim);
        self.edge.claims.give_back(&self.name, &claimed.holder.claim).await;
        Settle::HandBack { delay_ms }
    }

    /// Removes our own start record by its sequence: the tool was not started after all.
    async fn take_back(&self, record: Option<u64>) {
        let Some(sequence) = record else { return };
        let name = self.edge.broker.prefix().starts_stream();
        let stream = self.edge.broker.jetstream().get_stream_no_info(&name).await;
        let deleted = match stream {
            Ok(stream) => stream.delete_message(sequence).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = deleted {
            // Then the next attempt finds it and the outcome is called unknown: never a second start.
            tracing::warn!(call = %self.name, error, "a start record was not taken back");
        }
    }
}

fn is_of(record: &StartRecord, claim: &str) -> bool {
    record.attempt.as_ref().is_some_and(|attempt| attempt.attempt_id == claim)
}
