//! Exit codes (DESIGN 10).

use std::io::Write as _;
use std::process::ExitCode;

/// The call failed.
pub(crate) const FAILED: u8 = 1;
/// The command line is wrong.
pub(crate) const USAGE: u8 = 2;
/// A server is not reachable.
pub(crate) const UNREACHABLE: u8 = 69;
/// It may work later.
pub(crate) const TRY_AGAIN: u8 = 75;
/// The configuration is faulty.
pub(crate) const CONFIG: u8 = 78;

/// Tells an error on standard error.
pub(crate) fn complain(error: &dyn std::fmt::Display, code: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr().lock(), "toolfleet: {error}");
    ExitCode::from(code)
}
