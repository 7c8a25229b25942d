//! House rules for names, and the names that they propose (CONTRACT 1.4).

use serde::{Deserialize, Serialize};

/// Longest name of a tool, in characters.
const NAME_MAX: usize = 64;

/// A rule of the house, beyond what every provider asks of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Naming {
    /// Kebab-case that ends in `-tool`.
    KebabTool,
}

impl Naming {
    /// Whether a name follows the rule.
    pub fn holds(self, name: &str) -> bool {
        let Naming::KebabTool = self;
        let is_word = |word: &str| {
            !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        };
        name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.split('-').all(is_word)
            && name.ends_with("-tool")
    }

    /// The rule in words.
    pub fn describe(self) -> &'static str {
        let Naming::KebabTool = self;
        "kebab-case with `-tool` at its end"
    }

    /// The nearest name that follows the rule.
    pub fn proposed(self, name: &str) -> String {
        let Naming::KebabTool = self;
        let words = words(name);
        let mut kept: Vec<&str> = words.iter().map(String::as_str).collect();
        if kept.last() == Some(&"tool") {
            kept.pop();
        }
        let mut stem = kept.join("-");
        stem.truncate(NAME_MAX - "-tool".len());
        match stem.trim_end_matches('-') {
            "" => "my-tool".to_owned(),
            stem if stem.starts_with(|c: char| c.is_ascii_digit()) => {
                let room = NAME_MAX - "n-tool".len();
                format!("n{}-tool", stem[..stem.len().min(room)].trim_end_matches('-'))
            }
            stem => format!("{stem}-tool"),
        }
    }
}

/// The nearest name that every provider takes.
pub fn proposed(name: &str) -> String {
    let mut near: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '-' })
        .collect();
    if !near.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        near.insert(0, '_');
    }
    near.truncate(NAME_MAX);
    near
}

/// The words of a name, in lower case: split where something else than a letter or digit stands, and
/// before a capital that follows a small letter or a digit.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for c in name.chars() {
        let is_part = c.is_ascii_alphanumeric();
        if !is_part || (c.is_ascii_uppercase() && was_small) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| is_part) {
            word.push(c.to_ascii_lowercase());
        }
        was_small = c.is_ascii_lowercase() || c.is_ascii_digit();
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn kebab_with_its_ending_holds_and_nothing_else() {
        for name in ["search-issues-tool", "a-tool", "x9-y-tool"] {
            assert!(Naming::KebabTool.holds(name), "{name}");
        }
        for name in ["search", "tool", "Search-tool", "a_b-tool", "a--tool", "-tool", "9-tool", ""]
        {
            assert!(!Naming::KebabTool.holds(name), "{name}");
        }
    }

    #[test]
    fn the_proposal_is_the_nearest_name() {
        for (name, near) in [
            ("search_issues", "search-issues-tool"),
            ("searchIssuesTool", "search-issues-tool"),
            ("Search-Issues-tool", "search-issues-tool"),
            ("9lives", "n9lives-tool"),
            ("tool", "my-tool"),
            ("", "my-tool"),
        ] {
            assert_eq!(Naming::KebabTool.proposed(name), near);
        }
        assert_eq!(proposed("ä b"), "_--b");
    }

    proptest! {
        #[test]
        fn every_proposal_follows_its_rule(name in ".{0,80}|[a-zA-Z0-9_-]{0,80}") {
            let near = Naming::KebabTool.proposed(&name);
            prop_assert!(Naming::KebabTool.holds(&near) && near.len() <= NAME_MAX, "{}", near);
            prop_assert!(crate::descriptor::is_tool_name(&proposed(&name)));
        }
    }
}
