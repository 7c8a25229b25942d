//! How long a child that died waits before it is started again.

const FIRST_MS: u64 = 100;
const MOST_MS: u64 = 5_000;
const SOUND_AFTER_MS: u64 = 10_000;

/// Waits that double from 100 ms to 5 s, and begin anew after a run of 10 s.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    next_ms: Option<u64>,
}

impl Backoff {
    /// The wait after a run that lasted `alive_ms`, in milliseconds.
    pub(super) fn wait_ms(&mut self, alive_ms: u64) -> u64 {
        let wait_ms = match self.next_ms {
            Some(next_ms) if alive_ms < SOUND_AFTER_MS => next_ms,
            _ => FIRST_MS,
        };
        self.next_ms = Some((wait_ms * 2).min(MOST_MS));
        wait_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_their_bound_and_begin_anew_after_a_sound_run() {
        let mut backoff = Backoff::default();
        let waits: Vec<u64> = (0..8).map(|_| backoff.wait_ms(9_999)).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        assert_eq!(backoff.wait_ms(10_000), 100);
        assert_eq!(backoff.wait_ms(0), 200);
    }
}
