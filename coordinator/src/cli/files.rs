//! Files that commands make for authors: checked before they are written, never over another one.

use super::exit;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use toolfleet_io::described;
use toolfleet_proto::layers::Rules;

/// A file that is to be made.
pub(super) struct NewFile {
    /// Its path in the folder.
    name: String,
    text: String,
    is_program: bool,
    /// Whether the very same file may be there already.
    may_be_there: bool,
}

impl NewFile {
    /// A text.
    pub(super) fn text(name: String, text: String) -> NewFile {
        NewFile { name, text, is_program: false, may_be_there: false }
    }

    /// A program that may be executed.
    pub(super) fn program(name: String, text: String) -> NewFile {
        NewFile { is_program: true, ..NewFile::text(name, text) }
    }

    /// A text that several commands make alike.
    pub(super) fn shared(name: String, text: String) -> NewFile {
        NewFile { may_be_there: true, ..NewFile::text(name, text) }
    }

    /// Where it comes to lie.
    pub(super) fn path(&self, dir: &Path) -> PathBuf {
        dir.join(&self.name)
    }

    fn is_there(&self, dir: &Path) -> bool {
        self.may_be_there && fs::read_to_string(self.path(dir)).is_ok_and(|text| text == self.text)
    }

    fn make(&self, dir: &Path) -> io::Result<()> {
        let path = self.path(dir);
        if let Some(parent) = path.parent() {
            DirBuilder::new().recursive(true).create(parent)?;
        }
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        file.write_all(self.text.as_bytes())?;
        if self.is_program {
            fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        }
        Ok(())
    }
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> ExitCode {
    exit::complain(&format!("{}: {error}", path.display()), exit::FAILED)
}

/// Writes tools and what belongs to them into a tools folder, all or none: they must be without faults,
/// and nothing of them may be there.
///
/// # Errors
/// The exit code; what is wrong has been told.
pub(super) fn write_tools(dir: &Path, tools: &[&str], new: &[NewFile]) -> Result<(), ExitCode> {
    for tool in tools {
        for ending in ["toml", "json"] {
            let path = dir.join(format!("{tool}.{ending}"));
            if path.exists() {
                return Err(failed(&path, &"is there already; nothing was written"));
            }
        }
    }
    let tried = tempfile::tempdir().map_err(|error| failed(dir, &error))?;
    for file in new {
        file.make(tried.path()).map_err(|error| failed(&file.path(dir), &error))?;
    }
    if let Err(faults) = described::read(tried.path(), &Rules::default()) {
        // Told as of the folder that was named.
        let place = (tried.path().display().to_string(), dir.display().to_string());
        let lines: Vec<String> =
            faults.iter().map(|fault| fault.to_string().replace(&place.0, &place.1)).collect();
        return Err(exit::complain(&lines.join("\n"), exit::CONFIG));
    }
    write(dir, new)
}

/// Writes files into a folder, all or none of them.
///
/// # Errors
/// The exit code; what is wrong has been told.
pub(super) fn write(dir: &Path, new: &[NewFile]) -> Result<(), ExitCode> {
    let missing: Vec<&NewFile> = new.iter().filter(|file| !file.is_there(dir)).collect();
    if let Some(taken) = missing.iter().map(|file| file.path(dir)).find(|path| path.exists()) {
        return Err(failed(&taken, &"is there already; nothing was written"));
    }
    for (made, file) in missing.iter().enumerate() {
        if let Err(error) = file.make(dir) {
            // What another process put there meanwhile is not ours to take away.
            missing.iter().take(made).for_each(|ours| drop(fs::remove_file(ours.path(dir))));
            return Err(failed(&file.path(dir), &error));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_over_and_a_shared_file_may_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let shared = || NewFile::shared("lib.py".into(), "x".into());
        let text = |name: &str| NewFile::text(name.into(), "y".into());
        assert!(write(dir.path(), &[text("a"), shared()]).is_ok());
        assert!(write(dir.path(), &[text("b"), shared()]).is_ok());
        assert!(write(dir.path(), &[text("c"), text("a")]).is_err());
        assert!(!dir.path().join("c").exists(), "all or none");
        fs::write(dir.path().join("lib.py"), "other").unwrap();
        assert!(write(dir.path(), &[text("d"), shared()]).is_err());
        assert!(!dir.path().join("d").exists());
    }

    #[test]
    fn faulty_tools_and_taken_names_are_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("tools");
        let manifest = |text: &str| [NewFile::text("a.toml".into(), text.into())];
        assert!(write_tools(&out, &["a"], &manifest("timeout = 1")).is_err());
        assert!(!out.exists());
        let good = "description = \"D\"\n[run]\nexec = [\"true\"]\n";
        assert!(write_tools(&out, &["a"], &manifest(good)).is_ok());
        fs::rename(out.join("a.toml"), out.join("a.json")).unwrap();
        assert!(write_tools(&out, &["a"], &manifest(good)).is_err(), "the name is taken");
    }
}
