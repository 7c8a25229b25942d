//! Expressions.

use super::*;
use proptest::prelude::*;

fn input(text: &str) -> Json {
    Json::parse(text).unwrap()
}

fn evaluate(expression: &str, given: &str) -> Result<String, String> {
    let program = Program::compile(expression).map_err(|error| format!("{expression}: {error}"))?;
    let value = program.evaluate(&input(given)).map_err(|error| error.to_string())?;
    Ok(value.to_text())
}

#[test]
fn an_effect_follows_the_input() {
    let program = Program::compile("has(input.dry) && input.dry ? 'read' : 'write'").unwrap();
    assert_eq!(program.effect(&input(r#"{"dry": true}"#)), Ok(Effect::Read));
    assert_eq!(program.effect(&input(r#"{"dry": false}"#)), Ok(Effect::Write));
    assert_eq!(program.effect(&input("{}")), Ok(Effect::Write));
    let program = Program::compile("input.verb in ['get', 'list'] ? 'read' : input.verb").unwrap();
    assert_eq!(program.effect(&input(r#"{"verb": "get"}"#)), Ok(Effect::Read));
    assert_eq!(program.effect(&input(r#"{"verb": "idempotent"}"#)), Ok(Effect::Idempotent));
    let other = program.effect(&input(r#"{"verb": "READ"}"#)).unwrap_err();
    assert_eq!(other.to_string(), "it yields none of `read`, `idempotent` and `write`");
    assert_eq!(program.effect(&input("{}")).unwrap_err().to_string(), "no such key: verb");
    for expression in ["input.n", "true", "['read']", "null"] {
        let program = Program::compile(expression).unwrap();
        assert!(program.effect(&input(r#"{"n": 1}"#)).is_err(), "{expression}");
    }
}

#[test]
fn the_language_does_what_its_authors_expect() {
    let given = r#"{"sql": "  SELECT 1", "n": 7, "big": 18446744073709551615, "f": 1.5, "z": null,
                    "items": [{"k": "a", "n": 1}, {"k": "b", "n": 2}], "m": {"x": [1, 2]}}"#;
    for (expression, value) in [
        ("input.sql.matches('(?i)^[ ]*select')", "true"),
        ("matches(input.sql, 'S[A-Z]+ 1') && !input.sql.matches('^S')", "true"),
        ("input.sql.contains('SEL') && input.sql.endsWith('1')", "true"),
        ("size(input.items) == 2 && input.items.size() == 2", "true"),
        ("input.items.exists(i, i.k == 'b')", "true"),
        ("input.items.all(i, i.n > 1)", "false"),
        ("input.items.exists_one(i, i.n > 1)", "true"),
        ("input.items.map(i, i.n * 2)", "[2,4]"),
        ("input.items.filter(i, i.n > 1)", r#"[{"k":"b","n":2}]"#),
        ("input.items.map(i, input.m.x.map(x, x + i.n))", "[[2,3],[3,4]]"),
        (
            "{'z': input.z, 'a': [input.n, input.f], 'b': input.big}",
            r#"{"a":[7,1.5],"b":18446744073709551615,"z":null}"#,
        ),
        ("'n' in input && !('q' in input)", "true"),
        ("has(input.m.x) && !has(input.m.y)", "true"),
        ("input['n'] + 1", "8"),
        ("string(input.n) + '!'", r#""7!""#),
        ("input.n == 7.0 && input.f < 2", "true"),
        ("type(input.n) == type(1)", "true"),
    ] {
        assert_eq!(evaluate(expression, given).as_deref(), Ok(value), "{expression}");
    }
}

#[test]
fn what_cannot_work_is_told_when_it_is_compiled() {
    for (expression, told) in [
        ("", "the expression is empty"),
        ("input.x ==", "line 1, column"),
        ("inptu.x", "there is no `inptu`; the arguments are `input`"),
        ("input.items.exists(i, j.n > 1)", "there is no `j`"),
        ("now() > 1", "there is no function `now`"),
        ("input.x.matches(input.y)", "the pattern of `matches` must be written out"),
        ("input.x.matches('(a')", "the pattern (a: unclosed group"),
        ("input.x.matches('(\\\\w{99}){99}')", "exceeds size limit of 262144 bytes"),
        ("matches(input.x)", "`matches` takes a text and a pattern"),
        ("timestamp('2020-01-01T00:00:00Z')", "there is no function `timestamp`"),
        ("Thing{a: 1}", "there is no type `Thing`"),
    ] {
        let error = Program::compile(expression).unwrap_err().to_string();
        assert!(error.contains(told), "{expression}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let long = format!("'{}'", "x".repeat(EXPRESSION_BYTES_MAX));
    assert!(Program::compile(&long).unwrap_err().to_string().contains("more than 4096"));
    let macros = vec!["input.a.exists(x, x)"; MACROS_MAX + 1].join(" || ");
    assert!(Program::compile(&macros).unwrap_err().to_string().contains("more than 16 macros"));
    for open in ["(", "[", "!(", "-("] {
        let close = if open == "[" { "]" } else { ")" };
        let count = EXPRESSION_BYTES_MAX / (open.len() + 1) - 1;
        let deep = format!("{}1{}", open.repeat(count), close.repeat(count));
        assert!(Program::compile(&deep).is_err(), "{open}");
    }
    for link in [".a", "[0]", "+1", "*1", "==1", ".a()", " in 1"] {
        let chain = format!("input{}", link.repeat((EXPRESSION_BYTES_MAX - 5) / link.len()));
        assert!(Program::compile(&chain).is_err(), "{link}");
    }
    let flat = vec!["input.a"; 400].join("||");
    assert!(Program::compile(&flat).is_ok(), "what is long and not deep has room");
}

/// Each of these grows or goes on without the allowance.
#[test]
fn an_evaluation_ends_within_its_allowance() {
    let many = format!(r#"{{"a": [{}1], "s": "{}"}}"#, "1,".repeat(50_000), "x".repeat(100_000));
    for expression in [
        "input.a.all(x, input.a.all(y, x == y || true))",
        "input.a.all(x, input.s == input.s)",
        "input.a.map(x, input.s)",
        "input.a.map(x, [input.a])",
        "[input.s].map(x, x+x+x+x).map(x, x+x+x+x).map(x, x+x+x+x).map(x, x+x+x+x).map(x, x+x+x+x)\
         .map(x, x+x+x+x).map(x, x+x+x+x).map(x, x+x+x+x)",
        "[[1]].map(x, [x,x,x,x]).map(x, [x,x,x,x]).map(x, [x,x,x,x]).map(x, [x,x,x,x])\
         .map(x, [x,x,x,x]).map(x, [x,x,x,x]).map(x, [x,x,x,x]).map(x, [x,x,x,x])\
         .map(x, [x,x,x,x]).map(x, [x,x,x,x]).map(x, [x,x,x,x]).map(x, [x,x,x,x])",
        "input.a.all(x, input.s.contains('y' + input.s) || true)",
        "input.a.all(x, !input.s.matches('y$'))",
    ] {
        let told = evaluate(expression, &many).unwrap_err();
        assert_eq!(told, "it takes more than 2000000 steps", "{expression}");
    }
    // What is ordinary has room.
    assert_eq!(evaluate("input.a.exists(x, x == 2)", &many).as_deref(), Ok("false"));
    assert_eq!(evaluate("size(input.a.filter(x, x > 0))", &many).as_deref(), Ok("50001"));
    assert_eq!(evaluate("input.s.endsWith('y')", &many).as_deref(), Ok("false"));
    let matched = evaluate("input.a.exists(x, string(x).matches('2'))", &many);
    assert_eq!(matched.as_deref(), Ok("false"));
}

#[test]
fn what_is_said_of_an_error_holds_no_values() {
    let given = r#"{"card": "4111111111111111", "list": [1]}"#;
    for (expression, told) in [
        ("input.card + 1", "a value of the wrong type"),
        ("input.list[3]", "an index out of bounds"),
        ("input.list.matches('a')", "found no matching overload for 'matches' applied to '(list)'"),
        ("1 / 0", "division by zero"),
        ("9223372036854775807 + 1", "an integer overflows"),
        ("int(input.card + 'x')", "int() fails"),
        ("1.0 / 0.0", "it yields no finite number"),
        ("bytes(input.card)", "it yields a bytes, which JSON cannot say"),
        ("{1: 2}", "it yields a map with a key that is no string"),
    ] {
        let error = evaluate(expression, given).unwrap_err();
        assert_eq!(error, told, "{expression}");
    }
}

proptest! {
    #[test]
    fn any_text_compiles_or_is_refused(text in "[a-z0-9().,'\\[\\]{}:?&|+*!<= -]{0,60}|input[.][a-z]{1,3}.{0,30}") {
        if let Ok(program) = Program::compile(&text) {
            let _ = program.evaluate(&Json::Object(Vec::new()));
        }
    }
}
