//! Which jobs the broker will never deliver again, and which nobody will end (DESIGN 4.4).

use std::collections::BTreeMap;

/// What a consumer says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// Everything up to here is acknowledged, as the consumer believes.
    pub ack_floor: u64,
    /// The stream's last sequence.
    pub last: u64,
}

impl Floor {
    /// Whether the consumer believes in messages that the stream never had, as after a loss of power:
    /// then nothing is delivered until the stream has caught up.
    pub fn is_ahead(&self) -> bool {
        self.ack_floor > self.last
    }
}

/// Jobs that are still in the stream at or below the floor, by sequence, with their subjects.
pub type Suspects = BTreeMap<u64, String>;

/// The suspects of two looks, 2 s apart, that are stranded: an acknowledgement may have been on its
/// way at the first.
pub fn stranded(first: &Suspects, second: &Suspects, floor: Floor) -> Suspects {
    second
        .iter()
        .filter(|(sequence, subject)| {
            **sequence <= floor.ack_floor && first.get(sequence) == Some(*subject)
        })
        .map(|(sequence, subject)| (*sequence, subject.clone()))
        .collect()
}

/// Whether another auditor's note that it mends a consumer still holds.
pub fn is_note_fresh(note: &str, now_ms: i64) -> bool {
    note.parse::<i64>().is_ok_and(|at_ms| now_ms - at_ms < 60_000)
}

/// Where the look at each pool's queue goes on: a round looks at a bounded number of jobs, and what lies
/// behind calls that run for hours has its turn too.
#[derive(Debug, Default)]
pub struct Rounds(BTreeMap<String, u64>);

impl Rounds {
    /// The sequence that a pool's round begins at.
    pub fn begin(&mut self, pool: &str) -> u64 {
        self.0.remove(pool).unwrap_or(1)
    }

    /// A round of a pool was full: the next one goes on there.
    pub fn go_on(&mut self, pool: &str, from: u64) {
        self.0.insert(pool.to_owned(), from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suspects(of: &[(u64, &str)]) -> Suspects {
        of.iter().map(|(sequence, subject)| (*sequence, (*subject).to_owned())).collect()
    }

    #[test]
    fn only_what_is_there_twice_at_or_below_the_floor_is_stranded() {
        let floor = Floor { ack_floor: 10, last: 20 };
        let first = suspects(&[(3, "a"), (10, "b"), (7, "c")]);
        let second = suspects(&[(3, "a"), (10, "b"), (9, "d"), (11, "e")]);
        assert_eq!(stranded(&first, &second, floor), suspects(&[(3, "a"), (10, "b")]));
        assert!(stranded(&Suspects::new(), &second, floor).is_empty());
    }

    #[test]
    fn a_round_goes_on_where_the_last_one_was_full_and_then_begins_anew() {
        let mut rounds = Rounds::default();
        assert_eq!(rounds.begin("a"), 1);
        rounds.go_on("a", 500);
        assert_eq!((rounds.begin("b"), rounds.begin("a"), rounds.begin("a")), (1, 500, 1));
    }

    #[test]
    fn a_floor_beyond_the_streams_end_is_ahead() {
        assert!(Floor { ack_floor: 21, last: 20 }.is_ahead());
        assert!(!Floor { ack_floor: 20, last: 20 }.is_ahead());
    }

    #[test]
    fn an_old_note_holds_nobody_up() {
        assert!(is_note_fresh("1000", 60_999));
        assert!(!is_note_fresh("1000", 61_000));
        assert!(!is_note_fresh("nonsense", 0));
    }
}
