//! Schemas as tools in the wild have them: whether each is taken, which arguments fit, and the exact
//! places of what does not.
#![expect(
    clippy::unwrap_used,
    reason = "this is how a test fails, also in the functions that tests share"
)]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use toolfleet_proto::descriptor::is_tool_name;
use toolfleet_proto::json::Json;
use toolfleet_proto::schema::Schema;

/// Longer than any verdict may take on a machine that is busy with other tests.
const SOON: Duration = Duration::from_secs(2);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// What a file asks of the schemas of one tool; empty: all of it holds.
fn misses(file: &Value) -> Vec<String> {
    let mut misses = Vec::new();
    let compiled = Schema::compile(&file["tool"]["inputSchema"]);
    if let Some(output) = file["tool"].get("outputSchema") {
        Schema::compile(output).unwrap();
    }
    let is_taken = file["schema_ok"].as_bool().unwrap();
    let schema = match compiled {
        Ok(schema) if is_taken => schema,
        Err(error) if !is_taken => {
            assert!(error.code.starts_with("schema.") && !error.message.is_empty(), "{error}");
            return misses;
        }
        Ok(_) => return vec!["is taken".into()],
        Err(error) => return vec![format!("is refused: {error}")],
    };
    for case in file["cases"].as_array().unwrap() {
        let arguments = &case["args"];
        let found: Vec<String> =
            schema.issues(arguments).into_iter().map(|issue| issue.path).collect();
        let wanted: Vec<String> =
            serde_json::from_value(case.get("paths").cloned().unwrap_or_default())
                .unwrap_or_default();
        if case["valid"].as_bool().unwrap() != schema.is_valid(arguments)
            || sorted(&found) != sorted(&wanted)
        {
            misses.push(format!("{arguments}: at {found:?}, not at {wanted:?}"));
        }
        let admitted = schema.admit(&Json::from_value(arguments));
        // An optional null counts as absent, which is the one thing that admission forgives.
        let is_admitted = wanted.iter().all(|path| arguments.get(path) == Some(&Value::Null));
        if admitted.is_ok() != is_admitted {
            misses.push(format!("{arguments}: admitted as {admitted:?}"));
        }
    }
    misses
}

fn sorted(paths: &[String]) -> Vec<&String> {
    let mut sorted: Vec<_> = paths.iter().collect();
    sorted.sort();
    sorted
}

#[test]
fn every_schema_behaves_as_its_file_says() {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder().join("schemas"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert_eq!(files.len(), 46);
    let mut failed = Vec::new();
    let mut cases = 0;
    for path in &files {
        let file = read(path);
        cases += file["cases"].as_array().unwrap().len();
        let started = Instant::now();
        let misses = misses(&file);
        assert!(started.elapsed() < SOON, "{} took {:?}", file["id"], started.elapsed());
        failed.extend(misses.iter().map(|miss| format!("{}: {miss}", file["id"])));
    }
    assert_eq!(cases, 98);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn a_name_is_taken_where_every_provider_takes_it() {
    let names = read(&folder().join("names.json"));
    for entry in names.as_array().unwrap() {
        let (name, why) = (entry["name"].as_str().unwrap(), &entry["why"]);
        assert_eq!(is_tool_name(name), entry["common"].as_bool().unwrap(), "{name:?}: {why}");
    }
}

#[test]
fn the_properties_a_model_sees_keep_the_authors_order() {
    let file = read(&folder().join("schemas/42-odd-keys.json"));
    let keys: Vec<&String> =
        file["tool"]["inputSchema"]["properties"].as_object().unwrap().keys().collect();
    assert_eq!(keys[0], "$ref");
    assert_eq!(keys.last().unwrap().as_str(), "with space");
}
