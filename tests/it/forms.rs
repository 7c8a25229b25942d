//! Messages of OpenAI Responses, of Gemini and of our own form, and lists of tools in every form.

use crate::asked::{fleet, nap, problem};
use crate::cli::{check, toolfleet};
use crate::conversation::{codes, create};
use reqwest::Method;
use serde_json::{Value, json};
use toolfleet_tests::{Answer, Fleet, Http};

/// Reads a text, as a tool of free text is written: its one argument is `input`.
const TEXT_TOOL: &str = "effect = \"read\"\n[input]\ntype = \"object\"\nrequired = [\"input\"]\n\
                         additionalProperties = false\nproperties.input = { type = \"string\" }";

async fn post(http: &Http, execution: &str, query: &str, body: &Value) -> Answer {
    let path = format!("/v1/executions/{execution}/turns{query}");
    let answer = http.post(&path, body).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer
}

fn function_call(call_id: &str, name: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "id": format!("fc_{call_id}"), "call_id": call_id, "name": name,
        "arguments": arguments, "status": "completed"})
}

fn call_ids(answer: &Answer) -> Vec<&str> {
    let calls = answer.body["calls"].as_array().unwrap();
    calls.iter().map(|call| call["callId"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_is_answered_item_by_item() {
    let fleet = fleet().coordinators(2).exec_tool("count", TEXT_TOOL, "cat").start().await.unwrap();
    let (http, other) = (fleet.http(0).unwrap(), fleet.http(1).unwrap());
    let ledger = fleet.ledger("responses");
    let mut first =
        function_call("call_Zk3v9QbYw0aR7cLmN2xT", "nap", &nap(300, &ledger).to_string());
    first["caller"] = json!({"type": "program", "caller_id": "call_prog"});
    let mut cut = function_call("call_Hq8s1PdUe5fJ4gVnB6yC", "nap", &nap(1, &ledger).to_string());
    cut["status"] = json!("incomplete");
    let output = json!([
        {"type": "reasoning", "id": "rs_1", "summary": []},
        first,
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "custom_tool_call", "call_id": "call_Lr5Cj0aHf7EpUk2wZtD8", "name": "count", "input": "one\n\"two\""},
        cut,
        function_call("call_8GdPz1uKe4TnWy6oQiB9", "bench-echo", r#"{"n":9007199254740993}"#),
        function_call("call_q3VtY7mLw0ZkRb5sXcJ2", "bench-echo", r#"{"n":1,"#),
        {"type": "mcp_call", "id": "mcp_1", "name": "nap", "arguments": "{}"},
    ]);
    let response = json!({"object": "response", "status": "completed", "output": output});
    let answer = post(&http, "r", "", &response).await;
    assert_eq!(answer.body["format"], "openai-responses");
    let messages = answer.body["messages"].as_array().unwrap();
    assert_eq!(
        messages[0],
        json!({"type": "function_call_output", "call_id": "call_Zk3v9QbYw0aR7cLmN2xT", "output": "1",
            "caller": {"type": "program", "caller_id": "call_prog"}})
    );
    assert_eq!(
        messages[1],
        json!({"type": "custom_tool_call_output", "call_id": "call_Lr5Cj0aHf7EpUk2wZtD8",
            "output": r#"{"input":"one\n\"two\""}"#})
    );
    let text = |at: usize| messages[at]["output"].as_str().unwrap();
    assert!(text(2).starts_with("Tool error: invalid input: the call is marked as incomplete"));
    assert_eq!(text(3), r#"{"n":9007199254740993}"#);
    assert!(text(4).starts_with("Tool error: invalid input: not valid JSON"), "{}", text(4));
    assert_eq!(messages.len(), 5);
    assert_eq!(codes(&answer), ["", "", "invalid_input", "", "invalid_input"]);
    assert_eq!(ledger.starts().len(), 1, "what was cut did not run: {:?}", ledger.lines());

    // Its items alone, through another coordinator, are the same turn: their ids are unique.
    let again = post(&other, "r", "", &output).await;
    assert_eq!(
        (&again.body["turn"], &again.body["replayed"]),
        (&answer.body["turn"], &json!(true))
    );
    assert_eq!(again.body["messages"], answer.body["messages"]);
    let turn = answer.body["turn"].as_str().unwrap();
    let read = other.get(&format!("/v1/executions/r/turns/{turn}")).await.unwrap();
    assert_eq!(read.body["messages"], answer.body["messages"], "also the form of a free text");
    let path = format!("/v1/executions/r/turns/{turn}?format=anthropic");
    let elsewhere = other.get(&path).await.unwrap();
    assert_eq!(elsewhere.body["format"], "anthropic");
    let block = &elsewhere.body["messages"][0]["content"][0];
    assert_eq!(
        (&block["tool_use_id"], block.get("caller")),
        (&json!("call_Zk3v9QbYw0aR7cLmN2xT"), None)
    );
    assert_eq!(ledger.starts().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gemini_content_is_answered_by_one_content() {
    let fleet = fleet().exec_tool("fails", "effect = \"read\"", "echo 'no luck' >&2; exit 3");
    let fleet = fleet.start().await.unwrap();
    let http = fleet.http(0).unwrap();
    create(&http, json!({"id": "g", "localTools": ["ask_user"]})).await;
    let content = json!({"role": "model", "parts": [
        {"text": "Looking.", "thought": true, "thoughtSignature": "EqQB"},
        {"functionCall": {"id": "f1", "name": "nap", "args": {"ms": 200}}, "thoughtSignature": "EqQB"},
        {"functionCall": {"name": "bench-echo", "args": {"n": 1.5, "list": [null, true]}}},
        {"functionCall": {"name": "bench-echo", "args": {"n": 9_007_199_254_740_993_u64}}},
        {"functionCall": {"name": "ask_user", "args": {}}},
        {"functionCall": {"id": "f1", "name": "fails"}},
        {"functionCall": {"id": "f3", "name": "nab", "args": {}}},
    ]});
    let response = json!({"candidates": [{"content": content, "finish_reason": "STOP"}], "usage_metadata": {}});
    let answer = post(&http, "g", "", &response).await;
    assert_eq!(answer.body["format"], "gemini");
    let messages = answer.body["messages"].as_array().unwrap();
    assert_eq!((messages.len(), &messages[0]["role"]), (1, &json!("user")));
    let parts: Vec<&Value> = messages[0]["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| &part["functionResponse"])
        .collect();
    assert_eq!(*parts[0], json!({"id": "f1", "name": "nap", "response": {"output": 1}}));
    let echoed =
        json!({"name": "bench-echo", "response": {"output": {"n": 1.5, "list": [null, true]}}});
    assert_eq!(*parts[1], echoed);
    assert_eq!(parts[2]["response"]["output"], r#"{"n":9007199254740993}"#, "a float loses it");
    let failed = json!({"error": "Tool error: exited with code 3: no luck"});
    assert_eq!(*parts[3], json!({"id": "f1", "name": "fails", "response": failed}));
    let unknown = parts[4]["response"]["error"].as_str().unwrap();
    assert!(unknown.starts_with("Tool error: ") && unknown.contains("nap"), "{unknown}");
    assert_eq!(parts.len(), 5);
    assert_eq!(codes(&answer), ["", "", "", "tool_error", "tool_not_found"]);
    let local = json!([{"id": null, "name": "ask_user", "position": 3}]);
    assert_eq!(answer.body["local"], local);
    // Ids that nobody makes unique name no turn.
    let turn = answer.body["turn"].as_str().unwrap();
    let ids = call_ids(&answer);
    let made = [format!("{turn}:1"), format!("{turn}:2")];
    assert_eq!(ids, ["f1:0", &made[0], &made[1], "f1:4", "f3"]);
    let again = post(&http, "g", "", &content).await;
    assert_ne!(again.body["turn"], answer.body["turn"]);
    let named = post(&http, "g", &format!("?turn={turn}"), &content).await;
    assert_eq!(named.body["messages"], answer.body["messages"]);
    assert_eq!(named.body["replayed"], true);

    let two = json!({"candidates": [{"content": content}, {"content": content}]});
    let refused = http.post("/v1/executions/g/turns", &two).await.unwrap();
    problem(&refused, 422, "message_ambiguous");
    let text = json!({"role": "model", "parts": [{"text": "Sunny."}]});
    assert_eq!(post(&http, "g", "", &text).await.body["messages"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_own_form_needs_no_provider() {
    let fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let message = json!({"calls": [
        {"id": "a", "name": "bench-echo", "input": {"n": 1}},
        {"name": "nap", "input": {"ms": "soon"}},
    ], "turn": "t", "localTools": ["x"]});
    let answer = post(&http, "n", "", &message).await;
    assert_eq!((&answer.body["format"], &answer.body["turn"]), (&json!("native"), &json!("t")));
    let wrong = "Tool error: invalid input: ms: expected integer, got string \"soon\"";
    let wanted = json!([
        {"id": "a", "name": "bench-echo", "isError": false, "text": "{\"n\":1}"},
        {"id": "t:1", "name": "nap", "isError": true, "code": "invalid_input", "text": wrong},
    ]);
    assert_eq!(answer.body["messages"], wanted);
    let bad = json!({"calls": [{"name": "nap", "arguments": {"ms": 1}}]});
    let refused = http.post("/v1/executions/n/turns", &bad).await.unwrap();
    problem(&refused, 422, "message_unreadable");
    // The turn of direct calls is read in it.
    http.call_as("bench-echo", "n", "d", json!({"n": 2})).await.unwrap();
    let read = http.get("/v1/executions/n/turns/direct").await.unwrap();
    assert_eq!(read.body["format"], "native", "{}", read.text);
    assert_eq!(read.body["messages"][0]["text"], "{\"n\":2}");
    for (query, code) in [("mcp", "format_unsupported"), ("x", "format_unknown")] {
        let path = format!("/v1/executions/n/turns?format={query}");
        problem(&http.post(&path, &message).await.unwrap(), 422, code);
        let path = format!("/v1/executions/n/turns/t?format={query}");
        problem(&http.get(&path).await.unwrap(), 422, code);
    }
}

/// The same calls in each of the new forms: `(id, name)`, with an empty input.
fn in_each_form(calls: &[(&str, &str)]) -> [(&'static str, Value); 3] {
    let responses = calls.iter().map(|(id, name)| function_call(id, name, "{}"));
    let parts = calls
        .iter()
        .map(|(id, name)| json!({"functionCall": {"id": id, "name": name, "args": {}}}));
    let native = calls.iter().map(|(id, name)| json!({"id": id, "name": name, "input": {}}));
    [
        ("openai-responses", responses.collect()),
        ("gemini", json!({"role": "model", "parts": parts.collect::<Vec<_>>()})),
        ("native", json!({"calls": native.collect::<Vec<_>>()})),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_ids_and_names_that_almost_match_run_nothing_else() {
    let noted = crate::conversation::noting("noted", "echo \"$TOOLFLEET_IDEMPOTENCY_KEY\"");
    let fleet = fleet()
        .exec_tool("search-issues-tool", "effect = \"read\"", &noted)
        .exec_tool("search-issue-tool", "effect = \"read\"", &noted)
        .start()
        .await
        .unwrap();
    let http = fleet.http(0).unwrap();
    let ledger = fleet.ledger("noted");
    let twice = [("call_0", "search-issues-tool"), ("call_0", "search-issues-tool")];
    for (format, message) in in_each_form(&twice) {
        let (one, two) =
            (post(&http, format, "", &message).await, post(&http, format, "", &message).await);
        assert_eq!(one.body["format"], format);
        assert_eq!(
            (call_ids(&one), call_ids(&two)),
            (vec!["call_0:0", "call_0:1"], vec!["call_0:0", "call_0:1"])
        );
        assert_ne!(one.body["turn"], two.body["turn"], "{format}");
        assert_eq!((&one.body["replayed"], &two.body["replayed"]), (&json!(false), &json!(false)));
        let messages = one.body["messages"].to_string();
        assert_eq!(messages.matches("\"call_0\"").count(), 2, "its own id goes back: {messages}");
    }
    assert_eq!(ledger.starts().len(), 12, "{:?}", ledger.lines());

    let names = [
        " search-issues-tool",
        "search-issues-tool ",
        "Search-Issues-Tool",
        "search_issues_tool",
        "issues-tool",
        "search-issue-tool",
        "mcp__a1__search-issues-tool",
        "functions.search-issues-tool",
        "search-issues-tool<|end|>",
    ];
    let calls: Vec<(String, &str)> =
        names.iter().enumerate().map(|(at, name)| (format!("c{at}"), *name)).collect();
    let calls: Vec<(&str, &str)> = calls.iter().map(|(id, name)| (id.as_str(), *name)).collect();
    let wanted: Vec<&str> = names
        .iter()
        .map(|name| if *name == "search-issue-tool" { "" } else { "tool_not_found" })
        .collect();
    for (format, message) in in_each_form(&calls) {
        let answer = post(&http, &format!("{format}-names"), "", &message).await;
        assert_eq!(codes(&answer), wanted, "{format}");
    }
    assert_eq!(ledger.starts().len(), 15, "one exact name in each form");
}

async fn listed(fleet: &Fleet, query: &str) -> Answer {
    let answer = fleet.http(0).unwrap().get(&format!("/v1/tools?{query}")).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_are_listed_in_every_form() {
    let strict = "effect = \"idempotent\"\ntags = [\"strict\"]\n[input]\ntype = \"object\"\n\
                  required = [\"n\"]\nadditionalProperties = false\nproperties.n = { type = \"integer\" }";
    let union = "effect = \"write\"\ntags = [\"union\"]\n[input]\ntype = \"object\"\n\
                 properties.a = { type = [\"string\", \"null\"] }\nproperties.list = { type = \"array\" }\n\
                 anyOf = [{ required = [\"a\"] }, { required = [\"list\"] }]";
    let fleet = fleet()
        .exec_tool("strict", strict, "cat")
        .exec_tool("union", union, "cat")
        .start()
        .await
        .unwrap();
    let http = fleet.http(0).unwrap();
    for format in ["native", "openai-chat", "openai-responses", "anthropic", "gemini", "mcp"] {
        let query = format!("format={format}");
        let (one, two) = (listed(&fleet, &query).await, listed(&fleet, &query).await);
        assert_eq!((&one.text, &one.body["format"]), (&two.text, &json!(format)));
        let etag = one.headers["etag"].to_str().unwrap();
        assert_eq!(etag, format!("\"{}\"", one.body["hash"].as_str().unwrap()));
        for known in [etag.to_owned(), format!("\"other\", W/{etag}")] {
            let path = format!("/v1/tools?{query}");
            let asked = http.request(Method::GET, &path).header("if-none-match", known);
            let answer = http.send(asked).await.unwrap();
            assert_eq!((answer.status, answer.text.as_str()), (304, ""), "{format}");
        }
    }
    let of = async |query: &str| listed(&fleet, query).await.body["tools"][0].clone();
    let open = of("format=openai-responses&tags=strict").await;
    assert_eq!(
        (&open["type"], &open["name"], &open["strict"]),
        (&json!("function"), &json!("strict"), &json!(false))
    );
    let closed = of("format=openai-responses&tags=strict&strict=true").await;
    assert_eq!((&closed["strict"], &closed["parameters"]), (&json!(true), &open["parameters"]));
    let union = of("format=openai-responses&tags=union&strict=true").await;
    assert_eq!((&union["strict"], union["parameters"].get("anyOf")), (&json!(false), None));
    assert_eq!(union["parameters"]["properties"]["list"], json!({"type": "array", "items": {}}));
    let gemini = of("format=gemini&tags=union").await["functionDeclarations"][0].clone();
    assert_eq!(gemini["parametersJsonSchema"]["anyOf"].as_array().map(Vec::len), Some(2));
    let openapi =
        of("format=gemini&tags=union&schema=openapi").await["functionDeclarations"][0].clone();
    let nullable = json!({"type": "string", "nullable": true});
    assert_eq!(
        (&openapi["parameters"]["properties"]["a"], openapi.get("parametersJsonSchema")),
        (&nullable, None)
    );
    let mcp = of("format=mcp&tags=strict").await;
    assert_eq!(mcp["inputSchema"]["required"], json!(["n"]));
    let hints = json!({"readOnlyHint": false, "destructiveHint": true, "idempotentHint": true});
    assert_eq!(mcp["annotations"], hints);
    assert_eq!(listed(&fleet, "format=gemini&tags=none").await.body["tools"], json!([]));
    for (query, code) in [
        ("format=x", "format_unknown"),
        ("format=openai-chat&strict=1", "option_invalid"),
        ("format=gemini&schema=3.0", "option_invalid"),
    ] {
        problem(&http.get(&format!("/v1/tools?{query}")).await.unwrap(), 422, code);
    }
    // What was shown as less is checked as what it is.
    let refused = http.call("union", json!({})).await.unwrap();
    problem(&refused, 400, "invalid_input");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_speaks_every_form() {
    let fleet = fleet().start().await.unwrap();
    let server = fleet.http(0).unwrap().base().to_owned();
    let tools = async |args: &[&str]| {
        toolfleet(&[&["tools", "--server", &server], args].concat(), &[]).await
    };
    let (out, _) = check(&tools(&["--format", "gemini", "--schema", "openapi"]).await, 0);
    let list: Value = serde_json::from_str(&out).unwrap();
    assert!(list["tools"][0]["functionDeclarations"].is_array(), "{out}");
    let (out, _) = check(&tools(&["--format", "openai-responses", "--strict"]).await, 0);
    assert!(out.contains("\"format\":\"openai-responses\""), "{out}");
    let (out, _) = check(&tools(&["--tags", "none"]).await, 0);
    assert!(out.contains("no tool is on offer"), "{out}");
    check(&tools(&["--format", "x"]).await, 1);
    check(&tools(&["--strict"]).await, 2);

    let folder = tempfile::tempdir().unwrap();
    for (format, message) in in_each_form(&[("a", "bench-echo"), ("b", "no-such-tool")]) {
        let file = folder.path().join(format);
        std::fs::write(&file, message.to_string()).unwrap();
        let file = file.display().to_string();
        for args in [&[][..], &["--format", format]] {
            let all = [&["turn", &file, "--server", &server][..], args].concat();
            let (out, _) = check(&toolfleet(&all, &[]).await, 0);
            assert!(out.contains("\n     {}\n"), "{format}: {out}");
            assert!(out.contains("\n     Tool error: "), "{format}: {out}");
            assert!(out.contains("2 calls, 1 ok, 1 failed"), "{format}: {out}");
        }
    }
}
