//! What to do with a delivery (DESIGN 4.2 steps 1, 4, 5 and 9).

use toolfleet_proto::code::Code;
use toolfleet_proto::end::{self, End};
use toolfleet_proto::lease::Acquired;
use toolfleet_proto::wire::Job;

/// How long a job waits that this worker cannot run, before the next worker looks at it.
pub const UNKNOWN_DELAY_MS: u64 = 5_000;
/// How long a job waits whose message this build cannot read.
pub const UNREADABLE_DELAY_MS: u64 = 30_000;
/// How long a job waits while the lease store is silent.
pub const SILENT_DELAY_MS: u64 = 2_000;

/// What is decided before anything is acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Triage {
    /// Go on to the claim: to run it, or to end it past its deadline.
    Claim,
    /// This worker has another version of the tool, or none.
    HandBack {
        /// Delay before the next delivery.
        delay_ms: u64,
    },
}

/// Schema and features were read already; here the descriptor's hash and the deadline.
pub fn triage(job: &Job, has_tool: bool, now_ms: i64) -> Triage {
    if has_tool || is_past(job, now_ms) {
        Triage::Claim
    } else {
        Triage::HandBack { delay_ms: UNKNOWN_DELAY_MS }
    }
}

/// Whether the call's whole time is over, or its time to be started for the first time.
fn is_past(job: &Job, now_ms: i64) -> bool {
    job.clocks.as_ref().is_none_or(|clocks| now_ms >= clocks.queue_deadline_ms)
}

/// What the answers of the store and of the results stream come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A result is stored: acknowledge, run nothing.
    AcknowledgeOnly,
    /// Read the result again: the store says that one was stored a moment ago.
    ReadAgain,
    /// Another claim holds the lease.
    HandBack {
        /// Delay before the next delivery, without jitter.
        delay_ms: u64,
    },
    /// End it without a run.
    End(End),
    /// It took its workers down each time: end it, and lay it with the dead letters.
    DeadLetter(End),
    /// Run it.
    Run {
        /// Fencing token.
        fence: u64,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// The span of the attempt before; empty for the first.
        previous_span: String,
        /// When the call was claimed for the first time.
        first_ms: i64,
    },
}

/// Judges a claim. The order is that of DESIGN 4.2 step 4. `is_redelivered`: the broker has delivered it
/// before.
pub fn judge(
    job: &Job,
    acquired: &Acquired,
    is_result_stored: bool,
    has_tool: bool,
    is_redelivered: bool,
) -> Verdict {
    if is_result_stored {
        return Verdict::AcknowledgeOnly;
    }
    match acquired {
        Acquired::Done => Verdict::ReadAgain,
        Acquired::Held { remaining_ms } => Verdict::HandBack { delay_ms: *remaining_ms },
        Acquired::Marked { mark, claims, .. } => Verdict::End(End {
            code: mark.code,
            text: mark.reason.clone(),
            claims: *claims,
            is_unheld_for_sure: true,
            requested_at_ms: mark.at_ms,
        }),
        Acquired::Granted { fence, claims, previous_span, now_ms, first_ms } => {
            let ending = granted(job, has_tool, is_redelivered, *now_ms, *claims, *first_ms);
            ending.unwrap_or_else(|| Verdict::Run {
                fence: *fence,
                attempt: *claims,
                previous_span: previous_span.clone(),
                first_ms: *first_ms,
            })
        }
    }
}

/// What ends a call although its lease is ours.
fn granted(
    job: &Job,
    has_tool: bool,
    is_redelivered: bool,
    now_ms: i64,
    claims: u32,
    first_ms: i64,
) -> Option<Verdict> {
    let clocks = job.clocks.unwrap_or_default();
    // This claim has not started anything: only the ones before it may have.
    let earlier = claims.saturating_sub(1);
    // A store that lost its data counts no claim of a call that ran: to say of one that was delivered
    // before that it never started could be wrong. A write has its start record.
    let is_known_unstarted = earlier == 0 && (!is_redelivered || end::needs_start_record(job));
    let end = |code, text| End {
        code,
        text,
        claims: earlier,
        is_unheld_for_sure: earlier > 0 || is_known_unstarted,
        requested_at_ms: 0,
    };
    let is_wait_over = now_ms >= clocks.queue_deadline_ms && !end::is_wait_cut(&clocks);
    if is_known_unstarted && is_wait_over {
        let text = end::queue_timed_out(clocks.queue_timeout_ms);
        return Some(Verdict::End(end(Code::QueueTimedOut, text)));
    }
    let (left_ms, text) = whole_clock(job, now_ms, first_ms);
    if left_ms == 0 {
        return Some(Verdict::End(end(Code::TimedOut, text)));
    }
    if earlier >= job.max_attempts.max(1) && !end::needs_start_record(job) {
        return Some(Verdict::DeadLetter(end(Code::ToolCrashed, end::attempts_used_up(job))));
    }
    // Without the tool only an end was possible; the claim is given back.
    (!has_tool).then_some(Verdict::HandBack { delay_ms: UNKNOWN_DELAY_MS })
}

/// What a foreign start record means for a holder of the lease (DESIGN 4.2 step 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignRecord {
    /// The lease is not ours any more: stop without a verdict.
    Stop,
    /// The store counts no earlier claim though a record exists: it has forgotten, and the record's
    /// holder may live. Give back, wait one TTL, claim again.
    WaitOneTtl,
    /// The record's attempt is lost.
    OutcomeUnknown,
}

/// Judges a start record that another attempt took. `is_lease_ours` is what RENEW says now.
pub fn judge_foreign_record(is_lease_ours: bool, attempt: u32, has_waited: bool) -> ForeignRecord {
    if !is_lease_ours {
        ForeignRecord::Stop
    } else if attempt <= 1 && !has_waited {
        ForeignRecord::WaitOneTtl
    } else {
        ForeignRecord::OutcomeUnknown
    }
}

/// A clock of a call: what is left of it, and the text of a call that runs out of it.
type Running = (u64, String);

/// The shorter of the clocks that all attempts share: their own time, from the first claim, and the
/// call's deadline. Attempts that together could not use up their own time leave it to the deadline:
/// only the search for a lost worker could, and that must not cost a short tool its next attempt.
fn whole_clock(job: &Job, now_ms: i64, first_ms: i64) -> Running {
    let clocks = job.clocks.unwrap_or_default();
    let left = |at_ms: i64| u64::try_from(at_ms.saturating_sub(now_ms)).unwrap_or(0);
    let deadline = (left(clocks.deadline_ms), end::whole_time_over(&clocks));
    let attempts_ms = clocks.timeout_ms.saturating_mul(u64::from(job.max_attempts.max(1)));
    if clocks.total_timeout_ms >= attempts_ms {
        return deadline;
    }
    let total = i64::try_from(clocks.total_timeout_ms).unwrap_or(i64::MAX / 4);
    let together = (left(first_ms.saturating_add(total)), end::timed_out(clocks.total_timeout_ms));
    if deadline.0 < together.0 { deadline } else { together }
}

/// Time that an attempt may take, by its shortest clock, and the text where it runs out.
pub fn attempt_clock(job: &Job, now_ms: i64, first_ms: i64) -> Running {
    let clocks = job.clocks.unwrap_or_default();
    let own = (clocks.timeout_ms, end::timed_out(clocks.timeout_ms));
    let whole = whole_clock(job, now_ms, first_ms);
    if whole.0 < own.0 { whole } else { own }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolfleet_proto::lease::Mark;
    use toolfleet_proto::wire::{Clocks, Effect};

    fn job() -> Job {
        Job {
            effect: Effect::Read.into(),
            max_attempts: 3,
            clocks: Some(Clocks {
                queue_deadline_ms: 60_000,
                deadline_ms: 150_000,
                timeout_ms: 30_000,
                total_timeout_ms: 90_000,
                queue_timeout_ms: 60_000,
                ..Clocks::default()
            }),
            ..Job::default()
        }
    }

    /// One whose attempts could take longer together than all of them may.
    fn hurried() -> Job {
        let clocks = Clocks { total_timeout_ms: 80_000, ..job().clocks.unwrap() };
        Job { clocks: Some(clocks), ..job() }
    }

    fn granted_at(now_ms: i64, claims: u32) -> Acquired {
        Acquired::Granted {
            fence: 9,
            claims,
            previous_span: "s".into(),
            now_ms,
            first_ms: 60_000.min(now_ms),
        }
    }

    fn code(verdict: &Verdict) -> Option<Code> {
        match verdict {
            Verdict::End(end) | Verdict::DeadLetter(end) => Some(end.code),
            _ => None,
        }
    }

    #[test]
    fn an_unknown_tool_is_handed_back_until_its_time_is_over() {
        assert_eq!(triage(&job(), true, 0), Triage::Claim);
        assert_eq!(triage(&job(), false, 0), Triage::HandBack { delay_ms: UNKNOWN_DELAY_MS });
        assert_eq!(triage(&job(), false, 60_000), Triage::Claim);
        assert_eq!(triage(&Job::default(), false, 0), Triage::Claim);
    }

    #[test]
    fn a_stored_result_comes_first_and_a_holder_before_a_mark() {
        let mark = Mark { code: Code::Cancelled, reason: "no".into(), at_ms: 0 };
        let marked = Acquired::Marked { mark, claims: 0, now_ms: 0 };
        for acquired in
            [granted_at(0, 1), Acquired::Done, Acquired::Held { remaining_ms: 1 }, marked.clone()]
        {
            assert_eq!(judge(&job(), &acquired, true, true, false), Verdict::AcknowledgeOnly);
        }
        assert_eq!(judge(&job(), &Acquired::Done, false, true, false), Verdict::ReadAgain);
        let held = Acquired::Held { remaining_ms: 700 };
        assert_eq!(judge(&job(), &held, false, true, false), Verdict::HandBack { delay_ms: 700 });
        assert_eq!(code(&judge(&job(), &marked, false, true, false)), Some(Code::Cancelled));
    }

    #[test]
    fn a_first_claim_past_the_queue_timeout_waited_in_vain_a_later_one_did_not() {
        assert_eq!(
            code(&judge(&job(), &granted_at(60_000, 1), false, true, false)),
            Some(Code::QueueTimedOut)
        );
        assert!(matches!(
            judge(&job(), &granted_at(60_000, 2), false, true, false),
            Verdict::Run { attempt: 2, .. }
        ));
        assert_eq!(
            code(&judge(&job(), &granted_at(150_000, 2), false, true, false)),
            Some(Code::TimedOut)
        );
    }

    #[test]
    fn one_that_was_delivered_before_is_not_said_to_have_waited_in_vain() {
        let late = granted_at(60_000, 1);
        assert!(matches!(judge(&job(), &late, false, true, true), Verdict::Run { attempt: 1, .. }));
        let over = granted_at(150_000, 1);
        match judge(&job(), &over, false, true, true) {
            Verdict::End(end) => assert!(end.code == Code::TimedOut && !end.is_unheld_for_sure),
            other => panic!("{other:?}"),
        }
        // Of a write its start record tells.
        let write = Job { effect: Effect::Write.into(), ..job() };
        assert_eq!(code(&judge(&write, &late, false, true, true)), Some(Code::QueueTimedOut));
    }

    #[test]
    fn attempts_are_counted_by_claims_that_were_not_given_back() {
        assert!(matches!(
            judge(&job(), &granted_at(0, 3), false, true, false),
            Verdict::Run { .. }
        ));
        assert!(matches!(
            judge(&job(), &granted_at(0, 4), false, true, false),
            Verdict::DeadLetter(_)
        ));
        // A write is judged by its start record.
        let write = Job { effect: Effect::Write.into(), ..job() };
        assert!(matches!(
            judge(&write, &granted_at(0, 4), false, true, false),
            Verdict::Run { .. }
        ));
    }

    #[test]
    fn a_worker_without_the_tool_never_runs_it() {
        let verdict = judge(&job(), &granted_at(0, 1), false, false, false);
        assert_eq!(verdict, Verdict::HandBack { delay_ms: UNKNOWN_DELAY_MS });
        assert_eq!(
            code(&judge(&job(), &granted_at(60_000, 1), false, false, false)),
            Some(Code::QueueTimedOut)
        );
    }

    #[test]
    fn a_foreign_record_is_judged_only_under_a_lease_that_is_ours() {
        assert_eq!(judge_foreign_record(false, 2, false), ForeignRecord::Stop);
        assert_eq!(judge_foreign_record(true, 1, false), ForeignRecord::WaitOneTtl);
        assert_eq!(judge_foreign_record(true, 1, true), ForeignRecord::OutcomeUnknown);
        assert_eq!(judge_foreign_record(true, 2, false), ForeignRecord::OutcomeUnknown);
    }

    #[test]
    fn the_shorter_clock_names_itself() {
        let clock = |now_ms, first_ms| attempt_clock(&hurried(), now_ms, first_ms);
        assert_eq!(clock(0, 0), (30_000, "timed out after 30 s".to_owned()));
        // All attempts together, from the first claim.
        assert_eq!(clock(70_000, 0), (10_000, "timed out after 80 s".to_owned()));
        assert_eq!(clock(70_000, 59_000).0, 30_000);
        assert_eq!(clock(85_000, 0).0, 0);
        // Those that cannot use it up have only the deadline.
        assert_eq!(attempt_clock(&job(), 85_000, 0).0, 30_000);
        assert_eq!(attempt_clock(&job(), 140_000, 0), (10_000, "timed out after 90 s".to_owned()));
        // The deadline of the caller.
        let clocks =
            Clocks { deadline_ms: 20_000, queue_deadline_ms: 20_000, ..job().clocks.unwrap() };
        let bound = Job { clocks: Some(clocks), ..job() };
        let (left_ms, text) = attempt_clock(&bound, 15_000, 0);
        assert_eq!(left_ms, 5_000);
        assert!(text.starts_with("timed out: the deadline"), "{text}");
    }

    #[test]
    fn all_attempts_together_have_their_own_time() {
        let again = Acquired::Granted {
            fence: 9,
            claims: 2,
            previous_span: String::new(),
            now_ms: 100_000,
            first_ms: 10_000,
        };
        match judge(&hurried(), &again, false, true, false) {
            Verdict::End(end) => assert_eq!(end.text, "timed out after 80 s"),
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            judge(&job(), &again, false, true, false),
            Verdict::Run { attempt: 2, .. }
        ));
    }
}
