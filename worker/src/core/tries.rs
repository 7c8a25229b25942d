//! Tries inside one attempt (CONTRACT 5.7): whether a call whose tool failed for a passing cause is tried
//! again, and after which wait.

use toolfleet_proto::declared::{RETRY_WAIT_MAX_DEFAULT_MS, Retry, TRIES_DEFAULT};
use toolfleet_proto::effect::Effect;

/// The most that is waited before the second try; it doubles from try to try.
const WAIT_FIRST_MS: u64 = 200;

/// How often an attempt may try its tool, and how long it may wait in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Tries in all, at least 1.
    pub tries: u32,
    /// The longest wait between two of them.
    pub wait_max_ms: u64,
}

/// The plan of a call. A write runs once, whatever its tool says.
pub fn plan(effect: Effect, retry: Option<&Retry>) -> Plan {
    let tries = match effect {
        Effect::Write => 1,
        Effect::Read | Effect::Idempotent => retry.map_or(TRIES_DEFAULT, |retry| retry.tries),
    };
    let wait_max_ms = retry.and_then(|retry| retry.wait_max_ms);
    Plan { tries: tries.max(1), wait_max_ms: wait_max_ms.unwrap_or(RETRY_WAIT_MAX_DEFAULT_MS) }
}

/// A try that ended with a passing failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedTry {
    /// Its number, from 1.
    pub number: u32,
    /// How long it took.
    pub took_ms: u64,
    /// What is left of the attempt's time.
    pub left_ms: u64,
}

/// How long to wait before the next try; `None`: this was the last one. The wait is drawn evenly
/// between nothing and a ceiling that doubles from try to try (`random` is any number). There is no
/// next try where the attempt's time would not hold the wait and one more try as long as this one:
/// its failure says more than the timeout would.
pub fn wait_before_next(plan: Plan, failed: FailedTry, random: u64) -> Option<u64> {
    if failed.number >= plan.tries {
        return None;
    }
    let doubled = failed.number.saturating_sub(1).min(32);
    let ceiling_ms = WAIT_FIRST_MS.saturating_mul(1 << doubled).min(plan.wait_max_ms);
    let wait_ms = random % ceiling_ms.saturating_add(1);
    let is_room = wait_ms.saturating_add(failed.took_ms) < failed.left_ms;
    is_room.then_some(wait_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan { tries: 10, wait_max_ms: 5_000 };

    fn failed(number: u32) -> FailedTry {
        FailedTry { number, took_ms: 10, left_ms: 60_000 }
    }

    #[test]
    fn reads_and_idempotent_calls_have_three_tries_unless_their_tool_says_otherwise() {
        let retry = Retry { tries: 5, wait_max_ms: Some(700) };
        for effect in [Effect::Read, Effect::Idempotent] {
            assert_eq!(plan(effect, None), Plan { tries: 3, wait_max_ms: 5_000 });
            assert_eq!(plan(effect, Some(&retry)), Plan { tries: 5, wait_max_ms: 700 });
        }
        assert_eq!(plan(Effect::Write, None).tries, 1);
        assert_eq!(plan(Effect::Write, Some(&retry)).tries, 1);
        let none = Retry { tries: 0, wait_max_ms: None };
        assert_eq!(plan(Effect::Read, Some(&none)).tries, 1);
    }

    #[test]
    fn the_last_try_is_the_last() {
        let plan = Plan { tries: 3, ..PLAN };
        assert!(wait_before_next(plan, failed(1), 0).is_some());
        assert!(wait_before_next(plan, failed(2), 0).is_some());
        assert_eq!(wait_before_next(plan, failed(3), 0), None);
        assert_eq!(wait_before_next(Plan { tries: 1, ..PLAN }, failed(1), 0), None);
    }

    #[test]
    fn the_ceiling_doubles_up_to_the_longest_wait_and_the_draw_is_even_below_it() {
        for (number, ceiling_ms) in
            [(1, 200), (2, 400), (3, 800), (5, 3_200), (6, 5_000), (9, 5_000)]
        {
            let wait = |random| wait_before_next(PLAN, failed(number), random);
            assert_eq!(wait(0), Some(0));
            assert_eq!(wait(ceiling_ms), Some(ceiling_ms), "{number}");
            assert_eq!(wait(ceiling_ms + 1), Some(0), "{number}");
            assert!(wait(u64::MAX).unwrap() <= ceiling_ms);
        }
        let short = Plan { wait_max_ms: 50, ..PLAN };
        assert_eq!(wait_before_next(short, failed(1), 51), Some(0));
        let many = Plan { tries: u32::MAX, wait_max_ms: u64::MAX };
        assert!(wait_before_next(many, failed(1_000), 7).is_some(), "no overflow");
    }

    #[test]
    fn a_try_that_would_not_fit_into_the_attempt_is_not_begun() {
        let left = |took_ms, left_ms, random| {
            wait_before_next(PLAN, FailedTry { number: 1, took_ms, left_ms }, random)
        };
        assert_eq!(left(100, 251, 150), Some(150));
        assert_eq!(left(100, 250, 150), None);
        assert_eq!(left(0, 0, 0), None);
        assert_eq!(left(u64::MAX, 1_000, 150), None);
    }
}
