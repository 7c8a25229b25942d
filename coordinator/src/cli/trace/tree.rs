//! Spans as a tree, pure.

use crate::api::traces::Span;
use std::collections::{HashMap, HashSet};

/// A span at its place in the tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    /// The span.
    pub(super) span: &'a Span,
    /// 0 at the root.
    pub(super) depth: usize,
    /// Whether no sibling follows.
    pub(super) is_last: bool,
    /// Whether its parent is not among the spans, so that its place is a guess.
    pub(super) is_orphan: bool,
}

/// The rows of a tree from the top down, siblings by their start. Spans whose parent is missing, or is
/// among their own children, stand below the root, the first span without a parent; where every parent
/// is missing, the earliest span is the root. Each span has one row, whatever the spans claim.
pub(super) fn rows(spans: &[Span]) -> Vec<Row<'_>> {
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by_key(|at| (spans[*at].start_us, &spans[*at].span_id));
    let Plan { tops, children, orphans } = Plan::make(spans, &order);

    let mut rows = Vec::with_capacity(spans.len());
    let mut stack: Vec<(usize, usize, bool)> = Vec::new();
    let push = |stack: &mut Vec<(usize, usize, bool)>, level: &[usize], depth: usize| {
        let last = level.len().saturating_sub(1);
        stack.extend(level.iter().enumerate().rev().map(|(at, span)| (*span, depth, at == last)));
    };
    push(&mut stack, &tops, 0);
    while let Some((at, depth, is_last)) = stack.pop() {
        rows.push(Row { span: &spans[at], depth, is_last, is_orphan: orphans.contains(&at) });
        push(&mut stack, &children[at], depth + 1);
    }
    rows
}

/// Who stands below whom, by index.
struct Plan {
    tops: Vec<usize>,
    children: Vec<Vec<usize>>,
    orphans: HashSet<usize>,
}

impl Plan {
    fn make(spans: &[Span], order: &[usize]) -> Plan {
        let mut by_id: HashMap<&str, usize> = HashMap::new();
        for at in order {
            by_id.entry(&spans[*at].span_id).or_insert(*at);
        }
        let mut plan = Plan {
            tops: Vec::new(),
            children: vec![Vec::new(); spans.len()],
            orphans: HashSet::new(),
        };
        let mut parents: Vec<Option<usize>> = vec![None; spans.len()];
        let mut lost = Vec::new();
        for at in order {
            let parent = spans[*at].parent_span_id.as_str();
            match by_id.get(parent) {
                _ if parent.is_empty() => plan.tops.push(*at),
                Some(parent) if parent != at => {
                    parents[*at] = Some(*parent);
                    plan.children[*parent].push(*at);
                }
                _ => lost.push(*at),
            }
        }
        let mut seen = HashSet::new();
        for at in plan.tops.iter().chain(&lost) {
            plan.see(*at, &mut seen);
        }
        // What is left is a ring of spans and what hangs on it: the ring is cut at its earliest span.
        for at in order {
            if seen.contains(at) {
                continue;
            }
            if let Some(parent) = parents[*at] {
                plan.children[parent].retain(|child| child != at);
            }
            lost.push(*at);
            plan.see(*at, &mut seen);
        }
        lost.sort_by_key(|at| (spans[*at].start_us, &spans[*at].span_id));
        plan.orphans.extend(&lost);
        plan.hang(spans, lost);
        plan
    }

    fn see(&self, at: usize, seen: &mut HashSet<usize>) {
        let mut open = vec![at];
        while let Some(at) = open.pop() {
            if seen.insert(at) {
                open.extend(&self.children[at]);
            }
        }
    }

    /// Puts spans without a place below the root.
    fn hang(&mut self, spans: &[Span], mut lost: Vec<usize>) {
        if self.tops.is_empty() && !lost.is_empty() {
            self.tops.push(lost.remove(0));
        }
        if let Some(root) = self.tops.first() {
            let below = &mut self.children[*root];
            below.extend(lost);
            below.sort_by_key(|at| (spans[*at].start_us, &spans[*at].span_id));
        }
    }
}

/// Whether nothing says that more spans are on their way. A parent that is missing does, unless it is
/// another system's (that of a `server` span); so does a publication of which nothing came.
pub(super) fn is_whole(spans: &[Span]) -> bool {
    let ids: HashSet<&str> = spans.iter().map(|span| span.span_id.as_str()).collect();
    let parents: HashSet<&str> = spans.iter().map(|span| span.parent_span_id.as_str()).collect();
    !spans.is_empty()
        && spans.iter().all(|span| {
            let parent = span.parent_span_id.as_str();
            let is_placed = parent.is_empty() || ids.contains(parent) || span.kind == "server";
            is_placed && (span.kind != "producer" || parents.contains(span.span_id.as_str()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(id: &str, parent: &str, start_us: u64) -> Span {
        Span { span_id: id.into(), parent_span_id: parent.into(), start_us, ..Span::default() }
    }

    /// `depth id`, `?` after an orphan, `.` after the last of its siblings.
    fn drawn(spans: &[Span]) -> Vec<String> {
        let rows = rows(spans);
        let text = |row: &Row<'_>| {
            let marks = [(row.is_orphan, "?"), (row.is_last, ".")];
            let marks: String = marks.iter().filter(|mark| mark.0).map(|mark| mark.1).collect();
            format!("{} {}{marks}", row.depth, row.span.span_id)
        };
        rows.iter().map(text).collect()
    }

    #[test]
    fn children_stand_below_their_parent_by_their_start() {
        let spans = [
            span("late", "root", 9),
            span("deep", "early", 4),
            span("root", "", 1),
            span("early", "root", 3),
        ];
        assert_eq!(drawn(&spans), ["0 root.", "1 early", "2 deep.", "1 late."]);
        assert!(rows(&[]).is_empty());
    }

    #[test]
    fn orphans_stand_below_the_root_and_are_marked() {
        let spans =
            [span("root", "", 1), span("a", "root", 5), span("o", "gone", 3), span("p", "o", 4)];
        assert_eq!(drawn(&spans), ["0 root.", "1 o?", "2 p.", "1 a."]);
    }

    #[test]
    fn without_a_root_the_earliest_orphan_is_it() {
        let spans = [span("b", "gone", 7), span("a", "remote", 2), span("c", "a", 3)];
        assert_eq!(drawn(&spans), ["0 a?.", "1 c", "1 b?."]);
    }

    #[test]
    fn a_ring_is_cut_and_shown_once() {
        let spans = [span("root", "", 1), span("a", "c", 2), span("b", "a", 3), span("c", "b", 4)];
        assert_eq!(drawn(&spans), ["0 root.", "1 a?.", "2 b.", "3 c."]);
        assert_eq!(drawn(&[span("self", "self", 1)]), ["0 self?."]);
        let ring = [span("a", "b", 1), span("b", "a", 2)];
        assert_eq!(drawn(&ring), ["0 a?.", "1 b."]);
    }

    #[test]
    fn every_span_has_one_row_also_where_ids_repeat_or_nest_deep() {
        let same = [span("a", "", 1), span("a", "a", 2), span("a", "a", 3)];
        assert_eq!(drawn(&same), ["0 a.", "1 a", "1 a."]);
        let chain: Vec<Span> = (0..20_000_u64)
            .map(|at| {
                span(
                    &at.to_string(),
                    &at.checked_sub(1).map_or(String::new(), |p| p.to_string()),
                    at,
                )
            })
            .collect();
        assert_eq!(rows(&chain).len(), chain.len());
    }

    #[test]
    fn spans_are_awaited_while_a_parent_or_the_fate_of_a_job_is_missing() {
        let kind = |kind: &str, span: Span| Span { kind: kind.into(), ..span };
        assert!(!is_whole(&[]));
        assert!(!is_whole(&[span("a", "gone", 1)]));
        assert!(is_whole(&[kind("server", span("a", "caller", 1))]));
        let publish = kind("producer", span("p", "a", 2));
        assert!(!is_whole(&[span("a", "", 1), publish.clone()]));
        assert!(is_whole(&[span("a", "", 1), publish, span("c", "p", 3)]));
    }
}
