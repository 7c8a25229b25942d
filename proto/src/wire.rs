//! The messages of protocol v1 (`schema/toolfleet/v1/wire.proto`), and who may read them.

use prost::Message;

#[expect(
    missing_docs,
    clippy::pedantic,
    reason = "generated from the schema, which carries the comments"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/toolfleet.v1.rs"));
}
pub use generated::*;

/// Version of the envelope that this build writes, and the newest that it reads.
pub const SCHEMA: u32 = 1;

/// Features that this build understands. A message that requires another is not for it.
pub const FEATURES: &[&str] = &[];

/// `start_state`: the call provably never started.
pub const NEVER_STARTED: &str = "never_started";
/// `start_state`: the call may have started.
pub const MAY_HAVE_STARTED: &str = "may_have_started";

/// The lane of every job for now.
pub const LANE: &str = "0";

/// Header names. NATS headers are case-sensitive.
pub mod header {
    /// W3C trace context, lower case as OpenTelemetry writes it.
    pub const TRACEPARENT: &str = "traceparent";
    /// W3C trace state.
    pub const TRACESTATE: &str = "tracestate";
    /// Name of the tool.
    pub const TOOL: &str = "Tf-Tool";
    /// Milliseconds since the Unix epoch on the Redis server's clock.
    pub const DEADLINE: &str = "Tf-Deadline";
    /// The random id of the claim that wrote the message.
    pub const ATTEMPT: &str = "Tf-Attempt";
    /// Its fencing token.
    pub const FENCE: &str = "Tf-Fence";
    /// The worker that wrote the message.
    pub const WORKER: &str = "Tf-Worker";
    /// `ok`, or the code of the error.
    pub const STATUS: &str = "Tf-Status";
}

/// Why a message is not for this build.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Not a message of that kind at all.
    #[error("not a readable message: {0}")]
    Broken(String),
    /// Written by a newer build.
    #[error("schema {0} is newer than this build reads ({SCHEMA})")]
    Schema(u32),
    /// Requires something that this build lacks.
    #[error("requires the feature {0:?}, which this build lacks")]
    Feature(String),
}

/// Reads a job. What needs no IO is looked at before anything is acquired (DESIGN 4.2 step 1).
pub fn read_job(bytes: &[u8]) -> Result<Job, Unreadable> {
    let job = Job::decode(bytes).map_err(|error| Unreadable::Broken(error.to_string()))?;
    readable(job.schema, &job.features)?;
    if job.name.is_none() || job.clocks.is_none() {
        return Err(Unreadable::Broken("a job without a name or without clocks".into()));
    }
    Ok(job)
}

/// Reads a result.
pub fn read_result(bytes: &[u8]) -> Result<CallResult, Unreadable> {
    let result =
        CallResult::decode(bytes).map_err(|error| Unreadable::Broken(error.to_string()))?;
    readable(result.schema, &result.features)?;
    Ok(result)
}

/// Reads a dead letter.
pub fn read_dead_letter(bytes: &[u8]) -> Result<DeadLetter, Unreadable> {
    let letter =
        DeadLetter::decode(bytes).map_err(|error| Unreadable::Broken(error.to_string()))?;
    readable(letter.schema, &[])?;
    if letter.name.is_none() {
        return Err(Unreadable::Broken("a dead letter without a name".into()));
    }
    Ok(letter)
}

/// Reads a start record.
pub fn read_start(bytes: &[u8]) -> Result<StartRecord, Unreadable> {
    let record =
        StartRecord::decode(bytes).map_err(|error| Unreadable::Broken(error.to_string()))?;
    readable(record.schema, &[])?;
    Ok(record)
}

/// Reads a cancel signal.
pub fn read_cancel(bytes: &[u8]) -> Result<CancelSignal, Unreadable> {
    let signal =
        CancelSignal::decode(bytes).map_err(|error| Unreadable::Broken(error.to_string()))?;
    readable(signal.schema, &[])?;
    Ok(signal)
}

fn readable(schema: u32, features: &[String]) -> Result<(), Unreadable> {
    if schema > SCHEMA {
        return Err(Unreadable::Schema(schema));
    }
    match features.iter().find(|feature| !FEATURES.contains(&feature.as_str())) {
        Some(feature) => Err(Unreadable::Feature(feature.clone())),
        None => Ok(()),
    }
}

impl CallResult {
    /// What the model reads, without the prefix of an error.
    pub fn text(&self) -> String {
        self.parts
            .iter()
            .filter_map(|part| match &part.kind {
                Some(part::Kind::Text(text)) => Some(text.as_str()),
                _ => None,
            })
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Whether the call ended in an error.
    pub fn is_error(&self) -> bool {
        self.code != crate::code::OK
    }

    /// The attempt that wrote it; empty where none ran.
    pub fn attempt_id(&self) -> &str {
        self.attempt.as_ref().map_or("", |attempt| attempt.attempt_id.as_str())
    }
}

/// A part that is text.
pub fn text_part(text: String) -> Part {
    Part { kind: Some(part::Kind::Text(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job {
        Job {
            schema: SCHEMA,
            name: Some(CallName::default()),
            clocks: Some(Clocks::default()),
            ..Job::default()
        }
    }

    #[test]
    fn a_job_reads_back_and_a_newer_one_is_not_for_us() {
        assert_eq!(read_job(&job().encode_to_vec()).unwrap(), job());
        let newer = Job { schema: SCHEMA + 1, ..job() };
        assert_eq!(read_job(&newer.encode_to_vec()), Err(Unreadable::Schema(SCHEMA + 1)));
        let fancier = Job { features: vec!["warp".into()], ..job() };
        assert_eq!(read_job(&fancier.encode_to_vec()), Err(Unreadable::Feature("warp".into())));
    }

    #[test]
    fn bytes_that_are_no_job_are_an_error() {
        assert!(matches!(read_job(&[0xff, 0xff]), Err(Unreadable::Broken(_))));
        assert!(matches!(read_job(&[]), Err(Unreadable::Broken(_))));
    }
}
