//! The bounds in time of an execution that sees the world as of an instant (CONTRACT 3.10).

use crate::end::instant;
use crate::json::Json;
use crate::schema::path::shorten;
use crate::schema::{Issue, describe_issues};

/// Checks that each named property is an absolute instant with a zone, none later than `as_of_ms`
/// (milliseconds since the Unix epoch). The error is the text that follows `invalid input: `; it tells
/// a model how to call again.
pub fn check(names: &[String], input: &Json, as_of_ms: i64) -> Result<(), String> {
    let issues: Vec<Issue> = names
        .iter()
        .filter_map(|name| {
            let text = fault(input.get(name), as_of_ms)?;
            Some(Issue { path: name.clone(), text })
        })
        .collect();
    if issues.is_empty() {
        return Ok(());
    }
    let as_of = instant(as_of_ms);
    Err(format!(
        "{}; this execution sees everything as of {as_of}: call again with absolute bounds, instants \
         with a zone such as \"{as_of}\", none of them later",
        describe_issues(&issues)
    ))
}

fn fault(value: Option<&Json>, as_of_ms: i64) -> Option<String> {
    let Some(value) = value else { return Some("required here, but missing".to_owned()) };
    let Json::String(text) = value else {
        return Some("expected an absolute instant, a string".to_owned());
    };
    let quoted = Json::String(shorten(text)).to_text();
    match (text.parse::<jiff::Timestamp>(), jiff::Timestamp::from_millisecond(as_of_ms)) {
        (Err(_), _) => Some(format!("expected an absolute instant with a zone, got {quoted}")),
        (Ok(at), Ok(as_of)) if at > as_of => {
            Some(format!("{quoted} is later than {}", instant(as_of_ms)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2025-01-01T00:00:00Z
    const AS_OF_MS: i64 = 1_735_689_600_000;

    fn told(input: &str) -> Result<(), String> {
        let names = ["since".to_owned(), "until".to_owned()];
        check(&names, &Json::parse(input).unwrap(), AS_OF_MS)
    }

    #[test]
    fn absolute_bounds_up_to_the_instant_pass_and_others_are_told_how_to_mend() {
        for until in [
            "2025-01-01T00:00:00Z",
            "2025-01-01T02:00:00+02:00",
            "2024-12-31T19:00:00-05:00",
            "2024-06-01T00:00:00.123456789Z",
        ] {
            let input = format!(r#"{{"since": "1999-01-01T00:00:00Z", "until": "{until}"}}"#);
            assert_eq!(told(&input), Ok(()), "{until}");
        }
        for (until, what) in [
            (r#""2025-01-01T00:00:00.001Z""#, "is later than 2025-01-01T00:00:00Z"),
            (r#""2025-01-01T00:00:00-00:01""#, "is later than"),
            (r#""2025-01-01T00:00:00""#, "expected an absolute instant with a zone"),
            (r#""2025-01-01""#, "expected an absolute instant with a zone"),
            (r#""yesterday""#, r#"got "yesterday""#),
            ("1735689600", "expected an absolute instant, a string"),
            ("null", "expected an absolute instant, a string"),
        ] {
            let input = format!(r#"{{"since": "1999-01-01T00:00:00Z", "until": {until}}}"#);
            let text = told(&input).unwrap_err();
            assert!(text.starts_with("until: ") && text.contains(what), "{until}: {text}");
            assert!(text.contains("call again with absolute bounds"), "{text}");
        }
        let text = told("{}").unwrap_err();
        assert!(text.starts_with("since: required here, but missing; until: required"), "{text}");
        assert_eq!(check(&[], &Json::Null, AS_OF_MS), Ok(()));
        let long = told(&format!(r#"{{"since": "{}"}}"#, "x".repeat(9_999))).unwrap_err();
        assert!(long.len() < 600, "what is quoted is cut: {}", long.len());
    }
}
