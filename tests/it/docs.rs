//! The documents name everything that the code can answer, and nothing that it cannot.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use toolfleet_proto::code::Code;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The sources of a file or a folder and all below it, without their tests.
fn sources(path: &str) -> String {
    let path = root().join(path);
    if path.is_file() {
        return without_tests(&std::fs::read_to_string(&path).unwrap());
    }
    let mut text = String::new();
    for entry in std::fs::read_dir(&path).unwrap() {
        let entry = entry.unwrap().path();
        let name = entry.file_name().unwrap().to_string_lossy().into_owned();
        let is_source = entry.is_dir() || entry.extension().is_some_and(|kind| kind == "rs");
        if is_source && name != "tests.rs" && name != "tests" {
            text.push_str(&sources(&entry.display().to_string()));
        }
    }
    text
}

/// What stands before the first module of tests.
fn without_tests(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..end].to_owned()
}

/// The string literal that a text begins with, white space aside.
fn leading_literal(text: &str) -> Option<&str> {
    let inner = text.trim_start().strip_prefix('"')?;
    inner.split_once('"').map(|(literal, _)| literal)
}

/// Codes that are given as literals to what makes a problem.
fn problem_codes(source: &str) -> BTreeSet<String> {
    let mut codes = BTreeSet::new();
    let mut take = |literal: Option<&str>| {
        let is_code = |text: &&str| {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
        };
        codes.extend(literal.filter(is_code).map(str::to_owned));
    };
    for made_by in ["bad_request(", "unprocessable(", "forbidden(", "code:"] {
        source.split(made_by).skip(1).for_each(|rest| take(leading_literal(rest)));
    }
    for rest in source.split("Problem::new(").skip(1) {
        // After the status.
        take(rest.split_once(',').and_then(|(_, rest)| leading_literal(rest)));
    }
    codes
}

/// Codes of faults that stand as literals in a source.
fn fault_codes(source: &str) -> BTreeSet<String> {
    let families = ["manifest.", "tool.", "units.", "exec.", "schema."];
    let is_code = |text: &str| {
        families.iter().any(|family| {
            text.strip_prefix(family).is_some_and(|rest| {
                !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')
            })
        })
    };
    source.split('"').filter(|part| is_code(part)).map(str::to_owned).collect()
}

/// The headings of a document that are one name in backticks, each with the text below it.
fn headings(document: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for section in document.split("\n### ").skip(1) {
        let (heading, rest) = section.split_once('\n').unwrap_or((section, ""));
        let name = heading.trim().strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
        let name =
            name.unwrap_or_else(|| panic!("the heading {heading:?} is no name in backticks"));
        let text = rest.split("\n## ").next().unwrap_or_default().trim().to_owned();
        assert!(found.insert(name.to_owned(), text).is_none(), "{name} stands there twice");
    }
    found
}

#[track_caller]
fn check_same(what: &str, in_code: &BTreeSet<String>, document: &BTreeMap<String, String>) {
    let told: BTreeSet<String> = document.keys().cloned().collect();
    let missing: Vec<&String> = in_code.difference(&told).collect();
    let gone: Vec<&String> = told.difference(in_code).collect();
    assert!(missing.is_empty(), "{what} does not explain {missing:?}");
    assert!(gone.is_empty(), "{what} explains what there is not any more: {gone:?}");
    for (name, text) in document {
        assert!(text.len() > 20, "{what} says nothing of {name}");
    }
}

#[test]
fn every_code_has_its_paragraph_and_no_other() {
    let mut codes: BTreeSet<String> =
        Code::ALL.iter().map(|code| code.as_str().to_owned()).collect();
    for path in ["coordinator/src/api", "coordinator/src/core"] {
        codes.extend(problem_codes(&sources(path)));
    }
    for path in [
        "proto/src/manifest",
        "proto/src/checks.rs",
        "proto/src/checks",
        "proto/src/unit.rs",
        "proto/src/schema",
        "proto/io/src/tools_folder.rs",
        "proto/io/src/tools_folder",
        "worker/src",
    ] {
        codes.extend(fault_codes(&sources(path)));
    }
    check_same("docs/errors.md", &codes, &headings(&read("docs/errors.md")));
}

/// Method and path of every route of a source.
fn routes(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for rest in source.split(".route(").skip(1) {
        let path = leading_literal(rest).expect("a route's path is a literal");
        let line = rest.split('\n').next().unwrap_or_default();
        let methods = ["get", "post", "put", "patch", "delete"];
        let taken = methods.iter().filter(|method| line.contains(&format!("{method}(")));
        found.extend(taken.map(|method| format!("{} {path}", method.to_uppercase())));
    }
    found
}

#[test]
fn every_route_is_described_and_no_other() {
    let routes = routes(&sources("coordinator/src/api"));
    assert!(routes.len() > 10, "{routes:?}");
    check_same("docs/http.md", &routes, &headings(&read("docs/http.md")));
}

#[test]
fn links_between_the_documents_lead_somewhere() {
    let mut seen = 0;
    for entry in std::fs::read_dir(root().join("docs")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for rest in text.split("](").skip(1) {
            let target = rest.split([')', '#']).next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let file = path.parent().unwrap().join(target);
            assert!(file.exists(), "{}: nothing at {target}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 3, "{seen}");
}

/// Names of metrics that stand in a text, as the code writes them.
fn metrics(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let words = text.split(|c: char| !is_part(c)).filter(|word| word.starts_with("toolfleet_"));
    let plain = words.map(|word| {
        let ends = ["_total", "_seconds_bucket"];
        ends.iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word)
    });
    plain.map(str::to_owned).collect()
}

/// Names of metrics that are whole literals of a source.
fn metric_literals(source: &str) -> BTreeSet<String> {
    let is_name = |part: &&str| {
        part.strip_prefix("toolfleet_")
            .is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
    };
    source.split('"').filter(is_name).flat_map(metrics).collect()
}

#[test]
fn every_metric_is_named_and_no_other() {
    let told = metrics(&read("docs/operations.md"));
    let mut in_code = BTreeSet::new();
    for path in ["coordinator/src/measure.rs", "worker/src/measure.rs", "proto/io/src"] {
        in_code.extend(metric_literals(&sources(path)));
    }
    assert!(in_code.len() > 15, "{in_code:?}");
    assert_eq!(told, in_code);
}

#[test]
fn every_setting_is_named() {
    let text = read("docs/operations.md");
    let config = serde_json::to_value(toolfleet_io::config::Config::default()).unwrap();
    for (section, keys) in config.as_object().unwrap() {
        for key in keys.as_object().unwrap().keys() {
            let name = if section == "limits" {
                format!("| `{key}` |")
            } else {
                format!("`{section}.{key}`")
            };
            assert!(text.contains(&name), "docs/operations.md does not name {section}.{key}");
        }
    }
}

#[test]
fn codes_are_found_where_they_are_given() {
    let source = "Problem::new(\n StatusCode::X,\n \"one\", \"A title\") Problem::unprocessable(\"two\", d)
        Problem::bad_request(code.as_str(), \"no\") Refused { code: \"three\" } forbidden(\"four\", d)
        Problem::new(StatusCode::X, code, \"The title\")";
    let codes = problem_codes(source);
    assert_eq!(
        codes.iter().map(String::as_str).collect::<Vec<_>>(),
        ["four", "one", "three", "two"]
    );
    let faults = fault_codes("at(\"tool.name-invalid\", format!(\"x = \\\"schema.json\\\"\"))");
    assert_eq!(faults.iter().map(String::as_str).collect::<Vec<_>>(), ["tool.name-invalid"]);
    let routes = routes(".route(\"/v1/a/{id}\", post(a::b).get(a::c))");
    assert_eq!(
        routes.iter().map(String::as_str).collect::<Vec<_>>(),
        ["GET /v1/a/{id}", "POST /v1/a/{id}"]
    );
}
