//! The loop's side of a conversation: executions made, messages posted, contents read.

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use toolfleet_tests::{Answer, Http, encode_segment};

/// A request that goes on beside the test.
pub type Posted = JoinHandle<anyhow::Result<Answer>>;

/// The script of an `exec` tool that notes its start and its end in the ledger of that name.
pub fn noting(ledger: &str, body: &str) -> String {
    format!(
        "ledger=\"$(dirname \"$0\")/../{ledger}.ledger\"\n\
         echo \"start $TOOLFLEET_ATTEMPT $$\" >>\"$ledger\"\n\
         {body}\n\
         echo \"end $TOOLFLEET_ATTEMPT $$\" >>\"$ledger\""
    )
}

/// Makes an execution.
pub async fn create(http: &Http, wishes: Value) {
    let answer = http.post("/v1/executions", &wishes).await.unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text);
}

/// Reads an execution.
pub async fn read(http: &Http, execution: &str) -> Value {
    let answer = http.get(&path(execution, "")).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body
}

/// Path of an execution, or of something below it.
pub fn path(execution: &str, below: &str) -> String {
    format!("/v1/executions/{}{below}", encode_segment(execution))
}

/// Path of a call, with a verb.
pub fn call_path(execution: &str, call: &str, verb: &str) -> String {
    format!("/v1/calls/{}/{}/{verb}", encode_segment(execution), encode_segment(call))
}

/// Posts a turn beside the test.
pub fn post_turn(http: &Http, execution: &str, turn: &str, message: &Value) -> Posted {
    let (http, message) = (http.clone(), message.clone());
    let (execution, turn) = (execution.to_owned(), turn.to_owned());
    tokio::spawn(async move { http.turn(&execution, &turn, &message).await })
}

/// What a model reads of each call of an OpenAI turn that is done.
#[track_caller]
pub fn contents(answer: &Answer) -> Vec<String> {
    assert_eq!((answer.status, &answer.body["state"]), (200, &json!("done")), "{}", answer.text);
    let messages = answer.body["messages"].as_array().unwrap();
    messages.iter().map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

/// The code of each call of a turn; empty where it ended well.
#[track_caller]
pub fn codes(answer: &Answer) -> Vec<String> {
    let calls = answer.body["calls"].as_array().unwrap_or_else(|| panic!("{}", answer.text));
    calls.iter().map(|call| call["code"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Most runs at the same time that a ledger's lines tell of.
pub fn most_at_once(lines: &[String]) -> usize {
    let (mut running, mut most) = (0_usize, 0);
    for line in lines {
        if line.starts_with("start") {
            running += 1;
            most = most.max(running);
        } else {
            running = running.saturating_sub(1);
        }
    }
    most
}

/// Waits for the answer of a turn that was posted beside the test.
pub async fn answered(posted: Posted) -> Answer {
    let answer = tokio::time::timeout(crate::asked::SOON, posted).await;
    answer.expect("the answer comes in time").unwrap().unwrap()
}
