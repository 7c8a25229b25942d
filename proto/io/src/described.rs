//! A tools folder as `describe` and `lock` need it: every tool, with the origins of its values.

use crate::tools_folder::{self, FoundTool};
use std::path::Path;
use toolfleet_proto::describe::Described;
use toolfleet_proto::layers::Rules;
use toolfleet_proto::lock::Lock;
use toolfleet_proto::manifest::Fault;

/// Every tool of a folder, by name, read by the rules of its pool and its fleet.
///
/// # Errors
/// All faults of the folder at once.
pub fn read(dir: &Path, rules: &Rules) -> Result<Vec<Described>, Vec<Fault>> {
    let root = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
    let found = tools_folder::read(dir, rules)?;
    let mut tools: Vec<Described> = found.into_iter().map(|tool| describe(&root, tool)).collect();
    tools.sort_by(|a, b| a.descriptor.name.cmp(&b.descriptor.name));
    Ok(tools)
}

fn describe(root: &Path, found: FoundTool) -> Described {
    let FoundTool { manifest, folder, file } = found;
    let package = folder
        .strip_prefix(root)
        .ok()
        .map(|inner| inner.to_string_lossy().into_owned())
        .filter(|inner| !inner.is_empty());
    Described {
        hash: manifest.descriptor.hash(),
        package,
        file: Some(file),
        secrets: manifest.secrets,
        origins: manifest.origins,
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
    use toolfleet_proto::layers::{Defaults, Origin};

    #[test]
    fn tools_come_by_name_with_packages_files_and_origins() {
        let dir = tempfile::tempdir().unwrap();
        let text =
            "description = \"D\"\ntimeout = \"5s\"\n[run]\nexec = [\"sh\"]\nresult = \"text\"\n";
        std::fs::write(dir.path().join("z.toml"), text).unwrap();
        std::fs::create_dir(dir.path().join("crm")).unwrap();
        let json = r#"{"description": "D", "effect": "read", "run": {"exec": ["sh"]}}"#;
        std::fs::write(dir.path().join("crm/find.json"), json).unwrap();
        let pool = Defaults { max_attempts: Some(1), ..Defaults::default() };
        let tools = read(dir.path(), &Rules { pool, ..Rules::default() }).unwrap();
        let [find, z] = tools.as_slice() else { panic!("{tools:?}") };
        assert_eq!(
            (find.descriptor.name.as_str(), find.package.as_deref()),
            ("crm_find", Some("crm"))
        );
        assert!(find.file.as_ref().unwrap().ends_with("crm/find.json"));
        assert_eq!((z.descriptor.name.as_str(), z.package.as_deref()), ("z", None));
        assert_eq!((z.origins.timeout, z.origins.effect), (Origin::Tool, Origin::BuiltIn));
        assert_eq!((z.origins.result, z.origins.max_attempts), (Origin::Tool, Origin::Pool));
        assert_eq!((find.origins.effect, find.origins.result), (Origin::Tool, Origin::BuiltIn));
        let lock = lock_of(&tools);
        assert!(lock.has("z", &z.hash) && lock.count() == 2);
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
