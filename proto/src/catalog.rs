//! What workers announce of their tools, and which version of a tool is on offer (CONTRACT 1.4,
//! DESIGN 10). Values of the bucket of tools, JSON.

use crate::descriptor::Descriptor;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How often a worker says that it is alive.
pub const HEARTBEAT_MS: u64 = 5_000;
/// From this age of its last word on a worker counts as gone.
pub const LIVE_MS: i64 = 16_000;
/// Versions of one tool that are remembered.
const VERSIONS_MAX: usize = 8;
/// An announcement so soon after the last one of its version is not written down: the workers of a pool
/// start together.
pub const ANNOUNCE_AGAIN_MS: i64 = 10_000;

/// One version of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// Hash of the descriptor.
    pub hash: String,
    /// The descriptor.
    pub descriptor: Descriptor,
    /// When it was first announced, fleet's clock.
    pub announced_at_ms: i64,
    /// Who announced it first.
    pub announced_by: String,
    /// When a worker last announced it at its start, fleet's clock; 0: only once.
    #[serde(default)]
    pub last_announced_at_ms: i64,
}

/// The value at `<pool>.<tool>`: every version, the newest first. Kept while a pool is scaled to
/// zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolEntry {
    /// Newest first.
    pub versions: Vec<Version>,
    /// When this pool first announced a tool of this name, fleet's clock; `None`: written by an older
    /// build.
    #[serde(default)]
    pub first_announced_at_ms: Option<i64>,
}

impl Version {
    /// When a worker last announced it.
    pub fn last_announced_ms(&self) -> i64 {
        self.last_announced_at_ms.max(self.announced_at_ms)
    }
}

/// The value at `=w.<pool>.<worker>`: one word of life for all tools of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerEntry {
    /// The pool.
    pub pool: String,
    /// The worker's name.
    pub worker: String,
    /// Its last word, fleet's clock.
    pub last_seen_ms: i64,
    /// Hash of each tool that it has.
    pub tools: BTreeMap<String, String>,
    /// Slots, all and in use.
    pub slots: usize,
    /// In use.
    pub slots_used: usize,
    /// Version of the build.
    pub build: String,
}

impl ToolEntry {
    /// Adds an announcement. `None`: it was announced a moment ago, and nothing is to be written.
    ///
    /// A version that is announced again keeps its place: an old worker that restarts in the middle of
    /// a rollout does not turn it back.
    pub fn with(&self, version: Version) -> Option<ToolEntry> {
        let at_ms = version.announced_at_ms;
        let first_announced_at_ms = self.since_ms().or(Some(at_ms));
        let mut versions = self.versions.clone();
        match versions.iter_mut().find(|known| known.hash == version.hash) {
            Some(known) if at_ms - known.last_announced_ms() < ANNOUNCE_AGAIN_MS => return None,
            Some(known) => known.last_announced_at_ms = at_ms,
            None => {
                versions.insert(0, version);
                versions.sort_by_key(|version| std::cmp::Reverse(version.announced_at_ms));
                versions.truncate(VERSIONS_MAX);
            }
        }
        Some(ToolEntry { versions, first_announced_at_ms })
    }

    /// When this pool first announced a tool of this name; `None`: never.
    pub fn since_ms(&self) -> Option<i64> {
        let oldest = || self.versions.iter().map(|version| version.announced_at_ms).min();
        self.first_announced_at_ms.or_else(oldest)
    }

    /// The version on offer, among those that may be offered: the newest that a live worker has, else
    /// the newest of all.
    pub fn on_offer(
        &self,
        may_be: impl Fn(&str) -> bool,
        is_live: impl Fn(&str) -> bool,
    ) -> Option<(&Version, bool)> {
        let mut offerable = self.versions.iter().filter(|version| may_be(&version.hash));
        let newest = offerable.clone().next();
        match offerable.find(|version| is_live(&version.hash)) {
            Some(version) => Some((version, true)),
            None => newest.map(|version| (version, false)),
        }
    }
}

impl WorkerEntry {
    /// Whether it has spoken lately.
    pub fn is_live(&self, now_ms: i64) -> bool {
        now_ms - self.last_seen_ms <= LIVE_MS
    }

    /// Whether it has this version of a tool.
    pub fn has(&self, tool: &str, hash: &str) -> bool {
        self.tools.get(tool).is_some_and(|own| own == hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::tests::sound;

    fn version(hash: &str, announced_at_ms: i64) -> Version {
        Version {
            hash: hash.into(),
            descriptor: sound(),
            announced_at_ms,
            announced_by: "w".into(),
            last_announced_at_ms: 0,
        }
    }

    #[test]
    fn the_newest_version_with_a_live_worker_is_on_offer() {
        let old = ToolEntry::default().with(version("old", 1)).unwrap();
        let both = old.with(version("new", 2)).unwrap();
        let offered = |live: &[&str]| {
            let (version, is_live) = both.on_offer(|_| true, |hash| live.contains(&hash)).unwrap();
            (version.hash.clone(), is_live)
        };
        assert_eq!(offered(&["old", "new"]), ("new".to_owned(), true));
        assert_eq!(offered(&["old"]), ("old".to_owned(), true), "a rollback");
        assert_eq!(offered(&[]), ("new".to_owned(), false), "scaled to zero");
        assert_eq!(ToolEntry::default().on_offer(|_| true, |_| true), None);
        let pinned = |hash: &str| hash == "old";
        let (version, is_live) = both.on_offer(pinned, |hash| hash == "new").unwrap();
        assert_eq!((version.hash.as_str(), is_live), ("old", false), "only what may be offered");
        assert_eq!(both.on_offer(|_| false, |_| true), None);
    }

    #[test]
    fn announcing_again_at_once_changes_nothing_and_versions_are_bounded() {
        let mut entry = ToolEntry::default();
        for n in 0..20 {
            entry = entry.with(version(&n.to_string(), n)).unwrap();
        }
        assert_eq!(entry.versions.len(), VERSIONS_MAX);
        assert_eq!(entry.versions[0].hash, "19");
        assert_eq!(entry.with(version("19", 99)), None);
        assert_eq!(entry.since_ms(), Some(0), "kept longer than the first version");
    }

    #[test]
    fn a_later_announcement_is_noted_and_turns_nothing_back() {
        let both = ToolEntry::default().with(version("old", 1)).unwrap();
        let both = both.with(version("new", 2)).unwrap();
        let again = both.with(version("old", 1 + ANNOUNCE_AGAIN_MS)).unwrap();
        let order = |entry: &ToolEntry| -> Vec<(String, i64)> {
            let of = |version: &Version| (version.hash.clone(), version.last_announced_ms());
            entry.versions.iter().map(of).collect()
        };
        assert_eq!(order(&again), [("new".into(), 2), ("old".into(), 1 + ANNOUNCE_AGAIN_MS)]);
        assert_eq!(again.since_ms(), Some(1));
        let text = r#"{"versions": []}"#;
        assert_eq!(serde_json::from_str::<ToolEntry>(text).unwrap().since_ms(), None);
    }

    #[test]
    fn a_silent_worker_counts_as_gone() {
        let worker = WorkerEntry {
            pool: "p".into(),
            worker: "w".into(),
            last_seen_ms: 1_000,
            tools: BTreeMap::from([("t".to_owned(), "h".to_owned())]),
            slots: 8,
            slots_used: 0,
            build: "0".into(),
        };
        assert!(worker.is_live(1_000 + LIVE_MS) && !worker.is_live(1_001 + LIVE_MS));
        assert!(worker.has("t", "h") && !worker.has("t", "x") && !worker.has("u", "h"));
    }
}
