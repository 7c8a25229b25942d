//! A JSON Schema of manifests for editors, rendered from the tables that manifests are checked by. It
//! knows the form of every key; what only a whole manifest can tell is left to `check`.

use super::keys::{Absent, Form, Key, Support};
use super::tables::{EXPRESSION, PRESENTATION, RUN, RUNNERS, TOP, VERIFY};
use crate::unit::{DURATIONS, SIZES};
use serde_json::{Map, Value, json};

/// The whole schema, JSON with two spaces a level; kept as `docs/manifest.schema.json`.
pub fn render() -> String {
    let mut root = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Manifest of a tool",
    });
    if let (Some(root), Value::Object(table)) = (root.as_object_mut(), closed(TOP)) {
        root.extend(table);
    }
    let mut text = serde_json::to_string_pretty(&root).unwrap_or_default();
    text.push('\n');
    text
}

/// A table of these keys and no other.
fn closed(keys: &[Key]) -> Value {
    let properties: Map<String, Value> =
        keys.iter().map(|key| (key.name.to_owned(), property(key))).collect();
    let mut table = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    });
    let runners = || RUNNERS.map(|runner| json!({"required": [runner]})).to_vec();
    let required: Vec<&str> =
        keys.iter().filter(|key| key.absent == Absent::Fault).map(|key| key.name).collect();
    if keys == RUN || keys == VERIFY {
        table["oneOf"] = Value::Array(runners());
    } else if keys == EXPRESSION {
        table["required"] = json!(["expr"]);
    } else if !required.is_empty() {
        table["required"] = json!(required);
    }
    table
}

fn property(key: &Key) -> Value {
    let mut schema = form(key.form);
    let doc = match key.support {
        Support::Now => key.doc.to_owned(),
        Support::NotYet => format!("Not yet, and refused. {}", key.doc),
    };
    if key.form == Form::Keys(PRESENTATION) {
        // Words for one language are words of the same keys, without further languages.
        let locale = "^[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*$";
        schema["patternProperties"] = json!({ locale: closed(PRESENTATION) });
    }
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("description".into(), json!(doc));
    }
    schema
}

fn form(form: Form) -> Value {
    match form {
        Form::Text => json!({"type": "string"}),
        Form::Words(words) => json!({"enum": words}),
        Form::Flag => json!({"type": "boolean"}),
        Form::Count => json!({"type": "integer", "minimum": 1}),
        Form::Span => with_unit(&DURATIONS),
        Form::Size => with_unit(&SIZES),
        Form::List => json!({"type": "array", "items": {"type": "string"}}),
        Form::Table => json!({"type": "object"}),
        Form::Keys(keys) => closed(keys),
        Form::Schema => json!({"type": ["object", "string", "boolean"]}),
        Form::Money => json!({"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)? [A-Z]{3}$"}),
        Form::Address => json!({"type": "string", "pattern": "^https?://"}),
        Form::Expression => closed(EXPRESSION),
        Form::Either(forms) => {
            json!({"anyOf": forms.iter().map(|one| self::form(*one)).collect::<Vec<_>>()})
        }
        Form::Any => json!({}),
    }
}

fn with_unit(units: &[(&str, u64)]) -> Value {
    let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
    json!({"type": "string", "pattern": format!("^[0-9]+(\\.[0-9]+)?({})$", names.join("|"))})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::tree;
    use crate::manifest::{Syntax, tests::SOUND};
    use crate::schema::Schema;
    use std::path::PathBuf;

    fn root() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    fn schema() -> Schema {
        Schema::compile(&serde_json::from_str(&render()).unwrap()).unwrap()
    }

    fn value(toml: &str) -> Value {
        tree::read(toml, Syntax::Toml).unwrap().to_value().unwrap()
    }

    #[test]
    fn the_kept_schema_is_the_rendered_one() {
        let (kept, rendered) = (root().join("docs/manifest.schema.json"), render());
        if std::env::var("TOOLFLEET_GOLDEN").is_ok_and(|mode| mode == "write") {
            std::fs::write(&kept, &rendered).unwrap();
        }
        assert!(
            std::fs::read_to_string(kept).unwrap_or_default() == rendered,
            "docs/manifest.schema.json is not what the tables say; TOOLFLEET_GOLDEN=write writes it anew"
        );
    }

    #[test]
    fn sound_manifests_fit_and_faulty_ones_are_told_where() {
        let schema = schema();
        let mut seen = 0;
        for entry in std::fs::read_dir(root().join("examples/tools")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|kind| kind == "toml") {
                let issues = schema.issues(&value(&std::fs::read_to_string(&path).unwrap()));
                assert!(issues.is_empty(), "{}: {issues:?}", path.display());
                seen += 1;
            }
        }
        assert!(seen > 3, "{seen}");
        let told = |keys: &str| {
            let issues = schema.issues(&value(&format!("{keys}\n{SOUND}")));
            issues.iter().map(|issue| issue.path.clone()).collect::<Vec<_>>()
        };
        for keys in [
            "presentation.de.label = \"Suchen\"",
            "effect = { expr = \"x\" }",
            "input = \"schemas/in.json\"",
            "dry_run_result = 7",
            "enabled = { env = \"X\" }",
            "max_result_size = \"1.5KiB\"",
        ] {
            assert!(told(keys).is_empty(), "{keys}: {:?}", told(keys));
        }
        for (keys, path) in [
            ("timeout = 10", "timeout"),
            ("timeout = \"10\"", "timeout"),
            ("efect = \"read\"", "efect"),
            ("max_attempts = 0", "max_attempts"),
            ("presentation.lable = \"x\"", "presentation.lable"),
            ("cost = \"5 usd\"", "cost"),
            ("retry = { trys = 1 }", "retry.trys"),
        ] {
            assert_eq!(told(keys), [path], "{keys}");
        }
        assert!(!schema.is_valid(&value("description = \"D\"\n[run]\nresult = \"text\"")));
        assert!(!schema.is_valid(&value("[run]\nexec = [\"a\"]")));
    }
}
