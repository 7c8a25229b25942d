//! What a part of the topology must be, beside what it was found to be.

use std::fmt::{Debug, Display};

/// The comparison of one stream or consumer, setting by setting.
pub(super) struct Comparison {
    /// Which part, as its faults name it.
    part: String,
    /// What is not as it must be, so far.
    pub(super) faults: Vec<String>,
}

impl Comparison {
    pub(super) fn of(part: String) -> Comparison {
        Comparison { part, faults: Vec::new() }
    }

    /// A setting that must be exactly what is wanted.
    pub(super) fn same<T: PartialEq + Debug>(&mut self, key: &str, wanted: &T, found: &T) {
        self.judge(found == wanted, key, format_args!("{wanted:?}"), format_args!("{found:?}"));
    }

    /// A setting that the caller has judged: some may be more than what is wanted.
    pub(super) fn judge(
        &mut self,
        holds: bool,
        key: &str,
        wanted: impl Display,
        found: impl Display,
    ) {
        if !holds {
            self.faults.push(format!("{}: {key} is {found}, must be {wanted}", self.part));
        }
    }
}
