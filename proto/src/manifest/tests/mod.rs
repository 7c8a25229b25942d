mod later;

use super::*;
use crate::descriptor::is_tool_name;
use crate::effect::Effect;
use proptest::prelude::*;

pub(super) const SOUND: &str = "description = \"Finds\"\n[run]\nexec = [\"./find.sh\"]\n";

fn nothing_beside(path: &str) -> Result<String, String> {
    Err(format!("no file `{path}`"))
}

fn parse_as(
    file: &str,
    stem: &str,
    text: &str,
    syntax: Syntax,
    beside: ReadBeside<'_>,
) -> Result<Manifest, Vec<Fault>> {
    parse(Source { file, package: None, stem, text, syntax }, &Rules::default(), beside)
}

fn toml(text: &str) -> Result<Manifest, Vec<Fault>> {
    parse_as("tools/find.toml", "find", text, Syntax::Toml, &nothing_beside)
}

/// Codes and lines of the faults of a manifest: the sound one with `keys` put before it.
fn faults_of(keys: &str) -> Vec<(&'static str, Option<u32>)> {
    match toml(&format!("{keys}\n{SOUND}")) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.iter().map(|fault| (fault.code, fault.line)).collect(),
    }
}

#[test]
fn the_defaults_are_those_of_the_contract() {
    let manifest = toml(SOUND).unwrap();
    let found = &manifest.descriptor;
    assert_eq!(found.name, "find");
    assert_eq!(found.description, "Finds");
    assert_eq!(found.effect, Effect::Write);
    assert!(!found.rerun);
    assert_eq!((found.timeout_ms, found.queue_timeout_ms), (30_000, 60_000));
    assert_eq!((found.total_timeout_ms, found.max_attempts), (90_000, 3));
    assert_eq!(found.result_bytes_max, 131_072);
    assert_eq!(found.input_schema, json!({"type": "object"}));
    assert_eq!((found.output_schema.clone(), found.result), (None, ResultForm::Text));
    assert_eq!(found.runner, Runner::Exec { command: vec!["./find.sh".into()] });
    assert!(found.tags.is_empty() && found.presentation.is_none());
    assert_eq!(manifest.command, ["./find.sh"]);
    assert!(manifest.secrets.is_empty());
}

#[test]
fn every_supported_key_is_read() {
    let text = r#"
description = "Search the team's issues"
effect = "idempotent"
timeout = "10s"
queue_timeout = "2m"
total_timeout = "1.5m"
max_attempts = 5
rerun = false
max_result_size = "64KB"
enabled = true
weight = 1
secrets = ["ISSUES_TOKEN", "ISSUES_TOKEN"]
tags = ["crm", "search"]

[input]
type = "object"
required = ["query"]
properties.query = { type = "string", description = "words to search the issues for" }
properties.after = { type = "string" }

[output]
type = "array"

[presentation]
label = "Search"
confirm = { title = "Really?" }
[presentation.de]
label = "Suchen"

[run]
exec = ["./search_issues.py", "--limit", "20"]
result = "envelope"
"#;
    let manifest = toml(text).unwrap();
    let found = &manifest.descriptor;
    assert_eq!((found.effect, found.max_attempts), (Effect::Idempotent, 5));
    assert_eq!((found.timeout_ms, found.queue_timeout_ms), (10_000, 120_000));
    assert_eq!((found.total_timeout_ms, found.result_bytes_max), (90_000, 65_536));
    let properties = found.input_schema["properties"].as_object().unwrap();
    assert_eq!(properties.keys().collect::<Vec<_>>(), ["query", "after"]);
    assert_eq!(found.output_schema, Some(json!({"type": "array"})));
    assert_eq!(found.result, ResultForm::Envelope);
    assert_eq!(found.tags, ["crm", "search"]);
    assert_eq!(found.presentation.as_ref().unwrap()["de"]["label"], "Suchen");
    assert_eq!(manifest.command, ["./search_issues.py", "--limit", "20"]);
    assert_eq!(manifest.secrets, ["ISSUES_TOKEN"]);
}

#[test]
fn json_gives_the_same_descriptor_as_toml() {
    let from_toml = toml(
        "description = \"D\"\neffect = \"read\"\n[input]\ntype = \"object\"\n\
         properties.b.type = \"string\"\nproperties.a.type = \"number\"\n[run]\nexec = [\"jq\"]\n",
    );
    let text = r#"{"description": "D", "effect": "read",
        "input": {"type": "object",
                  "properties": {"b": {"type": "string"}, "a": {"type": "number"}}},
        "run": {"exec": ["jq"]}}"#;
    let from_json = parse_as("find.json", "find", text, Syntax::Json, &nothing_beside);
    let (from_toml, from_json) = (from_toml.unwrap(), from_json.unwrap());
    assert_eq!(from_toml, from_json);
    assert_eq!(from_toml.descriptor.hash(), from_json.descriptor.hash());
    assert_eq!(
        from_toml.descriptor.input_schema.to_string(),
        from_json.descriptor.input_schema.to_string()
    );
}

#[test]
fn many_faults_are_reported_at_once_and_exactly() {
    let text = r#"
efect = "read"
timeout = 10
queue_timeout = "0s"
max_attempts = 0
max_result_size = "0.1KB"
roles = ["admin"]
enabled = false
secrets = ["../key", "PATH"]
tags = "crm"

[input]
type = "array"

[presentation]
lable = "x"

[run]
exec = ["./a"]
http = "https://example.com"
mode = "warm"
timeout = "5s"
"#;
    let faults =
        parse_as("tools/1 x.toml", "1 x", text, Syntax::Toml, &nothing_beside).unwrap_err();
    let found: Vec<_> = faults.iter().map(|fault| (fault.code, fault.line)).collect();
    assert_eq!(
        found,
        [
            ("tool.name-invalid", None),
            ("manifest.missing", None),
            ("manifest.unknown-key", Some(2)),
            ("units.missing", Some(3)),
            ("tool.timeout-invalid", Some(4)),
            ("tool.max-attempts-invalid", Some(5)),
            ("tool.max-result-size-invalid", Some(6)),
            ("manifest.not-yet", Some(7)),
            ("manifest.not-yet", Some(8)),
            ("tool.secret-invalid", Some(9)),
            ("tool.secret-invalid", Some(9)),
            ("manifest.type", Some(10)),
            ("tool.input-not-object", Some(13)),
            ("manifest.unknown-key", Some(16)),
            ("manifest.run", Some(20)),
            ("manifest.not-yet", Some(21)),
            ("manifest.unknown-key", Some(22)),
        ]
    );
    assert!(faults.iter().all(|f| f.file == "tools/1 x.toml" && !f.mend.is_empty()));
    assert!(faults[0].mend.contains("`_1-x`"), "{}", faults[0].mend);
    assert_eq!(faults[2].mend, "did you mean `effect`?");
    assert_eq!(faults[13].mend, "did you mean `label`?");
    assert_eq!(faults[16].mend, "move it above the first table of the manifest");
}

#[test]
fn values_of_the_wrong_kind_are_named() {
    for keys in [
        "timeout = true",
        "max_result_size = [1]",
        "effect = 1",
        "rerun = \"yes\"",
        "max_attempts = \"3\"",
        "enabled = 1",
        "weight = 0",
        "weight = 1.5",
        "secrets = \"A\"",
        "secrets = [\"A\", 1]",
        "tags = [\" \"]",
        "input = 1",
        "input.default = 1979-05-27",
        "output = 1",
        "presentation = \"x\"",
        "presentation.label = 1",
        "presentation.confirm = \"x\"",
        "presentation.de.label = 1979-05-27",
        "presentation.confirm.title = 1979-05-27",
    ] {
        assert_eq!(faults_of(keys), [("manifest.type", Some(1))], "{keys}");
    }
}

#[test]
fn values_out_of_bounds_have_their_own_codes() {
    for (keys, code) in [
        ("timeout = \"10\"", "units.missing"),
        ("max_result_size = 65536", "units.missing"),
        ("timeout = \"0ms\"", "tool.timeout-invalid"),
        ("total_timeout = \"ten\"", "tool.timeout-invalid"),
        ("max_result_size = \"0KB\"", "tool.max-result-size-invalid"),
        ("effect = \"Read\"", "tool.effect-invalid"),
        ("max_attempts = -1", "tool.max-attempts-invalid"),
        ("max_attempts = 1.0", "tool.max-attempts-invalid"),
        ("max_attempts = 101", "tool.max-attempts-invalid"),
        ("total_timeout = \"29s\"", "tool.total-timeout-invalid"),
        ("secrets = [\"TOOLFLEET_FENCE\"]", "tool.secret-invalid"),
    ] {
        assert_eq!(faults_of(keys), [(code, Some(1))], "{keys}");
    }
    assert_eq!(faults_of("total_timeout = \"30s\""), []);
}

#[test]
fn rerun_is_for_writes_only() {
    assert_eq!(faults_of("rerun = true"), []);
    assert_eq!(faults_of("rerun = true\neffect = \"write\""), []);
    for effect in ["read", "idempotent"] {
        let keys = format!("effect = \"{effect}\"\nrerun = true");
        assert_eq!(faults_of(&keys), [("tool.rerun-invalid", Some(2))]);
    }
}

#[test]
fn a_run_holds_exactly_one_runner() {
    for (run, expected) in [
        ("", vec![("manifest.missing", None)]),
        ("run = 1", vec![("manifest.type", Some(2))]),
        ("[run]\nresult = \"text\"", vec![("manifest.run", Some(2))]),
        ("[run]\nexec = []", vec![("manifest.run", Some(3))]),
        ("[run]\nexec = [\"\", \"a\"]", vec![("manifest.run", Some(3))]),
        ("[run]\nexec = [\"a\",\n \"b\\u0000\"]", vec![("manifest.run", Some(4))]),
        ("[run]\nexec = \"./a | b\"", vec![("manifest.type", Some(3))]),
        ("[run]\nexec = [\"a\"]\nagent = {}", vec![("manifest.run", Some(4))]),
        ("[run]\nhttp = \"https://x.example\"", vec![("manifest.not-yet", Some(3))]),
        ("[run]\nexec = [\"a\"]\nresult = \"xml\"", vec![("manifest.type", Some(4))]),
    ] {
        let faults = toml(&format!("description = \"D\"\n{run}")).unwrap_err();
        let found: Vec<_> = faults.iter().map(|fault| (fault.code, fault.line)).collect();
        assert_eq!(found, expected, "{run}");
    }
}

#[test]
fn an_output_schema_makes_the_result_json_unless_declared() {
    let text = format!("{SOUND}[output]\ntype = \"string\"\n");
    assert_eq!(toml(&text).unwrap().descriptor.result, ResultForm::Json);
    let text = format!("{SOUND}result = \"text\"\n[output]\ntype = \"string\"\n");
    assert_eq!(toml(&text).unwrap().descriptor.result, ResultForm::Text);
}

#[test]
fn a_schema_may_stand_in_a_file_beside() {
    let beside = |path: &str| match path {
        "schemas/in.json" => Ok("{\"type\": [\"null\", \"object\"]}".to_owned()),
        "broken.json" => Ok("{\n \"type\": \n}".to_owned()),
        "list.json" => Ok("[]".to_owned()),
        "array.json" => Ok("{\n\"type\": \"array\"}".to_owned()),
        other => nothing_beside(other),
    };
    let read = |path: &str| {
        let text = format!("input = \"{path}\"\n{SOUND}");
        parse_as("tools/find.toml", "find", &text, Syntax::Toml, &beside)
    };
    let manifest = read("./schemas/in.json").unwrap();
    assert_eq!(manifest.descriptor.input_schema, json!({"type": ["null", "object"]}));
    for (path, file, line, code) in [
        ("broken.json", "tools/broken.json", Some(3), "manifest.syntax"),
        ("list.json", "tools/list.json", None, "manifest.type"),
        ("array.json", "tools/array.json", Some(2), "tool.input-not-object"),
        ("gone.json", "tools/find.toml", Some(1), "manifest.path"),
        ("../in.json", "tools/find.toml", Some(1), "manifest.path"),
        ("/etc/in.json", "tools/find.toml", Some(1), "manifest.path"),
    ] {
        let faults = read(path).unwrap_err();
        let found = (faults[0].file.as_str(), faults[0].line, faults[0].code);
        assert_eq!((faults.len(), found), (1, (file, line, code)), "{path}");
    }
}

#[test]
fn a_schema_that_does_not_compile_is_a_fault_at_its_key() {
    let faults = toml(&format!("{SOUND}[input]\ntype = \"object\"\nproperties = 5\n")).unwrap_err();
    assert_eq!(faults.len(), 1);
    assert_eq!(faults[0].line, Some(4));
    assert!(faults[0].mend.contains("`input`"), "{}", faults[0]);
    let faults = toml(&format!("{SOUND}[output]\ntype = \"objekt\"\n")).unwrap_err();
    assert_eq!(faults.len(), 1);
    assert!(faults[0].mend.contains("`output`"), "{}", faults[0]);
}

#[test]
fn names_are_judged_by_shape_and_length() {
    let codes = |tool: &str| -> Vec<&'static str> {
        match parse_as("f", tool, SOUND, Syntax::Toml, &nothing_beside) {
            Ok(_) => Vec::new(),
            Err(faults) => faults.iter().map(|fault| fault.code).collect(),
        }
    };
    assert!(codes(&"a".repeat(64)).is_empty());
    assert_eq!(codes(&"a".repeat(65)), ["tool.name-too-long"]);
    assert_eq!(codes("a.b"), ["tool.name-invalid"]);
    assert_eq!(codes(""), ["tool.name-invalid"]);
    let both = format!("{}é", "a".repeat(64));
    assert_eq!(codes(&both), ["tool.name-too-long", "tool.name-invalid"]);
    for bad in ["1a", "-x", "ä b", "", &"é".repeat(70)] {
        assert!(is_tool_name(&checks::proposed(bad)), "{bad}");
    }
}

#[test]
fn a_text_that_cannot_be_read_says_where() {
    let faults = toml("description = \"D\"\ntimeout = \n[run]\nexec = [").unwrap_err();
    assert!(faults.iter().all(|fault| fault.code == "manifest.syntax"));
    assert_eq!(faults[0].line, Some(2));
    let broken = "{\n \"description\": \"D\",\n}";
    let faults = parse_as("a.json", "a", broken, Syntax::Json, &nothing_beside).unwrap_err();
    assert_eq!((faults[0].code, faults[0].line), ("manifest.syntax", Some(3)));
    let faults = parse_as("a.json", "a", "[]", Syntax::Json, &nothing_beside).unwrap_err();
    assert_eq!((faults[0].code, faults[0].line), ("manifest.type", Some(1)));
    let faults = toml(&"#".repeat(MANIFEST_BYTES_MAX + 1)).unwrap_err();
    assert_eq!((faults.len(), faults[0].code), (1, "manifest.too-large"));
}

#[test]
fn misplaced_keys_are_sent_where_they_belong() {
    let faults = toml("description = \"D\"\nexec = [\"./a\"]\n").unwrap_err();
    let unknown = faults.iter().find(|fault| fault.code == "manifest.unknown-key").unwrap();
    assert_eq!(unknown.mend, "move it under `[run]`");
}

#[test]
fn two_files_of_one_tool_are_a_fault_of_both() {
    let set = |names: &[(&str, &str)]| {
        let owned: Vec<_> = names.iter().map(|(f, t)| ((*f).into(), (*t).into())).collect();
        check_set(&owned)
    };
    assert!(set(&[("a.toml", "a"), ("b.json", "b")]).is_empty());
    let faults = set(&[("a.json", "a"), ("a.toml", "a"), ("b.toml", "b")]);
    let found: Vec<_> = faults.iter().map(|fault| (fault.code, fault.file.as_str())).collect();
    assert_eq!(found, [("tool.duplicate-name", "a.json"), ("tool.duplicate-name", "a.toml")]);
    assert!(faults[0].message.contains("`a.toml`") && faults[1].message.contains("`a.json`"));
}

#[test]
fn the_line_of_a_key_can_be_asked_for() {
    assert_eq!(line_of(SOUND, Syntax::Toml, &["run", "exec"]), Some(3));
    assert_eq!(line_of(SOUND, Syntax::Toml, &["run", "http"]), None);
    assert_eq!(line_of("{\n\"run\": 1}", Syntax::Json, &["run"]), Some(2));
    assert_eq!(line_of("{\n\"run\": 1}", Syntax::Json, &["run", "exec"]), None);
}

#[test]
fn the_layers_settle_what_the_manifest_leaves_open() {
    use crate::layers::{Defaults, Origin};
    let rules = Rules {
        naming: None,
        pool: Defaults { timeout_ms: Some(5_000), ..Defaults::default() },
        fleet: Defaults {
            timeout_ms: Some(7_000),
            max_attempts: Some(2),
            result_bytes_max: Some(1_024),
            ..Defaults::default()
        },
    };
    let read = |keys: &str| {
        let text = format!("{keys}\n{SOUND}");
        let source = Source {
            file: "f",
            package: Some("crm"),
            stem: "find",
            text: &text,
            syntax: Syntax::Toml,
        };
        parse(source, &rules, &nothing_beside)
    };
    let manifest = read("max_attempts = 4").unwrap();
    let found = &manifest.descriptor;
    assert_eq!(found.name, "crm_find");
    assert_eq!((found.timeout_ms, found.total_timeout_ms), (5_000, 20_000));
    assert_eq!((found.queue_timeout_ms, found.result_bytes_max), (60_000, 1_024));
    let origins = manifest.origins;
    assert_eq!((origins.timeout, origins.max_attempts), (Origin::Pool, Origin::Tool));
    assert_eq!((origins.queue_timeout, origins.max_result_size), (Origin::BuiltIn, Origin::Fleet));
    let faults = read("total_timeout = \"4s\"").unwrap_err();
    assert_eq!(faults[0].code, "tool.total-timeout-invalid");
    assert!(faults[0].message.contains("5 s"), "{}", faults[0].message);
}

proptest! {
    #[test]
    fn any_text_is_a_manifest_or_has_faults(text in "[a-z]{1,8} ?= ?[\"\\[{]?[a-z0-9.]{0,6}.*") {
        for syntax in [Syntax::Toml, Syntax::Json] {
            if let Err(faults) = parse_as("f", "f", &text, syntax, &nothing_beside) {
                prop_assert!(!faults.is_empty());
            }
        }
    }
}
