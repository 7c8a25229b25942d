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
            "exec python3 -c 'x = bytearray(200_000_000); print(\"ate\")'",
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
    assert!(text.contains("MemoryError"), "{text}");
    let answer = http.call("show", json!({})).await.unwrap();
    let text = ok(&answer)["text"].as_str().unwrap();
    // Root may raise what is hard; anybody else may not.
    assert!(text.starts_with("40\n524288\n"), "{text}");
    let may_raise = rustix::process::getuid().is_root();
    assert_eq!(text.ends_with("cannot be raised"), !may_raise, "{text}");
}
