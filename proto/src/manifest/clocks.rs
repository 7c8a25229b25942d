//! The clocks of a call (CONTRACT 5.2), and how often it may start.

use super::fault::Faults;
use super::tree::{self, Kind, Member};
use super::value::{duration_ms, wrong_kind};
use super::{MAX_ATTEMPTS_DEFAULT, MAX_ATTEMPTS_MAX, QUEUE_TIMEOUT_DEFAULT_MS, TIMEOUT_DEFAULT_MS};

/// All of them, in milliseconds, and the starts.
pub(super) struct Clocks {
    pub(super) timeout_ms: u64,
    pub(super) queue_timeout_ms: u64,
    pub(super) total_timeout_ms: u64,
    pub(super) max_attempts: u32,
}

/// Reads them; `None` after a fault.
pub(super) fn read(members: &[Member], faults: &mut Faults<'_>) -> Option<Clocks> {
    let mut span =
        |key: &str| tree::find(members, key).map(|member| duration_ms(member, faults).ok_or(()));
    let timeout_ms = span("timeout").unwrap_or(Ok(TIMEOUT_DEFAULT_MS));
    let queue_timeout_ms = span("queue_timeout").unwrap_or(Ok(QUEUE_TIMEOUT_DEFAULT_MS));
    let total_timeout_ms = span("total_timeout").transpose();
    let max_attempts = max_attempts(members, faults);
    if let (Ok(timeout_ms), Ok(Some(total_timeout_ms))) = (timeout_ms, total_timeout_ms)
        && total_timeout_ms < timeout_ms
    {
        let line = tree::find(members, "total_timeout").map_or(1, |member| member.line);
        faults.at(
            line,
            "tool.total-timeout-invalid",
            "`total_timeout` is shorter than `timeout`, so that no attempt could use its time",
            "make it at least as long as `timeout`",
        );
    }
    let (timeout_ms, max_attempts) = (timeout_ms.ok()?, max_attempts?);
    let all_attempts_ms = timeout_ms.saturating_mul(u64::from(max_attempts));
    Some(Clocks {
        timeout_ms,
        queue_timeout_ms: queue_timeout_ms.ok()?,
        total_timeout_ms: total_timeout_ms.ok()?.unwrap_or(all_attempts_ms),
        max_attempts,
    })
}

fn max_attempts(members: &[Member], faults: &mut Faults<'_>) -> Option<u32> {
    let Some(member) = tree::find(members, "max_attempts") else {
        return Some(MAX_ATTEMPTS_DEFAULT);
    };
    let Kind::Number(number) = &member.node.kind else {
        wrong_kind(member, "a whole number", "max_attempts = 3", faults);
        return None;
    };
    let attempts = number.as_u64().and_then(|number| u32::try_from(number).ok());
    let attempts = attempts.filter(|number| (1..=MAX_ATTEMPTS_MAX).contains(number));
    if attempts.is_none() {
        faults.at(
            member.line,
            "tool.max-attempts-invalid",
            format!("`max_attempts` is {number}"),
            format!("write a whole number from 1 to {MAX_ATTEMPTS_MAX}"),
        );
    }
    attempts
}
