use super::*;
use serde_json::json;

#[test]
fn flags_win_over_the_file_and_unknown_keys_are_faults() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("fleet.toml");
    std::fs::write(&file, "[worker]\npool = \"gpu\"\nslots = 3\n").unwrap();
    let checked = load(Some(&file), &json!({"worker": {"slots": 5}})).unwrap();
    assert_eq!((checked.config.worker.pool.as_str(), checked.config.worker.slots), ("gpu", 5));

    std::fs::write(&file, "[worker]\nslot = 3\n").unwrap();
    let error = load(Some(&file), &json!({})).unwrap_err();
    assert!(error.to_string().contains("slot"), "{error}");
}

#[test]
fn all_faults_are_told_at_once() {
    let mut config = Config::default();
    config.fleet.prefix = "a b".into();
    config.limits.lease_ttl = "4s".into();
    config.limits.drain = "30".into();
    config.telemetry.traces_url = "localhost:4319".into();
    config.worker.writable = vec!["/srv/cache".into(), "cache".into()];
    let error = check(config).unwrap_err();
    assert!(error.faults.len() >= 2, "{error}");
    assert!(error.to_string().contains("fleet.prefix"), "{error}");
    assert!(error.to_string().contains("limits.drain"), "{error}");
    assert!(error.to_string().contains("worker.writable: cache is not"), "{error}");
    assert!(!error.to_string().contains("/srv/cache"), "{error}");
    assert!(error.to_string().contains("telemetry.traces_url"), "{error}");
}

#[test]
fn tools_get_the_defaults_of_their_pool_and_fleet_and_every_pool_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("fleet.toml");
    let text = "[fleet]\nnaming = \"kebab-tool\"\n[defaults]\ntimeout = \"10s\"\nmax_attempts = 2\n\
        [pools.gpu.defaults]\ntimeout = \"5m\"\nmax_result_size = \"64KB\"\n";
    std::fs::write(&file, text).unwrap();
    let rules = load(Some(&file), &json!({"worker": {"pool": "gpu"}})).unwrap().rules;
    assert_eq!(rules.naming, Some(Naming::KebabTool));
    assert_eq!((rules.pool.timeout_ms, rules.fleet.timeout_ms), (Some(300_000), Some(10_000)));
    assert_eq!((rules.pool.result_bytes_max, rules.fleet.max_attempts), (Some(65_536), Some(2)));
    let rules = load(Some(&file), &json!({})).unwrap().rules;
    assert_eq!(rules.pool, toolfleet_proto::layers::Defaults::default());

    let text = "[defaults]\ntimeout = 10\nmax_attempts = 0\n[pools.\"a b\".defaults]\n\
        max_result_size = \"1MB\"\nqueue_timeout = \"soon\"\n";
    std::fs::write(&file, text).unwrap();
    let error = load(Some(&file), &json!({})).unwrap_err();
    for key in [
        "defaults.timeout: `10` has no unit",
        "defaults.max_attempts",
        "pools.a b: ",
        "pools.a b.defaults.max_result_size",
        "pools.a b.defaults.queue_timeout",
    ] {
        assert!(error.faults.iter().any(|fault| fault.starts_with(key)), "{key}: {error}");
    }
    std::fs::write(&file, "[fleet]\nnaming = \"snake\"\n[defaults]\nrerun = true\n").unwrap();
    let error = load(Some(&file), &json!({})).unwrap_err();
    assert!(error.to_string().contains("snake") || error.to_string().contains("rerun"), "{error}");
}

#[test]
fn an_address_may_leave_out_the_host_and_may_name_it() {
    for (text, port) in [(":81", 81), ("127.0.0.1:0", 0), ("localhost:82", 82), ("[::1]:83", 83)] {
        let address = address("worker.admin_listen", text).unwrap();
        assert_eq!((address.port(), address.ip().is_loopback()), (port, true), "{text}");
    }
    for text in ["", "81", "127.0.0.1", "127.0.0.1:x"] {
        let fault = address("worker.admin_listen", text).unwrap_err();
        assert!(fault.starts_with("worker.admin_listen: "), "{fault}");
    }
}

#[test]
fn the_defaults_are_sound() {
    let checked = check(Config::default()).unwrap();
    assert_eq!(checked.limits, Limits::default());
}
