//! Arithmetic of leases and the answers of the lease store (DESIGN 4, 4.2).

use crate::code::Code;
use crate::limit::Limits;
use crate::wire::AttemptRecord;
use std::collections::HashMap;
use std::hash::BuildHasher;

/// When a holder must stop and when its lease is over by its own clock. Milliseconds of any clock
/// that counts a suspended machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    ttl_ms: u64,
    margin_ms: u64,
    kill_grace_ms: u64,
}

impl Clock {
    /// From the fleet's limits.
    pub fn new(limits: &Limits) -> Clock {
        Clock {
            ttl_ms: limits.lease_ttl_ms,
            margin_ms: limits.lease_margin_ms,
            kill_grace_ms: limits.kill_grace_ms,
        }
    }

    /// The holder may count on its lease until then, where `asked_at_ms` was read before the request
    /// that took or renewed it was sent.
    pub fn over_at(&self, asked_at_ms: u64) -> u64 {
        asked_at_ms + self.ttl_ms - self.margin_ms
    }

    /// Where no renewal came, the stop begins then, so that KILL comes before the lease is over (G6).
    pub fn stop_at(&self, asked_at_ms: u64) -> u64 {
        asked_at_ms + self.ttl_ms - self.margin_ms - self.kill_grace_ms
    }

    /// Whether a tool may still be started: there is time to stop it within the lease.
    pub fn may_start(&self, asked_at_ms: u64, now_ms: u64) -> bool {
        now_ms < self.stop_at(asked_at_ms)
    }
}

/// Why a call must not start any more: the content of its mark in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The code of the result to store.
    pub code: Code,
    /// What the model reads.
    pub reason: String,
    /// When it was asked for; 0 where that is not said.
    pub at_ms: i64,
}

impl Mark {
    /// As it stands in the store.
    pub fn to_text(&self) -> String {
        match self.at_ms {
            0 => format!("{}|{}", self.code, self.reason),
            at_ms => format!("{}@{at_ms}|{}", self.code, self.reason),
        }
    }

    /// Reads a mark. One that does not read counts as a cancel without words: it is never ignored.
    pub fn read(text: &str) -> Mark {
        let (code, reason) = text.split_once('|').unwrap_or(("", text));
        let (code, at_ms) = code.split_once('@').unwrap_or((code, "0"));
        Mark {
            code: Code::parse(code).unwrap_or(Code::Cancelled),
            reason: reason.to_owned(),
            at_ms: at_ms.parse().unwrap_or(0),
        }
    }
}

/// Who holds a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The claim's random id: also the attempt's.
    pub claim: String,
    /// The worker's name.
    pub worker: String,
    /// Its fencing token.
    pub fence: u64,
}

impl Holder {
    /// As it stands in the store.
    pub fn to_text(&self) -> String {
        format!("{}|{}|{}", self.claim, self.worker, self.fence)
    }

    /// Reads a lease's value; `None` for `done`.
    pub fn read(text: &str) -> Option<Holder> {
        let mut parts = text.splitn(3, '|');
        let (claim, worker, fence) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Holder { claim: claim.into(), worker: worker.into(), fence: fence.parse().ok()? })
    }
}

/// Attempts as the store keeps them, in order: fields `h<n>` hold `claim|worker|fence|ms|span`, `w<n>` the
/// last words. Fields that do not read are left out.
pub fn attempts<S: BuildHasher>(fields: &HashMap<String, String, S>) -> Vec<AttemptRecord> {
    let mut attempts: Vec<AttemptRecord> = fields
        .iter()
        .filter_map(|(field, text)| attempt(field.strip_prefix('h')?.parse().ok()?, text))
        .map(|attempt| AttemptRecord {
            last_words: fields.get(&format!("w{}", attempt.number)).cloned().unwrap_or_default(),
            ..attempt
        })
        .collect();
    attempts.sort_by_key(|attempt| attempt.number);
    attempts
}

fn attempt(number: u32, text: &str) -> Option<AttemptRecord> {
    let mut parts = text.splitn(5, '|');
    let (claim, worker, fence, at_ms) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    Some(AttemptRecord {
        attempt_id: claim.into(),
        number,
        fence: fence.parse().ok()?,
        worker: worker.into(),
        started_at_ms: at_ms.parse().ok()?,
        traceparent: parts.next().unwrap_or_default().into(),
        ..AttemptRecord::default()
    })
}

/// The store's answer to ACQUIRE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The lease is ours.
    Granted {
        /// The fencing token.
        fence: u64,
        /// Claims so far that were not given back, this one included: the attempt's number.
        claims: u32,
        /// The span of the attempt before; empty for the first.
        previous_span: String,
        /// The store's clock.
        now_ms: i64,
        /// When the call was claimed for the first time, by the store's clock: from then on all
        /// attempts together are timed (CONTRACT 5.2). Now, where the store has forgotten.
        first_ms: i64,
    },
    /// Another claim holds it, also when the call is cancelled.
    Held {
        /// What is left of its lease.
        remaining_ms: u64,
    },
    /// A result was stored within the last seconds.
    Done,
    /// The call must not start.
    Marked {
        /// Why.
        mark: Mark,
        /// Claims so far that were not given back.
        claims: u32,
        /// The store's clock.
        now_ms: i64,
    },
}

/// The store's answer to RENEW, for one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// Whether the lease is still ours (or was taken again because the store had lost it).
    pub is_ours: bool,
    /// Whether the call is marked: a cancel signal may have been lost.
    pub is_marked: bool,
}

/// The store's answer to CANCEL and EXPIRE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Who holds the lease.
    pub holder: Option<Holder>,
    /// Whether a result was stored within the last seconds.
    pub is_done: bool,
    /// Claims so far that were not given back.
    pub claims: u32,
    /// The store's clock.
    pub now_ms: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stop_begins_early_enough_for_kill_to_come_before_the_lease_is_over() {
        let limits = Limits::default();
        let clock = Clock::new(&limits);
        assert_eq!(clock.stop_at(1_000), 12_500);
        assert_eq!(clock.over_at(1_000), 14_500);
        assert!(clock.stop_at(0) + limits.kill_grace_ms <= clock.over_at(0));
        assert!(clock.may_start(0, 11_499));
        assert!(!clock.may_start(0, 11_500));
    }

    #[test]
    fn attempts_are_read_in_their_order_with_their_last_words() {
        let fields = [
            ("n", "2"),
            ("h2", "d|w2|9|200|"),
            ("h1", "c|w1|8|100|00-a|b"),
            ("w1", "o|h"),
            ("h3", "odd"),
        ];
        let fields: HashMap<String, String> =
            fields.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let attempts = attempts(&fields);
        let told: Vec<_> = attempts
            .iter()
            .map(|one| {
                (one.number, one.worker.as_str(), one.started_at_ms, one.last_words.as_str())
            })
            .collect();
        assert_eq!(told, [(1, "w1", 100, "o|h"), (2, "w2", 200, "")]);
        assert_eq!((attempts[0].fence, attempts[0].traceparent.as_str()), (8, "00-a|b"));
    }

    #[test]
    fn marks_and_holders_read_back() {
        let mark =
            Mark { code: Code::QueueTimedOut, reason: "timed out | waiting".into(), at_ms: 0 };
        assert_eq!(Mark::read(&mark.to_text()), mark);
        let asked = Mark { code: Code::Cancelled, at_ms: 1_700_000_000_000, ..mark };
        assert_eq!(Mark::read(&asked.to_text()), asked);
        assert_eq!(Mark::read("odd").code, Code::Cancelled);
        let holder = Holder { claim: "c".into(), worker: "w".into(), fence: 7 };
        assert_eq!(Holder::read(&holder.to_text()), Some(holder));
        assert_eq!(Holder::read("done"), None);
    }
}
