//! Names of tools and of their properties.

use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use toolfleet_proto::descriptor::hex;

/// Characters of a tool's name.
const NAME_CHARS_MAX: usize = 64;
/// Digits of a hash that tells names apart.
const HASH_DIGITS: usize = 8;

/// A name for each operation, given as (`operationId`, method, path): valid, at most 64 characters, cut
/// with a hash where it is longer, and with a hash where several come to one name.
pub(super) fn names<'a>(
    operations: impl Iterator<Item = (Option<&'a str>, &'a str, &'a str)>,
) -> Vec<String> {
    let proposed: Vec<(String, String)> = operations
        .map(|(id, method, path)| {
            let whole = id.map_or_else(|| format!("{method}_{path}"), str::to_owned);
            (fitted(&whole), format!("{method} {path}"))
        })
        .collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, _) in &proposed {
        *counts.entry(name).or_default() += 1;
    }
    proposed
        .iter()
        .map(|(name, place)| match counts.get(name.as_str()) {
            Some(1) => name.clone(),
            _ => with_hash(name, place),
        })
        .collect()
}

/// A valid name of these words.
fn fitted(whole: &str) -> String {
    let mut name = String::with_capacity(whole.len());
    for c in whole.chars() {
        let c = if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        if !(c == '_' && name.ends_with('_')) {
            name.push(c);
        }
    }
    let name = name.trim_matches('_');
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic());
    let name = if starts_well { name.to_owned() } else { format!("_{name}") };
    if name.len() <= NAME_CHARS_MAX { name } else { with_hash(&name, whole) }
}

/// The name, cut so that a hash of `of` fits behind it.
fn with_hash(name: &str, of: &str) -> String {
    let hash = hex(&Sha256::digest(of));
    let kept = NAME_CHARS_MAX - HASH_DIGITS - 1;
    let kept = name.get(..kept).unwrap_or(name).trim_end_matches('_');
    format!("{kept}_{}", &hash[..HASH_DIGITS])
}

/// A property's name that every provider takes, of the name on the wire.
pub(super) fn property(wire: &str) -> String {
    let name: String = wire
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '_' })
        .take(NAME_CHARS_MAX)
        .collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

/// The name of a variable: `PETSTORE_API_KEY`.
pub(super) fn variable(parts: &[&str]) -> String {
    let mut name = String::new();
    for c in parts.join("_").chars() {
        let c = if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        if !(c == '_' && name.ends_with('_')) {
            name.push(c);
        }
    }
    let name = name.trim_matches('_');
    let is_ours = name.is_empty() || name.starts_with("TOOLFLEET_");
    let starts_badly = name.starts_with(|c: char| c.is_ascii_digit());
    let name = if is_ours || starts_badly { format!("API_{name}") } else { name.to_owned() };
    name.chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolfleet_proto::descriptor::is_tool_name;

    #[test]
    fn names_are_valid_told_apart_and_cut_with_a_hash() {
        let long = "list".repeat(30);
        let names = names(
            [
                (Some("listPets"), "get", "/pets"),
                (None, "get", "/pets/{petId}"),
                (Some("do it.now"), "post", "/a"),
                (Some("do it now"), "post", "/b"),
                (Some("2fa"), "post", "/c"),
                (Some(long.as_str()), "get", "/d"),
                (Some("äöü"), "get", "/e"),
            ]
            .into_iter(),
        );
        assert_eq!(names[..2], ["listPets", "get_pets_petId"]);
        assert!(names[2].starts_with("do_it_now_") && names[3].starts_with("do_it_now_"));
        assert_ne!(names[2], names[3]);
        assert_eq!(names[4], "_2fa");
        assert!(names[5].len() <= 64 && names[5].starts_with("listlist"), "{}", names[5]);
        assert!(names.iter().all(|name| is_tool_name(name)), "{names:?}");
    }

    #[test]
    fn properties_and_variables_have_plain_names() {
        assert_eq!(property("filter[name]"), "filter_name_");
        assert_eq!(property(""), "_");
        assert_eq!(variable(&["Pet store, v2", "api_key"]), "PET_STORE_V2_API_KEY");
        assert_eq!(variable(&["", ""]), "API_");
        assert_eq!(variable(&["toolfleet", "key"]), "API_TOOLFLEET_KEY");
        assert_eq!(variable(&["3d", "key"]), "API_3D_KEY");
    }
}
