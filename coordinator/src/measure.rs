//! The coordinator's metrics. Labels come from closed sets: pool, outcome, reason, kind. No tool is
//! among them: a coordinator also ends calls of tools that only a model has named.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge, Histogram};
use std::time::Duration;
use toolfleet_io::metrics::{meter, seconds_histogram};

/// What the auditor mends.
const REPAIRS: [&str; 3] = ["stranded", "floor_ahead", "overdue"];

/// Instruments of a coordinator. Clones share them.
#[derive(Clone)]
pub struct Measures {
    submitted: Counter<u64>,
    attached: Counter<u64>,
    rejected: Counter<u64>,
    finished: Counter<u64>,
    read: Counter<u64>,
    repaired: Counter<u64>,
    expired: Counter<u64>,
    stubbed: Counter<u64>,
    effect_faults: Counter<u64>,
    advisories: Counter<u64>,
    end_to_end: Histogram<f64>,
    cancel: Histogram<f64>,
    queue_pending: Gauge<u64>,
    queue_ack_pending: Gauge<u64>,
    queue_oldest: Gauge<f64>,
    stream_fill: Gauge<f64>,
    withheld: Gauge<u64>,
}

/// The queue of one pool, as its consumer tells it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Depth {
    /// Jobs that no worker was handed yet.
    pub pending: u64,
    /// Jobs that a worker was handed and that are not acknowledged.
    pub ack_pending: u64,
    /// Age of the first job that no worker was handed yet; zero where there is none.
    pub oldest: Duration,
}

impl Measures {
    /// Makes the instruments; after telemetry has started.
    pub fn new() -> Measures {
        let meter = meter("coordinator");
        let counter = |name: &'static str, what: &'static str| {
            meter.u64_counter(name).with_description(what).build()
        };
        let gauge = |name: &'static str, what: &'static str| {
            meter.u64_gauge(name).with_description(what).build()
        };
        let seconds =
            |name: &'static str, what: &'static str| seconds_histogram(&meter, name, what);
        let measures = Measures {
            submitted: counter("toolfleet_jobs_submitted", "jobs made durable"),
            attached: counter(
                "toolfleet_jobs_attached",
                "submissions of a call that was there already",
            ),
            rejected: counter(
                "toolfleet_jobs_rejected",
                "calls refused before anything was queued",
            ),
            finished: counter("toolfleet_jobs_finished", "results stored, by outcome"),
            read: counter(
                "toolfleet_results_read",
                "results read because their announcement did not come",
            ),
            repaired: counter(
                "toolfleet_jobs_repaired",
                "jobs that the auditor freed or ended; any is an alarm",
            ),
            advisories: counter(
                "toolfleet_broker_advisories",
                "jobs that the broker gave up or was told to remove; any is an alarm",
            ),
            expired: counter("toolfleet_jobs_expired", "calls ended because their time was over"),
            stubbed: counter(
                "toolfleet_calls_stubbed",
                "calls that a dry run answered in the tool's place",
            ),
            effect_faults: counter(
                "toolfleet_effect_faults",
                "evaluations of an effect that failed, so that the call counts as a write",
            ),
            end_to_end: seconds("toolfleet_job_e2e", "from submission to the result's arrival"),
            cancel: seconds("toolfleet_cancel", "from the request to cancel a call to its answer"),
            queue_pending: gauge("toolfleet_queue_pending", "jobs that wait for a worker"),
            queue_ack_pending: gauge("toolfleet_queue_ack_pending", "jobs in the hands of workers"),
            stream_fill: meter
                .f64_gauge("toolfleet_stream_fill")
                .with_description(
                    "how full a stream is, of its own limit; calls are refused from 0.9",
                )
                .build(),
            queue_oldest: meter
                .f64_gauge("toolfleet_queue_oldest")
                .with_unit("s")
                .with_description("age of the first job that waits for a worker")
                .build(),
            withheld: gauge(
                "toolfleet_tools_withheld",
                "tools of pools that are announced and not offered",
            ),
        };
        // There from zero on: a series that begins with its first event shows no rise.
        measures.read.add(0, &[]);
        measures.effect_faults.add(0, &[]);
        for kind in REPAIRS {
            measures.repaired.add(0, &[KeyValue::new("kind", kind)]);
        }
        for (_, kind) in crate::alarms::KINDS {
            measures.advisories.add(0, &[KeyValue::new("kind", kind)]);
        }
        measures
    }

    /// The broker told of a job that it gave up or was told to remove.
    pub fn advisory(&self, kind: &'static str) {
        self.advisories.add(1, &[KeyValue::new("kind", kind)]);
    }

    /// A job was made durable.
    pub fn submitted(&self, pool: &str) {
        self.submitted.add(1, &of_pool(pool));
    }

    /// A submission met a call that was there already.
    pub fn attached(&self, pool: &str) {
        self.attached.add(1, &of_pool(pool));
    }

    /// A call was refused before anything was queued. `reason` is a code.
    pub fn rejected(&self, reason: &'static str) {
        self.rejected.add(1, &[KeyValue::new("reason", reason)]);
    }

    /// A result of ours is stored, without a run. `outcome` is a code.
    pub fn finished(&self, pool: &str, outcome: &'static str) {
        let [pool] = of_pool(pool);
        self.finished.add(1, &[pool, KeyValue::new("outcome", outcome)]);
    }

    /// A dry run answered in the tool's place. `outcome` is `ok` or a code.
    pub fn stubbed(&self, pool: &str, outcome: &'static str) {
        let [pool] = of_pool(pool);
        self.stubbed.add(1, &[pool, KeyValue::new("outcome", outcome)]);
    }

    /// The expression of an effect did not tell: the call counts as a write.
    pub fn effect_fault(&self) {
        self.effect_faults.add(1, &[]);
    }

    /// A result was read because its announcement did not come.
    pub fn result_read(&self) {
        self.read.add(1, &[]);
    }

    /// The auditor mended something: `stranded`, `floor_ahead` or `overdue`.
    pub fn repaired_job(&self, kind: &'static str) {
        self.repaired.add(1, &[KeyValue::new("kind", kind)]);
    }

    /// A call was ended because its time was over. `outcome` is a code.
    pub fn expired(&self, outcome: &'static str) {
        self.expired.add(1, &[KeyValue::new("outcome", outcome)]);
    }

    /// A result came, so long after it was asked for.
    pub fn arrived(&self, pool: &str, took: Duration) {
        self.end_to_end.record(took.as_secs_f64(), &of_pool(pool));
    }

    /// A cancel of one call was answered. `kind` is the answer, of a closed set.
    pub fn cancelled(&self, kind: &'static str, took: Duration) {
        self.cancel.record(took.as_secs_f64(), &[KeyValue::new("kind", kind)]);
    }

    /// How full a stream is: `results` or `starts`.
    pub fn stream_fill(&self, stream: &'static str, of_room: f64) {
        self.stream_fill.record(of_room, &[KeyValue::new("stream", stream)]);
    }

    /// So many tools are announced and not offered, for this reason of a closed set.
    pub fn withheld(&self, reason: &'static str, count: u64) {
        self.withheld.record(count, &[KeyValue::new("reason", reason)]);
    }

    /// What a pool's queue looks like now.
    pub fn queue(&self, pool: &str, depth: Depth) {
        let pool = of_pool(pool);
        self.queue_pending.record(depth.pending, &pool);
        self.queue_ack_pending.record(depth.ack_pending, &pool);
        self.queue_oldest.record(depth.oldest.as_secs_f64(), &pool);
    }
}

fn of_pool(pool: &str) -> [KeyValue; 1] {
    [KeyValue::new("pool", pool.to_owned())]
}

impl Default for Measures {
    fn default() -> Self {
        Measures::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolfleet_io::config::Telemetry;
    use toolfleet_io::{metrics, telemetry};

    fn touch(measures: &Measures) {
        measures.submitted("gpu");
        measures.attached("gpu");
        measures.rejected("invalid_input");
        measures.finished("gpu", "no_worker");
        measures.repaired_job("stranded");
        measures.expired("no_worker");
        measures.arrived("gpu", Duration::from_secs(1));
        measures.cancelled("never_started", Duration::from_millis(15));
        measures.stream_fill("results", 0.25);
        measures.withheld("another_hash", 2);
        let oldest = Duration::from_millis(1_500);
        measures.queue("gpu", Depth { pending: 4, ack_pending: 2, oldest });
    }

    /// The only test of this crate that starts telemetry: it is the process'.
    #[test]
    fn every_instrument_is_on_the_page() {
        let config = Telemetry { log: "off".into(), ..Telemetry::default() };
        let _handle = telemetry::start("toolfleet-coordinator", "instance-1", &config).unwrap();
        touch(&Measures::new());
        let page = metrics::render();
        for line in [
            "toolfleet_jobs_submitted_total{pool=\"gpu\"} 1",
            "toolfleet_jobs_attached_total{pool=\"gpu\"} 1",
            "toolfleet_jobs_rejected_total{reason=\"invalid_input\"} 1",
            "toolfleet_jobs_finished_total{outcome=\"no_worker\",pool=\"gpu\"} 1",
            "toolfleet_results_read_total 0",
            "toolfleet_jobs_repaired_total{kind=\"stranded\"} 1",
            "toolfleet_jobs_repaired_total{kind=\"overdue\"} 0",
            "toolfleet_broker_advisories_total{kind=\"terminated\"} 0",
            "toolfleet_jobs_expired_total{outcome=\"no_worker\"} 1",
            "toolfleet_job_e2e_seconds_sum{pool=\"gpu\"} 1",
            "toolfleet_cancel_seconds_bucket{kind=\"never_started\",le=\"0.02\"} 1",
            "toolfleet_stream_fill{stream=\"results\"} 0.25",
            "toolfleet_tools_withheld{reason=\"another_hash\"} 2",
            "toolfleet_queue_pending{pool=\"gpu\"} 4",
            "toolfleet_queue_ack_pending{pool=\"gpu\"} 2",
            "toolfleet_queue_oldest_seconds{pool=\"gpu\"} 1.5",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
        }
        assert!(page.contains("toolfleet_build_info{component=\"toolfleet-coord"), "{page}");
    }
}
