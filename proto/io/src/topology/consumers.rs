//! The consumers of the jobs: one a pool, made by whoever needs it.

use super::comparison::Comparison;
use super::{Error, Part, fault};
use crate::broker::Broker;
use crate::config::TopologyMode;
use async_nats::jetstream::consumer::{self, pull};
use std::time::Duration;
use toolfleet_proto::limit::{ACK_PENDING_MAX, Limits, PULLS_WAITING_MAX};
use toolfleet_proto::topology::Prefix;

/// Every consumer of the jobs, compared where it is a pool's.
pub(super) async fn look_at_consumers(
    broker: &Broker,
    limits: &Limits,
) -> Result<Vec<Part>, Error> {
    use futures::TryStreamExt as _;
    let name = broker.prefix().jobs_stream();
    let Ok(stream) = broker.jetstream().get_stream(&name).await else { return Ok(Vec::new()) };
    let infos: Vec<consumer::Info> =
        stream.consumers().try_collect().await.map_err(|error| fault(&name, &error))?;
    Ok(infos
        .into_iter()
        .map(|info| Part {
            kind: "consumer",
            holds: info.config.filter_subject.clone(),
            messages: info.num_pending,
            bytes: u64::try_from(info.num_ack_pending).unwrap_or(u64::MAX),
            faults: Prefix::pool_of_consumer(&info.name)
                .map(|pool| consumer_config(broker.prefix(), pool, limits))
                .map(|wanted| compare(&info.name, &wanted, &info.config))
                .unwrap_or_default(),
            name: info.name,
        })
        .collect())
}

/// What the consumer of a pool must be.
pub fn consumer_config(prefix: &Prefix, pool: &str, limits: &Limits) -> pull::Config {
    pull::Config {
        durable_name: Some(Prefix::consumer(pool)),
        filter_subject: prefix.jobs_of_pool(pool),
        ack_policy: consumer::AckPolicy::Explicit,
        ack_wait: Duration::from_millis(limits.ack_wait_ms),
        max_deliver: -1,
        max_ack_pending: ACK_PENDING_MAX,
        max_waiting: PULLS_WAITING_MAX,
        ..pull::Config::default()
    }
}

/// Makes the consumer of a pool where it is missing, and compares it. Idempotent.
pub async fn ensure_consumer(
    broker: &Broker,
    pool: &str,
    limits: &Limits,
    mode: TopologyMode,
) -> Result<(), Error> {
    let wanted = consumer_config(broker.prefix(), pool, limits);
    let stream_name = broker.prefix().jobs_stream();
    let name = Prefix::consumer(pool);
    let stream = broker
        .jetstream()
        .get_stream(&stream_name)
        .await
        .map_err(|error| fault(&stream_name, &error))?;
    let mut made = None;
    if mode == TopologyMode::Make {
        // Updates a consumer of other settings: they are ours, and an update loses no job.
        made = Some(
            stream.create_consumer(wanted.clone()).await.map_err(|error| fault(&name, &error))?,
        );
    }
    let found = match made {
        Some(consumer) => consumer.cached_info().config.clone(),
        None => stream.consumer_info(&name).await.map_err(|error| fault(&name, &error))?.config,
    };
    let faults = compare(&name, &wanted, &found);
    if faults.is_empty() { Ok(()) } else { Err(Error::Different(faults)) }
}

/// What of a consumer is not as it must be.
fn compare(name: &str, wanted: &pull::Config, found: &consumer::Config) -> Vec<String> {
    let mut comparison = Comparison::of(format!("consumer {name}"));
    comparison.judge(
        found.filter_subject == wanted.filter_subject,
        "filter_subject",
        &wanted.filter_subject,
        &found.filter_subject,
    );
    comparison.same("ack_policy", &wanted.ack_policy, &found.ack_policy);
    comparison.same("ack_wait", &wanted.ack_wait, &found.ack_wait);
    comparison.judge(found.max_deliver <= 0, "max_deliver", "unlimited", found.max_deliver);
    comparison.judge(
        found.max_ack_pending >= wanted.max_ack_pending,
        "max_ack_pending",
        wanted.max_ack_pending,
        found.max_ack_pending,
    );
    comparison.faults
}
