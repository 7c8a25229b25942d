//! Taking a call's arguments in (CONTRACT 3.3, 3.4): read, checked, nulls that stand for absent
//! properties dropped, defaults filled in. Never guessed at, never repaired.

use crate::json::Json;
use crate::limit::ARGUMENT_BYTES_MAX;
use crate::schema::Schema;

/// Arguments that fit a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Admitted {
    /// As they were sent.
    pub sent: Json,
    /// As the tool gets them.
    pub given: Json,
}

/// Reads and checks arguments; absent and blank ones are `{}`. `input` is the tool's schema.
///
/// # Errors
/// What the model reads: `invalid input: …`.
pub fn admit(input: &Schema, text: Option<&str>) -> Result<Admitted, String> {
    let bytes = text.map_or(0, str::len);
    if bytes > ARGUMENT_BYTES_MAX {
        return Err(invalid(&format!(
            "the arguments have {bytes} bytes, the limit is {ARGUMENT_BYTES_MAX}"
        )));
    }
    let sent = Json::parse_arguments(text).map_err(|issue| invalid(&issue))?;
    let given = input.admit(&sent).map_err(|issues| invalid(&issues))?;
    Ok(Admitted { sent, given })
}

/// The text of a refusal of arguments.
pub fn invalid(issue: &str) -> String {
    format!("invalid input: {issue}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_come_with_their_defaults_or_with_what_is_wrong() {
        let schema = Schema::compile(&json!({
            "type": "object", "required": ["city"],
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 3}},
        }))
        .unwrap();
        let admitted = admit(&schema, Some(r#"{"city":"Oslo"}"#)).unwrap();
        assert_eq!(admitted.given.to_text(), r#"{"city":"Oslo","days":3}"#);
        assert_eq!(admitted.sent.to_text(), r#"{"city":"Oslo"}"#);
        assert!(admit(&schema, None).unwrap_err().starts_with("invalid input: city: "));
        assert!(
            admit(&schema, Some("{")).unwrap_err().starts_with("invalid input: not valid JSON")
        );
        let long = format!(r#"{{"city":"{}"}}"#, "x".repeat(ARGUMENT_BYTES_MAX));
        assert!(admit(&schema, Some(&long)).unwrap_err().contains("the limit is 262144"));
    }
}
