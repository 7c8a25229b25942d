//! Executions that see the world as of an instant.

use crate::asked::{fleet, message, ok, problem};
use crate::conversation::{codes, contents, create, noting, read};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounds_in_time_are_absolute_and_not_later() {
    let keys = "effect = \"read\"\ntime_args = [\"since\", \"until\"]\n[input]\ntype = \"object\"\n\
                properties.since = { type = \"string\", default = \"2024-01-01T00:00:00Z\" }\n\
                properties.until.type = \"string\"";
    let fleet = fleet()
        .exec_tool("history", keys, &noting("history", "printf \"${TOOLFLEET_AS_OF:-now}\""))
        .exec_tool("today", "effect = \"read\"", "printf \"${TOOLFLEET_AS_OF:-now}\"")
        .start()
        .await
        .unwrap();
    let http = fleet.http(0).unwrap();
    for as_of in ["yesterday", "2025-01-01", "2025-01-01T00:00:00", "1970-01-01T00:00:00Z"] {
        let answer = http.post("/v1/executions", &json!({"asOf": as_of})).await.unwrap();
        problem(&answer, 422, "as_of_invalid");
    }
    let wishes = json!({"id": "then", "asOf": "2025-01-01T02:00:00+02:00"});
    create(&http, wishes.clone()).await;
    assert_eq!(http.post("/v1/executions", &wishes).await.unwrap().status, 200);
    assert_eq!(read(&http, "then").await["asOf"], "2025-01-01T00:00:00Z");

    let asked = message(&[
        ("a", "history", "{}"),
        ("b", "history", "{\"until\":\"yesterday\"}"),
        ("c", "history", "{\"until\":\"2025-01-01T00:00:00\"}"),
        ("d", "history", "{\"until\":\"2025-01-01T00:00:01Z\"}"),
        ("e", "history", "{\"until\":\"2025-01-01T00:00:00Z\"}"),
        ("f", "today", "{}"),
    ]);
    let answer = http.turn("then", "t", &asked).await.unwrap();
    let invalid = "invalid_input";
    assert_eq!(codes(&answer), [invalid, invalid, invalid, invalid, "", ""]);
    let texts = contents(&answer);
    for (text, what) in texts.iter().zip([
        "until: required here, but missing",
        "until: expected an absolute instant with a zone, got \"yesterday\"",
        "until: expected an absolute instant with a zone",
        "until: \"2025-01-01T00:00:01Z\" is later than 2025-01-01T00:00:00Z",
    ]) {
        assert!(text.starts_with(&format!("Tool error: invalid input: {what}")), "{text}");
        assert!(text.contains("call again with absolute bounds"), "{text}");
    }
    assert_eq!(texts[4..], ["2025-01-01T00:00:00Z"; 2]);
    assert_eq!(read(&http, "then").await["toolCallsUsed"], 2, "a refused call is not counted");
    assert_eq!(fleet.ledger("history").starts().len(), 1);

    let relative = json!({"until": "yesterday"});
    let direct = http.call_as("history", "then", "d", relative.clone()).await.unwrap();
    problem(&direct, 400, "invalid_input");
    let bound = json!({"until": "2024-12-31T00:00:00Z"});
    let direct = http.call_as("history", "then", "d", bound).await.unwrap();
    assert_eq!(ok(&direct)["result"], "2025-01-01T00:00:00Z");
    // Other executions ignore it.
    let answer = http.call_as("history", "now", "d", relative).await.unwrap();
    assert_eq!(ok(&answer)["result"], "now");
}
