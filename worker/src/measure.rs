//! The worker's metrics. Labels come from closed sets: pool, tool, outcome, currency.

use crate::runner::threads::Threads;
use crate::slot::Slots;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use toolfleet_io::health::Health;
use toolfleet_io::metrics::{bytes_histogram, meter, seconds_histogram};
use toolfleet_proto::money::NANO_PER_UNIT;

/// The currency of amounts whose own is not three capital letters.
const CURRENCY_OTHER: &str = "other";

/// What a worker makes anew where no jobs come.
const SUPPLY_KINDS: [&str; 3] = ["consumer", "pulls", "connection"];

/// Instruments of a worker of one pool. Clones share them.
#[derive(Clone)]
pub struct Measures {
    meter: Meter,
    pool: [KeyValue; 1],
    claimed: Counter<u64>,
    finished: Counter<u64>,
    redelivered: Counter<u64>,
    leases_acquired: Counter<u64>,
    leases_contended: Counter<u64>,
    leases_lost: Counter<u64>,
    lease_renew: Histogram<f64>,
    supply_mended: Counter<u64>,
    drain: Histogram<f64>,
    drain_forced: Counter<u64>,
    queue_wait: Histogram<f64>,
    cancel_delivery: Histogram<f64>,
    run: Histogram<f64>,
    tried_again: Counter<u64>,
    result: Histogram<u64>,
    truncated: Counter<u64>,
    spend: Counter<f64>,
    reload: Gauge<u64>,
}

impl Measures {
    /// Makes the instruments; after telemetry has started.
    pub fn new(pool: &str) -> Measures {
        let meter = meter("worker");
        let pool = [KeyValue::new("pool", pool.to_owned())];
        let counter = |name: &'static str, what: &'static str| {
            meter.u64_counter(name).with_description(what).build()
        };
        // There from zero on: a series that begins with its first event shows no rise.
        let from_zero = |name: &'static str, what: &'static str| {
            let counter = counter(name, what);
            counter.add(0, &pool);
            counter
        };
        let seconds =
            |name: &'static str, what: &'static str| seconds_histogram(&meter, name, what);
        Measures {
            claimed: from_zero("toolfleet_jobs_claimed", "jobs that were claimed to be run"),
            finished: counter("toolfleet_jobs_finished", "results stored, by outcome"),
            redelivered: from_zero(
                "toolfleet_jobs_redelivered",
                "deliveries of a job that was in hand or done",
            ),
            leases_acquired: from_zero("toolfleet_leases_acquired", "leases that were granted"),
            leases_contended: from_zero(
                "toolfleet_leases_contended",
                "deliveries whose lease another claim held",
            ),
            leases_lost: from_zero(
                "toolfleet_leases_lost",
                "leases that could not be proved any more",
            ),
            lease_renew: seconds("toolfleet_lease_renew", "one round trip that renews leases"),
            supply_mended: {
                let counter =
                    counter("toolfleet_supply_mended", "what was made anew because no jobs came");
                for kind in SUPPLY_KINDS {
                    counter.add(0, &[pool[0].clone(), KeyValue::new("kind", kind)]);
                }
                counter
            },
            drain: seconds("toolfleet_drain", "from the start of a drain to its end"),
            drain_forced: from_zero("toolfleet_drain_forced", "calls cut by the end of a drain"),
            queue_wait: seconds(
                "toolfleet_job_queue_wait",
                "from submission to the start of an attempt",
            ),
            cancel_delivery: seconds(
                "toolfleet_cancel_delivery",
                "from the request to cancel a call to its running tool's signal",
            ),
            run: seconds("toolfleet_job_run", "from the tool's start to its end"),
            tried_again: counter(
                "toolfleet_job_retries",
                "further tries of a tool inside an attempt, after a passing failure",
            ),
            result: bytes_histogram(&meter, "toolfleet_result", "size of results before the bound"),
            truncated: counter("toolfleet_results_truncated", "results that were cut"),
            spend: meter
                .f64_counter("toolfleet_spend")
                .with_description("spend recorded, in units of its currency")
                .build(),
            reload: meter
                .u64_gauge("toolfleet_config_last_reload_successful")
                .with_description("whether the tools were read well the last time they changed")
                .build(),
            meter,
            pool,
        }
    }

    fn tool(&self, tool: &str) -> [KeyValue; 2] {
        let [pool] = self.pool.clone();
        [pool, KeyValue::new("tool", tool.to_owned())]
    }

    /// Shows slots, readiness and the drain from now on, as they are when the page is asked for.
    pub fn observe(&self, slots: Slots, health: Health, draining: CancellationToken) {
        let in_use = slots.clone();
        self.gauge("toolfleet_worker_slots", "slots of this worker", move || slots.total() as u64);
        self.gauge("toolfleet_worker_slots_used", "slots in use", move || in_use.used() as u64);
        self.gauge("toolfleet_worker_ready", "whether work may come", move || {
            u64::from(health.readyz().0)
        });
        self.gauge("toolfleet_worker_draining", "whether this worker drains", move || {
            u64::from(draining.is_cancelled())
        });
    }

    /// Shows the threads that tools in Rust keep beyond their time.
    pub fn observe_threads(&self, threads: Threads) {
        self.gauge(
            "toolfleet_tools_abandoned",
            "threads that tools keep beyond their time",
            move || threads.abandoned() as u64,
        );
    }

    fn gauge(
        &self,
        name: &'static str,
        what: &'static str,
        value: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        let pool = self.pool.clone();
        // The instrument itself need not be kept: its callback lives in the provider.
        let _ = self
            .meter
            .u64_observable_gauge(name)
            .with_description(what)
            .with_callback(move |observer| observer.observe(value(), &pool))
            .build();
    }

    /// A job was claimed to be run.
    pub fn claimed(&self) {
        self.claimed.add(1, &self.pool);
    }

    /// A cancel has reached a running tool, so many milliseconds after it was asked for.
    pub fn cancel_delivered(&self, after_ms: i64) {
        let after = Duration::from_millis(u64::try_from(after_ms).unwrap_or(0));
        self.cancel_delivery.record(after.as_secs_f64(), &self.pool);
    }

    /// A lease was granted, whatever became of the job.
    pub fn lease_acquired(&self) {
        self.leases_acquired.add(1, &self.pool);
    }

    /// Another claim held the lease.
    pub fn lease_contended(&self) {
        self.leases_contended.add(1, &self.pool);
    }

    /// A lease was lost.
    pub fn lease_lost(&self) {
        self.leases_lost.add(1, &self.pool);
    }

    /// A renewal took so long, answered or not.
    pub fn renewed(&self, took: Duration) {
        self.lease_renew.record(took.as_secs_f64(), &self.pool);
    }

    /// A job came that was in hand or done.
    pub fn redelivered(&self) {
        self.redelivered.add(1, &self.pool);
    }

    /// No jobs came, and this was made anew: `consumer`, `pulls` or `connection`.
    pub fn supply_mended(&self, kind: &'static str) {
        let [pool] = self.pool.clone();
        self.supply_mended.add(1, &[pool, KeyValue::new("kind", kind)]);
    }

    /// The drain cut so many calls.
    pub fn drain_forced(&self, calls: usize) {
        self.drain_forced.add(calls as u64, &self.pool);
    }

    /// The drain is over and took so long.
    pub fn drained(&self, took: Duration) {
        self.drain.record(took.as_secs_f64(), &self.pool);
    }

    /// An attempt starts.
    pub fn started(&self, queue_wait: Duration) {
        self.queue_wait.record(queue_wait.as_secs_f64(), &self.pool);
    }

    /// A result of ours is stored. `tool` is one that this worker has; `outcome` is `ok` or a code.
    pub fn finished(
        &self,
        tool: &str,
        outcome: &'static str,
        run: Option<Duration>,
        whole_bytes: u64,
        is_truncated: bool,
    ) {
        let [pool, of] = self.tool(tool);
        self.finished.add(1, &[pool, of, KeyValue::new("outcome", outcome)]);
        self.result.record(whole_bytes, &self.pool);
        if let Some(run) = run {
            self.run.record(run.as_secs_f64(), &self.tool(tool));
        }
        if is_truncated {
            self.truncated.add(1, &self.tool(tool));
        }
    }

    /// A tool that failed for a passing cause is tried again. `tool` is one that this worker has.
    pub fn tried_again(&self, tool: &str) {
        self.tried_again.add(1, &self.tool(tool));
    }

    /// A spend record is stored. `tool` is one that this worker has.
    pub fn spent(&self, tool: &str, currency: &str, amount_nano: i64) {
        let is_code = currency.len() == 3 && currency.bytes().all(|b| b.is_ascii_uppercase());
        let currency = if is_code { currency } else { CURRENCY_OTHER };
        let [pool, tool] = self.tool(tool);
        let labels = [pool, tool, KeyValue::new("currency", currency.to_owned())];
        self.spend.add(amount_nano as f64 / NANO_PER_UNIT as f64, &labels);
    }

    /// The tools were read anew, well or not.
    pub fn reloaded(&self, is_successful: bool) {
        self.reload.record(u64::from(is_successful), &self.pool);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolfleet_io::config::Telemetry;
    use toolfleet_io::{metrics, telemetry};

    fn touch(measures: &Measures) {
        let (health, draining) = (Health::new(), CancellationToken::new());
        health.started();
        health.set_ready(true);
        measures.observe(Slots::new(3), health, draining.clone());
        draining.cancel();
        measures.claimed();
        measures.lease_acquired();
        measures.lease_contended();
        measures.renewed(Duration::from_millis(15));
        measures.supply_mended("pulls");
        measures.drain_forced(2);
        measures.drained(Duration::from_secs(4));
        measures.started(Duration::from_millis(300));
        measures.finished("search", "timed_out", Some(Duration::from_secs(1)), 2_000, true);
        measures.tried_again("search");
        measures.spent("search", "USD", 2_500_000);
        measures.spent("search", "USD", 1_000_000_000);
        measures.spent("search", "pounds, shillings", 1);
        measures.reloaded(false);
    }

    /// The only test of this crate that starts telemetry: it is the process'.
    #[test]
    fn every_instrument_is_on_the_page() {
        let config = Telemetry { log: "off".into(), ..Telemetry::default() };
        let _handle = telemetry::start("toolfleet-worker", "instance-1", &config).unwrap();
        touch(&Measures::new("gpu"));
        let page = metrics::render();
        for line in [
            "toolfleet_jobs_claimed_total{pool=\"gpu\"} 1",
            "toolfleet_jobs_finished_total{outcome=\"timed_out\",pool=\"gpu\",tool=\"search\"} 1",
            "toolfleet_jobs_redelivered_total{pool=\"gpu\"} 0",
            "toolfleet_leases_acquired_total{pool=\"gpu\"} 1",
            "toolfleet_leases_contended_total{pool=\"gpu\"} 1",
            "toolfleet_leases_lost_total{pool=\"gpu\"} 0",
            "toolfleet_lease_renew_seconds_bucket{pool=\"gpu\",le=\"0.02\"} 1",
            "toolfleet_supply_mended_total{kind=\"pulls\",pool=\"gpu\"} 1",
            "toolfleet_supply_mended_total{kind=\"consumer\",pool=\"gpu\"} 0",
            "toolfleet_drain_seconds_count{pool=\"gpu\"} 1",
            "toolfleet_drain_forced_total{pool=\"gpu\"} 2",
            "toolfleet_job_queue_wait_seconds_count{pool=\"gpu\"} 1",
            "toolfleet_job_run_seconds_sum{pool=\"gpu\",tool=\"search\"} 1",
            "toolfleet_job_retries_total{pool=\"gpu\",tool=\"search\"} 1",
            "toolfleet_result_bytes_sum{pool=\"gpu\"} 2000",
            "toolfleet_results_truncated_total{pool=\"gpu\",tool=\"search\"} 1",
            "toolfleet_spend_total{currency=\"USD\",pool=\"gpu\",tool=\"search\"} 1.0025",
            "toolfleet_config_last_reload_successful{pool=\"gpu\"} 0",
            "toolfleet_worker_slots{pool=\"gpu\"} 3",
            "toolfleet_worker_slots_used{pool=\"gpu\"} 0",
            "toolfleet_worker_ready{pool=\"gpu\"} 1",
            "toolfleet_worker_draining{pool=\"gpu\"} 1",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
        }
        assert!(page.contains("currency=\"other\"") && !page.contains("shillings"), "{page}");
        assert!(page.contains("toolfleet_build_info{component=\"toolfleet-worker\""), "{page}");
    }
}
