//! The worker's metrics. Labels come from closed sets: pool, tool, outcome.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge, Histogram};
use std::time::Duration;
use toolfleet_io::metrics::{bytes_histogram, meter, seconds_histogram};

/// Instruments of a worker of one pool.
pub struct Measures {
    pool: String,
    claimed: Counter<u64>,
    contended: Counter<u64>,
    finished: Counter<u64>,
    redelivered: Counter<u64>,
    leases_lost: Counter<u64>,
    drain_forced: Counter<u64>,
    queue_wait: Histogram<f64>,
    run: Histogram<f64>,
    result: Histogram<u64>,
    truncated: Counter<u64>,
    slots: Gauge<u64>,
    slots_used: Gauge<u64>,
}

impl Measures {
    /// Makes the instruments; after telemetry has started.
    pub fn new(pool: &str) -> Measures {
        let meter = meter("worker");
        let counter = |name: &'static str, what: &'static str| {
            meter.u64_counter(name).with_description(what).build()
        };
        let gauge =
            |name: &'static str, what: &'static str| meter.u64_gauge(name).with_description(what).build();
        Measures {
            pool: pool.to_owned(),
            claimed: counter("toolfleet_jobs_claimed", "jobs whose lease was granted"),
            contended: counter("toolfleet_leases_contended", "deliveries whose lease another claim held"),
            finished: counter("toolfleet_jobs_finished", "results stored, by outcome"),
            redelivered: counter("toolfleet_jobs_redelivered", "deliveries of a job that was in hand or done"),
            leases_lost: counter("toolfleet_leases_lost", "leases that could not be proved any more"),
            drain_forced: counter("toolfleet_drain_forced", "calls cut by the end of a drain"),
            queue_wait: seconds_histogram(&meter, "toolfleet_job_queue_wait", "from submission to the start of an attempt"),
            run: seconds_histogram(&meter, "toolfleet_job_run", "from the tool's start to its end"),
            result: bytes_histogram(&meter, "toolfleet_result", "size of results before the bound"),
            truncated: counter("toolfleet_results_truncated", "results that were cut"),
            slots: gauge("toolfleet_worker_slots", "slots of this worker"),
            slots_used: gauge("toolfleet_worker_slots_used", "slots in use"),
        }
    }

    fn pool(&self) -> [KeyValue; 1] {
        [KeyValue::new("pool", self.pool.clone())]
    }

    fn tool(&self, tool: &str) -> [KeyValue; 2] {
        [KeyValue::new("pool", self.pool.clone()), KeyValue::new("tool", tool.to_owned())]
    }

    /// A lease was granted.
    pub fn claimed(&self) {
        self.claimed.add(1, &self.pool());
    }

    /// Another claim held the lease.
    pub fn contended(&self) {
        self.contended.add(1, &self.pool());
    }

    /// A job came that was in hand or done.
    pub fn redelivered(&self) {
        self.redelivered.add(1, &self.pool());
    }

    /// A lease was lost.
    pub fn lease_lost(&self) {
        self.leases_lost.add(1, &self.pool());
    }

    /// The drain cut so many calls.
    pub fn drain_forced(&self, calls: usize) {
        self.drain_forced.add(calls as u64, &self.pool());
    }

    /// An attempt starts.
    pub fn started(&self, queue_wait: Duration) {
        self.queue_wait.record(queue_wait.as_secs_f64(), &self.pool());
    }

    /// A result of ours is stored. `outcome` is `ok` or a code.
    pub fn finished(&self, tool: &str, outcome: &'static str, run: Option<Duration>, whole_bytes: u64, is_truncated: bool) {
        let labels = [
            KeyValue::new("pool", self.pool.clone()),
            KeyValue::new("tool", tool.to_owned()),
            KeyValue::new("outcome", outcome),
        ];
        self.finished.add(1, &labels);
        self.result.record(whole_bytes, &self.pool());
        if let Some(run) = run {
            self.run.record(run.as_secs_f64(), &self.tool(tool));
        }
        if is_truncated {
            self.truncated.add(1, &self.tool(tool));
        }
    }

    /// Slots, all and in use.
    pub fn slots(&self, total: usize, used: usize) {
        self.slots.record(total as u64, &self.pool());
        self.slots_used.record(used as u64, &self.pool());
    }
}
