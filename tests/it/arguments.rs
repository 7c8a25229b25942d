//! Arguments as models send them: taken as they are or refused to the letter, never guessed at.

use crate::asked::{fleet, message};
use crate::conversation::{codes, contents, noting};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use toolfleet_tests::{Builder, Fleet};

/// A tool that gives back what it reads.
fn with_echo(builder: Builder, name: &str, input: &str) -> Builder {
    builder.exec_tool(name, &format!("effect = \"read\"\n{input}"), &noting(name, "cat"))
}

/// A message of calls of one tool, their arguments as raw JSON of the body.
fn raw_message(tool: &str, arguments: &[&str]) -> String {
    let calls: Vec<String> = arguments
        .iter()
        .enumerate()
        .map(|(position, raw)| {
            let arguments =
                if raw.is_empty() { String::new() } else { format!(",\"arguments\":{raw}") };
            format!(
                "{{\"id\":\"c{position}\",\"type\":\"function\",\
                 \"function\":{{\"name\":\"{tool}\"{arguments}}}}}"
            )
        })
        .collect();
    format!("{{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{}]}}", calls.join(","))
}

async fn posted(fleet: &Fleet, execution: &str, body: String) -> toolfleet_tests::Answer {
    let http = fleet.http(0).unwrap();
    http.post_text(&format!("/v1/executions/{execution}/turns"), body).await.unwrap()
}

/// A message whose arguments are texts of calls of one tool.
fn texts(tool: &str, arguments: &[&str]) -> Value {
    let ids: Vec<String> = (0..arguments.len()).map(|position| format!("c{position}")).collect();
    let calls: Vec<(&str, &str, &str)> =
        ids.iter().zip(arguments).map(|(id, text)| (id.as_str(), tool, *text)).collect();
    message(&calls)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_that_are_not_there_are_an_empty_object() {
    let board = "[input]\ntype = \"object\"\nrequired = [\"board\"]\n\
                 properties.board = { type = \"string\" }";
    let builder = with_echo(with_echo(fleet(), "status", ""), "board", board);
    let fleet = builder.start().await.unwrap();
    let body = raw_message("status", &["\"\"", "\" \\n\\t \"", "null", "", "\"null\""]);
    let answer = posted(&fleet, "none", body).await;
    assert_eq!(contents(&answer), ["{}"; 5]);
    assert_eq!(fleet.ledger("status").starts().len(), 5);

    let answer = posted(&fleet, "none", raw_message("board", &["\"\"", ""])).await;
    assert_eq!(contents(&answer), ["Tool error: invalid input: board: required, but missing"; 2]);
    assert!(fleet.ledger("board").lines().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_are_never_repaired_and_siblings_go_on() {
    let fleet = with_echo(fleet(), "forecast", "").start().await.unwrap();
    let arguments = [
        r#""{\"city\": \"Bergen\"}""#,
        r#""Bergen""#,
        r#"["Bergen"]"#,
        r#""null""#,
        "7",
        r#"{"city": "Bergen", "city": "Oslo"}"#,
        r#"{"days": [1, 2,]}"#,
        r#"{"city": "Ber"#,
        r#"{"city": "Bergen"}"#,
    ];
    let answer =
        fleet.http(0).unwrap().turn("e", "t", &texts("forecast", &arguments)).await.unwrap();
    let twice = "Tool error: invalid input: expected an object, got a string that holds JSON: send \
                 the arguments as an object, encoded once";
    let contents = contents(&answer);
    let wanted = [
        twice,
        "Tool error: invalid input: expected an object, got a string",
        "Tool error: invalid input: expected an object, got an array",
        twice,
        "Tool error: invalid input: expected an object, got a number",
        "Tool error: invalid input: city: duplicate key",
    ];
    assert_eq!(contents[..6], wanted);
    for cut in &contents[6..8] {
        assert!(cut.starts_with("Tool error: invalid input: not valid JSON: "), "{cut}");
        assert!(cut.contains("line 1 column"), "the place is told: {cut}");
    }
    assert_eq!(contents[8], r#"{"city":"Bergen"}"#);
    assert_eq!(codes(&answer)[..8], ["invalid_input"; 8]);
    assert_eq!(fleet.ledger("forecast").starts().len(), 1, "only the good one has run");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_keep_their_digits_on_every_way() {
    let input = "[input]\ntype = \"object\"\n\
                 properties.id = { type = \"integer\" }\nproperties.rate = { type = \"number\" }";
    let fleet = with_echo(fleet(), "ledger-line", input).start().await.unwrap();
    let text = "{\"id\":123456789012345678901234567890,\"next\":9007199254740993,\
                \"rate\":0.12345678901234567890123,\"small\":1e-400,\"minus\":-0,\"sci\":1.50E+2}";
    let http = fleet.http(0).unwrap();
    let answer = http.turn("e", "t", &texts("ledger-line", &[text])).await.unwrap();
    assert_eq!(contents(&answer), [text]);

    // The same as an Anthropic block, where the arguments are no text, and as a direct call.
    let block = format!(
        "{{\"role\":\"assistant\",\"content\":[{{\"type\":\"tool_use\",\"id\":\"a\",\
         \"name\":\"ledger-line\",\"input\":{text}}}]}}"
    );
    let answer = posted(&fleet, "anthropic", block).await;
    let content = &answer.body["messages"][0]["content"][0];
    assert_eq!(content["content"][0]["text"], *text, "{}", answer.text);
    let body = format!("{{\"executionId\":\"e\",\"callId\":\"direct\",\"input\":{text}}}");
    let direct = http.post_text("/v1/tools/ledger-line/call", body).await.unwrap();
    assert_eq!(direct.body["text"], *text, "{}", direct.text);
    let name = toolfleet_tests::call_name(&direct.body).unwrap();
    assert_eq!(fleet.result(&name).await.unwrap().text(), text, "the record has them too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_null_for_what_may_be_left_out_is_left_out() {
    let input = r#"
[input]
type = "object"
required = ["query"]
properties.query = { type = "string" }
properties.limit = { type = "integer" }
properties.note = { type = ["string", "null"] }
properties.jobs = { type = "array", items = { type = "object", properties = { url = { type = "string" } } } }
"#;
    let fleet = with_echo(fleet(), "search", input).start().await.unwrap();
    let arguments = [
        r#"{"query":"a","limit":null}"#,
        r#"{"query":"a","note":null,"limit":2}"#,
        r#"{"query":"a","jobs":[{"url":null},{"url":"u"}]}"#,
        r#"{"query":null}"#,
        r#"{"query":"a","jobs":[{"url":"u"},{"url":"u"},{"url":7}]}"#,
    ];
    let answer = fleet.http(0).unwrap().turn("e", "t", &texts("search", &arguments)).await.unwrap();
    let wanted = [
        r#"{"query":"a"}"#,
        arguments[1],
        r#"{"query":"a","jobs":[{},{"url":"u"}]}"#,
        "Tool error: invalid input: query: expected string, got null",
        "Tool error: invalid input: jobs[2].url: expected string, got number 7",
    ];
    assert_eq!(contents(&answer), wanted);
    assert_eq!(fleet.ledger("search").starts().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_tells_eight_issues_and_how_many_more_and_quotes_little() {
    let input = "[input]\ntype = \"object\"\nproperties.n = { type = \"array\", items = { type = \
                 \"integer\" } }";
    let fleet = with_echo(fleet(), "sum", input).start().await.unwrap();
    let long = format!("{{\"n\":[\"{}\"]}}", "ü".repeat(5_000));
    let many = r#"{"n":["a","b","c","d","e","f","g","h","i","j"]}"#;
    let answer =
        fleet.http(0).unwrap().turn("e", "t", &texts("sum", &[many, &long])).await.unwrap();
    let contents = contents(&answer);
    let eight: Vec<String> = ["a", "b", "c", "d", "e", "f", "g", "h"]
        .iter()
        .enumerate()
        .map(|(at, text)| format!("n[{at}]: expected integer, got string \"{text}\""))
        .collect();
    let wanted = format!("Tool error: invalid input: {}; and 2 more", eight.join("; "));
    assert_eq!(contents[0], wanted);
    assert!(contents[1].starts_with("Tool error: invalid input: n[0]: expected integer, got"));
    assert!(contents[1].len() < 200, "the value is quoted only in part: {}", contents[1]);
    assert!(fleet.ledger("sum").lines().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_of_a_surrogate_pair_is_refused_by_name_and_hurts_nobody_else() {
    let fleet = with_echo(fleet(), "note", "").start().await.unwrap();
    let whole = r#"{"t":"\ud83c\udf78"}"#;
    let (high, low) = (r#"{"t":"a \ud83c"}"#, r#"{"t":["\udf78 b"]}"#);
    let body = texts("note", &[whole, high, low, r#"{"\ud83c":1}"#, "{\"t\":\"HALF\"}"]);
    // The last one is half already in the body itself, before any argument is read.
    let body = body.to_string().replace("HALF", "\\ud83c");
    let answer = posted(&fleet, "halves", body).await;
    let contents = contents(&answer);
    assert_eq!(contents[0], "{\"t\":\"\u{1F378}\"}");
    assert_eq!(contents[1], "Tool error: invalid input: t: lone surrogate in the string");
    assert_eq!(contents[2], "Tool error: invalid input: t[0]: lone surrogate in the string");
    assert_eq!(contents[3], "Tool error: invalid input: lone surrogate in the key \"\\ud83c\"");
    assert!(contents[4].starts_with("Tool error: invalid input: lone surrogate"), "{contents:?}");
    assert_eq!(fleet.ledger("note").starts().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn almost_json_is_answered_at_once_and_never_run() {
    let input = "[input]\ntype = \"object\"\nproperties.x = { type = \"number\" }";
    let fleet = with_echo(fleet(), "half", input).start().await.unwrap();
    let near = [
        "{\"x\": NaN}",
        "{\"x\": -Infinity}",
        "{\"x\": 01}",
        "{\"x\": +1}",
        "{\"x\": .5}",
        "{\"x\": 5.}",
        "{\"x\": 0x10}",
        "{\"x\": 1_000}",
        "{x: 1}",
        "{'x': 1}",
        "{\"x\": 1} // one",
        "{\"x\": 1}{\"x\": 2}",
        "```json\n{\"x\": 1}\n```",
        "{\"x\": undefined}",
        "{\"x\": 1",
        "{\"x\": \"a\nb\"}",
    ];
    let all = [&near[..], &["{\"x\": 1e400}", "{\"x\": -1e400}", "{\"x\": -0}", "{\"x\": 1e-400}"]];
    let since = Instant::now();
    let message = texts("half", &all.concat());
    let answer = fleet.http(0).unwrap().turn("e", "t", &message).await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(10), "at once, not by a timeout");
    let contents = contents(&answer);
    for (text, content) in near.iter().zip(&contents) {
        assert!(
            content.starts_with("Tool error: invalid input: not valid JSON: "),
            "{text}: {content}"
        );
        assert!(content.contains(" column "), "{text}: {content}");
    }
    assert_eq!(contents[16], "Tool error: invalid input: x: number out of range: 1e400");
    assert_eq!(contents[17], "Tool error: invalid input: x: number out of range: -1e400");
    assert_eq!(contents[18..], [r#"{"x":-0}"#, r#"{"x":1e-400}"#]);
    assert_eq!(fleet.ledger("half").starts().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_almost_fits_runs_nothing() {
    let builder = with_echo(with_echo(fleet(), "find-notes", ""), "find-note", "");
    let fleet = builder.start().await.unwrap();
    // Longer than any record of an execution may be.
    let long = "x".repeat(1_500_000);
    let names = [
        "find-note",
        " find-notes",
        "find-notes\n",
        "Find-Notes",
        "find_notes",
        "functions.find-notes",
        "find-notes()",
        "findnotes",
        "",
        "*",
        "tf.v1.job.>",
        "f\u{456}nd-notes",
        "\u{0}",
        &long,
    ];
    let calls: Vec<(String, &str)> =
        names.iter().enumerate().map(|(at, name)| (format!("c{at}"), *name)).collect();
    let calls: Vec<(&str, &str, &str)> =
        calls.iter().map(|(id, name)| (id.as_str(), *name, "{}")).collect();
    let answer = fleet.http(0).unwrap().turn("e", "t", &message(&calls)).await.unwrap();
    let contents = contents(&answer);
    assert_eq!(contents[0], "{}", "an exact name is one");
    for (name, content) in names.iter().zip(&contents).skip(1) {
        assert!(content.starts_with("Tool error: unknown tool \""), "{name:?}: {content}");
        assert!(content.contains("find-notes") && content.contains("find-note,"), "{content}");
        assert!(content.len() < 400, "the name is quoted only in part: {content}");
    }
    assert_eq!(codes(&answer)[1..], ["tool_not_found"; 13]);
    assert!(fleet.ledger("find-notes").lines().is_empty());
    assert_eq!(fleet.ledger("find-note").starts().len(), 1);
    let page = fleet.admin(0).unwrap().get("/metrics").await.unwrap().text;
    let submitted: Vec<&str> =
        page.lines().filter(|line| line.starts_with("toolfleet_jobs_submitted_total{")).collect();
    assert!(submitted.len() == 1 && submitted[0].ends_with(" 1"), "one job: {submitted:?}");
    assert!(!page.contains("functions"), "a raw name is no label");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_come_in_the_order_of_the_calls_and_all_run_at_once() {
    let mut fleet = fleet().start().await.unwrap();
    let ledger = fleet.ledger("order");
    let nap = |ms: u64| crate::asked::nap(ms, &ledger).to_string();
    let (slow, fast, middle) = (nap(4_000), nap(2_000), nap(3_000));
    let calls = [
        ("slow", "nap", slow.as_str()),
        ("fast", "nap", fast.as_str()),
        ("broken", "nap", "{\"ms\":"),
        ("middle", "nap", middle.as_str()),
        ("other", "bench-echo", "{\"n\":1}"),
    ];
    let asked = message(&calls);
    let answer = fleet.http(0).unwrap().turn("e", "t", &asked).await.unwrap();
    let messages = answer.body["messages"].as_array().unwrap();
    let ids: Vec<&str> = messages.iter().filter_map(|m| m["tool_call_id"].as_str()).collect();
    assert_eq!(ids, ["slow", "fast", "broken", "middle", "other"]);
    assert_eq!(ledger.lines()[..3].iter().filter(|line| line.starts_with("start")).count(), 3);
    fleet.coordinators[0].restart().await.unwrap();
    // The new process must know the tools first: until then nothing can be handed in.
    let http = fleet.http(0).unwrap();
    toolfleet_tests::until("the tools are offered again", crate::asked::SOON, async || {
        let tools = http.get("/v1/tools").await.ok()?.body["tools"].as_array()?.len();
        (tools > 1).then_some(())
    })
    .await
    .unwrap();
    let again = http.turn("e", "t", &asked).await.unwrap();
    assert_eq!(again.body["replayed"], json!(true));
    assert_eq!(again.body["messages"].to_string(), answer.body["messages"].to_string());
    assert_eq!(ledger.starts().len(), 3);
}
