//! What came of a call.

use super::{bound_of, capture_bytes_max};
use crate::outcome::{self, Reading};
use crate::registry::Registered;
use crate::runner::{Ended, ProcessEnd, RawOutput, RunOutcome};
use crate::spend::Amount;
use serde_json::Value;
use std::time::Duration;
use toolfleet_io::clock::FleetClock;
use toolfleet_proto::code::Code;
use toolfleet_proto::end;
use toolfleet_proto::output::{self, ERROR_PREFIX, Rendered};

/// What the check of an output came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputCheck {
    /// It is of the declared form and fits the declared schema.
    Fits,
    /// It is of the declared form; no schema is declared.
    NotDeclared,
    /// `invalid output: …`, as the model reads it.
    Faulty(String),
    /// There was none, or it is larger than what is kept of an output: then it is cut, unchecked.
    NotChecked,
}

/// What came of a call.
#[derive(Clone, Debug)]
pub struct TestRun {
    /// What the tool was given, JSON text with defaults filled in; or why it was not run.
    pub input: Result<String, String>,
    /// The output before its bound, as the tool gave it; of a program the first 4 MiB, with what is no
    /// UTF-8 replaced. `None` where the tool did not end well.
    pub output: Option<String>,
    /// Size of the whole output, bytes.
    pub output_bytes: u64,
    /// What the output's check came to.
    pub output_check: OutputCheck,
    /// Of a program that was started: how it ended, and the end of its standard error.
    pub process: Option<ProcessEnd>,
    /// What the tool recorded as spent, in order, amounts in their shortest form.
    pub spend: Vec<Amount>,
    /// From the tool's start to its end.
    pub duration: Duration,
    /// Why the call is an error; `None` where it is none.
    pub code: Option<&'static str>,
    /// What a model would read: the bounded text, `Tool error: …` for an error. `None` where no result
    /// would be stored: the lease was lost, or another worker would run the call again.
    pub model_reads: Option<String>,
    /// The JSON value of an output that is an object, where it is within the bound.
    pub structured: Option<Value>,
    /// Whether the bound cut something.
    pub is_truncated: bool,
    /// Bytes of the text that the bound kept.
    pub kept_bytes: u64,
}

impl TestRun {
    /// Whether the call ended well.
    pub fn is_ok(&self) -> bool {
        self.code.is_none() && self.model_reads.is_some()
    }

    fn empty(input: Result<String, String>) -> TestRun {
        TestRun {
            input,
            output: None,
            output_bytes: 0,
            output_check: OutputCheck::NotChecked,
            process: None,
            spend: Vec::new(),
            duration: Duration::ZERO,
            code: None,
            model_reads: None,
            structured: None,
            is_truncated: false,
            kept_bytes: 0,
        }
    }

    pub(super) fn refused(refusal: String, bytes_max: u64) -> TestRun {
        let rendered = output::render_error(Code::InvalidInput, &refusal, bytes_max);
        let mut run = TestRun::empty(Err(refusal));
        run.take(rendered);
        run
    }

    pub(super) fn read(
        tool: &Registered,
        input: String,
        ended: Ended,
        spend: Vec<Amount>,
    ) -> TestRun {
        let mut run = TestRun::empty(Ok(input));
        (run.spend, run.duration, run.process) = (spend, ended.duration, ended.process);
        let outcome = run.take_output(tool, ended.outcome);
        let is_output = matches!(outcome, RunOutcome::Output(_));
        let is_cut = matches!(&outcome, RunOutcome::Output(RawOutput::Captured { bytes, whole_bytes, .. })
            if (bytes.len() as u64) < *whole_bytes);
        let timed_out = end::timed_out(tool.descriptor.timeout_ms);
        let effect = tool.descriptor.effect;
        match outcome::read(tool, effect, outcome, &timed_out, bound_of(tool)) {
            Reading::Given(rendered) | Reading::Verdict(rendered) => {
                run.output_check = match rendered.code {
                    Some(Code::InvalidOutput) => OutputCheck::Faulty(rendered.text.clone()),
                    _ if !is_output || is_cut => OutputCheck::NotChecked,
                    _ if tool.output_schema.is_some() => OutputCheck::Fits,
                    _ => OutputCheck::NotDeclared,
                };
                run.take(rendered);
            }
            Reading::Cut if effect.needs_start_record(tool.descriptor.rerun) => {
                run.code = Some(Code::OutcomeUnknown.as_str());
                let text = end::outcome_unknown(&tool.descriptor.name, FleetClock::new().now_ms());
                run.model_reads = Some(format!("{ERROR_PREFIX}{text}"));
            }
            Reading::Cut | Reading::Nothing => {}
        }
        run
    }

    /// Keeps the output, and leaves of it what a worker would keep.
    fn take_output(&mut self, tool: &Registered, outcome: RunOutcome) -> RunOutcome {
        match outcome {
            RunOutcome::Output(RawOutput::Captured { mut bytes, whole_bytes, invalid_utf8_at }) => {
                self.output = Some(String::from_utf8_lossy(&bytes).into_owned());
                self.output_bytes = whole_bytes;
                bytes.truncate(capture_bytes_max(tool));
                RunOutcome::Output(RawOutput::Captured { bytes, whole_bytes, invalid_utf8_at })
            }
            RunOutcome::Output(raw) => {
                if let RawOutput::Text(text) | RawOutput::Json(text) = &raw {
                    self.output = Some(text.clone());
                    self.output_bytes = text.len() as u64;
                }
                RunOutcome::Output(raw)
            }
            outcome => outcome,
        }
    }

    fn take(&mut self, rendered: Rendered) {
        self.code = rendered.code.map(Code::as_str);
        self.model_reads = Some(match rendered.code {
            Some(_) => format!("{ERROR_PREFIX}{}", rendered.text),
            None => rendered.text,
        });
        self.structured = rendered.structured.and_then(|text| serde_json::from_str(&text).ok());
        self.is_truncated = rendered.is_truncated;
        self.kept_bytes = rendered.kept_bytes;
    }
}
