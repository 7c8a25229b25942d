//! What is no fault of a tool and yet asks for trouble in its fleet (DESIGN 5).

use super::Finding;
use crate::descriptor::Descriptor;
use crate::effect::Effect;
use crate::limit::Limits;
use crate::unit::describe_ms;

/// Everything that is doubtful about a tool under the clocks of its fleet. Nothing of it keeps the tool
/// from being served.
pub fn warnings(tool: &Descriptor, limits: &Limits) -> Vec<Finding> {
    let mut found = Vec::new();
    if tool.effect == Effect::Write && !tool.rerun && tool.timeout_ms > limits.drain_ms {
        found.push(Finding::new(
            "tool.outlasts-drain",
            format!(
                "a write may run for {} and a drain waits {}: a deploy in between leaves its outcome unknown",
                describe_ms(tool.timeout_ms),
                describe_ms(limits.drain_ms)
            ),
            "raise `limits.drain`, or shorten `timeout`",
        ));
    }
    let whole_ms = [tool.queue_timeout_ms, tool.total_timeout_ms, limits.cancel_grace_ms]
        .into_iter()
        .fold(0, u64::saturating_add);
    if whole_ms > limits.longest_call_ms {
        found.push(Finding::new(
            "tool.outlasts-longest-call",
            format!(
                "a call may take {} in all, and the fleet keeps its records for calls of {}",
                describe_ms(whole_ms),
                describe_ms(limits.longest_call_ms)
            ),
            "raise `limits.longest_call`, or shorten `queue_timeout` and `total_timeout`",
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::tests::sound;

    #[test]
    fn a_write_that_a_drain_would_cut_and_a_call_that_outlasts_its_records_are_told() {
        let codes = |tool: &Descriptor| -> Vec<&'static str> {
            warnings(tool, &Limits::default()).iter().map(|finding| finding.code).collect()
        };
        assert!(codes(&sound()).is_empty());
        let slow = Descriptor { effect: Effect::Write, timeout_ms: 30_001, ..sound() };
        assert_eq!(codes(&slow), ["tool.outlasts-drain"]);
        assert!(codes(&Descriptor { rerun: true, ..slow.clone() }).is_empty());
        assert!(codes(&Descriptor { effect: Effect::Read, ..slow }).is_empty());
        let long = Descriptor { total_timeout_ms: Limits::default().longest_call_ms, ..sound() };
        assert_eq!(codes(&long), ["tool.outlasts-longest-call"]);
    }
}
