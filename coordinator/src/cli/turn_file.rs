//! `toolfleet turn FILE`: a provider's message in, its results shown.

use super::calls::{Changes, is_done, of_execution, one_line, painted, span, text, word};
use super::exit;
use super::output::line;
use super::server::{Answer, Connection, Failed, Patience, ServerArgs};
use super::terminal::{Live, Style, Target};
use crate::api::encode_segment;
use reqwest::{Method, StatusCode};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::io::Read as _;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;
use tokio::time::Instant;

/// Pause between two looks at the calls.
const LOOK_PAUSE: Duration = Duration::from_millis(250);
/// Pause before a question is asked again.
const AGAIN_PAUSE: Duration = Duration::from_millis(500);
/// How long one read of the turn waits for its results.
const WAIT_SECONDS: u64 = 20;
/// Lines of a result that are shown.
const LINES_MAX: usize = 6;
/// Characters of a line that are shown.
const LINE_CHARS_MAX: usize = 160;
/// As a shell tells an end by Ctrl-C.
const EXIT_INTERRUPTED: u8 = 130;

/// Arguments of `toolfleet turn`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TurnArgs {
    /// File with a provider's message that asks for tools, as JSON; `-` reads standard input
    file: String,
    /// Execution that the turn belongs to; without it a fresh one
    #[arg(long, value_name = "ID")]
    execution: Option<String>,
    /// Names the turn: the same name again attaches to it and runs nothing twice
    #[arg(long, value_name = "NAME")]
    turn: Option<String>,
    /// The message's format, where it is not to be recognised, such as openai-chat or anthropic
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,
    /// Show all of each result
    #[arg(long)]
    full: bool,
    /// End with exit code 1 where a call failed
    #[arg(long)]
    fail_on_error: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// The message as text that is JSON.
fn read_message(file: &str) -> Result<String, String> {
    let (name, read) = if file == "-" {
        let mut text = String::new();
        ("standard input", std::io::stdin().read_to_string(&mut text).map(|_| text))
    } else {
        (file, std::fs::read_to_string(file))
    };
    let text = read.map_err(|error| format!("{name}: {error}"))?;
    match serde_json::from_str::<&RawValue>(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(format!(
            "{name} is not JSON: {error}; give a provider's assistant message as it came"
        )),
    }
}

/// A turn that is handed in and waited for.
struct Submission<'a> {
    connection: &'a Connection,
    execution: &'a str,
    /// Whether every call of the execution is this turn's.
    is_fresh: bool,
    /// Its name, once it is known.
    name: OnceLock<String>,
}

/// Runs the command.
pub(crate) async fn run(args: TurnArgs, is_json: bool) -> ExitCode {
    let message = match read_message(&args.file) {
        Ok(message) => message,
        Err(told) => return exit::complain(&told, exit::USAGE),
    };
    let connection = match args.server.connection() {
        Ok(connection) => connection,
        Err(code) => return code,
    };
    let execution = args.execution.clone().unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    if !is_json {
        line(&format!("execution {execution}"));
    }
    let name = args.turn.clone().filter(|name| name != "new");
    let submission = Submission {
        connection: &connection,
        execution: &execution,
        is_fresh: args.execution.is_none(),
        name: name.map_or_else(OnceLock::new, OnceLock::from),
    };
    let mut progress = Progress::new(is_json);
    let answer = tokio::select! {
        answer = submission.finish(&args, message) => answer,
        () = submission.follow(&mut progress) => return ExitCode::FAILURE,
        _ = tokio::signal::ctrl_c() => {
            progress.clear();
            let told = format!(
                "not waiting any more; the calls go on: `toolfleet watch {execution}` shows them, \
                 `toolfleet cancel {execution}` ends them"
            );
            return exit::complain(&told, EXIT_INTERRUPTED);
        }
    };
    progress.clear();
    match answer {
        Ok(answer) => show(&answer, &args, is_json),
        Err(failed) => {
            let code = failed.complain();
            // It may have been taken in: the same names attach to it.
            if failed.is_passing() {
                let turn =
                    submission.name.get().map(|name| format!(" --turn {name}")).unwrap_or_default();
                Target::Err
                    .write(&format!("  the same turn again: --execution {execution}{turn}\n"));
            }
            code
        }
    }
}

impl Submission<'_> {
    /// Hands the message in and waits for the turn's answer.
    async fn finish(&self, args: &TurnArgs, message: String) -> Result<Answer, Failed> {
        let asked = [("turn", &args.turn), ("format", &args.format)];
        let given = asked.iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
        let query: Vec<String> =
            given.map(|(name, value)| format!("{name}={}", encode_segment(value))).collect();
        let path =
            format!("/v1/executions/{}/turns?{}", encode_segment(self.execution), query.join("&"));
        let prefer = [("prefer", "respond-async, wait=0")];
        let posted = self.connection.ask(Method::POST, &path, Some(message), &prefer).await;
        let answer = posted.map_err(Failed::Unreachable)?;
        if let Some(name) = answer.json()["turn"].as_str() {
            let _ = self.name.set(name.to_owned());
        }
        match answer.status {
            status if !status.is_success() => Err(Failed::Refused(answer)),
            StatusCode::ACCEPTED => self.result().await,
            _ if is_running(&answer) => self.result().await,
            _ => Ok(answer),
        }
    }

    /// Reads the turn until it does not run any more.
    async fn result(&self) -> Result<Answer, Failed> {
        let name = self.name.get().map_or("", String::as_str);
        let path = format!(
            "/v1/executions/{}/turns/{}?wait={WAIT_SECONDS}",
            encode_segment(self.execution),
            encode_segment(name)
        );
        let mut patience = Patience::default();
        loop {
            match self.connection.get(&path).await {
                Ok(answer) if is_running(&answer) => patience.restore(),
                Ok(answer) => return Ok(answer),
                Err(failed) if patience.bears(&failed, Instant::now()) => {
                    tokio::time::sleep(AGAIN_PAUSE).await;
                }
                Err(failed) => return Err(failed),
            }
        }
    }

    /// Shows the calls as they go, for ever. A look that fails shows nothing: the answer tells.
    async fn follow(&self, progress: &mut Progress) {
        loop {
            tokio::time::sleep(LOOK_PAUSE).await;
            if !progress.is_shown || !(self.is_fresh || self.name.get().is_some()) {
                continue;
            }
            let asked = Instant::now();
            if let Ok(mut items) = of_execution(self.connection, self.execution).await {
                if let Some(name) = self.name.get() {
                    items.retain(|item| text(item, "turn") == name);
                }
                progress.show(&items);
            }
            tokio::time::sleep(asked.elapsed()).await;
        }
    }
}

fn is_running(answer: &Answer) -> bool {
    answer.json()["state"] == "running"
}

/// What is shown while it runs: a list on a terminal, else a line as each call ends. On standard
/// error, so that standard output holds the results and nothing else.
struct Progress {
    is_shown: bool,
    style: Style,
    live: Option<Live>,
    changes: Changes,
}

impl Progress {
    fn new(is_json: bool) -> Progress {
        let is_live = Target::Err.is_terminal();
        Progress {
            is_shown: is_live || !is_json,
            style: Style::of(Target::Err),
            live: is_live.then(|| Live::new(Target::Err)),
            changes: Changes::default(),
        }
    }

    fn show(&mut self, items: &[Value]) {
        if let Some(live) = &mut self.live {
            let rows: Vec<String> = items.iter().map(|item| one_line(item, self.style)).collect();
            live.draw(&rows);
            return;
        }
        for item in self.changes.take(items).into_iter().filter(|item| is_done(item)) {
            Target::Err.write(&format!("{}\n", one_line(item, self.style)));
        }
    }

    fn clear(&mut self) {
        if let Some(live) = &mut self.live {
            live.clear();
        }
    }
}

/// Prints the answer; the exit code for it.
fn show(answer: &Answer, args: &TurnArgs, is_json: bool) -> ExitCode {
    let value = answer.json();
    let calls = value["calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    let failed = calls.iter().filter(|call| call["isError"] == true).count();
    if is_json {
        line(&answer.text);
    } else {
        line(&render(&value, Style::of(Target::Out), args.full));
    }
    let has_failed = args.fail_on_error && failed > 0;
    if has_failed { ExitCode::from(exit::FAILED) } else { ExitCode::SUCCESS }
}

/// What the model reads of each call, in call order: the messages say it in the provider's form.
fn contents(answer: &Value) -> Vec<String> {
    let messages = answer["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let results = messages.iter().flat_map(|message| {
        match (&message["role"], message["content"].as_array()) {
            (role, Some(blocks)) if role == "user" => blocks.iter().collect(),
            _ => vec![message],
        }
    });
    results.map(|result| content(&result["content"])).collect()
}

/// A content that is a string, or blocks of text.
fn content(value: &Value) -> String {
    match value.as_array() {
        None => value.as_str().unwrap_or_default().to_owned(),
        Some(blocks) => blocks.iter().map(|block| text(block, "text")).collect(),
    }
}

/// Every call in order: a line of facts, then what the model reads; at last how many ended how.
fn render(answer: &Value, style: Style, is_full: bool) -> String {
    let calls = answer["calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    let contents = contents(answer);
    let mut rows = Vec::new();
    for (position, call) in calls.iter().enumerate() {
        // The answer's entries have no state: they have all ended.
        let mut call = call.clone();
        call["state"] = json!("done");
        let attempts = call["attempts"].as_u64().unwrap_or_default();
        rows.push(format!(
            "\n{}. {:<20} {} {:>9}  {attempts} attempt{}  {}",
            position + 1,
            text(&call, "toolName"),
            painted(&call, &format!("{:<16}", word(&call)), style),
            span(&call, "durationMs"),
            if attempts == 1 { "" } else { "s" },
            style.dim(text(&call, "idempotencyKey")),
        ));
        rows.extend(excerpt(contents.get(position).map_or("", String::as_str), is_full));
    }
    for call in answer["local"].as_array().into_iter().flatten() {
        rows.push(format!("\nleft to the loop: {} {}", text(call, "name"), text(call, "id")));
    }
    let failed = calls.iter().filter(|call| call["isError"] == true).count();
    let replayed = if answer["replayed"] == true { ", some of them recorded before" } else { "" };
    rows.push(format!(
        "\nturn {}: {} calls, {} ok, {failed} failed{replayed}",
        text(answer, "turn"),
        calls.len(),
        calls.len() - failed,
    ));
    rows.join("\n")
}

/// A text, indented: all of it, or its first lines, each cut to a width.
fn excerpt(content: &str, is_full: bool) -> Vec<String> {
    let (lines_max, chars_max) =
        if is_full { (usize::MAX, usize::MAX) } else { (LINES_MAX, LINE_CHARS_MAX) };
    let mut rows: Vec<String> = content
        .lines()
        .take(lines_max)
        .map(|row| {
            let shown: String = row.chars().take(chars_max).collect();
            let mark = if shown.len() < row.len() { " ..." } else { "" };
            format!("     {shown}{mark}")
        })
        .collect();
    let more = content.lines().count().saturating_sub(lines_max);
    if more > 0 {
        rows.push(format!("     ({more} more lines; --full shows them)"));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls() -> Value {
        json!([
            {"callId": "a", "toolName": "weather", "isError": false, "attempts": 1, "durationMs": 12},
            {"callId": "b", "toolName": "refund", "isError": true, "code": "timed_out", "attempts": 2, "durationMs": 1500},
        ])
    }

    #[test]
    fn what_the_model_reads_is_found_in_both_formats() {
        let openai = json!({"messages": [
            {"role": "tool", "tool_call_id": "a", "content": "sun"},
            {"role": "tool", "tool_call_id": "b", "content": "Tool error: no"},
        ]});
        let anthropic = json!({"messages": [{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "sun"}]},
            {"type": "tool_result", "tool_use_id": "b", "is_error": true,
             "content": [{"type": "text", "text": "Tool error: no"}]},
        ]}]});
        assert_eq!(contents(&openai), ["sun", "Tool error: no"]);
        assert_eq!(contents(&anthropic), ["sun", "Tool error: no"]);
        assert!(contents(&json!({})).is_empty());
    }

    #[test]
    fn every_call_is_shown_in_order_with_its_facts() {
        let answer = json!({"turn": "t", "calls": calls(), "messages": [
            {"role": "tool", "content": "sun"}, {"role": "tool", "content": "Tool error: no"},
        ], "local": [{"id": "c", "name": "ask_user"}]});
        let style = Style::of(Target::Out);
        let shown = render(&answer, style, false);
        let (first, second) = (shown.find("1. weather").unwrap(), shown.find("2. refund").unwrap());
        assert!(first < second);
        assert!(shown.contains("1.5 s  2 attempts") && shown.contains("timed_out"), "{shown}");
        assert!(shown.contains("\n     Tool error: no\n"), "{shown}");
        assert!(shown.contains("left to the loop: ask_user c"));
        assert!(shown.ends_with("turn t: 2 calls, 1 ok, 1 failed"));
    }

    #[test]
    fn a_long_text_is_cut_unless_all_is_asked_for() {
        let long = format!("{}\n2\n3\n4\n5\n6\n7\n8", "é".repeat(200));
        let cut = excerpt(&long, false);
        assert_eq!((cut.len(), cut[6].as_str()), (7, "     (2 more lines; --full shows them)"));
        assert!(cut[0].ends_with("é ..."));
        let full = excerpt(&long, true);
        assert_eq!((full.len(), full[0].chars().count()), (8, 205));
    }

    #[test]
    fn a_message_must_be_json() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.json");
        std::fs::write(&path, "{nonsense").unwrap();
        let path = path.display().to_string();
        assert!(read_message(&path).unwrap_err().contains("is not JSON"));
        assert!(read_message("/none/such").unwrap_err().contains("/none/such"));
    }
}
