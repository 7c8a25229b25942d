//! What a validator finds, turned into faults that a model can mend: one place, one short text each.

use super::path::{push_pointer, quote, quote_text, shorten};
use jsonschema::{ValidationError, error::TypeKind, error::ValidationErrorKind as Kind};
use serde_json::Value;

/// Allowed values are listed up to this many.
const OPTIONS_MAX: usize = 8;

/// One fault of a value.
#[derive(Debug)]
pub(super) struct Fault {
    /// JSON Pointer of the place; of the absent member where one is missing.
    pub(super) pointer: String,
    /// What was expected there.
    pub(super) text: String,
    /// A required member is absent.
    pub(super) is_missing: bool,
    /// The fault is the member's name, not its value.
    pub(super) is_unknown: bool,
}

impl Fault {
    fn new(pointer: &str, text: String) -> Fault {
        Fault { pointer: pointer.to_owned(), text, is_missing: false, is_unknown: false }
    }

    fn of_member(parent: &str, name: &str, text: &str) -> Fault {
        let mut fault = Fault::new(parent, text.to_owned());
        push_pointer(&mut fault.pointer, name);
        fault
    }
}

/// Appends the faults that one error stands for. `root` is the whole value that was checked.
pub(super) fn collect(root: &Value, error: &ValidationError<'_>, faults: &mut Vec<Fault>) {
    let at = error.instance_path().as_str();
    let unknown = |name: &str| Fault {
        is_unknown: true,
        ..Fault::of_member(at, name, "not a known property")
    };
    match error.kind() {
        Kind::Required { property } => faults.push(Fault {
            is_missing: true,
            ..Fault::of_member(at, property.as_str().unwrap_or_default(), "required, but missing")
        }),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            faults.extend(unexpected.iter().map(|name| unknown(name)));
        }
        Kind::FalseSchema => match root.pointer(at) {
            // Where no member at all is allowed the validator names the object alone.
            Some(Value::Object(members)) if !members.is_empty() && refuses_members(error) => {
                faults.extend(members.keys().map(|name| unknown(name)));
            }
            _ => faults.push(Fault::new(at, "not allowed".into())),
        },
        Kind::PropertyNames { error: inner } => {
            let name = inner.instance().as_str().unwrap_or_default();
            let text = format!("not a valid property name: {}", text(inner));
            faults.push(Fault { is_unknown: true, ..Fault::of_member(at, name, &text) });
        }
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            collect_union(root, error, context, faults);
        }
        _ => faults.push(Fault::new(at, text(error))),
    }
}

/// Whether a `false` is the schema of all members, rather than of the value itself.
fn refuses_members(error: &ValidationError<'_>) -> bool {
    let path = error.schema_path().as_str();
    ["additionalProperties", "unevaluatedProperties"].iter().any(|keyword| {
        path.strip_suffix(keyword)
            .is_some_and(|parent| parent.ends_with('/') && !parent.ends_with("/properties/"))
    })
}

/// Reports a union by the one branch that the value was meant for, where that can be told.
fn collect_union(
    root: &Value,
    error: &ValidationError<'_>,
    branches: &[Vec<ValidationError<'static>>],
    faults: &mut Vec<Fault>,
) {
    let at = error.instance_path().as_str();
    if let Some(fault) = merge_types(error, branches).or_else(|| merge_tags(at, branches)) {
        faults.push(fault);
        return;
    }
    let all: Vec<&Vec<_>> = branches.iter().collect();
    let tagged = narrow(all, |branch| !branch.iter().any(|error| is_tag(at, error)));
    let typed = narrow(tagged, |branch| {
        !branch.iter().any(|e| is_type(e) && e.instance_path().as_str() == at)
    });
    let reach = |branch: &[ValidationError<'_>]| branch.iter().map(depth).max().unwrap_or(0);
    let deepest = typed.iter().map(|branch| reach(branch)).max().unwrap_or(0);
    match narrow(typed, |branch| reach(branch) == deepest).as_slice() {
        [branch] => branch.iter().for_each(|error| collect(root, error, faults)),
        _ => faults.push(Fault::new(at, text(error))),
    }
}

/// The branches that pass the test, or all of them if none does.
fn narrow<B: ?Sized>(branches: Vec<&B>, test: impl Fn(&B) -> bool) -> Vec<&B> {
    let kept: Vec<&B> = branches.iter().copied().filter(|branch| test(branch)).collect();
    if kept.is_empty() { branches } else { kept }
}

fn is_type(error: &ValidationError<'_>) -> bool {
    matches!(error.kind(), Kind::Type { .. })
}

/// Whether an error is about a member of the union's value that must have a fixed value.
fn is_tag(at: &str, error: &ValidationError<'_>) -> bool {
    let is_fixed = matches!(error.kind(), Kind::Constant { .. } | Kind::Enum { .. });
    let below = error.instance_path().as_str().strip_prefix(at);
    is_fixed && below.is_some_and(|below| below.matches('/').count() == 1)
}

/// How deep an error lies, in steps from the root.
fn depth(error: &ValidationError<'_>) -> usize {
    match error.kind() {
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            context.iter().flatten().map(depth).max().unwrap_or(0)
        }
        _ => error.instance_path().as_str().matches('/').count(),
    }
}

/// One fault for a union of plain types: `expected integer or null`.
fn merge_types(
    error: &ValidationError<'_>,
    branches: &[Vec<ValidationError<'static>>],
) -> Option<Fault> {
    let at = error.instance_path().as_str();
    let mut names = Vec::new();
    for branch in branches {
        let [only] = branch.as_slice() else { return None };
        let Kind::Type { kind } = only.kind() else { return None };
        if only.instance_path().as_str() != at {
            return None;
        }
        names.extend(type_names(kind));
    }
    names.dedup();
    Some(Fault::new(
        at,
        format!("expected {}, got {}", names.join(" or "), quote(error.instance())),
    ))
}

/// One fault for a tag that fits no branch: `expected one of "mail", "sms"`.
fn merge_tags(at: &str, branches: &[Vec<ValidationError<'static>>]) -> Option<Fault> {
    let mut options = Vec::new();
    let mut tag: Option<&ValidationError<'_>> = None;
    for branch in branches {
        let error = branch.iter().find(|error| is_tag(at, error))?;
        if tag.is_some_and(|tag| tag.instance_path() != error.instance_path()) {
            return None;
        }
        tag = Some(error);
        match error.kind() {
            Kind::Constant { expected_value } => options.push(expected_value.as_ref().clone()),
            Kind::Enum { options: more } => {
                options.extend(more.as_array().into_iter().flatten().cloned());
            }
            _ => return None,
        }
    }
    let tag = tag?;
    let text = format!("expected {}, got {}", one_of(&options), quote(tag.instance()));
    Some(Fault::new(tag.instance_path().as_str(), text))
}

fn type_names(kind: &TypeKind) -> Vec<String> {
    match kind {
        TypeKind::Single(name) => vec![name.as_str().to_owned()],
        TypeKind::Multiple(names) => names.iter().map(|name| name.as_str().to_owned()).collect(),
    }
}

fn one_of(options: &[Value]) -> String {
    match options {
        [only] => option(only),
        _ if options.len() <= OPTIONS_MAX => {
            let options: Vec<String> = options.iter().map(option).collect();
            format!("one of {}", options.join(", "))
        }
        _ => format!("one of {} allowed values", options.len()),
    }
}

fn option(value: &Value) -> String {
    match value {
        Value::String(text) => quote_text(text),
        other => shorten(&other.to_string()),
    }
}

/// What one error says, the value at fault quoted within its bound.
fn text(error: &ValidationError<'_>) -> String {
    let expected = match error.kind() {
        Kind::Type { kind } => type_names(kind).join(" or "),
        Kind::Constant { expected_value } => option(expected_value),
        Kind::Enum { options } => one_of(options.as_array().map_or(&[], Vec::as_slice)),
        Kind::Format { format } => format!("the format {}", quote_text(format)),
        Kind::Pattern { pattern } => format!("a match of {}", quote_text(pattern)),
        Kind::Minimum { limit } => format!("at least {limit}"),
        Kind::Maximum { limit } => format!("at most {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("more than {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("less than {limit}"),
        Kind::MultipleOf { multiple_of } => format!("a multiple of {multiple_of}"),
        Kind::MinLength { limit } => format!("at least {}", counted(*limit, "character")),
        Kind::MaxLength { limit } => format!("at most {}", counted(*limit, "character")),
        _ => return text_of_whole(error),
    };
    format!("expected {expected}, got {}", quote(error.instance()))
}

/// Texts that quote no value, because the fault is one of many parts or of none.
fn text_of_whole(error: &ValidationError<'_>) -> String {
    let parts = match error.instance().as_ref() {
        Value::Array(items) => items.len(),
        Value::Object(members) => members.len(),
        _ => 0,
    };
    let counts = |word: &str, limit: u64, part: &str| {
        format!("expected at {word} {}, got {parts}", counted(limit, part))
    };
    match error.kind() {
        Kind::MinItems { limit } => counts("least", *limit, "item"),
        Kind::MaxItems { limit } => counts("most", *limit, "item"),
        Kind::AdditionalItems { limit } => counts("most", *limit as u64, "item"),
        Kind::MinProperties { limit } => counts("least", *limit, "member"),
        Kind::MaxProperties { limit } => counts("most", *limit, "member"),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            format!("fits none of the {} allowed forms", context.len())
        }
        Kind::OneOfMultipleValid { .. } => "fits more than one form where one is allowed".into(),
        Kind::Not { .. } => "fits a form that is not allowed".into(),
        Kind::UniqueItems => "expected items that differ from each other".into(),
        Kind::Contains => "expected an item of the form that the schema asks for".into(),
        Kind::UnevaluatedItems { .. } => "has more items than allowed".into(),
        Kind::FalseSchema => "not allowed".into(),
        Kind::BacktrackLimitExceeded { .. } => "too costly to match with the pattern".into(),
        Kind::RegexEngineFailure { .. } => "cannot be matched with the pattern".into(),
        Kind::ContentEncoding { content_encoding } => format!("not encoded as {content_encoding}"),
        Kind::FromUtf8 { .. } => "holds bytes that are not UTF-8".into(),
        Kind::ContentMediaType { content_media_type } => {
            format!("does not hold {content_media_type}")
        }
        // Only a schema's own faults are left; they quote the schema, not a value.
        _ => shorten(&error.to_string()),
    }
}

fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}
