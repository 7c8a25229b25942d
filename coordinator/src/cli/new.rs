//! `toolfleet new NAME`: a small tool that works, to begin with (CONTRACT 1.14).

use super::exit;
use super::files::{self, NewFile};
use super::output::line;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use toolfleet_proto::descriptor::is_tool_name;

/// The manifest of a program: `{exec}` is its command.
const MANIFEST: &str = include_str!("new/tool.toml");
const SH: &str = include_str!("new/tool.sh");
const PYTHON: &str = include_str!("new/tool.py");
/// A whole worker. `my-tool` is the tool's name.
const RUST: &str = include_str!("new/worker.rs");
const CARGO: &str = include_str!("new/worker.toml");
/// The name in the templates.
const PLACEHOLDER: &str = "my-tool";

/// Arguments of `toolfleet new`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct NewArgs {
    /// The tool's name
    name: String,
    #[command(flatten)]
    kind: Kind,
    /// Folder to write to; with --rust the folder that the worker's own is made in
    #[arg(long, value_name = "DIR", default_value = "tools")]
    tools: PathBuf,
    /// With --rust: a checkout of toolfleet, whose crate `worker` the new one needs (default: the nearest
    /// folder above)
    #[arg(long, value_name = "DIR", requires = "rust")]
    checkout: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
#[expect(clippy::struct_excessive_bools, reason = "flags of which exactly one is given")]
struct Kind {
    /// A shell script
    #[arg(long)]
    sh: bool,
    /// A Python program
    #[arg(long)]
    python: bool,
    /// A worker in Rust with one tool
    #[arg(long)]
    rust: bool,
    /// An endpoint; not yet
    #[arg(long)]
    http: bool,
    /// A tool of an MCP server; not yet
    #[arg(long)]
    mcp: bool,
}

/// Runs the command.
pub(crate) fn run(args: &NewArgs, is_json: bool) -> ExitCode {
    match make(args) {
        Ok((made, next)) => {
            if is_json {
                line(&json!({"name": args.name, "files": made}).to_string());
            } else {
                made.iter().for_each(|path| line(&path.display().to_string()));
                line(&format!("Try it: {next}"));
            }
            ExitCode::SUCCESS
        }
        Err(code) => code,
    }
}

/// The files that were made, and what to do with them.
fn make(args: &NewArgs) -> Result<(Vec<PathBuf>, String), ExitCode> {
    let name = args.name.as_str();
    if !is_tool_name(name) {
        let text = format!(
            "{name:?} is no name of a tool: letters, digits, _ and -, a letter or _ first, at most 64"
        );
        return Err(exit::complain(&text, exit::USAGE));
    }
    for (is_asked, runner) in [(args.kind.http, "http"), (args.kind.mcp, "mcp")] {
        if is_asked {
            let text = format!(
                "not yet: there is no runner `{runner}` in this version, and a manifest with it is refused\n  \
                 to mend it: `toolfleet new {name} --python` makes a program that can do it itself"
            );
            return Err(exit::complain(&text, exit::USAGE));
        }
    }
    let named = |text: &str| text.replace(PLACEHOLDER, name);
    let dir = &args.tools;
    let (files, next) = if args.kind.rust {
        let folder = dir.join(name);
        let worker = worker_crate(args.checkout.as_deref(), &folder)?;
        // A TOML string: quotes and backslashes of a path are escaped.
        let cargo = named(CARGO).replace("\"{worker}\"", &json!(worker).to_string());
        let files = vec![
            NewFile::text(format!("{name}/Cargo.toml"), cargo),
            NewFile::text(format!("{name}/src/main.rs"), named(RUST)),
        ];
        let manifest = folder.join("Cargo.toml");
        (files, format!("cargo run --manifest-path {} -- test {name}", manifest.display()))
    } else {
        let (ending, program) = if args.kind.sh { ("sh", SH) } else { ("py", PYTHON) };
        let script = format!("./{name}.{ending}");
        let exec = if args.kind.sh { json!([script]) } else { json!(["python3", script]) };
        let manifest = named(MANIFEST).replace("{exec}", &exec.to_string());
        let files = vec![
            NewFile::text(format!("{name}.toml"), manifest),
            NewFile::program(format!("{name}.{ending}"), named(program)),
        ];
        (files, format!("toolfleet test {name} --tools {}", dir.display()))
    };
    let made = files.iter().map(|file| file.path(dir)).collect();
    if args.kind.rust {
        files::write(dir, &files)?;
    } else {
        files::write_tools(dir, &[name], &files)?;
    }
    Ok((made, next))
}

/// The crate `worker` of a checkout: the one named, else the nearest above `folder`.
fn worker_crate(named: Option<&Path>, folder: &Path) -> Result<PathBuf, ExitCode> {
    let is_worker = |path: &PathBuf| {
        std::fs::read_to_string(path.join("Cargo.toml"))
            .is_ok_and(|text| text.contains("name = \"toolfleet-worker\""))
    };
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
    let found = match named {
        Some(checkout) => std::path::absolute(checkout.join("worker")).ok().filter(is_worker),
        None => folder.ancestors().map(|above| above.join("worker")).find(is_worker),
    };
    found.ok_or_else(|| {
        let text = "a worker in Rust needs the crate `worker` of a checkout of toolfleet, which is not \
                    published: name the checkout with --checkout DIR";
        exit::complain(&text, exit::USAGE)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_hold_what_is_replaced() {
        assert!(MANIFEST.contains("exec = {exec}") && CARGO.contains("path = \"{worker}\""));
        for text in [MANIFEST, SH, PYTHON, RUST, CARGO] {
            assert!(!text.is_empty());
        }
        assert!(RUST.contains(PLACEHOLDER) && CARGO.contains(PLACEHOLDER));
    }

    /// A worker of one's own must not bring second versions of what it shares with the crate.
    #[test]
    fn a_new_worker_names_the_versions_of_this_workspace() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
        let ours: toml::Table = std::fs::read_to_string(root).unwrap().parse().unwrap();
        let new: toml::Table = CARGO.parse().unwrap();
        let version = |value: &toml::Value| {
            value.get("version").unwrap_or(value).as_str().unwrap().to_owned()
        };
        let mut seen = 0;
        for section in ["dependencies", "dev-dependencies"] {
            for (name, value) in new[section].as_table().unwrap() {
                if name != "toolfleet-worker" {
                    let shared = &ours["workspace"]["dependencies"][name];
                    assert_eq!(version(value), version(shared), "{name}");
                    seen += 1;
                }
            }
        }
        assert!(seen >= 4);
    }
}
