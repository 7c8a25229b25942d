//! The keys whose work comes later.

use super::*;
use crate::declared::{CanUse, Declared, DryRunResult, Enabled, ProcessLimits, Retry};
use crate::money::Money;

/// Codes of the faults of a manifest with these keys, and what it declares.
fn read_keys(keys: &str) -> (Vec<(&'static str, Option<u32>)>, Option<Declared>) {
    let text = format!(
        "{keys}\ndescription = \"Finds\"\n[input]\ntype = \"object\"\n\
         properties.until.type = \"string\"\n[run]\nexec = [\"./find.sh\"]\n"
    );
    let source =
        Source { file: "f", package: None, stem: "find", text: &text, syntax: Syntax::Toml };
    let (manifest, faults) = read(source, &Rules::default(), &nothing_beside);
    let codes = faults.iter().map(|fault| (fault.code, fault.line)).collect();
    (codes, manifest.map(|manifest| manifest.descriptor.declared))
}

/// Each key that waits, well written, on line 1.
const WAITING: [(&str, &str); 7] = [
    ("roles", "roles = [\"admin\"]"),
    ("ability", "ability = \"refund\""),
    ("can_use", "can_use = { expr = \"actor.id != ''\" }"),
    ("channel", "channel = \"owner\""),
    ("confirm", "confirm = true"),
    ("preflight", "preflight = true"),
    ("cost", "cost = \"0.05 USD\""),
];

#[test]
fn every_known_key_that_does_nothing_yet_is_refused_by_name() {
    let waiting: Vec<&str> =
        TOP.iter().filter(|key| key.support == Support::NotYet).map(|key| key.name).collect();
    assert_eq!(waiting, WAITING.map(|(key, _)| key), "each needs an example here");
    for (key, example) in WAITING {
        let faults =
            toml(&format!("{example}\ninput.properties.until = {{}}\n{SOUND}")).unwrap_err();
        assert_eq!(faults.len(), 1, "{key}: {faults:?}");
        assert_eq!((faults[0].code, faults[0].line), ("manifest.not-yet", Some(1)), "{key}");
        assert!(faults[0].message.contains(key), "{}", faults[0]);
    }
    for keys in
        ["enabled = false", "enabled = { flag = \"x\" }", "enabled = { env = \"X\" }", "weight = 2"]
    {
        assert_eq!(faults_of(keys), [("manifest.not-yet", Some(1))], "{keys}");
    }
    for run in [
        "http = \"https://x.example\"",
        "http = { url = \"http://x.example\", sign = \"KEY\" }",
        "mcp = { command = [\"server\"], tool = \"find\" }",
        "mcp = { url = \"https://x.example\", tool = \"find\" }",
        "agent = { model = \"m\" }",
        "exec = [\"a\"]\nmode = \"warm\"",
        "exec = [\"a\"]\nverify = { exec = [\"b\"] }",
        "exec = [\"a\"]\nverify.http = \"https://x.example\"",
    ] {
        let faults = toml(&format!("description = \"D\"\n[run]\n{run}")).unwrap_err();
        let codes: Vec<_> = faults.iter().map(|fault| fault.code).collect();
        assert_eq!(codes, ["manifest.not-yet"], "{run}: {faults:?}");
    }
}

#[test]
fn what_they_say_is_kept_in_the_descriptor() {
    let (_, declared) = read_keys(
        "effect = { expr = \"has(input.until) ? 'read' : 'write'\" }\n\
         retry = { wait_max = \"1.5s\" }\ntime_args = [\"until\", \"until\"]\n\
         dry_run_result = { expr = \"input\" }\nroles = [\"a\", \"b\", \"a\"]\nability = \"x\"\n\
         enabled = { env = \"ON\" }\ncan_use = { webhook = \"https://gate.example\" }\n\
         channel = \"owner\"\nconfirm = true\npreflight = false\ncost = \"0.05 USD\"\nweight = 3\n\
         limits = { memory = \"64MB\", cpu_time = \"2s\", processes = 8, open_files = 64, file_size = \"1MB\" }",
    );
    let declared = declared.unwrap();
    assert_eq!(
        declared.effect_expr.unwrap().expr,
        "has(input.until) ? 'read' : 'write'",
        "the descriptor's effect is then the most that it may yield"
    );
    assert_eq!(declared.retry, Some(Retry { tries: 3, wait_max_ms: Some(1_500) }));
    assert_eq!(declared.time_args, ["until"]);
    assert_eq!(declared.dry_run_result, Some(DryRunResult::Expr("input".into())));
    assert_eq!(
        (declared.roles, declared.ability),
        (vec!["a".into(), "b".into()], Some("x".into()))
    );
    assert_eq!(declared.enabled, Enabled::Env("ON".into()));
    assert_eq!(declared.can_use, Some(CanUse::Webhook("https://gate.example".into())));
    assert_eq!(declared.channel.as_deref(), Some("owner"));
    assert!(declared.confirm && !declared.preflight);
    assert_eq!(declared.cost, Some(Money { nano: 50_000_000, currency: "USD".into() }));
    assert_eq!(declared.weight, Some(3));
    let limits = ProcessLimits {
        memory_bytes: Some(64 << 20),
        cpu_time_ms: Some(2_000),
        processes: Some(8),
        open_files: Some(64),
        file_size_bytes: Some(1 << 20),
    };
    assert_eq!(declared.limits, Some(limits));

    let (_, declared) = read_keys("dry_run_result = [1, \"x\"]\nenabled = { flag = \"f\" }");
    let declared = declared.unwrap();
    assert_eq!(declared.dry_run_result, Some(DryRunResult::Value(json!([1, "x"]))));
    assert_eq!(declared.enabled, Enabled::Flag("f".into()));
    let (faults, declared) = read_keys("weight = 1\nenabled = true");
    assert_eq!((faults, declared), (vec![], Some(Declared::default())));
}

#[test]
fn the_line_of_an_expression_that_is_wrong_is_told() {
    let (faults, _) = read_keys("tags = []\n[effect]\n\nexpr = \"inptu.x\"");
    assert!(faults.contains(&("tool.expression-invalid", Some(4))), "{faults:?}");
}

#[test]
fn what_a_dry_run_answers_fits_the_output() {
    let of = |result: &str, rest: &str| {
        let text = format!(
            "dry_run_result = {result}\ndescription = \"D\"\n{rest}\n[run]\nexec = [\"a\"]"
        );
        match toml(&text) {
            Ok(_) => Vec::new(),
            Err(faults) => faults.iter().map(|fault| (fault.code, fault.line)).collect(),
        }
    };
    let typed = "[output]\ntype = \"object\"\nrequired = [\"id\"]";
    let faulty = [("tool.dry-run-result-invalid", Some(1))];
    assert_eq!(of("{ id = 7 }", typed), []);
    assert_eq!(of("{ name = 7 }", typed), faulty);
    assert_eq!(of("\"done\"", typed), faulty);
    assert_eq!(of("{ expr = \"1\" }", typed), [], "what it yields is checked when it is asked");
    assert_eq!(of("\"done\"", ""), []);
    assert_eq!(of("[1, 2]", ""), []);
}

#[test]
fn the_way_to_verify_and_a_program_that_stays_are_kept_too() {
    let text = "description = \"D\"\n[run]\nexec = [\"a\"]\nmode = \"warm\"\nverify = { exec = [\"./asked\"] }";
    let source = Source { file: "f", package: None, stem: "f", text, syntax: Syntax::Toml };
    let (manifest, _) = read(source, &Rules::default(), &nothing_beside);
    let declared = manifest.unwrap().descriptor.declared;
    assert!(declared.warm);
    assert_eq!(declared.verify, Some(Runner::Exec { command: vec!["./asked".into()] }));
}

#[test]
fn their_forms_are_checked_all_the_same() {
    for (keys, code) in [
        ("effect = { exp = \"x\" }", "manifest.unknown-key"),
        ("effect = { expr = \" \" }", "tool.expression-invalid"),
        ("effect = { expr = 1 }", "manifest.type"),
        ("effect = { expr = \"inptu.x\" }", "tool.expression-invalid"),
        ("effect = { expr = \"input.x ? 'read'\" }", "tool.expression-invalid"),
        ("dry_run_result = { expr = \"now()\" }", "tool.expression-invalid"),
        ("retry = 3", "manifest.type"),
        ("retry = {}", "tool.retry-invalid"),
        ("retry = { trys = 3 }\neffect = \"read\"", "manifest.unknown-key"),
        ("retry = { tries = 11 }\neffect = \"read\"", "tool.retry-invalid"),
        ("retry = { wait_max = 1 }\neffect = \"read\"", "units.missing"),
        ("retry = { wait_max = \"0s\" }\neffect = \"read\"", "tool.retry-invalid"),
        ("roles = []", "manifest.type"),
        ("roles = \"admin\"", "manifest.type"),
        ("ability = \"\"", "manifest.type"),
        ("enabled = { flags = \"x\" }", "manifest.unknown-key"),
        ("enabled = { flag = \"x\", env = \"Y\" }", "manifest.type"),
        ("can_use = \"actor.ok\"", "manifest.type"),
        ("can_use = { webhook = \"gate\" }", "manifest.type"),
        ("channel = 1", "manifest.type"),
        ("confirm = \"yes\"", "manifest.type"),
        ("preflight = true\neffect = \"read\"", "tool.preflight-invalid"),
        ("time_args = [\"after\"]", "tool.time-args-invalid"),
        ("time_args = \"until\"", "manifest.type"),
        ("dry_run_result = { at = 1979-05-27 }", "manifest.type"),
        ("dry_run_result = { expr = \"\" }", "tool.expression-invalid"),
        ("cost = 0.05", "units.missing"),
        ("cost = \"0.05\"", "units.missing"),
        ("cost = \"0.05 dollars\"", "tool.cost-invalid"),
        ("cost = \"-1 USD\"", "tool.cost-invalid"),
        ("limits = { memory = 64 }", "units.missing"),
        ("limits = { memory = \"0B\" }", "tool.limits-invalid"),
        ("limits = { processes = 0 }", "tool.limits-invalid"),
        ("limits = { open_files = \"4\" }", "manifest.type"),
        ("limits = { cpu = \"1s\" }", "manifest.unknown-key"),
    ] {
        let (faults, _) = read_keys(keys);
        let found: Vec<_> = faults.iter().map(|(code, _)| *code).collect();
        assert!(found.contains(&code), "{keys}: {found:?}");
        assert!(faults.iter().all(|(_, line)| *line == Some(1)), "{keys}: {faults:?}");
    }
    for (run, code) in [
        ("http = \"x\"", "manifest.type"),
        ("http = {}", "manifest.run"),
        ("mcp = { tool = \"x\" }", "manifest.run"),
        ("mcp = { command = [\"s\"] }", "manifest.run"),
        ("mcp = { command = [\"s\"], tool = \"x\", args = 1 }", "manifest.unknown-key"),
        ("agent = 1", "manifest.type"),
        ("exec = [\"a\"]\nmode = \"hot\"", "manifest.type"),
        ("exec = [\"a\"]\nverify = {}", "manifest.run"),
        ("exec = [\"a\"]\nverify = { exec = [] }", "manifest.run"),
    ] {
        let faults = toml(&format!("description = \"D\"\n[run]\n{run}")).unwrap_err();
        assert!(faults.iter().any(|fault| fault.code == code), "{run}: {faults:?}");
    }
    let reads = "description = \"D\"\neffect = \"read\"\n[run]\nexec = [\"a\"]\nverify = { exec = [\"b\"] }";
    let faults = toml(reads).unwrap_err();
    assert!(faults.iter().any(|fault| fault.code == "tool.verify-invalid"), "{faults:?}");
}
