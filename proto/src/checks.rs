//! The checks of a tool, however it was authored: a manifest and a Rust type go through the same
//! ones (CONTRACT 1.1, 1.3 to 1.7). A manifest adds the line of the key at fault.

mod declared;
mod naming;
mod warnings;

pub use declared::{dry_run_result, expression, time_arg};
pub use naming::{Naming, proposed};
pub use warnings::warnings;

use crate::declared::TRIES_MAX;
use crate::descriptor::{Descriptor, is_tool_name};
use crate::effect::Effect;
use crate::limit::RESULT_BYTES_CAP;
use crate::manifest;
use crate::schema::Schema;
use crate::unit::{self, DURATION_MS_MAX};
use serde_json::Value;

/// One attempt, where nobody names a timeout.
pub const TIMEOUT_DEFAULT_MS: u64 = 30_000;
/// Waiting for a worker, where nobody names a queue timeout.
pub const QUEUE_TIMEOUT_DEFAULT_MS: u64 = 60_000;
/// Starts of a call, where nobody names them.
pub const MAX_ATTEMPTS_DEFAULT: u32 = 3;
/// Most starts that a tool may ask for.
pub const MAX_ATTEMPTS_MAX: u32 = 100;
/// Bound of a result, where nobody names one.
pub const RESULT_BYTES_DEFAULT: u64 = 128 * 1_024;

/// One thing wrong with a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Stable.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub mend: String,
}

impl Finding {
    fn new(code: &'static str, message: impl Into<String>, mend: impl Into<String>) -> Finding {
        Finding { code, message: message.into(), mend: mend.into() }
    }
}

/// Everything that is wrong with a whole descriptor.
pub fn of(descriptor: &Descriptor, naming: Option<Naming>) -> Vec<Finding> {
    let mut found = name(None, &descriptor.name, naming);
    found.extend(description(&descriptor.description));
    for (key, span_ms) in [
        ("timeout", descriptor.timeout_ms),
        ("queue_timeout", descriptor.queue_timeout_ms),
        ("total_timeout", descriptor.total_timeout_ms),
    ] {
        // The product of a long timeout and many attempts may be longer than a span that is written.
        if key != "total_timeout" || span_ms == 0 {
            found.extend(span(key, span_ms));
        }
    }
    found.extend(total(descriptor.timeout_ms, descriptor.total_timeout_ms));
    found.extend(attempts(u64::from(descriptor.max_attempts)));
    found.extend(result_bytes(descriptor.result_bytes_max));
    found.extend(rerun(descriptor.effect, descriptor.rerun));
    found.extend(retry(descriptor));
    found.extend(input(&descriptor.input_schema));
    found.extend(descriptor.output_schema.as_ref().and_then(|schema| compiled("output", schema)));
    found.extend(descriptor.presentation.iter().flat_map(manifest::check_presentation));
    found.extend(declared::of(descriptor));
    found
}

/// A name's shape, its length, and the house rule. `package` is the folder that stands before the
/// name, which the house rule leaves alone.
pub fn name(package: Option<&str>, stem: &str, naming: Option<Naming>) -> Vec<Finding> {
    let tool = joined(package, stem);
    let mut found = Vec::new();
    let length = tool.chars().count();
    if length > 64 {
        let message = format!("the tool's name has {length} characters");
        found.push(Finding::new("tool.name-too-long", message, "give it a name of at most 64"));
    }
    // Judged without its length, which has a code of its own.
    let judged: String = tool.chars().take(64).collect();
    let is_sound = is_tool_name(&judged)
        && tool.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if !is_sound {
        let mend = format!(
            "name it `{}`: letters, digits, `_` and `-`, a letter or `_` first",
            proposed(&tool)
        );
        let message = format!("`{tool}` is no name of a tool");
        found.push(Finding::new("tool.name-invalid", message, mend));
    }
    if let Some(rule) = naming
        && is_sound
        && !rule.holds(stem)
    {
        found.push(Finding::new(
            "tool.name-kind-suffix",
            format!("`{stem}` is not in {}", rule.describe()),
            format!("name it `{}`", rule.proposed(stem)),
        ));
    }
    found
}

/// A tool's name: that of its package, where it has one, `_`, and its own.
pub fn joined(package: Option<&str>, stem: &str) -> String {
    package.map_or_else(|| stem.to_owned(), |package| format!("{package}_{stem}"))
}

/// What the model reads must be there.
pub fn description(text: &str) -> Option<Finding> {
    text.trim().is_empty().then(|| {
        Finding::new(
            "manifest.missing",
            "`description` is empty",
            "say what the tool does and when to use it, for the model",
        )
    })
}

/// A span from 1 ms to 365 days.
pub fn span(key: &str, span_ms: u64) -> Option<Finding> {
    (!(1..=DURATION_MS_MAX).contains(&span_ms)).then(|| {
        Finding::new(
            "tool.timeout-invalid",
            format!("`{key}` is {span_ms} ms"),
            "use a span from 1 ms to 365 days",
        )
    })
}

/// The time of all attempts holds one at least.
pub fn total(timeout_ms: u64, total_timeout_ms: u64) -> Option<Finding> {
    (total_timeout_ms < timeout_ms).then(|| {
        Finding::new(
            "tool.total-timeout-invalid",
            format!(
                "`total_timeout` is shorter than `timeout` ({}), so that no attempt could use its time",
                unit::describe_ms(timeout_ms)
            ),
            "make it at least as long as `timeout`",
        )
    })
}

/// From 1 to [`MAX_ATTEMPTS_MAX`] starts.
pub fn attempts(attempts: u64) -> Option<Finding> {
    (!(1..=u64::from(MAX_ATTEMPTS_MAX)).contains(&attempts)).then(|| {
        Finding::new(
            "tool.max-attempts-invalid",
            format!("`max_attempts` is {attempts}"),
            format!("write a whole number from 1 to {MAX_ATTEMPTS_MAX}"),
        )
    })
}

/// A bound that one message carries.
pub fn result_bytes(bytes: u64) -> Option<Finding> {
    (!(1..=RESULT_BYTES_CAP).contains(&bytes)).then(|| {
        Finding::new(
            "tool.max-result-size-invalid",
            format!(
                "`max_result_size` is {bytes} bytes, and one message carries {RESULT_BYTES_CAP}"
            ),
            "write a size from 1B to 768KB",
        )
    })
}

/// Only a write is asked whether it may run again.
pub fn rerun(effect: Effect, rerun: bool) -> Option<Finding> {
    (rerun && effect != Effect::Write).then(|| {
        Finding::new(
            "tool.rerun-invalid",
            "`rerun` is for writes: other tools run again anyway",
            "remove it",
        )
    })
}

/// Tries from 1 to [`TRIES_MAX`], with a wait of at least 1 ms between them, and never for a write.
pub fn retry(descriptor: &Descriptor) -> Option<Finding> {
    let retry = descriptor.declared.retry.as_ref()?;
    let is_write = descriptor.effect == Effect::Write && descriptor.declared.effect_expr.is_none();
    let (message, mend) = if is_write {
        let message = "`retry` is for `read` and `idempotent` tools: a write runs once";
        (message.to_owned(), "remove it, or declare the tool's `effect`".to_owned())
    } else if !(1..=TRIES_MAX).contains(&retry.tries) {
        let message = format!("`tries` is {}", retry.tries);
        (message, format!("write a whole number from 1 to {TRIES_MAX}"))
    } else if retry.wait_max_ms.is_some_and(|ms| !(1..=DURATION_MS_MAX).contains(&ms)) {
        let message = "`wait_max` is shorter than 1 ms, or longer than 365 days";
        (message.to_owned(), "use a span from 1 ms to 365 days".to_owned())
    } else {
        return None;
    };
    Some(Finding::new("tool.retry-invalid", message, mend))
}

/// An input's schema lets an object pass, and compiles.
pub fn input(schema: &Value) -> Vec<Finding> {
    let not_object = (!may_be_object(schema)).then(not_an_object);
    not_object.into_iter().chain(compiled("input", schema)).collect()
}

/// What is said of an input's schema that lets no object pass.
pub fn not_an_object() -> Finding {
    Finding::new(
        "tool.input-not-object",
        "arguments are always an object, and this schema allows none",
        "write `type = \"object\"` at the root of the input schema",
    )
}

/// A schema compiles.
pub fn compiled(key: &str, schema: &Value) -> Option<Finding> {
    let error = Schema::compile(schema).err()?;
    Some(Finding::new(error.code, error.message, format!("correct the schema of `{key}`")))
}

/// Whether the root's `type`, where there is one, lets an object pass.
pub fn may_be_object(schema: &Value) -> bool {
    match schema.get("type") {
        None => schema != &Value::Bool(false),
        Some(Value::Array(types)) => types.iter().any(|name| name == "object"),
        Some(name) => name == "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declared::{Declared, DryRunResult, Expression, Retry};
    use crate::descriptor::ResultForm;
    use crate::descriptor::tests::sound;
    use serde_json::json;

    fn codes(descriptor: &Descriptor) -> Vec<&'static str> {
        of(descriptor, None).into_iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn a_sound_tool_has_no_findings_and_a_faulty_one_has_all_at_once() {
        assert!(codes(&sound()).is_empty());
        let faulty = Descriptor {
            name: "1 x".into(),
            description: " ".into(),
            rerun: true,
            timeout_ms: 0,
            queue_timeout_ms: u64::MAX,
            total_timeout_ms: 0,
            max_attempts: 0,
            result_bytes_max: RESULT_BYTES_CAP + 1,
            input_schema: json!({"type": "array", "items": 1}),
            output_schema: Some(json!({"$ref": "https://x.example/y"})),
            presentation: Some(json!({"lable": "Find", "de": {"label": 1}})),
            ..sound()
        };
        let undecided = Descriptor {
            output_schema: Some(json!({"type": "integer"})),
            result: ResultForm::Json,
            declared: Declared {
                effect_expr: Some(Expression { expr: "inptu.x".into() }),
                time_args: vec!["until".into()],
                dry_run_result: Some(DryRunResult::Value(json!("seven"))),
                ..Declared::default()
            },
            ..sound()
        };
        assert_eq!(
            codes(&undecided),
            ["tool.expression-invalid", "tool.time-args-invalid", "tool.dry-run-result-invalid",]
        );
        assert_eq!(
            codes(&faulty),
            [
                "tool.name-invalid",
                "manifest.missing",
                "tool.timeout-invalid",
                "tool.timeout-invalid",
                "tool.timeout-invalid",
                "tool.max-attempts-invalid",
                "tool.max-result-size-invalid",
                "tool.rerun-invalid",
                "tool.input-not-object",
                "schema.invalid",
                "schema.remote-ref",
                "manifest.unknown-key",
                "manifest.type",
            ]
        );
        assert_eq!(
            codes(&Descriptor { total_timeout_ms: 29_999, ..sound() }),
            ["tool.total-timeout-invalid"]
        );
    }

    #[test]
    fn tries_are_bounded_and_not_for_writes() {
        let of = |effect, tries, wait_max_ms| {
            let retry = Some(Retry { tries, wait_max_ms });
            let declared = Declared { retry, ..Declared::default() };
            codes(&Descriptor { effect, declared, ..sound() })
        };
        assert!(of(Effect::Read, 1, None).is_empty());
        assert!(of(Effect::Idempotent, TRIES_MAX, Some(1)).is_empty());
        for (effect, tries, wait_max_ms) in [
            (Effect::Write, 2, None),
            (Effect::Read, 0, None),
            (Effect::Read, TRIES_MAX + 1, None),
            (Effect::Read, 2, Some(0)),
        ] {
            assert_eq!(of(effect, tries, wait_max_ms), ["tool.retry-invalid"], "{tries}");
        }
    }

    #[test]
    fn a_package_stands_before_the_name_and_the_house_rule_leaves_it_alone() {
        assert_eq!(joined(Some("crm"), "find"), "crm_find");
        assert!(name(Some("crm"), "find-tool", Some(Naming::KebabTool)).is_empty());
        let found = name(Some("crm"), "find", Some(Naming::KebabTool));
        assert_eq!(
            (found[0].code, found[0].mend.as_str()),
            ("tool.name-kind-suffix", "name it `find-tool`")
        );
        let found = name(Some("my crm"), "find", Some(Naming::KebabTool));
        assert_eq!(found.len(), 1, "one fault of a name at a time: {found:?}");
        assert!(found[0].mend.contains("`my-crm_find`"), "{}", found[0].mend);
        assert_eq!(name(Some(&"a".repeat(60)), "find", None)[0].code, "tool.name-too-long");
    }

    #[test]
    fn a_schema_that_nothing_passes_is_no_input() {
        assert!(input(&json!(true)).is_empty());
        assert_eq!(input(&json!(false))[0].code, "tool.input-not-object");
        assert_eq!(input(&json!({"type": ["null", "object"]})), []);
    }
}
