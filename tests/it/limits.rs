//! The limits of programs, from the manifest to the model's text.

use crate::asked::{failed, fleet, ok};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_over_its_limits_fails_by_name_and_the_next_call_works() {
    let spin = "while :; do :; done";
    let fleet = fleet()
        .exec_tool("spin", "effect = \"read\"\n[limits]\ncpu_time = \"1s\"", spin)
        .exec_tool(
            "fill",
            "effect = \"read\"\n[limits]\nfile_size = \"64KB\"",
            "printf '{\"status\": \"ok\"}'; exec head -c 1000000 /dev/zero > big",
        )
        .exec_tool(
            "eat",
            "effect = \"read\"\n[limits]\nmemory = \"64MB\"",
            "head -c 300000000 /dev/zero | tail -c 200000000",
        )
        .exec_tool(
            "show",
            "effect = \"read\"\nlimits = { open_files = 40, memory = \"512MB\" }",
            "ulimit -n; ulimit -v; ulimit -n 41 2>/dev/null || printf 'cannot be raised'",
        )
        .start()
        .await
        .unwrap();
    let http = fleet.http(0).unwrap();
    let answer = http.call("spin", json!({})).await.unwrap();
    assert_eq!(
        failed(&answer, "tool_error")["text"],
        "Tool error: killed by signal 24 (SIGXCPU), over its limit of 1 s on processors"
    );
    let answer = http.call("fill", json!({})).await.unwrap();
    assert_eq!(
        failed(&answer, "tool_error")["text"],
        "Tool error: killed by signal 25 (SIGXFSZ), over its limit of 65,536 bytes for a file"
    );
    let answer = http.call("eat", json!({})).await.unwrap();
    let text = failed(&answer, "tool_error")["text"].as_str().unwrap();
    assert_eq!(text, "Tool error: exited with code 1: tail: memory exhausted");
    let answer = http.call("show", json!({})).await.unwrap();
    let text = ok(&answer)["text"].as_str().unwrap();
    assert!(text.starts_with("40\n524288\n"), "{text}");
    // Only who may do everything can raise what is hard; the guard's own tests run as nobody.
    let is_root = rustix::process::getuid().is_root();
    assert!(is_root || text.ends_with("cannot be raised"), "{text}");
}
