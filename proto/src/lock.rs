//! The lock file: which versions of which tools a coordinator may offer (CONTRACT 1.12).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use toml::Value;

/// The form of the file.
const VERSION: i64 = 1;
/// Digits of a hash where people read it.
const HASH_DIGITS: usize = 12;
/// What stands above the hashes.
const HEAD: &str = "\
# Versions of tools that coordinators with this file in `fleet.lock_file` may offer.
# Written by `toolfleet lock`; compared by `toolfleet lock --check`.
version = 1

[tools]
";

/// Hashes of descriptors, by the name of their tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    tools: BTreeMap<String, BTreeSet<String>>,
}

/// One way in which tools differ from their lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// A tool that the lock does not have.
    Missing {
        /// Its name.
        name: String,
        /// Its hash.
        hash: String,
    },
    /// A tool whose hash is another.
    Changed {
        /// Its name.
        name: String,
        /// Its hash.
        hash: String,
        /// What the lock has.
        pinned: Vec<String>,
    },
    /// A tool of the lock that is not there.
    Gone {
        /// Its name.
        name: String,
    },
}

impl Lock {
    /// A lock with these tools, by name and hash.
    pub fn of<'a>(tools: impl IntoIterator<Item = (&'a str, &'a str)>) -> Lock {
        let mut lock = Lock::default();
        for (name, hash) in tools {
            lock.tools.entry(name.to_owned()).or_default().insert(hash.to_owned());
        }
        lock
    }

    /// Reads a file: under `[tools]` a hash, or a list of hashes, a name.
    ///
    /// # Errors
    /// What does not read, and where.
    pub fn parse(text: &str) -> Result<Lock, String> {
        let table: toml::Table = text
            .parse()
            .map_err(|error: toml::de::Error| error.to_string().trim_end().to_owned())?;
        for key in table.keys() {
            if key != "version" && key != "tools" {
                return Err(format!("unknown key `{key}`"));
            }
        }
        match table.get("version") {
            Some(Value::Integer(VERSION)) => {}
            Some(other) => return Err(format!("version {other} is not known: only 1 is")),
            None => return Err("`version = 1` is missing".to_owned()),
        }
        let tools = match table.get("tools") {
            Some(Value::Table(tools)) => tools,
            Some(_) => return Err("`tools` is no table".to_owned()),
            None => return Err("`[tools]` is missing".to_owned()),
        };
        let mut lock = Lock::default();
        for (name, value) in tools {
            lock.tools.insert(name.clone(), hashes(name, value)?);
        }
        Ok(lock)
    }

    /// The file: sorted by name, the same text for the same hashes.
    pub fn to_text(&self) -> String {
        let mut text = HEAD.to_owned();
        for (name, hashes) in &self.tools {
            let quoted: Vec<String> = hashes.iter().map(|hash| format!("\"{hash}\"")).collect();
            let value = match quoted.as_slice() {
                [one] => one.clone(),
                several => format!("[{}]", several.join(", ")),
            };
            // A tool's name is a bare key; any other would be quoted.
            let key = if crate::descriptor::is_tool_name(name) {
                name.clone()
            } else {
                Value::String(name.clone()).to_string()
            };
            let _ = writeln!(text, "{key} = {value}");
        }
        text
    }

    /// Whether that version of the tool may be offered.
    pub fn has(&self, name: &str, hash: &str) -> bool {
        self.tools.get(name).is_some_and(|hashes| hashes.contains(hash))
    }

    /// Hashes of a tool; none: it is not in the lock.
    pub fn pinned(&self, name: &str) -> Vec<String> {
        self.tools.get(name).into_iter().flatten().cloned().collect()
    }

    /// How many tools there are.
    pub fn count(&self) -> usize {
        self.tools.len()
    }

    /// Every tool with its hashes, by name.
    pub fn tools(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        self.tools
            .iter()
            .map(|(name, hashes)| (name.as_str(), hashes.iter().map(String::as_str).collect()))
    }

    /// Adds what another lock has: while a rollout is on, both versions are pinned.
    pub fn add(&mut self, other: &Lock) {
        for (name, hashes) in &other.tools {
            self.tools.entry(name.clone()).or_default().extend(hashes.iter().cloned());
        }
    }

    /// How tools differ from this lock, by name.
    pub fn differences(&self, found: &Lock) -> Vec<Difference> {
        let mut differences = Vec::new();
        for (name, hashes) in &found.tools {
            for hash in hashes.iter().filter(|hash| !self.has(name, hash)) {
                let (name, hash) = (name.clone(), hash.clone());
                differences.push(match self.pinned(&name) {
                    pinned if pinned.is_empty() => Difference::Missing { name, hash },
                    pinned => Difference::Changed { name, hash, pinned },
                });
            }
        }
        let gone = self.tools.keys().filter(|name| !found.tools.contains_key(*name));
        differences.extend(gone.map(|name| Difference::Gone { name: name.clone() }));
        differences
    }
}

fn hashes(name: &str, value: &Value) -> Result<BTreeSet<String>, String> {
    let values = match value {
        Value::Array(values) => values.as_slice(),
        one => std::slice::from_ref(one),
    };
    let is_hash = |text: &str| {
        text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    values
        .iter()
        .map(|value| match value {
            Value::String(hash) if is_hash(hash) => Ok(hash.clone()),
            _ => Err(format!("tools.{name}: {value} is no hash of 64 hexadecimal digits")),
        })
        .collect()
}

/// The first digits of a hash, for people.
pub fn short(hash: &str) -> &str {
    hash.get(..HASH_DIGITS).unwrap_or(hash)
}

/// Why a version of a tool is not offered, in words.
pub fn unpinned_text(name: &str, hash: &str, pinned: &[String]) -> String {
    let lock = match pinned {
        [] => "it has no version of this tool".to_owned(),
        pinned => {
            let listed: Vec<&str> = pinned.iter().map(|hash| short(hash)).collect();
            format!("it has {}", listed.join(", "))
        }
    };
    format!(
        "the tool {name} is not offered: version {} is not in the lock file; {lock}",
        short(hash)
    )
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Difference::Missing { name, hash } => {
                write!(f, "+ {name} {}, not in the lock", short(hash))
            }
            Difference::Changed { name, hash, pinned } => {
                let pinned: Vec<&str> = pinned.iter().map(|hash| short(hash)).collect();
                write!(f, "~ {name} {}, in the lock as {}", short(hash), pinned.join(", "))
            }
            Difference::Gone { name } => write!(f, "- {name}, in the lock and not there"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(digit: char) -> String {
        digit.to_string().repeat(64)
    }

    #[test]
    fn a_lock_is_written_sorted_and_reads_back() {
        let (a, b) = (hash('a'), hash('b'));
        let lock =
            Lock::of([("weather", b.as_str()), ("find", a.as_str()), ("weather", a.as_str())]);
        let text = lock.to_text();
        let tools = text.split_once("[tools]\n").unwrap().1;
        assert_eq!(tools, format!("find = \"{a}\"\nweather = [\"{a}\", \"{b}\"]\n"));
        assert_eq!(Lock::parse(&text), Ok(lock.clone()));
        assert!(lock.has("weather", &b) && !lock.has("find", &b) && !lock.has("other", &a));
        assert_eq!(Lock::parse(&Lock::default().to_text()), Ok(Lock::default()));
    }

    #[test]
    fn what_does_not_read_is_named() {
        for (text, part) in [
            ("[tools]", "`version = 1` is missing"),
            ("version = 2\n[tools]", "version 2"),
            ("version = 1", "`[tools]` is missing"),
            ("version = 1\ntools = 1", "no table"),
            ("version = 1\n[tools]\nfind = \"abc\"", "tools.find: \"abc\" is no hash"),
            ("version = 1\n[tools]\nfind = [1]", "tools.find: 1 is no hash"),
            ("version = 1\ntool = 1\n[tools]", "unknown key `tool`"),
            ("version = ", "TOML parse error"),
        ] {
            let error = Lock::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn differences_are_told_by_name() {
        let (a, b) = (hash('a'), hash('b'));
        let lock = Lock::of([("gone", a.as_str()), ("same", a.as_str()), ("changed", a.as_str())]);
        let found = Lock::of([("changed", b.as_str()), ("new", b.as_str()), ("same", a.as_str())]);
        let told: Vec<String> = lock.differences(&found).iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "~ changed bbbbbbbbbbbb, in the lock as aaaaaaaaaaaa",
                "+ new bbbbbbbbbbbb, not in the lock",
                "- gone, in the lock and not there",
            ]
        );
        let mut both = found.clone();
        both.add(&lock);
        assert_eq!(both.differences(&found), [Difference::Gone { name: "gone".into() }]);
        assert_eq!(
            unpinned_text("find", &b, &lock.pinned("same")),
            "the tool find is not offered: version bbbbbbbbbbbb is not in the lock file; it has aaaaaaaaaaaa"
        );
        assert!(unpinned_text("find", &b, &[]).ends_with("; it has no version of this tool"));
    }
}
