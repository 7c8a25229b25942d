//! `toolfleet check`: every fault of every tool at once, offline, and the same that a worker refuses
//! to start for.

use crate::asked::ok;
use crate::cli::{check, toolfleet};
use serde_json::Value;
use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Output;
use tokio::process::Command;
use toolfleet_tests::{Fleet, TOOLFLEET, WORKER, binary, clean_environment};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// A copy of a folder, links and rights kept.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_symlink() {
            symlink(std::fs::read_link(&source).unwrap(), target).unwrap();
        } else if kind.is_dir() {
            copy(&source, &target);
        } else {
            std::fs::copy(&source, target).unwrap();
        }
    }
}

/// The faulty tools in a folder `tools`, with what no checkout should have to carry.
fn faulty() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let tools = dir.path().join("tools");
    copy(&fixtures().join("faulty-tools"), &tools);
    std::fs::write(tools.join("large.toml"), vec![b'#'; 256 * 1024 + 1]).unwrap();
    dir
}

/// Runs a program in a folder, without a network that anything listens on.
async fn run_in(dir: &Path, name: &str, args: &[&str]) -> Output {
    let mut command = Command::new(binary(name).unwrap());
    clean_environment(&mut command);
    command
        .args(args)
        .env("TOOLFLEET_NATS__URL", "nats://127.0.0.1:1")
        .env("TOOLFLEET_REDIS__URL", "redis://127.0.0.1:1")
        .current_dir(dir)
        .kill_on_drop(true);
    let output = tokio::time::timeout(crate::asked::SOON, command.output());
    output.await.expect("it ends in time").unwrap()
}

/// What is expected, with the places of programs filled in.
fn expected(dir: &Path) -> Value {
    let text = std::fs::read_to_string(fixtures().join("faulty-tools.json")).unwrap();
    let tools = dir.canonicalize().unwrap().join("tools");
    serde_json::from_str(&text.replace("{tools}", &tools.display().to_string())).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_of_faults_gives_exactly_those() {
    let dir = faulty();
    let (out, err) = check(&run_in(dir.path(), TOOLFLEET, &["check", "tools", "--json"]).await, 78);
    assert!(err.is_empty(), "{err}");
    let found: Value = serde_json::from_str(&out).unwrap();
    if std::env::var("TOOLFLEET_GOLDEN").is_ok_and(|mode| mode == "write") {
        let tools = dir.path().canonicalize().unwrap().join("tools");
        let text = serde_json::to_string_pretty(&found).unwrap();
        let text = text.replace(&tools.display().to_string(), "{tools}");
        std::fs::write(fixtures().join("faulty-tools.json"), text + "\n").unwrap();
    }
    let expected = expected(dir.path());
    let of = |value: &Value| value["faults"].as_array().unwrap().clone();
    for (found, expected) in of(&found).iter().zip(&of(&expected)) {
        assert_eq!(found, expected);
    }
    assert_eq!(found, expected);
    let different: BTreeSet<String> =
        of(&found).iter().map(|fault| format!("{} {}", fault["code"], fault["message"])).collect();
    assert!(different.len() >= 40, "{}", different.len());
    assert_eq!(found["tools"], 2, "the sound ones");
    for fault in of(&found) {
        let file = fault["file"].as_str().unwrap();
        assert!(!file.contains("sound"), "{file} has no fault");
        assert!(!fault["mend"].as_str().unwrap().is_empty(), "{fault}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_read_a_block_for_each_fault_and_no_name_of_a_faultless_file() {
    let dir = faulty();
    let (out, _) = check(&run_in(dir.path(), TOOLFLEET, &["check", "tools"]).await, 78);
    let faults = expected(dir.path())["faults"].as_array().unwrap().len();
    assert_eq!(out.matches("\n    mend: ").count(), faults);
    assert!(
        out.contains("tools/words.toml:3: units.missing\n    `timeout` is the bare number 10\n")
    );
    assert!(!out.contains("sound") && !out.contains("README"), "{out}");
    let last = out.trim_end().lines().last().unwrap();
    assert!(last.starts_with(&format!("{faults} faults in ")), "{last}");
    assert!(last.ends_with(" files; 2 tools are fine"), "{last}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_refuses_to_start_for_the_same_faults() {
    let dir = faulty();
    let (out, err) = check(&run_in(dir.path(), WORKER, &["--tools", "tools"]).await, 78);
    assert!(out.is_empty(), "{out}");
    let expected = expected(dir.path());
    let lines: Vec<String> = expected["faults"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| {
            let text = |key: &str| fault[key].as_str().unwrap();
            let line = fault["line"].as_u64().map_or_else(String::new, |line| format!(":{line}"));
            let (file, code) = (text("file"), text("code"));
            format!("{file}{line}: {code}: {} ({})", text("message"), text("mend"))
        })
        .collect();
    for (said, line) in err.lines().zip(&lines) {
        assert_eq!(said, line);
    }
    assert_eq!(err.lines().count(), lines.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sound_tools_are_counted_and_a_warning_is_no_fault() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tools");
    let dir = tempfile::tempdir().unwrap();
    copy(&examples, &dir.path().join("tools"));
    let count = std::fs::read_dir(&examples)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|e| e == "toml"))
        .count();
    let (out, err) = check(&run_in(dir.path(), TOOLFLEET, &["check", "tools"]).await, 0);
    assert_eq!((out.trim_end(), err.as_str()), (format!("{count} tools are fine").as_str(), ""));

    let slow = "description = \"D\"\ntimeout = \"10m\"\n[run]\nexec = [\"/bin/sh\"]\n";
    std::fs::write(dir.path().join("tools/slow.toml"), slow).unwrap();
    let (out, _) = check(&run_in(dir.path(), TOOLFLEET, &["check", "tools", "--json"]).await, 0);
    let found: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(found["faults"], serde_json::json!([]));
    assert_eq!(found["warnings"][0]["code"], "tool.outlasts-drain");
    assert_eq!(found["warnings"][0]["file"], "tools/slow.toml");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_house_rule_and_the_defaults_of_a_pool_come_from_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let tools = dir.path().join("tools");
    std::fs::create_dir(&tools).unwrap();
    let text = "description = \"D\"\ntotal_timeout = \"20s\"\n[run]\nexec = [\"/bin/sh\"]\n";
    std::fs::write(tools.join("searchIssues.toml"), text).unwrap();
    let config = "[fleet]\nnaming = \"kebab-tool\"\n[defaults]\ntimeout = \"20s\"\n\
                  [pools.slow.defaults]\ntimeout = \"1m\"\n[worker]\ntools = \"tools\"\n";
    std::fs::write(dir.path().join("toolfleet.toml"), config).unwrap();
    let faults = async |args: &[&str]| {
        let all = [&["check", "--json"], args].concat();
        let (out, _) = check(&run_in(dir.path(), TOOLFLEET, &all).await, 78);
        serde_json::from_str::<Value>(&out).unwrap()["faults"].clone()
    };
    let found = faults(&[]).await;
    assert_eq!(found[0]["code"], "tool.name-kind-suffix");
    assert_eq!(found[0]["mend"], "name it `search-issues-tool`");
    assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
    let found = faults(&["--pool", "slow"]).await;
    assert_eq!(found[1]["code"], "tool.total-timeout-invalid", "{found}");
    assert!(found[1]["message"].as_str().unwrap().contains("60 s"), "{found}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_of_a_package_runs_under_the_defaults_of_its_pool() {
    let fleet = Fleet::builder()
        .exec_tool("crm/find", "effect = \"read\"\nmax_attempts = 1", "cat \"$0\" | tail -n 1")
        .env("TOOLFLEET_POOLS__DEFAULT__DEFAULTS__TIMEOUT", "7s")
        .env("TOOLFLEET_DEFAULTS__TIMEOUT", "9s")
        .env("TOOLFLEET_DEFAULTS__MAX_ATTEMPTS", "2")
        .env("TOOLFLEET_DEFAULTS__MAX_RESULT_SIZE", "1KB")
        .start()
        .await
        .unwrap();
    let http = fleet.http(0).unwrap();
    let answer = http.call_as("crm_find", "exec-1", "c1", serde_json::json!({})).await.unwrap();
    assert_eq!(ok(&answer)["text"], "cat \"$0\" | tail -n 1\n");
    let tools = http.get("/v1/tools").await.unwrap();
    let tool = tools.body["tools"].as_array().unwrap().iter().find(|t| t["name"] == "crm_find");
    let tool = tool.unwrap();
    assert_eq!(tool["timeoutMs"], 7_000, "{tool}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_schema_for_editors_is_printed_and_a_folder_must_be_named() {
    let (out, _) = check(&toolfleet(&["check", "--schema"], &[]).await, 0);
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/manifest.schema.json");
    assert_eq!(out, std::fs::read_to_string(kept).unwrap());
    check(&toolfleet(&["check"], &[]).await, 2);
    let (out, _) = check(&toolfleet(&["check", "nowhere"], &[]).await, 78);
    assert!(out.starts_with("nowhere: manifest.folder\n"), "{out}");
}
