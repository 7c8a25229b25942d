//! The one path from a job to its result, shared by every way in (DESIGN 4.1).

use crate::core::answer::Ended;
use crate::core::wait::{self, Expired, Overdue};
use crate::deliver::Waiter;
use crate::job_message::{as_it_was, job_message, with_trace};
use crate::service::Coordinator;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use toolfleet_io::broker::{Error, Once, Outgoing};
use toolfleet_io::ending::{self, name_of};
use toolfleet_io::fail_point;
use toolfleet_io::lease_store::StopKind;
use toolfleet_io::telemetry::spans;
use toolfleet_proto::code::Code;
use toolfleet_proto::end::{self, Record};
use toolfleet_proto::name::CallName;
use toolfleet_proto::wire::{self, CallResult, Job};
use tracing::Instrument as _;

/// How long a broker may stay silent before a submission is answered "try again".
const SUBMIT_PATIENCE: Duration = Duration::from_secs(10);
/// Template of job subjects, for span names of few values.
const JOB_TEMPLATE: &str = "job.{pool}";

/// Why a call was not accepted. Nothing is lost: it can be handed in again under the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotAccepted {
    /// The same name was handed in before with other arguments.
    Conflict,
    /// The stream of jobs is full.
    QueueFull,
    /// The stream of results, or of start records, is nearly full.
    ResultsFull,
    /// The broker does not answer; whether the job is stored is not known.
    Unavailable(String),
}

/// A call that will get its result.
pub(crate) struct Accepted {
    job: Job,
    name: CallName,
    message: Outgoing,
    waiter: Waiter,
    /// A result that was there already.
    result: Option<Arc<CallResult>>,
    is_attached: bool,
    since: Instant,
}

impl Accepted {
    /// The tool's name.
    pub(crate) fn tool(&self) -> &str {
        self.result.as_ref().map_or(self.job.tool.as_str(), |result| result.tool.as_str())
    }

    /// Hash of the arguments that it was handed in with.
    pub(crate) fn arguments_hash(&self) -> &[u8] {
        self.result.as_ref().map_or(&self.job.arguments_hash, |result| &result.arguments_hash)
    }

    /// Whether the result is there already.
    pub(crate) fn is_done(&self) -> bool {
        self.result.is_some()
    }
}

impl Coordinator {
    /// Makes the job durable, or attaches to the call that is there already. When this returns `Ok`,
    /// the caller may be told "accepted" (G1).
    pub(crate) async fn submit(&self, job: Job) -> Result<Accepted, NotAccepted> {
        let accepted = self.publish_or_attach(job).await;
        match &accepted {
            Err(NotAccepted::QueueFull) => self.measures.rejected("queue_full"),
            Err(NotAccepted::ResultsFull) => self.measures.rejected("results_full"),
            Err(NotAccepted::Unavailable(_)) => self.measures.rejected("unavailable"),
            Ok(_) | Err(NotAccepted::Conflict) => {}
        }
        accepted
    }

    async fn publish_or_attach(&self, job: Job) -> Result<Accepted, NotAccepted> {
        let name = name_of(&job);
        let since = Instant::now();
        let waiting = if job.is_unnamed {
            self.deliver.wait_alone(&name).await
        } else {
            self.deliver.wait(&name).await
        };
        let waiter = waiting.map_err(|error| unavailable(&error))?;
        let span = spans::publish(
            span_call(&job),
            &self.broker.prefix().job(&job.pool, &name),
            JOB_TEMPLATE,
            job.arguments.len(),
        );
        let job = with_trace(job, &span);
        let message = job_message(&job);
        let accepted =
            Accepted { job, name, message, waiter, result: None, is_attached: false, since };
        // A name of the caller's may have its result already; a fresh one cannot.
        if !accepted.job.is_unnamed
            && let Ok(Some(result)) = ending::read_result(&self.broker, &accepted.name).await
        {
            return self.attach_to_result(accepted, result);
        }
        // One that is queued already is attached to all the same.
        if self.room.is_short(toolfleet_proto::end::needs_start_record(&accepted.job))
            && matches!(self.find_job(&accepted.name).await, Ok(None))
        {
            return Err(NotAccepted::ResultsFull);
        }
        self.publish(accepted).instrument(span).await
    }

    async fn publish(&self, mut accepted: Accepted) -> Result<Accepted, NotAccepted> {
        let subject = self.broker.prefix().job(&accepted.job.pool, &accepted.name);
        let until = Instant::now() + SUBMIT_PATIENCE;
        loop {
            let give_up = tokio::time::sleep_until(until);
            fail_point::reach("publish:before").await;
            match self.broker.store_once_until(&subject, &accepted.message, give_up).await {
                Ok(Once::Stored(_)) => {
                    fail_point::reach("publish:after").await;
                    self.measures.submitted(&accepted.job.pool);
                    return Ok(accepted);
                }
                Ok(Once::Full) => return Err(NotAccepted::QueueFull),
                Ok(Once::Taken) => {}
                Err(error) => return Err(unavailable(&error)),
            }
            // Queued or running already: the job says with which arguments and clocks.
            match self.find_job(&accepted.name).await {
                Ok(Some(Queued { job, message })) => {
                    if job.arguments_hash != accepted.job.arguments_hash {
                        return Err(NotAccepted::Conflict);
                    }
                    accepted.is_attached = !is_same_submission(&job, &accepted.job);
                    if accepted.is_attached {
                        self.measures.attached(&accepted.job.pool);
                    }
                    accepted.message = message;
                    accepted.job = job;
                    return Ok(accepted);
                }
                // It ended in between: its result is there.
                Ok(None) => {
                    if let Ok(Some(result)) =
                        ending::read_result(&self.broker, &accepted.name).await
                    {
                        return self.attach_to_result(accepted, result);
                    }
                }
                Err(error) if Instant::now() >= until => return Err(unavailable(&error)),
                Err(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn attach_to_result(
        &self,
        mut accepted: Accepted,
        result: CallResult,
    ) -> Result<Accepted, NotAccepted> {
        if result.arguments_hash != accepted.job.arguments_hash {
            return Err(NotAccepted::Conflict);
        }
        self.measures.attached(&accepted.job.pool);
        accepted.is_attached = true;
        accepted.result = Some(Arc::new(result));
        Ok(accepted)
    }

    /// The job of a call, in whichever pool it is queued.
    pub(crate) async fn find_job(&self, name: &CallName) -> Result<Option<Queued>, Error> {
        let stream = self.broker.prefix().jobs_stream();
        let filter = self.broker.prefix().job_anywhere(name);
        match self.broker.find_last(&stream, &filter).await? {
            None => Ok(None),
            Some(message) => match wire::read_job(&message.payload) {
                Ok(job) => Ok(Some(Queued { job, message: as_it_was(message) })),
                Err(error) => Err(Error::Refused(error.to_string())),
            },
        }
    }

    /// Attaches to a call by its name alone. `None`: there is neither a result nor a job of it.
    pub(crate) async fn attach(&self, name: &CallName) -> Result<Option<Accepted>, Error> {
        let since = Instant::now();
        let waiter = self.deliver.wait(name).await?;
        let accepted = |Queued { job, message }, result| Accepted {
            message,
            job,
            name: name.clone(),
            waiter,
            result,
            is_attached: true,
            since,
        };
        if let Some(result) = ending::read_result(&self.broker, name).await? {
            return Ok(Some(accepted(Queued::default(), Some(Arc::new(result)))));
        }
        if let Some(queued) = self.find_job(name).await? {
            return Ok(Some(accepted(queued, None)));
        }
        // It may have ended between the two reads.
        let result = ending::read_result(&self.broker, name).await?;
        Ok(result.map(|result| accepted(Queued::default(), Some(Arc::new(result)))))
    }

    /// Waits for the result of an accepted call: announced, read, or, when its time is over, ended
    /// here. Cancel safe: the call goes on.
    pub(crate) async fn result(&self, mut accepted: Accepted) -> Ended {
        let result = match accepted.result.take() {
            Some(result) => result,
            None => self.wait(&mut accepted).await,
        };
        if !accepted.job.pool.is_empty() {
            self.measures.arrived(&accepted.job.pool, accepted.since.elapsed());
        }
        note_lost_attempts(&accepted.job, &result);
        Ended::of_result(&result, accepted.is_attached)
    }

    async fn wait(&self, accepted: &mut Accepted) -> Arc<CallResult> {
        let mut disturbances = self.broker.disturbances();
        disturbances.mark_unchanged();
        let (mut reads, mut look_again_ms, mut has_waited) = (0, 0, false);
        let mut is_in_doubt = false;
        loop {
            let until_read = Duration::from_millis(wait::read_pause_ms(reads));
            let until_overdue = wait::until_overdue_ms(&accepted.job, self.clock.now_ms());
            let until_overdue = Duration::from_millis(until_overdue.max(look_again_ms));
            is_in_doubt |= tokio::select! {
                result = accepted.waiter.announced() => return result,
                changed = disturbances.changed() => changed.is_ok(),
                () = tokio::time::sleep(until_read.min(until_overdue)) => false,
            };
            reads += 1;
            if let Ok(Some(result)) = ending::read_result(&self.broker, &accepted.name).await {
                self.measures.result_read();
                return Arc::new(result);
            }
            let overdue = wait::overdue(&accepted.job, self.clock.now_ms());
            if overdue == Overdue::No {
                if is_in_doubt {
                    is_in_doubt = !self.publish_again(accepted).await;
                }
                continue;
            }
            match self.expire(&accepted.job, &accepted.name, overdue, has_waited).await {
                Ok(Looked::Ended(result)) => return Arc::from(result),
                Ok(Looked::Again { after_ms, has_waited: waited }) => {
                    look_again_ms = after_ms;
                    has_waited |= waited;
                }
                Err(error) => {
                    look_again_ms = wait::LOOK_AGAIN_MS;
                    tracing::warn!(call = %accepted.name, %error, "an overdue call is not ended yet");
                }
            }
        }
    }

    /// After a reconnect a job whose result is not there may be lost with what the broker had not
    /// synced: the same bytes again, and never after the deadline. `false`: the broker did not answer.
    async fn publish_again(&self, accepted: &Accepted) -> bool {
        if self.clock.now_ms() >= accepted.job.clocks.map_or(0, |clocks| clocks.deadline_ms) {
            return true;
        }
        let subject = self.broker.prefix().job(&accepted.job.pool, &accepted.name);
        match self.broker.store_once(&subject, &accepted.message).await {
            Ok(Once::Stored(_)) => {
                tracing::warn!(call = %accepted.name, "a job was published again");
                true
            }
            Ok(Once::Taken | Once::Full) => true,
            Err(error) => {
                tracing::debug!(call = %accepted.name, %error, "not published again");
                false
            }
        }
    }

    /// Ends a call that nobody waits for, where its time is over and nobody holds it. `false`: it was
    /// left as it is, or had its result already.
    pub(crate) async fn end_if_overdue(&self, job: &Job, name: &CallName) -> Result<bool, Error> {
        if ending::read_result(&self.broker, name).await?.is_some() {
            return Ok(false);
        }
        let overdue = wait::overdue(job, self.clock.now_ms());
        match self.expire(job, name, overdue, false).await? {
            Looked::Ended(_) => Ok(true),
            Looked::Again { .. } => Ok(false),
        }
    }

    /// EXPIRE: ends a call whose time is over, unless a worker holds it (DESIGN 4.1 step 5).
    async fn expire(
        &self,
        job: &Job,
        name: &CallName,
        overdue: Overdue,
        has_waited: bool,
    ) -> Result<Looked, Error> {
        let is_live = self.catalog.has_live_worker(&job.tool, &job.descriptor_hash);
        let mark = wait::mark(job, overdue, is_live);
        let kind = if overdue == Overdue::Queue { StopKind::Expire } else { StopKind::End };
        let stopped = self
            .store
            .stop(name, kind, &mark)
            .await
            .map_err(|error| Error::Silent(error.to_string()))?;
        let is_record_started = end::needs_start_record(job)
            && ending::read_record(&self.broker, name).await?.is_some_and(|(_, record)| {
                matches!(end::read_record(&record), Record::Started { .. })
            });
        match wait::judge_expired(overdue, &mark, &stopped, is_record_started, has_waited) {
            Expired::LookAgain | Expired::Read => {
                Ok(Looked::Again { after_ms: wait::LOOK_AGAIN_MS, has_waited: false })
            }
            Expired::WaitOneTtl => {
                Ok(Looked::Again { after_ms: self.limits.lease_ttl_ms, has_waited: true })
            }
            Expired::End(wish) => {
                let now_ms = self.clock.now_ms();
                let retention_ms = self.limits.unnamed_retention_ms;
                let ended = ending::end(&self.broker, job, &wish, now_ms, retention_ms).await?;
                let outcome = Code::parse(&ended.result.code).map_or("ok", Code::as_str);
                if ended.is_ours {
                    self.measures.expired(outcome);
                    self.measures.finished(&job.pool, outcome);
                }
                tracing::info!(call = %name, outcome, "ended an overdue call");
                let jobs = self.broker.prefix().jobs_stream();
                if let Err(error) =
                    self.broker.purge(&jobs, &self.broker.prefix().job_anywhere(name)).await
                {
                    // A worker that gets it finds the result and acknowledges.
                    tracing::debug!(call = %name, %error, "the job of an ended call is still queued");
                }
                Ok(Looked::Ended(Box::new(ended.result)))
            }
        }
    }
}

/// Leaves evidence of attempts whose own spans were lost with their workers (G10).
fn note_lost_attempts(job: &Job, result: &CallResult) {
    for attempt in 1..result.attempts {
        drop(spans::attempt_lost(spans::Attempt {
            call: span_call(job),
            worker: "",
            attempt,
            fence: 0,
        }));
    }
}

/// A job as it stands in the queue.
#[derive(Default)]
pub(crate) struct Queued {
    pub(crate) job: Job,
    message: Outgoing,
}

/// What a look at an overdue call came to.
enum Looked {
    Ended(Box<CallResult>),
    Again { after_ms: u64, has_waited: bool },
}

fn unavailable(error: &Error) -> NotAccepted {
    NotAccepted::Unavailable(error.to_string())
}

/// Whether a queued job is the one that was just sent, whose first answer was lost.
fn is_same_submission(queued: &Job, sent: &Job) -> bool {
    queued.request_id == sent.request_id
}

pub(crate) fn span_call(job: &Job) -> spans::Call<'_> {
    spans::Call {
        execution: job.name.as_ref().map_or("", |name| name.execution.as_str()),
        turn: Some(job.turn.as_str()),
        call: &job.call_id,
        tool: &job.tool,
        pool: &job.pool,
    }
}
