//! The claim: lease and start check (DESIGN 4.2 steps 3 and 4).

use super::{Delivery, Settle};
use crate::core::attempt::{self, SILENT_DELAY_MS, Verdict};
use crate::running::InHand;
use prost::Message as _;
use std::time::Duration;
use toolfleet_io::broker::Outgoing;
use toolfleet_io::clock::boot_ms;
use toolfleet_io::telemetry::{self, spans};
use toolfleet_io::{ending, fail_point};
use toolfleet_proto::end::End;
use toolfleet_proto::lease::{Acquired, Holder};
use toolfleet_proto::wire::{DeadLetter, SCHEMA};

/// From this age on the answer to the start check says nothing about now.
const STALE_MS: u64 = 1_000;
/// How often the result is read again that the store says was stored a moment ago.
const READS_AGAIN_MAX: u32 = 10;
/// How often an end without a run is tried before the job is handed back.
const END_TRIES: u32 = 5;
/// Delay of a job whose end could not be stored.
const END_DELAY_MS: u64 = 2_000;

/// A lease that is ours, for a call that may run.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    /// The claim's random id, worker and fence.
    pub(crate) holder: Holder,
    /// Number of the attempt.
    pub(crate) attempt: u32,
    /// The span of the attempt before.
    pub(crate) previous_span: String,
    /// When the call was claimed for the first time.
    pub(crate) first_ms: i64,
}

impl Delivery {
    /// Asks for the lease, checks for a result, and decides. `Err` is how the delivery ends.
    pub(crate) async fn claim(&self) -> Result<Claimed, Settle> {
        // Random for this claim, not the worker's name: it is also the attempt's id.
        let claim = uuid::Uuid::new_v4().simple().to_string();
        let span = spans::claim(self.call(), &self.edge.worker, self.queued_ms());
        self.adopt(&span);
        let traceparent = telemetry::current_trace_context(&span).0;
        fail_point::reach("claim:before").await;
        let asked_at_ms = boot_ms();
        let Ok(acquired) = self.edge.claims.acquire(&self.name, &claim, &traceparent).await else {
            // Behind it on the same connection: undoes a late grant and its count.
            self.edge.claims.give_back(&self.name, &claim).await;
            self.edge.is_store_silent.send_replace(true);
            spans::not_granted(&span, "silent");
            return Err(Settle::HandBack { delay_ms: SILENT_DELAY_MS });
        };
        fail_point::reach("claim:after").await;
        let is_granted = matches!(acquired, Acquired::Granted { .. });
        match &acquired {
            Acquired::Granted { .. } => self.edge.measures.lease_acquired(),
            Acquired::Held { .. } => self.edge.measures.lease_contended(),
            Acquired::Done | Acquired::Marked { .. } => {}
        }
        let Some(is_stored) = self.is_result_stored(asked_at_ms).await else {
            if is_granted {
                self.edge.claims.give_back(&self.name, &claim).await;
            }
            return Err(Settle::HandBack { delay_ms: SILENT_DELAY_MS });
        };
        fail_point::reach("check:after").await;
        let mut verdict = attempt::judge(
            &self.job,
            &acquired,
            is_stored,
            self.tool.is_some(),
            self.is_redelivered,
        );
        if verdict == Verdict::ReadAgain {
            verdict = self.read_again().await;
        }
        match verdict {
            Verdict::Run { fence, attempt, previous_span, first_ms } => {
                spans::granted(&span, attempt, fence);
                let holder = Holder { claim, worker: self.edge.worker.clone(), fence };
                self.edge.keeper.hold(&self.name, &holder, asked_at_ms, &self.stop);
                self.edge.measures.claimed();
                Ok(Claimed { holder, attempt, previous_span, first_ms })
            }
            other => {
                spans::not_granted(&span, word(&other));
                Err(self.end_claim(&claim, is_granted, other).await)
            }
        }
    }

    /// What is done where nothing runs.
    async fn end_claim(&self, claim: &str, is_granted: bool, verdict: Verdict) -> Settle {
        let settle = match verdict {
            Verdict::AcknowledgeOnly => {
                self.edge.measures.redelivered();
                if is_granted {
                    self.edge.claims.done(&self.name, claim).await;
                }
                return Settle::Acknowledge;
            }
            Verdict::End(end) => self.end_without_run(&end).await,
            Verdict::DeadLetter(end) => self.lay_dead(claim, &end).await,
            Verdict::HandBack { delay_ms } => Settle::HandBack { delay_ms },
            Verdict::ReadAgain | Verdict::Run { .. } => Settle::HandBack { delay_ms: END_DELAY_MS },
        };
        match (is_granted, settle) {
            (false, _) => {}
            (true, Settle::Acknowledge) => self.edge.claims.done(&self.name, claim).await,
            (true, _) => self.edge.claims.give_back(&self.name, claim).await,
        }
        settle
    }

    /// Whether a result is stored, asked after the lease was; `None`: the broker is silent.
    async fn is_result_stored(&self, asked_at_ms: u64) -> Option<bool> {
        let subject = self.edge.broker.prefix().result(&self.name);
        let mut asked_at_ms = asked_at_ms;
        for _ in 0..3 {
            let result = self.edge.broker.read_result(&subject).await;
            match result {
                Ok(Some(_)) => return Some(true),
                Ok(None) if boot_ms() - asked_at_ms <= STALE_MS => return Some(false),
                Ok(None) => asked_at_ms = boot_ms(),
                Err(error) => {
                    tracing::warn!(call = %self.name, %error, "no start check");
                    return None;
                }
            }
        }
        None
    }

    /// The store says that a result was stored a moment ago; a replica may not show it yet.
    async fn read_again(&self) -> Verdict {
        let subject = self.edge.broker.prefix().result(&self.name);
        for _ in 0..READS_AGAIN_MAX {
            if let Ok(Some(_)) = self.edge.broker.read_result(&subject).await {
                return Verdict::AcknowledgeOnly;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Verdict::HandBack { delay_ms: END_DELAY_MS }
    }

    /// Stores an end without a run; acknowledges only after the store was answered.
    pub(crate) async fn end_without_run(&self, end: &End) -> Settle {
        for _ in 0..END_TRIES {
            let now_ms = self.edge.clock.now_ms();
            let retention_ms = self.edge.limits.unnamed_retention_ms;
            match ending::end(&self.edge.broker, &self.job, end, now_ms, retention_ms).await {
                Ok(ended) => {
                    if ended.is_ours {
                        self.count(&ended.result, None);
                    }
                    tracing::info!(call = %self.name, code = %ended.result.code, "ended without a run");
                    return Settle::Acknowledge;
                }
                Err(error) => tracing::warn!(call = %self.name, %error, "an end was not stored"),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Settle::HandBack { delay_ms: END_DELAY_MS }
    }

    /// Lays the job with the dead letters, then stores its end. `claim`: this one, which is no attempt.
    async fn lay_dead(&self, claim: &str, end: &End) -> Settle {
        let mut history = match self.edge.store.attempts(&self.name).await {
            Ok(history) => history,
            Err(error) => {
                tracing::warn!(call = %self.name, %error, "the attempts of a dead letter were not read");
                return Settle::HandBack { delay_ms: END_DELAY_MS };
            }
        };
        history.retain(|attempt| attempt.attempt_id != claim);
        let letter = DeadLetter {
            schema: SCHEMA,
            name: self.job.name.clone(),
            pool: self.edge.pool.clone(),
            tool: self.job.tool.clone(),
            code: end.code.as_str().to_owned(),
            reason: end.text.clone(),
            history,
            job: self.bytes.clone(),
            at_ms: self.edge.clock.now_ms(),
        };
        let subject = self.edge.broker.prefix().dead(&self.edge.pool, &self.name);
        let message = Outgoing { payload: letter.encode_to_vec().into(), ..Outgoing::default() };
        if let Err(error) = self.edge.broker.store_once(&subject, &message).await {
            tracing::warn!(call = %self.name, %error, "a dead letter was not stored");
            return Settle::HandBack { delay_ms: END_DELAY_MS };
        }
        self.end_without_run(end).await
    }

    /// Claims, starts and runs; waits one lease time once where the store has forgotten a claim.
    pub(super) async fn go(&self, in_hand: &InHand) -> Settle {
        for has_waited in [false, true] {
            let claimed = match self.claim().await {
                Ok(claimed) => claimed,
                Err(settle) => return settle,
            };
            match self.start_and_run(&claimed, has_waited).await {
                Some(settle) => return settle,
                None => self.wait_one_ttl(in_hand).await,
            }
        }
        Settle::HandBack { delay_ms: END_DELAY_MS }
    }

    /// Waits for the time of a lease that the store has forgotten, while the broker is told that the
    /// job is in progress.
    async fn wait_one_ttl(&self, in_hand: &InHand) {
        let over_at_ms = boot_ms() + self.edge.limits.lease_ttl_ms;
        while boot_ms() < over_at_ms && !self.edge.draining.is_cancelled() {
            if let Some(acker) = in_hand.acker() {
                let _ = acker.ack_with(async_nats::jetstream::AckKind::Progress).await;
            }
            let pause = self.edge.limits.lease_renew_ms.min(over_at_ms - boot_ms().min(over_at_ms));
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(pause.max(1))) => {}
                () = self.edge.draining.cancelled() => {}
            }
        }
    }
}

/// A word of a closed set for the claim's span.
fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::AcknowledgeOnly => "done",
        Verdict::ReadAgain | Verdict::HandBack { .. } => "held",
        Verdict::End(_) => "ended",
        Verdict::DeadLetter(_) => "dead",
        Verdict::Run { .. } => "granted",
    }
}
