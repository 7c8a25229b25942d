//! Single values of a manifest: read, or a fault with its mend.

use super::fault::Faults;
use super::tree::{Kind, Member, Node};
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
    with_unit(member, unit::parse_duration_ms, "tool.timeout-invalid", "10s", faults)
}

/// A size in bytes.
pub(super) fn bytes(member: &Member, faults: &mut Faults<'_>) -> Option<u64> {
    with_unit(member, unit::parse_bytes, "tool.max-result-size-invalid", "64KB", faults)
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
