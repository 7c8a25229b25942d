//! Single values of a manifest: read, or a fault with its mend.

use super::fault::Faults;
use super::keys::{self, Key};
use super::tables::EXPRESSION;
use super::tree::{self, Kind, Member, Node};
use crate::checks;
use crate::declared::{EXPRESSION_BYTES_MAX, Expression};
use crate::unit::{self, UnitError};

/// A value of the wrong kind.
pub(super) fn wrong_kind(member: &Member, wanted: &str, example: &str, faults: &mut Faults<'_>) {
    faults.at(
        member.line,
        "manifest.type",
        format!("`{}` is {}, not {wanted}", member.key, member.node.kind_name()),
        format!("write it as in `{example}`"),
    );
}

/// A span in milliseconds.
pub(super) fn duration_ms(member: &Member, faults: &mut Faults<'_>) -> Option<u64> {
    span_ms(member, "tool.timeout-invalid", faults)
}

/// A size in bytes; `code` where it is none.
pub(super) fn bytes(member: &Member, code: &'static str, faults: &mut Faults<'_>) -> Option<u64> {
    with_unit(member, unit::parse_bytes, code, "64KB", faults)
}

/// A span in milliseconds; `code` where it is none.
pub(super) fn span_ms(member: &Member, code: &'static str, faults: &mut Faults<'_>) -> Option<u64> {
    with_unit(member, unit::parse_duration_ms, code, "10s", faults)
}

fn with_unit(
    member: &Member,
    parse: fn(&str) -> Result<u64, UnitError>,
    code_invalid: &'static str,
    example: &str,
    faults: &mut Faults<'_>,
) -> Option<u64> {
    let example = format!("{} = \"{example}\"", member.key);
    let mend = format!("write a number with a unit, as in `{example}`");
    match &member.node.kind {
        Kind::Text(text) => match parse(text) {
            Ok(value) => Some(value),
            Err(error) => {
                let code = if error.code == "units.missing" { error.code } else { code_invalid };
                faults.at(member.line, code, format!("`{}`: {error}", member.key), mend);
                None
            }
        },
        Kind::Number(number) => {
            let message = format!("`{}` is the bare number {number}", member.key);
            faults.at(member.line, "units.missing", message, mend);
            None
        }
        _ => {
            wrong_kind(member, "a number with a unit in quotes", &example, faults);
            None
        }
    }
}

/// `true` or `false`.
pub(super) fn flag(member: &Member, faults: &mut Faults<'_>) -> Option<bool> {
    if let Kind::Bool(flag) = member.node.kind {
        return Some(flag);
    }
    wrong_kind(member, "a boolean", &format!("{} = true", member.key), faults);
    None
}

/// A list of strings; each line is that of its string.
pub(super) fn texts(
    member: &Member,
    example: &str,
    faults: &mut Faults<'_>,
) -> Option<Vec<(u32, String)>> {
    let text = |node: &Node| match &node.kind {
        Kind::Text(text) => Some((node.line, text.clone())),
        _ => None,
    };
    let texts = match &member.node.kind {
        Kind::List(items) => items.iter().map(text).collect::<Option<Vec<_>>>(),
        _ => None,
    };
    if texts.is_none() {
        let example = format!("{} = {example}", member.key);
        let wanted = match member.node.kind {
            Kind::List(_) => "one of strings only",
            _ => "a list of strings",
        };
        wrong_kind(member, wanted, &example, faults);
    }
    texts
}

/// A text that is not blank.
pub(super) fn text(member: &Member, faults: &mut Faults<'_>) -> Option<String> {
    match &member.node.kind {
        Kind::Text(text) if !text.trim().is_empty() => Some(text.clone()),
        Kind::Text(_) => {
            let message = format!("`{}` is empty", member.key);
            faults.at(member.line, "manifest.type", message, "write a name, or remove it");
            None
        }
        _ => {
            wrong_kind(member, "a string", &format!("{} = \"…\"", member.key), faults);
            None
        }
    }
}

/// An address that begins with `http://` or `https://`.
pub(super) fn address(member: &Member, faults: &mut Faults<'_>) -> Option<String> {
    let text = text(member, faults)?;
    if text.starts_with("http://") || text.starts_with("https://") {
        return Some(text);
    }
    let message = format!("`{}` is no address", member.key);
    faults.at(member.line, "manifest.type", message, "write one as in `https://example.com/path`");
    None
}

/// A whole number within bounds; `code` where it is none.
pub(super) fn count(
    member: &Member,
    bounds: std::ops::RangeInclusive<u64>,
    code: &'static str,
    faults: &mut Faults<'_>,
) -> Option<u64> {
    let Kind::Number(number) = &member.node.kind else {
        let example = format!("{} = {}", member.key, bounds.start());
        wrong_kind(member, "a whole number", &example, faults);
        return None;
    };
    let count = number.as_u64().filter(|count| bounds.contains(count));
    if count.is_none() {
        let mend = format!("write a whole number from {} to {}", bounds.start(), bounds.end());
        faults.at(member.line, code, format!("`{}` is {number}", member.key), mend);
    }
    count
}

/// An expression, `{ expr = "…" }`.
pub(super) fn expression(member: &Member, faults: &mut Faults<'_>) -> Option<Expression> {
    let Kind::Table(members) = &member.node.kind else {
        let example = format!("{} = {{ expr = \"…\" }}", member.key);
        wrong_kind(member, "an expression", &example, faults);
        return None;
    };
    known_keys(members, EXPRESSION, &member.key, faults);
    let Some(inner) = tree::find(members, "expr") else {
        let message = format!("`{}` has no `expr`", member.key);
        faults.at(member.line, "manifest.type", message, "write `{ expr = \"…\" }`");
        return None;
    };
    let Kind::Text(expr) = &inner.node.kind else {
        wrong_kind(inner, "a string", "expr = \"…\"", faults);
        return None;
    };
    if expr.trim().is_empty() || expr.len() > EXPRESSION_BYTES_MAX {
        let message = match expr.len() {
            bytes if bytes > EXPRESSION_BYTES_MAX => format!("an expression of {bytes} bytes"),
            _ => "an expression that is empty".to_owned(),
        };
        let mend = format!("write an expression of at most {EXPRESSION_BYTES_MAX} bytes");
        faults.at(inner.line, "tool.expression-invalid", message, mend);
        return None;
    }
    Some(Expression { expr: expr.clone() })
}

/// An expression over the input of a call, which compiles.
pub(super) fn over_input(member: &Member, faults: &mut Faults<'_>) -> Option<Expression> {
    let found = expression(member, faults)?;
    let finding = checks::expression(&member.key, &found.expr);
    let is_sound = finding.is_none();
    let line = match &member.node.kind {
        Kind::Table(members) => tree::find(members, "expr").map(|inner| inner.line),
        _ => None,
    };
    faults.finding(line, finding);
    is_sound.then_some(found)
}

/// Faults of the keys of a table that it does not have.
pub(super) fn known_keys(members: &[Member], keys: &[Key], place: &str, faults: &mut Faults<'_>) {
    for member in members {
        if keys::support(keys, &member.key).is_none() {
            let message = format!("unknown key `{}` in `{place}`", member.key);
            let mend = keys::mend_unknown(keys, &member.key);
            faults.at(member.line, "manifest.unknown-key", message, mend);
        }
    }
}

/// A key that is known and does nothing yet.
pub(super) fn not_yet(line: u32, what: &str, faults: &mut Faults<'_>) {
    faults.at(
        line,
        "manifest.not-yet",
        format!("{what} is known, but this version does not support it"),
        "remove it, or use a version that has it",
    );
}

/// The table of a member.
pub(super) fn table<'a>(member: &'a Member, faults: &mut Faults<'_>) -> Option<&'a [Member]> {
    if let Kind::Table(members) = &member.node.kind {
        return Some(members);
    }
    wrong_kind(member, "a table", &format!("[{}]", member.key), faults);
    None
}
