//! The tools on offer, as this coordinator knows them (CONTRACT 1.4, 2.3, 3.2, DESIGN 10).

mod choose;
mod offered;
mod report;

pub use offered::{Offered, Why, Withheld};

use super::expressions::Expressions;
use choose::{Candidate, choose};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use toolfleet_proto::catalog::{ToolEntry, Version, WorkerEntry};
use toolfleet_proto::descriptor::Descriptor;
use toolfleet_proto::lock::Lock;
use toolfleet_proto::schema::Schema;

/// A tool that may be called.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The pool that runs it.
    pub pool: String,
    /// Hash of the version on offer.
    pub hash: String,
    /// That version.
    pub descriptor: Arc<Descriptor>,
    /// Compiled schema of its input.
    pub input: Arc<Schema>,
    /// Its expressions.
    pub expressions: Arc<Expressions>,
    /// Whether a live worker has it; else its pool is scaled to zero or gone.
    pub is_live: bool,
}

#[derive(Clone, Debug)]
struct Known {
    descriptor: Arc<Descriptor>,
    input: Arc<Schema>,
    expressions: Arc<Expressions>,
}

/// What the bucket of tools says. Fed by a watch, asked by requests.
#[derive(Debug, Default)]
pub struct Catalog {
    /// By key: the entry as it is, and its versions compiled.
    tools: BTreeMap<String, (String, ToolEntry)>,
    compiled: HashMap<String, Known>,
    workers: HashMap<String, WorkerEntry>,
    /// Versions that may be offered; `None`: all.
    lock: Option<Lock>,
}

impl Catalog {
    /// Takes in an entry of the bucket. `None`: it was deleted. An entry that does not read is told,
    /// and what was known stays.
    pub fn apply(&mut self, key: &str, value: Option<&[u8]>) -> Result<(), String> {
        if key.starts_with("=w.") {
            match value {
                None => drop(self.workers.remove(key)),
                Some(bytes) => {
                    let entry = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
                    self.workers.insert(key.to_owned(), entry);
                }
            }
            return Ok(());
        }
        let Some((pool, _)) = key.split_once('.') else { return Err("no pool in the key".into()) };
        match value {
            None => drop(self.tools.remove(key)),
            Some(bytes) => {
                let entry: ToolEntry =
                    serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
                for version in &entry.versions {
                    self.compile(version)?;
                }
                self.tools.insert(key.to_owned(), (pool.to_owned(), entry));
            }
        }
        Ok(())
    }

    fn compile(&mut self, version: &Version) -> Result<(), String> {
        if self.compiled.contains_key(&version.hash) {
            return Ok(());
        }
        let input = Schema::compile(&version.descriptor.input_schema)
            .map_err(|error| format!("{}: {}", version.descriptor.name, error.message))?;
        let known = Known {
            descriptor: Arc::new(version.descriptor.clone()),
            input: Arc::new(input),
            expressions: Arc::new(Expressions::compile(&version.descriptor)),
        };
        self.compiled.insert(version.hash.clone(), known);
        Ok(())
    }

    /// Whether a live worker has this version of a tool.
    pub fn has_live_worker(&self, tool: &str, hash: &str, now_ms: i64) -> bool {
        self.workers.values().any(|worker| worker.is_live(now_ms) && worker.has(tool, hash))
    }

    /// From now on only versions of this lock are offered.
    pub fn set_lock(&mut self, lock: Lock) {
        self.lock = Some(lock);
    }

    /// Live workers of a pool that have any version of a tool.
    pub fn live_workers(&self, pool: &str, tool: &str, now_ms: i64) -> Vec<String> {
        let has = |worker: &&WorkerEntry| {
            worker.pool == pool && worker.is_live(now_ms) && worker.tools.contains_key(tool)
        };
        let mut names: Vec<String> =
            self.workers.values().filter(has).map(|worker| worker.worker.clone()).collect();
        names.sort();
        names
    }

    /// Pools that announce a tool, by name.
    pub fn pools_of(&self, tool: &str) -> Vec<String> {
        let announces = |(_, entry): &&(String, ToolEntry)| {
            entry.versions.first().is_some_and(|version| version.descriptor.name == tool)
        };
        self.tools.values().filter(announces).map(|(pool, _)| pool.clone()).collect()
    }

    fn is_live_in(&self, pool: &str, tool: &str, hash: &str, now_ms: i64) -> bool {
        self.workers
            .values()
            .any(|worker| worker.pool == pool && worker.is_live(now_ms) && worker.has(tool, hash))
    }

    /// Every tool on offer, and what is announced and not offered: versions that the lock does not
    /// have, and the other version of a pool that came to a name later (`choose`).
    pub fn offered(&self, now_ms: i64) -> Offered {
        let mut offered = Offered::default();
        let mut candidates: BTreeMap<&str, Vec<Candidate<'_>>> = BTreeMap::new();
        for (pool, entry) in self.tools.values() {
            let Some(newest) = entry.versions.first() else { continue };
            let name = newest.descriptor.name.as_str();
            let may_be = |hash: &str| self.lock.as_ref().is_none_or(|lock| lock.has(name, hash));
            let is_live = |hash: &str| self.is_live_in(pool, name, hash, now_ms);
            match entry.on_offer(may_be, is_live) {
                Some((version, is_live)) => candidates.entry(name).or_default().push(Candidate {
                    pool,
                    hash: &version.hash,
                    is_live,
                    since_ms: entry.since_ms().unwrap_or_default(),
                    last_announced_ms: version.last_announced_ms(),
                }),
                None => offered.withheld.push(Withheld {
                    name: name.to_owned(),
                    pool: pool.clone(),
                    hash: newest.hash.clone(),
                    why: Why::Unpinned {
                        pinned: self
                            .lock
                            .as_ref()
                            .map(|lock| lock.pinned(name))
                            .unwrap_or_default(),
                    },
                }),
            }
        }
        for (name, candidates) in candidates {
            let Some(chosen) = choose(&candidates) else { continue };
            offered.withheld.extend(newcomers(name, &candidates, chosen));
            if let Some(offer) = self.offer(chosen) {
                offered.tools.insert(name.to_owned(), offer);
            }
        }
        offered.withheld.sort_by(|a, b| (&a.name, &a.pool).cmp(&(&b.name, &b.pool)));
        offered
    }

    fn offer(&self, chosen: &Candidate<'_>) -> Option<Offer> {
        let known = self.compiled.get(chosen.hash)?;
        Some(Offer {
            pool: chosen.pool.to_owned(),
            hash: chosen.hash.to_owned(),
            descriptor: Arc::clone(&known.descriptor),
            input: Arc::clone(&known.input),
            expressions: Arc::clone(&known.expressions),
            is_live: chosen.is_live,
        })
    }
}

/// Pools with another version than the one that is offered.
fn newcomers<'c>(
    name: &'c str,
    candidates: &'c [Candidate<'_>],
    chosen: &'c Candidate<'_>,
) -> impl Iterator<Item = Withheld> + 'c {
    candidates.iter().filter(|one| one.hash != chosen.hash).map(move |one| Withheld {
        name: name.to_owned(),
        pool: one.pool.to_owned(),
        hash: one.hash.to_owned(),
        why: Why::AnotherHash { pool: chosen.pool.to_owned(), hash: chosen.hash.to_owned() },
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;
    use toolfleet_proto::declared::Declared;
    use toolfleet_proto::descriptor::{ResultForm, Runner};
    use toolfleet_proto::effect::Effect;

    /// A tool that reads and has the least of everything; tests say only what theirs has otherwise.
    pub(crate) fn plain() -> Descriptor {
        Descriptor {
            name: "find".into(),
            description: "Finds".into(),
            effect: Effect::Read,
            rerun: false,
            timeout_ms: 1,
            queue_timeout_ms: 1,
            total_timeout_ms: 1,
            max_attempts: 1,
            result_bytes_max: 1,
            input_schema: json!({"type": "object"}),
            output_schema: None,
            result: ResultForm::Text,
            runner: Runner::Native,
            tags: vec![],
            presentation: None,
            declared: Declared::default(),
        }
    }

    fn announce(catalog: &mut Catalog, pool: &str, description: &str, at: i64) -> String {
        let descriptor = Descriptor { description: description.into(), ..plain() };
        let hash = descriptor.hash();
        let version = Version {
            hash: hash.clone(),
            descriptor,
            announced_at_ms: at,
            announced_by: "w".into(),
            last_announced_at_ms: 0,
        };
        let key = format!("{pool}.find");
        let before = catalog.tools.get(&key).map(|(_, entry)| entry.clone()).unwrap_or_default();
        let entry = before.with(version).unwrap();
        catalog.apply(&key, Some(&serde_json::to_vec(&entry).unwrap())).unwrap();
        hash
    }

    fn live(catalog: &mut Catalog, pool: &str, hash: &str, at: i64) {
        let worker = WorkerEntry {
            pool: pool.into(),
            worker: "w".into(),
            last_seen_ms: at,
            tools: [("find".to_owned(), hash.to_owned())].into(),
            slots: 1,
            slots_used: 0,
            build: "0".into(),
        };
        catalog
            .apply(&format!("=w.{pool}.w"), Some(&serde_json::to_vec(&worker).unwrap()))
            .unwrap();
    }

    fn find(catalog: &Catalog) -> Option<Offer> {
        catalog.offered(0).tools.remove("find")
    }

    #[test]
    fn a_tool_stays_on_offer_while_its_pool_is_scaled_to_zero() {
        let mut catalog = Catalog::default();
        let hash = announce(&mut catalog, "a", "Finds", 1);
        assert!(!find(&catalog).unwrap().is_live);
        live(&mut catalog, "a", &hash, 0);
        assert!(find(&catalog).unwrap().is_live);
        assert!(catalog.has_live_worker("find", &hash, 0));
        assert!(!catalog.has_live_worker("find", &hash, 60_000));
        catalog.apply("a.find", None).unwrap();
        assert!(find(&catalog).is_none());
    }

    #[test]
    fn another_hash_of_a_newcomer_pool_is_withheld_and_the_same_hash_moves() {
        let mut catalog = Catalog::default();
        let first = announce(&mut catalog, "a", "Finds", 1);
        let other = announce(&mut catalog, "b", "Finds other things", 2);
        live(&mut catalog, "a", &first, 0);
        live(&mut catalog, "b", &other, 0);
        assert_eq!(find(&catalog).unwrap().pool, "a");
        let why = Why::AnotherHash { pool: "a".into(), hash: first.clone() };
        let withheld = Withheld { name: "find".into(), pool: "b".into(), hash: other.clone(), why };
        assert_eq!(catalog.offered(0).withheld, [withheld]);
        let report = catalog.report(0);
        assert_eq!(report["items"][0]["isOffered"], true, "{report}");
        assert_eq!(report["items"][1]["withheld"]["offeredPool"], "a", "{report}");
        assert_eq!(report["items"][1]["versions"][0]["workers"][0]["isLive"], true, "{report}");

        let same = announce(&mut catalog, "b", "Finds", 3);
        live(&mut catalog, "b", &same, 0);
        assert_eq!((same == first, find(&catalog).unwrap().pool), (true, "b".to_owned()));
        assert!(catalog.offered(0).withheld.is_empty());
        // The first pool announces again: new calls go back to it.
        announce(&mut catalog, "a", "Finds", 60_000);
        assert_eq!(find(&catalog).unwrap().pool, "a");
    }

    #[test]
    fn only_pinned_versions_are_offered_and_the_rest_says_why() {
        let mut catalog = Catalog::default();
        let old = announce(&mut catalog, "a", "Finds", 1);
        let new = announce(&mut catalog, "a", "Finds more", 2);
        live(&mut catalog, "a", &new, 0);
        assert_eq!(find(&catalog).unwrap().hash, new);
        catalog.set_lock(Lock::of([("find", old.as_str())]));
        let offer = find(&catalog).unwrap();
        assert_eq!((offer.hash.as_str(), offer.is_live), (old.as_str(), false));
        let pinned = "0".repeat(64);
        catalog.set_lock(Lock::of([("find", pinned.as_str())]));
        assert!(find(&catalog).is_none());
        let why = Why::Unpinned { pinned: vec![pinned] };
        let withheld = Withheld { name: "find".into(), pool: "a".into(), hash: new, why };
        assert_eq!(catalog.offered(0).withheld, [withheld]);
        assert_eq!(catalog.report(0)["items"][0]["versions"][0]["isPinned"], false);
    }

    #[test]
    fn who_announces_a_tool_and_lives_is_known() {
        let mut catalog = Catalog::default();
        let hash = announce(&mut catalog, "a", "Finds", 1);
        announce(&mut catalog, "b", "Finds", 1);
        live(&mut catalog, "a", &hash, 0);
        assert_eq!(catalog.pools_of("find"), ["a", "b"]);
        assert_eq!(catalog.live_workers("a", "find", 0), ["w"]);
        assert!(catalog.live_workers("b", "find", 0).is_empty());
        assert!(catalog.live_workers("a", "find", 60_000).is_empty());
    }

    #[test]
    fn an_entry_that_does_not_read_leaves_what_was_known() {
        let mut catalog = Catalog::default();
        announce(&mut catalog, "a", "Finds", 1);
        assert!(catalog.apply("a.find", Some(b"{")).is_err());
        assert!(catalog.apply("nonsense", Some(b"{}")).is_err());
        assert!(find(&catalog).is_some());
    }
}
