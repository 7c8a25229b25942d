//! Names of subjects, streams, buckets, consumers and store keys, and what each stream must be
//! (DESIGN 4). These names are an interface: permissions, autoscalers and dashboards depend on them.

use crate::limit::Limits;
use crate::name::{CallName, escape};
use crate::wire::LANE;
use serde::Serialize;

/// The fleet's prefix: tokens of `[a-z0-9-]` joined by dots, at most 64 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix(String);

/// Checks a pool's name: `[a-z0-9-]`, 1 to 63 characters, so that it can name a consumer and a label.
pub fn check_pool(pool: &str) -> Result<(), String> {
    let is_well = (1..=63).contains(&pool.len())
        && pool.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if is_well { Ok(()) } else { Err(format!("{pool:?} must be 1 to 63 of a-z, 0-9 and -")) }
}

impl Prefix {
    /// Checks a prefix. Capitals and underscores are refused, since stream names use them.
    pub fn parse(text: &str) -> Result<Prefix, String> {
        let is_token = |token: &str| {
            !token.is_empty()
                && token.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        };
        if text.len() <= 64 && text.split('.').all(is_token) {
            Ok(Prefix(text.to_owned()))
        } else {
            Err(format!(
                "{text:?} must be words of a-z, 0-9 and - joined by dots, at most 64 bytes"
            ))
        }
    }

    /// The prefix itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn subject(&self, rest: &str) -> String {
        format!("{}.{rest}", self.0)
    }

    /// Where a job is published.
    pub fn job(&self, pool: &str, name: &CallName) -> String {
        self.subject(&format!("job.{pool}.{LANE}.{}", name.tail()))
    }

    /// The call's job in whichever pool and lane it is.
    pub fn job_anywhere(&self, name: &CallName) -> String {
        self.subject(&format!("job.*.*.{}", name.tail()))
    }

    /// Every job of a pool: the filter of its consumer.
    pub fn jobs_of_pool(&self, pool: &str) -> String {
        self.subject(&format!("job.{pool}.>"))
    }

    /// Where the result is stored: a function of the call's name only.
    pub fn result(&self, name: &CallName) -> String {
        self.subject(&format!("res.{}", name.tail()))
    }

    /// Where a stored result is announced.
    pub fn done(&self, name: &CallName) -> String {
        self.subject(&format!("done.{}", name.tail()))
    }

    /// Every stored result of an execution is announced below.
    pub fn done_of_execution(&self, tenant: &str, execution: &str) -> String {
        self.subject(&format!("done.{}.{}.*", escape(tenant), escape(execution)))
    }

    /// Reads the call's name out of an announcement's subject.
    pub fn call_of_done(&self, subject: &str) -> Option<CallName> {
        let tail = subject.strip_prefix(self.0.as_str())?.strip_prefix(".done.")?;
        CallName::from_tail(tail).ok()
    }

    /// Where the start record of a write is taken.
    pub fn start(&self, name: &CallName) -> String {
        self.subject(&format!("start.{}", name.tail()))
    }

    /// Where a spend record is stored.
    pub fn spend(&self, name: &CallName, attempt_id: &str, n: u32) -> String {
        self.subject(&format!("spend.{}.{}.{n}", name.tail(), escape(attempt_id)))
    }

    /// Every spend record of an execution.
    pub fn spend_of_execution(&self, tenant: &str, execution: &str) -> String {
        self.subject(&format!("spend.{}.{}.>", escape(tenant), escape(execution)))
    }

    /// Where events of a call are stored.
    pub fn event(&self, name: &CallName) -> String {
        self.subject(&format!("event.{}", name.tail()))
    }

    /// Where a call is laid that took its workers down.
    pub fn dead(&self, pool: &str, name: &CallName) -> String {
        self.subject(&format!("dead.{pool}.{}", name.tail()))
    }

    /// Where the dead letter of a call lies, in whichever pool.
    pub fn dead_anywhere(&self, name: &CallName) -> String {
        self.subject(&format!("dead.*.{}", name.tail()))
    }

    /// Every dead letter of a tenant.
    pub fn dead_of_tenant(&self, tenant: &str) -> String {
        self.subject(&format!("dead.*.{}.>", escape(tenant)))
    }

    /// Cancel signals for one worker.
    pub fn cancel_worker(&self, worker: &str) -> String {
        self.subject(&format!("cancel.{}", escape(worker)))
    }

    /// Cancel signals for all workers.
    pub fn cancel_all(&self) -> String {
        self.subject("cancel.all")
    }

    fn stream_name(&self, what: &str) -> String {
        format!("{}_{what}", self.0.replace('.', "_").to_uppercase())
    }

    /// Stream of jobs.
    pub fn jobs_stream(&self) -> String {
        self.stream_name("JOBS")
    }

    /// Stream of results.
    pub fn results_stream(&self) -> String {
        self.stream_name("RESULTS")
    }

    /// Stream of start records.
    pub fn starts_stream(&self) -> String {
        self.stream_name("STARTS")
    }

    /// Stream of spend records.
    pub fn spend_stream(&self) -> String {
        self.stream_name("SPEND")
    }

    /// Stream of dead letters.
    pub fn dead_stream(&self) -> String {
        self.stream_name("DEAD")
    }

    /// Bucket of descriptors and of live workers.
    pub fn tools_bucket(&self) -> String {
        self.stream_name("TOOLS")
    }

    /// Bucket of executions that a caller named.
    pub fn executions_bucket(&self) -> String {
        self.stream_name("EXECUTIONS")
    }

    /// Every job of an execution, in whichever pool and lane.
    pub fn jobs_of_execution(&self, tenant: &str, execution: &str) -> String {
        self.subject(&format!("job.*.*.{}.{}.*", escape(tenant), escape(execution)))
    }

    /// Reads the call's name out of a dead letter's subject.
    pub fn call_of_dead(&self, subject: &str) -> Option<CallName> {
        let rest = subject.strip_prefix(self.0.as_str())?.strip_prefix(".dead.")?;
        let (_pool, tail) = rest.split_once('.')?;
        CallName::from_tail(tail).ok()
    }

    /// Reads the call's name out of a job's subject.
    pub fn call_of_job(&self, subject: &str) -> Option<CallName> {
        let rest = subject.strip_prefix(self.0.as_str())?.strip_prefix(".job.")?;
        let (_pool, rest) = rest.split_once('.')?;
        let (_lane, tail) = rest.split_once('.')?;
        CallName::from_tail(tail).ok()
    }

    /// The pool's one durable consumer.
    pub fn consumer(pool: &str) -> String {
        format!("pool-{pool}")
    }

    /// The pool of a consumer by its name; `None`: it is no pool's.
    pub fn pool_of_consumer(name: &str) -> Option<&str> {
        name.strip_prefix("pool-")
    }

    /// Key of a tool in the bucket of tools.
    pub fn tool_key(pool: &str, tool: &str) -> String {
        format!("{pool}.{}", escape(tool))
    }

    /// Key of a live worker in the bucket of tools. No pool's name begins with `=`.
    pub fn worker_key(pool: &str, worker: &str) -> String {
        format!("=w.{pool}.{}", escape(worker))
    }

    /// Store key of the lease.
    pub fn lease_key(&self, name: &CallName) -> String {
        format!("{}:x:{}", self.0, name.tail())
    }

    /// Store key of the claims so far.
    pub fn claims_key(&self, name: &CallName) -> String {
        format!("{}:a:{}", self.0, name.tail())
    }

    /// Store key of the mark.
    pub fn mark_key(&self, name: &CallName) -> String {
        format!("{}:k:{}", self.0, name.tail())
    }
}

/// What a stream must be. Replicas, placement, compression, sizes and a longer age are the
/// operator's and never a reason to refuse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamSpec {
    /// Its name.
    pub name: String,
    /// The subjects it takes.
    pub subjects: Vec<String>,
    /// Work queue, else limits.
    pub is_work_queue: bool,
    /// Oldest message kept; 0: no limit. A longer one is as good.
    pub max_age_ms: u64,
    /// Largest message.
    pub max_message_bytes: i32,
    /// Most consumers; 0: not set.
    pub max_consumers: i32,
    /// Whether messages may carry their own time to live.
    pub allow_message_ttl: bool,
    /// From and to: announced again after they were stored.
    pub republish: Option<(String, String)>,
}

/// What a bucket must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BucketSpec {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub holds: &'static str,
}

/// Every stream of the fleet.
pub fn streams(prefix: &Prefix, limits: &Limits) -> Vec<StreamSpec> {
    const DAY_MS: u64 = 24 * 3_600_000;
    const MIB: i32 = 1024 * 1024;
    let spec = |name: &str, subject: &str, max_age_ms: u64| StreamSpec {
        name: prefix.stream_name(name),
        subjects: vec![prefix.subject(subject)],
        is_work_queue: false,
        max_age_ms,
        max_message_bytes: MIB,
        max_consumers: 0,
        allow_message_ttl: false,
        republish: None,
    };
    vec![
        StreamSpec { is_work_queue: true, max_consumers: 4096, ..spec("JOBS", "job.>", 0) },
        StreamSpec {
            allow_message_ttl: true,
            republish: Some((prefix.subject("res.>"), prefix.subject("done.>"))),
            ..spec("RESULTS", "res.>", limits.retention_ms)
        },
        spec("STARTS", "start.>", limits.write_memory_ms),
        spec("SPEND", "spend.>", 90 * DAY_MS),
        spec("EVENTS", "event.>", 3_600_000),
        spec("DEAD", "dead.>", 7 * DAY_MS),
    ]
}

/// Every bucket of the fleet.
pub fn buckets(prefix: &Prefix) -> Vec<BucketSpec> {
    let bucket = |name: &str, holds| BucketSpec { name: prefix.stream_name(name), holds };
    vec![
        bucket("TOOLS", "descriptors and live workers"),
        bucket("EXECUTIONS", "executions that a caller named"),
        bucket("PAUSES", "approvals"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix() -> Prefix {
        Prefix::parse("tf.v1").unwrap()
    }

    #[test]
    fn names_are_the_documented_ones() {
        let name = CallName::direct("default", "e 1", "main", "c");
        let prefix = prefix();
        assert_eq!(prefix.job("web", &name), "tf.v1.job.web.0.default.e=201.main=3Adirect=3Ac");
        assert_eq!(prefix.job_anywhere(&name), "tf.v1.job.*.*.default.e=201.main=3Adirect=3Ac");
        assert_eq!(prefix.result(&name), "tf.v1.res.default.e=201.main=3Adirect=3Ac");
        assert_eq!(prefix.lease_key(&name), "tf.v1:x:default.e=201.main=3Adirect=3Ac");
        assert_eq!(prefix.jobs_stream(), "TF_V1_JOBS");
        assert_eq!(prefix.call_of_done(&prefix.done(&name)), Some(name.clone()));
        assert_eq!(prefix.call_of_dead(&prefix.dead("web", &name)), Some(name.clone()));
        assert_eq!(prefix.call_of_job(&prefix.job("web", &name)), Some(name));
        assert_eq!(Prefix::consumer("web"), "pool-web");
    }

    #[test]
    fn prefixes_that_could_share_stream_names_are_refused() {
        for bad in ["", "tf_v1", "TF", "tf..v1", "tf.*", "tf.v1.", "a b"] {
            assert!(Prefix::parse(bad).is_err(), "{bad}");
        }
        assert!(check_pool("web-1").is_ok());
        for bad in ["", "Web", "a.b", "a_b", "*"] {
            assert!(check_pool(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn start_records_outlive_results_by_the_longest_call() {
        let limits = Limits::default();
        let streams = streams(&prefix(), &limits);
        let age = |name: &str| streams.iter().find(|s| s.name == name).unwrap().max_age_ms;
        assert!(age("TF_V1_STARTS") >= age("TF_V1_RESULTS") + limits.longest_call_ms);
        assert_eq!(streams.len(), 6);
    }

    proptest! {
        #[test]
        fn subjects_of_different_calls_never_meet_and_have_fixed_depth(
            a in ".{1,30}", b in ".{1,30}"
        ) {
            let (one, two) = (CallName::direct(&a, &b, "main", "c"), CallName::direct(&b, &a, "main", "c"));
            let prefix = prefix();
            prop_assert_eq!(prefix.job("p", &one).split('.').count(), 8);
            prop_assert_eq!(prefix.result(&one).split('.').count(), 6);
            prop_assert_eq!(prefix.result(&one) == prefix.result(&two), a == b);
            prop_assert_eq!(prefix.call_of_done(&prefix.done(&one)), Some(one));
        }
    }
}
