//! Callers that do not give up: the same call, under the same name, through whichever coordinator answers.

use super::plan::Call;
use crate::fleet::Fleet;
use crate::http::{Answer, Http};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// Pause before the next coordinator is asked.
const PAUSE: Duration = Duration::from_millis(100);

/// The coordinators as they can be reached now. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Doors {
    open: Arc<RwLock<Vec<Http>>>,
    next: Arc<AtomicUsize>,
}

impl Doors {
    /// Takes the addresses of all coordinators as they are now: a restart may change them.
    pub(crate) fn open(&self, fleet: &Fleet) -> anyhow::Result<()> {
        let doors: anyhow::Result<Vec<Http>> =
            (0..fleet.coordinators.len()).map(|number| fleet.http(number)).collect();
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = doors?;
        Ok(())
    }

    fn any(&self) -> Http {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open[self.next.fetch_add(1, Ordering::Relaxed) % open.len()].clone()
    }

    /// Asks until somebody answers with a status that settles it.
    async fn ask(&self, path: &str, body: &Value) -> Answer {
        loop {
            match self.any().post(path, body).await {
                Ok(answer) if answer.status != 503 && answer.status != 429 => return answer,
                _ => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

/// What a caller heard of one call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    /// The answers to its submissions: one, or two where it was handed in twice.
    pub(crate) answers: Vec<Value>,
    /// The answer to its cancel.
    pub(crate) cancel: Option<String>,
    /// Submissions that were refused as a whole, which no call here may be.
    pub(crate) refused: Vec<String>,
}

/// Hands a call in, once or twice, and cancels it where that is planned.
pub(crate) async fn hand_in(call: &Call, doors: &Doors, ledgers: &Path) -> Heard {
    let seconds = format!("{}.{:03}", call.ms / 1_000, call.ms % 1_000);
    let ledger = ledgers.join(&call.id).to_string_lossy().into_owned();
    let input = if call.tool.starts_with("script") {
        json!({"seconds": seconds, "ledger": ledger})
    } else {
        json!({"ms": call.ms, "ledger": ledger})
    };
    let body = json!({"input": input, "executionId": call.execution, "callId": call.id});
    let path = format!("/v1/tools/{}/call", call.tool);
    let submit = async || doors.ask(&path, &body).await;
    let cancel = async {
        let after = call.cancel_after?;
        tokio::time::sleep(after).await;
        let path = format!("/v1/calls/{}/main:direct:{}/cancel", call.execution, call.id);
        // Not known yet: it is on its way.
        loop {
            let answer = doors.ask(&path, &json!({"reason": "soaked"})).await;
            match answer.body["answer"].as_str() {
                Some(said) if said != "unknown" => return Some(said.to_owned()),
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let second = async { if call.is_doubled { Some(submit().await) } else { None } };
    let (first, second, cancel) = tokio::join!(submit(), second, cancel);
    let mut heard = Heard { cancel, ..Heard::default() };
    for answer in [Some(first), second].into_iter().flatten() {
        match answer.status {
            200 => heard.answers.push(answer.body),
            _ => heard.refused.push(answer.text),
        }
    }
    heard
}
