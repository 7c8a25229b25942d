//! `toolfleet import openapi FILE`: manifests to be read and edited (CONTRACT 1.14).

use super::exit;
use super::files::{self, NewFile};
use super::output::line;
use crate::core::openapi::{self, Import, Imported, PROGRAM, TOOLS_MAX};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

/// The program that imported tools run.
const HTTP_CALL: &str = include_str!("import/http_call.py");

/// Arguments of `toolfleet import`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ImportArgs {
    #[command(subcommand)]
    from: From,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum From {
    /// A tool for each operation of an OpenAPI document (3.0 or 3.1, JSON)
    Openapi(OpenapiArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct OpenapiArgs {
    /// The document; `-` reads standard input
    file: PathBuf,
    /// Folder to write to
    #[arg(long, value_name = "DIR", default_value = "tools")]
    out: PathBuf,
    /// Write a tool for every operation; else the first 40
    #[arg(long)]
    all: bool,
    /// Address of the API, instead of the document's own
    #[arg(long, value_name = "URL")]
    server: Option<String>,
}

/// Runs the command.
pub(crate) fn run(args: &ImportArgs, is_json: bool) -> ExitCode {
    let From::Openapi(args) = &args.from;
    let done = read(args).and_then(|root| {
        let mut import = openapi::convert(&root, args.server.as_deref())
            .map_err(|text| exit::complain(&text, exit::USAGE))?;
        if !args.all && import.tools.len() > TOOLS_MAX {
            let why = format!("only the first {TOOLS_MAX} are written without --all");
            let rest = import.tools.split_off(TOOLS_MAX);
            import.left_out.extend(rest.into_iter().map(|tool| (tool.operation, why.clone())));
        }
        write(args, &import)?;
        line(&if is_json { shown_json(args, &import) } else { shown(args, &import) });
        Ok(())
    });
    done.err().unwrap_or(ExitCode::SUCCESS)
}

fn read(args: &OpenapiArgs) -> Result<Value, ExitCode> {
    let name = args.file.display();
    let text = if args.file.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(&args.file)
    };
    let text = text.map_err(|error| exit::complain(&format!("{name}: {error}"), exit::USAGE))?;
    serde_json::from_str(&text).map_err(|error| {
        let mend = if text.trim_start().starts_with('{') {
            "correct it at this place"
        } else {
            "YAML is not read; convert it, for example with `yq -o json FILE`"
        };
        exit::complain(&format!("{name} is not JSON: {error}\n  to mend it: {mend}"), exit::USAGE)
    })
}

/// Writes everything or nothing.
fn write(args: &OpenapiArgs, import: &Import) -> Result<(), ExitCode> {
    if import.tools.is_empty() {
        let reasons = import.left_out.iter().map(|(what, why)| format!("\n  {what}: {why}"));
        let text = format!("no tool comes of this document{}", reasons.collect::<String>());
        return Err(exit::complain(&text, exit::FAILED));
    }
    let mut new: Vec<NewFile> = import
        .tools
        .iter()
        .map(|tool| NewFile::text(format!("{}.json", tool.name), pretty(&tool.manifest)))
        .collect();
    // Shared by all imports into one folder.
    new.push(NewFile::shared(PROGRAM.to_owned(), HTTP_CALL.to_owned()));
    let names: Vec<&str> = import.tools.iter().map(|tool| tool.name.as_str()).collect();
    files::write_tools(&args.out, &names, &new)
}

fn pretty(manifest: &Value) -> String {
    format!("{}\n", serde_json::to_string_pretty(manifest).unwrap_or_default())
}

/// Each secret once, with what it holds.
fn secrets(import: &Import) -> BTreeMap<&str, &str> {
    let all = import.tools.iter().flat_map(|tool| &tool.secrets);
    all.map(|(name, holds)| (name.as_str(), holds.as_str())).collect()
}

fn shown(args: &OpenapiArgs, import: &Import) -> String {
    let width = import.tools.iter().map(|tool| tool.name.len()).max().unwrap_or(0);
    let row = |tool: &Imported| {
        format!("  {:<width$}  {:<10}  {}", tool.name, tool.effect.as_str(), tool.operation)
    };
    let mut lines = vec![format!("{}: {} tools", args.out.display(), import.tools.len())];
    lines.extend(import.tools.iter().map(row));
    for (what, why) in &import.left_out {
        lines.push(format!("left out: {what}: {why}"));
    }
    for (name, holds) in secrets(import) {
        lines.push(format!("needs the secret {name}: {holds}"));
    }
    lines.push(format!(
        "Read and edit the manifests; then: toolfleet test NAME --tools {0} --input JSON",
        args.out.display()
    ));
    lines.join("\n")
}

fn shown_json(args: &OpenapiArgs, import: &Import) -> String {
    let tools: Vec<Value> = import
        .tools
        .iter()
        .map(|tool| json!({"name": tool.name, "operation": tool.operation, "effect": tool.effect}))
        .collect();
    let left_out: Vec<Value> = import
        .left_out
        .iter()
        .map(|(what, why)| json!({"operation": what, "reason": why}))
        .collect();
    json!({"folder": args.out, "tools": tools, "leftOut": left_out, "secrets": secrets(import)})
        .to_string()
}
