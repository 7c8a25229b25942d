//! Stores the one result of a call that its tool did not end: first the start record of a write, then
//! the result (DESIGN 4.1 step 5, 4.2 step 4, 4.3). Coordinators and workers share it; racing is safe.

use crate::broker::{Broker, Error, Once, Outgoing};
use crate::fail_point;
use async_nats::HeaderMap;
use prost::Message as _;
use std::time::Duration;
use toolfleet_proto::end::{self, End, Record};
use toolfleet_proto::name::{CallName, escape};
use toolfleet_proto::wire::{self, CallResult, Job, StartRecord, header};

/// A message for the results stream.
pub fn result_message(job: &Job, result: &CallResult, unnamed_retention_ms: u64) -> Outgoing {
    let mut headers = HeaderMap::new();
    headers.insert(header::STATUS, result.code.as_str());
    // A refused call's tool is named by the model, and a header takes no line breaks.
    headers.insert(header::TOOL, escape(&result.tool).as_str());
    if let Some(attempt) = &result.attempt {
        headers.insert(header::ATTEMPT, attempt.attempt_id.as_str());
        headers.insert(header::FENCE, attempt.fence.to_string().as_str());
        headers.insert(header::WORKER, attempt.worker.as_str());
    }
    if let Some(trace) = result.trace.as_ref().filter(|trace| !trace.traceparent.is_empty()) {
        headers.insert(header::TRACEPARENT, trace.traceparent.as_str());
    }
    Outgoing {
        headers,
        payload: result.encode_to_vec().into(),
        ttl: job
            .is_unnamed
            .then(|| Duration::from_secs(unnamed_retention_ms.div_ceil(1_000).max(1))),
    }
}

/// A message for the stream of start records.
pub fn start_message(record: &StartRecord) -> Outgoing {
    let mut headers = HeaderMap::new();
    headers.insert(header::TOOL, escape(&record.tool).as_str());
    if let Some(attempt) = &record.attempt {
        headers.insert(header::ATTEMPT, attempt.attempt_id.as_str());
        headers.insert(header::FENCE, attempt.fence.to_string().as_str());
        headers.insert(header::WORKER, attempt.worker.as_str());
    }
    Outgoing { headers, payload: record.encode_to_vec().into(), ttl: None }
}

/// The name of a job's call.
pub fn name_of(job: &Job) -> CallName {
    job.name.as_ref().map_or_else(|| CallName::from(&wire::CallName::default()), CallName::from)
}

/// What stands at a call's start record, once one is there. After a refused store the record exists,
/// but a replica may not show it yet.
pub async fn read_record(
    broker: &Broker,
    name: &CallName,
) -> Result<Option<(u64, StartRecord)>, Error> {
    let stream = broker.prefix().starts_stream();
    let Some(message) = broker.find_last(&stream, &broker.prefix().start(name)).await? else {
        return Ok(None);
    };
    match wire::read_start(&message.payload) {
        Ok(record) => Ok(Some((message.sequence, record))),
        Err(error) => Err(Error::Refused(error.to_string())),
    }
}

/// The stored result of a call. An error where it was written by a newer build.
pub async fn read_result(broker: &Broker, name: &CallName) -> Result<Option<CallResult>, Error> {
    match broker.read_result(&broker.prefix().result(name)).await? {
        None => Ok(None),
        Some(message) => wire::read_result(&message.payload)
            .map(Some)
            .map_err(|error| Error::Refused(error.to_string())),
    }
}

/// What came of an end.
#[derive(Debug)]
pub struct Ended {
    /// The stored result: ours, or the one that was there first.
    pub result: CallResult,
    /// Whether ours is the one that counts.
    pub is_ours: bool,
    /// Whether it was stored now, not read.
    pub is_new: bool,
}

/// Ends a call without a run: takes the start record of a write, decides by what stands there, stores
/// the result. One try; on an error nothing is known and it can be done again.
///
/// Not cancel safe in the sense of "nothing happened", but safe to do again: each store is
/// compare-and-set.
pub async fn end(
    broker: &Broker,
    job: &Job,
    wish: &End,
    now_ms: i64,
    unnamed_retention_ms: u64,
) -> Result<Ended, Error> {
    let name = name_of(job);
    let record = if end::needs_start_record(job) {
        Some(take_tombstone(broker, job, &name, wish, now_ms).await?)
    } else {
        None
    };
    if record == Some(Record::Ours) {
        fail_point::reach("tombstone:after").await;
    }
    let verdict = end::decide(job, wish, record.as_ref());
    let result = end::result_of_verdict(job, &verdict, wish, now_ms);
    fail_point::reach("end:before").await;
    let stored = store_result(broker, job, &name, result, unnamed_retention_ms).await;
    fail_point::reach("end:after").await;
    stored
}

async fn take_tombstone(
    broker: &Broker,
    job: &Job,
    name: &CallName,
    wish: &End,
    now_ms: i64,
) -> Result<Record, Error> {
    let tombstone = end::tombstone(job, wish, now_ms);
    match broker.store_once(&broker.prefix().start(name), &start_message(&tombstone)).await? {
        Once::Stored(_) => Ok(Record::Ours),
        Once::Full => Err(Error::Refused("the stream of start records is full".into())),
        Once::Taken => match read_record(broker, name).await? {
            Some((_, record)) => Ok(end::read_record(&record)),
            None => Err(Error::Silent("the start record is not readable yet".into())),
        },
    }
}

/// Stores a result, or reads the one that was there first.
pub async fn store_result(
    broker: &Broker,
    job: &Job,
    name: &CallName,
    result: CallResult,
    unnamed_retention_ms: u64,
) -> Result<Ended, Error> {
    let message = result_message(job, &result, unnamed_retention_ms);
    match broker.store_once(&broker.prefix().result(name), &message).await? {
        Once::Stored(_) => Ok(Ended { result, is_ours: true, is_new: true }),
        Once::Full => Err(Error::Silent("the stream of results is full".into())),
        Once::Taken => match read_result(broker, name).await? {
            Some(stored) => {
                let is_ours =
                    !result.attempt_id().is_empty() && stored.attempt_id() == result.attempt_id();
                Ok(Ended { result: stored, is_ours, is_new: false })
            }
            None => Err(Error::Silent("the stored result is not readable yet".into())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_tool_name_fits_a_header() {
        let result = CallResult { tool: "a b\r\n: c".into(), ..CallResult::default() };
        let message = result_message(&Job::default(), &result, 1);
        let value = message.headers.get(header::TOOL).map(ToString::to_string);
        assert_eq!(value.as_deref(), Some("a=20b=0D=0A=3A=20c"));
        let unnamed = Job { is_unnamed: true, ..Job::default() };
        assert_eq!(result_message(&unnamed, &result, 1_500).ttl, Some(Duration::from_secs(2)));
    }
}
