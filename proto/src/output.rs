//! Reading what a tool gave back (CONTRACT 6.2 to 6.4): as declared, never guessed.

use crate::{
    bound::{Bounded, bound, bound_kept, grouped},
    code::Code,
    descriptor::ResultForm,
    json::{Json, ParseFault},
    schema::Schema,
};

/// What stands before the text of an error, for a model; not counted to the bound (DESIGN 10).
pub const ERROR_PREFIX: &str = "Tool error: ";

/// White space and the byte order mark, which may stand around a JSON value.
const AROUND_JSON: [char; 5] = [' ', '\t', '\r', '\n', '\u{feff}'];

/// Of an output that is no JSON, so much of its start is told.
const START_BYTES_MAX: usize = 64;

/// What a run of a tool gave back.
#[derive(Clone, Copy, Debug)]
pub enum Produced<'a> {
    /// A native tool's string, which is text whatever the form.
    Text(&'a str),
    /// A native tool's value, compact JSON text.
    Json(&'a str),
    /// The standard output of a program.
    Captured {
        /// The kept prefix.
        bytes: &'a [u8],
        /// Size of the whole.
        whole_bytes: u64,
        /// Offset of the first byte, anywhere in the whole, that is not UTF-8.
        invalid_utf8_at: Option<u64>,
    },
}

/// One bounded result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// Why it is an error; `None` if it is none.
    pub code: Option<Code>,
    /// The text, or the error's message; within the bound, marked if it was cut.
    pub text: String,
    /// Compact JSON of a result that is an object, or of an envelope's `structuredContent`. Absent
    /// where it alone is larger than the bound.
    pub structured: Option<String>,
    /// How the output was read; `Text` for errors.
    pub form: ResultForm,
    /// Size of the whole text, bytes of UTF-8.
    pub whole_bytes: u64,
    /// Size of the kept part, without the marker.
    pub kept_bytes: u64,
    /// Whether something was cut.
    pub is_truncated: bool,
}

/// A result before the bound; the error is a code and its message.
type Read = Result<(String, Option<String>), (Code, String)>;

/// Reads an output in its declared form, checks it where it has a schema, and bounds it.
///
/// An output of which only a prefix was kept is never an error for its size: it is cut and marked,
/// unchecked. `bytes_max` bounds the text without the marker.
pub fn render(
    produced: Produced<'_>,
    form: ResultForm,
    schema: Option<&Schema>,
    bytes_max: u64,
) -> Rendered {
    let read = match produced {
        Produced::Text(text) => read_text(text, schema),
        Produced::Json(text) => match form {
            ResultForm::Envelope => read_envelope(text, schema),
            ResultForm::Text | ResultForm::Json => read_json(text, schema),
        },
        Produced::Captured { bytes, whole_bytes, invalid_utf8_at } => {
            match decode(bytes, whole_bytes, invalid_utf8_at) {
                Err(at) => Err(invalid_output(&format!("not valid UTF-8 at byte {at}"))),
                Ok(text) if (bytes.len() as u64) < whole_bytes => {
                    return rendered(None, bound_kept(text, whole_bytes, bytes_max), None, form);
                }
                Ok(text) => match form {
                    ResultForm::Text => Ok((text.to_owned(), None)),
                    ResultForm::Json => read_json(text, schema),
                    ResultForm::Envelope => read_envelope(text, schema),
                },
            }
        }
    };
    match read {
        Ok((text, structured)) => {
            let structured = structured.filter(|json| json.len() as u64 <= bytes_max);
            rendered(None, bound(&text, bytes_max), structured, form)
        }
        Err((code, message)) => render_error(code, &message, bytes_max),
    }
}

/// Whether an output is an envelope that says of its failure that trying again may help:
/// `{"isError": true, "transient": true, …}`.
pub fn is_transient_failure(bytes: &[u8]) -> bool {
    let is_true = |envelope: &Json, key| matches!(envelope.get(key), Some(Json::Bool(true)));
    let envelope = std::str::from_utf8(bytes).ok().and_then(|text| parse(text).ok());
    envelope
        .is_some_and(|envelope| is_true(&envelope, "isError") && is_true(&envelope, "transient"))
}

/// Reads a value that stands for an output: in a text form a string is verbatim, all else is as the tool
/// would have written it.
pub fn render_value(
    value: &Json,
    form: ResultForm,
    schema: Option<&Schema>,
    bytes_max: u64,
) -> Rendered {
    match (form, value) {
        (ResultForm::Text, Json::String(text)) => {
            render(Produced::Text(text), form, schema, bytes_max)
        }
        _ => render(Produced::Json(&value.to_text()), form, schema, bytes_max),
    }
}

/// An error as a result, its message within the bound.
pub fn render_error(code: Code, message: &str, bytes_max: u64) -> Rendered {
    rendered(Some(code), bound(message, bytes_max), None, ResultForm::Text)
}

fn rendered(
    code: Option<Code>,
    bounded: Bounded,
    structured: Option<String>,
    form: ResultForm,
) -> Rendered {
    let Bounded { text, is_truncated, whole_bytes, kept_bytes } = bounded;
    Rendered { code, text, structured, form, whole_bytes, kept_bytes, is_truncated }
}

fn invalid_output(issue: &str) -> (Code, String) {
    (Code::InvalidOutput, format!("invalid output: {issue}"))
}

/// The text of captured bytes, or the offset of the first byte that is not UTF-8. A prefix may end
/// inside a character, whose first bytes are then left out.
fn decode(bytes: &[u8], whole_bytes: u64, invalid_utf8_at: Option<u64>) -> Result<&str, u64> {
    if let Some(at) = invalid_utf8_at {
        return Err(at);
    }
    std::str::from_utf8(bytes).or_else(|error| {
        let at = error.valid_up_to();
        let is_cut = error.error_len().is_none() && (bytes.len() as u64) < whole_bytes;
        if is_cut {
            std::str::from_utf8(&bytes[..at]).map_err(|_| at as u64)
        } else {
            Err(at as u64)
        }
    })
}

fn read_text(text: &str, schema: Option<&Schema>) -> Read {
    check(&Json::String(text.to_owned()), schema)?;
    Ok((text.to_owned(), None))
}

fn read_json(text: &str, schema: Option<&Schema>) -> Read {
    let value = parse(text)?;
    check(&value, schema)?;
    let text = value.to_text();
    let structured = matches!(value, Json::Object(_)).then(|| text.clone());
    Ok((text, structured))
}

fn parse(text: &str) -> Result<Json, (Code, String)> {
    let text = text.trim_matches(AROUND_JSON);
    Json::parse(text).map_err(|error| match error.fault {
        // Mostly something that was printed around the value: its start tells what.
        ParseFault::Syntax if !text.is_empty() => {
            let start = text.get(..text.floor_char_boundary(START_BYTES_MAX)).unwrap_or_default();
            invalid_output(&format!("{error}; it begins with {start:?}"))
        }
        _ => invalid_output(&error.to_string()),
    })
}

fn check(value: &Json, schema: Option<&Schema>) -> Result<(), (Code, String)> {
    schema.map_or(Ok(()), |schema| schema.check(value)).map_err(|issues| invalid_output(&issues))
}

fn read_envelope(text: &str, schema: Option<&Schema>) -> Read {
    let envelope = parse(text)?;
    if !matches!(envelope, Json::Object(_)) {
        return Err(invalid_output("expected an envelope, an object with content"));
    }
    let structured = envelope.get("structuredContent");
    let parts = match envelope.get("content") {
        Some(Json::Array(parts)) => parts.as_slice(),
        None if structured.is_some() => &[],
        _ => return Err(invalid_output("content: expected an array of parts")),
    };
    let mut texts = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        let text = read_part(part);
        texts.push(text.map_err(|issue| invalid_output(&format!("content[{index}]{issue}")))?);
    }
    let mut text = texts.join("\n");
    match envelope.get("isError") {
        None | Some(Json::Bool(false)) => {}
        Some(Json::Bool(true)) => {
            if text.is_empty() {
                text.push_str("the tool reported a failure without a text");
            }
            return Err((Code::ToolError, text));
        }
        Some(_) => return Err(invalid_output("isError: expected boolean")),
    }
    match (structured, schema) {
        (Some(value), schema) => check(value, schema)?,
        (None, Some(_)) => return Err(invalid_output("structuredContent: required, but missing")),
        (None, None) => {}
    }
    let structured = structured.map(Json::to_text);
    if parts.is_empty() {
        text.push_str(structured.as_deref().unwrap_or_default());
    }
    Ok((text, structured))
}

/// The text of one part of an envelope. The error is the rest of `content[0]…`.
fn read_part(part: &Json) -> Result<String, String> {
    let kind = string_of(part, "type")?;
    match kind {
        "text" => Ok(string_of(part, "text")?.to_owned()),
        "image" | "audio" => {
            let media_type = string_of(part, "mimeType")?;
            let bytes = decoded_bytes(string_of(part, "data")?);
            Ok(format!("[{kind} {media_type}, {} bytes]", grouped(bytes)))
        }
        "resource" => {
            let resource = part.get("resource").ok_or(".resource: required, but missing")?;
            let place = string_of(resource, "uri").map_err(|issue| format!(".resource{issue}"))?;
            let bytes = match (resource.get("text"), resource.get("blob")) {
                (Some(Json::String(text)), _) => text.len() as u64,
                (_, Some(Json::String(blob))) => decoded_bytes(blob),
                _ => return Err(".resource: expected text or blob".into()),
            };
            Ok(format!("[resource {place}, {} bytes]", grouped(bytes)))
        }
        "resource_link" | "link" => Ok(format!("[link {}]", string_of(part, "uri")?)),
        _ => Err(".type: expected one of text, image, audio, resource, resource_link".into()),
    }
}

fn string_of<'a>(object: &'a Json, key: &str) -> Result<&'a str, String> {
    match object.get(key) {
        Some(Json::String(text)) => Ok(text),
        Some(_) => Err(format!(".{key}: expected string")),
        None => Err(format!(".{key}: required, but missing")),
    }
}

/// The size of what a base64 text stands for.
fn decoded_bytes(base64: &str) -> u64 {
    let digits = base64.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=').count();
    digits as u64 * 3 / 4
}

#[cfg(test)]
mod tests;
