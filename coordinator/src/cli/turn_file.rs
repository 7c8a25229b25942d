//! `toolfleet turn FILE`: a provider's message in, its results shown.

mod show;

pub(crate) use show::render;

use super::calls::{Changes, is_done, live_rows, of_execution, one_line, text};
use super::exit;
use super::output::line;
use super::server::{Answer, Connection, Failed, Patience, ServerArgs};
use super::terminal::{Live, ROWS_MAX, Style, Target};
use crate::api::encode_segment;
use reqwest::{Method, StatusCode};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::io::Read as _;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;
use tokio::time::Instant;

/// Pause between two looks at the calls.
const LOOK_PAUSE: Duration = Duration::from_millis(250);
/// Pause before a question is asked again.
const AGAIN_PAUSE: Duration = Duration::from_millis(500);
/// A short turn is answered at once; a long one is read when it is done, so that a connection that
/// breaks costs nothing.
const PREFER: &str = "respond-async, wait=1";
/// How long one read of the turn waits for its results.
const WAIT_SECONDS: u64 = 20;
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
    /// The message's format, where it is not to be recognised: openai-chat, openai-responses,
    /// anthropic, gemini or native
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
    /// Calls that the execution had before: as long as the turn's name is not known, all others are
    /// taken for the turn's.
    before: HashSet<String>,
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
    let mut progress = Progress::new(is_json);
    let before = match &args.execution {
        Some(execution) if progress.is_shown => {
            let items = of_execution(&connection, execution).await.unwrap_or_default();
            items.iter().map(|item| text(item, "call").to_owned()).collect()
        }
        _ => HashSet::new(),
    };
    let submission = Submission {
        connection: &connection,
        execution: &execution,
        before,
        name: name.map_or_else(OnceLock::new, OnceLock::from),
    };
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
        Ok(answer) => print(&answer, &args, is_json),
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
        let prefer = [("prefer", PREFER)];
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
                // Calls that wait for a slot of their turn are not waited for.
                Ok(answer) if is_running(&answer) => {
                    patience.restore();
                    tokio::time::sleep(LOOK_PAUSE).await;
                }
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
            if !progress.is_shown {
                continue;
            }
            let asked = Instant::now();
            if let Ok(mut items) = of_execution(self.connection, self.execution).await {
                items.retain(|item| match self.name.get() {
                    Some(name) => text(item, "turn") == name,
                    None => !self.before.contains(text(item, "call")),
                });
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
            live.draw(&live_rows(items, self.style, ROWS_MAX));
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
fn print(answer: &Answer, args: &TurnArgs, is_json: bool) -> ExitCode {
    let value = answer.json();
    let calls = value["calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    let failed = calls.iter().filter(|call| call["isError"] == true).count();
    if is_json {
        line(&answer.text);
    } else {
        line(&show::render(&value, Style::of(Target::Out), args.full));
    }
    let has_failed = args.fail_on_error && failed > 0;
    if has_failed { ExitCode::from(exit::FAILED) } else { ExitCode::SUCCESS }
}

#[cfg(test)]
mod tests {
    use super::*;

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
