//! Follows the tools folder of a development fleet: what is saved is served within a second; where a
//! manifest is faulty, the faults are told and the last good set goes on serving.

use crate::announce::Announcer;
use crate::measure::Measures;
use crate::process::lines;
use crate::registry::{Registry, Shared};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use toolfleet_proto::manifest::Fault;

/// How often the folder is looked at.
const EVERY: Duration = Duration::from_millis(250);
/// What the lines on standard error begin with, for whoever passes them on.
const MARK: &str = "tools:";

/// Reads every tool anew.
pub type Gather = Arc<dyn Fn() -> Result<Arc<Registry>, Vec<Fault>> + Send + Sync>;

/// Name, size and time of change of every file.
type Fingerprint = BTreeMap<PathBuf, (u64, Option<SystemTime>)>;

/// A folder that is followed.
#[derive(Clone)]
pub struct Watched {
    dir: PathBuf,
    gather: Gather,
}

fn fingerprint(dir: &Path) -> Fingerprint {
    let mut found = Fingerprint::new();
    note(dir, true, &mut found);
    found
}

/// Notes what stands in a folder; of the tools folder also what stands in its packages.
fn note(dir: &Path, is_top: bool, found: &mut Fingerprint) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(metadata) = std::fs::metadata(&path) else { continue };
        if metadata.is_dir() && is_top && !entry.file_name().to_string_lossy().starts_with('.') {
            note(&path, false, found);
        }
        found.insert(path, (metadata.len(), metadata.modified().ok()));
    }
}

fn tell(text: &str) {
    let mut out = std::io::stderr().lock();
    for line in text.lines() {
        let _ = writeln!(out, "{MARK} {line}");
    }
}

impl Watched {
    /// Follows `dir`; `gather` reads it.
    pub fn new(dir: PathBuf, gather: Gather) -> Watched {
        Watched { dir, gather }
    }

    /// Follows the folder for ever.
    pub async fn follow(self, shared: Shared, announcer: Announcer, measures: Measures) {
        // The worker has started with them.
        measures.reloaded(true);
        let mut seen = fingerprint(&self.dir);
        loop {
            tokio::time::sleep(EVERY).await;
            let now = fingerprint(&self.dir);
            if now != seen {
                seen = now;
                self.take_in(&shared, &announcer, &measures).await;
            }
        }
    }

    async fn take_in(&self, shared: &Shared, announcer: &Announcer, measures: &Measures) {
        let gathered = (self.gather)();
        measures.reloaded(gathered.is_ok());
        let next = match gathered {
            Ok(next) => next,
            Err(faults) => {
                tell(&format!("{}\nthe last good tools go on serving", lines(&faults)));
                return;
            }
        };
        let before = shared.now();
        let changes = changes(&before, &next);
        shared.replace(Arc::clone(&next));
        if let Err(error) = announcer.announce().await {
            tracing::warn!(%error, "changed tools are not announced yet");
        }
        let gone: Vec<String> = before
            .tools()
            .map(|tool| tool.descriptor.name.clone())
            .filter(|name| next.tools().all(|tool| tool.descriptor.name != *name))
            .collect();
        announcer.drop_tools(&gone).await;
        if !changes.is_empty() {
            tell(&changes.join(", "));
        }
    }
}

/// What is new, changed and gone, in words.
fn changes(before: &Registry, next: &Registry) -> Vec<String> {
    let known =
        |registry: &Registry, name: &str| registry.tools().any(|t| t.descriptor.name == name);
    let mut words: Vec<String> = next
        .tools()
        .filter(|tool| before.find(&tool.descriptor.name, &tool.hash).is_none())
        .map(|tool| {
            let name = &tool.descriptor.name;
            let what = if known(before, name) { "changed" } else { "new" };
            format!("{name} is {what}")
        })
        .collect();
    let gone = before.tools().map(|tool| &tool.descriptor.name).filter(|name| !known(next, name));
    words.extend(gone.map(|name| format!("{name} is gone")));
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench_echo::BenchEcho;
    use crate::registry::Builder;

    #[test]
    fn a_saved_file_changes_the_fingerprint() {
        let dir = tempfile::tempdir().unwrap();
        let before = fingerprint(dir.path());
        std::fs::write(dir.path().join("a.toml"), "x").unwrap();
        let saved = fingerprint(dir.path());
        assert_ne!(before, saved);
        std::fs::write(dir.path().join("a.toml"), "xy").unwrap();
        assert_ne!(saved, fingerprint(dir.path()));
        let package = dir.path().join("crm");
        std::fs::create_dir(&package).unwrap();
        std::fs::write(package.join("b.toml"), "x").unwrap();
        let saved = fingerprint(dir.path());
        std::fs::write(package.join("b.toml"), "xy").unwrap();
        assert_ne!(saved, fingerprint(dir.path()), "a file of a package counts as well");
        assert_eq!(fingerprint(Path::new("/nowhere/at/all")), Fingerprint::new());
    }

    #[test]
    fn changes_are_told_in_words() {
        let mut builder = Builder::default();
        builder.native(Arc::new(BenchEcho));
        let (empty, one) = (Registry::default(), builder.build().unwrap());
        assert_eq!(changes(&empty, &one), ["bench-echo is new"]);
        assert_eq!(changes(&one, &empty), ["bench-echo is gone"]);
        assert!(changes(&one, &one).is_empty());
    }
}
