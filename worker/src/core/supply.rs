//! Whether the broker still hands this worker its share of the queue, and what to do where it does not:
//! jobs wait, this worker has asked for them, and none comes (DESIGN 4.4, case D10).

/// What the broker says of the pool's consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// There is none.
    Missing,
    /// It did not answer: the connection's own clocks rule.
    Unanswered,
    /// It is there.
    Found {
        /// Jobs that no worker was handed yet.
        waiting: u64,
        /// Whether it hands out none for a reason of its own: too many are handed out already.
        is_full: bool,
    },
}

/// What this worker saw since the look before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// It has slots to fill, and has asked for jobs.
    pub is_hungry: bool,
    /// A job came.
    pub was_fed: bool,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mend {
    /// All is well, or nothing can be said.
    Nothing,
    /// Make the consumer again.
    MakeConsumer,
    /// Forget the open pulls and ask anew.
    PullAnew,
    /// Make the connection anew.
    Reconnect,
}

/// Looks in a row at which jobs waited and none came.
#[derive(Debug, Default)]
pub struct Silence {
    looks: u32,
}

impl Silence {
    /// Judges a look. One at which jobs wait proves nothing: they may be on their way. From the second
    /// on the pulls are made anew, then the connection, and so on in turn.
    pub fn judge(&mut self, look: Look, seen: Seen) -> Mend {
        let is_silent = match look {
            Look::Missing => {
                self.looks = 0;
                return Mend::MakeConsumer;
            }
            Look::Unanswered => return Mend::Nothing,
            Look::Found { waiting, is_full } => {
                waiting > 0 && !is_full && seen.is_hungry && !seen.was_fed
            }
        };
        if !is_silent {
            self.looks = 0;
            return Mend::Nothing;
        }
        self.looks = self.looks.saturating_add(1);
        match self.looks {
            1 => Mend::Nothing,
            looks if looks % 2 == 0 => Mend::PullAnew,
            _ => Mend::Reconnect,
        }
    }

    /// Whether the next look should come soon.
    pub fn is_suspected(&self) -> bool {
        self.looks > 0
    }

    /// Whether mending has not helped: this worker does not do its work.
    pub fn is_lasting(&self) -> bool {
        self.looks > 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUNGRY: Seen = Seen { is_hungry: true, was_fed: false };
    const WAITING: Look = Look::Found { waiting: 3, is_full: false };

    #[test]
    fn a_silent_consumer_is_asked_anew_then_over_another_connection() {
        let mut silence = Silence::default();
        assert_eq!(silence.judge(WAITING, HUNGRY), Mend::Nothing, "they may be on their way");
        assert!(silence.is_suspected());
        assert_eq!(silence.judge(WAITING, HUNGRY), Mend::PullAnew);
        assert_eq!(silence.judge(WAITING, HUNGRY), Mend::Reconnect);
        assert!(!silence.is_lasting());
        assert_eq!(silence.judge(WAITING, HUNGRY), Mend::PullAnew);
        assert!(silence.is_lasting());
        assert_eq!(silence.judge(WAITING, HUNGRY), Mend::Reconnect);
        let fed = Seen { was_fed: true, ..HUNGRY };
        assert_eq!(silence.judge(WAITING, fed), Mend::Nothing);
        assert!(!silence.is_suspected() && !silence.is_lasting());
    }

    #[test]
    fn silence_has_many_good_reasons() {
        let empty = Look::Found { waiting: 0, is_full: false };
        let full = Look::Found { waiting: 3, is_full: true };
        let busy = Seen { is_hungry: false, was_fed: false };
        for (look, seen) in [(empty, HUNGRY), (full, HUNGRY), (WAITING, busy)] {
            let mut silence = Silence::default();
            for _ in 0..5 {
                assert_eq!(silence.judge(look, seen), Mend::Nothing, "{look:?} {seen:?}");
            }
        }
    }

    #[test]
    fn no_answer_proves_nothing_and_forgets_nothing() {
        let mut silence = Silence::default();
        silence.judge(WAITING, HUNGRY);
        assert_eq!(silence.judge(Look::Unanswered, HUNGRY), Mend::Nothing);
        assert_eq!(silence.judge(WAITING, HUNGRY), Mend::PullAnew);
    }

    #[test]
    fn a_missing_consumer_is_made_whatever_was_seen() {
        let mut silence = Silence::default();
        let busy = Seen { is_hungry: false, was_fed: true };
        assert_eq!(silence.judge(Look::Missing, busy), Mend::MakeConsumer);
    }
}
