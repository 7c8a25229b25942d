//! Jobs as messages of the broker: a new one as it is published, a queued one as it stands there.

use async_nats::HeaderMap;
use prost::Message as _;
use toolfleet_io::broker::Outgoing;
use toolfleet_io::telemetry;
use toolfleet_proto::wire::{self, Job, header};
use tracing::Span;

/// The job with the publication's span as its context: attempts become children of it.
pub(crate) fn with_trace(mut job: Job, span: &Span) -> Job {
    let (traceparent, tracestate) = telemetry::current_trace_context(span);
    let baggage = job.trace.take().map(|trace| trace.baggage).unwrap_or_default();
    job.trace = Some(wire::TraceContext { traceparent, tracestate, baggage });
    job
}

/// The message of a job, with the headers that are read without decoding it.
pub(crate) fn job_message(job: &Job) -> Outgoing {
    let mut headers = HeaderMap::new();
    headers.insert(header::TOOL, job.tool.as_str());
    if let Some(clocks) = &job.clocks {
        headers.insert(header::DEADLINE, clocks.deadline_ms.to_string().as_str());
    }
    if let Some(trace) = &job.trace {
        for (name, value) in
            [(header::TRACEPARENT, &trace.traceparent), (header::TRACESTATE, &trace.tracestate)]
        {
            if !value.is_empty() {
                headers.insert(name, value.as_str());
            }
        }
    }
    Outgoing { headers, payload: job.encode_to_vec().into(), ttl: None }
}

/// The message byte for byte, without what the broker added: never encoded again, since that would
/// drop what a newer build wrote.
pub(crate) fn as_it_was(message: async_nats::jetstream::message::StreamMessage) -> Outgoing {
    let mut headers = HeaderMap::new();
    for (name, values) in message.headers.iter() {
        if !name.to_string().starts_with("Nats-") {
            values.iter().for_each(|value| headers.append(name.clone(), value.clone()));
        }
    }
    Outgoing { headers, payload: message.payload, ttl: None }
}
