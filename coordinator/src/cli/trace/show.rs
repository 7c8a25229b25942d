//! A trace for people: a tree with a bar of time beside it.

use super::tree::{Row, rows};
use crate::api::traces::{Span, Trace};
use serde_json::Value;
use std::collections::HashMap;
use toolfleet_io::telemetry::names;

/// Levels that are drawn; deeper ones stand at the last of them.
const DEPTH_DRAWN_MAX: usize = 16;
/// Widths of columns, in characters.
const NAME_MIN: usize = 24;
const CELL_MAX: usize = 24;
const BAR_MIN: usize = 10;
const BAR_MAX: usize = 60;
const HEAD: [&str; 7] = ["SPAN", "SERVICE", "START", "TIME", "ATTEMPT", "WORKER", "NOTE"];

/// The lines of a trace for a terminal of `width` characters. What came from other processes is shown
/// without control characters.
pub(super) fn lines(trace: &Trace, width: usize) -> Vec<String> {
    let rows = rows(&trace.spans);
    let start_us = trace.spans.iter().map(|span| span.start_us).min().unwrap_or(0);
    let end_us = trace.spans.iter().map(end_us).max().unwrap_or(0);
    let total_us = end_us.saturating_sub(start_us);
    let mut lines = vec![format!(
        "trace {}: {} {} in {}",
        clean(&trace.trace_id),
        trace.spans.len(),
        if trace.spans.len() == 1 { "span" } else { "spans" },
        duration(total_us)
    )];
    if trace.spans_dropped > 0 {
        lines.push(format!("{} more spans did not fit and were dropped", trace.spans_dropped));
    }
    let by_id: HashMap<&str, &Span> =
        trace.spans.iter().map(|span| (span.span_id.as_str(), span)).collect();
    let mut branches = Branches::default();
    let cells: Vec<[String; 7]> =
        rows.iter().map(|row| cells(row, branches.before(row), start_us, trace, &by_id)).collect();
    let widths = widths(&cells, width);
    let used: usize = widths.iter().map(|width| width + 2).sum();
    let bar_width = width.saturating_sub(used).clamp(BAR_MIN, BAR_MAX);
    lines.push(joined(&HEAD.map(str::to_owned), &widths, ""));
    for (row, cells) in rows.iter().zip(&cells) {
        let from_us = row.span.start_us - start_us;
        let bar = bar(from_us, row.span.duration_us, total_us, bar_width);
        lines.push(joined(cells, &widths, &bar));
    }
    lines
}

fn end_us(span: &Span) -> u64 {
    span.start_us.saturating_add(span.duration_us)
}

/// The lines of the tree to the left of each name.
#[derive(Default)]
struct Branches {
    /// Of each level above, whether more siblings follow there.
    open: Vec<bool>,
}

impl Branches {
    fn before(&mut self, row: &Row<'_>) -> String {
        let depth = row.depth.min(DEPTH_DRAWN_MAX);
        self.open.truncate(depth);
        let mut text: String =
            self.open.iter().skip(1).map(|open| if *open { "│  " } else { "   " }).collect();
        if depth > 0 {
            text.push_str(if row.is_last { "└─ " } else { "├─ " });
        }
        self.open.push(!row.is_last);
        text
    }
}

fn cells(
    row: &Row<'_>,
    branches: String,
    start_us: u64,
    trace: &Trace,
    by_id: &HashMap<&str, &Span>,
) -> [String; 7] {
    let span = row.span;
    let is_lost = span.name == names::SPAN_ATTEMPT_LOST;
    let mark = if is_lost { "✗ " } else { "" };
    [
        format!("{branches}{mark}{}", clean(&span.name)),
        clean(span.service.strip_prefix("toolfleet-").unwrap_or(&span.service)),
        format!("+{}", duration(span.start_us - start_us)),
        duration(span.duration_us),
        attribute(span, names::ATTEMPT),
        attribute(span, names::WORKER),
        note(row, trace, by_id),
    ]
}

/// What is out of the ordinary: the error, links, a place that is a guess.
fn note(row: &Row<'_>, trace: &Trace, by_id: &HashMap<&str, &Span>) -> String {
    let span = row.span;
    let mut notes = Vec::new();
    let error = attribute(span, names::ERROR_TYPE);
    if !error.is_empty() {
        notes.push(error);
    } else if span.status == "error" {
        notes.push("error".to_owned());
    }
    let outcome = attribute(span, names::OUTCOME);
    if !outcome.is_empty() && outcome != "granted" {
        notes.push(outcome);
    }
    for link in &span.links {
        let linked = by_id.get(link.span_id.as_str()).filter(|_| link.trace_id == trace.trace_id);
        let attempt = linked.map(|span| attribute(span, names::ATTEMPT)).unwrap_or_default();
        notes.push(match (attempt.is_empty(), linked) {
            (false, _) => format!("after attempt {attempt}"),
            (true, Some(linked)) => format!("linked to {}", clean(&linked.name)),
            (true, None) => format!(
                "linked to span {} of trace {}",
                clean(&link.span_id),
                clean(&link.trace_id)
            ),
        });
    }
    if row.is_orphan {
        notes.push("parent not here".to_owned());
    }
    notes.join(", ")
}

fn attribute(span: &Span, name: &str) -> String {
    match span.attributes.get(name) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => clean(text),
        Some(other) => clean(&other.to_string()),
    }
}

fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// The width of each column: as wide as its widest cell, within bounds. The first one gives way where
/// the whole does not fit.
fn widths(cells: &[[String; 7]], width: usize) -> [usize; 7] {
    let mut widths = HEAD.map(|name| name.chars().count());
    for row in cells {
        for (column, (widest, cell)) in widths.iter_mut().zip(row).enumerate() {
            let most = if column == 0 || column == 6 { usize::MAX } else { CELL_MAX };
            *widest = (*widest).max(cell.chars().count().min(most));
        }
    }
    if cells.iter().all(|row| row[6].is_empty()) {
        widths[6] = 0;
    }
    let others: usize = widths[1..].iter().map(|width| width + 2).sum();
    let left = width.saturating_sub(others + 2 + BAR_MIN);
    widths[0] = widths[0].min(left.max(NAME_MIN));
    widths
}

fn joined(cells: &[String; 7], widths: &[usize; 7], bar: &str) -> String {
    let mut line = String::new();
    for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
        if *width == 0 {
            continue;
        }
        let cell = cut(cell, *width);
        let gap = " ".repeat(width - cell.chars().count());
        // Times read from their right end.
        if column == 2 || column == 3 || column == 4 {
            line.push_str(&gap);
            line.push_str(&cell);
        } else {
            line.push_str(&cell);
            line.push_str(&gap);
        }
        line.push_str("  ");
    }
    line.push_str(bar);
    line.truncate(line.trim_end().len());
    line
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// At least one block, at its place of the whole time.
fn bar(from_us: u64, duration_us: u64, total_us: u64, width: usize) -> String {
    let scale = |us: u64| {
        let cells = u128::from(us) * width as u128 / u128::from(total_us.max(1));
        usize::try_from(cells).unwrap_or(width).min(width)
    };
    let from = scale(from_us).min(width.saturating_sub(1));
    let to = scale(from_us.saturating_add(duration_us)).clamp(from + 1, width.max(from + 1));
    format!("{}{}", " ".repeat(from), "█".repeat(to - from))
}

fn duration(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}us"),
        1_000..1_000_000 => format!("{}.{}ms", us / 1_000, us % 1_000 / 100),
        _ => format!("{}.{:02}s", us / 1_000_000, us % 1_000_000 / 10_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::traces::Link;
    use serde_json::json;

    fn span(id: &str, parent: &str, name: &str, times_us: (u64, u64), attributes: Value) -> Span {
        Span {
            span_id: id.into(),
            parent_span_id: parent.into(),
            name: name.into(),
            service: "toolfleet-worker".into(),
            start_us: times_us.0,
            duration_us: times_us.1,
            attributes: attributes.as_object().cloned().unwrap_or_default(),
            ..Span::default()
        }
    }

    fn lost_once() -> Trace {
        let attempt =
            |number: u32| json!({"toolfleet.attempt": number, "toolfleet.worker": "w\u{1b}[1m"});
        let mut lost = span("4", "1", "attempt lost", (400, 0), attempt(1));
        lost.status = "error".into();
        lost.attributes.insert("error.type".into(), "lost".into());
        let mut second = span("5", "1", "process nap", (500, 500), attempt(2));
        second.links = vec![Link { trace_id: "t".into(), span_id: "3".into() }];
        let spans = vec![
            span("1", "", "publish", (0, 100), Value::Null),
            span("3", "1", "claim", (100, 10), attempt(1)),
            lost,
            second,
            span("6", "gone", "stray", (900, 100), Value::Null),
        ];
        Trace { trace_id: "t".into(), spans, spans_dropped: 0 }
    }

    #[test]
    fn a_lost_attempt_links_and_orphans_are_told() {
        let expected = "\
trace t: 5 spans in 1.0ms
SPAN               SERVICE   START   TIME  ATTEMPT  WORKER  NOTE
publish            worker     +0us  100us                                    █
├─ claim           worker   +100us   10us        1  w?[1m                     █
├─ ✗ attempt lost  worker   +400us    0us        1  w?[1m   lost                 █
├─ process nap     worker   +500us  500us        2  w?[1m   after attempt 1       █████
└─ stray           worker   +900us  100us                   parent not here           █";
        assert_eq!(lines(&lost_once(), 60).join("\n"), expected);
    }

    #[test]
    fn a_wide_terminal_is_filled_and_a_narrow_one_cuts_names() {
        let width = |line: &String| line.chars().count();
        let mut trace = lost_once();
        trace.spans[0].name = "n".repeat(300);
        for terminal in [140, 200] {
            let lines = lines(&trace, terminal);
            assert!(lines.iter().all(|line| width(line) <= terminal), "{lines:#?}");
            assert!(lines.iter().any(|line| line.contains('…')), "{lines:#?}");
        }
        assert!(lines(&lost_once(), 120).iter().any(|line| width(line) > 90));
    }

    #[test]
    fn bars_lie_within_their_width() {
        for (from, time, total) in
            [(0, 0, 0), (0, 10, 10), (10, 0, 10), (3, u64::MAX, 10), (9, 1, 10)]
        {
            for width in [1, 10, 33] {
                let bar = bar(from, time, total, width);
                assert!(
                    bar.chars().count() <= width && bar.ends_with('█'),
                    "{from} {time} {width}: {bar:?}"
                );
            }
        }
        assert_eq!(bar(5, 5, 10, 10), "     █████");
    }

    #[test]
    fn the_tree_is_drawn_to_a_bounded_depth() {
        let deep: Vec<Span> = (0..50_u64)
            .map(|at| {
                let parent = at.checked_sub(1).map_or(String::new(), |parent| parent.to_string());
                span(&at.to_string(), &parent, "s", (at, 1), Value::Null)
            })
            .collect();
        let trace = Trace { trace_id: "t".into(), spans: deep, spans_dropped: 2 };
        let lines = lines(&trace, 100);
        assert_eq!(lines.len(), 50 + 3);
        assert!(lines[1].starts_with("2 more spans"));
        assert!(lines.iter().all(|line| line.chars().count() <= 100), "{lines:#?}");
    }

    #[test]
    fn durations_have_three_digits_or_so() {
        for (us, text) in [
            (0, "0us"),
            (999, "999us"),
            (1_250, "1.2ms"),
            (999_999, "999.9ms"),
            (61_239_000, "61.23s"),
        ] {
            assert_eq!(duration(us), text);
        }
    }
}
