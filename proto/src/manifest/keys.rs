//! The keys of a manifest: which are known, which work now, and which one was meant.

/// Whether a known key does something yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Support {
    /// Read and obeyed.
    Now,
    /// Known and refused: a key is never ignored.
    NotYet,
}

use Support::{NotYet, Now};

/// Keys of the manifest itself.
pub(super) const TOP: &[(&str, Support)] = &[
    ("description", Now),
    ("effect", Now),
    ("timeout", Now),
    ("queue_timeout", Now),
    ("total_timeout", Now),
    ("max_attempts", Now),
    ("rerun", Now),
    ("retry", NotYet),
    ("max_result_size", Now),
    ("roles", NotYet),
    ("ability", NotYet),
    ("enabled", Now),
    ("can_use", NotYet),
    ("channel", NotYet),
    ("confirm", NotYet),
    ("preflight", NotYet),
    ("time_args", NotYet),
    ("dry_run_result", NotYet),
    ("cost", NotYet),
    ("secrets", Now),
    ("tags", Now),
    ("weight", Now),
    ("input", Now),
    ("output", Now),
    ("presentation", Now),
    ("limits", NotYet),
    ("run", Now),
];

/// Keys of `[run]`.
pub(super) const RUN: &[(&str, Support)] = &[
    ("exec", Now),
    ("http", NotYet),
    ("mcp", NotYet),
    ("agent", NotYet),
    ("result", Now),
    ("mode", NotYet),
    ("verify", NotYet),
];

/// The keys of `[run]` that say what runs the tool.
pub(super) const RUNNERS: [&str; 4] = ["exec", "http", "mcp", "agent"];

/// Keys of `[presentation]` and of `[presentation.<locale>]`.
pub(super) const PRESENTATION: &[(&str, Support)] = &[
    ("label", Now),
    ("running", Now),
    ("done", Now),
    ("icon", Now),
    ("tone", Now),
    ("confirm", Now),
    ("result", Now),
    ("component", Now),
];

/// Looks a key up.
pub(super) fn support(keys: &[(&str, Support)], key: &str) -> Option<Support> {
    keys.iter().find(|(name, _)| *name == key).map(|(_, support)| *support)
}

/// What to do about a key that is not among `keys`: the nearest one, by edit distance, without
/// regard to case and separators.
pub(super) fn mend_unknown(keys: &[(&'static str, Support)], key: &str) -> String {
    let near = keys.iter().map(|(name, _)| (distance(&folded(name), &folded(key)), *name)).min();
    match near {
        Some((edits, name)) if edits <= 2.max(name.len() / 3) => format!("did you mean `{name}`?"),
        Some((_, name)) => format!("remove it; the nearest known key is `{name}`"),
        None => "remove it".into(),
    }
}

/// `maxResultSize`, `max-result-size` and `max_result_size` are one.
fn folded(key: &str) -> Vec<char> {
    // Longer keys than any known one are far from all of them; the distance is quadratic.
    key.chars()
        .take(64)
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

/// Edit distance of Levenshtein: insertions, deletions and substitutions, one each.
fn distance(from: &[char], to: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let substituted = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_named() {
        for (written, meant) in [
            ("timeot", "timeout"),
            ("time_out", "timeout"),
            ("maxResultSize", "max_result_size"),
            ("queue-timeout", "queue_timeout"),
            ("descripton", "description"),
            ("inputs", "input"),
            ("secret", "secrets"),
        ] {
            assert_eq!(mend_unknown(TOP, written), format!("did you mean `{meant}`?"));
        }
        assert!(
            mend_unknown(TOP, "zzzzzzzzzzzz").starts_with("remove it; the nearest known key is")
        );
        assert_eq!(mend_unknown(RUN, "exce"), "did you mean `exec`?");
    }

    #[test]
    fn the_distance_counts_single_edits() {
        let of = |a: &str, b: &str| {
            distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>())
        };
        assert_eq!(of("", ""), 0);
        assert_eq!(of("abc", ""), 3);
        assert_eq!(of("kitten", "sitting"), 3);
    }
}
