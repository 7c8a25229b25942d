//! What a soak does, drawn from its seed before it begins.

use super::seed::Seed;
use std::path::PathBuf;
use std::time::Duration;

/// Calls of one execution.
const CALLS_OF_EXECUTION: usize = 200;

/// A soak to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Everything random comes from it.
    pub seed: Seed,
    /// The number it was made of.
    pub number: u64,
    /// How many calls.
    pub calls: usize,
    /// How long harm is done, and calls are handed in.
    pub lasts: Duration,
    /// Longest call, in milliseconds.
    pub longest_ms: u64,
    /// Which faults are done.
    pub harm: HarmKind,
    /// Where the logs of all processes are copied at the end.
    pub keep: Option<PathBuf>,
}

/// Which faults a soak does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HarmKind {
    /// All of them.
    All,
    /// Workers are paused and the broker is killed: what strands jobs.
    Broker,
    /// Coordinators and workers are ended in order and started again, one after another: nothing may fail.
    Rolling,
    /// Workers come and go in order, between one and eight of them.
    Scaling,
    /// None: nothing may fail.
    None,
}

impl HarmKind {
    /// Whether calls that are shorter than a drain must all end well.
    pub fn is_gentle(self) -> bool {
        matches!(self, HarmKind::Rolling | HarmKind::Scaling | HarmKind::None)
    }
}

/// What a call may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Idempotent,
    Write,
}

/// One call of a soak.
#[derive(Clone, Debug)]
pub struct Call {
    pub(crate) id: String,
    /// Its execution: some hundred calls each, as a loop has.
    pub(crate) execution: String,
    pub(crate) tool: &'static str,
    pub(crate) kind: Kind,
    pub(crate) ms: u64,
    /// When it is handed in.
    pub(crate) after: Duration,
    /// Cancelled so long after it was handed in.
    pub(crate) cancel_after: Option<Duration>,
    /// Handed in a second time, beside the first.
    pub(crate) is_doubled: bool,
}

impl Plan {
    /// A plan of so many calls within a time.
    pub fn new(number: u64, calls: usize, lasts: Duration, longest_ms: u64) -> Plan {
        Plan {
            seed: Seed::new(number),
            number,
            calls,
            lasts,
            longest_ms,
            harm: HarmKind::All,
            keep: None,
        }
    }

    /// Its calls, in the order in which they are handed in.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let mut seed = self.seed.branch("calls");
        let lasts_ms = u64::try_from(self.lasts.as_millis()).unwrap_or(u64::MAX);
        // The last tenth of the time is for what is still open.
        let spread_ms = lasts_ms * 9 / 10;
        (0..self.calls).map(|number| self.call(number, spread_ms, &mut seed)).collect()
    }

    fn call(&self, number: usize, spread_ms: u64, seed: &mut Seed) -> Call {
        let is_script = seed.percent(25);
        let (kind, tool) = match (seed.below(3), is_script) {
            (0, false) => (Kind::Read, "nap"),
            (0, true) => (Kind::Read, "script-read"),
            (1, false) => (Kind::Idempotent, "nap-idempotent"),
            (1, true) => (Kind::Idempotent, "script-idempotent"),
            (_, false) => (Kind::Write, "nap-write"),
            (_, true) => (Kind::Write, "script-write"),
        };
        let ms = self.length_ms(seed);
        Call {
            id: format!("c{number}"),
            execution: format!("soak-{}", number / CALLS_OF_EXECUTION),
            tool,
            kind,
            ms,
            after: Duration::from_millis(spread_ms * number as u64 / self.calls.max(1) as u64),
            // Half of them while it is likely queued, half while it is likely running.
            cancel_after: seed.percent(10).then(|| {
                let high = if seed.percent(50) { 20 } else { ms.max(20) };
                Duration::from_millis(seed.below(high))
            }),
            is_doubled: seed.percent(10),
        }
    }

    /// Mostly short, sometimes as long as it may be.
    fn length_ms(&self, seed: &mut Seed) -> u64 {
        let high = match seed.below(1_000) {
            0..700 => 50,
            700..950 => 1_000,
            950..995 => 5_000,
            _ => 30_000,
        };
        seed.within(1, high.min(self.longest_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_every_kind_of_call_and_is_the_same_each_time() {
        let plan = Plan::new(1, 1_000, Duration::from_secs(60), 30_000);
        let calls = plan.calls();
        assert_eq!(calls.len(), 1_000);
        for kind in [Kind::Read, Kind::Idempotent, Kind::Write] {
            let of_kind = calls.iter().filter(|call| call.kind == kind).count();
            assert!((200..500).contains(&of_kind), "{kind:?}: {of_kind}");
        }
        assert!(calls.iter().any(|call| call.ms > 5_000));
        assert!(calls.iter().any(|call| call.cancel_after.is_some() && call.is_doubled));
        assert!(calls.iter().all(|call| call.after < Duration::from_secs(54)));
        let again: Vec<String> = plan.calls().iter().map(|call| format!("{call:?}")).collect();
        assert_eq!(again, calls.iter().map(|call| format!("{call:?}")).collect::<Vec<_>>());
    }
}
