//! The run: from the last look at the lease to the tool's end (DESIGN 4.2 step 6).

use super::claim::Claimed;
use super::commit::Came;
use super::start::Permission;
use super::tries::Tries;
use super::{Delivery, Settle};
use crate::context::CallContext;
use crate::core::attempt;
use crate::registry::Registered;
use crate::reports::Reports;
use crate::runner::{Ended, LastWords, RunOutcome};
use crate::secrets;
use crate::spend::Spend;
use crate::stop::{Stop, StopReason};
use prost::Message as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use toolfleet_io::broker::{Once, Outgoing};
use toolfleet_io::fail_point;
use toolfleet_io::telemetry::{self, spans};
use toolfleet_proto::end;
use toolfleet_proto::topology::Prefix;
use toolfleet_proto::wire::{AttemptRecord, SCHEMA, SpendRecord};
use tracing::Span;

/// Pause between two notes of what a tool said last.
const WORDS_PAUSE: Duration = Duration::from_secs(1);
/// What a program is started for: nothing is prepared or verified yet.
const PHASE: &str = "execute";

impl Delivery {
    /// Takes the start record where one is needed, runs the tool, commits. `None`: wait one lease
    /// time, then claim again.
    pub(crate) async fn start_and_run(
        &self,
        claimed: &Claimed,
        has_waited: bool,
    ) -> Option<Settle> {
        let Some(tool) = &self.tool else { return Some(self.give_back(claimed, 0).await) };
        let span = spans::process(self.attempt_of(claimed), &Prefix::consumer(&self.edge.pool));
        self.adopt(&span);
        if !claimed.previous_span.is_empty() {
            telemetry::add_link(&span, &claimed.previous_span);
        }
        let mut attempt = AttemptRecord {
            attempt_id: claimed.holder.claim.clone(),
            number: claimed.attempt,
            fence: claimed.holder.fence,
            worker: self.edge.worker.clone(),
            started_at_ms: self.edge.clock.now_ms(),
            ended_at_ms: 0,
            traceparent: telemetry::current_trace_context(&span).0,
            last_words: String::new(),
            tries: 0,
        };
        let record = match self.ask_to_start(claimed, &attempt, has_waited).await {
            Permission::NotNeeded => None,
            Permission::Ours(sequence) => Some(sequence),
            Permission::Over(settle) => return Some(settle),
            Permission::WaitOneTtl => return None,
        };
        // A pause may sit between the answer and this line.
        if let Some(settle) = self.must_not_start(claimed, record).await {
            return Some(settle);
        }
        fail_point::reach("run:before").await;
        attempt.started_at_ms = self.edge.clock.now_ms();
        let (timeout_ms, timed_out) =
            attempt::attempt_clock(&self.job, attempt.started_at_ms, claimed.first_ms);
        self.edge.measures.started(Duration::from_millis(self.queued_ms()));
        let reports = Reports::default();
        let (ended, tries) =
            self.run_tool(tool, claimed, &attempt, timeout_ms, &reports, &span).await;
        attempt.tries = tries;
        fail_point::reach("run:after").await;
        attempt.ended_at_ms = self.edge.clock.now_ms();
        let came = Came { ended, timed_out, reports: reports.kept() };
        Some(self.commit(tool, claimed, attempt, came, &span).await)
    }

    async fn run_tool(
        &self,
        tool: &Arc<Registered>,
        claimed: &Claimed,
        attempt: &AttemptRecord,
        timeout_ms: u64,
        reports: &Reports,
        span: &Span,
    ) -> (Ended, u32) {
        let secrets = match secrets::look_up(self.edge.secrets_dir.as_deref(), &tool.secrets) {
            Ok(secrets) => secrets,
            Err(message) => {
                return (Ended::unstarted(RunOutcome::NotStarted { message }), 0);
            }
        };
        let last_words = LastWords::default();
        let noting = tokio::spawn(note_words(
            Arc::clone(&self.edge),
            self.name.clone(),
            claimed.holder.claim.clone(),
            last_words.follow(),
        ));
        let (spend, records) = Spend::new(self.spend_base(claimed));
        let over = CancellationToken::new();
        let recording = tokio::spawn(record_spend(
            Arc::clone(&self.edge),
            self.name.clone(),
            records,
            over.clone(),
        ));
        let telling = tokio::spawn(tell_delivered(
            Arc::clone(&self.edge),
            self.name.clone(),
            claimed.holder.claim.clone(),
            self.stop.clone(),
        ));
        let tries = Tries {
            delivery: self,
            tool,
            claimed,
            attempt,
            timeout_ms,
            secrets,
            last_words,
            reports: reports.clone(),
            spend,
            span,
        };
        let ended = tries.run().await;
        noting.abort();
        telling.abort();
        // A tool that was left behind records nothing more.
        over.cancel();
        // Spend of a failed or stopped call counts too; its records come before the result.
        let grace = Duration::from_millis(self.edge.limits.lease_ttl_ms);
        if tokio::time::timeout(grace, recording).await.is_err() {
            tracing::warn!(call = %self.name, "spend records were not all stored before the result");
        }
        ended
    }

    /// What one try may know of its call: `left_ms` of the attempt's `timeout_ms` are left for it.
    pub(super) fn context(
        &self,
        claimed: &Claimed,
        attempt: &AttemptRecord,
        timeout_ms: u64,
        left_ms: u64,
        span: &Span,
    ) -> CallContext {
        let (traceparent, tracestate) = telemetry::current_trace_context(span);
        let caller = self.job.caller.clone().unwrap_or_default();
        let by_timeout = attempt.started_at_ms + i64::try_from(timeout_ms).unwrap_or(i64::MAX / 2);
        let deadline_ms =
            self.job.clocks.map_or(by_timeout, |clocks| clocks.deadline_ms.min(by_timeout));
        CallContext {
            tool_name: self.job.tool.clone(),
            tenant: self.name.tenant.clone(),
            execution_id: self.name.execution.clone(),
            thread_id: caller.thread,
            owner_id: caller.owner,
            actor: caller.actor,
            roles: caller.roles,
            agent: caller.agent,
            node: self.job.node.clone(),
            turn: self.job.turn.clone(),
            call_id: self.job.call_id.clone(),
            request_id: self.job.request_id.clone(),
            idempotency_key: self.job.idempotency_key.clone(),
            attempt: claimed.attempt,
            fence: claimed.holder.fence,
            deadline: end::instant(deadline_ms),
            timeout_ms: left_ms,
            phase: PHASE.to_owned(),
            dry_run: self.job.dry_run,
            as_of: if self.job.as_of_ms == 0 {
                String::new()
            } else {
                end::instant(self.job.as_of_ms)
            },
            traceparent,
            tracestate,
            baggage: self.job.trace.as_ref().map(|trace| trace.baggage.clone()).unwrap_or_default(),
        }
    }

    fn spend_base(&self, claimed: &Claimed) -> SpendRecord {
        SpendRecord {
            schema: SCHEMA,
            name: self.job.name.clone(),
            attempt_id: claimed.holder.claim.clone(),
            tool: self.job.tool.clone(),
            at_ms: self.edge.clock.now_ms(),
            fence: claimed.holder.fence,
            actor: self.job.caller.as_ref().map(|caller| caller.actor.clone()).unwrap_or_default(),
            ..SpendRecord::default()
        }
    }
}

/// Notes that a cancel has reached the tool, so that it shows while the tool comes to rest.
async fn tell_delivered(
    edge: Arc<crate::edge::Edge>,
    name: toolfleet_proto::name::CallName,
    claim: String,
    stop: Stop,
) {
    if let StopReason::Cancelled(_) = stop.fired().await {
        edge.measures.cancel_delivered(edge.clock.now_ms() - stop.requested_at_ms());
        edge.claims.delivered(&name, &claim).await;
    }
}

/// Keeps what a tool says with its attempt, so that it is known should this worker be lost: the first words
/// at once, what follows at most once a second.
async fn note_words(
    edge: Arc<crate::edge::Edge>,
    name: toolfleet_proto::name::CallName,
    claim: String,
    mut said: watch::Receiver<String>,
) {
    while said.changed().await.is_ok() {
        let words = said.borrow_and_update().clone();
        edge.claims.words(&name, &claim, words).await;
        tokio::time::sleep(WORDS_PAUSE).await;
    }
}

/// Stores the records of one attempt, one message each, until the attempt lets go of its recorder or is
/// over.
async fn record_spend(
    edge: Arc<crate::edge::Edge>,
    name: toolfleet_proto::name::CallName,
    mut records: mpsc::Receiver<SpendRecord>,
    over: CancellationToken,
) {
    loop {
        let record = tokio::select! {
            biased;
            record = records.recv() => record,
            () = over.cancelled(), if !records.is_closed() => {
                records.close();
                continue;
            }
        };
        let Some(record) = record else { return };
        let subject = edge.broker.prefix().spend(&name, &record.attempt_id, record.n);
        let message = Outgoing { payload: record.encode_to_vec().into(), ..Outgoing::default() };
        let give_up = tokio::time::sleep(Duration::from_millis(edge.limits.lease_ttl_ms));
        match edge.broker.store_once_until(&subject, &message, give_up).await {
            // The subject is this attempt's own: what is there already is ours, its ack was lost.
            Ok(Once::Stored(_) | Once::Taken) => {
                edge.measures.spent(&record.tool, &record.currency, record.amount_nano);
            }
            Ok(Once::Full) => {
                tracing::error!(call = %name, n = record.n, "the stream of spend is full: a record was not stored");
            }
            Err(error) => {
                tracing::error!(call = %name, n = record.n, %error, "a spend record was not stored");
            }
        }
    }
}
