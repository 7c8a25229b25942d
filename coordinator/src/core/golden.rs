//! Golden files: what the outside reads, compared byte for byte. `TOOLFLEET_GOLDEN=write` rewrites
//! them.

use serde_json::Value;
use std::path::PathBuf;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/formats").join(name)
}

pub(crate) fn read(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

pub(crate) fn check(name: &str, value: &Value) {
    let text = format!("{}\n", serde_json::to_string_pretty(value).unwrap());
    if std::env::var("TOOLFLEET_GOLDEN").is_ok_and(|mode| mode == "write") {
        std::fs::write(path(name), &text).unwrap();
    }
    assert_eq!(read(name), text, "{name}: run with TOOLFLEET_GOLDEN=write if that is meant");
}
