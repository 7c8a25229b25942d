//! Hosts whose clocks are ten minutes apart, and clocks that are set in the middle of a call (case E10):
//! nothing is taken over, refused, or ended early or late.

use crate::asked::{SOON, fleet};
use crate::links::{call, name, ran_once};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use toolfleet_tests::{Fleet, fleet_turn};

/// Shifts the time of day of a process by the seconds that a file holds, while it holds them.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t shift(void) {
    static volatile int64_t *seconds;
    if (!seconds) {
        const char *path = getenv("SKEW_FILE");
        int file = path ? open(path, O_RDONLY) : -1;
        if (file < 0) return 0;
        void *page = mmap(0, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
        close(file);
        if (page == MAP_FAILED) return 0;
        seconds = page;
    }
    return *seconds;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, id, now);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    int failed = syscall(SYS_gettimeofday, now, zone);
    if (!failed && now) now->tv_sec += shift();
    return failed;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"#;

const TEN_MINUTES: i64 = 600;

/// The clock of one process.
struct Clock(PathBuf);

impl Clock {
    fn set(&self, seconds: i64) {
        use std::os::unix::fs::FileExt as _;
        let file = fs::File::options().write(true).create(true).truncate(false).open(&self.0);
        file.unwrap().write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
    }
}

/// The shim, compiled; `None`: there is no C compiler here, which was said.
fn shim(dir: &Path) -> Option<PathBuf> {
    let (source, library) = (dir.join("skew.c"), dir.join("skew.so"));
    fs::write(&source, SHIM).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
    match compiler.output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(library)
        }
        Err(error) => {
            eprintln!("skipped: clocks cannot be set without a C compiler: {error}");
            None
        }
    }
}

fn now_ms() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// Two coordinators and two workers, one of each ahead and one behind.
struct Skewed {
    fleet: Fleet,
    clocks: [(&'static str, Clock, i64); 4],
    _dir: tempfile::TempDir,
}

impl Skewed {
    async fn start() -> Option<Skewed> {
        let dir = tempfile::tempdir().unwrap();
        // Compiling beside three fleets would starve their clocks.
        let turn = fleet_turn().await.unwrap();
        let library = shim(dir.path())?;
        drop(turn);
        let names = [
            ("coordinator-0", TEN_MINUTES),
            ("coordinator-1", -TEN_MINUTES),
            ("worker-0", TEN_MINUTES),
            ("worker-1", -TEN_MINUTES),
        ];
        let clocks = names.map(|(name, shift)| (name, Clock(dir.path().join(name)), shift));
        let slow = "effect = \"read\"\ntimeout = \"1s\"";
        let mut builder = fleet()
            .coordinators(2)
            .workers(2)
            .slots(1)
            .exec_tool("slow", slow, "sleep 20")
            // Another's lease is judged by the store's clock, never by one's own setting.
            .env_of("worker-1", "TOOLFLEET_LIMITS__LEASE_TTL", "2500ms");
        for (name, clock, shift) in &clocks {
            clock.set(*shift);
            builder = builder.env_of(name, "LD_PRELOAD", library.to_string_lossy()).env_of(
                name,
                "SKEW_FILE",
                clock.0.to_string_lossy(),
            );
        }
        Some(Skewed { fleet: builder.start().await.unwrap(), clocks, _dir: dir })
    }

    /// What is stored of a call has times of the one clock that counts.
    async fn check_times(&self, id: &str, slept_ms: i64, within_ms: i64) {
        let result = self.fleet.result(&name(id)).await.unwrap();
        let attempt = result.attempt.clone().unwrap();
        let now_ms = now_ms();
        for at_ms in [result.submitted_at_ms, attempt.started_at_ms, attempt.ended_at_ms] {
            assert!((now_ms - at_ms).abs() < 30_000, "{id}: {at_ms}, and now it is {now_ms}");
        }
        let took_ms = result.duration_ms;
        assert!((slept_ms..slept_ms + within_ms).contains(&took_ms), "{id}: took {took_ms} ms");
        let span_ms = attempt.ended_at_ms - attempt.started_at_ms;
        assert!((span_ms - took_ms).abs() < 3_000, "{id}: {span_ms} ms from its start to its end");
        assert!((0..20_000).contains(&result.queued_ms), "{id}: queued {} ms", result.queued_ms);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_that_are_ten_minutes_apart_agree_on_every_call() {
    if !cfg!(target_os = "linux") {
        eprintln!("skipped: clocks can be set under Linux only");
        return;
    }
    let Some(skewed) = Skewed::start().await else { return };
    let fleet = &skewed.fleet;
    // Longer than a lease, on both workers at once: each could take the other's.
    let ids = ["a", "b"];
    let calls = ids.map(|id| call(fleet, "nap-write", id, 4_500));
    for (_, ledger) in &calls {
        ledger.started(1, SOON).await.unwrap();
    }
    // One that waits meanwhile, through the other coordinator.
    let (http, queued) = (fleet.http(1).unwrap(), fleet.ledger("queued"));
    let input = crate::asked::nap(10, &queued);
    let waiting =
        tokio::spawn(async move { http.call_as("nap-write", "links", "queued", input).await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    // Every clock is set, to where the other one was.
    for (_, clock, shift) in &skewed.clocks {
        clock.set(-shift);
    }
    for (id, call) in ids.iter().zip(calls) {
        ran_once(fleet, id, call).await;
        skewed.check_times(id, 4_500, 6_000).await;
    }
    let call = tokio::spawn(async move { waiting.await.unwrap() });
    ran_once(fleet, "queued", (call, queued)).await;
    skewed.check_times("queued", 10, 5_000).await;

    // A timeout is a timeout, on each of them.
    for (coordinator, id) in [(0, "slow-0"), (1, "slow-1")] {
        let http = fleet.http(coordinator).unwrap();
        let since = Instant::now();
        let answer = http.call_as("slow", "links", id, json!({})).await.unwrap();
        let body = crate::asked::failed(&answer, "timed_out");
        assert_eq!(body["text"], "Tool error: timed out after 1 s");
        assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
        skewed.check_times(id, 1_000, 5_000).await;
    }
}
