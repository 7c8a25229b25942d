//! The coordinator's metrics. Labels come from closed sets: pool, outcome, reason.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram};
use std::time::Duration;
use toolfleet_io::metrics::{meter, seconds_histogram};

/// Instruments of a coordinator.
pub struct Measures {
    submitted: Counter<u64>,
    attached: Counter<u64>,
    rejected: Counter<u64>,
    read: Counter<u64>,
    repaired: Counter<u64>,
    ended: Counter<u64>,
    end_to_end: Histogram<f64>,
}

impl Measures {
    /// Makes the instruments; after telemetry has started.
    pub fn new() -> Measures {
        let meter = meter("coordinator");
        let counter = |name: &'static str, what: &'static str| {
            meter.u64_counter(name).with_description(what).build()
        };
        Measures {
            submitted: counter("toolfleet_jobs_submitted", "jobs made durable"),
            attached: counter("toolfleet_jobs_attached", "submissions of a call that was there already"),
            rejected: counter("toolfleet_jobs_rejected", "calls refused before anything was queued"),
            read: counter("toolfleet_results_read", "results read because their announcement did not come"),
            repaired: counter("toolfleet_jobs_repaired", "jobs that the auditor freed or ended; any is an alarm"),
            ended: counter("toolfleet_jobs_expired", "calls ended because their time was over"),
            end_to_end: seconds_histogram(&meter, "toolfleet_job_e2e", "from submission to the result's arrival"),
        }
    }

    /// A job was made durable.
    pub fn submitted(&self, pool: &str) {
        self.submitted.add(1, &[KeyValue::new("pool", pool.to_owned())]);
    }

    /// A submission met a call that was there already.
    pub fn attached(&self, pool: &str) {
        self.attached.add(1, &[KeyValue::new("pool", pool.to_owned())]);
    }

    /// A call was refused before anything was queued. `reason` is a code.
    pub fn rejected(&self, reason: &'static str) {
        self.rejected.add(1, &[KeyValue::new("reason", reason)]);
    }

    /// A result was read because its announcement did not come.
    pub fn result_read(&self) {
        self.read.add(1, &[]);
    }

    /// The auditor mended something. `kind` is of a closed set.
    pub fn repaired_job(&self, kind: &'static str) {
        self.repaired.add(1, &[KeyValue::new("kind", kind)]);
    }

    /// A call was ended because its time was over. `outcome` is a code.
    pub fn expired(&self, outcome: &'static str) {
        self.ended.add(1, &[KeyValue::new("outcome", outcome)]);
    }

    /// A result came.
    pub fn finished(&self, pool: &str, took: Duration) {
        self.end_to_end.record(took.as_secs_f64(), &[KeyValue::new("pool", pool.to_owned())]);
    }
}

impl Default for Measures {
    fn default() -> Self {
        Measures::new()
    }
}
