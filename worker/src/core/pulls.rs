//! Open pull requests against free slots (DESIGN 4.2 step 1): together they never exceed the slots.

use std::collections::BTreeMap;

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
    pub fn opened(&mut self, batch: usize, over_at_ms: u64) -> u64 {
        self.next += 1;
        self.open.insert(self.next, Pull { remaining: batch, over_at_ms });
        self.next
    }

    /// A job came. It does not say for which pull: the broker serves the oldest first. `false`: none
    /// is open, so no slot was kept for it.
    pub fn delivered(&mut self) -> bool {
        let Some(mut oldest) = self.open.first_entry() else { return false };
        let pull = oldest.get_mut();
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

    /// Ends pulls of which nothing was heard when they must be over. Returns how many.
    pub fn sweep(&mut self, now_ms: u64) -> usize {
        let before = self.open.len();
        self.open.retain(|_, pull| now_ms < pull.over_at_ms);
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
            assert!(pulls.delivered());
            assert_eq!(pulls.outstanding() + running, 8);
            assert_eq!(pulls.wanted(8, running), 0);
        }
        assert!(!pulls.delivered(), "a ninth has no slot");
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
        pulls.delivered();
        pulls.ended(number);
        assert_eq!(pulls.wanted(4, 1), 3);
        pulls.opened(3, 1_000);
        assert_eq!((pulls.sweep(999), pulls.sweep(1_000)), (0, 1));
        pulls.opened(3, 1_000);
        pulls.forget_all();
        assert_eq!(pulls.outstanding(), 0);
    }
}
