//! A tools folder: its manifests, read with all their faults at once, and the
//! programs that they name (CONTRACT 1.1, 1.2, 1.5).

use rustix::fs::{Access, access};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use toolfleet_proto::manifest::{self, Fault, MANIFEST_BYTES_MAX, Manifest, Syntax};

/// Where programs named without a path are looked for, whatever this process' own `PATH` is.
pub const PROGRAM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A tool of the folder.
#[derive(Clone, Debug)]
pub struct FoundTool {
    /// The manifest, without faults.
    pub manifest: Manifest,
    /// The absolute path of the folder that holds the manifest.
    pub folder: PathBuf,
}

/// Reads every manifest of a folder: its `*.toml` and `*.json` files by name, links followed,
/// entries that begin with a dot, subfolders and other files left alone. A `.json` file that a
/// manifest names as its schema is no manifest.
///
/// # Errors
/// All faults of all files at once, also those of the folder itself (`manifest.folder`) and of the
/// programs (`exec.not-found`, `exec.not-executable`).
pub fn read(dir: &Path) -> Result<Vec<FoundTool>, Vec<Fault>> {
    let folder = std::path::absolute(dir).map_err(|error| vec![folder_fault(dir, &error)])?;
    let names = file_names(dir).map_err(|error| vec![folder_fault(dir, &error)])?;
    let mut read: Vec<Reading> = names.iter().map(|name| read_one(dir, &folder, name)).collect();
    leave_out_schemas(&mut read);

    let set: Vec<(String, String)> =
        read.iter().map(|one| (one.file.clone(), one.tool.clone())).collect();
    let mut faults = Vec::new();
    let mut tools = Vec::new();
    for one in read {
        match one.outcome {
            Ok(manifest) => tools.push(FoundTool { manifest, folder: folder.clone() }),
            Err(found) => faults.extend(found),
        }
    }
    faults.extend(manifest::check_set(&set));
    if faults.is_empty() { Ok(tools) } else { Err(faults) }
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
    /// The file's name.
    name: String,
    tool: String,
    /// Files beside it that it names as schemas.
    schemas: BTreeSet<String>,
    outcome: Result<Manifest, Vec<Fault>>,
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

/// Names of the files that look like manifests, sorted. A name that is not UTF-8 is kept with its
/// odd parts replaced, so that it ends as a fault and not unseen.
fn file_names(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') || syntax(&name).is_none() {
            continue;
        }
        // A link that leads nowhere is kept as well: reading it says so.
        if fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_dir()) {
            continue;
        }
        names.push(name);
    }
    names.sort();
    Ok(names)
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

fn read_one(dir: &Path, folder: &Path, name: &str) -> Reading {
    let file = dir.join(name).display().to_string();
    let (tool, syntax) = syntax(name).unwrap_or((name, Syntax::Toml));
    let schemas = RefCell::new(BTreeSet::new());
    let outcome = match read_text(&dir.join(name)) {
        Ok(text) => {
            let beside = |path: &str| {
                schemas.borrow_mut().insert(path.to_owned());
                read_text(&dir.join(path))
            };
            manifest::parse(&file, tool, &text, syntax, &beside).and_then(|manifest| {
                match check_program(folder, &manifest.command) {
                    Ok(()) => Ok(manifest),
                    Err(missing) => {
                        let line = manifest::line_of(&text, syntax, &["run", "exec"]);
                        Err(vec![missing.into_fault(&file, line)])
                    }
                }
            })
        }
        Err(message) => Err(vec![Fault {
            code: "manifest.unreadable",
            file: file.clone(),
            line: None,
            message,
            mend: "make it a readable file of UTF-8 text".into(),
        }]),
    };
    let (name, tool) = (name.to_owned(), tool.to_owned());
    Reading { file, name, tool, schemas: schemas.into_inner(), outcome }
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
    let bytes = open().map_err(|error| format!("cannot be read: {error}"))?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        // The cut may have split a character.
        Err(error) if error.as_bytes().len() > MANIFEST_BYTES_MAX => {
            Ok(String::from_utf8_lossy(error.as_bytes()).into_owned())
        }
        Err(_) => Err("not UTF-8 text".into()),
    }
}

/// Takes out the JSON files that are the schema of a manifest. A file that is itself named by
/// another one is no manifest, so what it names does not count; nor does a file that names itself.
fn leave_out_schemas(read: &mut Vec<Reading>) {
    let is_json = |one: &Reading| matches!(syntax(&one.name), Some((_, Syntax::Json)));
    let named_by = |is_manifest: &dyn Fn(&Reading) -> bool| -> BTreeSet<(String, String)> {
        let pairs = |one: &Reading| {
            let from = one.name.clone();
            one.schemas.iter().map(move |to| (from.clone(), to.clone())).collect::<Vec<_>>()
        };
        let found = read.iter().filter(|one| is_manifest(one)).flat_map(pairs);
        found.filter(|(from, to)| from != to).collect()
    };
    let by_any = named_by(&|_| true);
    let is_named = |one: &Reading| is_json(one) && by_any.iter().any(|(_, to)| *to == one.name);
    let by_manifests = named_by(&|one| !is_named(one));
    read.retain(|one| !(is_json(one) && by_manifests.iter().any(|(_, to)| *to == one.name)));
}

/// A program that cannot be run.
struct Missing {
    code: &'static str,
    message: String,
    mend: String,
}

impl Missing {
    fn into_fault(self, file: &str, line: Option<u32>) -> Fault {
        let Missing { code, message, mend } = self;
        Fault { code, file: file.to_owned(), line, message, mend }
    }
}

fn check_program(folder: &Path, words: &[String]) -> Result<(), Missing> {
    let resolved = resolve_command(folder, words);
    let Some(program) = resolved.first() else { return Ok(()) };
    if !program.contains('/') {
        let mut folders = PROGRAM_PATH.split(':').map(Path::new);
        return if folders.any(|folder| is_program(&folder.join(program))) {
            Ok(())
        } else {
            Err(Missing {
                code: "exec.not-found",
                message: format!("no program `{program}` in {PROGRAM_PATH}"),
                mend: format!("install it, or write `./{program}` for one beside the manifest"),
            })
        };
    }
    let path = Path::new(program);
    let is_file = fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    if !is_file {
        return Err(Missing {
            code: "exec.not-found",
            message: format!("no program `{program}`"),
            mend: "put it there, or correct the path in `exec`".into(),
        });
    }
    if !is_program(path) {
        return Err(Missing {
            code: "exec.not-executable",
            message: format!("`{program}` may not be executed"),
            mend: format!("run `chmod +x {program}`"),
        });
    }
    Ok(())
}

/// Whether this process may execute the file.
fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
        && access(path, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn write(dir: &Path, name: &str, text: &str) {
        fs::write(dir.join(name), text).unwrap();
    }

    fn manifest(program: &str) -> String {
        format!("description = \"D\"\n[run]\nexec = [\"{program}\"]\n")
    }

    fn codes(faults: &[Fault]) -> Vec<(&str, &'static str, Option<u32>)> {
        let name = |fault: &'_ Fault| fault.file.rfind('/').map_or(0, |at| at + 1);
        faults.iter().map(|fault| (&fault.file[name(fault)..], fault.code, fault.line)).collect()
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn paths_start_at_the_manifests_folder() {
        let resolve = |list: &[&str]| resolve_command(Path::new("/t"), &words(list));
        assert_eq!(resolve(&["./a.py", "--x", "b/c"]), ["/t/a.py", "--x", "b/c"]);
        assert_eq!(resolve(&["bin/a", "./d/", "../e"]), ["/t/bin/a", "/t/d/", "/t/../e"]);
        assert_eq!(resolve(&["/bin/sh", "-c", "a/b"]), ["/bin/sh", "-c", "a/b"]);
        assert_eq!(resolve(&["python3", "./x.py"]), ["python3", "/t/x.py"]);
        assert!(resolve(&[]).is_empty());
    }

    #[test]
    fn manifests_are_found_by_name_and_other_files_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        write(path, "b.toml", &manifest("sh"));
        write(path, "a.json", r#"{"description": "D", "run": {"exec": ["/bin/sh"]}}"#);
        write(path, ".hidden.toml", "not read");
        write(path, "b.sh", "not read");
        fs::create_dir(path.join("crm.toml")).unwrap();
        fs::create_dir(path.join("..data")).unwrap();
        write(&path.join("..data"), "c.toml", &manifest("sh"));
        symlink("..data/c.toml", path.join("c.toml")).unwrap();
        let tools = read(path).unwrap();
        let names: Vec<_> = tools.iter().map(|t| t.manifest.descriptor.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert!(tools.iter().all(|tool| tool.folder == path));
    }

    #[test]
    fn a_schema_of_a_manifest_is_no_manifest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        write(path, "a.toml", &format!("input = \"./in.json\"\n{}", manifest("sh")));
        write(path, "in.json", r#"{"type": "object"}"#);
        let json = r#"{"description": "D", "output": "out.json", "run": {"exec": ["sh"]}}"#;
        write(path, "b.json", json);
        write(path, "out.json", r#"{"type": "string"}"#);
        let names: Vec<_> =
            read(path).unwrap().into_iter().map(|tool| tool.manifest.descriptor.name).collect();
        assert_eq!(names, ["a", "b"]);

        write(path, "loose.json", r#"{"type": "object"}"#);
        assert!(codes(&read(path).unwrap_err()).iter().all(|(file, ..)| *file == "loose.json"));
    }

    #[test]
    fn a_manifest_that_names_itself_is_not_lost() {
        let dir = tempfile::tempdir().unwrap();
        let json =
            r#"{"description": "D", "bogus": 1, "input": "a.json", "run": {"exec": ["sh"]}}"#;
        write(dir.path(), "a.json", json);
        let faults = read(dir.path()).unwrap_err();
        assert!(codes(&faults).contains(&("a.json", "manifest.unknown-key", Some(1))));
    }

    #[test]
    fn the_programs_are_looked_for_at_load() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        write(path, "plain.sh", "#!/bin/sh\n");
        fs::set_permissions(path.join("plain.sh"), fs::Permissions::from_mode(0o644)).unwrap();
        write(path, "good.sh", "#!/bin/sh\n");
        fs::set_permissions(path.join("good.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        for (name, program) in [
            ("a", "./plain.sh"),
            ("b", "./gone.sh"),
            ("c", "no-such-program-anywhere"),
            ("d", "/no/such/program"),
            ("e", ".."),
            ("f", "./good.sh"),
            ("g", "sh"),
        ] {
            write(path, &format!("{name}.toml"), &manifest(program));
        }
        assert_eq!(
            codes(&read(path).unwrap_err()),
            [
                ("a.toml", "exec.not-executable", Some(3)),
                ("b.toml", "exec.not-found", Some(3)),
                ("c.toml", "exec.not-found", Some(3)),
                ("d.toml", "exec.not-found", Some(3)),
                ("e.toml", "exec.not-found", Some(3)),
            ]
        );
    }

    #[test]
    fn all_faults_of_all_files_come_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        write(path, "a.toml", "timeout = 1\n[run]\nexec = [\"sh\"]\n");
        write(path, "a.json", r#"{"description": "D", "run": {"exec": ["sh"]}}"#);
        symlink("gone", path.join("b.toml")).unwrap();
        fs::write(path.join("c.toml"), b"\xff").unwrap();
        fs::write(path.join("d.toml"), vec![b'#'; MANIFEST_BYTES_MAX + 10]).unwrap();
        write(path, "e.toml", &manifest("sh"));
        assert_eq!(
            codes(&read(path).unwrap_err()),
            [
                ("a.toml", "manifest.missing", None),
                ("a.toml", "units.missing", Some(1)),
                ("b.toml", "manifest.unreadable", None),
                ("c.toml", "manifest.unreadable", None),
                ("d.toml", "manifest.too-large", None),
                ("a.toml", "tool.duplicate-name", None),
            ]
        );
    }

    #[test]
    fn a_missing_folder_is_a_fault_and_an_empty_one_is_fine() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path()).unwrap().is_empty());
        let faults = read(&dir.path().join("gone")).unwrap_err();
        assert_eq!(codes(&faults), [("gone", "manifest.folder", None)]);
    }
}
