//! How far programs are shut in (CONTRACT 5.11): what a fleet asks for, and what a kernel can do.

use serde::{Deserialize, Serialize};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Nothing: programs may use what the worker's user may.
    Off,
    /// As much as the kernel can do.
    Available,
    /// A worker does not start where the kernel cannot keep programs from files that they were not given.
    Required,
}

/// What a kernel can keep a program from, from nothing upwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Nothing: no Linux, or one without Landlock.
    None,
    /// Reading, writing and starting files that it was not given, but not emptying them (Linux 5.13).
    FilesButTruncation,
    /// Files that it was not given (Linux 6.2).
    Files,
    /// Those, and processes that it did not start (Linux 6.12).
    FilesAndSignals,
}

impl Level {
    /// A few words for people.
    pub fn words(self) -> &'static str {
        match self {
            Level::None => "none",
            Level::FilesButTruncation => "files, truncation excepted",
            Level::Files => "files",
            Level::FilesAndSignals => "files and signals",
        }
    }
}

impl Isolation {
    /// What is reached where the kernel can do so much.
    pub fn reached(self, kernel: Level) -> Level {
        if self == Isolation::Off { Level::None } else { kernel }
    }

    /// Whether a kernel that can do so much is too little.
    pub fn is_refused(self, kernel: Level) -> bool {
        self == Isolation::Required && kernel < Level::Files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_asks_for_files_and_off_reaches_nothing() {
        let levels = [Level::None, Level::FilesButTruncation, Level::Files, Level::FilesAndSignals];
        let refused = levels.map(|level| Isolation::Required.is_refused(level));
        assert_eq!(refused, [true, true, false, false]);
        for level in levels {
            assert!(!Isolation::Available.is_refused(level) && !Isolation::Off.is_refused(level));
            assert_eq!(Isolation::Off.reached(level), Level::None);
            assert_eq!(Isolation::Available.reached(level), level);
        }
    }
}
