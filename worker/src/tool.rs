//! The Rust side of a tool: a type with typed input and output (CONTRACT 1.1, 1.2).

use crate::context::Context;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;
use toolfleet_proto::declared::{Declared, DryRunResult, Expression};
use toolfleet_proto::effect::Effect;

/// A tool written in Rust. Its dependencies (clients, pools, settings) are its own fields.
///
/// Doc comments on the fields of [`Tool::Input`] become descriptions in the schema that the model
/// sees. `#[serde(deny_unknown_fields)]` closes the object.
///
/// ```
/// use toolfleet_worker::{Context, Tool, ToolError, ToolSpec};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Add {
///     /// First summand.
///     a: i64,
///     /// Second summand.
///     b: i64,
/// }
///
/// struct Adder {
///     offset: i64,
/// }
///
/// impl Tool for Adder {
///     type Input = Add;
///     type Output = i64;
///
///     fn spec(&self) -> ToolSpec {
///         ToolSpec::read("add", "Adds two integers")
///     }
///
///     async fn call(&self, input: Add, _context: Context) -> Result<i64, ToolError> {
///         let sum = input.a.checked_add(input.b).and_then(|sum| sum.checked_add(self.offset));
///         sum.ok_or_else(|| ToolError::new("the sum is too large"))
///     }
/// }
/// ```
pub trait Tool: Send + Sync + 'static {
    /// The arguments. Its JSON Schema is derived.
    type Input: DeserializeOwned + JsonSchema + Send + 'static;
    /// What comes back: a string is read verbatim, anything else as JSON, checked against its
    /// derived schema.
    type Output: Serialize + JsonSchema + Send + 'static;

    /// Name, description, effect, clocks, bound.
    fn spec(&self) -> ToolSpec;

    /// Runs one attempt. What has not returned when the kill grace after a stop signal is over is
    /// dropped at its next await point; code that blocks must watch [`Context::stop`] itself.
    fn call(
        &self,
        input: Self::Input,
        context: Context,
    ) -> impl Future<Output = Result<Self::Output, ToolError>> + Send;
}

/// A failure that the model reads as `Tool error: <message>`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// What the model reads.
    pub message: String,
    /// Whether trying again may help.
    pub is_transient: bool,
}

impl ToolError {
    /// A failure that trying again does not mend.
    pub fn new(message: impl Into<String>) -> ToolError {
        ToolError { message: message.into(), is_transient: false }
    }

    /// A failure that trying again may mend: a busy service, a broken connection. A read or an
    /// idempotent call is then tried again before the model reads anything.
    pub fn transient(message: impl Into<String>) -> ToolError {
        ToolError { message: message.into(), is_transient: true }
    }
}

/// What a tool says of itself. What it leaves out comes from the defaults of its pool, else of the
/// fleet, else it is: timeout 30 s, queue timeout 60 s, 3 attempts, 128 KB.
#[derive(Clone, Debug)]
pub struct ToolSpec {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) effect: Effect,
    pub(crate) rerun: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) queue_timeout: Option<Duration>,
    pub(crate) total_timeout: Option<Duration>,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) tries: Option<u32>,
    pub(crate) retry_wait_max: Option<Duration>,
    pub(crate) result_bytes_max: Option<u64>,
    pub(crate) tags: Vec<String>,
    pub(crate) presentation: Option<Value>,
    pub(crate) declared: Declared,
}

impl ToolSpec {
    fn new(name: impl Into<String>, description: impl Into<String>, effect: Effect) -> ToolSpec {
        ToolSpec {
            name: name.into(),
            description: description.into(),
            effect,
            rerun: false,
            timeout: None,
            queue_timeout: None,
            total_timeout: None,
            max_attempts: None,
            tries: None,
            retry_wait_max: None,
            result_bytes_max: None,
            tags: Vec::new(),
            presentation: None,
            declared: Declared::default(),
        }
    }

    /// A tool that changes nothing.
    pub fn read(name: impl Into<String>, description: impl Into<String>) -> ToolSpec {
        ToolSpec::new(name, description, Effect::Read)
    }

    /// A tool that may change something; repeating the same arguments changes nothing more.
    pub fn idempotent(name: impl Into<String>, description: impl Into<String>) -> ToolSpec {
        ToolSpec::new(name, description, Effect::Idempotent)
    }

    /// A tool that changes something: it starts at most once.
    pub fn write(name: impl Into<String>, description: impl Into<String>) -> ToolSpec {
        ToolSpec::new(name, description, Effect::Write)
    }

    /// A tool whose effect depends on the call: `expr` is CEL over `input`, the checked arguments, and
    /// yields `read`, `idempotent` or `write`. Where it fails the call is a write.
    pub fn dynamic(
        name: impl Into<String>,
        description: impl Into<String>,
        expr: impl Into<String>,
    ) -> ToolSpec {
        let mut spec = ToolSpec::new(name, description, Effect::Write);
        spec.declared.effect_expr = Some(Expression { expr: expr.into() });
        spec
    }

    /// A write that honours the idempotency key and may be started again after a lost worker.
    #[must_use]
    pub fn rerun(mut self) -> ToolSpec {
        self.rerun = true;
        self
    }

    /// Time of one attempt.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> ToolSpec {
        self.timeout = Some(timeout);
        self
    }

    /// Time that a call waits for a worker.
    #[must_use]
    pub fn queue_timeout(mut self, timeout: Duration) -> ToolSpec {
        self.queue_timeout = Some(timeout);
        self
    }

    /// Time of all attempts together; else the attempt's timeout times the attempts.
    #[must_use]
    pub fn total_timeout(mut self, timeout: Duration) -> ToolSpec {
        self.total_timeout = Some(timeout);
        self
    }

    /// Starts before the call is given up.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> ToolSpec {
        self.max_attempts = Some(attempts);
        self
    }

    /// Tries in one attempt, the first included, where it fails with [`ToolError::transient`]: from 1 to
    /// 10, else 3. A write has one.
    #[must_use]
    pub fn tries(mut self, tries: u32) -> ToolSpec {
        self.tries = Some(tries);
        self
    }

    /// The longest wait between two tries; else 5 s.
    #[must_use]
    pub fn retry_wait_max(mut self, wait: Duration) -> ToolSpec {
        self.retry_wait_max = Some(wait);
        self
    }

    /// Bound of what the model reads, bytes of UTF-8.
    #[must_use]
    pub fn result_bytes_max(mut self, bytes: u64) -> ToolSpec {
        self.result_bytes_max = Some(bytes);
        self
    }

    /// What a dry run answers instead of running a call that may change something; must be an output of the
    /// tool.
    #[must_use]
    pub fn dry_run_result(mut self, value: impl Into<Value>) -> ToolSpec {
        self.declared.dry_run_result = Some(DryRunResult::Value(value.into()));
        self
    }

    /// The same, as CEL over `input`.
    #[must_use]
    pub fn dry_run_expr(mut self, expr: impl Into<String>) -> ToolSpec {
        self.declared.dry_run_result = Some(DryRunResult::Expr(expr.into()));
        self
    }

    /// A property of the input that, in an execution with `asOf`, must be an absolute instant not later
    /// than that.
    #[must_use]
    pub fn time_arg(mut self, property: impl Into<String>) -> ToolSpec {
        self.declared.time_args.push(property.into());
        self
    }

    /// Words for people, never shown to the model: an object with the keys that `[presentation]` has
    /// in a manifest.
    #[must_use]
    pub fn presentation(mut self, words: Value) -> ToolSpec {
        self.presentation = Some(words);
        self
    }

    /// A word to select the tool by.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> ToolSpec {
        self.tags.push(tag.into());
        self
    }
}
