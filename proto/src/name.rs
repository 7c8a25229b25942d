//! Names of calls: ids, escaping, idempotency keys (DESIGN 4, CONTRACT 3.5).

use crate::limit::ID_BYTES_MAX;
use crate::wire;
use std::fmt::{self, Write as _};

/// Why a name is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An id without a byte.
    #[error("{what} must not be empty")]
    Empty {
        /// Which id.
        what: &'static str,
    },
    /// An id over the limit.
    #[error("{what} has {bytes} bytes, the limit is {ID_BYTES_MAX}")]
    TooLong {
        /// Which id.
        what: &'static str,
        /// How long it is.
        bytes: usize,
    },
    /// Text that no escaping gives.
    #[error("not an escaped name: {0:?}")]
    NotEscaped(String),
}

/// Checks an id from outside: 1 to 128 bytes, any characters.
pub fn check_id(what: &'static str, id: &str) -> Result<(), Error> {
    match id.len() {
        0 => Err(Error::Empty { what }),
        bytes if bytes > ID_BYTES_MAX => Err(Error::TooLong { what, bytes }),
        _ => Ok(()),
    }
}

/// Escapes text into one token of a subject or key: bytes outside `[A-Za-z0-9_-]` become `=XX`.
pub fn escape(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut token, byte| {
        if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' {
            token.push(char::from(byte));
        } else {
            let _ = write!(token, "={byte:02X}");
        }
        token
    })
}

/// Reads a token that [`escape`] wrote; anything else is refused, so that a name has one form only.
pub fn unescape(token: &str) -> Result<String, Error> {
    let refused = || Error::NotEscaped(token.to_owned());
    let mut bytes = Vec::with_capacity(token.len());
    let mut rest = token.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'=' {
            let digits = tail.get(..2).ok_or_else(refused)?;
            let digits = std::str::from_utf8(digits).map_err(|_| refused())?;
            bytes.push(u8::from_str_radix(digits, 16).map_err(|_| refused())?);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    let text = String::from_utf8(bytes).map_err(|_| refused())?;
    if escape(&text) == token { Ok(text) } else { Err(refused()) }
}

/// One part of an idempotency key: its `:` and `%` percent-encoded, so that parts cannot run together.
fn encode_part(part: &str) -> String {
    part.replace('%', "%25").replace(':', "%3A")
}

fn decode_part(part: &str) -> String {
    part.replace("%3A", ":").replace("%25", "%")
}

/// Takes an idempotency key apart into the execution and the call. `None`: it is none.
pub fn split_key(key: &str) -> Option<(String, String)> {
    let (execution, call) = key.split_once(':')?;
    let is_call = call.matches(':').count() >= 2 && call.split(':').all(|part| !part.is_empty());
    (is_call && !execution.is_empty()).then(|| (decode_part(execution), call.to_owned()))
}

/// A call, named by tenant, execution and call and by nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallName {
    /// Tenant.
    pub tenant: String,
    /// Execution.
    pub execution: String,
    /// `<node>:<turn>[:<item>]:<callId>`, parts percent-encoded.
    pub call: String,
}

impl CallName {
    /// Names a call of a turn.
    pub fn of_turn(
        tenant: &str,
        execution: &str,
        node: &str,
        turn: &str,
        call_id: &str,
    ) -> CallName {
        CallName {
            tenant: tenant.to_owned(),
            execution: execution.to_owned(),
            call: [node, turn, call_id].map(encode_part).join(":"),
        }
    }

    /// Names a direct call: its turn is `direct`.
    pub fn direct(tenant: &str, execution: &str, node: &str, call_id: &str) -> CallName {
        CallName::of_turn(tenant, execution, node, "direct", call_id)
    }

    /// The idempotency key: the same in every replay, attempt and redelivery.
    pub fn idempotency_key(&self) -> String {
        format!("{}:{}", encode_part(&self.execution), self.call)
    }

    /// The parts of `call`, decoded.
    pub fn parts(&self) -> Vec<String> {
        self.call.split(':').map(decode_part).collect()
    }

    /// `<tenant>.<execution>.<call>`, each escaped: the tail of its subjects and store keys.
    pub fn tail(&self) -> String {
        format!("{}.{}.{}", escape(&self.tenant), escape(&self.execution), escape(&self.call))
    }

    /// Reads a tail.
    pub fn from_tail(tail: &str) -> Result<CallName, Error> {
        let refused = || Error::NotEscaped(tail.to_owned());
        let mut tokens = tail.split('.');
        let mut next = || tokens.next().ok_or_else(refused).and_then(unescape);
        let name = CallName { tenant: next()?, execution: next()?, call: next()? };
        if tokens.next().is_some() { Err(refused()) } else { Ok(name) }
    }
}

impl fmt::Display for CallName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.tenant, self.execution, self.call)
    }
}

impl From<&CallName> for wire::CallName {
    fn from(name: &CallName) -> Self {
        wire::CallName {
            tenant: name.tenant.clone(),
            execution: name.execution.clone(),
            call: name.call.clone(),
        }
    }
}

impl From<&wire::CallName> for CallName {
    fn from(name: &wire::CallName) -> Self {
        CallName {
            tenant: name.tenant.clone(),
            execution: name.execution.clone(),
            call: name.call.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hostile_ids_are_escaped_into_one_token() {
        assert_eq!(escape("a.b *>=ü\n"), "a=2Eb=20=2A=3E=3D=C3=BC=0A");
        assert_eq!(unescape("a=2Eb").unwrap(), "a.b");
        for bad in ["=2", "=", "=zz", "a.b", "=2e", "=FF", "=41"] {
            assert!(unescape(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_have_a_length() {
        assert!(check_id("execution", "x").is_ok());
        assert_eq!(check_id("execution", ""), Err(Error::Empty { what: "execution" }));
        assert!(check_id("execution", &"x".repeat(129)).is_err());
    }

    #[test]
    fn keys_cannot_collide_by_moving_a_colon() {
        let one = CallName::of_turn("t", "e", "main", "a:b", "c");
        let two = CallName::of_turn("t", "e", "main", "a", "b:c");
        assert_eq!(one.call, "main:a%3Ab:c");
        assert_ne!(one, two);
        assert_eq!(one.idempotency_key(), "e:main:a%3Ab:c");
        assert_eq!(split_key("e:main:a%3Ab:c"), Some(("e".to_owned(), one.call.clone())));
        assert_eq!(split_key("e:main:c"), None);
        assert_eq!(split_key("e"), None);
        assert_eq!(CallName::direct("t", "e", "main", "c").call, "main:direct:c");
    }

    proptest! {
        #[test]
        fn any_name_round_trips_and_takes_no_wildcard(
            tenant in ".{1,40}", execution in ".{1,40}", turn in ".{1,40}", id in ".{1,40}"
        ) {
            let name = CallName::of_turn(&tenant, &execution, "main", &turn, &id);
            let tail = name.tail();
            prop_assert_eq!(tail.split('.').count(), 3);
            prop_assert!(tail.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-=.".contains(&b)));
            prop_assert_eq!(&CallName::from_tail(&tail).unwrap(), &name);
            prop_assert_eq!(name.parts(), vec!["main".to_owned(), turn, id]);
        }

        #[test]
        fn different_parts_give_different_keys(
            a in "[a:%]{1,4}", b in "[a:%]{1,4}", c in "[a:%]{1,4}", d in "[a:%]{1,4}"
        ) {
            let one = CallName::of_turn("t", &a, "main", &b, "x");
            let two = CallName::of_turn("t", &c, "main", &d, "x");
            prop_assert_eq!(one.idempotency_key() == two.idempotency_key(), (a, b) == (c, d));
        }
    }
}
