//! `toolfleet check`: every fault of every tool of a folder, offline.

use super::describe::PoolArgs;
use super::exit;
use super::output::line;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use toolfleet_io::config::Checked;
use toolfleet_io::tools_folder;
use toolfleet_proto::checks::{self, Finding};
use toolfleet_proto::manifest::{Fault, editor};

/// Arguments of `toolfleet check`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Folder of tool manifests (default: worker.tools of the configuration)
    dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) pool: PoolArgs,
    /// Print the JSON Schema of manifests, for editors, and check nothing
    #[arg(long, conflicts_with_all = ["dir", "pool"])]
    schema: bool,
}

/// Runs the command: 78 where there is a fault; a warning alone is none.
pub(crate) fn run(args: &CheckArgs, checked: &Checked, is_json: bool) -> ExitCode {
    if args.schema {
        line(editor::render().trim_end());
        return ExitCode::SUCCESS;
    }
    let Some(dir) = args.dir.as_ref().or(checked.config.worker.tools.as_ref()) else {
        let text = "name the folder of the tools, or set worker.tools";
        return exit::complain(&text, exit::USAGE);
    };
    let found = tools_folder::look(dir, &checked.rules);
    let warnings: Vec<Fault> = found
        .tools
        .iter()
        .flat_map(|tool| {
            let found = checks::warnings(&tool.manifest.descriptor, &checked.limits);
            found.into_iter().map(|finding| of_file(finding, &tool.file))
        })
        .collect();
    let (tools, faults) = (found.tools.len(), &found.faults);
    if is_json {
        line(&json!({"tools": tools, "faults": faults, "warnings": warnings}).to_string());
    } else {
        for fault in faults {
            tell("", fault);
        }
        for warning in &warnings {
            tell("warning: ", warning);
        }
        line(&summary(tools, faults));
    }
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::CONFIG) }
}

fn of_file(finding: Finding, file: &str) -> Fault {
    let Finding { code, message, mend } = finding;
    Fault { code, file: file.to_owned(), line: None, message, mend }
}

/// One block: where and which, what, how to mend it.
fn tell(kind: &str, fault: &Fault) {
    let place = fault.line.map_or_else(String::new, |line| format!(":{line}"));
    line(&format!("{kind}{}{place}: {}", fault.file, fault.code));
    line(&format!("    {}", fault.message));
    line(&format!("    mend: {}", fault.mend));
}

fn summary(tools: usize, faults: &[Fault]) -> String {
    let counted = |count: usize, noun: &str| {
        if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
    };
    let fine = match tools {
        1 => "1 tool is fine".to_owned(),
        _ => format!("{tools} tools are fine"),
    };
    if faults.is_empty() {
        return fine;
    }
    let files: BTreeSet<&str> = faults.iter().map(|fault| fault.file.as_str()).collect();
    format!("{} in {}; {fine}", counted(faults.len(), "fault"), counted(files.len(), "file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts_faults_files_and_what_is_fine() {
        let fault = |file: &str| {
            let finding = checks::description("").unwrap();
            of_file(finding, file)
        };
        assert_eq!(summary(1, &[]), "1 tool is fine");
        assert_eq!(summary(9, &[]), "9 tools are fine");
        assert_eq!(
            summary(2, &[fault("a"), fault("a"), fault("b")]),
            "3 faults in 2 files; 2 tools are fine"
        );
        assert_eq!(summary(0, &[fault("a")]), "1 fault in 1 file; 0 tools are fine");
    }
}
