//! Threads on which tools in Rust run, and those that such a tool has not given back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Most threads that tools may keep beyond their time. At the bound this worker starts no further tool in
/// Rust until one returns; programs go on.
pub const ABANDONED_MAX: usize = 64;

/// The threads of a worker. Clones share the count.
#[derive(Clone, Debug)]
pub struct Threads {
    runtime: Handle,
    abandoned: Arc<AtomicUsize>,
}

impl Threads {
    /// Of a runtime whose pool of blocking threads has room for all slots and [`ABANDONED_MAX`].
    pub fn new(runtime: Handle) -> Threads {
        Threads { runtime, abandoned: Arc::default() }
    }

    /// The runtime: its timers and sockets serve the tools on all threads.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// How many threads tools keep beyond their time now.
    pub fn abandoned(&self) -> usize {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Whether no further tool in Rust may be started.
    pub fn are_used_up(&self) -> bool {
        self.abandoned() >= ABANDONED_MAX
    }

    /// Leaves a thread behind whose tool has not returned, until it does. What it gives then is dropped.
    pub fn abandon<T: Send + 'static>(&self, tool: String, thread: JoinHandle<T>) {
        let count = self.abandoned.fetch_add(1, Ordering::AcqRel) + 1;
        tracing::error!(
            tool,
            count,
            max = ABANDONED_MAX,
            "a tool blocks its thread beyond its time"
        );
        let abandoned = Arc::clone(&self.abandoned);
        self.runtime.spawn(async move {
            let _ = thread.await;
            let count = abandoned.fetch_sub(1, Ordering::AcqRel) - 1;
            tracing::warn!(tool, count, "a tool has given its thread back");
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn abandoned_threads_are_counted_up_to_the_bound() {
        let threads = Threads::new(Handle::current());
        let never = || tokio::spawn(std::future::pending::<()>());
        (0..ABANDONED_MAX - 1).for_each(|_| threads.abandon("t".into(), never()));
        assert!(!threads.are_used_up());
        threads.clone().abandon("t".into(), never());
        assert!(threads.are_used_up());
    }
}
