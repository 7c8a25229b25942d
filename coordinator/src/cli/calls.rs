//! `toolfleet calls`, and how calls are read and shown by the commands that follow them.

use super::output::{line, table};
use super::server::{Connection, Failed, ServerArgs};
use super::terminal::{Style, Target};
use crate::api::encode_segment;
use crate::cancel::call_name;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::process::ExitCode;
use toolfleet_proto::unit;

/// Entries that one page is asked for.
const PAGE: usize = 500;

/// Arguments of `toolfleet calls`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CallsArgs {
    /// List this execution's calls, in order; without it those of any that are queued or run now
    execution: Option<String>,
    /// Only calls in this state: queued, running, waiting, done, or a code such as timed_out
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Only calls of this tool
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Only calls of this pool
    #[arg(long, value_name = "NAME", conflicts_with = "execution")]
    pool: Option<String>,
    /// Only calls submitted at least this long ago, such as 90s or 2m
    #[arg(long, value_name = "SPAN", conflicts_with = "execution")]
    older_than: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Runs the command.
pub(crate) async fn run(args: CallsArgs, is_json: bool) -> ExitCode {
    let connection = match args.server.connection() {
        Ok(connection) => connection,
        Err(code) => return code,
    };
    let listed = match &args.execution {
        Some(execution) => of_execution(&connection, execution).await,
        None => every_page(&connection, "/v1/calls", &query(&args)).await,
    };
    let mut items = match listed {
        Ok(items) => items,
        Err(failed) => return failed.complain(),
    };
    if args.execution.is_some() {
        items.retain(|item| fits(item, args.state.as_deref(), args.tool.as_deref()));
    }
    if is_json {
        line(&json!({"items": items, "nextCursor": null}).to_string());
    } else if items.is_empty() {
        line(if args.execution.is_some() { "no calls" } else { "no calls are queued or run" });
    } else if args.execution.is_some() {
        let rows: Vec<Vec<String>> = items.iter().map(ended_row).collect();
        table(&["KEY", "TOOL", "STATE", "ATTEMPTS", "QUEUED", "RAN"], &rows);
    } else {
        let rows: Vec<Vec<String>> = items.iter().map(open_row).collect();
        table(&["KEY", "TOOL", "POOL", "STATE", "AGE"], &rows);
    }
    ExitCode::SUCCESS
}

/// The filters, for the server.
fn query(args: &CallsArgs) -> String {
    let filters = [
        ("state", &args.state),
        ("tool", &args.tool),
        ("pool", &args.pool),
        ("olderThan", &args.older_than),
    ];
    let given = filters.iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
    given.map(|(name, value)| format!("&{name}={}", encode_segment(value))).collect()
}

/// Whether an execution's call passes the filters. Both `done` and the code of a done call name a state.
fn fits(item: &Value, state: Option<&str>, tool: Option<&str>) -> bool {
    state.is_none_or(|state| item["state"] == state || word(item) == state)
        && tool.is_none_or(|tool| item["toolName"] == tool)
}

/// All items of a list. `query`: further parameters, each with a `&` before it.
pub(crate) async fn every_page(
    connection: &Connection,
    path: &str,
    query: &str,
) -> Result<Vec<Value>, Failed> {
    let (mut items, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = connection.get(&format!("{path}?limit={PAGE}{query}{cursor}")).await?.json();
        items.extend(page["items"].as_array().into_iter().flatten().cloned());
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={}", encode_segment(next)),
            None => return Ok(items),
        }
    }
}

/// All calls of an execution, in order, each with its idempotency key.
pub(crate) async fn of_execution(
    connection: &Connection,
    execution: &str,
) -> Result<Vec<Value>, Failed> {
    let path = format!("/v1/executions/{}/calls", encode_segment(execution));
    let mut items = every_page(connection, &path, "").await?;
    for item in &mut items {
        if item["idempotencyKey"].as_str().is_none_or(str::is_empty) {
            let call = text(item, "call").to_owned();
            item["idempotencyKey"] = json!(call_name(execution, &call).idempotency_key());
        }
    }
    Ok(items)
}

/// A member that is text; empty where it is none.
pub(crate) fn text<'a>(item: &'a Value, key: &str) -> &'a str {
    item[key].as_str().unwrap_or_default()
}

/// A member that is a time in milliseconds, for people.
pub(crate) fn span(item: &Value, key: &str) -> String {
    unit::describe_ms(item[key].as_u64().unwrap_or(0))
}

/// Whether a call has its result.
pub(crate) fn is_done(item: &Value) -> bool {
    item["state"] == "done"
}

/// A call's state in one word: what it waits for, or how it ended.
pub(crate) fn word(item: &Value) -> &str {
    match (is_done(item), item["isError"] == true) {
        (false, _) => text(item, "state"),
        (true, false) => "ok",
        (true, true) => item["code"].as_str().unwrap_or("error"),
    }
}

/// A word in the colour of its meaning.
pub(crate) fn painted(item: &Value, word: &str, style: Style) -> String {
    match (is_done(item), item["isError"] == true) {
        (true, true) => style.red(word),
        (true, false) => style.green(word),
        (false, _) if item["state"] == "running" => style.yellow(word),
        (false, _) => style.dim(word),
    }
}

/// A call on one line.
pub(crate) fn one_line(item: &Value, style: Style) -> String {
    let ran =
        if is_done(item) { format!("{:>9}", span(item, "durationMs")) } else { " ".repeat(9) };
    let state = painted(item, &format!("{:<16}", word(item)), style);
    format!(
        "{state} {:<24} {ran}  {}",
        text(item, "toolName"),
        style.dim(text(item, "idempotencyKey"))
    )
}

/// Calls as rows, in order, for a place that holds so many. Where there are more, those that go on are
/// shown rather than those that failed, and these rather than those that ended well; the last row says
/// what is left out.
pub(crate) fn live_rows(items: &[Value], style: Style, rows_max: usize) -> Vec<String> {
    if items.len() <= rows_max {
        return items.iter().map(|item| one_line(item, style)).collect();
    }
    let mut by_rank: Vec<(u8, usize)> =
        items.iter().enumerate().map(|(position, item)| (rank(item), position)).collect();
    by_rank.sort_unstable();
    let left_out = by_rank.split_off(rows_max.saturating_sub(1).min(by_rank.len()));
    by_rank.sort_unstable_by_key(|(_, position)| *position);
    let mut rows: Vec<String> =
        by_rank.iter().map(|(_, position)| one_line(&items[*position], style)).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, position) in left_out {
        *counts.entry(word(&items[position])).or_default() += 1;
    }
    let counts: Vec<String> =
        counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    rows.push(style.dim(&format!("... and {}", counts.join(", "))));
    rows
}

/// What is shown first where not all has room.
fn rank(item: &Value) -> u8 {
    match (is_done(item), item["isError"] == true) {
        (false, _) if item["state"] == "running" => 0,
        (false, _) => 1,
        (true, true) => 2,
        (true, false) => 3,
    }
}

/// A call of the tenant's list.
fn open_row(item: &Value) -> Vec<String> {
    let cell = |key| text(item, key).to_owned();
    vec![
        cell("idempotencyKey"),
        cell("toolName"),
        cell("pool"),
        painted_cell(item),
        span(item, "ageMs"),
    ]
}

/// A call of an execution's list.
fn ended_row(item: &Value) -> Vec<String> {
    let if_done = |text: String| if is_done(item) { text } else { String::new() };
    vec![
        text(item, "idempotencyKey").to_owned(),
        text(item, "toolName").to_owned(),
        painted_cell(item),
        if_done(item["attempts"].to_string()),
        if_done(span(item, "queueMs")),
        if_done(span(item, "durationMs")),
    ]
}

fn painted_cell(item: &Value) -> String {
    painted(item, word(item), Style::of(Target::Out))
}

/// Finds what changed between two looks at the same calls.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    known: HashMap<String, String>,
}

impl Changes {
    /// The calls that are new or in another state than the last time.
    pub(crate) fn take<'a>(&mut self, items: &'a [Value]) -> Vec<&'a Value> {
        items
            .iter()
            .filter(|item| {
                let now = word(item).to_owned();
                self.known.insert(text(item, "call").to_owned(), now.clone()) != Some(now)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(code: Option<&str>) -> Value {
        json!({"call": "a", "state": "done", "isError": code.is_some(), "code": code, "toolName": "t"})
    }

    #[test]
    fn a_state_is_named_by_its_word_and_filtered_by_both() {
        assert_eq!(word(&done(None)), "ok");
        assert_eq!(word(&done(Some("timed_out"))), "timed_out");
        assert_eq!(word(&json!({"state": "queued"})), "queued");
        assert!(fits(&done(Some("timed_out")), Some("timed_out"), Some("t")));
        assert!(fits(&done(Some("timed_out")), Some("done"), None));
        assert!(!fits(&done(None), Some("running"), None));
        assert!(!fits(&done(None), None, Some("other")));
    }

    #[test]
    fn only_what_changed_is_told() {
        let mut changes = Changes::default();
        let queued = json!({"call": "a", "state": "queued"});
        assert_eq!(changes.take(std::slice::from_ref(&queued)).len(), 1);
        assert_eq!(changes.take(std::slice::from_ref(&queued)).len(), 0);
        let both = [done(None), json!({"call": "b", "state": "queued"})];
        assert_eq!(changes.take(&both).len(), 2);
        assert_eq!(changes.take(&both).len(), 0);
    }

    #[test]
    fn what_goes_on_is_shown_where_not_all_has_room() {
        let item = |call: &str, state: &str| json!({"state": state, "idempotencyKey": call});
        let items = [
            item("a", "done"),
            item("b", "queued"),
            item("c", "running"),
            item("d", "done"),
            item("e", "queued"),
        ];
        let style = Style::plain();
        assert_eq!(live_rows(&items, style, 5).len(), 5);
        let rows = live_rows(&items, style, 3);
        assert_eq!((rows.len(), rows[2].as_str()), (3, "... and 2 ok, 1 queued"));
        assert!(rows[0].ends_with(" b") && rows[1].ends_with(" c"), "{rows:?}");
    }

    #[test]
    fn filters_are_encoded() {
        let args = CallsArgs {
            execution: None,
            state: Some("running".into()),
            tool: Some("a&b".into()),
            pool: None,
            older_than: None,
            server: ServerArgs { server: String::new() },
        };
        assert_eq!(query(&args), "&state=running&tool=a%26b");
    }
}
