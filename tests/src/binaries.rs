//! Where the binaries under test are, and whether they are of the sources as they stand.

use anyhow::{Context as _, bail};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Name of the coordinator's binary, which is also the command line.
pub const TOOLFLEET: &str = "toolfleet";
/// Name of the worker's binary.
pub const WORKER: &str = "toolfleet-worker";
/// Names the folder of the binaries; without it they are where cargo put this test.
const BIN_DIR: &str = "TOOLFLEET_TEST_BIN_DIR";
const MEND: &str = "run cargo build --workspace --bins";

/// The path of a binary. An error where it is missing, or older than one of the sources it is built
/// from: a test of a stale binary proves nothing.
pub fn binary(name: &str) -> anyhow::Result<PathBuf> {
    let named = std::env::var_os(BIN_DIR).map(PathBuf::from);
    let dir = match &named {
        Some(dir) => dir.clone(),
        None => beside_this_test()?,
    };
    let path = dir.join(name);
    if !path.is_file() {
        bail!("there is no {}: {MEND}", path.display());
    }
    // Cargo writes down beside a binary what it was built from; an installed one has no such list.
    let sources = path.with_extension("d");
    if sources.is_file() || named.is_none() {
        check_fresh(&path, &sources)?;
    }
    Ok(path)
}

/// The folder of this executable, or above it: a test is `target/debug/deps/it-…`.
fn beside_this_test() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("this executable has no path")?;
    let own_dir = own.parent().context("this executable is in no folder")?;
    let is_test = own_dir.file_name().is_some_and(|name| name == "deps");
    let dir = own_dir.parent().filter(|_| is_test).unwrap_or(own_dir);
    Ok(dir.to_path_buf())
}

fn check_fresh(binary: &Path, sources: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(sources)
        .with_context(|| format!("{} cannot be read: {MEND}", sources.display()))?;
    let built = modified(binary)?;
    for source in listed(&text) {
        if modified(&source).is_ok_and(|changed| changed > built) {
            bail!("{} is older than {}: {MEND}", binary.display(), source.display());
        }
    }
    Ok(())
}

fn modified(path: &Path) -> anyhow::Result<SystemTime> {
    Ok(std::fs::metadata(path)?.modified()?)
}

/// The sources in a list of the form `binary: source source …`, spaces in names escaped.
fn listed(text: &str) -> Vec<PathBuf> {
    let line = text.lines().next().unwrap_or_default();
    let Some((_, sources)) = line.split_once(": ") else { return Vec::new() };
    sources
        .replace("\\ ", "\0")
        .split(' ')
        .filter(|source| !source.is_empty())
        .map(|source| PathBuf::from(source.replace('\0', " ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_source_that_changed_later_makes_a_binary_stale() {
        let dir = tempfile::tempdir().unwrap();
        let (source, built) = (dir.path().join("a b.rs"), dir.path().join("tool"));
        std::fs::write(&source, "").unwrap();
        std::fs::write(&built, "").unwrap();
        let escaped = source.display().to_string().replace(' ', "\\ ");
        let list = dir.path().join("tool.d");
        std::fs::write(&list, format!("{}: {escaped}\n", built.display())).unwrap();
        let age = |path: &Path, seconds: u64| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
        };
        age(&source, 5);
        age(&built, 6);
        check_fresh(&built, &list).unwrap();
        age(&source, 7);
        let error = check_fresh(&built, &list).unwrap_err().to_string();
        assert!(error.contains("run cargo build --workspace --bins"), "{error}");
        assert!(error.contains("a b.rs"), "{error}");
    }

    #[test]
    fn a_missing_binary_says_how_to_build_it() {
        let error = binary("no-such-binary").unwrap_err().to_string();
        assert!(error.contains("run cargo build --workspace --bins"), "{error}");
    }
}
