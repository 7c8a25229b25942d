//! How a call ends that its tool did not end: what is stored, and what may honestly be said of it
//! (DESIGN 4.1 step 5, 4.2 steps 4 and 5, 4.3; CONTRACT 5.2, 5.4, 5.6).

use crate::code::{self, Code};
use crate::effect::Effect;
use crate::output::{self, Rendered};
use crate::wire::{
    self, AttemptRecord, CallResult, CancelRecord, Clocks, Job, MAY_HAVE_STARTED, NEVER_STARTED,
    OutputForm, SCHEMA, StartKind, StartRecord,
};
use crate::{descriptor::ResultForm, unit};

/// What the warning adds to a text where a write had started.
const MAY_HAVE_TAKEN_EFFECT: &str = "; it may have taken effect, check before calling it again";

/// A wish to end a call without a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The code, if the call never started.
    pub code: Code,
    /// What the model reads then.
    pub text: String,
    /// Claims that were not given back, so far.
    pub claims: u32,
    /// Whether the store that counts claims answered, and nobody held the lease.
    pub is_unheld_for_sure: bool,
    /// When a cancel was asked for; 0 for other ends.
    pub requested_at_ms: i64,
}

/// What stands at a write's start record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The tombstone that was just stored for this end.
    Ours,
    /// Somebody's tombstone: the call never starts, for that reason.
    Tombstone {
        /// The code it names.
        code: Code,
        /// The text it names.
        reason: String,
    },
    /// An attempt took it: the tool started, or was about to.
    Started {
        /// When, on the fleet's clock.
        at_ms: i64,
    },
}

/// What to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The code.
    pub code: Code,
    /// What the model reads.
    pub text: String,
    /// `never_started` or `may_have_started`.
    pub start_state: &'static str,
}

/// Whether a job takes a start record before its tool starts.
pub fn needs_start_record(job: &Job) -> bool {
    Effect::from(job.effect()).needs_start_record(job.rerun)
}

/// Decides what is stored for an end. `record` is what was found at the start record of a write that
/// takes one, `None` for other calls.
pub fn decide(job: &Job, end: &End, record: Option<&Record>) -> Verdict {
    let as_wished = |start_state| Verdict { code: end.code, text: end.text.clone(), start_state };
    match record {
        Some(Record::Ours) => as_wished(NEVER_STARTED),
        Some(Record::Tombstone { code, reason }) => {
            Verdict { code: *code, text: reason.clone(), start_state: NEVER_STARTED }
        }
        Some(Record::Started { .. }) if end.code == Code::Cancelled => Verdict {
            code: Code::Cancelled,
            text: may_have_taken_effect(&end.text),
            start_state: MAY_HAVE_STARTED,
        },
        Some(Record::Started { at_ms }) => Verdict {
            code: Code::OutcomeUnknown,
            text: outcome_unknown(&job.tool, *at_ms),
            start_state: MAY_HAVE_STARTED,
        },
        None if end.claims == 0 && end.is_unheld_for_sure => as_wished(NEVER_STARTED),
        None if end.code == Code::QueueTimedOut || end.code == Code::NoWorker => Verdict {
            // It did start once: "waiting for a worker" would not be true.
            code: Code::TimedOut,
            text: whole_time_over(&job.clocks.unwrap_or_default()),
            start_state: MAY_HAVE_STARTED,
        },
        None => as_wished(MAY_HAVE_STARTED),
    }
}

/// Reads a start record as far as an end depends on it.
pub fn read_record(record: &StartRecord) -> Record {
    if record.kind() == StartKind::Tombstone {
        Record::Tombstone {
            code: Code::parse(&record.code).unwrap_or(Code::Cancelled),
            reason: record.reason.clone(),
        }
    } else {
        Record::Started { at_ms: record.at_ms }
    }
}

/// The tombstone that makes an end of a write provable.
pub fn tombstone(job: &Job, end: &End, now_ms: i64) -> StartRecord {
    StartRecord {
        schema: SCHEMA,
        name: job.name.clone(),
        kind: StartKind::Tombstone.into(),
        tool: job.tool.clone(),
        attempt: None,
        code: end.code.as_str().to_owned(),
        reason: end.text.clone(),
        at_ms: now_ms,
        arguments_hash: job.arguments_hash.clone(),
    }
}

/// The start record that lets an attempt start its write.
pub fn start_record(job: &Job, attempt: &AttemptRecord, now_ms: i64) -> StartRecord {
    StartRecord {
        schema: SCHEMA,
        name: job.name.clone(),
        kind: StartKind::Started.into(),
        tool: job.tool.clone(),
        attempt: Some(attempt.clone()),
        code: String::new(),
        reason: String::new(),
        at_ms: now_ms,
        arguments_hash: job.arguments_hash.clone(),
    }
}

/// `timed out after 10 s`.
pub fn timed_out(ms: u64) -> String {
    format!("timed out after {}", unit::describe_ms(ms))
}

/// The text for a call whose whole time is over: what cut it is the caller's or the execution's
/// deadline, or all attempts together took too long.
pub fn whole_time_over(clocks: &Clocks) -> String {
    if is_cut(clocks) {
        format!("timed out: the deadline {} is over", instant(clocks.deadline_ms))
    } else {
        timed_out(clocks.total_timeout_ms)
    }
}

/// Whether a deadline of the caller's or the execution's makes the clocks shorter than the tool's own.
fn is_cut(clocks: &Clocks) -> bool {
    let span = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX / 4);
    let own = span(clocks.queue_timeout_ms).saturating_add(span(clocks.total_timeout_ms));
    clocks.deadline_ms < clocks.submitted_at_ms.saturating_add(own)
}

/// Whether the caller's or the execution's deadline comes before the end of the wait for a worker.
pub fn is_wait_cut(clocks: &Clocks) -> bool {
    is_cut(clocks) && clocks.queue_deadline_ms == clocks.deadline_ms
}

/// `timed out after 60 s waiting for a worker`.
pub fn queue_timed_out(ms: u64) -> String {
    format!("{} waiting for a worker", timed_out(ms))
}

/// The text for a call whose tool no live worker has.
pub fn no_worker(job: &Job) -> String {
    format!(
        "no live worker of the pool {} has this version of {}: waited {}",
        job.pool,
        job.tool,
        unit::describe_ms(queue_ms(job))
    )
}

/// The text of an end of a write that had started.
pub fn may_have_taken_effect(text: &str) -> String {
    format!("{text}{MAY_HAVE_TAKEN_EFFECT}")
}

/// The text for a write whose worker was lost (CONTRACT 5.6).
pub fn outcome_unknown(tool: &str, started_at_ms: i64) -> String {
    format!(
        "outcome unknown: {tool} started at {} and its worker was lost; it may have taken effect. \
         Do not call it again with the same input before that is checked.",
        instant(started_at_ms)
    )
}

/// The text for a call that lost its worker each time (CONTRACT 5.8).
pub fn attempts_used_up(job: &Job) -> String {
    format!("{} lost its worker in each of {} attempts", job.tool, job.max_attempts)
}

/// An instant as RFC 3339, whole seconds or milliseconds.
pub fn instant(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |t| t.to_string())
}

fn queue_ms(job: &Job) -> u64 {
    job.clocks.as_ref().map_or(0, |clocks| clocks.queue_timeout_ms)
}

/// The result of a call, with everything that its job and the rendered text say.
pub fn result(job: &Job, rendered: &Rendered, now_ms: i64) -> CallResult {
    let submitted_at_ms = job.clocks.as_ref().map_or(0, |clocks| clocks.submitted_at_ms);
    CallResult {
        schema: SCHEMA,
        name: job.name.clone(),
        tool: job.tool.clone(),
        code: rendered.code.map_or(code::OK, Code::as_str).to_owned(),
        parts: vec![wire::text_part(rendered.text.clone())],
        structured: rendered.structured.clone().unwrap_or_default().into(),
        form: match rendered.form {
            ResultForm::Text => OutputForm::Text,
            ResultForm::Json => OutputForm::Json,
            ResultForm::Envelope => OutputForm::Envelope,
        }
        .into(),
        whole_bytes: rendered.whole_bytes,
        kept_bytes: rendered.kept_bytes,
        is_truncated: rendered.is_truncated,
        submitted_at_ms,
        queued_ms: (now_ms - submitted_at_ms).max(0),
        stored_at_ms: now_ms,
        arguments_hash: job.arguments_hash.clone(),
        descriptor_hash: job.descriptor_hash.clone(),
        trace: job.trace.clone(),
        turn: job.turn.clone(),
        call_id: job.call_id.clone(),
        idempotency_key: job.idempotency_key.clone(),
        requeued_from: job.requeued_from.clone(),
        ..CallResult::default()
    }
}

/// The result of a verdict.
pub fn result_of_verdict(job: &Job, verdict: &Verdict, end: &End, now_ms: i64) -> CallResult {
    let rendered = output::render_error(verdict.code, &verdict.text, job.result_bytes_max);
    let is_cancel = verdict.code == Code::Cancelled && end.requested_at_ms != 0;
    CallResult {
        attempts: end.claims,
        cancel: is_cancel.then(|| CancelRecord {
            requested_at_ms: end.requested_at_ms,
            ..CancelRecord::default()
        }),
        start_state: verdict.start_state.to_owned(),
        ..result(job, &rendered, now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::CallName;

    fn job() -> Job {
        Job {
            tool: "refund".into(),
            pool: "web".into(),
            name: Some(CallName::default()),
            clocks: Some(Clocks {
                queue_timeout_ms: 60_000,
                total_timeout_ms: 90_000,
                deadline_ms: 150_000,
                ..Clocks::default()
            }),
            max_attempts: 3,
            result_bytes_max: 1_000,
            ..Job::default()
        }
    }

    fn waited(claims: u32) -> End {
        End {
            code: Code::QueueTimedOut,
            text: queue_timed_out(60_000),
            claims,
            is_unheld_for_sure: true,
            requested_at_ms: 0,
        }
    }

    #[test]
    fn texts_are_those_of_the_contract() {
        assert_eq!(timed_out(10_000), "timed out after 10 s");
        assert_eq!(queue_timed_out(60_000), "timed out after 60 s waiting for a worker");
        assert_eq!(
            outcome_unknown("refund", 0),
            "outcome unknown: refund started at 1970-01-01T00:00:00Z and its worker was lost; it may have taken effect. Do not call it again with the same input before that is checked."
        );
        assert_eq!(
            may_have_taken_effect("timed out after 10 s"),
            "timed out after 10 s; it may have taken effect, check before calling it again"
        );
    }

    #[test]
    fn a_deadline_of_the_caller_is_told_apart_from_the_tools_own_clocks() {
        let own = Clocks {
            submitted_at_ms: 1_000,
            queue_deadline_ms: 61_000,
            deadline_ms: 151_000,
            queue_timeout_ms: 60_000,
            total_timeout_ms: 90_000,
            ..Clocks::default()
        };
        assert_eq!(whole_time_over(&own), "timed out after 90 s");
        assert!(!is_wait_cut(&own));
        let later = Clocks { deadline_ms: 100_000, ..own };
        assert_eq!(whole_time_over(&later), "timed out: the deadline 1970-01-01T00:01:40Z is over");
        assert!(!is_wait_cut(&later));
        assert!(is_wait_cut(&Clocks { queue_deadline_ms: 5_000, deadline_ms: 5_000, ..own }));
    }

    #[test]
    fn a_write_is_said_to_have_never_started_only_with_its_record_in_hand() {
        let verdict = decide(&job(), &waited(0), Some(&Record::Ours));
        assert_eq!((verdict.code, verdict.start_state), (Code::QueueTimedOut, NEVER_STARTED));
        let verdict = decide(&job(), &waited(0), Some(&Record::Started { at_ms: 0 }));
        assert_eq!((verdict.code, verdict.start_state), (Code::OutcomeUnknown, MAY_HAVE_STARTED));
    }

    #[test]
    fn a_cancel_of_a_started_write_stays_a_cancel_and_warns() {
        let cancel = End {
            code: Code::Cancelled,
            text: "stop it".into(),
            claims: 1,
            is_unheld_for_sure: false,
            requested_at_ms: 0,
        };
        let verdict = decide(&job(), &cancel, Some(&Record::Started { at_ms: 0 }));
        assert_eq!(verdict.code, Code::Cancelled);
        assert!(verdict.text.starts_with("stop it; it may have taken effect"), "{}", verdict.text);
    }

    #[test]
    fn somebody_elses_tombstone_decides() {
        let found = Record::Tombstone { code: Code::Cancelled, reason: "no longer needed".into() };
        let verdict = decide(&job(), &waited(0), Some(&found));
        assert_eq!((verdict.code, verdict.text.as_str()), (Code::Cancelled, "no longer needed"));
    }

    #[test]
    fn a_read_that_was_claimed_before_did_not_wait_in_vain() {
        assert_eq!(decide(&job(), &waited(0), None).code, Code::QueueTimedOut);
        let verdict = decide(&job(), &waited(1), None);
        assert_eq!((verdict.code, verdict.text.as_str()), (Code::TimedOut, "timed out after 90 s"));
        let unsure = End { is_unheld_for_sure: false, code: Code::Cancelled, ..waited(0) };
        assert_eq!(decide(&job(), &unsure, None).start_state, MAY_HAVE_STARTED);
    }

    #[test]
    fn a_result_carries_what_the_job_says() {
        let result = result_of_verdict(&job(), &decide(&job(), &waited(0), None), &waited(0), 5);
        assert_eq!(result.text(), "timed out after 60 s waiting for a worker");
        assert_eq!((result.code.as_str(), result.is_error()), ("queue_timed_out", true));
        assert_eq!(result.stored_at_ms, 5);
    }
}
