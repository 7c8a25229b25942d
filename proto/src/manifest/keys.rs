//! The keys of a manifest: which are known, which work now, what each says, and which one was meant.

use super::{
    MAX_ATTEMPTS_DEFAULT, QUEUE_TIMEOUT_DEFAULT_MS, RESULT_BYTES_DEFAULT, TIMEOUT_DEFAULT_MS,
};

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
    /// A table of its own.
    Table,
    /// A JSON Schema, or the path of one.
    Schema,
    /// Not settled before the key works.
    Open,
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
#[derive(Clone, Copy, Debug)]
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

const fn now(name: &'static str, form: Form, absent: Absent, doc: &'static str) -> Key {
    Key { name, support: Support::Now, form, absent, doc }
}

const fn not_yet(name: &'static str, doc: &'static str) -> Key {
    Key { name, support: Support::NotYet, form: Form::Open, absent: Absent::Nothing, doc }
}

/// Keys of the manifest itself.
pub(super) const TOP: &[Key] = &[
    now(
        "description",
        Form::Text,
        Absent::Fault,
        "What the tool does and when to use it, written for the model.",
    ),
    now(
        "effect",
        Form::Words(&["read", "idempotent", "write"]),
        Absent::Words("`write`"),
        "What a call may change, which decides whether it runs again after its worker was lost: `read` \
         and `idempotent` calls do, a `write` that may have started does not.",
    ),
    now(
        "timeout",
        Form::Span,
        Absent::Span(TIMEOUT_DEFAULT_MS),
        "How long one attempt may run, counted from the start of the tool.",
    ),
    now(
        "queue_timeout",
        Form::Span,
        Absent::Span(QUEUE_TIMEOUT_DEFAULT_MS),
        "How long a call may wait for a worker before it ends without having run.",
    ),
    now(
        "total_timeout",
        Form::Span,
        Absent::Words("`timeout` times `max_attempts`"),
        "How long all attempts may take together; not shorter than `timeout`.",
    ),
    now(
        "max_attempts",
        Form::Count,
        Absent::Count(MAX_ATTEMPTS_DEFAULT),
        "How often a call may be started when its worker is lost each time.",
    ),
    now(
        "rerun",
        Form::Flag,
        Absent::Words("`false`"),
        "Lets a `write` whose worker was lost start again: only for a tool that passes the idempotency \
         key to a service which honours it; refused beside another effect.",
    ),
    not_yet("retry", "Tries again inside one attempt after a passing failure."),
    now(
        "max_result_size",
        Form::Size,
        Absent::Size(RESULT_BYTES_DEFAULT),
        "Bound of the text that the model reads; a longer result is cut and marked, and is no error.",
    ),
    not_yet("roles", "Roles that may call the tool."),
    not_yet("ability", "An ability that a caller must have."),
    now(
        "enabled",
        Form::Flag,
        Absent::Words("`true`"),
        "Whether the tool is on; only `true` works yet, any other value is refused.",
    ),
    not_yet("can_use", "A condition on the caller."),
    not_yet("channel", "Who is asked before a call runs."),
    not_yet("confirm", "A preview first, the call after it was confirmed."),
    not_yet("preflight", "A check before a person is asked, and again before the call runs."),
    not_yet("time_args", "Arguments that must be absolute instants in an execution with `asOf`."),
    not_yet("dry_run_result", "What a dry run answers instead of running the tool."),
    not_yet("cost", "The most that one call can cost, reserved before it runs."),
    now(
        "secrets",
        Form::List,
        Absent::Nothing,
        "Names of secrets that the program is given as variables, each looked up when an attempt starts: \
         a file of `worker.secrets_dir`, else the worker's environment.",
    ),
    now("tags", Form::List, Absent::Nothing, "Words to narrow the list of tools by."),
    now(
        "weight",
        Form::Count,
        Absent::Count(1),
        "Slots that a call takes; only 1 works yet, a greater number is refused.",
    ),
    now(
        "input",
        Form::Schema,
        Absent::Words("an object of any properties"),
        "What the tool takes; must allow an object. Defaults of absent properties are filled in.",
    ),
    now(
        "output",
        Form::Schema,
        Absent::Words("not checked"),
        "What the tool gives; an output that does not fit ends the call as `invalid_output`.",
    ),
    now(
        "presentation",
        Form::Table,
        Absent::Nothing,
        "Words for people, never shown to the model.",
    ),
    not_yet("limits", "Bounds of the program's memory, time, processes and files."),
    now("run", Form::Table, Absent::Fault, "What runs the tool: exactly one runner."),
];

/// Keys of `[run]`.
pub(super) const RUN: &[Key] = &[
    now(
        "exec",
        Form::List,
        Absent::Fault,
        "The program and its arguments, without a shell. A first word with a `/` that is not absolute, \
         and any word that begins with `./` or `../`, is a path from the manifest's folder; other programs \
         come from `/usr/local/bin:/usr/bin:/bin`.",
    ),
    not_yet("http", "An endpoint as the runner."),
    not_yet("mcp", "A tool of an MCP server as the runner."),
    not_yet("agent", "A model loop as the runner."),
    now(
        "result",
        Form::Words(&["text", "json", "envelope"]),
        Absent::Words("`json` where there is an `[output]`, else `text`"),
        "How standard output is read: verbatim, as exactly one JSON value, or as an object with `content`.",
    ),
    not_yet("mode", "A program that stays and serves calls one after another."),
    not_yet("verify", "What tells whether a write that lost its worker took effect."),
];

/// The keys of `[run]` that say what runs the tool.
pub(super) const RUNNERS: [&str; 4] = ["exec", "http", "mcp", "agent"];

/// Keys of `[presentation]` and of `[presentation.<locale>]`.
pub(super) const PRESENTATION: &[Key] = &[
    now("label", Form::Text, Absent::Nothing, "The tool's name for people."),
    now("running", Form::Text, Absent::Nothing, "What is said while the call runs."),
    now("done", Form::Text, Absent::Nothing, "What is said when it has ended."),
    now("icon", Form::Text, Absent::Nothing, "The name of an icon."),
    now("tone", Form::Text, Absent::Nothing, "How grave the call looks."),
    now("confirm", Form::Table, Absent::Nothing, "The words of a question before the call."),
    now("result", Form::Text, Absent::Nothing, "How the output reads."),
    now("component", Form::Table, Absent::Nothing, "A component that shows the output."),
];

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
