//! What is wrong with a manifest, and how to mend it (CONTRACT 1.5).

use crate::checks::Finding;
use serde::Serialize;
use std::fmt;

/// One fault of one file. A file's faults are always reported all at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// Stable: `manifest.…`, `tool.…`, `units.…`, `exec.…`, or a code of the schema compiler.
    pub code: &'static str,
    /// The file, as the reader named it.
    pub file: String,
    /// Line from 1, where the fault belongs to one.
    pub line: Option<u32>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub mend: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}: {} ({})", self.code, self.message, self.mend)
    }
}

/// Collects the faults of one file.
pub(super) struct Faults<'a> {
    file: &'a str,
    found: Vec<Fault>,
}

impl<'a> Faults<'a> {
    pub(super) fn new(file: &'a str) -> Self {
        Faults { file, found: Vec::new() }
    }

    /// The file that is read.
    pub(super) fn file(&self) -> &'a str {
        self.file
    }

    /// A fault at a line.
    pub(super) fn at(
        &mut self,
        line: u32,
        code: &'static str,
        message: impl Into<String>,
        mend: impl Into<String>,
    ) {
        self.push(self.file.into(), Some(line), code, message.into(), mend.into());
    }

    /// A fault of the file as a whole.
    pub(super) fn whole(
        &mut self,
        code: &'static str,
        message: impl Into<String>,
        mend: impl Into<String>,
    ) {
        self.push(self.file.into(), None, code, message.into(), mend.into());
    }

    /// What a check found, at a line or of the file as a whole.
    pub(super) fn finding(&mut self, line: Option<u32>, found: impl IntoIterator<Item = Finding>) {
        for Finding { code, message, mend } in found {
            self.push(self.file.into(), line, code, message, mend);
        }
    }

    /// A fault in a file that the manifest names.
    pub(super) fn beside(
        &mut self,
        file: &str,
        line: Option<u32>,
        code: &'static str,
        message: impl Into<String>,
        mend: impl Into<String>,
    ) {
        self.push(file.into(), line, code, message.into(), mend.into());
    }

    fn push(
        &mut self,
        file: String,
        line: Option<u32>,
        code: &'static str,
        message: String,
        mend: String,
    ) {
        self.found.push(Fault { code, file, line, message, mend });
    }

    pub(super) fn count(&self) -> usize {
        self.found.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The faults in reading order: of the file as a whole first, then by line; those of files
    /// beside it last.
    pub(super) fn into_sorted(mut self) -> Vec<Fault> {
        let file = self.file;
        self.found.sort_by_key(|fault| (fault.file != file, fault.line));
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_reads_as_a_compiler_would_say_it_and_serialises() {
        let mut faults = Faults::new("tools/a.toml");
        faults.at(3, "units.missing", "`10` has no unit", "write `10s`");
        faults.whole("manifest.missing", "no `description`", "add one");
        let found = faults.into_sorted();
        assert_eq!(
            found[0].to_string(),
            "tools/a.toml: manifest.missing: no `description` (add one)"
        );
        assert_eq!(
            found[1].to_string(),
            "tools/a.toml:3: units.missing: `10` has no unit (write `10s`)"
        );
        let json = serde_json::to_value(&found[1]).unwrap();
        assert_eq!(json["line"], 3);
        assert_eq!(json["code"], "units.missing");
    }
}
