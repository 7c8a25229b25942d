//! Claims: every lease taken or given back by this worker since the last round trip goes to the store
//! in one script (DESIGN 9, decision 11). Operations keep their order, so that a give-back sent behind
//! a silent acquire undoes it.

use tokio::sync::{mpsc, oneshot};
use toolfleet_io::lease_store::{LeaseStore, Operation};
use toolfleet_proto::lease::Acquired;
use toolfleet_proto::name::CallName;

/// Operations that one script performs.
const BATCH_MAX: usize = 64;
/// Operations that wait for the script before them.
const WAITING_MAX: usize = 4_096;

/// The store did not answer: the operation may have taken effect, or may yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silent;

struct Ask {
    name: CallName,
    operation: Operation,
    reply: Option<oneshot::Sender<Result<Acquired, Silent>>>,
}

/// Hands operations to the store. Clones share the queue.
#[derive(Clone)]
pub struct Claims {
    queue: mpsc::Sender<Ask>,
}

impl Claims {
    /// Starts the queue on the current runtime. It ends when every clone is dropped.
    pub fn start(store: LeaseStore, worker: String) -> Claims {
        let (queue, asks) = mpsc::channel(WAITING_MAX);
        tokio::spawn(perform(store, worker, asks));
        Claims { queue }
    }

    /// Asks for the lease. Not cancel safe: a dropped acquire may still be granted.
    pub async fn acquire(
        &self,
        name: &CallName,
        claim: &str,
        span: &str,
    ) -> Result<Acquired, Silent> {
        let (reply, answer) = oneshot::channel();
        let operation = Operation::Acquire { claim: claim.to_owned(), span: span.to_owned() };
        let ask = Ask { name: name.clone(), operation, reply: Some(reply) };
        self.queue.send(ask).await.map_err(|_| Silent)?;
        answer.await.unwrap_or(Err(Silent))
    }

    /// Gives the lease and its count back: the tool never started.
    pub async fn give_back(&self, name: &CallName, claim: &str) {
        self.send(name, Operation::GiveBack { claim: claim.to_owned() }).await;
    }

    /// Gives the lease back; the count stays: the tool was stopped.
    pub async fn release(&self, name: &CallName, claim: &str) {
        self.send(name, Operation::Release { claim: claim.to_owned() }).await;
    }

    /// Leaves `done` behind: a result is stored.
    pub async fn done(&self, name: &CallName, claim: &str) {
        self.send(name, Operation::Done { claim: claim.to_owned() }).await;
    }

    /// Keeps what the tool said last.
    pub async fn words(&self, name: &CallName, claim: &str, words: String) {
        self.send(name, Operation::Words { claim: claim.to_owned(), words }).await;
    }

    /// Notes that a cancel has reached the tool.
    pub async fn delivered(&self, name: &CallName, claim: &str) {
        self.send(name, Operation::Delivered { claim: claim.to_owned() }).await;
    }

    async fn send(&self, name: &CallName, operation: Operation) {
        let _ = self.queue.send(Ask { name: name.clone(), operation, reply: None }).await;
    }
}

async fn perform(store: LeaseStore, worker: String, mut asks: mpsc::Receiver<Ask>) {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    while asks.recv_many(&mut batch, BATCH_MAX).await > 0 {
        let (operations, replies): (Vec<_>, Vec<_>) =
            batch.drain(..).map(|ask| ((ask.name, ask.operation), ask.reply)).unzip();
        let answers = match store.perform(&worker, &operations).await {
            Ok(answers) => answers.into_iter().map(|answer| answer.ok_or(Silent)).collect(),
            Err(error) => {
                tracing::warn!(%error, operations = operations.len(), "no answer to claims");
                vec![Err(Silent); operations.len()]
            }
        };
        for (reply, answer) in replies.into_iter().zip(answers) {
            if let Some(reply) = reply {
                let _ = reply.send(answer);
            }
        }
    }
}
