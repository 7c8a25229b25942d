//! Keeps calls in flight for a while and takes their times.

use bytes::Bytes;
use reqwest::Client;
use serde::Deserialize;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long one call may take before it counts as lost.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after a lost call: a fleet that is gone is not to be hammered.
const LOST_PAUSE: Duration = Duration::from_millis(20);
/// Bytes of the text that each call carries.
const TEXT_BYTES: usize = 256;

/// A number of calls in flight, for a time.
pub(super) struct Load {
    client: Client,
    url: String,
    body: Bytes,
    in_flight: u32,
    warm_up: Duration,
    measured: Duration,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Times of the calls that began and ended within the measured time.
    pub(super) latencies_us: Vec<u64>,
    /// Calls without an answer that is well, warm-up included.
    pub(super) lost: u64,
}

/// The measured time.
#[derive(Clone, Copy, Debug)]
struct Window {
    from: Instant,
    to: Instant,
}

impl Taken {
    /// Takes one call in. A call on an edge of the window does not count.
    fn take(&mut self, window: Window, start: Instant, end: Instant, is_well: bool) {
        if !is_well {
            self.lost += 1;
        } else if start >= window.from && end <= window.to {
            self.latencies_us.push(u64::try_from((end - start).as_micros()).unwrap_or(u64::MAX));
        }
    }
}

impl Load {
    /// Calls of `bench-echo` at the API under `http`.
    ///
    /// # Errors
    /// Where there can be no client.
    pub(super) fn new(
        http: &str,
        in_flight: u32,
        warm_up: Duration,
        measured: Duration,
    ) -> Result<Load, reqwest::Error> {
        // The fleet is on this machine; a proxy of the environment has no part in this.
        let client = Client::builder()
            .no_proxy()
            .pool_max_idle_per_host(in_flight as usize)
            .timeout(CALL_TIMEOUT)
            .build()?;
        let body =
            Bytes::from(format!("{{\"input\":{{\"text\":\"{}\"}}}}", "x".repeat(TEXT_BYTES)));
        let url = format!("{http}/v1/tools/bench-echo/call");
        Ok(Load { client, url, body, in_flight, warm_up, measured })
    }

    /// Runs it. `mark` is called when the warm-up is over; what it gave comes back with what was taken.
    pub(super) async fn run<T>(&self, mark: impl FnOnce() -> T) -> (Taken, T) {
        let start = Instant::now();
        let from = start + self.warm_up;
        let window = Window { from, to: from + self.measured };
        let mut callers = JoinSet::new();
        for _ in 0..self.in_flight {
            callers.spawn(keep_calling(
                self.client.clone(),
                self.url.clone(),
                self.body.clone(),
                window,
            ));
        }
        tokio::time::sleep_until(from).await;
        let marked = mark();
        let mut all = Taken::default();
        while let Some(taken) = callers.join_next().await {
            // A caller that broke down lost its call.
            let taken = taken.unwrap_or(Taken { latencies_us: Vec::new(), lost: 1 });
            all.latencies_us.extend(taken.latencies_us);
            all.lost += taken.lost;
        }
        (all, marked)
    }
}

/// One call after the other until the window is over.
async fn keep_calling(client: Client, url: String, body: Bytes, window: Window) -> Taken {
    let mut taken = Taken::default();
    loop {
        let start = Instant::now();
        if start >= window.to {
            return taken;
        }
        let is_well = call(&client, &url, body.clone()).await;
        taken.take(window, start, Instant::now(), is_well);
        if !is_well {
            tokio::time::sleep(LOST_PAUSE).await;
        }
    }
}

/// Whether the answer came and is well.
async fn call(client: &Client, url: &str, body: Bytes) -> bool {
    let request = client.post(url).header("content-type", "application/json").body(body);
    let Ok(response) = request.send().await else { return false };
    let is_success = response.status().is_success();
    response.bytes().await.is_ok_and(|text| is_success && is_well(&text))
}

fn is_well(answer: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Answer {
        ok: bool,
    }
    serde_json::from_slice::<Answer>(answer).is_ok_and(|answer| answer.ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_that_is_well_counts() {
        assert!(is_well(br#" {"ok":true,"result":{"text":"x"}}"#));
        assert!(!is_well(br#"{"ok":false}"#));
        assert!(!is_well(br#"{"state":"queued"}"#));
        assert!(!is_well(b""));
    }

    #[test]
    fn calls_on_the_edges_do_not_count_and_lost_ones_always_do() {
        let from = Instant::now();
        let window = Window { from, to: from + Duration::from_secs(1) };
        let at = |ms| from + Duration::from_millis(ms);
        let mut taken = Taken::default();
        taken.take(window, at(10), at(15), true);
        taken.take(window, at(990), at(1_010), true);
        taken.take(window, at(1_010), at(1_020), false);
        assert_eq!((taken.latencies_us.as_slice(), taken.lost), ([5_000].as_slice(), 1));
    }
}
