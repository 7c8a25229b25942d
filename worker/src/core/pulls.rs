//! Open pull requests against free slots (DESIGN 4.2 step 1): together they never exceed the slots.

use std::collections::BTreeMap;

/// How long a pull stays open at the broker.
pub const PULL_MS: u64 = 10_000;
/// How much longer before a pull of which nothing is heard counts as gone.
const PULL_GRACE_MS: u64 = 2_000;
/// How often the broker gives a sign of life for an open pull that it has no job for.
pub const SIGN_MS: u64 = 1_500;
/// An open pull without a sign for longer is lost: the server that held it is gone, and the connection
/// to another one goes on. Three signs, so that one late one asks for nothing twice.
const UNHEARD_MS: u64 = 3 * SIGN_MS + 500;

/// Open pulls by number. Instants are milliseconds of the boot clock.
#[derive(Debug, Default)]
pub struct Pulls {
    open: BTreeMap<u64, Pull>,
    next: u64,
}

#[derive(Debug)]
struct Pull {
    remaining: usize,
    over_at_ms: u64,
    heard_at_ms: u64,
}

impl Pulls {
    /// Jobs that the broker may still send without another pull.
    pub fn outstanding(&self) -> usize {
        self.open.values().map(|pull| pull.remaining).sum()
    }

    /// How many jobs to ask for now; 0: none. Small additions wait until a good part of the slots
    /// is free, so that pulls go out in batches.
    pub fn wanted(&self, slots: usize, running: usize) -> usize {
        let outstanding = self.outstanding();
        let free = slots.saturating_sub(running + outstanding);
        if outstanding == 0 || free * 4 >= slots { free } else { 0 }
    }

    /// A pull goes out. Returns its number.
    pub fn opened(&mut self, batch: usize, now_ms: u64) -> u64 {
        self.next += 1;
        let over_at_ms = now_ms + PULL_MS + PULL_GRACE_MS;
        self.open.insert(self.next, Pull { remaining: batch, over_at_ms, heard_at_ms: now_ms });
        self.next
    }

    /// A sign of life of a pull.
    pub fn heard(&mut self, number: u64, now_ms: u64) {
        if let Some(pull) = self.open.get_mut(&number) {
            pull.heard_at_ms = now_ms;
        }
    }

    /// A job came. It does not say for which pull: the broker serves the oldest first. `false`: none
    /// is open, so no slot was kept for it.
    pub fn delivered(&mut self, now_ms: u64) -> bool {
        let Some(mut oldest) = self.open.first_entry() else { return false };
        let pull = oldest.get_mut();
        pull.heard_at_ms = now_ms;
        pull.remaining = pull.remaining.saturating_sub(1);
        if pull.remaining == 0 {
            oldest.remove();
        }
        true
    }

    /// The broker has ended a pull.
    pub fn ended(&mut self, number: u64) {
        self.open.remove(&number);
    }

    /// The connection is new: the broker has forgotten every pull.
    pub fn forget_all(&mut self) {
        self.open.clear();
    }

    /// Ends pulls that must be over, and those without a sign of life. Returns how many.
    pub fn sweep(&mut self, now_ms: u64) -> usize {
        let before = self.open.len();
        self.open
            .retain(|_, pull| now_ms < pull.over_at_ms && now_ms < pull.heard_at_ms + UNHEARD_MS);
        before - self.open.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pulls_and_running_calls_never_exceed_the_slots() {
        let mut pulls = Pulls::default();
        assert_eq!(pulls.wanted(8, 0), 8);
        pulls.opened(8, 1_000);
        assert_eq!(pulls.wanted(8, 0), 0);
        for running in 1..=8 {
            assert!(pulls.delivered(0));
            assert_eq!(pulls.outstanding() + running, 8);
            assert_eq!(pulls.wanted(8, running), 0);
        }
        assert!(!pulls.delivered(0), "a ninth has no slot");
    }

    #[test]
    fn small_additions_wait_for_company() {
        let mut pulls = Pulls::default();
        pulls.opened(7, 1_000);
        assert_eq!(pulls.wanted(8, 0), 0);
        assert_eq!(Pulls::default().wanted(8, 7), 1, "but never with nothing open");
        let mut pulls = Pulls::default();
        pulls.opened(5, 1_000);
        assert_eq!(pulls.wanted(8, 1), 2);
    }

    #[test]
    fn a_pull_that_ended_frees_what_it_kept() {
        let mut pulls = Pulls::default();
        let number = pulls.opened(4, 1_000);
        pulls.delivered(1_000);
        pulls.ended(number);
        assert_eq!(pulls.wanted(4, 1), 3);
        pulls.opened(3, 1_000);
        pulls.forget_all();
        assert_eq!(pulls.outstanding(), 0);
    }

    #[test]
    fn a_pull_without_a_sign_of_life_is_given_up() {
        let mut pulls = Pulls::default();
        let number = pulls.opened(4, 1_000);
        assert_eq!(pulls.sweep(1_000 + UNHEARD_MS - 1), 0);
        pulls.heard(number, 3_000);
        assert_eq!(pulls.sweep(1_000 + UNHEARD_MS), 0);
        pulls.delivered(4_000);
        assert_eq!((pulls.sweep(3_999 + UNHEARD_MS), pulls.sweep(4_000 + UNHEARD_MS)), (0, 1));
        pulls.heard(number, 9_000);
        assert_eq!(pulls.outstanding(), 0, "one that was given up stays so");
    }

    #[test]
    fn a_pull_ends_however_often_it_is_heard_of() {
        let mut pulls = Pulls::default();
        let number = pulls.opened(4, 1_000);
        let over_at_ms = 1_000 + PULL_MS + PULL_GRACE_MS;
        pulls.heard(number, over_at_ms - 1);
        assert_eq!((pulls.sweep(over_at_ms - 1), pulls.sweep(over_at_ms)), (0, 1));
    }
}
