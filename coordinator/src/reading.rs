//! Looking at turns and calls that somebody handed in, through whichever replica (DESIGN 9, decision 1).

use crate::cancel::call_name;
use crate::core::answer::Ended;
use crate::core::execution::TurnRecord;
use crate::core::formats::Format;
use crate::core::reports;
use crate::service::Coordinator;
use crate::submit::Accepted;
use crate::turn::{self, Forms};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;
use toolfleet_io::broker::Error;
use toolfleet_proto::code::Code;
use toolfleet_proto::name::CallName;
use toolfleet_proto::wire::CancelRecord;

/// Between two looks for a call that waits for a slot of its turn.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

impl Coordinator {
    /// The state of a call that has no result: `running` where a worker holds its lease, `queued` where
    /// its job waits, `waiting` where its turn has not published it yet, `unknown` where the lease store
    /// is silent.
    pub(crate) async fn open_state(&self, name: &CallName) -> &'static str {
        self.open_state_and_worker(name).await.0
    }

    /// The same, with the worker that holds the lease.
    pub(crate) async fn open_state_and_worker(
        &self,
        name: &CallName,
    ) -> (&'static str, Option<String>) {
        match self.store.holder(name).await {
            Ok(Some(holder)) => ("running", Some(holder.worker)),
            Ok(None) => match self.find_job(name).await {
                Ok(None) => ("waiting", None),
                _ => ("queued", None),
            },
            Err(_) => ("unknown", None),
        }
    }

    /// A turn as it stands: `done` with its messages, else `running` with the state of each call. Waits
    /// up to `wait` for the results that are missing.
    pub(crate) async fn read_turn(
        &self,
        execution: &str,
        turn: &TurnRecord,
        format: Option<Format>,
        wait: Duration,
    ) -> Result<Value, Error> {
        let until = Instant::now() + wait;
        let (mut ended, mut states) = (Vec::with_capacity(turn.calls.len()), Vec::new());
        for call in &turn.calls {
            let name = call_name(execution, &call.call);
            let result = match self.attach_until(&name, until).await? {
                // The wait is one for the whole turn.
                Some(accepted) => {
                    let left = until.saturating_duration_since(Instant::now());
                    let left = if accepted.is_done() { Duration::from_secs(5) } else { left };
                    tokio::time::timeout(left, self.result(accepted)).await.ok()
                }
                None => None,
            };
            match result {
                Some(mut result) => {
                    // Nothing was handed in again: it is only read.
                    result.is_replayed = false;
                    result.call_id.clone_from(&call.call_id);
                    result.tool.clone_from(&call.tool);
                    let mut state = result.entry();
                    state["state"] = json!("done");
                    states.push(state);
                    ended.push((call.clone(), result));
                }
                None => states.push(json!({
                    "call": call.call,
                    "callId": call.call_id,
                    "toolName": call.tool,
                    "state": self.open_state(&name).await,
                })),
            }
        }
        // A format of a newer build is told in our own.
        let of_message = Format::of_messages(&turn.format).unwrap_or(Format::Native);
        let of_answer = format.unwrap_or(of_message);
        if ended.len() == turn.calls.len() {
            let forms = Forms { of_message, of_answer };
            return Ok(turn::answer(execution, &turn.name, forms, &ended, &turn.local));
        }
        Ok(json!({
            "executionId": execution,
            "turn": turn.name,
            "state": "running",
            "replayed": false,
            "format": of_answer.as_str(),
            "local": turn.local,
            "pending": [],
            "calls": states,
        }))
    }
}

impl Coordinator {
    /// Attaches to a call that may still wait for a slot of its turn, and so has no job yet. `None`: it has
    /// none at that instant either.
    pub(crate) async fn attach_until(
        &self,
        name: &CallName,
        until: Instant,
    ) -> Result<Option<Accepted>, Error> {
        loop {
            let attached = self.attach(name).await?;
            let left = until.saturating_duration_since(Instant::now());
            if attached.is_some() || left.is_zero() {
                return Ok(attached);
            }
            tokio::time::sleep(left.min(LOOK_AGAIN)).await;
        }
    }

    /// The tool of a call that its execution lists.
    pub(crate) async fn listed_tool(&self, name: &CallName) -> Result<Option<String>, Error> {
        let record = self.executions.get(&name.tenant, &name.execution).await?;
        Ok(record.and_then(|record| {
            let mut calls = record.turns.iter().flat_map(|turn| &turn.calls);
            calls.find(|call| call.call == name.call).map(|call| call.tool.clone())
        }))
    }

    /// The cancel of a call that has no result yet: asked for, and whether the running tool was told.
    /// `None` where there is none, or the lease store is silent.
    pub(crate) async fn open_cancel(&self, name: &CallName) -> Option<CancelRecord> {
        let mark = self.store.read_mark(name).await.ok()??;
        if mark.code != Code::Cancelled {
            return None;
        }
        let delivered = self.store.cancel_delivered_ms(name).await.ok().flatten();
        Some(CancelRecord {
            requested_at_ms: mark.at_ms,
            delivered_at_ms: delivered.unwrap_or(0),
            ..CancelRecord::default()
        })
    }
}

/// Answers about a call without a result.
pub(crate) fn open_call(name: &CallName, tool: &str, state: &str, worker: Option<&str>) -> Value {
    json!({
        "state": state,
        "executionId": name.execution,
        "call": name.call,
        "idempotencyKey": name.idempotency_key(),
        "toolName": tool,
        "worker": worker,
    })
}

/// Marks an answer to a direct call as done, and adds what its tool reported.
pub(crate) fn done_answer(ended: &Ended, execution: &str) -> String {
    let mut answer = ended.direct_answer(execution);
    answer.insert_str(1, "\"state\":\"done\",");
    if let Some(kept) = &ended.reports {
        // Before the brace that closes it.
        answer.pop();
        answer.push_str(",\"reports\":");
        answer.push_str(&reports::text(kept));
        answer.push('}');
    }
    answer
}
