//! Lines for people on standard error, and why `dev` ends.

use std::io::Write;

/// Not reachable: a child cannot be started.
const EXIT_UNAVAILABLE: u8 = 69;
/// The configuration cannot be used.
const EXIT_CONFIGURATION: u8 = 78;

/// Why `dev` does not go on.
#[derive(Debug)]
pub(super) enum Failure {
    /// What it was told cannot be used: exit code 78.
    Configuration(String),
    /// A child cannot be started: exit code 69.
    Unavailable(String),
    /// SIGINT, SIGTERM or SIGHUP: an orderly end.
    Interrupted,
}

impl Failure {
    /// The exit code that tells it.
    pub(super) fn code(&self) -> u8 {
        match self {
            Failure::Configuration(_) => EXIT_CONFIGURATION,
            Failure::Unavailable(_) => EXIT_UNAVAILABLE,
            Failure::Interrupted => 0,
        }
    }

    /// Says it on standard error; an orderly end needs no words.
    pub(super) fn say(&self) {
        match self {
            Failure::Configuration(text) | Failure::Unavailable(text) => say(text),
            Failure::Interrupted => {}
        }
    }
}

/// One entry on standard error. A closed standard error is no fault.
pub(super) fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "toolfleet dev: {text}");
}
