//! What comes back: read as declared, bounded whatever it is, and never an error for its size.

use crate::asked::{SOON, fleet, message};
use crate::conversation::{answered, call_path, codes, contents, noting, post_turn};
use serde_json::json;
use toolfleet_tests::{Builder, Fleet};

/// Adds a read that runs a script, with a bound and a way to read its output.
fn with(builder: Builder, name: &str, bound: &str, form: &str, script: &str) -> Builder {
    let bound =
        if bound.is_empty() { String::new() } else { format!("\nmax_result_size = \"{bound}\"") };
    let form = if form.is_empty() { String::new() } else { format!("result = \"{form}\"") };
    builder.exec_tool_run(name, &format!("effect = \"read\"{bound}"), &form, script)
}

/// Calls each tool once, in one turn: what the model reads, the code, and whether it was cut.
async fn call_all(fleet: &Fleet, tools: &[&str]) -> Vec<(String, String, bool)> {
    let ids: Vec<String> = (0..tools.len()).map(|position| format!("c{position}")).collect();
    let calls: Vec<_> = ids.iter().zip(tools).map(|(id, tool)| (id.as_str(), *tool, "")).collect();
    let answer = fleet.http(0).unwrap().turn("e", "t", &message(&calls)).await.unwrap();
    let calls = answer.body["calls"].as_array().unwrap();
    let cut = calls.iter().map(|call| call["isResultTruncated"].as_bool().unwrap());
    contents(&answer)
        .into_iter()
        .zip(codes(&answer))
        .zip(cut)
        .map(|((a, b), c)| (a, b, c))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_never_goes_through_a_character() {
    let sizes = [1_u64, 2, 3, 1_000, 1_001, 1_002, 1_003];
    // 700 euro signs are 2,100 bytes, 500 clefs 2,000.
    let scripts = [("euro", "€", 700, 3), ("clef", "𝄞", 500, 4)];
    let mut builder = fleet();
    let mut tools = Vec::new();
    for (name, character, count, bytes) in scripts {
        for size in sizes {
            let tool = format!("{name}-{size}");
            let script = format!(
                "i=0; while [ $i -lt {count} ]; do printf '%s' '{character}'; i=$((i+1)); done"
            );
            builder = with(builder, &tool, &format!("{size}B"), "", &script);
            tools.push((tool, character, count * bytes, size, bytes));
        }
    }
    let fleet = builder.start().await.unwrap();
    let names: Vec<&str> = tools.iter().map(|(tool, ..)| tool.as_str()).collect();
    for ((tool, character, whole, size, bytes), (text, code, is_cut)) in
        tools.iter().zip(call_all(&fleet, &names).await)
    {
        assert_eq!((code.as_str(), is_cut), ("", true), "{tool}: never an error");
        let kept = size / bytes * bytes;
        let wanted = character.repeat(usize::try_from(kept / bytes).unwrap());
        let grouped = |number: u64| {
            if number < 1_000 {
                number.to_string()
            } else {
                format!("{},{:03}", number / 1_000, number % 1_000)
            }
        };
        let marker = format!(
            "[result truncated: {} bytes, the first {} kept]",
            grouped(*whole),
            grouped(kept)
        );
        assert_eq!(text, format!("{wanted}\n{marker}"), "{tool}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_outcome_is_within_the_bound() {
    let builder = fleet();
    let builder =
        with(builder, "json", "64B", "json", r#"printf '{"list":["%0200d"], "n" : 1.50}' 7"#);
    let builder = with(
        builder,
        "text",
        "64B",
        "text",
        "printf 'word %.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16",
    );
    let builder = with(builder, "stderr", "64B", "", "printf '%09000d' 7 >&2; exit 3");
    let envelope = r#"printf '{"isError":true,"content":[{"type":"text","text":"%0200d"}]}' 7"#;
    let builder = with(builder, "envelope", "64B", "envelope", envelope);
    let output = "effect = \"read\"\nmax_result_size = \"64B\"\n[output]\ntype = \"object\"\n\
                  additionalProperties = { type = \"string\" }";
    let builder = builder.exec_tool(
        "mismatch",
        output,
        r#"printf '{"a_rather_long_name_of_a_property_that_is_wrong_here": [1]}'"#,
    );
    let fleet = builder.start().await.unwrap();
    let tools = ["json", "text", "stderr", "envelope", "mismatch"];
    let results = call_all(&fleet, &tools).await;
    let wanted_codes = ["", "", "tool_error", "tool_error", "invalid_output"];
    for ((tool, (text, code, is_cut)), wanted) in tools.iter().zip(&results).zip(wanted_codes) {
        assert_eq!(code, wanted, "{tool}: {text}");
        assert!(is_cut, "{tool}: {text}");
        let text = text.strip_prefix("Tool error: ").unwrap_or(text);
        let (kept, marker) = text.rsplit_once("\n[result truncated: ").unwrap();
        assert!(kept.len() <= 64, "{tool}: {kept}");
        assert!(
            marker.ends_with(&format!(" bytes, the first {} kept]", kept.len())),
            "{tool}: {marker}"
        );
    }
    assert!(results[0].0.starts_with(r#"{"list":["0000"#), "{}", results[0].0);
    // 16 words of 5 bytes: cut at the last white space, which goes.
    assert_eq!(
        results[1].0,
        format!(
            "{}\n[result truncated: 80 bytes, the first 59 kept]",
            "word ".repeat(12).trim_end()
        )
    );
    assert!(
        results[2].0.starts_with("Tool error: exited with code 3:\n[result"),
        "{}",
        results[2].0
    );
    assert!(results[4].0.starts_with("Tool error: invalid output:\n[result"), "{}", results[4].0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reason_of_a_cancel_has_the_bound_of_the_call() {
    let keys = "effect = \"write\"\nmax_result_size = \"16B\"";
    let fleet = fleet().exec_tool("sleeper", keys, &noting("sleeper", "sleep 20")).start();
    let fleet = fleet.await.unwrap();
    let http = fleet.http(0).unwrap();
    let posted = post_turn(&http, "cancel", "t", &message(&[("a", "sleeper", "")]));
    fleet.ledger("sleeper").started(1, SOON).await.unwrap();
    let reason = json!({"reason": "the customer has changed her mind about all of it"});
    let path = call_path("cancel", "main:t:a", "cancel");
    assert_eq!(http.post(&path, &reason).await.unwrap().status, 200);
    let answer = answered(posted).await;
    let text = contents(&answer).remove(0);
    let whole = "the customer has changed her mind about all of it; it may have taken effect, check before calling it again".len();
    assert_eq!(
        text,
        format!("Tool error: the customer\n[result truncated: {whole} bytes, the first 12 kept]")
    );
    assert_eq!(codes(&answer), ["cancelled"]);
    assert_eq!(answer.body["calls"][0]["isResultTruncated"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_that_looks_like_ours_is_only_text() {
    let marker = "[result truncated: 9,999 bytes, the first 1 kept]";
    let forged = format!("printf 'Tool error: not really\\n{marker}'");
    let over = format!("printf 'first\\n{marker}\\n'; printf '%0100d' 7");
    let builder = with(with(fleet(), "under", "128B", "", &forged), "over", "128B", "", &over);
    let fleet = builder.start().await.unwrap();
    let results = call_all(&fleet, &["under", "over"]).await;
    assert_eq!(results[0], (format!("Tool error: not really\n{marker}"), String::new(), false));
    let (text, code, is_cut) = &results[1];
    assert_eq!((code.as_str(), is_cut), ("", &true));
    let whole = 6 + marker.len() + 1 + 100;
    let ours = format!("[result truncated: {whole} bytes, the first 55 kept]");
    assert_eq!(
        *text,
        format!("first\n{marker}\n{ours}"),
        "cut at the white space before the digits"
    );
    // Read again it is not cut again.
    assert_eq!(call_all(&fleet, &["under", "over"]).await, results);
}

/// Name, declared form, script, what the model reads or begins to read, code.
const READINGS: [(&str, &str, &str, &str, &str); 12] = [
    ("verbatim", "text", r#"printf ' {"a": 1}\n\n'"#, " {\"a\": 1}\n\n", ""),
    (
        "no-form",
        "",
        r#"printf '{"content":[{"type":"text","text":"x"}],"isError":true}'"#,
        r#"{"content":[{"type":"text","text":"x"}],"isError":true}"#,
        "",
    ),
    (
        "around",
        "json",
        r#"printf '\357\273\277\r\n {"n": 1.50 ,"b": [ ]}\r\n'"#,
        r#"{"n":1.50,"b":[]}"#,
        "",
    ),
    (
        "two-values",
        "json",
        "printf '{} {}'",
        "Tool error: invalid output: not valid JSON: ",
        "invalid_output",
    ),
    (
        "progress-first",
        "json",
        r#"printf 'working\n{"a":1}'"#,
        "Tool error: invalid output: not valid JSON: ",
        "invalid_output",
    ),
    (
        "nan",
        "json",
        r#"printf '{"x":NaN}'"#,
        "Tool error: invalid output: not valid JSON: ",
        "invalid_output",
    ),
    ("nan-text", "text", r#"printf '{"x":NaN}'"#, r#"{"x":NaN}"#, ""),
    ("empty-json", "json", ":", "Tool error: invalid output: not valid JSON: ", "invalid_output"),
    (
        "parts",
        "envelope",
        r#"printf '{"content":[{"type":"text","text":"one"},{"type":"image","mimeType":"image/png","data":"AAAA"},{"type":"text","text":"two"}]}'"#,
        "one\n[image image/png, 3 bytes]\ntwo",
        "",
    ),
    (
        "said-so",
        "envelope",
        r#"printf '{"content":[{"type":"text","text":"no seats"}],"isError":true}'"#,
        "Tool error: no seats",
        "tool_error",
    ),
    (
        "no-envelope",
        "envelope",
        "printf '[1]'",
        "Tool error: invalid output: expected an envelope",
        "invalid_output",
    ),
    (
        "latin",
        "text",
        r"printf 'caf\351'",
        "Tool error: invalid output: not valid UTF-8 at byte 3",
        "invalid_output",
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_is_read_as_it_was_declared_and_never_guessed() {
    let mut builder = fleet();
    for (name, form, script, ..) in READINGS {
        builder = with(builder, name, "", form, script);
    }
    let fleet = builder.start().await.unwrap();
    let names = READINGS.map(|(name, ..)| name);
    for ((name, _, _, text, code), result) in READINGS.iter().zip(call_all(&fleet, &names).await) {
        if text.ends_with(": ") || text.ends_with("envelope") {
            assert!(result.0.starts_with(text), "{name}: {}", result.0);
        } else {
            assert_eq!(result.0, *text, "{name}");
        }
        assert_eq!((result.1.as_str(), result.2), (*code, false), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_results_are_results_and_stay_apart() {
    let forms = [
        ("nothing", ":"),
        ("null", "printf null"),
        ("text", "printf '\"\"'"),
        ("list", "printf '[]'"),
        ("object", "printf '{}'"),
    ];
    let mut builder = fleet();
    for (name, script) in forms {
        builder = with(builder, &format!("{name}-as-text"), "", "text", script);
        if name != "nothing" {
            builder = with(builder, &format!("{name}-as-json"), "", "json", script);
        }
    }
    let builder = with(builder, "silent-failure", "", "", "exit 1");
    let fleet = builder.start().await.unwrap();
    let tools = [
        "nothing-as-text",
        "null-as-text",
        "text-as-text",
        "list-as-text",
        "object-as-text",
        "null-as-json",
        "text-as-json",
        "list-as-json",
        "object-as-json",
        "silent-failure",
    ];
    let results = call_all(&fleet, &tools).await;
    let texts: Vec<&str> = results.iter().map(|(text, ..)| text.as_str()).collect();
    let wanted = [
        "",
        "null",
        "\"\"",
        "[]",
        "{}",
        "null",
        "\"\"",
        "[]",
        "{}",
        "Tool error: exited with code 1",
    ];
    assert_eq!(texts, wanted);
    assert_eq!(results[9].1, "tool_error");
    assert!(results.iter().all(|(.., is_cut)| !is_cut));
    // A direct call gives the value itself where the output is JSON.
    let http = fleet.http(0).unwrap();
    for (tool, value) in [
        ("null-as-json", json!(null)),
        ("list-as-json", json!([])),
        ("list-as-text", json!("[]")),
        ("nothing-as-text", json!("")),
    ] {
        let answer = http.call(tool, json!({})).await.unwrap();
        assert_eq!(answer.body.get("result"), Some(&value), "{tool}: {}", answer.text);
    }
    // Anthropic takes no empty text: the block has none then, and is there all the same.
    let turn = http.get("/v1/executions/e/turns/t?format=anthropic").await.unwrap();
    let blocks = turn.body["messages"][0]["content"].as_array().unwrap();
    assert_eq!(
        (blocks.len(), blocks[0].get("content"), &blocks[0]["type"]),
        (10, None, &json!("tool_result"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_character_that_comes_in_two_halves_is_one() {
    let script = r"printf 'a\342'; sleep 0.3; printf '\202\254'; sleep 0.2; printf '\360\235'; sleep 0.2
printf '\204\236'";
    let fleet = with(fleet(), "halves", "", "", script).start().await.unwrap();
    assert_eq!(call_all(&fleet, &["halves"]).await, [("a€𝄞".to_owned(), String::new(), false)]);
}
