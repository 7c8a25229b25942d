//! Redis: who may run a call now (DESIGN 4). Safety never rests on it alone.

mod answer;
mod error;
mod fitness;
mod line;
mod primary;

use crate::broker::without_password;
use crate::clock::{FleetClock, boot_ms, host_ms};
use crate::config;
use answer::read_claim;
pub use error::Error;
use error::{error_counter, error_kind};
use fitness::check_info;
use line::Line;
use opentelemetry::KeyValue;
use opentelemetry::metrics::Counter;
use primary::Primary;
use redis::aio::ConnectionManagerConfig;
use redis::{RedisError, Script, Value};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use toolfleet_proto::lease::{self, Acquired, Holder, Mark, Renewed, Stopped};
use toolfleet_proto::limit::{DONE_MARKER_MS, Limits};
use toolfleet_proto::name::CallName;
use toolfleet_proto::topology::Prefix;
use toolfleet_proto::wire::AttemptRecord;

/// An answer later than this counts as silence: half the time between two renewals, so that one that
/// goes unanswered leaves time for others before the lease is over; at most a second, which a store on
/// another continent keeps to.
pub fn response_timeout(limits: &Limits) -> Duration {
    Duration::from_millis((limits.lease_renew_ms / 2).clamp(250, 1_000))
}

/// How long a start waits for a store.
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);

/// What a claim asks of the store.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Take the lease for this claim; `span` is the attempt's, for the next one to link to.
    Acquire {
        /// The claim's random id.
        claim: String,
        /// The attempt's span.
        span: String,
    },
    /// The tool never started: lease and count go.
    GiveBack {
        /// The claim's random id.
        claim: String,
    },
    /// The tool was stopped before its end: the lease goes, the count stays.
    Release {
        /// The claim's random id.
        claim: String,
    },
    /// A result is stored: leave `done` behind.
    Done {
        /// The claim's random id.
        claim: String,
    },
    /// A cancel has reached the running tool.
    Delivered {
        /// The claim's random id.
        claim: String,
    },
    /// What the tool said last: kept with the attempt, should its worker be lost.
    Words {
        /// The claim's random id.
        claim: String,
        /// At most some hundred bytes.
        words: String,
    },
}

/// Which kind of stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopKind {
    /// Whoever holds it.
    Cancel,
    /// Only a call that nobody ever claimed: its queue timeout is over.
    Expire,
    /// Only a call that nobody holds: all its time is over.
    End,
}

/// A connection to the lease store. Clones share the connection.
#[derive(Clone)]
pub struct LeaseStore {
    line: Arc<Line>,
    scripts: Arc<Scripts>,
    prefix: Prefix,
    lease_ttl_ms: u64,
    retention_ms: u64,
    clock: FleetClock,
    errors: Counter<u64>,
}

struct Scripts {
    claim: Script,
    renew: Script,
    stop: Script,
}

impl LeaseStore {
    /// Connects, waiting up to 30 s for a server that is just starting, and checks that it is fit:
    /// one primary, version 7 or newer, no eviction.
    pub async fn connect(
        config: &config::Redis,
        prefix: Prefix,
        limits: &Limits,
        clock: FleetClock,
    ) -> Result<LeaseStore, Error> {
        let unreachable =
            |reason: String| Error::Unreachable { url: without_password(&config.url), reason };
        let mut primary = Primary::of(config).map_err(unreachable)?;
        let manager = ConnectionManagerConfig::new()
            .set_number_of_retries(1)
            .set_min_delay(Duration::from_millis(20))
            .set_max_delay(Duration::from_millis(200))
            .set_response_timeout(Some(response_timeout(limits)))
            // A connect takes two round trips, and two more with TLS.
            .set_connection_timeout(Some(response_timeout(limits) * 2));
        let until = tokio::time::Instant::now() + CONNECT_PATIENCE;
        let line = loop {
            let error = match Line::open(primary, manager.clone()).await {
                Ok(line) => break Arc::new(line),
                Err((asked, error)) => {
                    primary = asked;
                    error
                }
            };
            if tokio::time::Instant::now() >= until {
                return Err(unreachable(error.to_string()));
            }
            tracing::warn!(%error, "redis is not reachable yet");
            tokio::time::sleep(Duration::from_millis(300)).await;
        };
        tokio::spawn(Line::follow(Arc::downgrade(&line)));
        let store = LeaseStore {
            line,
            scripts: Arc::new(Scripts {
                claim: Script::new(include_str!("scripts/claim.lua")),
                renew: Script::new(include_str!("scripts/renew.lua")),
                stop: Script::new(include_str!("scripts/stop.lua")),
            }),
            prefix,
            lease_ttl_ms: limits.lease_ttl_ms,
            retention_ms: limits.retention_ms,
            clock,
            errors: error_counter(),
        };
        loop {
            match store.prepare(&config.url).await {
                Ok(()) => return Ok(store),
                // Slow for a moment, as one that is just starting is.
                Err(error @ (Error::Silent(_) | Error::Unreachable { .. }))
                    if tokio::time::Instant::now() < until =>
                {
                    tracing::warn!(%error, "redis does not answer in time yet");
                    tokio::time::sleep(Duration::from_millis(300)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn prepare(&self, url: &str) -> Result<(), Error> {
        self.check_fitness(url).await?;
        self.load_scripts().await?;
        self.measure_clock().await
    }

    /// Loads the scripts: the first claim and the first renewal would take three round trips instead of
    /// one, and from far away that is too long for a lease. A server that has forgotten them since is
    /// given them again with the next call.
    async fn load_scripts(&self) -> Result<(), Error> {
        let mut load = redis::pipe();
        for script in [&self.scripts.claim, &self.scripts.renew, &self.scripts.stop] {
            load.load_script(script).ignore();
        }
        load.exec_async(&mut self.line.get()).await.map_err(|error| self.silent(&error))
    }

    /// The fleet's clock, as this connection measures it.
    pub fn clock(&self) -> &FleetClock {
        &self.clock
    }

    /// Measures the server's clock against this host's.
    pub async fn measure_clock(&self) -> Result<(), Error> {
        let asked_ms = boot_ms();
        let answer = redis::cmd("TIME").query_async(&mut self.line.get()).await;
        self.line.heard(&answer);
        let (seconds, micros): (i64, i64) = answer.map_err(|error| self.silent(&error))?;
        self.clock.measured(seconds * 1_000 + micros / 1_000, asked_ms, boot_ms());
        Ok(())
    }

    /// Writes and reads back: a replica after a failover answers PING and refuses writes.
    pub async fn probe(&self, who: &str) -> Result<(), Error> {
        let key = format!("{}:ready:{who}", self.prefix.as_str());
        let stamp = host_ms().to_string();
        let answer = redis::pipe()
            .cmd("SET")
            .arg(&key)
            .arg(&stamp)
            .arg("PX")
            .arg(60_000)
            .ignore()
            .cmd("GET")
            .arg(&key)
            .query_async::<(String,)>(&mut self.line.get())
            .await;
        self.line.heard(&answer);
        let (back,) = answer.map_err(|error| self.silent(&error))?;
        if back == stamp {
            Ok(())
        } else {
            Err(Error::Unreadable("read back another value".into()))
        }
    }

    /// Performs operations in order, in one script: one answer for each, `None` for those that have
    /// none worth reading.
    ///
    /// On [`Error::Silent`] all of them may have taken effect, or may yet: send a give-back behind.
    pub async fn perform(
        &self,
        worker: &str,
        operations: &[(CallName, Operation)],
    ) -> Result<Vec<Option<Acquired>>, Error> {
        let mut invocation = self.scripts.claim.prepare_invoke();
        for (name, _) in operations {
            invocation
                .key(self.prefix.lease_key(name))
                .key(self.prefix.claims_key(name))
                .key(self.prefix.mark_key(name));
        }
        invocation.arg(self.lease_ttl_ms).arg(self.retention_ms).arg(DONE_MARKER_MS);
        for (_, operation) in operations {
            let (what, claim, span) = match operation {
                Operation::Acquire { claim, span } => ("acquire", claim, span.as_str()),
                Operation::GiveBack { claim } => ("give_back", claim, ""),
                Operation::Release { claim } => ("release", claim, ""),
                Operation::Done { claim } => ("done", claim, ""),
                Operation::Delivered { claim } => ("delivered", claim, ""),
                Operation::Words { claim, words } => ("words", claim, words.as_str()),
            };
            invocation.arg(what).arg(claim).arg(worker).arg(span);
        }
        let answers: Vec<Vec<Value>> = invocation
            .invoke_async(&mut self.line.get())
            .await
            .map_err(|error| self.silent(&error))?;
        answers.iter().map(|answer| read_claim(answer)).collect()
    }

    /// Renews leases, each given by the call's name and the holder as it was granted.
    pub async fn renew(&self, leases: &[(CallName, Holder)]) -> Result<Vec<Renewed>, Error> {
        let mut invocation = self.scripts.renew.prepare_invoke();
        invocation.arg(self.lease_ttl_ms);
        for (name, holder) in leases {
            invocation.key(self.prefix.lease_key(name)).key(self.prefix.mark_key(name));
            invocation.arg(holder.to_text());
        }
        let answers = invocation.invoke_async(&mut self.line.get()).await;
        self.line.heard(&answers);
        let answers: Vec<i64> = answers.map_err(|error| self.silent(&error))?;
        Ok(answers
            .into_iter()
            .map(|answer| Renewed { is_ours: answer & 1 == 1, is_marked: answer & 2 == 2 })
            .collect())
    }

    /// The attempts of a call that were not given back, in order, as far as the store remembers them:
    /// who claimed it and when, and what the tool said last.
    pub async fn attempts(&self, name: &CallName) -> Result<Vec<AttemptRecord>, Error> {
        let fields: HashMap<String, String> = redis::cmd("HGETALL")
            .arg(self.prefix.claims_key(name))
            .query_async(&mut self.line.get())
            .await
            .map_err(|error| self.silent(&error))?;
        Ok(lease::attempts(&fields))
    }

    /// Who holds a call's lease; `None`: nobody, or a result was stored a moment ago.
    pub async fn holder(&self, name: &CallName) -> Result<Option<Holder>, Error> {
        let text: Option<String> = redis::cmd("GET")
            .arg(self.prefix.lease_key(name))
            .query_async(&mut self.line.get())
            .await
            .map_err(|error| self.silent(&error))?;
        Ok(text.as_deref().and_then(Holder::read))
    }

    /// When a cancel reached the running tool, as far as the store remembers it.
    pub async fn cancel_delivered_ms(&self, name: &CallName) -> Result<Option<i64>, Error> {
        let text: Option<String> = redis::cmd("HGET")
            .arg(self.prefix.claims_key(name))
            .arg("c")
            .query_async(&mut self.line.get())
            .await
            .map_err(|error| self.silent(&error))?;
        Ok(text.and_then(|text| text.parse().ok()))
    }

    /// The mark of a call, where it has one.
    pub async fn read_mark(&self, name: &CallName) -> Result<Option<Mark>, Error> {
        let text: Option<String> = redis::cmd("GET")
            .arg(self.prefix.mark_key(name))
            .query_async(&mut self.line.get())
            .await
            .map_err(|error| self.silent(&error))?;
        Ok(text.as_deref().map(Mark::read))
    }

    /// CANCEL or EXPIRE: marks the call as [`StopKind`] says, and tells who holds it.
    pub async fn stop(
        &self,
        name: &CallName,
        kind: StopKind,
        mark: &Mark,
    ) -> Result<Stopped, Error> {
        let what = match kind {
            StopKind::Cancel => "cancel",
            StopKind::Expire => "expire",
            StopKind::End => "end",
        };
        let (held, claims, now_ms): (String, i64, i64) = self
            .scripts
            .stop
            .key(self.prefix.lease_key(name))
            .key(self.prefix.claims_key(name))
            .key(self.prefix.mark_key(name))
            .arg(what)
            .arg(mark.to_text())
            .arg(self.retention_ms)
            .invoke_async(&mut self.line.get())
            .await
            .map_err(|error| self.silent(&error))?;
        Ok(Stopped {
            holder: Holder::read(&held),
            is_done: held == "done",
            claims: u32::try_from(claims.max(0)).unwrap_or(u32::MAX),
            now_ms,
        })
    }

    /// Counts an error; whatever it says, the request may have taken effect.
    fn silent(&self, error: &RedisError) -> Error {
        let kind = error_kind(error);
        if kind == "readonly" {
            self.line.is_demoted();
        }
        self.errors.add(1, &[KeyValue::new("kind", kind)]);
        Error::Silent(error.to_string())
    }

    async fn check_fitness(&self, url: &str) -> Result<(), Error> {
        let info: String =
            redis::cmd("INFO").arg("everything").query_async(&mut self.line.get()).await.map_err(
                |error| Error::Unreachable {
                    url: without_password(url),
                    reason: error.to_string(),
                },
            )?;
        let unfit = |reason: String| Error::Unfit { url: without_password(url), reason };
        check_info(&info).map_err(unfit)
    }
}
