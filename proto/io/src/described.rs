//! A tools folder as `describe` and `lock` need it: every tool, and which of its values its manifest
//! says.

use crate::tools_folder::{self, FoundTool};
use std::collections::BTreeMap;
use std::path::Path;
use toolfleet_proto::describe::{Described, WITH_DEFAULTS};
use toolfleet_proto::lock::Lock;
use toolfleet_proto::manifest::{self, Fault, Syntax};

/// Every tool of a folder, by name.
///
/// # Errors
/// All faults of the folder at once.
pub fn read(dir: &Path) -> Result<Vec<Described>, Vec<Fault>> {
    let root = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
    let found = tools_folder::read(dir)?;
    Ok(found.into_iter().map(|tool| describe(&root, tool)).collect())
}

fn describe(root: &Path, found: FoundTool) -> Described {
    let FoundTool { manifest, folder } = found;
    let package = folder
        .strip_prefix(root)
        .ok()
        .map(|inner| inner.to_string_lossy().into_owned())
        .filter(|inner| !inner.is_empty());
    let stem = match &package {
        Some(package) => {
            let prefix = format!("{package}_");
            manifest.descriptor.name.strip_prefix(&prefix).unwrap_or(&manifest.descriptor.name)
        }
        None => &manifest.descriptor.name,
    };
    let files = [("toml", Syntax::Toml), ("json", Syntax::Json)];
    let file = files.into_iter().find_map(|(ending, syntax)| {
        let path = folder.join(format!("{stem}.{ending}"));
        std::fs::read_to_string(&path).ok().map(|text| (path, text, syntax))
    });
    let origins = file.as_ref().map_or_else(BTreeMap::new, |(_, text, syntax)| {
        WITH_DEFAULTS
            .into_iter()
            .map(|(key, _, path)| {
                let is_said = manifest::line_of(text, *syntax, path).is_some();
                (key, if is_said { "tool" } else { "built in" })
            })
            .collect()
    });
    Described {
        hash: manifest.descriptor.hash(),
        package,
        file: file.map(|(path, ..)| path.display().to_string()),
        secrets: manifest.secrets,
        origins,
        descriptor: manifest.descriptor,
    }
}

/// The lock of these tools.
pub fn lock_of(tools: &[Described]) -> Lock {
    Lock::of(tools.iter().map(|tool| (tool.descriptor.name.as_str(), tool.hash.as_str())))
}

/// Reads a lock file.
///
/// # Errors
/// That it cannot be read, or what in it does not read.
pub fn read_lock(path: &Path) -> Result<Lock, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Lock::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_the_tools_where_its_manifest_says_it() {
        let dir = tempfile::tempdir().unwrap();
        let text =
            "description = \"D\"\ntimeout = \"5s\"\n[run]\nexec = [\"sh\"]\nresult = \"text\"\n";
        std::fs::write(dir.path().join("a.toml"), text).unwrap();
        let json = r#"{"description": "D", "effect": "read", "run": {"exec": ["sh"]}}"#;
        std::fs::write(dir.path().join("b.json"), json).unwrap();
        let tools = read(dir.path()).unwrap();
        let origin = |tool: usize, key: &str| tools[tool].origins[key];
        assert_eq!((origin(0, "timeout"), origin(0, "effect")), ("tool", "built in"));
        assert_eq!((origin(0, "result"), origin(0, "max_attempts")), ("tool", "built in"));
        assert_eq!((origin(1, "timeout"), origin(1, "effect")), ("built in", "tool"));
        assert!(tools[1].file.as_ref().unwrap().ends_with("b.json"));
        let lock = lock_of(&tools);
        assert!(lock.has("a", &tools[0].hash) && lock.count() == 2);
    }

    #[test]
    fn a_lock_that_does_not_read_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("toolfleet.lock");
        assert!(read_lock(&path).unwrap_err().contains("toolfleet.lock"));
        std::fs::write(&path, "version = 9").unwrap();
        assert!(read_lock(&path).unwrap_err().contains("version 9"));
    }
}
