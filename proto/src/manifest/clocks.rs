//! The clocks of a call (CONTRACT 5.2), how often it may start, and the bound of its result: the
//! manifest's own values over the defaults.

use super::fault::Faults;
use super::tree::{self, Kind, Member};
use super::value::{bytes, duration_ms, wrong_kind};
use crate::checks;
use crate::layers::{Origin, Own, Rules, Settled};

/// The values as the layers settle them, and the time of all attempts in milliseconds.
pub(super) struct Clocks {
    pub(super) settled: Settled,
    pub(super) total_timeout_ms: u64,
}

/// Reads them; `None` after a fault.
pub(super) fn read(members: &[Member], rules: &Rules, faults: &mut Faults<'_>) -> Option<Clocks> {
    let before = faults.count();
    let mut span = |key: &str| {
        tree::find(members, key).map(|member| (member.line, duration_ms(member, faults)))
    };
    let (timeout, queue_timeout) = (span("timeout"), span("queue_timeout"));
    let total = span("total_timeout");
    let own = Own {
        timeout_ms: timeout.and_then(|(_, span)| span),
        queue_timeout_ms: queue_timeout.and_then(|(_, span)| span),
        max_attempts: max_attempts(members, faults),
        result_bytes_max: result_bytes(members, faults),
    };
    let mut settled = rules.settle(&own);
    let all_attempts_ms = settled.timeout_ms.saturating_mul(u64::from(settled.max_attempts));
    let total_timeout_ms = match total {
        Some((line, Some(total_ms))) => {
            settled.origins.total_timeout = Origin::Tool;
            // After a fault of its own, nothing can be said of the timeout.
            if timeout.is_none_or(|(_, span)| span.is_some()) {
                faults.finding(Some(line), checks::total(settled.timeout_ms, total_ms));
            }
            total_ms
        }
        _ => all_attempts_ms,
    };
    (faults.count() == before).then_some(Clocks { settled, total_timeout_ms })
}

fn max_attempts(members: &[Member], faults: &mut Faults<'_>) -> Option<u32> {
    let member = tree::find(members, "max_attempts")?;
    let Kind::Number(number) = &member.node.kind else {
        wrong_kind(member, "a whole number", "max_attempts = 3", faults);
        return None;
    };
    let Some(attempts) = number.as_u64() else {
        let mend = format!("write a whole number from 1 to {}", checks::MAX_ATTEMPTS_MAX);
        let message = format!("`max_attempts` is {number}");
        faults.at(member.line, "tool.max-attempts-invalid", message, mend);
        return None;
    };
    faults.finding(Some(member.line), checks::attempts(attempts));
    u32::try_from(attempts).ok()
}

fn result_bytes(members: &[Member], faults: &mut Faults<'_>) -> Option<u64> {
    let member = tree::find(members, "max_result_size")?;
    let size = bytes(member, "tool.max-result-size-invalid", faults)?;
    faults.finding(Some(member.line), checks::result_bytes(size));
    Some(size)
}
