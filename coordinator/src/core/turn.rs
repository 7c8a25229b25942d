//! Names of turns and of their calls (CONTRACT 3.5).

use sha2::{Digest as _, Sha256};
use std::collections::HashSet;
use toolfleet_proto::descriptor::hex;

/// Prefixes of ids that their provider makes unique.
const UNIQUE_PREFIXES: [&str; 5] = ["chatcmpl-tool-", "tooluse_", "toolu_", "call_", "fc_"];
/// Characters that must follow such a prefix.
const UNIQUE_TAIL_MIN: usize = 16;

/// Whether an id has a form that its provider makes unique.
fn is_unique_form(id: &str) -> bool {
    UNIQUE_PREFIXES.iter().any(|prefix| {
        id.strip_prefix(prefix).is_some_and(|tail| {
            tail.len() >= UNIQUE_TAIL_MIN
                && tail.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        })
    })
}

/// The name that the ids of a message give its turn: `t-` and a hash, where every call has an id
/// that its provider makes unique and none is repeated. `None`: a fresh name is needed.
pub fn derived_name(ids: &[Option<&str>]) -> Option<String> {
    let ids: Option<Vec<&str>> = ids.iter().copied().collect();
    let ids = ids.filter(|ids| !ids.is_empty())?;
    let distinct: HashSet<&str> = ids.iter().copied().collect();
    if distinct.len() != ids.len() || !ids.iter().all(|id| is_unique_form(id)) {
        return None;
    }
    let mut hasher = Sha256::new();
    for id in ids {
        hasher.update(id.as_bytes());
        hasher.update([0]);
    }
    Some(format!("t-{}", &hex(&hasher.finalize())[..32]))
}

/// Reads an `Idempotency-Key`, quoted (RFC 8941) or bare.
pub fn read_key(header: &str) -> String {
    let text = header.trim();
    let inner = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    if inner.len() == text.len() {
        text.to_owned()
    } else {
        inner.replace("\\\"", "\"").replace("\\\\", "\\")
    }
}

/// One id for each call, unique in the turn: the provider's own; `<turn>:<position>` where there is
/// none; `:<position>` appended where it is repeated, the next free position where that is taken.
pub fn call_ids(turn: &str, ids: &[Option<&str>]) -> Vec<String> {
    let repeated = |id: &str| ids.iter().filter(|other| **other == Some(id)).count() > 1;
    let mut taken: HashSet<String> =
        ids.iter().flatten().filter(|id| !repeated(id)).map(|id| (*id).to_owned()).collect();
    ids.iter()
        .enumerate()
        .map(|(position, id)| match id {
            Some(id) if !repeated(id) => (*id).to_owned(),
            other => {
                let base = other.unwrap_or(turn);
                let free = (position..position + 1_000)
                    .map(|n| format!("{base}:{n}"))
                    .find(|id| !taken.contains(id));
                let id = free.unwrap_or_else(|| format!("{base}:{position}"));
                taken.insert(id.clone());
                id
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_that_a_provider_makes_unique_name_a_turn() {
        let strong = Some("call_abcdefghijklmnop");
        assert!(derived_name(&[strong]).unwrap().starts_with("t-"));
        assert_eq!(derived_name(&[strong]), derived_name(&[strong]));
        assert_ne!(derived_name(&[strong]), derived_name(&[Some("call_abcdefghijklmnoq")]));
        for weak in
            ["call_0", "functions.search:0", "call_abcdefghijklmno", "toolu_abcdefghijklm.nop", ""]
        {
            assert_eq!(derived_name(&[strong, Some(weak)]), None, "{weak}");
        }
        assert_eq!(derived_name(&[strong, strong]), None, "repeated");
        assert_eq!(derived_name(&[strong, None]), None, "absent");
        assert_eq!(derived_name(&[]), None);
    }

    #[test]
    fn the_order_of_ids_counts_and_they_do_not_run_together() {
        let (a, b) = ("toolu_aaaaaaaaaaaaaaaa", "toolu_bbbbbbbbbbbbbbbb");
        assert_ne!(derived_name(&[Some(a), Some(b)]), derived_name(&[Some(b), Some(a)]));
    }

    #[test]
    fn repeated_and_absent_ids_get_positions_that_meet_no_other_id() {
        assert_eq!(call_ids("t", &[Some("call_0"), Some("call_0")]), ["call_0:0", "call_0:1"]);
        assert_eq!(call_ids("t", &[None, Some("x"), None]), ["t:0", "x", "t:2"]);
        let ids = call_ids("t", &[Some("a"), Some("a"), Some("a:0"), Some("a:1")]);
        assert_eq!(ids, ["a:2", "a:3", "a:0", "a:1"]);
    }

    #[test]
    fn keys_are_quoted_or_bare() {
        assert_eq!(read_key("abc"), "abc");
        assert_eq!(read_key(" \"a b\" "), "a b");
        assert_eq!(read_key("\"a\\\"b\""), "a\"b");
        assert_eq!(read_key("\"open"), "\"open");
    }
}
