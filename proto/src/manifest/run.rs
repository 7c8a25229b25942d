//! `[run]`: exactly one runner, and how its output is read (CONTRACT 1.2, 6.2).

use super::fault::Faults;
use super::keys::{self, Support};
use super::tables::{MCP, RUN, RUNNERS, TOP, VERIFY};
use super::tree::{self, Kind, Member};
use super::value::{address, known_keys, not_yet, table, text, texts, wrong_kind};
use crate::descriptor::{ResultForm, Runner};

/// What `[run]` says.
pub(super) struct Run {
    /// Program and arguments, as written.
    pub(super) command: Vec<String>,
    /// How the output is read, where it is declared.
    pub(super) result: Option<ResultForm>,
    /// The program stays and serves calls one after another.
    pub(super) is_warm: bool,
    /// What tells whether a write took effect.
    pub(super) verify: Option<Runner>,
    /// Where that is asked for.
    pub(super) verify_line: Option<u32>,
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
    let command = match only_runner(member, members, MEND, faults) {
        Some(runner) if runner.key == "exec" => command(runner, faults),
        Some(runner) => {
            not_yet(runner.line, &format!("the runner `{}`", runner.key), faults);
            other_runner(runner, faults);
            None
        }
        None => None,
    };
    let result = tree::find(members, "result").map(|member| result_form(member, faults));
    let is_warm = tree::find(members, "mode").is_some_and(|member| mode(member, faults));
    let verify = tree::find(members, "verify");
    let run = Run {
        verify: verify.and_then(|member| verifier(member, faults)),
        verify_line: verify.map(|member| member.line),
        command: command?,
        result: result.unwrap_or_default(),
        is_warm,
    };
    Some(run)
}

/// The one runner of a table; a fault where there is none or more than one.
fn only_runner<'a>(
    table: &Member,
    members: &'a [Member],
    mend: &str,
    faults: &mut Faults<'_>,
) -> Option<&'a Member> {
    let place = if table.key == "run" { "[run]" } else { "[run.verify]" };
    let runners: Vec<&Member> =
        members.iter().filter(|inner| RUNNERS.contains(&inner.key.as_str())).collect();
    match runners.as_slice() {
        [runner] => Some(runner),
        [] => {
            faults.at(table.line, "manifest.run", format!("`{place}` has no runner"), mend);
            None
        }
        [_, second, ..] => {
            let names: Vec<String> =
                runners.iter().map(|runner| format!("`{}`", runner.key)).collect();
            let message = format!("`{place}` has more than one runner: {}", names.join(", "));
            faults.at(second.line, "manifest.run", message, "keep exactly one");
            None
        }
    }
}

/// The form of a runner that does not run yet.
fn other_runner(member: &Member, faults: &mut Faults<'_>) {
    match (member.key.as_str(), &member.node.kind) {
        ("http", Kind::Text(_)) => {
            address(member, faults);
        }
        ("http", Kind::Table(members)) => match tree::find(members, "url") {
            Some(url) => {
                address(url, faults);
            }
            None => faults.at(
                member.line,
                "manifest.run",
                "`http` has no `url`",
                "write the endpoint's address as `url`",
            ),
        },
        ("http", _) => {
            let example = "http = \"https://example.com/path\"";
            wrong_kind(member, "an address or a table", example, faults);
        }
        ("mcp", _) => mcp(member, faults),
        _ => {
            table(member, faults);
        }
    }
}

fn mcp(member: &Member, faults: &mut Faults<'_>) {
    let Some(members) = table(member, faults) else { return };
    known_keys(members, MCP, "mcp", faults);
    match (tree::find(members, "command"), tree::find(members, "url")) {
        (Some(inner), None) => {
            command(inner, faults);
        }
        (None, Some(inner)) => {
            address(inner, faults);
        }
        _ => faults.at(
            member.line,
            "manifest.run",
            "`mcp` names not exactly one of `command` and `url`",
            "say how the server is reached, once",
        ),
    }
    match tree::find(members, "tool") {
        Some(inner) => {
            text(inner, faults);
        }
        None => {
            let mend = "write the name that the server has for it";
            faults.at(member.line, "manifest.run", "`mcp` names no `tool`", mend);
        }
    }
}

fn mode(member: &Member, faults: &mut Faults<'_>) -> bool {
    let Kind::Text(word) = &member.node.kind else {
        wrong_kind(member, "`warm`", "mode = \"warm\"", faults);
        return false;
    };
    if word != "warm" {
        let message = format!("`mode` is `{word}`, which is no way to run a program");
        faults.at(member.line, "manifest.type", message, "write `warm`, or remove it");
    }
    word == "warm"
}

/// `[run.verify]`: exactly one runner. Only a program is kept, as only programs run.
fn verifier(member: &Member, faults: &mut Faults<'_>) -> Option<Runner> {
    let members = table(member, faults)?;
    known_keys(members, VERIFY, "run.verify", faults);
    let runner = only_runner(member, members, "write `exec = [\"./program\"]`", faults)?;
    if runner.key == "exec" {
        return command(runner, faults).map(|command| Runner::Exec { command });
    }
    other_runner(runner, faults);
    None
}

/// Faults of a key that is unknown here or does nothing yet. Runners are judged together.
fn unsupported(member: &Member, faults: &mut Faults<'_>) {
    let key = member.key.as_str();
    match keys::support(RUN, key) {
        Some(_) if RUNNERS.contains(&key) => {}
        Some(Support::Now) => {}
        Some(Support::NotYet) => not_yet(member.line, &format!("`{key}` in `[run]`"), faults),
        None => {
            let mend = if keys::support(TOP, key).is_some() {
                "move it above the first table of the manifest".into()
            } else {
                keys::mend_unknown(RUN, key)
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
        let message = format!("`{}` names no program", member.key);
        faults.at(member.line, "manifest.run", message, mend);
        is_sound = false;
    }
    for (line, word) in &words {
        if word.contains('\0') {
            let key = &member.key;
            let message =
                format!("a word of `{key}` holds a zero byte, which no program can be given");
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
