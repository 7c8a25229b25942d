//! What a run comes to: the text that a model reads, from what the tool gave or how it ended
//! (CONTRACT 5.2, 6.1 to 6.4).

use crate::registry::Registered;
use crate::runner::{RawOutput, RunOutcome};
use crate::stop::StopReason;
use toolfleet_proto::arguments;
use toolfleet_proto::code::Code;
use toolfleet_proto::descriptor::ResultForm;
use toolfleet_proto::effect::Effect;
use toolfleet_proto::end;
use toolfleet_proto::output::{self, Produced, Rendered};

/// Output kept in memory where it must be read as a whole.
pub const CAPTURE_WHOLE_BYTES: usize = 4 * 1024 * 1024;
/// Output kept beyond the bound where it is cut anyway.
const CAPTURE_SLACK_BYTES: usize = 4 * 1024;

/// What a run comes to.
#[derive(Debug)]
pub enum Reading {
    /// The tool had ended by itself.
    Given(Rendered),
    /// The tool was stopped: a verdict on the call.
    Verdict(Rendered),
    /// The drain cut it.
    Cut,
    /// The lease is lost: nothing is said.
    Nothing,
}

/// Bytes of output that are kept while it is read, for a result of this form and bound.
pub fn capture_bytes_max(form: ResultForm, result_bytes_max: u64) -> usize {
    let bound = usize::try_from(result_bytes_max).unwrap_or(CAPTURE_WHOLE_BYTES);
    match form {
        ResultForm::Text => bound + CAPTURE_SLACK_BYTES,
        ResultForm::Json | ResultForm::Envelope => CAPTURE_WHOLE_BYTES.max(bound),
    }
}

/// Reads an outcome. `timed_out` is the text of a timeout, `bytes_max` the bound.
pub fn read(
    tool: &Registered,
    effect: Effect,
    outcome: RunOutcome,
    timed_out: &str,
    bytes_max: u64,
) -> Reading {
    let error = |code, text: &str| output::render_error(code, text, bytes_max);
    match outcome {
        RunOutcome::Output(raw) => Reading::Given(render(tool, &raw, bytes_max)),
        RunOutcome::Failed { message, .. } | RunOutcome::NotStarted { message } => {
            Reading::Given(error(Code::ToolError, &message))
        }
        RunOutcome::InputRefused { message } => {
            Reading::Given(error(Code::InvalidInput, &arguments::invalid(&message)))
        }
        RunOutcome::TimedOut | RunOutcome::Stopped(StopReason::TimedOut) => {
            Reading::Verdict(error(Code::TimedOut, &warn_of_effect(effect, timed_out)))
        }
        RunOutcome::Stopped(StopReason::Cancelled(reason)) => {
            Reading::Verdict(error(Code::Cancelled, &warn_of_effect(effect, &reason)))
        }
        RunOutcome::Stopped(StopReason::LeaseLost) => Reading::Nothing,
        RunOutcome::Stopped(StopReason::DrainOver) => Reading::Cut,
    }
}

/// Adds the warning to the text of a write that had started (CONTRACT 5.2).
fn warn_of_effect(effect: Effect, text: &str) -> String {
    match effect {
        Effect::Write => end::may_have_taken_effect(text),
        Effect::Read | Effect::Idempotent => text.to_owned(),
    }
}

fn render(tool: &Registered, raw: &RawOutput, bytes_max: u64) -> Rendered {
    let produced = match raw {
        RawOutput::Text(text) => Produced::Text(text),
        RawOutput::Json(text) => Produced::Json(text),
        RawOutput::Captured { bytes, whole_bytes, invalid_utf8_at } => Produced::Captured {
            bytes,
            whole_bytes: *whole_bytes,
            invalid_utf8_at: *invalid_utf8_at,
        },
    };
    output::render(produced, tool.descriptor.result, tool.output_schema.as_deref(), bytes_max)
}
