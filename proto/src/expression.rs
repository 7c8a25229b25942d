//! Expressions in CEL (CONTRACT 1.1, 1.8, 3.9): compiled once, evaluated over a call's input.
//!
//! An expression always ends, since the language has no loops but over lists and maps. So that it also
//! ends soon, its text, its depth and the number of its macros are bounded when it is compiled, and each
//! evaluation has an allowance of work, [`WORK_MAX`], that the steps of macros and everything which is
//! copied, compared or put together are taken from. What is over a bound is an error, never a guess.

mod tame;
#[cfg(test)]
mod tests;
mod values;

use crate::declared::EXPRESSION_BYTES_MAX;
use crate::effect::Effect;
use crate::json::Json;
use crate::schema::path::shorten;
use cel::common::types::{CelBool, CelString, DYN_TYPE, INT_TYPE};
use cel::common::value::CowVal;
use cel::{Context, Env, ExecutionError, IdedExpr, Value};
use regex::Regex;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

/// The name that an expression knows the call's input by.
pub const INPUT: &str = "input";
/// Deepest nesting of an expression, macros written out.
pub const DEPTH_MAX: usize = 64;
/// Most macros (`all`, `exists`, `exists_one`, `map`, `filter`) of one expression.
pub const MACROS_MAX: usize = 16;
/// Work of one evaluation: a step inside a macro, a value or 16 bytes of text that is copied, compared
/// or put together, a byte that a pattern looks at. Far below a second.
pub const WORK_MAX: u64 = 2_000_000;

/// What the parser may nest, which counts its own rules.
const PARSE_DEPTH_MAX: u16 = 64;
/// Stack for compiling, of which only what is used is taken: many times what the longest chain needs.
const COMPILE_STACK_BYTES: usize = 64 << 20;
/// Work of a match beside its text.
const MATCH_WORK: u64 = 16;
/// Longest error that is told.
const ERROR_BYTES_MAX: usize = 200;

thread_local! {
    /// What is left of the allowance of the evaluation that runs on this thread.
    static LEFT: Cell<u64> = const { Cell::new(0) };
    /// The patterns of the expression that is evaluated on this thread.
    static PATTERNS: RefCell<Option<Arc<[Regex]>>> = const { RefCell::new(None) };
}

/// The functions of the language, and those that take work off the allowance.
static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::default().with_optional_support(false).with_stdlib();
    let counted = env.add_overload(tame::COUNTED, "counted", vec![DYN_TYPE], counted);
    let range = env.add_overload(tame::RANGE, "range", vec![DYN_TYPE, INT_TYPE], range);
    let found = env.add_overload(tame::MATCH, "match", vec![DYN_TYPE, INT_TYPE], find);
    debug_assert!(counted.is_ok() && range.is_ok() && found.is_ok(), "these names are ours");
    Arc::new(env)
});

/// A compiled expression over [`INPUT`]. Compile once for each tool.
#[derive(Clone, Debug)]
pub struct Program {
    root: IdedExpr,
    patterns: Arc<[Regex]>,
}

/// Why an expression cannot be used, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CompileError(String);

/// Why an expression gave no value, in one line that quotes nothing of the input but keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EvaluateError(String);

impl Program {
    /// Compiles an expression.
    ///
    /// Refused: an empty one or one above [`EXPRESSION_BYTES_MAX`], what is no CEL, names and functions
    /// that there are not, a pattern of `matches` that is not written out or does not compile, more than [`MACROS_MAX`]
    /// macros or [`DEPTH_MAX`] levels.
    pub fn compile(text: &str) -> Result<Program, CompileError> {
        if text.trim().is_empty() {
            return Err(CompileError("the expression is empty".to_owned()));
        }
        if text.len() > EXPRESSION_BYTES_MAX {
            let bytes = text.len();
            let message =
                format!("the expression has {bytes} bytes, more than {EXPRESSION_BYTES_MAX}");
            return Err(CompileError(message));
        }
        // The parser goes down into chains as deep as they are long: on a stack that has room for that.
        let text = text.to_owned();
        let compiling = std::thread::Builder::new()
            .name("expression".to_owned())
            .stack_size(COMPILE_STACK_BYTES)
            .spawn(move || compile(&text))
            .map_err(|error| CompileError(format!("it cannot be read: {error}")))?;
        let compiled = compiling.join();
        compiled.unwrap_or_else(|_| Err("it cannot be read".to_owned())).map_err(CompileError)
    }

    /// The value that the expression yields for an input.
    ///
    /// The keys of an object come out in the order of their names. A float that is whole stays a float.
    pub fn evaluate(&self, input: &Json) -> Result<Json, EvaluateError> {
        LEFT.set(WORK_MAX);
        PATTERNS.set(Some(Arc::clone(&self.patterns)));
        let evaluated = catch_unwind(AssertUnwindSafe(|| {
            let mut context = Context::with_env(Arc::clone(&ENV));
            context.add_variable_as_val(INPUT, values::of_json(input));
            let value = Value::resolve_val(&self.root, &context).map_err(|error| told(&error))?;
            values::to_json(value.as_ref(), &spend)
        }));
        let result = evaluated.unwrap_or_else(|_| Err("it cannot be evaluated".to_owned()));
        result.map_err(|mut text| {
            text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
            EvaluateError(text)
        })
    }

    /// The effect that the expression yields for an input.
    pub fn effect(&self, input: &Json) -> Result<Effect, EvaluateError> {
        let value = self.evaluate(input)?;
        let known = [Effect::Read, Effect::Idempotent, Effect::Write];
        let effect = match &value {
            Json::String(word) => known.into_iter().find(|effect| effect.as_str() == word),
            _ => None,
        };
        effect.ok_or_else(|| {
            EvaluateError("it yields none of `read`, `idempotent` and `write`".to_owned())
        })
    }
}

fn compile(text: &str) -> Result<Program, String> {
    let parser = cel::parser::Parser::default().max_recursion_depth(PARSE_DEPTH_MAX);
    let root = parser.parse(text).map_err(|errors| of_parse(&errors))?;
    let (root, patterns) = tame::tame(root)?;
    Ok(Program { root, patterns: patterns.into() })
}

fn of_parse(errors: &cel::ParseErrors) -> String {
    let Some(first) = errors.errors.first() else { return "it is no CEL".to_owned() };
    let mut text = first.msg.lines().next().unwrap_or_default().to_owned();
    text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
    format!("line {}, column {}: {text}", first.pos.0.max(1), first.pos.1.max(1))
}

/// What is said of an error: never the values, which are the caller's.
fn told(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {}", shorten(key)),
        ExecutionError::NoSuchOverload(_) => error.to_string(),
        ExecutionError::UnexpectedType { got, want } => format!("{got} where {want} is wanted"),
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => {
            "division by zero".to_owned()
        }
        ExecutionError::Overflow(..) => "an integer overflows".to_owned(),
        ExecutionError::IndexOutOfBounds(_) => "an index out of bounds".to_owned(),
        ExecutionError::FunctionError { function, .. } if function == tame::COUNTED => {
            over_budget()
        }
        ExecutionError::FunctionError { function, .. } => format!("{function}() fails"),
        _ => "a value of the wrong type".to_owned(),
    }
}

fn over_budget() -> String {
    format!("it takes more than {WORK_MAX} steps")
}

/// Takes work off the allowance; `false`: there is not as much left.
fn spend(work: u64) -> bool {
    let left = LEFT.get().checked_sub(work);
    LEFT.set(left.unwrap_or(0));
    left.is_some()
}

fn exhausted() -> ExecutionError {
    ExecutionError::function_error(tame::COUNTED, over_budget())
}

/// Gives its argument back, its size taken off the allowance.
fn counted<'b, 'v>(mut args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let value = args.pop().ok_or_else(ExecutionError::missing_argument_or_target)?;
    if values::is_within(value.as_ref(), &spend) { Ok(value) } else { Err(exhausted()) }
}

/// Whether a text has what the pattern of that place looks for, in time that is linear in the text: each
/// byte counts.
fn find<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [text, place] = args.as_slice() else {
        return Err(ExecutionError::missing_argument_or_target());
    };
    let Some(text) = text.downcast_ref::<CelString>() else {
        let kind = text.get_type().name().to_owned();
        return Err(ExecutionError::no_such_overload("matches", vec![kind]));
    };
    if !spend(text.inner().len() as u64 + MATCH_WORK) {
        return Err(exhausted());
    }
    let place = values::integer(place.as_ref()).and_then(|place| usize::try_from(place).ok());
    let is_found = PATTERNS.with_borrow(|patterns| {
        let pattern = patterns.as_ref().and_then(|patterns| patterns.get(place?));
        pattern.is_some_and(|pattern| pattern.is_match(text.inner()))
    });
    Ok(CowVal::owned(CelBool::from(is_found)))
}

/// The same for what a macro goes through, with the steps that it will take: so many for each entry.
fn range<'b, 'v>(mut args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let steps = args.pop().and_then(|steps| values::integer(steps.as_ref())).unwrap_or(1);
    let value = args.pop().ok_or_else(ExecutionError::missing_argument_or_target)?;
    let work = values::entries(value.as_ref()).saturating_mul(steps.unsigned_abs());
    if spend(work) && values::is_within(value.as_ref(), &spend) {
        Ok(value)
    } else {
        Err(exhausted())
    }
}
