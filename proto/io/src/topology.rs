//! Makes the fleet's streams and buckets, or only compares them, and says what the server really did
//! (DESIGN 4). A server that ignored part of a configuration answers with "ok" all the same.

mod comparison;
mod consumers;

use crate::broker::{self, Broker};
use crate::config::TopologyMode;
use async_nats::jetstream::consumer;
use async_nats::jetstream::stream::{self, DiscardPolicy, RetentionPolicy, StorageType};
use async_nats::jetstream::{context, kv};
use comparison::Comparison;
use consumers::look_at_consumers;
pub use consumers::{consumer_config, ensure_consumer};
use serde::Serialize;
use std::time::Duration;
use toolfleet_proto::limit::Limits;
use toolfleet_proto::topology::{BucketSpec, Prefix, StreamSpec, buckets, streams};

/// Why the topology cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something is not as it must be.
    #[error("the topology is not as it must be:\n{}", .0.join("\n"))]
    Different(Vec<String>),
    /// The broker failed or refused.
    #[error("{what}: {reason}")]
    Broker {
        /// Which part.
        what: String,
        /// Why.
        reason: String,
    },
}

/// One stream, bucket or consumer as it was found.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// `stream`, `bucket` or `consumer`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// What it takes or holds.
    pub holds: String,
    /// Messages in it; of a consumer: jobs that wait.
    pub messages: u64,
    /// Bytes in it; of a consumer: jobs that are delivered and not acknowledged.
    pub bytes: u64,
    /// What is not as it must be; empty: all is well.
    pub faults: Vec<String>,
}

fn fault(what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::Broker { what: what.to_owned(), reason: error.to_string() }
}

/// Makes what is missing (or only looks), compares the whole, and refuses on any difference.
/// Idempotent; several processes may do it at once.
pub async fn ensure(broker: &Broker, limits: &Limits, mode: TopologyMode) -> Result<(), Error> {
    if mode == TopologyMode::Make {
        for spec in streams(broker.prefix(), limits) {
            make_stream(broker, &spec).await?;
        }
        for spec in buckets(broker.prefix()) {
            make_bucket(broker, &spec).await?;
        }
    }
    let faults: Vec<String> =
        look_at_stores(broker, limits).await?.into_iter().flat_map(|part| part.faults).collect();
    if faults.is_empty() { Ok(()) } else { Err(Error::Different(faults)) }
}

/// Every part of the topology as the server has it.
pub async fn look(broker: &Broker, limits: &Limits) -> Result<Vec<Part>, Error> {
    let mut parts = look_at_stores(broker, limits).await?;
    parts.extend(look_at_consumers(broker, limits).await?);
    Ok(parts)
}

/// Streams and buckets. A consumer concerns its pool alone, and its workers compare it.
async fn look_at_stores(broker: &Broker, limits: &Limits) -> Result<Vec<Part>, Error> {
    let mut parts = Vec::new();
    for spec in streams(broker.prefix(), limits) {
        parts.push(look_at_stream(broker, &spec).await?);
    }
    for spec in buckets(broker.prefix()) {
        parts.push(look_at_bucket(broker, &spec).await?);
    }
    Ok(parts)
}

fn stream_config(spec: &StreamSpec) -> stream::Config {
    stream::Config {
        name: spec.name.clone(),
        subjects: spec.subjects.clone(),
        retention: if spec.is_work_queue {
            RetentionPolicy::WorkQueue
        } else {
            RetentionPolicy::Limits
        },
        storage: StorageType::File,
        discard: DiscardPolicy::New,
        max_age: Duration::from_millis(spec.max_age_ms),
        max_message_size: spec.max_message_bytes,
        max_consumers: if spec.max_consumers == 0 { -1 } else { spec.max_consumers },
        // Duplicates are refused by expected sequence; the window only costs memory.
        duplicate_window: Duration::from_millis(100),
        allow_direct: true,
        allow_message_ttl: spec.allow_message_ttl,
        republish: spec.republish.as_ref().map(|(source, destination)| stream::Republish {
            source: source.clone(),
            destination: destination.clone(),
            headers_only: false,
        }),
        ..stream::Config::default()
    }
}

async fn make_stream(broker: &Broker, spec: &StreamSpec) -> Result<(), Error> {
    let jetstream = broker.jetstream();
    match jetstream.get_stream(&spec.name).await {
        Ok(_) => return Ok(()),
        Err(error) if is_missing(error.kind()) => {}
        Err(error) => return Err(fault(&spec.name, &error)),
    }
    match jetstream.create_stream(stream_config(spec)).await {
        Ok(_) => {
            tracing::info!(stream = %spec.name, "stream made");
            Ok(())
        }
        // Another process may have made it in between: then the comparison decides.
        Err(error) => match jetstream.get_stream(&spec.name).await {
            Ok(_) => Ok(()),
            Err(_) => Err(fault(&spec.name, &error)),
        },
    }
}

fn is_missing(kind: context::GetStreamErrorKind) -> bool {
    match kind {
        context::GetStreamErrorKind::JetStream(error) => {
            error.error_code() == async_nats::jetstream::ErrorCode::STREAM_NOT_FOUND
        }
        _ => false,
    }
}

async fn look_at_stream(broker: &Broker, spec: &StreamSpec) -> Result<Part, Error> {
    let mut part = Part {
        kind: "stream",
        name: spec.name.clone(),
        holds: spec.subjects.join(" "),
        messages: 0,
        bytes: 0,
        faults: Vec::new(),
    };
    match broker.jetstream().get_stream(&spec.name).await {
        Ok(stream) => {
            let info = stream.cached_info();
            part.messages = info.state.messages;
            part.bytes = info.state.bytes;
            part.faults = compare(spec, &info.config);
        }
        Err(error) if is_missing(error.kind()) => part.faults.push(format!(
            "stream {} is missing; start a coordinator with fleet.topology = \"make\", or make it by hand from `toolfleet topology export`",
            spec.name
        )),
        Err(error) => return Err(fault(&spec.name, &error)),
    }
    Ok(part)
}

/// What of a stream is not as it must be. Replicas, placement, compression, sizes and a longer age
/// are the operator's.
fn compare(spec: &StreamSpec, found: &stream::Config) -> Vec<String> {
    let wanted = stream_config(spec);
    let mut comparison = Comparison::of(format!("stream {}", spec.name));
    comparison.judge(
        found.subjects == wanted.subjects,
        "subjects",
        wanted.subjects.join(" "),
        found.subjects.join(" "),
    );
    comparison.same("retention", &wanted.retention, &found.retention);
    comparison.same("storage", &wanted.storage, &found.storage);
    comparison.same("discard", &wanted.discard, &found.discard);
    let is_old_enough =
        found.max_age.is_zero() || (!wanted.max_age.is_zero() && found.max_age >= wanted.max_age);
    comparison.judge(
        is_old_enough,
        "max_age",
        format!("{:?} or longer", wanted.max_age),
        format!("{:?}", found.max_age),
    );
    let is_large_enough =
        found.max_message_size < 0 || found.max_message_size >= wanted.max_message_size;
    comparison.judge(
        is_large_enough,
        "max_msg_size",
        wanted.max_message_size,
        found.max_message_size,
    );
    comparison.judge(found.allow_direct, "allow_direct", true, false);
    comparison.judge(
        found.allow_message_ttl || !wanted.allow_message_ttl,
        "allow_msg_ttl",
        "true (nats-server 2.12 or newer)",
        false,
    );
    let republish = |config: &stream::Config| {
        config
            .republish
            .as_ref()
            .map_or_else(|| "none".to_owned(), |r| format!("{} -> {}", r.source, r.destination))
    };
    let (republishes, must_republish) = (republish(found), republish(&wanted));
    comparison.judge(republishes == must_republish, "republish", must_republish, republishes);
    comparison.faults
}

async fn make_bucket(broker: &Broker, spec: &BucketSpec) -> Result<(), Error> {
    let jetstream = broker.jetstream();
    if jetstream.get_key_value(&spec.name).await.is_ok() {
        return Ok(());
    }
    let config = kv::Config {
        bucket: spec.name.clone(),
        description: spec.holds.to_owned(),
        history: 1,
        storage: StorageType::File,
        ..kv::Config::default()
    };
    match jetstream.create_key_value(config).await {
        Ok(_) => {
            tracing::info!(bucket = %spec.name, "bucket made");
            Ok(())
        }
        Err(error) => match jetstream.get_key_value(&spec.name).await {
            Ok(_) => Ok(()),
            Err(_) => Err(fault(&spec.name, &error)),
        },
    }
}

async fn look_at_bucket(broker: &Broker, spec: &BucketSpec) -> Result<Part, Error> {
    let mut part = Part {
        kind: "bucket",
        name: spec.name.clone(),
        holds: spec.holds.to_owned(),
        messages: 0,
        bytes: 0,
        faults: Vec::new(),
    };
    match broker.jetstream().get_key_value(&spec.name).await {
        Ok(store) => {
            let status = store.status().await.map_err(|error| fault(&spec.name, &error))?;
            part.messages = status.values();
            part.bytes = status.info.state.bytes;
        }
        Err(error) if error.kind() == context::KeyValueErrorKind::GetBucket => {
            part.faults.push(format!("bucket {} is missing", spec.name));
        }
        Err(error) => return Err(fault(&spec.name, &error)),
    }
    Ok(part)
}

/// What an operator must make where `fleet.topology = "check"`, as configurations of the server's
/// own API: `(subject to request, JSON)`.
pub fn export(
    prefix: &Prefix,
    limits: &Limits,
    pools: &[String],
) -> Vec<(String, serde_json::Value)> {
    let mut requests = Vec::new();
    for spec in streams(prefix, limits) {
        let value = serde_json::to_value(stream_config(&spec)).unwrap_or_default();
        requests.push((format!("$JS.API.STREAM.CREATE.{}", spec.name), value));
    }
    for spec in buckets(prefix) {
        let value = serde_json::json!({
            "name": format!("KV_{}", spec.name), "subjects": [format!("$KV.{}.>", spec.name)],
            "storage": "file", "max_msgs_per_subject": 1, "discard": "new", "allow_rollup_hdrs": true,
            "deny_delete": true, "allow_direct": true,
        });
        requests.push((format!("$JS.API.STREAM.CREATE.KV_{}", spec.name), value));
    }
    for pool in pools {
        let config = consumer::IntoConsumerConfig::into_consumer_config(consumer_config(
            prefix, pool, limits,
        ));
        let stream = prefix.jobs_stream();
        let value = serde_json::json!({"stream_name": stream, "config": config});
        requests.push((
            format!("$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{}", Prefix::consumer(pool)),
            value,
        ));
    }
    requests
}

impl From<Error> for broker::Error {
    fn from(error: Error) -> Self {
        broker::Error::Refused(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str) -> StreamSpec {
        let prefix = Prefix::parse("tf.v1").unwrap();
        streams(&prefix, &Limits::default()).into_iter().find(|s| s.name.ends_with(name)).unwrap()
    }

    #[test]
    fn what_an_old_server_ignores_is_named() {
        let results = spec("RESULTS");
        let mut found = stream_config(&results);
        found.allow_message_ttl = false;
        found.republish = None;
        let faults = compare(&results, &found);
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(
            faults[0].contains("TF_V1_RESULTS: allow_msg_ttl is false, must be true"),
            "{faults:?}"
        );
    }

    #[test]
    fn what_the_operator_owns_is_no_fault() {
        let starts = spec("STARTS");
        let mut found = stream_config(&starts);
        found.num_replicas = 3;
        found.max_bytes = 1 << 30;
        found.compression = Some(stream::Compression::S2);
        found.max_age *= 2;
        assert_eq!(compare(&starts, &found), Vec::<String>::new());
        found.max_age /= 4;
        found.discard = DiscardPolicy::Old;
        assert_eq!(compare(&starts, &found).len(), 2);
    }

    #[test]
    fn an_operator_can_make_everything_from_the_export() {
        let prefix = Prefix::parse("tf.v1").unwrap();
        let requests = export(&prefix, &Limits::default(), &["web".to_owned()]);
        assert_eq!(requests.len(), 6 + 3 + 1);
        assert!(
            requests.iter().any(|(subject, _)| subject.ends_with("CREATE.TF_V1_JOBS.pool-web"))
        );
    }
}
