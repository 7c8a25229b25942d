//! Dead letters as callers read them, and the name of a call that is requeued from one (CONTRACT 5.8).

use serde_json::{Value, json};
use toolfleet_proto::end::instant;
use toolfleet_proto::name::CallName;
use toolfleet_proto::wire::{AttemptRecord, DeadLetter, Effect, Job};

/// Most bytes of arguments that are shown.
const ARGUMENTS_BYTES_MAX: usize = 4_096;

/// The id of the call that is requeued from a dead letter: `c` becomes `c~2`, and where that is laid dead
/// too, `c~3`. Always the same for one letter, so that a letter is requeued once however often it is asked.
pub fn next_call_id(job: &Job) -> String {
    let again = |id: &str, n: u32| format!("{id}~{n}");
    if job.requeued_from.is_empty() {
        return again(&job.call_id, 2);
    }
    match job.call_id.rsplit_once('~').and_then(|(id, n)| Some((id, n.parse::<u32>().ok()?))) {
        Some((id, n)) => again(id, n.saturating_add(1)),
        None => again(&job.call_id, 2),
    }
}

/// Whether running it again may do a second time what its first run did.
pub fn is_write(job: &Job) -> bool {
    !matches!(job.effect(), Effect::Read | Effect::Idempotent)
}

/// The arguments to hand in again: as the caller sent them.
pub fn arguments(job: &Job) -> String {
    let sent = if job.arguments_sent.is_empty() { &job.arguments } else { &job.arguments_sent };
    String::from_utf8_lossy(sent).into_owned()
}

/// The entry of a list. `requeued`: the call that was requeued from it, and its state.
pub fn entry(name: &CallName, letter: &DeadLetter, requeued: Option<(&str, &str)>) -> Value {
    json!({
        "executionId": name.execution,
        "call": name.call,
        "idempotencyKey": name.idempotency_key(),
        "toolName": letter.tool,
        "pool": letter.pool,
        "code": letter.code,
        "reason": letter.reason,
        "at": instant(letter.at_ms),
        "attempts": letter.history.len(),
        "requeuedAs": requeued.map(|(call, state)| json!({"call": call, "state": state})),
    })
}

/// Everything that is known of a dead letter. A job that a newer build wrote is left out.
pub fn whole(
    name: &CallName,
    letter: &DeadLetter,
    job: Option<&Job>,
    requeued: Option<(&str, &str)>,
) -> Value {
    let mut whole = entry(name, letter, requeued);
    whole["history"] = letter.history.iter().map(attempt).collect();
    if let Some(job) = job {
        let arguments = arguments(job);
        let end = arguments.floor_char_boundary(ARGUMENTS_BYTES_MAX);
        whole["job"] = json!({
            "effect": effect_word(job),
            "submittedAt": job.clocks.map(|clocks| instant(clocks.submitted_at_ms)),
            "descriptorHash": job.descriptor_hash,
            "argumentsHash": toolfleet_proto::descriptor::hex(&job.arguments_hash),
            "arguments": arguments.get(..end),
            "isArgumentsCut": end < arguments.len(),
            "requeuedFrom": Some(&job.requeued_from).filter(|from| !from.is_empty()),
        });
    }
    whole
}

fn effect_word(job: &Job) -> &'static str {
    match job.effect() {
        Effect::Read => "read",
        Effect::Idempotent => "idempotent",
        Effect::Write | Effect::Unspecified => "write",
    }
}

fn attempt(attempt: &AttemptRecord) -> Value {
    json!({
        "attempt": attempt.number,
        "attemptId": attempt.attempt_id,
        "worker": attempt.worker,
        "fence": attempt.fence,
        "claimedAt": instant(attempt.started_at_ms),
        "lastWords": attempt.last_words,
        "traceId": super::answer::trace_id(&attempt.traceparent),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_is_requeued_under_one_name_and_its_own_letter_under_the_next() {
        let job = |call_id: &str, from: &str| Job {
            call_id: call_id.into(),
            requeued_from: from.into(),
            ..Job::default()
        };
        assert_eq!(next_call_id(&job("c", "")), "c~2");
        assert_eq!(next_call_id(&job("c~2", "main:t:c")), "c~3");
        // A caller may have called it so.
        assert_eq!(next_call_id(&job("c~2", "")), "c~2~2");
    }

    #[test]
    fn what_was_sent_is_handed_in_again_and_an_undeclared_effect_is_a_write() {
        let mut job = Job { arguments: "{\"a\":1,\"b\":2}".into(), ..Job::default() };
        assert_eq!(arguments(&job), "{\"a\":1,\"b\":2}");
        job.arguments_sent = "{\"a\":1}".into();
        assert_eq!(arguments(&job), "{\"a\":1}");
        assert!(is_write(&job));
        job.set_effect(Effect::Idempotent);
        assert!(!is_write(&job));
    }

    #[test]
    fn the_history_tells_each_attempt() {
        let history = vec![AttemptRecord {
            number: 1,
            worker: "w".into(),
            last_words: "oom".into(),
            traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
            ..AttemptRecord::default()
        }];
        let letter = DeadLetter { history, tool: "t".into(), ..DeadLetter::default() };
        let name = CallName::direct("default", "e", "main", "c");
        let job = Job { arguments: "x".repeat(5_000).into(), ..Job::default() };
        let value = whole(&name, &letter, Some(&job), Some(("main:direct:c~2", "queued")));
        assert_eq!(value["history"][0]["lastWords"], "oom");
        assert_eq!(value["history"][0]["traceId"], "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(
            (&value["attempts"], &value["job"]["isArgumentsCut"]),
            (&json!(1), &json!(true))
        );
        assert_eq!(value["requeuedAs"]["call"], "main:direct:c~2");
    }
}
