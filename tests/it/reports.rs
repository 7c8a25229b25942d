//! What a tool says while it runs: kept with its call, however that ends. And what it knows of its call.

use crate::asked::{SOON, failed, fleet, ok};
use crate::conversation::noting;
use serde_json::{Value, json};
use toolfleet_tests::{Answer, Fleet, until};

const SAYS: &str = r#"
say() { printf '%s\n' "$1" >&3; }
say '{"type":"progress","fraction":0.5,"text":"half"}'
say '{"type":"ui","name":"table","id":"t","version":1,"props":{"rows":1}}'
say '{"type":"ui","name":"table","id":"t","version":2,"props":{"rows":12345678901234567890.10}}'
say '{"type":"output","text":"part"}'
printf abc >letters.txt
say '{"type":"artifact","path":"letters.txt","mediaType":"text/plain"}'
say '{"type":"metric","name":"rows","value":3}'
say '{"type":"spend","service":"s","amount":"0.5","currency":"EUR"}'
say '{"type":"log","level":"warn","message":"slow"}'
say 'no json'
"#;

async fn read(fleet: &Fleet, id: &str) -> Answer {
    let http = fleet.http(0).unwrap();
    let answer = http.read_call("said", &format!("main:direct:{id}"), 10).await.unwrap();
    assert_eq!(answer.body["state"], "done", "{}", answer.text);
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_on_descriptor_3_is_read_with_the_call() {
    let fleet = fleet()
        .exec_tool("well", "effect = \"read\"", &format!("{SAYS}\nprintf fine"))
        .exec_tool("ill", "effect = \"read\"", &format!("{SAYS}\nexit 3"))
        .exec_tool("late", "effect = \"read\"\ntimeout = \"3s\"", &format!("{SAYS}\nexec sleep 60"))
        .exec_tool("silent", "effect = \"read\"", "printf fine")
        .start()
        .await
        .unwrap();
    let http = fleet.http(0).unwrap();
    for (tool, code) in [("well", None), ("ill", Some("tool_error")), ("late", Some("timed_out"))] {
        let answer = http.call_as(tool, "said", tool, json!({})).await.unwrap();
        match code {
            Some(code) => failed(&answer, code),
            None => ok(&answer),
        };
        assert_eq!(answer.body.get("reports"), None, "the model's answer stays small");
        let answer = read(&fleet, tool).await;
        let reports = &answer.body["reports"];
        assert_eq!(reports["progress"], json!({"fraction": 0.5, "text": "half"}), "{tool}");
        assert_eq!(reports["output"], json!({"text": "part", "wholeBytes": 4}));
        assert!(
            answer.text.contains(r#""props":{"rows":12345678901234567890.10}"#),
            "{}",
            answer.text
        );
        assert_eq!(reports["components"].as_array().unwrap().len(), 1);
        assert_eq!(reports["metrics"], json!([{"name": "rows", "value": 3.0}]));
        let artifact = &reports["artifacts"][0];
        assert_eq!((&artifact["name"], &artifact["bytes"]), (&json!("letters.txt"), &json!(3)));
        assert_eq!(artifact["isKept"], false);
        assert!(artifact["sha256"].as_str().unwrap().starts_with("ba7816bf"), "{artifact}");
        assert_eq!(reports["dropped"], 0);
    }
    ok(&http.call_as("silent", "said", "silent", json!({})).await.unwrap());
    assert_eq!(read(&fleet, "silent").await.body.get("reports"), None);
    let spend = http.get("/v1/spend?execution=said").await.unwrap();
    assert_eq!(spend.body["items"].as_array().unwrap().len(), 3, "{}", spend.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_finds_its_call_in_a_file_and_a_killed_worker_leaves_no_folder() {
    let scratch = tempfile::tempdir().unwrap();
    let fleet = fleet()
        .exec_tool("known", "effect = \"read\"", "cat \"$TOOLFLEET_CONTEXT\"")
        .exec_tool("stuck", "effect = \"write\"", &noting("stuck", ": > left; sleep 60"))
        .env("TOOLFLEET_WORKER__SCRATCH_DIR", scratch.path().to_string_lossy())
        .start();
    let mut fleet = fleet.await.unwrap();
    let http = fleet.http(0).unwrap();
    let answer = http.call_as("known", "said", "k", json!({})).await.unwrap();
    let context: Value = serde_json::from_str(ok(&answer)["text"].as_str().unwrap()).unwrap();
    for (key, value) in [
        ("toolName", json!("known")),
        ("executionId", json!("said")),
        ("callId", json!("k")),
        ("node", json!("main")),
        ("turn", json!("direct")),
        ("idempotencyKey", json!("said:main:direct:k")),
        ("attempt", json!(1)),
        ("phase", json!("execute")),
        ("dryRun", json!(false)),
        ("actor", json!("local")),
    ] {
        assert_eq!(context[key], value, "{key}: {context}");
    }
    assert!(context["roles"].is_array() && context["traceparent"].is_string(), "{context}");

    let folders = || std::fs::read_dir(scratch.path()).unwrap().count();
    assert_eq!(folders(), 0);
    let call = tokio::spawn(async move { http.call_as("stuck", "said", "s", json!({})).await });
    fleet.ledger("stuck").started(1, SOON).await.unwrap();
    assert_eq!(folders(), 1);
    fleet.workers[0].restart().await.unwrap();
    until("the folder is gone", SOON, async || (folders() == 0).then_some(())).await.unwrap();
    failed(&call.await.unwrap().unwrap(), "outcome_unknown");
}
