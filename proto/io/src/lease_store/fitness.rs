//! Whether leases may live in a server.

fn info_value<'a>(info: &'a str, key: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map(str::trim)
}

/// Whether leases may live in a server that says this of itself; else why not.
pub(super) fn check_info(info: &str) -> Result<(), String> {
    let version = info_value(info, "redis_version").unwrap_or("unknown");
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok()).unwrap_or(0);
    if major < 7 {
        return Err(format!("version {version} is too old; install Redis 7 or newer, or Valkey"));
    }
    if info_value(info, "cluster_enabled") == Some("1") {
        return Err("it is a Redis Cluster, and the lease scripts work on many calls at once; use one primary, by address or Sentinel".into());
    }
    if info_value(info, "role").is_some_and(|role| role != "master") {
        return Err("it is a replica and takes no writes; set redis.url to the primary".into());
    }
    match info_value(info, "maxmemory_policy") {
        Some("noeviction") | None => {}
        Some(policy) => {
            return Err(format!(
                "maxmemory-policy is {policy}, so leases may be thrown away; set maxmemory-policy noeviction"
            ));
        }
    }
    if info_value(info, "aof_enabled") == Some("0") {
        tracing::warn!("redis keeps no append-only file: a restart forgets leases and marks");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIT: &str = "redis_version:7.0.15\r\nrole:master\r\ncluster_enabled:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n";

    #[test]
    fn only_one_primary_without_eviction_may_hold_leases() {
        assert_eq!(check_info(FIT), Ok(()));
        for (from, to, named) in [
            ("7.0.15", "6.2.5", "too old"),
            ("cluster_enabled:0", "cluster_enabled:1", "Cluster"),
            ("role:master", "role:slave", "replica"),
            ("noeviction", "allkeys-lru", "noeviction"),
        ] {
            let reason = check_info(&FIT.replace(from, to)).unwrap_err();
            assert!(reason.contains(named), "{reason}");
        }
    }
}
