//! Executions: made once, read, listed, limited, finished.

use crate::asked::{SOON, fleet, message, nap, problem};
use crate::conversation::{answered, codes, contents, create, most_at_once, path, post_turn, read};
use serde_json::{Value, json};
use std::time::SystemTime;
use toolfleet_proto::name::CallName;
use toolfleet_tests::{Answer, Http, Ledger, until};

/// A message of so many naps, noted in one ledger.
pub fn naps(count: usize, ms: u64, ledger: &Ledger) -> Value {
    let input = nap(ms, ledger).to_string();
    let ids: Vec<String> = (0..count).map(|position| format!("c{position}")).collect();
    let calls: Vec<_> = ids.iter().map(|id| (id.as_str(), "nap", input.as_str())).collect();
    message(&calls)
}

async fn post(http: &Http, path: &str, body: Value) -> Answer {
    http.post(path, &body).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_execution_is_made_once_and_read_everywhere() {
    let fleet = fleet().coordinators(2).start().await.unwrap();
    let (first, second) = (fleet.http(0).unwrap(), fleet.http(1).unwrap());
    let wishes =
        json!({"id": "run 1", "threadId": "th", "labels": {"team": "b"}, "maxToolCalls": 9});
    create(&first, wishes.clone()).await;
    let again = post(&second, "/v1/executions", wishes.clone()).await;
    assert_eq!((again.status, &again.body["id"]), (200, &json!("run 1")), "{}", again.text);
    let mut other = wishes;
    other["maxToolCalls"] = json!(10);
    problem(&post(&second, "/v1/executions", other).await, 409, "execution_conflict");
    let record = read(&second, "run 1").await;
    for (key, value) in [
        ("state", json!("open")),
        ("threadId", json!("th")),
        ("labels", json!({"team": "b"})),
        ("maxToolCalls", json!(9)),
        ("maxParallelCalls", json!(16)),
        ("toolCallsUsed", json!(0)),
    ] {
        assert_eq!(record[key], value, "{key}: {record}");
    }
    let fresh = post(&first, "/v1/executions", json!({})).await;
    assert_eq!((fresh.status, &fresh.body["maxToolCalls"]), (201, &json!(500)), "{}", fresh.text);
    assert!(!fresh.body["id"].as_str().unwrap().is_empty());

    for (wishes, status, code) in [
        (json!({"maxToolCalls": 0}), 422, "limit_invalid"),
        (json!({"maxParallelCalls": 1_000}), 422, "limit_invalid"),
        (json!({"maxToolcalls": 1}), 400, "body_unreadable"),
        (json!({"actor": "somebody"}), 403, "act_for_forbidden"),
        (json!({"id": "x".repeat(129)}), 422, "id_invalid"),
    ] {
        problem(&post(&first, "/v1/executions", wishes).await, status, code);
    }
    for below in ["", "/calls", "/turns"] {
        let answer = second.get(&path("nobody", below)).await.unwrap();
        problem(&answer, 404, "execution_not_found");
    }
    for verb in ["/cancel", "/finish"] {
        problem(&post(&second, &path("nobody", verb), json!({})).await, 404, "execution_not_found");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_listed_in_order_with_their_states() {
    let fleet = fleet().coordinators(2).start().await.unwrap();
    let (first, second) = (fleet.http(0).unwrap(), fleet.http(1).unwrap());
    let ledger = fleet.ledger("list");
    let done = message(&[("a", "bench-echo", "{}"), ("b", "nab", "{}")]);
    contents(&first.turn("e", "one", &done).await.unwrap());
    let posted = post_turn(&first, "e", "two", &naps(2, 5_000, &ledger));
    until("both run", SOON, async || (ledger.starts().len() == 2).then_some(())).await.unwrap();
    let list = second.get(&path("e", "/calls")).await.unwrap();
    let items = list.body["items"].as_array().unwrap();
    let told: Vec<_> = items
        .iter()
        .map(|item| ["turn", "toolName", "state"].map(|key| item[key].as_str().unwrap_or_default()))
        .collect();
    let wanted = [
        ["one", "bench-echo", "done"],
        ["one", "nab", "done"],
        ["two", "nap", "running"],
        ["two", "nap", "running"],
    ];
    assert_eq!(told, wanted, "{}", list.text);
    assert_eq!(items[1]["code"], "tool_not_found");
    // Page by page it is the same list.
    let mut pages = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = second.get(&path("e", &format!("/calls?limit=3{cursor}"))).await.unwrap();
        pages
            .extend(page.body["items"].as_array().unwrap().iter().map(|item| item["call"].clone()));
        let Some(next) = page.body["nextCursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    let whole: Vec<Value> = items.iter().map(|item| item["call"].clone()).collect();
    assert_eq!(pages, whole);
    assert_eq!(contents(&answered(posted).await), ["1", "1"]);
    assert_eq!(read(&second, "e").await["toolCallsUsed"], 3, "a refused call is not counted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_over_the_limit_end_by_it_and_nothing_runs_later() {
    let fleet = fleet().coordinators(2).start().await.unwrap();
    let (first, second) = (fleet.http(0).unwrap(), fleet.http(1).unwrap());
    let ledger = fleet.ledger("limit");
    create(&first, json!({"id": "e", "maxToolCalls": 3})).await;
    let asked = naps(5, 10, &ledger);
    let answer = first.turn("e", "t", &asked).await.unwrap();
    let over = "Tool error: limit exceeded: 3 of 3 tool calls used";
    assert_eq!(contents(&answer), ["1", "1", "1", over, over]);
    assert_eq!(codes(&answer)[3..], ["limit_exceeded"; 2]);
    // The same turn again counts nothing and reads the same.
    let again = second.turn("e", "t", &asked).await.unwrap();
    assert_eq!(again.body["messages"], answer.body["messages"]);
    // Were its coordinator killed before the result was stored, the call would not run either.
    let prefix = fleet.broker().prefix();
    let name = CallName::of_turn("default", "e", "main", "t", "c4");
    fleet.broker().purge(&prefix.results_stream(), &prefix.result(&name)).await.unwrap();
    let again = second.turn("e", "t", &asked).await.unwrap();
    assert_eq!(again.body["messages"], answer.body["messages"]);
    let record = read(&second, "e").await;
    assert_eq!((&record["state"], &record["toolCallsUsed"]), (&json!("limit_exceeded"), &json!(3)));
    assert_eq!(record["raise"], "maxToolCalls", "{record}");
    let later = second.turn("e", "u", &naps(2, 10, &ledger)).await.unwrap();
    assert_eq!(contents(&later), [over, over]);
    assert_eq!(ledger.starts().len(), 3, "{:?}", ledger.lines());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_turns_at_once_share_one_limit() {
    let fleet = fleet().coordinators(2).start().await.unwrap();
    let ledger = fleet.ledger("shared");
    create(&fleet.http(0).unwrap(), json!({"id": "e", "maxToolCalls": 5})).await;
    let posted: Vec<_> = ["a", "b", "c", "d"]
        .iter()
        .enumerate()
        .map(|(at, turn)| post_turn(&fleet.http(at % 2).unwrap(), "e", turn, &naps(3, 10, &ledger)))
        .collect();
    let mut over = 0;
    for posted in posted {
        let codes = codes(&answered(posted).await);
        over += codes.iter().filter(|code| *code == "limit_exceeded").count();
    }
    assert_eq!((over, ledger.starts().len()), (7, 5), "{:?}", ledger.lines());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_calls_of_a_turn_run_at_once_than_allowed() {
    let fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    create(&http, json!({"id": "e", "maxParallelCalls": 2})).await;
    for (execution, most, ms) in [("e", 2, 700), ("free", 6, 4_000)] {
        let ledger = fleet.ledger(execution);
        let answer = http.turn(execution, "t", &naps(6, ms, &ledger)).await.unwrap();
        assert_eq!(contents(&answer), ["1"; 6]);
        assert_eq!(most_at_once(&ledger.lines()), most, "{execution}: {:?}", ledger.lines());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_allowed_tools_run_and_local_ones_are_left_to_the_loop() {
    let fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let ledger = fleet.ledger("allowed");
    let wishes = json!({"id": "e", "tools": ["bench-*", "big"], "localTools": ["ui_*"]});
    create(&http, wishes).await;
    let asked = message(&[
        ("a", "nap", &nap(1, &ledger).to_string()),
        ("b", "ui_show", "{}"),
        ("c", "bench-echo", r#"{"n":1}"#),
        ("d", "nab", "{}"),
    ]);
    let answer = http.turn("e", "t", &asked).await.unwrap();
    assert_eq!(codes(&answer), ["tool_forbidden", "", "tool_not_found"]);
    let contents = contents(&answer);
    assert!(contents[0].starts_with("Tool error: the tool nap is not allowed"), "{contents:?}");
    assert!(contents[0].ends_with("allowed: bench-echo, big"), "{contents:?}");
    assert_eq!(contents[1], r#"{"n":1}"#);
    let local = &answer.body["local"];
    assert_eq!((&local[0]["id"], &local[0]["name"]), (&json!("b"), &json!("ui_show")), "{local}");
    let direct = http.call_as("nap", "e", "direct", nap(1, &ledger)).await.unwrap();
    problem(&direct, 403, "tool_forbidden");
    assert!(ledger.lines().is_empty());
    // An envelope names local tools of one turn alone.
    let envelope =
        json!({"message": message(&[("x", "nap", "{}")]), "turn": "u", "localTools": ["nap"]});
    let answer = http.post(&path("e", "/turns"), &envelope).await.unwrap();
    assert_eq!(
        (&answer.body["messages"], &answer.body["local"][0]["id"]),
        (&json!([]), &json!("x"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finished_execution_runs_on_and_takes_nothing_new() {
    let fleet = fleet().coordinators(2).start().await.unwrap();
    let (first, second) = (fleet.http(0).unwrap(), fleet.http(1).unwrap());
    let ledger = fleet.ledger("finish");
    let posted = post_turn(&first, "e", "t", &naps(1, 1_500, &ledger));
    ledger.started(1, SOON).await.unwrap();
    let finished = post(&second, &path("e", "/finish"), json!({})).await;
    assert_eq!(
        (finished.status, &finished.body["state"]),
        (200, &json!("finished")),
        "{}",
        finished.text
    );
    let late = first.turn("e", "u", &naps(2, 10, &ledger)).await.unwrap();
    assert_eq!(contents(&late), ["Tool error: the execution is finished"; 2]);
    assert_eq!(codes(&late), ["cancelled"; 2]);
    assert_eq!(contents(&answered(posted).await), ["1"], "what ran goes on");
    let cancelled = post(&first, &path("e", "/cancel"), json!({"reason": "late"})).await;
    problem(&cancelled, 409, "execution_finished");
    let again = post(&second, &path("e", "/finish"), json!({})).await;
    assert_eq!((again.status, &again.body["state"]), (200, &json!("finished")));
    assert_eq!(ledger.starts().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_its_deadline_nothing_of_an_execution_runs() {
    let fleet = fleet().start().await.unwrap();
    let http = fleet.http(0).unwrap();
    let ledger = fleet.ledger("deadline");
    let past = post(&http, "/v1/executions", json!({"deadline": "tomorrow"})).await;
    assert_eq!(past.status, 422, "{}", past.text);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let deadline_ms = i64::try_from(now.as_millis()).unwrap() + 2_500;
    let deadline = toolfleet_proto::end::instant(deadline_ms);
    create(&http, json!({"id": "e", "deadline": deadline})).await;
    let answer = http.turn("e", "t", &naps(1, 20_000, &ledger)).await.unwrap();
    let text = &contents(&answer)[0];
    assert!(text.starts_with("Tool error: timed out: the deadline 20"), "{text}");
    assert!(text.ends_with("Z is over"), "{text}");
    assert_eq!(codes(&answer), ["timed_out"]);
    // The clocks of worker and coordinator differ by some milliseconds.
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let late = http.turn("e", "u", &naps(2, 10, &ledger)).await.unwrap();
    assert_eq!(codes(&late), ["timed_out"; 2]);
    assert!(contents(&late)[0].contains("the execution's deadline 20"), "{}", late.text);
    assert_eq!((ledger.starts().len(), ledger.ends().len()), (1, 0), "{:?}", ledger.lines());
}
