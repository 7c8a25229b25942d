//! Whether a program could be started: it is there, may be executed, and a script's interpreter is
//! there too (CONTRACT 1.5).

use super::PROGRAM_PATH;
use rustix::fs::{Access, access};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use toolfleet_proto::manifest::Fault;

/// Bytes of a script that the system looks at for its interpreter.
const FIRST_LINE_MAX: u64 = 256;

/// A program that cannot be started.
pub(super) struct Missing {
    code: &'static str,
    message: String,
    mend: String,
}

impl Missing {
    fn new(code: &'static str, message: String, mend: String) -> Missing {
        Missing { code, message, mend }
    }

    pub(super) fn into_fault(self, file: &str, line: Option<u32>) -> Fault {
        let Missing { code, message, mend } = self;
        Fault { code, file: file.to_owned(), line, message, mend }
    }
}

/// Checks the program of a command whose paths are resolved.
pub(super) fn check(command: &[String]) -> Result<(), Missing> {
    let Some(program) = command.first() else { return Ok(()) };
    if !program.contains('/') {
        let Some(path) = on_path(program) else {
            return Err(Missing::new(
                "exec.not-found",
                format!("no program `{program}` in {PROGRAM_PATH}"),
                format!("install it, or write `./{program}` for one beside the manifest"),
            ));
        };
        return interpreter(program, &path);
    }
    let path = Path::new(program);
    if !fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
        return Err(Missing::new(
            "exec.not-found",
            format!("no program `{program}`"),
            "put it there, or correct the path in `exec`".into(),
        ));
    }
    if !is_program(path) {
        return Err(Missing::new(
            "exec.not-executable",
            format!("`{program}` may not be executed"),
            format!("run `chmod +x {program}`"),
        ));
    }
    interpreter(program, path)
}

/// The program of that name among those that every tool finds.
fn on_path(name: &str) -> Option<PathBuf> {
    PROGRAM_PATH.split(':').map(|folder| Path::new(folder).join(name)).find(|path| is_program(path))
}

/// Whether this process may execute the file.
fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
        && access(path, Access::EXEC_OK).is_ok()
}

/// What the beginning of a program says of how it is started.
#[derive(Debug, PartialEq)]
enum Start {
    /// Not a text: the system knows the format, or says so when it is started.
    Binary,
    /// A text without a first line that names an interpreter.
    Bare,
    /// A script: its interpreter, and the words after it.
    Script(String, Vec<String>),
}

fn read_start(bytes: &[u8]) -> Start {
    let Some(rest) = bytes.strip_prefix(b"#!") else {
        let is_readable = |c: char| !c.is_control() || c.is_whitespace() || c == '\x1b';
        let is_text = match std::str::from_utf8(bytes) {
            Ok(text) => text.chars().all(is_readable),
            // A cut at the end may have split a character.
            Err(error) => {
                error.error_len().is_none()
                    && String::from_utf8_lossy(&bytes[..error.valid_up_to()])
                        .chars()
                        .all(is_readable)
            }
        };
        return if is_text { Start::Bare } else { Start::Binary };
    };
    let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split([' ', '\t']).filter(|word| !word.is_empty()).map(str::to_owned);
    Start::Script(words.next().unwrap_or_default(), words.collect())
}

/// Whether what starts a script is there. A program that may be executed and not read is believed.
fn interpreter(program: &str, path: &Path) -> Result<(), Missing> {
    let mut bytes = Vec::new();
    let Ok(file) = fs::File::open(path) else { return Ok(()) };
    if file.take(FIRST_LINE_MAX).read_to_end(&mut bytes).is_err() {
        return Ok(());
    }
    let missing = |message: String, mend: &str| {
        Err(Missing::new("exec.no-interpreter", message, mend.to_owned()))
    };
    let (name, words) = match read_start(&bytes) {
        Start::Binary => return Ok(()),
        Start::Bare => {
            let message = format!("`{program}` is a text that names no interpreter");
            return missing(message, "begin it with a line such as `#!/bin/sh`");
        }
        Start::Script(name, words) => (name, words),
    };
    if name.ends_with('\r') {
        let message = format!("the first line of `{program}` ends with a carriage return");
        return missing(message, "save the file with the line ends of Unix");
    }
    if !name.starts_with('/') || !is_program(Path::new(&name)) {
        let message = format!("`{program}` is run by `{name}`, which is not there");
        return missing(message, "install the interpreter, or correct the script's first line");
    }
    if !name.ends_with("/env") {
        return Ok(());
    }
    let is_name = |word: &&String| !word.starts_with('-') && !word.contains('=');
    match words.iter().find(is_name).map(|word| word.trim_end_matches('\r')) {
        Some(word) if word.contains('/') && is_program(Path::new(word)) => Ok(()),
        Some(word) if !word.contains('/') && on_path(word).is_some() => Ok(()),
        Some(word) => missing(
            format!("`{program}` is run by `{word}`, which is not in {PROGRAM_PATH}"),
            "install it there, or name the interpreter by its path",
        ),
        None => missing(
            format!("`{program}` is run by `env` without a program"),
            "name the interpreter in the script's first line",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_program_says_how_it_starts() {
        let script = |name: &str, words: &[&str]| {
            Start::Script(name.into(), words.iter().map(|word| (*word).to_owned()).collect())
        };
        for (bytes, start) in [
            (&b"\x7fELF\x02\x01"[..], Start::Binary),
            (b"echo hi\n", Start::Bare),
            (b"", Start::Bare),
            ("caf\u{e9}".as_bytes().split_last().unwrap().1, Start::Bare),
            (b"#!/bin/sh\necho", script("/bin/sh", &[])),
            (b"#! /usr/bin/env -S python3 -u\n", script("/usr/bin/env", &["-S", "python3", "-u"])),
            (b"#!no-such", script("no-such", &[])),
            (b"#!", script("", &[])),
        ] {
            assert_eq!(read_start(bytes), start, "{bytes:?}");
        }
    }
}
