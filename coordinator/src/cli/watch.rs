//! `toolfleet watch EXECUTION`.

use super::calls::{Changes, is_done, live_rows, of_execution, one_line, text};
use super::output::line;
use super::server::{Connection, Failed, Patience, ServerArgs};
use super::terminal::{Live, ROWS_MAX, Style, Target};
use crate::api::encode_segment;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(500);
/// A look that takes long makes the pause this many times as long: watching is not to load the fleet.
const PAUSE_FACTOR: u32 = 4;

/// Arguments of `toolfleet watch`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WatchArgs {
    /// The execution
    execution: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// An execution as it stands.
struct Look {
    state: String,
    items: Vec<Value>,
}

impl Look {
    /// Whether nothing can change any more.
    fn is_over(&self) -> bool {
        self.state != "open" && self.items.iter().all(is_done)
    }
}

async fn look(connection: &Connection, execution: &str) -> Result<Look, Failed> {
    let path = format!("/v1/executions/{}", encode_segment(execution));
    let record = connection.get(&path).await?.json();
    let items = of_execution(connection, execution).await?;
    Ok(Look { state: text(&record, "state").to_owned(), items })
}

/// Runs the command until nothing can change any more, or Ctrl-C.
pub(crate) async fn run(args: WatchArgs, is_json: bool) -> ExitCode {
    let connection = match args.server.connection() {
        Ok(connection) => connection,
        Err(code) => return code,
    };
    tokio::select! {
        ended = watch(&connection, &args.execution, is_json) => match ended {
            Ok(()) => ExitCode::SUCCESS,
            Err(failed) => failed.complain(),
        },
        _ = tokio::signal::ctrl_c() => ExitCode::SUCCESS,
    }
}

async fn watch(connection: &Connection, execution: &str, is_json: bool) -> Result<(), Failed> {
    let mut view = View::new(execution, is_json);
    let (mut patience, mut has_seen) = (Patience::default(), false);
    loop {
        let asked = Instant::now();
        match look(connection, execution).await {
            Ok(now) => {
                patience.restore();
                has_seen = true;
                view.show(&now);
                if now.is_over() {
                    return Ok(());
                }
            }
            // One that was there is there again in a moment.
            Err(failed) if has_seen && patience.bears(&failed, Instant::now()) => {}
            Err(failed) => return Err(failed),
        }
        tokio::time::sleep(PAUSE.max(asked.elapsed() * PAUSE_FACTOR)).await;
    }
}

/// What is shown of it.
struct View {
    execution: String,
    is_json: bool,
    style: Style,
    live: Option<Live>,
    changes: Changes,
    state: String,
}

impl View {
    fn new(execution: &str, is_json: bool) -> View {
        let is_live = !is_json && Target::Out.is_terminal();
        View {
            execution: execution.to_owned(),
            is_json,
            style: Style::of(Target::Out),
            live: is_live.then(|| Live::new(Target::Out)),
            changes: Changes::default(),
            state: String::new(),
        }
    }

    fn show(&mut self, now: &Look) {
        let has_new_state = self.state != now.state;
        self.state.clone_from(&now.state);
        if let Some(live) = &mut self.live {
            let mut rows = vec![headline(&self.execution, now, self.style)];
            rows.extend(live_rows(&now.items, self.style, ROWS_MAX - 1));
            live.draw(&rows);
            return;
        }
        for item in self.changes.take(&now.items) {
            if self.is_json {
                let mut change = item.clone();
                change["executionId"] = json!(self.execution);
                line(&change.to_string());
            } else {
                line(&one_line(item, self.style));
            }
        }
        if has_new_state && self.is_json {
            line(&json!({"executionId": self.execution, "executionState": now.state}).to_string());
        } else if has_new_state {
            line(&format!("execution {} is {}", self.execution, now.state));
        }
    }
}

fn headline(execution: &str, now: &Look, style: Style) -> String {
    let done = now.items.iter().filter(|item| is_done(item)).count();
    let total = now.items.len();
    format!("{} is {}: {done} of {total} calls ended", style.bold(execution), now.state)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(state: &str, calls: &[&str]) -> Look {
        let items = calls.iter().map(|state| json!({"call": "a", "state": state}));
        Look { state: state.into(), items: items.collect() }
    }

    #[test]
    fn it_is_over_when_all_have_ended_and_no_more_can_come() {
        assert!(look("finished", &["done", "done"]).is_over());
        assert!(look("cancelled", &[]).is_over());
        assert!(!look("finished", &["done", "running"]).is_over());
        assert!(!look("open", &["done"]).is_over());
    }
}
