//! The tools on offer, as this coordinator knows them (CONTRACT 1.4, 2.3, 3.2, DESIGN 10).

use super::expressions::Expressions;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use toolfleet_proto::catalog::{ToolEntry, Version, WorkerEntry};
use toolfleet_proto::descriptor::Descriptor;
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
    version: Version,
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
            version: version.clone(),
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

    /// Every tool on offer, by name. Where two pools have one name, the version announced last wins
    /// among equal hashes; another hash of a newcomer is not offered.
    pub fn offers(&self, now_ms: i64) -> BTreeMap<String, Offer> {
        let mut offers: BTreeMap<String, (i64, Offer)> = BTreeMap::new();
        for (pool, entry) in self.tools.values() {
            let name = entry.versions.first().map(|version| version.descriptor.name.clone());
            let Some(name) = name else { continue };
            let is_live_in_pool = |hash: &str| {
                self.workers.values().any(|worker| {
                    &worker.pool == pool && worker.is_live(now_ms) && worker.has(&name, hash)
                })
            };
            let Some((version, is_live)) = entry.on_offer(is_live_in_pool) else { continue };
            let Some(known) = self.compiled.get(&version.hash) else { continue };
            let offer = Offer {
                pool: pool.clone(),
                hash: version.hash.clone(),
                descriptor: Arc::clone(&known.descriptor),
                input: Arc::clone(&known.input),
                expressions: Arc::clone(&known.expressions),
                is_live,
            };
            let at = known.version.announced_at_ms.max(version.announced_at_ms);
            match offers.get(&name) {
                Some((other_at, other)) if !prefer(at, &offer, *other_at, other) => {}
                _ => drop(offers.insert(name, (at, offer))),
            }
        }
        offers.into_iter().map(|(name, (_, offer))| (name, offer)).collect()
    }
}

/// Whether an offer takes the place of another pool's.
fn prefer(at: i64, offer: &Offer, other_at: i64, other: &Offer) -> bool {
    if offer.hash == other.hash {
        (offer.is_live, at) > (other.is_live, other_at)
    } else if offer.is_live == other.is_live {
        // The one that was there first stays.
        at < other_at
    } else {
        offer.is_live
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolfleet_proto::descriptor::{ResultForm, Runner};
    use toolfleet_proto::effect::Effect;

    fn descriptor(description: &str) -> Descriptor {
        Descriptor {
            name: "find".into(),
            description: description.into(),
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
            tags: vec!["crm".into()],
            presentation: None,
            declared: toolfleet_proto::declared::Declared::default(),
        }
    }

    fn announce(catalog: &mut Catalog, pool: &str, description: &str, at: i64) -> String {
        let descriptor = descriptor(description);
        let hash = descriptor.hash();
        let version = Version {
            hash: hash.clone(),
            descriptor,
            announced_at_ms: at,
            announced_by: "w".into(),
        };
        let entry = ToolEntry::default().with(version).unwrap();
        catalog.apply(&format!("{pool}.find"), Some(&serde_json::to_vec(&entry).unwrap())).unwrap();
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
        catalog.offers(0).remove("find")
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
    fn another_hash_of_a_newcomer_pool_is_not_offered_and_the_same_hash_moves() {
        let mut catalog = Catalog::default();
        let first = announce(&mut catalog, "a", "Finds", 1);
        let other = announce(&mut catalog, "b", "Finds other things", 2);
        live(&mut catalog, "a", &first, 0);
        live(&mut catalog, "b", &other, 0);
        assert_eq!(find(&catalog).unwrap().pool, "a");
        let same = announce(&mut catalog, "b", "Finds", 3);
        live(&mut catalog, "b", &same, 0);
        assert_eq!((same == first, find(&catalog).unwrap().pool), (true, "b".to_owned()));
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
