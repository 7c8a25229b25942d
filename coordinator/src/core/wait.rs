//! What a coordinator does while it waits for a result (DESIGN 4.1 steps 4 and 5).

use toolfleet_proto::code::Code;
use toolfleet_proto::end::{self, End};
use toolfleet_proto::lease::{Mark, Stopped};
use toolfleet_proto::wire::Job;

/// Grace after a deadline before anything is ended: an answer may be on its way.
pub const GRACE_MS: i64 = 2_000;
/// How soon a call is looked at again that a worker holds past its queue timeout.
pub const LOOK_AGAIN_MS: u64 = 1_000;

/// Back-off of the direct gets that repair a lost announcement: 0.5, 1, 2, 4, 5, 5 … s.
pub fn read_pause_ms(reads: u32) -> u64 {
    (500_u64 << reads.min(4)).min(5_000)
}

/// Which of its clocks a call has run out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// Neither.
    No,
    /// Nobody may start it for the first time any more.
    Queue,
    /// Nothing of it runs any more.
    Whole,
}

/// Looks at the clocks, grace included.
pub fn overdue(job: &Job, now_ms: i64) -> Overdue {
    let clocks = job.clocks.unwrap_or_default();
    if now_ms >= clocks.deadline_ms + GRACE_MS {
        Overdue::Whole
    } else if now_ms >= clocks.queue_deadline_ms + GRACE_MS {
        Overdue::Queue
    } else {
        Overdue::No
    }
}

/// Milliseconds until the next clock, grace included; at least one.
pub fn until_overdue_ms(job: &Job, now_ms: i64) -> u64 {
    let clocks = job.clocks.unwrap_or_default();
    let next = match overdue(job, now_ms) {
        Overdue::No => clocks.queue_deadline_ms + GRACE_MS,
        Overdue::Queue | Overdue::Whole => clocks.deadline_ms + GRACE_MS,
    };
    u64::try_from(next - now_ms).unwrap_or(1).max(1)
}

/// The mark that keeps an overdue call from starting, and so what is stored for it.
pub fn mark(job: &Job, overdue: Overdue, has_live_worker: bool) -> Mark {
    let clocks = job.clocks.unwrap_or_default();
    match overdue {
        Overdue::Whole => {
            Mark { code: Code::TimedOut, reason: end::whole_time_over(&clocks), at_ms: 0 }
        }
        Overdue::No | Overdue::Queue if has_live_worker => Mark {
            code: Code::QueueTimedOut,
            reason: end::queue_timed_out(clocks.queue_timeout_ms),
            at_ms: 0,
        },
        Overdue::No | Overdue::Queue => {
            Mark { code: Code::NoWorker, reason: end::no_worker(job), at_ms: 0 }
        }
    }
}

/// What the store's answer to EXPIRE means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expired {
    /// A worker holds it, or held it and it will be delivered again: its own clocks rule.
    LookAgain,
    /// A result was stored a moment ago: read it.
    Read,
    /// The record of a write exists though no claim is counted: the store has forgotten, and the
    /// holder takes its lease again. Wait one lease time, then ask again.
    WaitOneTtl,
    /// End it.
    End(End),
}

/// Judges the answer to EXPIRE. `is_record_started`: a write's start record is there and says that
/// it started. `has_waited`: one lease time has passed since.
pub fn judge_expired(
    overdue: Overdue,
    mark: &Mark,
    stopped: &Stopped,
    is_record_started: bool,
    has_waited: bool,
) -> Expired {
    if stopped.is_done {
        return Expired::Read;
    }
    if stopped.holder.is_some() || (overdue == Overdue::Queue && stopped.claims > 0) {
        return Expired::LookAgain;
    }
    if is_record_started && stopped.claims == 0 && !has_waited {
        return Expired::WaitOneTtl;
    }
    // A call whose whole time ran out without a claim has waited in vain all the same.
    Expired::End(End {
        code: mark.code,
        text: mark.reason.clone(),
        claims: stopped.claims,
        is_unheld_for_sure: true,
        requested_at_ms: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolfleet_proto::lease::Holder;
    use toolfleet_proto::wire::Clocks;

    fn job() -> Job {
        Job {
            tool: "t".into(),
            pool: "p".into(),
            clocks: Some(Clocks {
                queue_deadline_ms: 60_000,
                deadline_ms: 150_000,
                total_timeout_ms: 90_000,
                queue_timeout_ms: 60_000,
                ..Clocks::default()
            }),
            ..Job::default()
        }
    }

    fn stopped(claims: u32) -> Stopped {
        Stopped { holder: None, is_done: false, claims, now_ms: 0 }
    }

    #[test]
    fn the_reads_back_off() {
        let pauses: Vec<u64> = (0..6).map(read_pause_ms).collect();
        assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 5_000, 5_000]);
    }

    #[test]
    fn clocks_have_a_grace_and_come_in_order() {
        assert_eq!(overdue(&job(), 61_999), Overdue::No);
        assert_eq!(overdue(&job(), 62_000), Overdue::Queue);
        assert_eq!(overdue(&job(), 152_000), Overdue::Whole);
        assert_eq!(until_overdue_ms(&job(), 61_000), 1_000);
        assert_eq!(until_overdue_ms(&job(), 151_000), 1_000);
        assert_eq!(until_overdue_ms(&job(), 200_000), 1);
    }

    #[test]
    fn each_clock_has_its_own_error() {
        assert_eq!(
            mark(&job(), Overdue::Queue, true).reason,
            "timed out after 60 s waiting for a worker"
        );
        assert_eq!(mark(&job(), Overdue::Queue, false).code, Code::NoWorker);
        assert_eq!(mark(&job(), Overdue::Whole, true).reason, "timed out after 90 s");
    }

    #[test]
    fn a_call_that_is_held_or_was_claimed_is_not_ended_by_its_queue_timeout() {
        let mark = mark(&job(), Overdue::Queue, true);
        let judge = |overdue, stopped: &Stopped, record, waited| {
            judge_expired(overdue, &mark, stopped, record, waited)
        };
        let holder = Holder { claim: "c".into(), worker: "w".into(), fence: 1 };
        let held = Stopped { holder: Some(holder), ..stopped(1) };
        assert_eq!(judge(Overdue::Queue, &held, false, false), Expired::LookAgain);
        assert_eq!(judge(Overdue::Whole, &held, false, false), Expired::LookAgain);
        assert_eq!(judge(Overdue::Queue, &stopped(1), false, false), Expired::LookAgain);
        assert!(matches!(judge(Overdue::Whole, &stopped(1), false, false), Expired::End(_)));
        assert!(matches!(judge(Overdue::Queue, &stopped(0), false, false), Expired::End(_)));
        let done = Stopped { is_done: true, ..stopped(0) };
        assert_eq!(judge(Overdue::Whole, &done, false, false), Expired::Read);
    }

    #[test]
    fn a_store_that_has_forgotten_a_started_write_is_asked_again_one_lease_later() {
        let mark = mark(&job(), Overdue::Queue, true);
        assert_eq!(
            judge_expired(Overdue::Queue, &mark, &stopped(0), true, false),
            Expired::WaitOneTtl
        );
        assert!(matches!(
            judge_expired(Overdue::Queue, &mark, &stopped(0), true, true),
            Expired::End(_)
        ));
    }
}
