//! The reference of manifests, rendered from the tables that manifests are checked by, so that it
//! cannot say anything else than the code does.

use super::MANIFEST_BYTES_MAX;
use super::keys::{Absent, Form, Key, Support};
use super::tables::{LIMITS, PRESENTATION, RETRY, RUN, TOP};
use crate::checks::MAX_ATTEMPTS_MAX;
use crate::declared::{EXPRESSION_BYTES_MAX, LIMIT_COUNT_MAX, TRIES_MAX};
use crate::expression::{DEPTH_MAX, INPUT, MACROS_MAX, WORK_MAX};
use crate::limit::RESULT_BYTES_CAP;
use crate::schema::SCHEMA_BYTES_MAX;
use crate::unit::{self, DURATIONS, SIZES};
use std::fmt::Write as _;

/// What stands before the tables.
const HEAD: &str = "# Manifests

A manifest defines one tool. It is a file of the worker's tools folder, `<tool>.toml`, or `<tool>.json`
with the same keys; the file's name without its ending is the tool's name: 1 to 64 of `A-Z`, `a-z`,
`0-9`, `_` and `-`, a letter or `_` first. A folder in it is a package: `crm/find.toml` is the tool
`crm_find`, and its paths start at `crm`. Entries that begin with a dot and folders inside a package are
left alone, links are followed. Every fault of every manifest is told at once, by `toolfleet check` and by
a worker, which then exits 78; [errors.md](errors.md) explains each code, and editors complete keys by
[manifest.schema.json](manifest.schema.json).

```toml
# tools/weather.toml
description = \"Forecast for a city, one entry a day from tomorrow on.\"
effect = \"read\"
timeout = \"5s\"
max_result_size = \"64KB\"

[input]
type = \"object\"
required = [\"city\"]
properties.city = { type = \"string\", description = \"name of the city\" }

[run]
exec = [\"./weather.sh\"]
result = \"json\"
```

In TOML, keys of the manifest itself stand above the first table. For `timeout`, `queue_timeout`,
`max_attempts` and `max_result_size` the configuration may hold defaults of a pool and of the fleet, which
come before those told here ([operations.md](operations.md)).
";

/// What stands before the keys that do nothing yet.
const NOT_YET: &str = "
## Not yet

These keys are known, checked, and then refused (`manifest.not-yet`): a key is never ignored. The same
holds for `enabled` other than `true` and for `weight` other than 1.

| key | value | will say |
|---|---|---|
";

/// The whole reference, Markdown; kept as `docs/manifest.md`.
pub fn render() -> String {
    let mut page = HEAD.to_owned();
    section(&mut page, "Keys", TOP);
    section(&mut page, "`[run]`", RUN);
    section(&mut page, "`retry`", RETRY);
    section(&mut page, "`[limits]`", LIMITS);
    section(&mut page, "`[presentation]` and `[presentation.<locale>]`", PRESENTATION);
    page.push_str(
        "\n`<locale>` is a language tag such as `de` or `pt-BR`. These words are served in \
         `GET /v1/tools?format=native` as\nthey stand here; nothing fills placeholders in yet.\n",
    );
    values(&mut page);
    expressions(&mut page);
    page.push_str(NOT_YET);
    for (table, keys) in [("", TOP), ("run.", RUN), ("presentation.", PRESENTATION)] {
        for key in keys.iter().filter(|key| key.support == Support::NotYet) {
            let _ = writeln!(page, "| `{table}{}` | {} | {} |", key.name, form(key.form), key.doc);
        }
    }
    page
}

fn section(page: &mut String, title: &str, keys: &[Key]) {
    let _ = writeln!(
        page,
        "\n## {title}\n\n| key | value | without it | what it says |\n|---|---|---|---|"
    );
    for key in keys.iter().filter(|key| key.support == Support::Now) {
        let (value, absent) = (form(key.form), absent(key.absent));
        let _ = writeln!(page, "| `{}` | {value} | {absent} | {} |", key.name, key.doc);
    }
}

fn form(value: Form) -> String {
    match value {
        Form::Text => "string".to_owned(),
        Form::Words(words) => {
            words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ")
        }
        Form::Flag => "boolean".to_owned(),
        Form::Count => "whole number".to_owned(),
        Form::Span => "span, as `\"10s\"`".to_owned(),
        Form::Size => "size, as `\"64KB\"`".to_owned(),
        Form::List => "list of strings".to_owned(),
        Form::Table => "table".to_owned(),
        Form::Keys(keys) if keys.len() > 6 => "table".to_owned(),
        Form::Keys(keys) => {
            let is_simple = |key: &Key| !matches!(key.form, Form::Keys(_) | Form::Either(_));
            let are_simple = keys.iter().all(is_simple);
            let parts = |key: &Key| {
                let form =
                    if are_simple { format!(" ({})", form(key.form)) } else { String::new() };
                format!("`{}`{form}", key.name)
            };
            format!("table of {}", keys.iter().map(parts).collect::<Vec<_>>().join(", "))
        }
        Form::Money => "amount, as `\"0.05 USD\"`".to_owned(),
        Form::Address => "address, as `\"https://example.com/path\"`".to_owned(),
        Form::Expression => "`{ expr = \"…\" }`".to_owned(),
        Form::Either(forms) => forms.iter().copied().map(form).collect::<Vec<_>>().join("; or "),
        Form::Any => "any value".to_owned(),
        Form::Schema => "JSON Schema, or the path of a JSON file".to_owned(),
    }
}

fn absent(absent: Absent) -> String {
    match absent {
        Absent::Fault => "a fault".to_owned(),
        Absent::Nothing => "none".to_owned(),
        Absent::Words(words) => words.to_owned(),
        Absent::Span(span_ms) => unit::describe_ms(span_ms),
        Absent::Size(bytes) => size(bytes),
        Absent::Count(count) => count.to_string(),
    }
}

/// `128 KB`, or bytes where it is no whole number of them.
fn size(bytes: u64) -> String {
    match (bytes / 1_024, bytes % 1_024) {
        (kilobytes, 0) => format!("{} KB", unit::thousands(kilobytes)),
        _ => format!("{} B", unit::thousands(bytes)),
    }
}

/// What an expression may say.
fn expressions(page: &mut String) {
    let _ = write!(
        page,
        "
## Expressions

Where an expression may stand it is written `{{ expr = \"…\" }}`, in CEL (the Common Expression Language). It
knows one name, `{INPUT}`: the checked arguments, defaults filled in.

```toml
effect = {{ expr = \"input.sql.matches('(?i)^ *select ') ? 'read' : 'write'\" }}
dry_run_result = {{ expr = \"{{'id': 0, 'title': input.title}}\" }}
```

* There are the operators of the language, `has`, `all`, `exists`, `exists_one`, `map`, `filter`, `size`, `contains`,
  `startsWith`, `endsWith`, `matches` (its pattern written out), `type`, `dyn` and the conversions `string`, `bytes`,
  `int`, `uint`, `double` and `bool`; no times and durations.
* An absent property is an error: ask `has(input.x)` first. Whole numbers are integers, others floats; an integer beyond
  64 bits is a float. The keys of a map have no order; the result has them sorted.
* It has at most {} bytes, {DEPTH_MAX} levels and {MACROS_MAX} macros, and an evaluation may take {} steps: one for each part of
  a macro's body and entry, for each value and 16 bytes of text that is copied, compared or put together, for each byte
  that a pattern looks at. What takes more is an error.
* What cannot be compiled is a fault of the manifest. An `effect` that fails is a `write`, logged and counted; a
  `dry_run_result` that fails or does not fit `[output]` ends the call as an error that says so.
",
        unit::thousands(EXPRESSION_BYTES_MAX as u64),
        unit::thousands(WORK_MAX),
    );
}

/// How values are written, with their limits.
fn values(page: &mut String) {
    let names = |units: &[(&str, u64)]| {
        units.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    let days = unit::DURATION_MS_MAX / (24 * 60 * 60 * 1_000);
    let _ = write!(
        page,
        "
## Values

| what | how it is written | bounds |
|---|---|---|
| span | a number and one of {}, in quotes | 1 ms to {days} days, whole milliseconds |
| size | a number and one of {}, in quotes; `KB` and `KiB` are both 1,024 bytes | whole bytes from 1; \
         `max_result_size` at most {} |
| `max_attempts` | a whole number | 1 to {MAX_ATTEMPTS_MAX} |
| `tries` | a whole number | 1 to {TRIES_MAX} |
| amount | a decimal number, a space and three capital letters, in quotes | from 0, nine decimals |
| expression | `{{ expr = \"…\" }}`, never as plain text | {} bytes |
| `processes`, `open_files` | a whole number | 1 to {} |
| schema | JSON Schema 2020-12, older drafts by `$schema`; nothing is fetched | {} of compact JSON |
| path of a schema | relative, below the manifest's folder, without `..` | |
| secret | letters, digits and `_`, no digit first; no variable that every program is given | 128 bytes |
| manifest, schema file | UTF-8 | {} each |

A bare number where a unit belongs is refused (`units.missing`). Nothing is converted: `\"3\"` is no number.
",
        names(&DURATIONS),
        names(&SIZES),
        size(RESULT_BYTES_CAP),
        unit::thousands(EXPRESSION_BYTES_MAX as u64),
        unit::thousands(LIMIT_COUNT_MAX),
        size(SCHEMA_BYTES_MAX as u64),
        size(MANIFEST_BYTES_MAX as u64),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn kept() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/manifest.md")
    }

    #[test]
    fn the_kept_reference_is_the_rendered_one() {
        let rendered = render();
        if std::env::var("TOOLFLEET_GOLDEN").is_ok_and(|mode| mode == "write") {
            std::fs::write(kept(), &rendered).unwrap();
        }
        let text = std::fs::read_to_string(kept()).unwrap_or_default();
        assert!(
            text == rendered,
            "docs/manifest.md is not what the tables say; TOOLFLEET_GOLDEN=write writes it anew"
        );
    }

    #[test]
    fn every_key_has_one_row_and_every_sentence_ends() {
        let page = render();
        for (table, keys) in [("", TOP), ("run.", RUN), ("presentation.", PRESENTATION)] {
            for key in keys {
                let row = match key.support {
                    Support::Now => format!("\n| `{}` | ", key.name),
                    Support::NotYet => format!("\n| `{table}{}` | ", key.name),
                };
                assert!(page.contains(&row), "{}", key.name);
                assert!(key.doc.ends_with('.'), "{}", key.name);
                assert!(!key.doc.contains(['|', '\n']), "{} would break its row", key.name);
            }
        }
    }

    #[test]
    fn sizes_read_as_people_write_them() {
        assert_eq!(size(128 * 1_024), "128 KB");
        assert_eq!(size(1_000), "1,000 B");
        assert_eq!(absent(Absent::Span(30_000)), "30 s");
    }
}
