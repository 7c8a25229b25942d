//! What a program can reach (CONTRACT 5.11): its own folder, its scratch folder, the system; not the
//! worker, its secrets, the other attempts.

use crate::asked::{fleet, ok};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use toolfleet_proto::isolation::Level;
use toolfleet_tests::Builder;

/// Tries one thing after another, and prints what it could do.
const PRYING: &str = r#"
can() { if (eval "$2") >/dev/null 2>&1; then echo "$1 yes"; else echo "$1 no"; fi; }
own=$(dirname "$0")
worker=$(sed -n 's/^PPid:[[:space:]]*//p' /proc/$PPID/status)
can read-own 'cat "$own/prying.toml"'
can change-own 'echo > "$own/planted"'
can use-scratch 'mkdir -p a && echo > a/b && mv a/b c && rm c'
can read-context 'cat "$TOOLFLEET_CONTEXT"'
can change-context 'echo > "$TOOLFLEET_CONTEXT"'
can use-system 'ls /usr/bin && cat /etc/passwd && echo > /dev/null && cat /proc/self/stat'
can change-system 'touch /usr/toolfleet-planted && rm /usr/toolfleet-planted'
can read-granted 'cat OUTSIDE/readable/file'
can change-granted 'echo > OUTSIDE/readable/file'
can change-writable 'echo > OUTSIDE/writable/file'
can read-secret 'cat OUTSIDE/secrets/KEY'
can empty-secret 'truncate -s 0 OUTSIDE/secrets/SPARE'
can see-others 'ls OUTSIDE/scratch'
can inspect-worker 'readlink /proc/$worker/exe'
can signal-own 'sleep 9 & kill $!'
can signal-worker 'kill -0 $worker'
can signal-guard 'kill -0 $PPID'
"#;

/// A folder that the fleet does not own, with secrets, scratch and shares.
fn outside() -> tempfile::TempDir {
    let outside = tempfile::tempdir().unwrap();
    for file in ["readable/file", "writable/file", "secrets/KEY", "secrets/SPARE", "scratch/x"] {
        let path = outside.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "text").unwrap();
    }
    outside
}

fn prying(outside: &Path, isolation: &str, keys: &str) -> Builder {
    let below = |name: &str| outside.join(name).display().to_string();
    let script = PRYING.replace("OUTSIDE", &outside.display().to_string());
    fleet()
        .exec_tool("prying", &format!("effect = \"read\"\n{keys}"), &script)
        .env("TOOLFLEET_WORKER__ISOLATION", isolation)
        .env("TOOLFLEET_WORKER__READABLE", format!("[{:?}]", below("readable")))
        .env("TOOLFLEET_WORKER__WRITABLE", format!("[{:?}]", below("writable")))
        .env("TOOLFLEET_WORKER__SECRETS_DIR", below("secrets"))
        .env("TOOLFLEET_WORKER__SCRATCH_DIR", below("scratch"))
}

/// What the tool could do and could not.
async fn tried(builder: Builder) -> BTreeMap<String, bool> {
    let fleet = builder.start().await.unwrap();
    let answer = fleet.http(0).unwrap().call_as("prying", "x", "pry", json!({})).await.unwrap();
    let text = ok(&answer)["text"].as_str().unwrap().to_owned();
    let tried = text.lines().map(|line| line.split_once(' ').unwrap());
    tried.map(|(what, could)| (what.to_owned(), could == "yes")).collect()
}

/// What nothing but isolation keeps a tool of the same user from.
const ISOLATED: [&str; 6] =
    ["change-own", "change-context", "change-granted", "read-secret", "see-others", "empty-secret"];
const SIGNALS: [&str; 2] = ["signal-worker", "signal-guard"];
const ALWAYS: [&str; 7] = [
    "read-own",
    "use-scratch",
    "read-context",
    "use-system",
    "read-granted",
    "change-writable",
    "signal-own",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_reaches_what_it_was_given_and_no_more() {
    let level = toolfleet_io::isolation::level();
    let isolation = if level >= Level::Files { "required" } else { "available" };
    for keys in ["", "[limits]\nopen_files = 64"] {
        let outside = outside();
        let could = tried(prying(outside.path(), isolation, keys)).await;
        for what in ALWAYS {
            assert!(could[what], "{what} with {keys:?}: {could:?}");
        }
        for what in ISOLATED {
            let is_free = match what {
                "empty-secret" => level < Level::Files,
                _ => level == Level::None,
            };
            assert_eq!(could[what], is_free, "{what} with {keys:?} at {level:?}: {could:?}");
        }
        for what in SIGNALS {
            assert_eq!(could[what], level < Level::FilesAndSignals, "{what}: {could:?}");
        }
        if level > Level::None {
            assert!(!could["change-system"] && !could["inspect-worker"], "{could:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_isolation_a_program_may_what_the_worker_may() {
    let outside = outside();
    let could = tried(prying(outside.path(), "off", "")).await;
    for what in ALWAYS.iter().chain(&ISOLATED).chain(&SIGNALS) {
        assert!(could[*what], "{what}: {could:?}");
    }
}
