//! The admin port: `/livez /readyz /startupz /metrics`, on an OS thread of its own, so that a busy
//! job runtime does not fail a probe.
//!
//! Liveness asks only whether the process' own loop still beats: nothing about NATS, Redis or the
//! length of a job, which a restart cannot mend.

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Instant;

/// A heartbeat older than this is that of a loop that hangs, in milliseconds.
pub const HEARTBEAT_AGE_MS_MAX: u64 = 30_000;
/// A longer detail of a check is cut, in bytes.
pub const DETAIL_BYTES_MAX: usize = 512;

/// The clock of heartbeats: milliseconds since it was first asked. Does not go back.
pub fn now_ms() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The state behind the probes. Clones share it.
#[derive(Clone, Debug)]
pub struct Health {
    state: Arc<Condition>,
}

#[derive(Debug)]
struct Condition {
    started: AtomicBool,
    ready: AtomicBool,
    draining: AtomicBool,
    beat_ms: AtomicU64,
    checks: Mutex<BTreeMap<&'static str, Check>>,
}

#[derive(Debug)]
struct Check {
    ok: bool,
    detail: String,
}

impl Default for Health {
    fn default() -> Self {
        Health::new()
    }
}

impl Health {
    /// Not started and not ready. The first heartbeat is now.
    pub fn new() -> Health {
        Health {
            state: Arc::new(Condition {
                started: AtomicBool::new(false),
                ready: AtomicBool::new(false),
                draining: AtomicBool::new(false),
                beat_ms: AtomicU64::new(now_ms()),
                checks: Mutex::default(),
            }),
        }
    }

    /// The start is over. From now on the heartbeat is watched; this call is one.
    pub fn started(&self) {
        self.beat(now_ms());
        self.state.started.store(true, Ordering::Release);
    }

    /// Whether work may come. The process says no only before its first contact with its stores,
    /// not each time that one is away: all replicas would vanish at once.
    pub fn set_ready(&self, ready: bool) {
        self.state.ready.store(ready, Ordering::Release);
    }

    /// The process drains: not ready from now on, for good.
    pub fn draining(&self) {
        self.state.draining.store(true, Ordering::Release);
    }

    /// The loop is alive at `now_ms`, by the clock of [`now_ms`]. An older beat than the last is
    /// ignored.
    pub fn beat(&self, now_ms: u64) {
        self.state.beat_ms.fetch_max(now_ms, Ordering::AcqRel);
    }

    /// The last state of a named part. One that is not ok makes the process unready; its `detail`
    /// is for people, must hold no secret, and is cut at [`DETAIL_BYTES_MAX`].
    pub fn set_check(&self, name: &'static str, ok: bool, mut detail: String) {
        detail.truncate(detail.floor_char_boundary(DETAIL_BYTES_MAX));
        let mut checks = self.state.checks.lock().unwrap_or_else(PoisonError::into_inner);
        checks.insert(name, Check { ok, detail });
    }

    /// Whether the start is over.
    pub fn startupz(&self) -> bool {
        self.state.started.load(Ordering::Acquire)
    }

    /// Whether the heartbeat is younger than [`HEARTBEAT_AGE_MS_MAX`] at `now_ms`. True until the
    /// start is over, which has a probe of its own.
    pub fn livez(&self, now_ms: u64) -> bool {
        let age_ms = now_ms.saturating_sub(self.state.beat_ms.load(Ordering::Acquire));
        !self.startupz() || age_ms < HEARTBEAT_AGE_MS_MAX
    }

    /// Whether work may come, and why not: each check with its last state.
    pub fn readyz(&self) -> (bool, Value) {
        let started = self.startupz();
        let draining = self.state.draining.load(Ordering::Acquire);
        let asked = self.state.ready.load(Ordering::Acquire);
        let checks = self.state.checks.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = asked && started && !draining && checks.values().all(|check| check.ok);
        let entry = |(name, check): (&&str, &Check)| {
            ((*name).to_owned(), json!({ "ok": check.ok, "detail": check.detail }))
        };
        let checks: serde_json::Map<String, Value> = checks.iter().map(entry).collect();
        let body = json!({
            "ready": ready, "started": started, "draining": draining, "checks": checks,
        });
        (ready, body)
    }
}

/// The routes of the admin port: 200 for yes, 503 for no.
pub fn router(health: Health) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/startupz", get(startupz))
        .route("/metrics", get(metrics))
        .with_state(health)
}

/// Binds `addr` and answers on a thread of its own until the process ends. Returns the bound
/// address.
///
/// Errors are those of binding and of starting the thread; all are known when this returns.
pub fn serve_on_own_thread(addr: SocketAddr, health: Health) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(addr)?;
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    let (ready, wait) = mpsc::sync_channel(1);
    // The runtime is built where it is dropped: dropping one inside another would panic.
    let run = move || match prepare(listener) {
        Ok((runtime, listener)) => {
            let _ = ready.send(Ok(()));
            let ended = runtime.block_on(async { axum::serve(listener, router(health)).await });
            if let Err(error) = ended {
                tracing::error!(%error, "the admin port stopped");
            }
        }
        Err(error) => {
            let _ = ready.send(Err(error));
        }
    };
    thread::Builder::new().name("admin".into()).spawn(run)?;
    wait.recv().map_err(|_| io::Error::other("the admin thread ended early"))??;
    Ok(bound)
}

fn prepare(
    listener: TcpListener,
) -> io::Result<(tokio::runtime::Runtime, tokio::net::TcpListener)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    Ok((runtime, listener))
}

async fn livez(State(health): State<Health>) -> Response {
    verdict(health.livez(now_ms()))
}

async fn startupz(State(health): State<Health>) -> Response {
    verdict(health.startupz())
}

async fn readyz(
    State(health): State<Health>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    let (ready, body) = health.readyz();
    if !query.contains_key("verbose") {
        return verdict(ready);
    }
    (status(ready), axum::Json(body)).into_response()
}

async fn metrics() -> Response {
    ([(header::CONTENT_TYPE, crate::metrics::PAGE_TYPE)], crate::metrics::render()).into_response()
}

fn verdict(yes: bool) -> Response {
    (status(yes), if yes { "ok\n" } else { "no\n" }).into_response()
}

fn status(yes: bool) -> StatusCode {
    if yes { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn ready() -> Health {
        let health = Health::new();
        health.started();
        health.set_ready(true);
        health
    }

    #[test]
    fn only_an_old_heartbeat_after_the_start_fails_liveness() {
        let health = Health::new();
        let later = now_ms() + 1_000_000;
        assert!(health.livez(later), "the start has a probe of its own");
        health.started();
        assert!(!health.livez(later));
        health.beat(later);
        health.beat(later - 500_000);
        assert!(health.livez(later - 10), "a clock that is read late is no fault");
        assert!(health.livez(later + HEARTBEAT_AGE_MS_MAX - 1));
        assert!(!health.livez(later + HEARTBEAT_AGE_MS_MAX));
        health.set_check("nats", false, "away".into());
        health.draining();
        assert!(health.livez(later), "neither the broker nor a drain is a matter of life");
    }

    #[test]
    fn readiness_needs_the_start_the_word_and_every_check() {
        let health = Health::new();
        health.set_ready(true);
        assert!(!health.readyz().0, "not started");
        health.started();
        assert!(health.readyz().0);
        health.set_check("redis", true, String::new());
        health.set_check("nats", false, "no route".into());
        let (ready, body) = health.readyz();
        assert!(!ready);
        assert_eq!(body["checks"]["nats"], json!({ "ok": false, "detail": "no route" }));
        assert_eq!(body["checks"]["redis"]["ok"], json!(true));
        health.set_check("nats", true, String::new());
        assert!(health.readyz().0);
        health.draining();
        health.set_ready(true);
        assert!(!health.readyz().0, "a drain is for good");
    }

    #[test]
    fn a_long_detail_is_cut_at_a_character() {
        let health = ready();
        health.set_check("nats", true, "é".repeat(DETAIL_BYTES_MAX) + "x");
        health.set_check("redis", true, "x".to_owned() + &"é".repeat(DETAIL_BYTES_MAX));
        let (_, body) = health.readyz();
        let length = |name: &str| body["checks"][name]["detail"].as_str().unwrap().len();
        assert_eq!((length("nats"), length("redis")), (DETAIL_BYTES_MAX, DETAIL_BYTES_MAX - 1));
    }

    fn ask(addr: SocketAddr, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_ascii_lowercase(), body.to_owned())
    }

    /// The runtime of this test has one thread, which the requests block: the answers come from
    /// another.
    #[tokio::test]
    async fn the_probes_answer_while_the_runtime_is_blocked() {
        let health = Health::new();
        let addr = serve_on_own_thread("127.0.0.1:0".parse().unwrap(), health.clone()).unwrap();
        let code = |path: &str| ask(addr, path).0[9..12].to_owned();
        assert_eq!((code("/livez"), code("/startupz")), ("200".into(), "503".into()));
        assert_eq!((code("/readyz"), code("/nothing")), ("503".into(), "404".into()));
        health.started();
        health.set_ready(true);
        assert_eq!((code("/startupz"), code("/readyz")), ("200".into(), "200".into()));

        health.set_check("nats", false, "away".into());
        let (head, body) = ask(addr, "/readyz?verbose");
        assert!(head.contains(" 503 ") && head.contains("application/json"), "{head}");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["checks"]["nats"]["detail"], json!("away"));
        assert_eq!(ask(addr, "/readyz").1, "no\n");

        let (head, _) = ask(addr, "/metrics");
        assert!(head.contains(" 200 ") && head.contains("text/plain; version=0.0.4"), "{head}");
    }

    #[test]
    fn an_address_in_use_is_an_error() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = serve_on_own_thread(taken.local_addr().unwrap(), ready()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
