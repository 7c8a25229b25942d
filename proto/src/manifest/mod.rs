//! A tool as its author writes it: one TOML or JSON text, read with all its faults at once
//! (CONTRACT 1.1 to 1.8).

mod clocks;
pub mod editor;
mod effect;
mod fault;
mod keys;
mod later;
pub mod reference;
mod run;
mod schemas;
mod tables;
#[cfg(test)]
mod tests;
mod tree;
mod value;
mod words;

pub use fault::Fault;

use crate::checks;
use crate::descriptor::{Descriptor, ResultForm, Runner};
use crate::layers::{Origin, Origins, Rules};
use fault::Faults;
use keys::Support;
use later::Output;
use schemas::Side;
use serde_json::json;
use std::collections::BTreeMap;
use tables::{RUN, TOP};
use tree::{Kind, Member};

/// Largest manifest, and largest schema file, in bytes.
pub const MANIFEST_BYTES_MAX: usize = 256 * 1_024;

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
    /// Where the values come from that have defaults.
    pub origins: Origins,
}

/// A manifest that is to be read.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The file, as faults name it.
    pub file: &'a str,
    /// The folder that is its namespace, where it lies in one (CONTRACT 1.13).
    pub package: Option<&'a str>,
    /// The file's name without its ending.
    pub stem: &'a str,
    /// What stands in it.
    pub text: &'a str,
    /// How it is written.
    pub syntax: Syntax,
}

/// How a manifest is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// `<tool>.toml`
    Toml,
    /// `<tool>.json`
    Json,
}

/// Reads a manifest by the rules of its pool and its fleet.
///
/// # Errors
/// All faults at once: those of the file as a whole, then by line, then those of schema files.
pub fn parse(
    source: Source<'_>,
    rules: &Rules,
    read_beside: ReadBeside<'_>,
) -> Result<Manifest, Vec<Fault>> {
    match read(source, rules, read_beside) {
        (Some(manifest), faults) if faults.is_empty() => Ok(manifest),
        (_, faults) => Err(faults),
    }
}

/// The manifest as far as it could be read, and all its faults. Keys that do nothing yet are faults and
/// are read all the same.
fn read(
    source: Source<'_>,
    rules: &Rules,
    read_beside: ReadBeside<'_>,
) -> (Option<Manifest>, Vec<Fault>) {
    let Source { file, package, stem, text, syntax } = source;
    let mut faults = Faults::new(file);
    faults.finding(None, checks::name(package, stem, rules.naming));
    let root = match text_fits(text) {
        Ok(()) => read_root(text, syntax, &mut faults),
        Err(message) => {
            faults.whole("manifest.too-large", message, "shorten it");
            None
        }
    };
    let tool = checks::joined(package, stem);
    let manifest =
        root.and_then(|members| assemble(tool, &members, rules, read_beside, &mut faults));
    if manifest.is_none() && faults.is_empty() {
        faults.whole("manifest.syntax", "the manifest cannot be read", "write it anew");
    }
    (manifest, faults.into_sorted())
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

/// The words of `[run] exec` alone, so that the program can be looked at although something else of the
/// manifest is faulty; `None` where they are not a list of strings.
pub fn command_of(text: &str, syntax: Syntax) -> Option<Vec<String>> {
    let Kind::Table(members) = tree::read(text, syntax).ok()?.kind else { return None };
    let Kind::Table(run) = &tree::find(&members, "run")?.node.kind else { return None };
    let Kind::List(words) = &tree::find(run, "exec")?.node.kind else { return None };
    let text = |node: &tree::Node| match &node.kind {
        Kind::Text(text) => Some(text.clone()),
        _ => None,
    };
    words.iter().map(text).collect::<Option<Vec<String>>>().filter(|words| !words.is_empty())
}

/// What is wrong with words for people (CONTRACT 1.9), given as they stand under `presentation`.
pub fn check_presentation(words: &serde_json::Value) -> Vec<checks::Finding> {
    words::of_value(words)
}

/// Faults between manifests, given as (file, tool name): names that several files define. Each of the
/// files has the fault, which names the first of the others.
pub fn check_set(manifests: &[(String, String)]) -> Vec<Fault> {
    let mut by_tool: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (file, tool) in manifests {
        by_tool.entry(tool).or_default().push(file);
    }
    let mut found = Vec::new();
    for (tool, files) in by_tool.into_iter().filter(|(_, files)| files.len() > 1) {
        for (place, file) in files.iter().enumerate() {
            let other = files[usize::from(place == 0)];
            found.push(Fault {
                code: "tool.duplicate-name",
                file: (*file).to_owned(),
                line: None,
                message: format!("the tool `{tool}` is defined in `{other}` as well"),
                mend: "remove or rename one of the two files".into(),
            });
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
    match keys::support(TOP, key) {
        Some(Support::Now) => {}
        Some(Support::NotYet) => value::not_yet(member.line, &format!("`{key}`"), faults),
        None => {
            let mend = if keys::support(RUN, key).is_some() {
                "move it under `[run]`".into()
            } else {
                keys::mend_unknown(TOP, key)
            };
            faults.at(member.line, "manifest.unknown-key", format!("unknown key `{key}`"), mend);
        }
    }
}

/// Everything that the keys say; `None` only after a fault.
fn assemble(
    tool: String,
    members: &[Member],
    rules: &Rules,
    read_beside: ReadBeside<'_>,
    faults: &mut Faults<'_>,
) -> Option<Manifest> {
    let description = description(members, faults);
    let effects = effect::read(members, faults);
    let rerun = effect::rerun(members, &effects, faults);
    let clocks = clocks::read(members, rules, faults);
    let secrets = words::secrets(members, faults);
    let tags = words::tags(members, faults);
    let presentation = words::presentation(members, faults);
    let input_schema = match tree::find(members, "input") {
        Some(member) => schemas::read(member, Side::Input, read_beside, faults),
        None => Some(json!({"type": "object"})),
    };
    let output_schema = tree::find(members, "output")
        .and_then(|member| schemas::read(member, Side::Output, read_beside, faults));
    let run = run::read(members, faults);
    let by_default = if output_schema.is_some() { ResultForm::Json } else { ResultForm::Text };
    let form = run.as_ref().and_then(|run| run.result).unwrap_or(by_default);
    let output = Output { form, schema: output_schema.as_ref() };
    let input = input_schema.as_ref();
    let declared = later::read(members, &effects, input, output, run.as_ref(), faults);
    let (run, clocks) = (run?, clocks?);
    let origin = |is_said| if is_said { Origin::Tool } else { Origin::BuiltIn };
    let origins = Origins {
        effect: origin(tree::find(members, "effect").is_some()),
        result: origin(run.result.is_some()),
        ..clocks.settled.origins
    };
    let descriptor = Descriptor {
        name: tool,
        description: description?,
        effect: effects.effect?,
        rerun,
        timeout_ms: clocks.settled.timeout_ms,
        queue_timeout_ms: clocks.settled.queue_timeout_ms,
        total_timeout_ms: clocks.total_timeout_ms,
        max_attempts: clocks.settled.max_attempts,
        result_bytes_max: clocks.settled.result_bytes_max,
        input_schema: input_schema?,
        output_schema,
        result: form,
        runner: Runner::Exec { command: run.command.clone() },
        tags,
        presentation,
        declared,
    };
    Some(Manifest { descriptor, command: run.command, secrets, origins })
}

fn description(members: &[Member], faults: &mut Faults<'_>) -> Option<String> {
    const EXAMPLE: &str = "description = \"Search the team's issues\"";
    let mend = "say what the tool does and when to use it, for the model";
    let Some(member) = tree::find(members, "description") else {
        faults.whole("manifest.missing", "there is no `description`", mend);
        return None;
    };
    match &member.node.kind {
        Kind::Text(text) => {
            let finding = checks::description(text);
            let is_sound = finding.is_none();
            faults.finding(Some(member.line), finding);
            is_sound.then(|| text.clone())
        }
        _ => {
            value::wrong_kind(member, "a string", EXAMPLE, faults);
            None
        }
    }
}
