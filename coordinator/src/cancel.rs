//! Cancelling calls and executions (DESIGN 4.3, CONTRACT 5.4). The mark is durable before the signal
//! goes out, so that a call that has not started never starts; the answer says what may be said.

use crate::core::execution::{CallRecord, Execution, State};
use crate::core::wishes::Wishes;
use crate::service::Coordinator;
use crate::turn::{ACTOR, TENANT};
use futures::StreamExt as _;
use prost::Message as _;
use std::time::{Duration, Instant};
use toolfleet_io::broker::Error;
use toolfleet_io::lease_store::StopKind;
use toolfleet_io::telemetry::{self, spans};
use toolfleet_io::{ending, fail_point};
use toolfleet_proto::code::Code;
use toolfleet_proto::end::End;
use toolfleet_proto::lease::{Holder, Mark};
use toolfleet_proto::name::CallName;
use toolfleet_proto::wire::{
    self, CallResult, CancelSignal, Effect, Job, MAY_HAVE_STARTED, NEVER_STARTED, SCHEMA,
};
use tracing::Instrument as _;

/// Calls that are cancelled at the same time.
const AT_ONCE: usize = 16;
/// Rounds over the jobs of an execution: calls that were on their way come with the next one.
const ROUNDS_MAX: usize = 20;
/// What the model reads where no reason was given.
pub const REASON_DEFAULT: &str = "cancelled by the caller";

/// What a cancel of one call came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It never starts.
    NeverStarted,
    /// It may have started before it was stopped.
    MayHaveStarted,
    /// It had its result already.
    AlreadyFinished,
    /// There is no such call.
    Unknown,
}

impl Answer {
    /// The word in answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Answer::NeverStarted => NEVER_STARTED,
            Answer::MayHaveStarted => MAY_HAVE_STARTED,
            Answer::AlreadyFinished => "already_finished",
            Answer::Unknown => "unknown",
        }
    }

    /// What the stored result means for the one who cancelled.
    fn of(result: &CallResult) -> Answer {
        if result.code != Code::Cancelled.as_str() {
            Answer::AlreadyFinished
        } else if result.start_state == NEVER_STARTED {
            Answer::NeverStarted
        } else {
            Answer::MayHaveStarted
        }
    }
}

/// What a cancel of an execution came to.
pub enum ExecutionAnswer {
    /// It is cancelled; each of its calls with its own answer.
    Cancelled(Vec<(String, Answer)>),
    /// It takes no calls any more for another reason.
    Ended(State),
    /// There is no such execution.
    Unknown,
}

impl Coordinator {
    /// Cancels one call, wherever it is.
    ///
    /// # Errors
    /// Where the broker is silent: then nothing is known, and it can be asked again.
    pub async fn cancel_call(&self, name: &CallName, reason: &str) -> Result<Answer, Error> {
        let since = Instant::now();
        let answer = self.find_and_cancel(name, reason).await?;
        self.measures.cancelled(answer.as_str(), since.elapsed());
        Ok(answer)
    }

    async fn find_and_cancel(&self, name: &CallName, reason: &str) -> Result<Answer, Error> {
        // A call that was cancelled before has ended: the second cancel finds it finished.
        if ending::read_result(&self.broker, name).await?.is_some() {
            return Ok(Answer::AlreadyFinished);
        }
        let job = match self.find_job(name).await? {
            Some(queued) => queued.job,
            None => {
                // It may have ended between the reads, or not be published yet.
                if ending::read_result(&self.broker, name).await?.is_some() {
                    return Ok(Answer::AlreadyFinished);
                }
                let record = self.executions.get(&name.tenant, &name.execution).await?;
                match record.as_ref().and_then(|record| record.call(&name.call)) {
                    Some((turn, call)) => job_of_record(name, turn, call),
                    None => return Ok(Answer::Unknown),
                }
            }
        };
        let span = spans::cancel(crate::submit::span_call(&job));
        if let Some(trace) = &job.trace {
            telemetry::set_parent(&span, &trace.traceparent, &trace.tracestate);
        }
        let answer = self.cancel_job(name, &job, reason).instrument(span.clone()).await?;
        spans::answered(&span, answer.as_str());
        Ok(answer)
    }

    async fn cancel_job(&self, name: &CallName, job: &Job, reason: &str) -> Result<Answer, Error> {
        let requested_at_ms = self.clock.now_ms();
        let mark =
            Mark { code: Code::Cancelled, reason: reason.to_owned(), at_ms: requested_at_ms };
        let mut waiter = self.deliver.wait(name).await?;
        fail_point::reach("cancel:before").await;
        let (claims, is_unheld_for_sure) =
            match self.store.stop(name, StopKind::Cancel, &mark).await {
                Ok(stopped) if stopped.holder.is_none() => (stopped.claims, true),
                Ok(stopped) => {
                    self.signal(name, stopped.holder.as_ref(), reason).await?;
                    (stopped.claims, false)
                }
                // The same without knowing.
                Err(error) => {
                    tracing::warn!(call = %name, %error, "cancelling without the lease store");
                    self.signal(name, None, reason).await?;
                    (0, false)
                }
            };
        fail_point::reach("mark:after").await;
        if !is_unheld_for_sure {
            let limits = &self.limits;
            let patience_ms = limits.cancel_grace_ms + limits.kill_grace_ms + 1_000;
            let patience = Duration::from_millis(patience_ms);
            if let Ok(result) = tokio::time::timeout(patience, waiter.announced()).await {
                return Ok(Answer::of(&result));
            }
            if let Some(result) = ending::read_result(&self.broker, name).await? {
                return Ok(Answer::of(&result));
            }
        }
        let wish = End {
            code: Code::Cancelled,
            text: reason.to_owned(),
            claims,
            is_unheld_for_sure,
            requested_at_ms,
        };
        let now_ms = self.clock.now_ms();
        let ended =
            ending::end(&self.broker, job, &wish, now_ms, self.limits.unnamed_retention_ms).await?;
        if ended.is_ours {
            let outcome = Code::parse(&ended.result.code).map_or("ok", Code::as_str);
            self.measures.finished(&job.pool, outcome);
        }
        let jobs = self.broker.prefix().jobs_stream();
        if let Err(error) = self.broker.purge(&jobs, &self.broker.prefix().job_anywhere(name)).await
        {
            tracing::debug!(call = %name, %error, "the job of a cancelled call is still queued");
        }
        Ok(Answer::of(&ended.result))
    }

    /// Tells the holder to stop; every worker where the holder is not known.
    async fn signal(
        &self,
        name: &CallName,
        holder: Option<&Holder>,
        reason: &str,
    ) -> Result<(), Error> {
        let signal = CancelSignal {
            schema: SCHEMA,
            name: Some(wire::CallName::from(name)),
            reason: reason.to_owned(),
            attempt_id: holder.map(|holder| holder.claim.clone()).unwrap_or_default(),
            requested_at_ms: self.clock.now_ms(),
        };
        let subject = match holder {
            Some(holder) => self.broker.prefix().cancel_worker(&holder.worker),
            None => self.broker.prefix().cancel_all(),
        };
        self.broker
            .client()
            .publish(subject, signal.encode_to_vec().into())
            .await
            .map_err(|error| Error::Silent(error.to_string()))
    }

    /// Cancels a whole execution: closed first, then every call that is queued, runs, or waits for a
    /// slot of its turn, until nothing is left.
    ///
    /// # Errors
    /// Where the broker is silent: the execution may be closed already, and it can be asked again.
    pub async fn cancel_execution(&self, id: &str, reason: &str) -> Result<ExecutionAnswer, Error> {
        let filter = self.broker.prefix().jobs_of_execution(TENANT, id);
        let has_jobs = !self.jobs_below(&filter).await?.is_empty();
        let now_ms = self.clock.now_ms();
        let closed = self
            .executions
            .change(TENANT, id, |record| match record {
                None if has_jobs => {
                    let fresh = Execution::new(id, ACTOR, &Wishes::default(), None, now_ms);
                    let closed = cancelled(fresh, reason, now_ms);
                    (Some(closed), Ok(true))
                }
                None => (None, Err(ExecutionAnswer::Unknown)),
                Some(record) if record.state == State::Cancelled => (None, Ok(false)),
                Some(record) if record.state == State::Finished => {
                    (None, Err(ExecutionAnswer::Ended(record.state)))
                }
                Some(record) => (Some(cancelled(record, reason, now_ms)), Ok(true)),
            })
            .await?;
        let is_ours = match closed {
            Ok(is_ours) => is_ours,
            Err(answer) => return Ok(answer),
        };
        let mut answers: Vec<(String, Answer)> = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let queued = self.jobs_below(&filter).await?;
            if queued.is_empty() {
                break;
            }
            self.cancel_each(queued, reason, &mut answers).await?;
        }
        // Calls that their turn has not published yet have neither job nor result.
        let record = self.executions.get(TENANT, id).await?;
        let rest: Vec<CallName> = record
            .iter()
            .flat_map(Execution::calls)
            .map(|(_, call)| call_name(id, &call.call))
            .filter(|name| answers.iter().all(|(known, _)| *known != name.call))
            .collect();
        self.cancel_each(rest, reason, &mut answers).await?;
        if is_ours {
            self.count_in_refused(id, now_ms, &mut answers).await?;
        }
        answers.sort_by(|one, two| one.0.cmp(&two.0));
        Ok(ExecutionAnswer::Cancelled(answers))
    }

    /// Calls that their own turn has ended because of this cancel, before it came to them: their
    /// results say what it did.
    async fn count_in_refused(
        &self,
        id: &str,
        closed_at_ms: i64,
        answers: &mut [(String, Answer)],
    ) -> Result<(), Error> {
        for (call, answer) in
            answers.iter_mut().filter(|(_, answer)| *answer == Answer::AlreadyFinished)
        {
            let result = ending::read_result(&self.broker, &call_name(id, call)).await?;
            if let Some(result) = result.filter(|result| result.stored_at_ms >= closed_at_ms) {
                *answer = Answer::of(&result);
            }
        }
        Ok(())
    }

    async fn cancel_each(
        &self,
        names: Vec<CallName>,
        reason: &str,
        answers: &mut Vec<(String, Answer)>,
    ) -> Result<(), Error> {
        let cancels = names.into_iter().map(|name| async move {
            let answer = self.cancel_call(&name, reason).await;
            (name.call, answer)
        });
        let mut cancels = futures::stream::iter(cancels).buffer_unordered(AT_ONCE);
        while let Some((call, answer)) = cancels.next().await {
            let answer = answer?;
            // The first answer is the one that tells what the cancel did.
            if answers.iter().all(|(known, _)| *known != call) {
                answers.push((call, answer));
            }
        }
        Ok(())
    }

    /// Calls whose jobs are in the queue, running ones among them.
    async fn jobs_below(&self, filter: &str) -> Result<Vec<CallName>, Error> {
        let subjects = self.broker.subjects(&self.broker.prefix().jobs_stream(), filter).await?;
        Ok(subjects
            .iter()
            .filter_map(|subject| self.broker.prefix().call_of_job(subject))
            .collect())
    }
}

fn cancelled(mut record: Execution, reason: &str, now_ms: i64) -> Execution {
    record.state = State::Cancelled;
    record.reason = Some(reason.to_owned());
    record.ended_at_ms = Some(now_ms);
    record
}

/// A call of an execution, named.
pub(crate) fn call_name(execution: &str, call: &str) -> CallName {
    CallName { tenant: TENANT.to_owned(), execution: execution.to_owned(), call: call.to_owned() }
}

/// As much of a job as an end without a run needs, for a call that was not published yet.
pub(crate) fn job_of_record(name: &CallName, turn: &str, call: &CallRecord) -> Job {
    let effect = match call.effect.as_str() {
        "read" => Effect::Read,
        "idempotent" => Effect::Idempotent,
        _ => Effect::Write,
    };
    Job {
        schema: SCHEMA,
        name: Some(wire::CallName::from(name)),
        pool: call.pool.clone(),
        tool: call.tool.clone(),
        arguments_hash: unhex(&call.arguments_hash).into(),
        effect: effect.into(),
        rerun: call.rerun,
        result_bytes_max: crate::turn::REFUSAL_BYTES_MAX,
        turn: turn.to_owned(),
        call_id: call.call_id.clone(),
        idempotency_key: name.idempotency_key(),
        ..Job::default()
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits
        .filter_map(|pair| {
            std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_result_says_what_the_cancel_came_to() {
        let result = |code: &str, start_state: &str| CallResult {
            code: code.into(),
            start_state: start_state.into(),
            ..CallResult::default()
        };
        assert_eq!(Answer::of(&result("ok", "")), Answer::AlreadyFinished);
        assert_eq!(Answer::of(&result("cancelled", NEVER_STARTED)), Answer::NeverStarted);
        assert_eq!(Answer::of(&result("cancelled", MAY_HAVE_STARTED)), Answer::MayHaveStarted);
        assert_eq!(Answer::of(&result("timed_out", MAY_HAVE_STARTED)), Answer::AlreadyFinished);
    }

    #[test]
    fn hashes_read_back() {
        assert_eq!(unhex("00ff1a"), vec![0, 255, 26]);
    }
}
