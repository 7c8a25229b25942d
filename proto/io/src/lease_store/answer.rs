//! Reading what the scripts answer.

use super::Error;
use redis::Value;
use toolfleet_proto::lease::{Acquired, Mark};

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        other => text(other)?.parse().ok(),
    }
}

pub(super) fn read_claim(answer: &[Value]) -> Result<Option<Acquired>, Error> {
    let unreadable = || Error::Unreadable(format!("{answer:?}"));
    let word = answer.first().and_then(text).ok_or_else(unreadable)?;
    let at = |position: usize| answer.get(position).ok_or_else(unreadable);
    let int = |position: usize| at(position).and_then(|value| number(value).ok_or_else(unreadable));
    let claims =
        |position: usize| int(position).map(|n| u32::try_from(n.max(0)).unwrap_or(u32::MAX));
    let acquired = match word.as_str() {
        "granted" => Acquired::Granted {
            fence: u64::try_from(int(1)?).map_err(|_| unreadable())?,
            claims: claims(2)?,
            previous_span: text(at(3)?).unwrap_or_default(),
            now_ms: int(4)?,
            first_ms: int(5)?,
        },
        "held" => Acquired::Held { remaining_ms: u64::try_from(int(1)?).unwrap_or(0) },
        "done" => Acquired::Done,
        "marked" => Acquired::Marked {
            mark: Mark::read(&text(at(1)?).unwrap_or_default()),
            claims: claims(2)?,
            now_ms: int(3)?,
        },
        _ => return Ok(None),
    };
    Ok(Some(acquired))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_no_script_gives_are_an_error() {
        assert!(read_claim(&[]).is_err());
        assert!(read_claim(&[Value::BulkString(b"granted".to_vec())]).is_err());
        assert_eq!(
            read_claim(&[Value::BulkString(b"done".to_vec())]).unwrap(),
            Some(Acquired::Done)
        );
        assert_eq!(read_claim(&[Value::BulkString(b"ok".to_vec())]).unwrap(), None);
    }
}
