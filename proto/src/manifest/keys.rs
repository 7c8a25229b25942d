//! The keys of a manifest: which are known, which work now, what each says, and which one was meant.

/// Whether a known key does something yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Support {
    /// Read and obeyed.
    Now,
    /// Known and refused: a key is never ignored.
    NotYet,
}

/// What a key's value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A string.
    Text,
    /// One of these words.
    Words(&'static [&'static str]),
    /// `true` or `false`.
    Flag,
    /// A whole number of something.
    Count,
    /// A span with a unit of time.
    Span,
    /// A size with a unit of bytes.
    Size,
    /// A list of strings.
    List,
    /// A table of any keys.
    Table,
    /// A table of these keys.
    Keys(&'static [Key]),
    /// A JSON Schema, or the path of one.
    Schema,
    /// An amount with its currency.
    Money,
    /// An address that begins with `http://` or `https://`.
    Address,
    /// An expression, `{ expr = "…" }`.
    Expression,
    /// One of several forms.
    Either(&'static [Form]),
    /// Anything that JSON can say.
    Any,
}

/// What holds where a key is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    /// The manifest is faulty.
    Fault,
    /// Nothing.
    Nothing,
    /// What the words say.
    Words(&'static str),
    /// A span, in milliseconds.
    Span(u64),
    /// A size, in bytes.
    Size(u64),
    /// A number.
    Count(u32),
}

/// One key, as it is checked and as the reference tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// As it is written.
    pub(super) name: &'static str,
    /// Whether it works.
    pub(super) support: Support,
    /// What its value looks like.
    pub(super) form: Form,
    /// What holds without it.
    pub(super) absent: Absent,
    /// One sentence, for authors.
    pub(super) doc: &'static str,
}

/// Looks a key up.
pub(super) fn support(keys: &[Key], key: &str) -> Option<Support> {
    keys.iter().find(|known| known.name == key).map(|known| known.support)
}

/// What to do about a key that is not among `keys`: the nearest one, by edit distance, without
/// regard to case and separators.
pub(super) fn mend_unknown(keys: &[Key], key: &str) -> String {
    let near =
        keys.iter().map(|known| (distance(&folded(known.name), &folded(key)), known.name)).min();
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
    use crate::manifest::tables::{RUN, TOP};

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
