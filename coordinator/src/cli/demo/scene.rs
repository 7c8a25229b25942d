//! The demo's scenes: turns played and watched, a worker killed, a call cancelled, spend and trace told.

use super::fleet::Ready;
use super::tally::Tally;
use crate::cli::calls::{Changes, is_done, live_rows, of_execution, one_line, text};
use crate::cli::output::line;
use crate::cli::server::{Connection, ServerArgs};
use crate::cli::terminal::{Live, ROWS_MAX, Style, Target};
use crate::cli::{trace, turn_file};
use anyhow::{Context as _, bail};
use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The demo's execution.
const EXECUTION: &str = "demo";
/// Pause between two looks at the calls.
const LOOK: Duration = Duration::from_millis(200);
/// How long a call that is waited for may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(15);

/// A message and what it says.
pub(super) struct Message {
    text: String,
    value: Value,
}

/// Where scenes are played.
#[derive(Clone)]
pub(super) struct Stage {
    connection: Connection,
    server: ServerArgs,
    style: Style,
    /// What the demo itself does while calls run, told among them.
    notes: Arc<Mutex<Vec<String>>>,
    trace_ids: Arc<Mutex<Vec<(String, String)>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stage {
    /// The stage of a fleet.
    pub(super) fn new(ready: &Ready, style: Style) -> anyhow::Result<Stage> {
        let server = ServerArgs { server: ready.http.clone() };
        let Ok(connection) = server.connection() else { bail!("no client for {}", ready.http) };
        Ok(Stage { connection, server, style, notes: Arc::default(), trace_ids: Arc::default() })
    }

    /// Reads a message.
    pub(super) fn message(path: &Path) -> anyhow::Result<Message> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("the message {} cannot be read", path.display()))?;
        let value = serde_json::from_str(&text)
            .with_context(|| format!("the message {} is not JSON", path.display()))?;
        Ok(Message { text, value })
    }

    /// Hands a message in, shows its calls as they go, then every result.
    pub(super) async fn play(&self, message: &Message, turn: &str) -> anyhow::Result<Tally> {
        let answer = {
            let mut watching = Watching::new(self.style);
            tokio::select! {
                answer = self.post(message, turn) => answer?,
                () = self.watch(turn, &mut watching) => bail!("the calls are not seen any more"),
            }
        };
        line(&turn_file::render(&answer, self.style, false));
        if let Some(id) = answer["calls"][0]["traceId"].as_str() {
            lock(&self.trace_ids).push((turn.to_owned(), id.to_owned()));
        }
        Ok(Tally::count(&message.value, &answer))
    }

    /// The same message under the same name: recorded results, byte for byte.
    pub(super) async fn play_again(&self, message: &Message, turn: &str) -> anyhow::Result<()> {
        let first = self.read(&format!("/v1/executions/{EXECUTION}/turns/{turn}")).await?;
        let again = self.post(message, turn).await?;
        if again["replayed"] != true || again["messages"] != first["messages"] {
            bail!("the turn was not replayed as it was");
        }
        let pays = again["calls"].as_array().into_iter().flatten();
        let attempts: u64 = pays
            .filter(|call| call["toolName"] == "pay-invoice")
            .filter_map(|call| call["attempts"].as_u64())
            .sum();
        line(&format!("   replayed; pay-invoice was started {attempts} time in all"));
        Ok(())
    }

    async fn post(&self, message: &Message, turn: &str) -> anyhow::Result<Value> {
        let path = format!("/v1/executions/{EXECUTION}/turns?turn={turn}");
        let asked = self.connection.ask(Method::POST, &path, Some(message.text.clone()), &[]).await;
        let Ok(answer) = asked else { bail!("the turn could not be handed in") };
        let value = answer.json();
        if !answer.status.is_success() || value["state"] != "done" {
            bail!("the turn was answered {}: {}", answer.status, answer.text);
        }
        Ok(value)
    }

    async fn read(&self, path: &str) -> anyhow::Result<Value> {
        match self.connection.get(path).await {
            Ok(answer) => Ok(answer.json()),
            Err(_) => bail!("{path} could not be read"),
        }
    }

    /// Shows the turn's calls as they go, for ever.
    async fn watch(&self, turn: &str, watching: &mut Watching) {
        loop {
            tokio::time::sleep(LOOK).await;
            if let Ok(mut items) = of_execution(&self.connection, EXECUTION).await {
                items.retain(|item| text(item, "turn") == turn);
                watching.show(&items, &lock(&self.notes));
            }
        }
    }

    fn note(&self, words: &str) {
        lock(&self.notes).push(self.style.yellow(&format!("   ! {words}")));
    }

    /// Kills the worker that writes the report, and cancels the call that would take a minute.
    pub(super) async fn meddle(self, _ready: Ready, turn: &'static str) -> anyhow::Result<()> {
        let (report, _) = self.running(turn, "market-report").await?;
        let worker = report["worker"].as_str().context("nobody runs the report")?.to_owned();
        let pid = worker
            .rsplit('-')
            .nth(1)
            .and_then(|pid| pid.parse::<i32>().ok())
            .and_then(Pid::from_raw);
        let pid = pid.context("the worker's name holds no process id")?;
        kill_process(pid, Signal::KILL).context("the worker could not be killed")?;
        self.note(&format!(
            "kill -9 of {worker}, which was writing the report: another worker takes it over"
        ));
        let (_, call) = self.running(turn, "watch-price").await?;
        let path = format!("/v1/calls/{EXECUTION}/{}/cancel", crate::api::encode_segment(&call));
        let body = json!({"reason": "the buyer has decided"}).to_string();
        let Ok(answer) = self.connection.ask(Method::POST, &path, Some(body), &[]).await else {
            bail!("the call could not be cancelled")
        };
        self.note(&format!("watch-price is cancelled: {}", text(&answer.json(), "answer")));
        Ok(())
    }

    /// Waits until a tool of the turn runs. Its state, and its call.
    async fn running(&self, turn: &str, tool: &str) -> anyhow::Result<(Value, String)> {
        let looking = async {
            loop {
                let items = of_execution(&self.connection, EXECUTION).await.unwrap_or_default();
                let of_turn =
                    |item: &&Value| text(item, "turn") == turn && text(item, "toolName") == tool;
                let call = items.iter().find(of_turn).map(|item| text(item, "call").to_owned());
                if let Some(call) = call {
                    let path =
                        format!("/v1/calls/{EXECUTION}/{}", crate::api::encode_segment(&call));
                    let state = self.read(&path).await?;
                    if state["state"] == "running" {
                        return anyhow::Ok((state, call));
                    }
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        match tokio::time::timeout(START_TIMEOUT, looking).await {
            Ok(found) => found,
            Err(_) => bail!("{tool} did not run within {} s", START_TIMEOUT.as_secs()),
        }
    }

    /// Tells the sums of what the execution spent.
    pub(super) async fn spend(&self) -> anyhow::Result<()> {
        let spend = self.read(&format!("/v1/spend?execution={EXECUTION}")).await?;
        for sum in spend["sums"].as_array().into_iter().flatten() {
            line(&format!(
                "   {:<16} {:<12} {:>8} {}  in {} records",
                text(sum, "toolName"),
                text(sum, "service"),
                text(sum, "amount"),
                text(sum, "currency"),
                sum["records"]
            ));
        }
        line("");
        Ok(())
    }

    /// Shows the trace of a turn as a tree.
    pub(super) async fn trace(&self, turn: &str) -> anyhow::Result<()> {
        let id =
            lock(&self.trace_ids).iter().find(|(name, _)| name == turn).map(|(_, id)| id.clone());
        let id = id.context("the turn has no trace")?;
        if trace::print(&self.server, &id, false).await.is_err() {
            bail!("the trace {id} could not be shown");
        }
        Ok(())
    }
}

/// What is shown while calls run: a list on a terminal, else a line for each change.
struct Watching {
    style: Style,
    live: Option<Live>,
    changes: Changes,
    notes_told: usize,
}

impl Watching {
    fn new(style: Style) -> Watching {
        let is_live = Target::Out.is_terminal();
        Watching {
            style,
            live: is_live.then(|| Live::new(Target::Out)),
            changes: Changes::default(),
            notes_told: 0,
        }
    }

    fn show(&mut self, items: &[Value], notes: &[String]) {
        if let Some(live) = &mut self.live {
            let mut rows = live_rows(items, self.style, ROWS_MAX - notes.len().min(4));
            rows.extend(notes.iter().cloned());
            live.draw(&rows);
            return;
        }
        for item in self.changes.take(items).into_iter().filter(|item| is_done(item)) {
            line(&format!("   {}", one_line(item, self.style)));
        }
        notes.iter().skip(self.notes_told).for_each(|note| line(note));
        self.notes_told = notes.len();
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        if let Some(live) = &mut self.live {
            live.clear();
        }
    }
}
