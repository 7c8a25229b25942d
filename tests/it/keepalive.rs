//! Turns as resources: read while they run, preferred not to be waited for, and kept alive for
//! clients that give up on silence.

use crate::asked::{SOON, fleet, message, nap, problem};
use crate::conversation::{answered, codes, contents, create, path, post_turn};
use crate::python::python;
use serde_json::{Value, json};
use std::process::Output;
use std::time::{Duration, Instant};
use tokio::process::Command;
use toolfleet_tests::{Builder, Http};

/// Posts a body to a URL with httpx and its default timeout of 5 s, and prints what came.
const HTTPX: &str = r"
import sys
import httpx2
headers = {'Content-Type': 'application/json'}
body = sys.stdin.buffer.read()
answer = httpx2.post(sys.argv[1], content=body, headers=headers, trust_env=False)
print(answer.status_code, answer.headers.get('toolfleet-turn'))
print(answer.json()['state'], len(answer.json()['messages']))
";

async fn fed(mut command: Command, body: &Value) -> Output {
    use std::process::Stdio;
    use tokio::io::AsyncWriteExt as _;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(body.to_string().as_bytes()).await.unwrap();
    drop(stdin);
    let output = tokio::time::timeout(Duration::from_secs(60), child.wait_with_output());
    output.await.expect("the client ends in time").unwrap()
}

#[track_caller]
fn printed(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// Reads an answer piece by piece: what came, and the longest silence.
async fn longest_silence(http: &Http, path: &str, body: &Value) -> (String, Duration) {
    let request = http
        .request(reqwest::Method::POST, path)
        .header("content-type", "application/json")
        .body(body.to_string());
    let mut last = Instant::now();
    let mut response = request.send().await.unwrap();
    let (mut text, mut longest) = (String::new(), last.elapsed());
    last = Instant::now();
    while let Some(piece) = response.chunk().await.unwrap() {
        longest = longest.max(last.elapsed());
        last = Instant::now();
        text.push_str(std::str::from_utf8(&piece).unwrap());
    }
    (text, longest)
}

/// Two coordinators, and leases that a busy machine keeps for as long as the calls here take.
fn patient() -> Builder {
    let fleet = fleet().coordinators(2).env("TOOLFLEET_LIMITS__LEASE_TTL", "6s");
    fleet.env("TOOLFLEET_LIMITS__ACK_WAIT", "8s")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_give_up_on_5_s_of_silence_see_a_turn_of_20_s_whole() {
    let python = tokio::task::spawn_blocking(python).await.unwrap();
    let fleet = patient().start().await.unwrap();
    let (first, second) = (fleet.http(0).unwrap(), fleet.http(1).unwrap());
    let ledger = fleet.ledger("long");
    let asked = message(&[("call_0", "nap", &nap(20_000, &ledger).to_string())]);
    // Calls that wait for each other: all of it lasts as long, and each for itself less.
    create(&first, json!({"id": "one-by-one", "maxParallelCalls": 1})).await;
    let seven = nap(7_000, &ledger).to_string();
    let one_by_one = message(&[("a", "nap", &seven), ("b", "nap", &seven), ("c", "nap", &seven)]);
    let url = |http: &Http, path: &str| format!("{}{path}", http.base());
    let (long, parted) = (path("e", "/turns?turn=long"), path("one-by-one", "/turns?turn=t"));

    let mut curl = Command::new("curl");
    curl.args(["-sS", "--noproxy", "*", "-D", "-", "-H", "Content-Type: application/json"]);
    curl.args(["--data-binary", "@-"]).arg(url(&second, &long));
    let httpx = |url: String| {
        python.as_ref().map(|python| {
            let mut command = Command::new(python);
            command.args(["-c", HTTPX]).arg(url);
            command
        })
    };
    let (one, two) = (httpx(url(&first, &long)), httpx(url(&second, &parted)));
    let maybe = async |command: Option<Command>, body: &Value| match command {
        Some(command) => Some(fed(command, body).await),
        None => None,
    };
    let (curl, one, two, (text, silence), (parted_text, parted_silence)) = tokio::join!(
        fed(curl, &asked),
        maybe(one, &asked),
        maybe(two, &one_by_one),
        longest_silence(&first, &long, &asked),
        longest_silence(&first, &parted, &one_by_one),
    );
    for (text, silence, calls) in [(&text, silence, 1), (&parted_text, parted_silence, 3)] {
        assert!(silence < Duration::from_millis(4_900), "{silence:?} without a byte");
        assert!(text.starts_with("   "), "spaces come first: {text:?}");
        let body: Value = serde_json::from_str(text).unwrap();
        assert_eq!(
            (&body["state"], body["messages"].as_array().unwrap().len()),
            (&json!("done"), calls)
        );
    }
    if let (Some(one), Some(two)) = (one, two) {
        assert_eq!(printed(&one), "200 long\ndone 1\n");
        assert_eq!(printed(&two), "200 t\ndone 3\n");
    }
    let curl = printed(&curl);
    let (head, body) = curl.split_once("\r\n\r\n").unwrap();
    let head = head.to_lowercase();
    assert!(head.starts_with("http/1.1 200"), "{head}");
    for name in ["toolfleet-execution: e", "toolfleet-turn: long", "traceresponse: 00-"] {
        assert!(head.contains(name), "{name} is missing: {head}");
    }
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["messages"][0]["content"], "1");
    assert_eq!(ledger.starts().len(), 4, "each call has run once: {:?}", ledger.lines());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_is_read_through_any_coordinator_while_it_runs_and_after() {
    let fleet = patient().start().await.unwrap();
    let (first, second) = (fleet.http(0).unwrap(), fleet.http(1).unwrap());
    let ledger = fleet.ledger("turn");
    let input = nap(2_500, &ledger).to_string();
    let asked =
        message(&[("a", "nap", &input), ("b", "bench-echo", r#"{"n":1}"#), ("c", "nab", "{}")]);
    let missing = second.get(&path("e", "/turns/t")).await.unwrap();
    problem(&missing, 404, "turn_not_found");
    let posted = post_turn(&first, "e", "t", &asked);
    ledger.started(1, SOON).await.unwrap();
    let during = second.get(&path("e", "/turns/t")).await.unwrap();
    assert_eq!((during.status, &during.body["state"]), (200, &json!("running")), "{}", during.text);
    assert_eq!(during.body.get("messages"), None, "{}", during.text);
    assert_eq!(
        (&during.body["turn"], &during.body["format"]),
        (&json!("t"), &json!("openai-chat"))
    );
    assert_eq!(during.body["calls"][0]["state"], "running", "{}", during.text);

    let waited = second.get(&path("e", "/turns/t?wait=20")).await.unwrap();
    let posted = answered(posted).await;
    assert_eq!(contents(&waited), contents(&posted));
    assert_eq!(waited.body["messages"], posted.body["messages"]);
    assert_eq!(codes(&waited), ["", "", "tool_not_found"]);
    let other = second.get(&path("e", "/turns/t?format=anthropic")).await.unwrap();
    let blocks = other.body["messages"][0]["content"].as_array().unwrap();
    assert_eq!(blocks.len(), 3, "{}", other.text);
    assert_eq!(
        (&blocks[0]["type"], &blocks[0]["tool_use_id"]),
        (&json!("tool_result"), &json!("a"))
    );
    assert_eq!(
        (&blocks[0]["content"][0]["text"], &blocks[2]["is_error"]),
        (&json!("1"), &json!(true))
    );
    let list = second.get(&path("e", "/turns")).await.unwrap();
    assert_eq!(
        (&list.body["items"][0]["turn"], &list.body["nextCursor"]),
        (&json!("t"), &json!(null))
    );
    assert_eq!(ledger.starts().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_prefers_not_to_wait_is_told_where_the_result_will_be() {
    let fleet = patient().start().await.unwrap();
    let (first, second) = (fleet.http(0).unwrap(), fleet.http(1).unwrap());
    let ledger = fleet.ledger("preferred");
    let prefer = async |path: &str, prefer: &str, body: &Value| {
        let request = first
            .request(reqwest::Method::POST, path)
            .header("content-type", "application/json")
            .header("prefer", prefer)
            .body(body.to_string());
        first.send(request).await.unwrap()
    };
    let header = |answer: &toolfleet_tests::Answer, name: &str| {
        answer
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    let slow = message(&[("a", "nap", &nap(8_000, &ledger).to_string())]);
    let since = Instant::now();
    let answer = prefer(&path("e", "/turns?turn=t"), "respond-async, wait=1", &slow).await;
    assert!(since.elapsed() < Duration::from_secs(6), "{:?}", since.elapsed());
    assert_eq!((answer.status, &answer.body["state"]), (202, &json!("running")), "{}", answer.text);
    assert_eq!(header(&answer, "preference-applied"), "respond-async, wait=1");
    assert_eq!(header(&answer, "location"), "/v1/executions/e/turns/t");
    let later = second.get(&format!("{}?wait=20", header(&answer, "location"))).await.unwrap();
    assert_eq!(contents(&later), ["1"]);

    let input = json!({"input": nap(3_000, &ledger), "executionId": "e", "callId": "c 1"});
    let answer = prefer("/v1/tools/nap/call", "respond-async", &input).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    assert_eq!(header(&answer, "preference-applied"), "respond-async");
    let later = second.get(&format!("{}?wait=20", header(&answer, "location"))).await.unwrap();
    assert_eq!((&later.body["state"], &later.body["result"]), (&json!("done"), &json!(1)));
    // What comes in time is answered as always.
    let quick = message(&[("a", "bench-echo", "{}")]);
    let answer = prefer(&path("e", "/turns?turn=u"), "respond-async, wait=20", &quick).await;
    assert_eq!(contents(&answer), ["{}"]);
    assert_eq!(ledger.starts().len(), 2);
}
