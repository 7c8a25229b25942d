//! JSON as models send it: parsed strictly, digits kept (CONTRACT 3.3).

use crate::schema::path::{push_index, push_key, shorten};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Number, Value, value::RawValue};
use sha2::{Digest, Sha256};
use std::{collections::HashSet, fmt, marker::PhantomData};

/// The deepest nesting of arrays and objects that is taken.
pub const DEPTH_MAX: usize = 64;

/// A JSON value that keeps the digits of its numbers and the order of its keys.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// The number's own text.
    Number(String),
    /// A string, decoded.
    String(String),
    /// Items in order.
    Array(Vec<Json>),
    /// Members in order; names are unique.
    Object(Vec<(String, Json)>),
}

/// What is wrong with a text that was to be JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseFault {
    /// Not JSON at all.
    Syntax,
    /// An object has the same name twice.
    DuplicateKey,
    /// Half of a surrogate pair, which is no character.
    LoneSurrogate,
    /// A number beyond the range of a 64-bit float.
    OutOfRange,
    /// Nested deeper than [`DEPTH_MAX`].
    TooDeep,
}

/// Why a text was refused. Its `Display` is what a model reads: `<path>: <what>`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ParseError {
    /// The kind of fault.
    pub fault: ParseFault,
    /// Where, as in `jobs[2].url`; empty for the whole text.
    pub path: String,
    text: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.text)
    }
}

impl ParseError {
    fn new(fault: ParseFault, path: &str, text: impl Into<String>) -> ParseError {
        ParseError { fault, path: path.to_owned(), text: text.into() }
    }

    fn syntax(error: &serde_json::Error) -> ParseError {
        ParseError::new(ParseFault::Syntax, "", format!("not valid JSON: {error}"))
    }
}

impl Json {
    /// Reads exactly one JSON value (RFC 8259), white space around it allowed.
    ///
    /// Refused, each with its path: a repeated key, half of a surrogate pair, a number out of the
    /// range of a 64-bit float, nesting deeper than [`DEPTH_MAX`]. The length is the caller's to
    /// bound.
    pub fn parse(text: &str) -> Result<Json, ParseError> {
        // This scan is iterative and finds every fault of syntax with its line and column. What
        // follows reads parts that are known to be well formed.
        let raw: &RawValue =
            serde_json::from_str(text).map_err(|error| ParseError::syntax(&error))?;
        read(raw.get(), &mut String::new(), 0)
    }

    /// Reads a call's arguments; absent, empty, blank and `null` mean `{}`.
    ///
    /// The error is the text that follows `invalid input: `.
    pub fn parse_arguments(text: Option<&str>) -> Result<Json, String> {
        let text = text.unwrap_or_default();
        if text.trim().is_empty() {
            return Ok(Json::Object(Vec::new()));
        }
        let got = match Json::parse(text).map_err(|error| error.to_string())? {
            arguments @ Json::Object(_) => return Ok(arguments),
            Json::Null => return Ok(Json::Object(Vec::new())),
            Json::Bool(_) => "a boolean",
            Json::Number(_) => "a number",
            Json::Array(_) => "an array",
            Json::String(inner) if serde_json::from_str::<IgnoredAny>(&inner).is_ok() => {
                "a string that holds JSON: send the arguments as an object, encoded once"
            }
            Json::String(_) => "a string",
        };
        Err(format!("expected an object, got {got}"))
    }

    /// Converts a value.
    pub fn from_value(value: &Value) -> Json {
        match value {
            Value::Null => Json::Null,
            Value::Bool(b) => Json::Bool(*b),
            Value::Number(n) => Json::Number(n.to_string()),
            Value::String(s) => Json::String(s.clone()),
            Value::Array(items) => Json::Array(items.iter().map(Json::from_value).collect()),
            Value::Object(members) => Json::Object(
                members.iter().map(|(k, v)| (k.clone(), Json::from_value(v))).collect(),
            ),
        }
    }

    /// Converts to a value. Numbers that fit neither `u64` nor `i64` become the nearest float, so
    /// the result is for checks, not for handing on.
    pub fn to_value(&self) -> Value {
        match self {
            Json::Null => Value::Null,
            Json::Bool(b) => Value::Bool(*b),
            Json::Number(digits) => number(digits),
            Json::String(text) => Value::String(text.clone()),
            Json::Array(items) => Value::Array(items.iter().map(Json::to_value).collect()),
            Json::Object(members) => {
                let members = members.iter().map(|(name, value)| (name.clone(), value.to_value()));
                Value::Object(members.collect::<Map<_, _>>())
            }
        }
    }

    /// Compact text, digits and order kept.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, false);
        text
    }

    /// Compact text with the names of each object sorted bytewise: equal for equal values.
    pub fn canonical(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, true);
        text
    }

    /// SHA-256 of [`Json::canonical`].
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.canonical()).into()
    }

    /// The same values with every whole number written without point and exponent: `5.0` and `5e0` as
    /// `5`. What is not whole, or has more than 40 digits, stays as it is.
    #[must_use]
    pub fn with_whole_numbers(&self) -> Json {
        match self {
            Json::Number(digits) => Json::Number(whole(digits).unwrap_or_else(|| digits.clone())),
            Json::Array(items) => Json::Array(items.iter().map(Json::with_whole_numbers).collect()),
            Json::Object(members) => Json::Object(
                members
                    .iter()
                    .map(|(name, value)| (name.clone(), value.with_whole_numbers()))
                    .collect(),
            ),
            other => other.clone(),
        }
    }

    /// The member of that name, if this is an object that has it.
    pub fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Json::Object(members) => {
                members.iter().find(|(name, _)| name == key).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    fn write(&self, text: &mut String, is_sorted: bool) {
        match self {
            Json::Null => text.push_str("null"),
            Json::Bool(bool) => text.push_str(if *bool { "true" } else { "false" }),
            Json::Number(digits) => text.push_str(digits),
            Json::String(string) => write_string(text, string),
            Json::Array(items) => {
                text.push('[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        text.push(',');
                    }
                    item.write(text, is_sorted);
                }
                text.push(']');
            }
            Json::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                if is_sorted {
                    members.sort_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
                }
                text.push('{');
                for (at, (name, value)) in members.into_iter().enumerate() {
                    if at > 0 {
                        text.push(',');
                    }
                    write_string(text, name);
                    text.push(':');
                    value.write(text, is_sorted);
                }
                text.push('}');
            }
        }
    }
}

/// A JSON number as a whole one, if it is whole by value. `None` also where it is written so already.
fn whole(digits: &str) -> Option<String> {
    const DIGITS_MAX: usize = 40;
    let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None if digits.contains('.') => (digits, 0),
        None => return None,
    };
    let (sign, mantissa) =
        mantissa.strip_prefix('-').map_or(("", mantissa), |mantissa| ("-", mantissa));
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{before}{after}");
    let shift = exponent.checked_sub(i64::try_from(after.len()).ok()?)?;
    let text = if shift >= 0 {
        let zeros = usize::try_from(shift).ok().filter(|zeros| *zeros <= DIGITS_MAX)?;
        format!("{all}{}", "0".repeat(zeros))
    } else {
        let cut = usize::try_from(shift.unsigned_abs()).ok()?;
        // All of it may be fraction: then only zero is whole.
        let (kept, gone) = all.split_at(all.len().saturating_sub(cut));
        if gone.bytes().any(|digit| digit != b'0') {
            return None;
        }
        kept.to_owned()
    };
    match text.trim_start_matches('0') {
        "" => Some("0".into()),
        text if text.len() > DIGITS_MAX => None,
        text => Some(format!("{sign}{text}")),
    }
}

/// Writes a string as JSON: escapes only what RFC 8259 asks for.
fn write_string(text: &mut String, string: &str) {
    use fmt::Write as _;
    text.push('"');
    for c in string.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            c if c < ' ' => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

fn number(digits: &str) -> Value {
    if let Ok(number) = digits.parse::<u64>() {
        return Value::from(number);
    }
    if let Ok(number) = digits.parse::<i64>() {
        return Value::from(number);
    }
    digits.parse().ok().and_then(Number::from_f64).map_or(Value::Null, Value::Number)
}

/// The members of one object with undecoded values, repeated names and all. Names are undecoded or text,
/// as the reader needs them.
pub(crate) struct Members<'a, Name>(pub(crate) Vec<(Name, &'a RawValue)>);

impl<'de, Name: Deserialize<'de>> Deserialize<'de> for Members<'de, Name> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<Name>(PhantomData<Name>);
        impl<'de, Name: Deserialize<'de>> Visitor<'de> for Entries<Name> {
            type Value = Members<'de, Name>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

/// Reads one well-formed value. `depth` is the number of arrays and objects around it.
fn read(raw: &str, path: &mut String, depth: usize) -> Result<Json, ParseError> {
    let is_nested = raw.starts_with(['{', '[']);
    if is_nested && depth == DEPTH_MAX {
        let text = format!("nested deeper than {DEPTH_MAX} levels");
        return Err(ParseError::new(ParseFault::TooDeep, "", text));
    }
    match raw.as_bytes().first() {
        Some(b'{') => read_object(raw, path, depth),
        Some(b'[') => {
            let raw: Vec<&RawValue> =
                serde_json::from_str(raw).map_err(|error| ParseError::syntax(&error))?;
            let mut items = Vec::with_capacity(raw.len());
            let parent = path.len();
            for (index, item) in raw.into_iter().enumerate() {
                push_index(path, index);
                items.push(read(item.get(), path, depth + 1)?);
                path.truncate(parent);
            }
            Ok(Json::Array(items))
        }
        Some(b'"') => serde_json::from_str(raw).map(Json::String).map_err(|_| {
            ParseError::new(ParseFault::LoneSurrogate, path, "lone surrogate in the string")
        }),
        Some(b't') => Ok(Json::Bool(true)),
        Some(b'f') => Ok(Json::Bool(false)),
        Some(b'n') => Ok(Json::Null),
        _ if raw.parse::<f64>().is_ok_and(f64::is_finite) => Ok(Json::Number(raw.to_owned())),
        _ => {
            let text = format!("number out of range: {}", shorten(raw));
            Err(ParseError::new(ParseFault::OutOfRange, path, text))
        }
    }
}

fn read_object(raw: &str, path: &mut String, depth: usize) -> Result<Json, ParseError> {
    let Members::<&RawValue>(raw) =
        serde_json::from_str(raw).map_err(|error| ParseError::syntax(&error))?;
    let mut names = Vec::with_capacity(raw.len());
    for (name, _) in &raw {
        // The scan before has seen to everything else that can be wrong with a string.
        names.push(serde_json::from_str::<String>(name.get()).map_err(|_| {
            let text = format!("lone surrogate in the key {}", shorten(name.get()));
            ParseError::new(ParseFault::LoneSurrogate, path, text)
        })?);
    }
    let mut seen = HashSet::with_capacity(names.len());
    if let Some(name) = names.iter().find(|name| !seen.insert(name.as_str())) {
        push_key(path, name);
        return Err(ParseError::new(ParseFault::DuplicateKey, path, "duplicate key"));
    }
    let mut members = Vec::with_capacity(names.len());
    let parent = path.len();
    for (name, (_, value)) in names.into_iter().zip(raw) {
        push_key(path, &name);
        let value = read(value.get(), path, depth + 1)?;
        path.truncate(parent);
        members.push((name, value));
    }
    Ok(Json::Object(members))
}

#[cfg(test)]
mod tests;
