//! Waiting for results: announcements of stored results, one subscription for each execution that
//! somebody waits for (DESIGN 4.1 steps 1 and 4).

use futures::StreamExt as _;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{OnceCell, oneshot};
use tokio::task::AbortHandle;
use toolfleet_io::broker::{Broker, Error};
use toolfleet_proto::name::CallName;
use toolfleet_proto::wire::{self, CallResult};

/// What one subscription covers: an execution of its callers', or, where nobody knows the execution but
/// this one request, its single call. An exact subject costs the broker little; a wildcard that comes
/// and goes makes it look through what it has cached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Execution(String, String),
    Call(CallName),
}

/// Delivers announced results to those who wait. Clones share it.
#[derive(Clone)]
pub struct Deliver {
    broker: Broker,
    feeds: Arc<Mutex<HashMap<Key, Weak<Feed>>>>,
}

/// The announcements of one execution, while somebody waits for one of its calls.
struct Feed {
    waiters: Mutex<HashMap<CallName, Vec<oneshot::Sender<Arc<CallResult>>>>>,
    reader: OnceCell<AbortHandle>,
    key: Key,
    feeds: Arc<Mutex<HashMap<Key, Weak<Feed>>>>,
}

/// Somebody's wait for one result. Dropped, it waits no more.
pub struct Waiter {
    result: oneshot::Receiver<Arc<CallResult>>,
    /// Keeps the subscription.
    _feed: Arc<Feed>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Deliver {
    /// Delivers what is announced on this broker's connection.
    pub fn new(broker: Broker) -> Deliver {
        Deliver { broker, feeds: Arc::default() }
    }

    /// Begins to wait. When this returns, the subscription has gone out on the connection that
    /// publishes: a job published afterwards cannot be announced unheard, unless the connection breaks.
    ///
    /// # Errors
    /// Where the connection is closed.
    pub async fn wait(&self, name: &CallName) -> Result<Waiter, Error> {
        let key = Key::Execution(name.tenant.clone(), name.execution.clone());
        self.wait_on(name, key).await
    }

    /// The same for the only call of an execution that nobody else knows.
    ///
    /// # Errors
    /// Where the connection is closed.
    pub async fn wait_alone(&self, name: &CallName) -> Result<Waiter, Error> {
        self.wait_on(name, Key::Call(name.clone())).await
    }

    async fn wait_on(&self, name: &CallName, key: Key) -> Result<Waiter, Error> {
        let feed = self.feed(key);
        let (sender, result) = oneshot::channel();
        {
            let mut waiters = lock(&feed.waiters);
            let waiting = waiters.entry(name.clone()).or_default();
            // Those who gave up leave no trace behind.
            waiting.retain(|sender| !sender.is_closed());
            waiting.push(sender);
        }
        feed.reader.get_or_try_init(|| self.subscribe(&feed)).await?;
        Ok(Waiter { result, _feed: feed })
    }

    fn feed(&self, key: Key) -> Arc<Feed> {
        let mut feeds = lock(&self.feeds);
        if let Some(feed) = feeds.get(&key).and_then(Weak::upgrade) {
            return feed;
        }
        let feed = Arc::new(Feed {
            waiters: Mutex::default(),
            reader: OnceCell::new(),
            key: key.clone(),
            feeds: Arc::clone(&self.feeds),
        });
        feeds.insert(key, Arc::downgrade(&feed));
        feed
    }

    async fn subscribe(&self, feed: &Arc<Feed>) -> Result<AbortHandle, Error> {
        let prefix = self.broker.prefix().clone();
        let mut announced = self
            .broker
            .client()
            .subscribe(match &feed.key {
                Key::Execution(tenant, execution) => prefix.done_of_execution(tenant, execution),
                Key::Call(name) => prefix.done(name),
            })
            .await
            .map_err(|error| Error::Silent(error.to_string()))?;
        let feed = Arc::downgrade(feed);
        let reader = tokio::spawn(async move {
            while let Some(message) = announced.next().await {
                let Some(feed) = feed.upgrade() else { return };
                let Some(name) = prefix.call_of_done(&message.subject) else { continue };
                match wire::read_result(&message.payload) {
                    Ok(result) => feed.dispatch(&name, &Arc::new(result)),
                    Err(error) => {
                        tracing::warn!(call = %name, %error, "an announced result does not read");
                    }
                }
            }
        });
        Ok(reader.abort_handle())
    }
}

impl Feed {
    fn dispatch(&self, name: &CallName, result: &Arc<CallResult>) {
        for waiter in lock(&self.waiters).remove(name).unwrap_or_default() {
            let _ = waiter.send(Arc::clone(result));
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.get() {
            reader.abort();
        }
        let mut feeds = lock(&self.feeds);
        // Another feed may have taken the place already.
        if feeds.get(&self.key).is_some_and(|feed| feed.strong_count() == 0) {
            feeds.remove(&self.key);
        }
    }
}

impl Waiter {
    /// The announced result. Never ready where the announcement is lost. Cancel safe.
    pub async fn announced(&mut self) -> Arc<CallResult> {
        match (&mut self.result).await {
            Ok(result) => result,
            Err(_) => std::future::pending().await,
        }
    }
}
