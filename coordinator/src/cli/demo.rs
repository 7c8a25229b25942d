//! `toolfleet demo`: one model message over a fleet of its own, every result printed and counted.

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

/// How long the fleet may take until it writes its ready file.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the whole turn may take.
const TURN_TIMEOUT: Duration = Duration::from_secs(120);
/// How long the fleet may take to end after its signal.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause between two looks at the ready file.
const PROBE_PAUSE: Duration = Duration::from_millis(50);
/// Lines of a result that are shown.
const SHOWN_LINES_MAX: usize = 6;
/// Characters of a line that are shown.
const SHOWN_LINE_CHARS_MAX: usize = 160;
/// Lines of the fleet's log that are shown after a failure.
const LOG_LINES_MAX: usize = 40;

/// Arguments of `toolfleet demo`.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoArgs {
    /// Folder of manifests to serve.
    #[arg(long, value_name = "DIR", default_value = "examples/tools")]
    pub tools: PathBuf,
    /// An assistant message of the OpenAI Chat Completions API, as JSON.
    #[arg(long, value_name = "FILE", default_value = "examples/turns/trip.openai.json")]
    pub message: PathBuf,
}

/// Starts a fleet, hands the message in, prints every result and ends the fleet.
///
/// The last line on standard output is `demo: N calls, N results, 0 lost`. Exit code 0 when every call
/// of the message has exactly one result, else 1 with the reason and the end of the fleet's log on
/// standard error. A signal ends the fleet as well.
pub async fn run(args: DemoArgs) -> ExitCode {
    match demonstrate(&args).await {
        Ok(tally) => {
            let line = format!("demo: {tally}\n");
            if print(&line).is_ok() && tally.is_whole() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr().lock(), "demo: failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn demonstrate(args: &DemoArgs) -> anyhow::Result<Tally> {
    let text = std::fs::read(&args.message)
        .with_context(|| format!("the message {} cannot be read", args.message.display()))?;
    let message: Value = serde_json::from_slice(&text)
        .with_context(|| format!("the message {} is not JSON", args.message.display()))?;
    let asked = asked_ids(&message)?;

    let folder = tempfile::Builder::new().prefix("toolfleet-demo-").tempdir()?;
    let log_path = folder.path().join("fleet.log");
    let mut fleet = start(&args.tools, folder.path(), &log_path)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let turn = async {
        let address = ready(&mut fleet, &folder.path().join("ready.json")).await?;
        print(&format!("demo: a coordinator and two workers at {address}\n"))?;
        post(&address, text).await
    };
    let answer = tokio::select! {
        answer = turn => answer,
        _ = terminate.recv() => Err(anyhow::anyhow!("stopped by a signal")),
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("stopped by a signal")),
    };
    let stopped = stop(fleet).await;
    let told = answer.and_then(|answer| {
        print(&render(&answer))?;
        stopped?;
        Ok(tally(&asked, &answer))
    });
    told.with_context(|| log_tail(&log_path))
}

/// Starts `toolfleet dev` from this very program, its output in the log file.
fn start(tools: &Path, folder: &Path, log_path: &Path) -> anyhow::Result<Child> {
    let log = std::fs::File::create(log_path)?;
    Command::new(std::env::current_exe()?)
        .args(["dev", "--listen", "127.0.0.1:0", "--workers", "2", "--tools"])
        .arg(tools)
        .arg("--ready-file")
        .arg(folder.join("ready.json"))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .context("toolfleet dev cannot be started")
}

/// Waits for the ready file and gives the address of the API in it.
async fn ready(fleet: &mut Child, ready_path: &Path) -> anyhow::Result<String> {
    let probe = async {
        loop {
            // A file that is only half written does not parse and is looked at again.
            let address = std::fs::read(ready_path)
                .ok()
                .and_then(|text| serde_json::from_slice::<Value>(&text).ok())
                .and_then(|ready| ready["http"].as_str().map(str::to_owned));
            if let Some(address) = address {
                return anyhow::Ok(address);
            }
            if let Some(status) = fleet.try_wait()? {
                bail!("the fleet ended before it was ready: {status}");
            }
            tokio::time::sleep(PROBE_PAUSE).await;
        }
    };
    match tokio::time::timeout(READY_TIMEOUT, probe).await {
        Ok(address) => address,
        Err(_) => bail!("the fleet was not ready within {} s", READY_TIMEOUT.as_secs()),
    }
}

async fn post(address: &str, message: Vec<u8>) -> anyhow::Result<Value> {
    // The fleet is on loopback; a proxy of the environment has no part in this.
    let client = reqwest::Client::builder().no_proxy().timeout(TURN_TIMEOUT).build()?;
    let response = client
        .post(format!("{address}/v1/executions/demo/turns"))
        .header("content-type", "application/json")
        .body(message)
        .send()
        .await
        .context("the turn could not be handed in")?;
    let status = response.status();
    let text = response.text().await.context("the answer to the turn broke off")?;
    if !status.is_success() {
        bail!("the turn was refused with {status}: {text}");
    }
    let answer: Value = serde_json::from_str(text.trim())
        .with_context(|| format!("the answer to the turn is not JSON: {text}"))?;
    if answer["state"] != "done" {
        bail!("the turn is not done but {}", answer["state"]);
    }
    Ok(answer)
}

/// Ends the fleet with TERM and waits; one that does not end in time is killed and reported.
async fn stop(mut fleet: Child) -> anyhow::Result<()> {
    let id = fleet.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let Some(id) = id else { return Ok(()) };
    kill_process(id, Signal::TERM).context("the fleet could not be told to end")?;
    match tokio::time::timeout(STOP_TIMEOUT, fleet.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => bail!("the fleet ended badly: {status}"),
        Ok(Err(error)) => Err(error).context("the end of the fleet could not be waited for"),
        Err(_) => {
            fleet.kill().await?;
            bail!("the fleet did not end within {} s and was killed", STOP_TIMEOUT.as_secs())
        }
    }
}

/// How the results of a turn fit the calls of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tally {
    calls: usize,
    results: usize,
    /// Calls without a result of their id.
    lost: usize,
}

impl Tally {
    /// Exactly one result a call.
    fn is_whole(self) -> bool {
        self.lost == 0 && self.results == self.calls
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} calls, {} results, {} lost", self.calls, self.results, self.lost)
    }
}

/// Ids of the calls of a message, in its order.
fn asked_ids(message: &Value) -> anyhow::Result<Vec<String>> {
    let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ids: Vec<String> =
        calls.iter().filter_map(|call| call["id"].as_str().map(str::to_owned)).collect();
    if ids.is_empty() || ids.len() != calls.len() {
        bail!("the message needs `tool_calls`, each with an `id`");
    }
    Ok(ids)
}

fn messages(answer: &Value) -> &[Value] {
    answer["messages"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn tally(asked: &[String], answer: &Value) -> Tally {
    let results: Vec<&str> = messages(answer)
        .iter()
        .filter(|message| message["role"] == "tool")
        .filter_map(|message| message["tool_call_id"].as_str())
        .collect();
    let lost = asked.iter().filter(|id| !results.contains(&id.as_str())).count();
    Tally { calls: asked.len(), results: results.len(), lost }
}

/// Every call of the answer: a line of facts, then the first lines of what the model reads.
fn render(answer: &Value) -> String {
    let calls = answer["calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut out = String::new();
    for (position, call) in calls.iter().enumerate() {
        let code =
            if call["isError"] == true { call["code"].as_str().unwrap_or("error") } else { "ok" };
        let attempts = call["attempts"].as_u64().unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "\n{}. {:<18} {:<14} {:>5} ms  {attempts} attempt{}",
            position + 1,
            call["toolName"].as_str().unwrap_or("?"),
            code,
            call["durationMs"].as_u64().unwrap_or_default(),
            if attempts == 1 { "" } else { "s" },
        );
        let content = messages(answer)
            .iter()
            .find(|message| message["tool_call_id"] == call["callId"])
            .and_then(|message| message["content"].as_str());
        match content {
            Some(content) => excerpt(&mut out, content),
            None => out.push_str("     (no result message)\n"),
        }
    }
    out.push('\n');
    out
}

/// The first lines of a text, indented, each cut to a width.
fn excerpt(out: &mut String, content: &str) {
    for line in content.lines().take(SHOWN_LINES_MAX) {
        let shown: String = line.chars().take(SHOWN_LINE_CHARS_MAX).collect();
        let mark = if shown.len() < line.len() { " ..." } else { "" };
        let _ = writeln!(out, "     {shown}{mark}");
    }
    let more = content.lines().count().saturating_sub(SHOWN_LINES_MAX);
    if more > 0 {
        let _ = writeln!(out, "     ({more} more lines)");
    }
}

/// The end of the fleet's log, which goes with the folder that it is in.
fn log_tail(log_path: &Path) -> String {
    let text = std::fs::read(log_path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines[lines.len().saturating_sub(LOG_LINES_MAX)..].join("\n");
    format!("the end of the fleet's log:\n{tail}\nand what went wrong")
}

fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ids(list: &[&str]) -> Vec<String> {
        list.iter().map(|id| (*id).to_owned()).collect()
    }

    fn answer(list: &[&str]) -> Value {
        let messages: Vec<Value> = list
            .iter()
            .map(|id| json!({"role": "tool", "tool_call_id": id, "content": format!("for {id}")}))
            .collect();
        json!({"state": "done", "messages": messages, "calls": []})
    }

    #[test]
    fn one_result_a_call_is_whole() {
        let tally = tally(&ids(&["a", "b"]), &answer(&["b", "a"]));
        assert_eq!(tally, Tally { calls: 2, results: 2, lost: 0 });
        assert!(tally.is_whole());
        assert_eq!(tally.to_string(), "2 calls, 2 results, 0 lost");
    }

    #[test]
    fn a_missing_a_doubled_and_a_foreign_result_are_not_whole() {
        let asked = ids(&["a", "b"]);
        assert_eq!(tally(&asked, &answer(&["a"])).lost, 1);
        assert!(!tally(&asked, &answer(&["a", "b", "b"])).is_whole());
        let foreign = tally(&asked, &answer(&["a", "x"]));
        assert_eq!((foreign.lost, foreign.is_whole()), (1, false));
        assert_eq!(tally(&asked, &json!({})).lost, 2);
    }

    #[test]
    fn a_message_without_calls_or_with_a_nameless_one_is_refused() {
        assert!(asked_ids(&json!({"role": "assistant", "content": "hello"})).is_err());
        assert!(asked_ids(&json!({"tool_calls": [{"id": "a"}, {"type": "function"}]})).is_err());
        assert_eq!(asked_ids(&json!({"tool_calls": [{"id": "a"}]})).unwrap(), ids(&["a"]));
    }

    #[test]
    fn the_example_message_has_calls() {
        let text = include_str!("../../../examples/turns/trip.openai.json");
        let asked = asked_ids(&serde_json::from_str(text).unwrap()).unwrap();
        assert!(asked.len() >= 5);
    }

    #[test]
    fn a_call_is_shown_with_its_facts_and_what_the_model_reads() {
        let mut answer = answer(&["a"]);
        answer["calls"] = json!([
            {"callId": "a", "toolName": "weather", "isError": true, "code": "invalid_input",
             "attempts": 0, "durationMs": 7},
            {"callId": "gone", "toolName": "weather", "isError": false, "attempts": 1, "durationMs": 8},
        ]);
        let shown = render(&answer);
        assert!(
            shown.contains(
                "1. weather            invalid_input      7 ms  0 attempts\n     for a\n"
            )
        );
        assert!(shown.contains(
            "2. weather            ok                 8 ms  1 attempt\n     (no result message)\n"
        ));
    }

    #[test]
    fn a_long_text_is_shown_by_its_first_lines() {
        let mut out = String::new();
        excerpt(&mut out, &format!("{}\n2\n3\n4\n5\n6\n7\n8", "é".repeat(200)));
        assert!(out.starts_with(&format!("     {} ...\n     2\n", "é".repeat(160))));
        assert!(out.ends_with("     6\n     (2 more lines)\n"));
    }
}
