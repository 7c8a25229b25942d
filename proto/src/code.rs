//! The one vocabulary of outcomes (CONTRACT 6.1), used in results, metric labels, span attributes and
//! problem documents.

use std::fmt;

macro_rules! codes {
    ($($variant:ident = $text:literal, $doc:literal;)*) => {
        /// Why a call ended in an error. Stable: callers match on the text of [`Code::as_str`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code {
            $(#[doc = $doc] $variant,)*
        }

        impl Code {
            /// Every code, in the order of the contract.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];

            /// The code as it stands in results, labels and problems.
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $text,)* }
            }

            /// One sentence on what the code means.
            pub const fn meaning(self) -> &'static str {
                match self { $(Code::$variant => $doc,)* }
            }

            /// Reads a code; `None` for `ok` and for anything unknown.
            pub fn parse(text: &str) -> Option<Code> {
                match text { $($text => Some(Code::$variant),)* _ => None }
            }
        }
    };
}

codes! {
    InvalidInput = "invalid_input", "The arguments do not fit the tool's input schema; the tool was not run.";
    InvalidOutput = "invalid_output", "The tool's output is not what it declares: a bug of the tool.";
    ToolNotFound = "tool_not_found", "No tool of that name is on offer.";
    ToolDisabled = "tool_disabled", "The tool is switched off.";
    ToolForbidden = "tool_forbidden", "This actor may not call the tool.";
    ToolUnpinned = "tool_unpinned", "The tool's descriptor is not in the lock file.";
    Denied = "denied", "A person or a policy said no.";
    Refused = "refused", "An approver refused the call, with a reason.";
    TimedOut = "timed_out", "The call ran longer than its timeout.";
    QueueTimedOut = "queue_timed_out", "No worker started the call within its queue timeout.";
    Cancelled = "cancelled", "The call was cancelled.";
    LimitExceeded = "limit_exceeded", "A limit of the execution is used up.";
    BudgetExceeded = "budget_exceeded", "A budget is used up.";
    OutcomeUnknown = "outcome_unknown", "A write had started when its worker was lost; it may have taken effect.";
    ResultExpired = "result_expired", "The write ran long ago and its result is gone; it was not run again.";
    IdempotencyConflict = "idempotency_conflict", "The same call was handed in before with other arguments.";
    WorkspaceUnavailable = "workspace_unavailable", "The execution's workspace cannot be reached.";
    ToolError = "tool_error", "The tool reported a failure.";
    ToolCrashed = "tool_crashed", "The call lost its worker in each of its attempts.";
    NoWorker = "no_worker", "No live worker has this version of the tool.";
    Internal = "internal", "A fault of toolfleet itself.";
}

/// The word that stands where a code would, for a call that ended well.
pub const OK: &str = "ok";

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn every_code_reads_back_as_itself_and_ok_is_none() {
        for code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(*code));
        }
        assert_eq!(Code::parse(super::OK), None);
        assert_eq!(Code::parse("timeout"), None);
    }
}
