//! A tools folder: its manifests and those of its packages, read with all their faults at once, and
//! the programs that they name (CONTRACT 1.1, 1.2, 1.5, 1.13). Offline.

mod program;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use toolfleet_proto::checks;
use toolfleet_proto::layers::Rules;
use toolfleet_proto::manifest::{self, Fault, MANIFEST_BYTES_MAX, Manifest, Source, Syntax};

/// Where programs named without a path are looked for, whatever this process' own `PATH` is.
pub const PROGRAM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A tool of the folder.
#[derive(Clone, Debug)]
pub struct FoundTool {
    /// The manifest, without faults.
    pub manifest: Manifest,
    /// The absolute path of the folder that holds the manifest.
    pub folder: PathBuf,
    /// The manifest's path, as faults name it.
    pub file: String,
}

/// What a folder holds.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The tools whose manifests have no fault, by file.
    pub tools: Vec<FoundTool>,
    /// Every fault of every other file, by file and line.
    pub faults: Vec<Fault>,
}

/// Reads every manifest of a folder by the rules of its pool and its fleet: its `*.toml` and `*.json`
/// files and those of its folders, which are packages, by name, links followed. Left alone are entries
/// that begin with a dot, other files, and folders inside a package. A `.json` file that a manifest
/// names as its schema is no manifest.
///
/// # Errors
/// All faults of all files at once, also those of the folder itself (`manifest.folder`) and of the
/// programs (`exec.…`).
pub fn read(dir: &Path, rules: &Rules) -> Result<Vec<FoundTool>, Vec<Fault>> {
    let Found { tools, faults } = look(dir, rules);
    if faults.is_empty() { Ok(tools) } else { Err(faults) }
}

/// Reads a folder as [`read`] does, and gives the sound tools beside the faults.
pub fn look(dir: &Path, rules: &Rules) -> Found {
    let mut found = Found::default();
    let mut read = Vec::new();
    match list(dir) {
        Ok(entries) => {
            for entry in entries {
                match entry {
                    Entry::Manifest(name) => read.push(read_one(dir, None, &name, rules)),
                    Entry::Package(package) => {
                        let inner = dir.join(&package);
                        match list(&inner) {
                            Ok(entries) => read.extend(entries.iter().filter_map(|entry| {
                                let Entry::Manifest(name) = entry else { return None };
                                Some(read_one(dir, Some(&package), name, rules))
                            })),
                            Err(error) => found.faults.push(folder_fault(&inner, &error)),
                        }
                    }
                }
            }
        }
        Err(error) => found.faults.push(folder_fault(dir, &error)),
    }
    leave_out_schemas(&mut read);

    let set: Vec<(String, String)> =
        read.iter().map(|one| (one.file.clone(), one.tool.clone())).collect();
    let twice = manifest::check_set(&set);
    for one in read {
        match one.outcome {
            Ok(tool) if twice.iter().all(|fault| fault.file != one.file) => found.tools.push(tool),
            Ok(_) => {}
            Err(faults) => found.faults.extend(faults),
        }
    }
    found.faults.extend(twice);
    found.faults.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    // A schema that two manifests name has its faults once.
    found.faults.dedup();
    found.tools.sort_by(|a, b| a.file.cmp(&b.file));
    found
}

/// The words of a command as they are run. The first word, if it has a `/` and is not absolute, and
/// words that begin with `./` or `../` are paths from `folder`; the rest stays as written.
pub fn resolve_command(folder: &Path, words: &[String]) -> Vec<String> {
    let resolve = |(index, word): (usize, &String)| {
        let is_path = word.starts_with("./")
            || word.starts_with("../")
            || (index == 0 && word.contains('/') && !word.starts_with('/'));
        if is_path { from_folder(folder, word) } else { word.clone() }
    };
    words.iter().enumerate().map(resolve).collect()
}

fn from_folder(folder: &Path, word: &str) -> String {
    let word = word.strip_prefix("./").unwrap_or(word).trim_start_matches('/');
    format!("{}/{word}", folder.display().to_string().trim_end_matches('/'))
}

/// One file, read.
struct Reading {
    /// The path as faults name it.
    file: String,
    /// The path from the tools folder.
    path: String,
    tool: String,
    /// Files that it names as schemas, by their paths from the tools folder.
    schemas: BTreeSet<String>,
    outcome: Result<FoundTool, Vec<Fault>>,
}

/// What is looked at in a folder.
enum Entry {
    Manifest(String),
    Package(String),
}

fn folder_fault(dir: &Path, error: &io::Error) -> Fault {
    Fault {
        code: "manifest.folder",
        file: dir.display().to_string(),
        line: None,
        message: format!("the tools folder cannot be read: {error}"),
        mend: "create it, or name another one".into(),
    }
}

/// Folders, and files that look like manifests, by name. A name that is not UTF-8 is kept with its odd
/// parts replaced, so that it ends as a fault and not unseen.
fn list(dir: &Path) -> io::Result<Vec<Entry>> {
    let mut named = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        // A link that leads nowhere is no folder: reading it says so.
        if fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_dir()) {
            named.push((name.clone(), Entry::Package(name)));
        } else if syntax(&name).is_some() {
            named.push((name.clone(), Entry::Manifest(name)));
        }
    }
    named.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(named.into_iter().map(|(_, entry)| entry).collect())
}

/// The stem of a manifest's name and its syntax.
fn syntax(name: &str) -> Option<(&str, Syntax)> {
    let (stem, extension) = name.rsplit_once('.')?;
    match extension {
        "toml" => Some((stem, Syntax::Toml)),
        "json" => Some((stem, Syntax::Json)),
        _ => None,
    }
}

fn read_one(dir: &Path, package: Option<&str>, name: &str, rules: &Rules) -> Reading {
    let below = |path: &str| package.map_or_else(|| path.to_owned(), |p| format!("{p}/{path}"));
    let path = below(name);
    let file = dir.join(&path).display().to_string();
    let (stem, syntax) = syntax(name).unwrap_or((name, Syntax::Toml));
    let schemas = RefCell::new(BTreeSet::new());
    let outcome = read_text(&dir.join(&path)).map_err(|message| {
        vec![Fault {
            code: "manifest.unreadable",
            file: file.clone(),
            line: None,
            message: format!("the file cannot be read: {message}"),
            mend: "make it a readable file of UTF-8 text".into(),
        }]
    });
    let outcome = outcome.and_then(|text| {
        let beside = |path: &str| {
            let path = below(path);
            let text = read_text(&dir.join(&path));
            schemas.borrow_mut().insert(path);
            text
        };
        let source = Source { file: &file, package, stem, text: &text, syntax };
        let parsed = manifest::parse(source, rules, &beside);
        let folder = std::path::absolute(package.map_or_else(|| dir.into(), |p| dir.join(p)))
            .map_err(|error| vec![folder_fault(dir, &error)])?;
        // The program is looked at whatever else is wrong: all faults are told at once.
        let command = match &parsed {
            Ok(manifest) => Some(manifest.command.clone()),
            Err(_) => manifest::command_of(&text, syntax),
        };
        let command = command.map(|words| resolve_command(&folder, &words));
        let missing = command.and_then(|command| program::check(&command).err());
        let missing = missing.map(|missing| {
            let line = manifest::line_of(&text, syntax, &["run", "exec"]);
            missing.into_fault(&file, line)
        });
        match (parsed, missing) {
            (Ok(manifest), None) => Ok(FoundTool { manifest, folder, file: file.clone() }),
            (parsed, missing) => {
                let mut faults = parsed.err().unwrap_or_default();
                faults.extend(missing);
                Err(faults)
            }
        }
    });
    let tool = checks::joined(package, stem);
    Reading { file, path, tool, schemas: schemas.into_inner(), outcome }
}

/// A file's text. Longer ones than a manifest may be are read just far enough to be refused.
fn read_text(path: &Path) -> Result<String, String> {
    let open = || {
        let file = fs::File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a file"));
        }
        let mut bytes = Vec::new();
        file.take(MANIFEST_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = open().map_err(|error| error.to_string())?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        // The cut may have split a character.
        Err(error) if error.as_bytes().len() > MANIFEST_BYTES_MAX => {
            Ok(String::from_utf8_lossy(error.as_bytes()).into_owned())
        }
        Err(_) => Err("it is not UTF-8 text".into()),
    }
}

/// Takes out the JSON files that are the schema of a manifest. A file that is itself named by
/// another one is no manifest, so what it names does not count; nor does a file that names itself.
fn leave_out_schemas(read: &mut Vec<Reading>) {
    let is_json = |one: &Reading| matches!(syntax(&one.path), Some((_, Syntax::Json)));
    let named_by = |is_manifest: &dyn Fn(&Reading) -> bool| -> BTreeSet<(String, String)> {
        let pairs = |one: &Reading| {
            let from = one.path.clone();
            one.schemas.iter().map(move |to| (from.clone(), to.clone())).collect::<Vec<_>>()
        };
        let found = read.iter().filter(|one| is_manifest(one)).flat_map(pairs);
        found.filter(|(from, to)| from != to).collect()
    };
    let by_any = named_by(&|_| true);
    let is_named = |one: &Reading| is_json(one) && by_any.iter().any(|(_, to)| *to == one.path);
    let by_manifests = named_by(&|one| !is_named(one));
    read.retain(|one| !(is_json(one) && by_manifests.iter().any(|(_, to)| *to == one.path)));
}
