//! What a manifest says around the run itself: secrets, tags and words for people.

use super::Syntax;
use super::fault::{Fault, Faults};
use super::keys;
use super::tables::PRESENTATION;
use super::tree::{self, Kind, Member};
use super::value::{table, texts, wrong_kind};
use crate::checks::Finding;
use serde_json::{Value, json};

/// Variables that every tool process is given; a secret of that name would hide them.
const OWN_VARIABLES: [&str; 7] =
    ["PATH", "LANG", "HOME", "TMPDIR", "TRACEPARENT", "TRACESTATE", "BAGGAGE"];

/// Names of secrets, each once. They become file names and variables, so they are checked.
pub(super) fn secrets(members: &[Member], faults: &mut Faults<'_>) -> Vec<String> {
    let mut names = Vec::new();
    let Some(member) = tree::find(members, "secrets") else { return names };
    for (line, name) in texts(member, "[\"API_TOKEN\"]", faults).unwrap_or_default() {
        if !is_variable(&name) {
            faults.at(
                line,
                "tool.secret-invalid",
                format!("`{name}` is no name of a secret"),
                "use letters, digits and `_`, not a digit first, as in `API_TOKEN`",
            );
        } else if OWN_VARIABLES.contains(&name.as_str()) || name.starts_with("TOOLFLEET_") {
            faults.at(
                line,
                "tool.secret-invalid",
                format!("`{name}` is a variable that every tool is given"),
                "give the secret another name",
            );
        } else if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// `^[A-Za-z_][A-Za-z0-9_]*$`, at most 128 bytes.
fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Words to select tools by.
pub(super) fn tags(members: &[Member], faults: &mut Faults<'_>) -> Vec<String> {
    let Some(member) = tree::find(members, "tags") else { return Vec::new() };
    let mut tags = Vec::new();
    for (line, tag) in texts(member, "[\"crm\"]", faults).unwrap_or_default() {
        if tag.trim().is_empty() {
            faults.at(line, "manifest.type", "a tag is empty", "remove it");
        } else if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    tags
}

/// `[presentation]`, as the author gave it (CONTRACT 1.9).
pub(super) fn presentation(members: &[Member], faults: &mut Faults<'_>) -> Option<Value> {
    let member = tree::find(members, "presentation")?;
    let inner = table(member, faults)?;
    let before = faults.count();
    presentation_keys(inner, true, faults);
    if faults.count() > before {
        return None;
    }
    match member.node.to_value() {
        Ok(value) => Some(value),
        Err((line, kind)) => {
            let message = format!("`presentation` holds {kind}, which JSON cannot say");
            faults.at(line, "manifest.type", message, "write a string");
            None
        }
    }
}

/// What is wrong with words for people that stand in no manifest.
pub(super) fn of_value(value: &Value) -> Vec<Finding> {
    let text = json!({ "presentation": value }).to_string();
    let mut faults = Faults::new("");
    match tree::read(&text, Syntax::Json).map(|node| node.kind) {
        Ok(Kind::Table(members)) => {
            presentation(&members, &mut faults);
        }
        _ => faults.whole("manifest.type", "`presentation` cannot be read", "shorten it"),
    }
    let finding = |Fault { code, message, mend, .. }| Finding { code, message, mend };
    faults.into_sorted().into_iter().map(finding).collect()
}

fn presentation_keys(members: &[Member], may_hold_locales: bool, faults: &mut Faults<'_>) {
    for member in members {
        let key = member.key.as_str();
        let is_text = matches!(member.node.kind, Kind::Text(_));
        match (key, &member.node.kind) {
            ("confirm" | "component", Kind::Table(_)) => {}
            ("confirm" | "component", _) => {
                wrong_kind(member, "a table", &format!("[presentation.{key}]"), faults);
            }
            _ if keys::support(PRESENTATION, key).is_some() => {
                if !is_text {
                    wrong_kind(member, "a string", &format!("{key} = \"…\""), faults);
                }
            }
            (_, Kind::Table(inner)) if may_hold_locales && is_locale(key) => {
                presentation_keys(inner, false, faults);
            }
            _ => faults.at(
                member.line,
                "manifest.unknown-key",
                format!("unknown key `{key}` in `[presentation]`"),
                keys::mend_unknown(PRESENTATION, key),
            ),
        }
    }
}

/// A language tag in shape: `de`, `pt-BR`, `zh-Hant`.
fn is_locale(key: &str) -> bool {
    let mut parts = key.split('-');
    let is_language = parts.next().is_some_and(|part| {
        (2..=3).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphabetic())
    });
    let is_subtag = |part: &str| {
        (1..=8).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    is_language && parts.all(is_subtag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_named_like_a_variable() {
        for name in ["A", "_a", "STRIPE_KEY2"] {
            assert!(is_variable(name), "{name}");
        }
        for name in ["", "1A", "A-B", "../A", "A/B", "Ä", &"A".repeat(129)] {
            assert!(!is_variable(name), "{name}");
        }
    }

    #[test]
    fn a_locale_is_a_language_tag() {
        for key in ["de", "pt-BR", "zh-Hant-TW"] {
            assert!(is_locale(key), "{key}");
        }
        for key in ["", "d", "lable", "de_AT", "de-"] {
            assert!(!is_locale(key), "{key}");
        }
    }
}
