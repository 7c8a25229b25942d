//! What the catalogue comes to at one moment.

use super::Offer;
use std::collections::BTreeMap;

/// Why a pool's tool is not offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Another pool had the name first, with another version.
    AnotherHash {
        /// The pool whose version is offered.
        pool: String,
        /// That version.
        hash: String,
    },
    /// None of its versions is in the lock file.
    Unpinned {
        /// What the lock file has of the tool.
        pinned: Vec<String>,
    },
}

impl Why {
    /// Every reason as it stands in labels.
    pub const ALL: [&'static str; 2] = ["another_hash", "unpinned"];

    /// The reason as it stands in answers and labels.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Why::AnotherHash { .. } => "another_hash",
            Why::Unpinned { .. } => "unpinned",
        }
    }
}

/// A pool's tool that is announced and not offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld {
    /// The tool.
    pub name: String,
    /// The pool.
    pub pool: String,
    /// Hash of the version that it would offer.
    pub hash: String,
    /// Why it does not.
    pub why: Why,
}

/// What the catalogue comes to at one moment: the tools on offer by name, and those that are not.
#[derive(Debug, Default)]
pub struct Offered {
    /// On offer.
    pub tools: BTreeMap<String, Offer>,
    /// Announced and not offered, by name and pool.
    pub withheld: Vec<Withheld>,
}

impl std::ops::Deref for Offered {
    type Target = BTreeMap<String, Offer>;

    fn deref(&self) -> &BTreeMap<String, Offer> {
        &self.tools
    }
}
