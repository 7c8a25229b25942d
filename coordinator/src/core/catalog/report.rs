//! The catalogue as an operator sees it: every pool's entry, its versions, who has them, and why one is
//! not offered (CONTRACT 1.4, 1.12, DESIGN 10).

use super::{Catalog, Offered, Why, Withheld};
use serde_json::{Value, json};
use toolfleet_proto::catalog::{ToolEntry, Version};
use toolfleet_proto::end::instant;

impl Withheld {
    /// `{"name", "pool", "hash", "reason", …}`.
    pub fn json(&self) -> Value {
        let mut value = json!({
            "name": self.name, "pool": self.pool, "hash": self.hash, "reason": self.why.as_str(),
        });
        match &self.why {
            Why::AnotherHash { pool, hash } => {
                value["offeredPool"] = json!(pool);
                value["offeredHash"] = json!(hash);
            }
            Why::Unpinned { pinned } => value["pinned"] = json!(pinned),
        }
        value
    }
}

impl Catalog {
    /// Entries by tool, then pool: `{"items", "nextCursor"}`.
    pub fn report(&self, now_ms: i64) -> Value {
        let offered = self.offered(now_ms);
        let mut items: Vec<(String, Value)> = self
            .tools
            .values()
            .filter_map(|(pool, entry)| {
                let name = entry.versions.first()?.descriptor.name.clone();
                let item = self.item(&name, pool, entry, &offered, now_ms);
                Some((name, item))
            })
            .collect();
        items.sort_by(|(a, _), (b, _)| a.cmp(b));
        let items: Vec<Value> = items.into_iter().map(|(_, item)| item).collect();
        json!({"items": items, "nextCursor": null})
    }

    fn item(
        &self,
        name: &str,
        pool: &str,
        entry: &ToolEntry,
        offered: &Offered,
        now_ms: i64,
    ) -> Value {
        let offer = offered.get(name).filter(|offer| offer.pool == pool);
        let withheld = offered.withheld.iter().find(|one| one.name == name && one.pool == pool);
        let versions: Vec<Value> = entry
            .versions
            .iter()
            .map(|version| {
                let is_offered = offer.is_some_and(|offer| offer.hash == version.hash);
                self.version(name, pool, version, is_offered, now_ms)
            })
            .collect();
        json!({
            "name": name,
            "pool": pool,
            "isOffered": offer.is_some(),
            "withheld": withheld.map(Withheld::json),
            "firstAnnouncedAt": entry.since_ms().map(instant),
            "versions": versions,
        })
    }

    fn version(
        &self,
        name: &str,
        pool: &str,
        version: &Version,
        is_offered: bool,
        now_ms: i64,
    ) -> Value {
        let mut workers: Vec<Value> = self
            .workers
            .values()
            .filter(|worker| worker.pool == pool && worker.has(name, &version.hash))
            .map(|worker| {
                json!({
                    "worker": worker.worker,
                    "lastSeenAt": instant(worker.last_seen_ms),
                    "isLive": worker.is_live(now_ms),
                })
            })
            .collect();
        workers.sort_by_key(|worker| worker["worker"].as_str().unwrap_or_default().to_owned());
        json!({
            "hash": version.hash,
            "announcedAt": instant(version.announced_at_ms),
            "lastAnnouncedAt": instant(version.last_announced_ms()),
            "announcedBy": version.announced_by,
            "isOffered": is_offered,
            "isPinned": self.lock.as_ref().map(|lock| lock.has(name, &version.hash)),
            "workers": workers,
        })
    }
}
