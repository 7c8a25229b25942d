//! Leases that this worker holds: which to renew, which to stop, and when (DESIGN 4.2 step 6, G6).

use std::collections::HashMap;
use toolfleet_proto::lease::{Clock, Renewed};

/// Leases by the claim's random id. Instants are milliseconds of the boot clock.
#[derive(Debug)]
pub struct Heartbeat {
    clock: Clock,
    leases: HashMap<String, u64>,
}

/// What became of one lease in a renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Renewed: the broker may be told that the job is in progress.
    Renewed {
        /// The claim.
        claim: String,
        /// Whether the call is marked as cancelled.
        is_marked: bool,
    },
    /// Another holds it, or its time ran out without an answer: the tool must stop.
    Lost {
        /// The claim.
        claim: String,
    },
}

impl Heartbeat {
    /// Holds nothing yet.
    pub fn new(clock: Clock) -> Heartbeat {
        Heartbeat { clock, leases: HashMap::new() }
    }

    /// A lease was granted; the request that took it was sent after `asked_at_ms`.
    pub fn hold(&mut self, claim: String, asked_at_ms: u64) {
        self.leases.insert(claim, asked_at_ms);
    }

    /// The claim is over. A renewal that is on its way changes nothing any more.
    pub fn forget(&mut self, claim: &str) {
        self.leases.remove(claim);
    }

    /// When the request was sent that last took or renewed the lease; `None`: not held.
    pub fn asked_at_ms(&self, claim: &str) -> Option<u64> {
        self.leases.get(claim).copied()
    }

    /// Whether a tool may be started under this lease now.
    pub fn may_start(&self, claim: &str, now_ms: u64) -> bool {
        self.asked_at_ms(claim).is_some_and(|asked| self.clock.may_start(asked, now_ms))
    }

    /// Claims whose time is not over: only a holder inside its own time may ask for a renewal.
    pub fn renewable(&self, now_ms: u64) -> Vec<String> {
        self.leases
            .iter()
            .filter(|(_, asked)| now_ms < self.clock.stop_at(**asked))
            .map(|(claim, _)| claim.clone())
            .collect()
    }

    /// Takes the store's answer to a renewal that was sent after `asked_at_ms`.
    pub fn renewed(&mut self, asked_at_ms: u64, answers: &[(String, Renewed)]) -> Vec<Change> {
        let mut changes = Vec::new();
        for (claim, renewed) in answers {
            if !renewed.is_ours {
                if self.leases.remove(claim).is_some() {
                    changes.push(Change::Lost { claim: claim.clone() });
                }
            } else if let Some(asked) = self.leases.get_mut(claim) {
                *asked = (*asked).max(asked_at_ms);
                changes
                    .push(Change::Renewed { claim: claim.clone(), is_marked: renewed.is_marked });
            }
        }
        changes
    }

    /// Leases whose time to stop has come: they are lost.
    pub fn overdue(&mut self, now_ms: u64) -> Vec<Change> {
        let clock = self.clock;
        let overdue: Vec<String> = self
            .leases
            .iter()
            .filter(|(_, asked)| now_ms >= clock.stop_at(**asked))
            .map(|(claim, _)| claim.clone())
            .collect();
        overdue
            .into_iter()
            .map(|claim| {
                self.leases.remove(&claim);
                Change::Lost { claim }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolfleet_proto::limit::Limits;

    fn heartbeat() -> Heartbeat {
        let mut heartbeat = Heartbeat::new(Clock::new(&Limits::default()));
        heartbeat.hold("c".into(), 1_000);
        heartbeat
    }

    fn answer(is_ours: bool) -> Vec<(String, Renewed)> {
        vec![("c".into(), Renewed { is_ours, is_marked: false })]
    }

    #[test]
    fn a_renewal_moves_the_stop_and_silence_brings_it() {
        let mut heartbeat = heartbeat();
        assert_eq!(heartbeat.overdue(12_499), vec![]);
        heartbeat.renewed(6_000, &answer(true));
        assert_eq!(heartbeat.overdue(12_500), vec![]);
        assert_eq!(heartbeat.overdue(17_500), vec![Change::Lost { claim: "c".into() }]);
        assert_eq!(heartbeat.overdue(17_500), vec![], "a loss is told once");
    }

    #[test]
    fn a_failed_renewal_is_never_taken_for_a_success() {
        let mut heartbeat = heartbeat();
        assert_eq!(
            heartbeat.renewed(6_000, &answer(false)),
            vec![Change::Lost { claim: "c".into() }]
        );
        assert!(!heartbeat.may_start("c", 6_001));
    }

    #[test]
    fn an_answer_for_a_claim_that_is_over_changes_nothing() {
        let mut heartbeat = heartbeat();
        heartbeat.forget("c");
        assert_eq!(heartbeat.renewed(6_000, &answer(true)), vec![]);
        assert_eq!(heartbeat.renewed(6_000, &answer(false)), vec![]);
        assert_eq!(heartbeat.asked_at_ms("c"), None);
    }

    #[test]
    fn a_holder_past_its_time_does_not_ask_again() {
        let heartbeat = heartbeat();
        assert_eq!(heartbeat.renewable(12_499), vec!["c".to_owned()]);
        assert_eq!(heartbeat.renewable(12_500), Vec::<String>::new());
    }

    #[test]
    fn an_older_renewal_does_not_take_time_back() {
        let mut heartbeat = heartbeat();
        heartbeat.renewed(6_000, &answer(true));
        heartbeat.renewed(2_000, &answer(true));
        assert_eq!(heartbeat.asked_at_ms("c"), Some(6_000));
    }
}
