//! `[run]`: exactly one runner, and how its output is read (CONTRACT 1.2, 6.2).

use super::fault::Faults;
use super::keys::{self, Support};
use super::tree::{self, Kind, Member};
use super::value::{not_yet, table, texts, wrong_kind};
use crate::descriptor::ResultForm;

/// What `[run]` says.
pub(super) struct Run {
    /// Program and arguments, as written.
    pub(super) command: Vec<String>,
    /// How the output is read, where it is declared.
    pub(super) result: Option<ResultForm>,
}

/// Reads `[run]`; `None` after a fault.
pub(super) fn read(members: &[Member], faults: &mut Faults<'_>) -> Option<Run> {
    const MEND: &str = "add `[run]` with `exec = [\"./program\"]`";
    let Some(member) = tree::find(members, "run") else {
        faults.whole("manifest.missing", "nothing runs this tool: there is no `[run]`", MEND);
        return None;
    };
    let members = table(member, faults)?;
    for inner in members {
        unsupported(inner, faults);
    }
    let runners: Vec<&Member> =
        members.iter().filter(|inner| keys::RUNNERS.contains(&inner.key.as_str())).collect();
    let command = match runners.as_slice() {
        [] => {
            faults.at(member.line, "manifest.run", "`[run]` has no runner", MEND);
            None
        }
        [runner] if runner.key == "exec" => command(runner, faults),
        [runner] => {
            not_yet(runner.line, &format!("the runner `{}`", runner.key), faults);
            None
        }
        [_, second, ..] => {
            let names: Vec<String> =
                runners.iter().map(|runner| format!("`{}`", runner.key)).collect();
            let message = format!("`[run]` has more than one runner: {}", names.join(", "));
            faults.at(second.line, "manifest.run", message, "keep exactly one");
            None
        }
    };
    let result = match tree::find(members, "result") {
        Some(member) => Some(result_form(member, faults)?),
        None => None,
    };
    Some(Run { command: command?, result })
}

/// Faults of a key that is unknown here or does nothing yet. Runners are judged together.
fn unsupported(member: &Member, faults: &mut Faults<'_>) {
    let key = member.key.as_str();
    match keys::support(keys::RUN, key) {
        Some(_) if keys::RUNNERS.contains(&key) => {}
        Some(Support::Now) => {}
        Some(Support::NotYet) => not_yet(member.line, &format!("`{key}` in `[run]`"), faults),
        None => {
            let mend = if keys::support(keys::TOP, key).is_some() {
                "move it above the first table of the manifest".into()
            } else {
                keys::mend_unknown(keys::RUN, key)
            };
            let message = format!("unknown key `{key}` in `[run]`");
            faults.at(member.line, "manifest.unknown-key", message, mend);
        }
    }
}

fn command(member: &Member, faults: &mut Faults<'_>) -> Option<Vec<String>> {
    let words = texts(member, "[\"./program\", \"--flag\"]", faults)?;
    let mut is_sound = true;
    if words.first().is_none_or(|(_, program)| program.is_empty()) {
        let mend = "write the program as the first word";
        faults.at(member.line, "manifest.run", "`exec` names no program", mend);
        is_sound = false;
    }
    for (line, word) in &words {
        if word.contains('\0') {
            let message = "a word of `exec` holds a zero byte, which no program can be given";
            faults.at(*line, "manifest.run", message, "remove it");
            is_sound = false;
        }
    }
    is_sound.then(|| words.into_iter().map(|(_, word)| word).collect())
}

fn result_form(member: &Member, faults: &mut Faults<'_>) -> Option<ResultForm> {
    const EXAMPLE: &str = "result = \"text\"";
    let Kind::Text(word) = &member.node.kind else {
        wrong_kind(member, "`text`, `json` or `envelope`", EXAMPLE, faults);
        return None;
    };
    match word.as_str() {
        "text" => Some(ResultForm::Text),
        "json" => Some(ResultForm::Json),
        "envelope" => Some(ResultForm::Envelope),
        _ => {
            let message = format!("`result` is `{word}`, which is no way to read an output");
            faults.at(member.line, "manifest.type", message, "write `text`, `json` or `envelope`");
            None
        }
    }
}
