//! A tool as its author writes it: one TOML or JSON text, read with all its faults at once
//! (CONTRACT 1.1 to 1.8).

mod clocks;
mod fault;
mod keys;
pub mod reference;
mod run;
mod schemas;
#[cfg(test)]
mod tests;
mod tree;
mod value;
mod words;

pub use fault::Fault;

use crate::descriptor::{Descriptor, ResultForm, Runner, is_tool_name};
use crate::effect::Effect;
use fault::Faults;
use keys::Support;
use schemas::Side;
use serde_json::json;
use std::collections::HashMap;
use tree::{Kind, Member};

/// Largest manifest, and largest schema file, in bytes.
pub const MANIFEST_BYTES_MAX: usize = 256 * 1_024;
/// One attempt, where the manifest names no `timeout`.
pub const TIMEOUT_DEFAULT_MS: u64 = 30_000;
/// Waiting for a worker, where the manifest names no `queue_timeout`.
pub const QUEUE_TIMEOUT_DEFAULT_MS: u64 = 60_000;
/// Starts of a call, where the manifest names no `max_attempts`.
pub const MAX_ATTEMPTS_DEFAULT: u32 = 3;
/// Most starts that a manifest may ask for.
pub const MAX_ATTEMPTS_MAX: u32 = 100;
/// Bound of a result, where the manifest names no `max_result_size`.
pub const RESULT_BYTES_DEFAULT: u64 = 128 * 1_024;

/// Reads a file beside the manifest, given its relative path, or says why it cannot.
pub type ReadBeside<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// A manifest without faults.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// What callers and workers agree on.
    pub descriptor: Descriptor,
    /// The words of `exec` as written, never empty.
    pub command: Vec<String>,
    /// Names of the secrets that the tool is given, each once.
    pub secrets: Vec<String>,
}

/// How a manifest is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// `<tool>.toml`
    Toml,
    /// `<tool>.json`
    Json,
}

/// Reads the manifest of `tool`, the stem of the name of `file`. `file` only names it in faults.
///
/// # Errors
/// All faults at once: those of the file as a whole, then by line, then those of schema files.
pub fn parse(
    file: &str,
    tool: &str,
    text: &str,
    syntax: Syntax,
    read_beside: ReadBeside<'_>,
) -> Result<Manifest, Vec<Fault>> {
    let mut faults = Faults::new(file);
    check_name(tool, &mut faults);
    let root = match text_fits(text) {
        Ok(()) => read_root(text, syntax, &mut faults),
        Err(message) => {
            faults.whole("manifest.too-large", message, "shorten it");
            None
        }
    };
    let manifest = root.and_then(|members| assemble(tool, &members, read_beside, &mut faults));
    match manifest {
        Some(manifest) if faults.is_empty() => Ok(manifest),
        _ => Err(faults.into_sorted()),
    }
}

/// The line of a key, given by its path (`["run", "exec"]`), for faults that only the edge can find.
pub fn line_of(text: &str, syntax: Syntax, path: &[&str]) -> Option<u32> {
    let mut node = tree::read(text, syntax).ok()?;
    let mut line = None;
    for key in path {
        let Kind::Table(members) = node.kind else { return None };
        let member = members.into_iter().find(|member| member.key == *key)?;
        line = Some(member.line);
        node = member.node;
    }
    line
}

/// Faults between manifests, given as (file, tool name): names that two files define.
pub fn check_set(manifests: &[(String, String)]) -> Vec<Fault> {
    let mut first: HashMap<&str, &str> = HashMap::new();
    let mut found = Vec::new();
    for (file, tool) in manifests {
        match first.get(tool.as_str()) {
            None => {
                first.insert(tool, file);
            }
            Some(other) => found.push(Fault {
                code: "tool.duplicate-name",
                file: file.clone(),
                line: None,
                message: format!("the tool `{tool}` is defined in `{other}` already"),
                mend: "remove or rename one of the two files".into(),
            }),
        }
    }
    found
}

fn text_fits(text: &str) -> Result<(), String> {
    if text.len() <= MANIFEST_BYTES_MAX {
        return Ok(());
    }
    Err(format!("the file has {} bytes; at most {MANIFEST_BYTES_MAX} are read", text.len()))
}

fn check_name(tool: &str, faults: &mut Faults<'_>) {
    let length = tool.chars().count();
    if length > 64 {
        let message = format!("the tool's name has {length} characters");
        faults.whole("tool.name-too-long", message, "give the file a name of at most 64");
    }
    // Judged without its length, which has a code of its own.
    let judged: String = tool.chars().take(64).collect();
    let is_sound = is_tool_name(&judged)
        && tool.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if !is_sound {
        faults.whole(
            "tool.name-invalid",
            format!("`{tool}` is no name of a tool"),
            format!(
                "rename the file to `{}`: letters, digits, `_` and `-`, a letter or `_` first",
                proposed_name(tool)
            ),
        );
    }
}

/// The nearest valid name.
fn proposed_name(tool: &str) -> String {
    let mut name: String = tool
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '-' })
        .collect();
    if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        name.insert(0, '_');
    }
    name.truncate(64);
    name
}

/// The members of the root, with the syntax and all keys checked.
fn read_root(text: &str, syntax: Syntax, faults: &mut Faults<'_>) -> Option<Vec<Member>> {
    let node = match tree::read(text, syntax) {
        Ok(node) => node,
        Err(problems) => {
            let mend = match syntax {
                Syntax::Toml => "correct the TOML at this line",
                Syntax::Json => "correct the JSON at this line",
            };
            for problem in problems {
                faults.at(problem.line, "manifest.syntax", problem.message, mend);
            }
            return None;
        }
    };
    let kind = node.kind_name();
    let Kind::Table(members) = node.kind else {
        let message = format!("the manifest is {kind}, not an object");
        faults.at(
            node.line,
            "manifest.type",
            message,
            "write an object with `description` and `run`",
        );
        return None;
    };
    for member in &members {
        check_key(member, faults);
    }
    Some(members)
}

fn check_key(member: &Member, faults: &mut Faults<'_>) {
    let key = member.key.as_str();
    match keys::support(keys::TOP, key) {
        Some(Support::Now) => {}
        Some(Support::NotYet) => value::not_yet(member.line, &format!("`{key}`"), faults),
        None => {
            let mend = if keys::support(keys::RUN, key).is_some() {
                "move it under `[run]`".into()
            } else {
                keys::mend_unknown(keys::TOP, key)
            };
            faults.at(member.line, "manifest.unknown-key", format!("unknown key `{key}`"), mend);
        }
    }
}

/// Everything that the keys say; `None` only after a fault.
fn assemble(
    tool: &str,
    members: &[Member],
    read_beside: ReadBeside<'_>,
    faults: &mut Faults<'_>,
) -> Option<Manifest> {
    let description = description(members, faults);
    let effect = effect(members, faults);
    let rerun = rerun(members, effect, faults);
    let clocks = clocks::read(members, faults);
    let result_bytes_max = match tree::find(members, "max_result_size") {
        Some(member) => value::bytes(member, faults),
        None => Some(RESULT_BYTES_DEFAULT),
    };
    only_default(members, faults);
    let secrets = words::secrets(members, faults);
    let tags = words::tags(members, faults);
    let presentation = words::presentation(members, faults);
    let input_schema = match tree::find(members, "input") {
        Some(member) => schemas::read(member, Side::Input, read_beside, faults),
        None => Some(json!({"type": "object"})),
    };
    let output_schema = tree::find(members, "output")
        .and_then(|member| schemas::read(member, Side::Output, read_beside, faults));
    let run = run::read(members, faults)?;
    let by_default = if output_schema.is_some() { ResultForm::Json } else { ResultForm::Text };
    let clocks = clocks?;
    let descriptor = Descriptor {
        name: tool.to_owned(),
        description: description?,
        effect: effect?,
        rerun,
        timeout_ms: clocks.timeout_ms,
        queue_timeout_ms: clocks.queue_timeout_ms,
        total_timeout_ms: clocks.total_timeout_ms,
        max_attempts: clocks.max_attempts,
        result_bytes_max: result_bytes_max?,
        input_schema: input_schema?,
        output_schema,
        result: run.result.unwrap_or(by_default),
        runner: Runner::Exec { command: run.command.clone() },
        tags,
        presentation,
    };
    Some(Manifest { descriptor, command: run.command, secrets })
}

fn description(members: &[Member], faults: &mut Faults<'_>) -> Option<String> {
    const EXAMPLE: &str = "description = \"Search the team's issues\"";
    let mend = "say what the tool does and when to use it, for the model";
    let Some(member) = tree::find(members, "description") else {
        faults.whole("manifest.missing", "there is no `description`", mend);
        return None;
    };
    match &member.node.kind {
        Kind::Text(text) if text.trim().is_empty() => {
            faults.at(member.line, "manifest.missing", "`description` is empty", mend);
            None
        }
        Kind::Text(text) => Some(text.clone()),
        _ => {
            value::wrong_kind(member, "a string", EXAMPLE, faults);
            None
        }
    }
}

fn effect(members: &[Member], faults: &mut Faults<'_>) -> Option<Effect> {
    let Some(member) = tree::find(members, "effect") else { return Some(Effect::Write) };
    match &member.node.kind {
        Kind::Text(word) => {
            let known = [Effect::Read, Effect::Idempotent, Effect::Write];
            let effect = known.into_iter().find(|effect| effect.as_str() == word);
            if effect.is_none() {
                let message = format!("`effect` is `{word}`, which is none of the three");
                let mend = "write `read`, `idempotent` or `write`";
                faults.at(member.line, "tool.effect-invalid", message, mend);
            }
            effect
        }
        Kind::Table(_) => {
            value::not_yet(member.line, "an expression as `effect`", faults);
            None
        }
        _ => {
            value::wrong_kind(
                member,
                "`read`, `idempotent` or `write`",
                "effect = \"read\"",
                faults,
            );
            None
        }
    }
}

/// `effect` is `None` after a fault; then `rerun` cannot be judged.
fn rerun(members: &[Member], effect: Option<Effect>, faults: &mut Faults<'_>) -> bool {
    let Some(member) = tree::find(members, "rerun") else { return false };
    let rerun = value::flag(member, faults).unwrap_or(false);
    if rerun && effect.is_some_and(|effect| effect != Effect::Write) {
        faults.at(
            member.line,
            "tool.rerun-invalid",
            "`rerun` is for writes: other tools run again anyway",
            "remove it",
        );
    }
    rerun
}

/// Keys of which only the default works yet: `enabled = true` and `weight = 1`.
fn only_default(members: &[Member], faults: &mut Faults<'_>) {
    if let Some(member) = tree::find(members, "enabled") {
        match member.node.kind {
            Kind::Bool(true) => {}
            Kind::Bool(false) | Kind::Table(_) => {
                value::not_yet(member.line, "`enabled` with another value than `true`", faults);
            }
            _ => value::wrong_kind(member, "a boolean", "enabled = true", faults),
        }
    }
    if let Some(member) = tree::find(members, "weight") {
        match &member.node.kind {
            Kind::Number(number) if number.as_u64() == Some(1) => {}
            Kind::Number(number) if number.as_u64().is_some_and(|weight| weight > 1) => {
                value::not_yet(member.line, "`weight` with another value than 1", faults);
            }
            _ => value::wrong_kind(member, "a whole number from 1", "weight = 1", faults),
        }
    }
}
