//! Processor time of the fleet's processes, as Linux tells it in `/proc`.

use serde::Serialize;

/// Length of one tick of `/proc/<pid>/stat`: 100 a second on every Linux of today.
const TICK_US: u64 = 10_000;

/// The processes of a fleet and of its client.
#[derive(Clone, Debug)]
pub(super) struct Processes {
    pub(super) client: Vec<u32>,
    pub(super) coordinator: Vec<u32>,
    pub(super) workers: Vec<u32>,
    pub(super) nats: Vec<u32>,
    pub(super) redis: Vec<u32>,
}

/// One figure a kind of process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Used<T> {
    pub(super) client: T,
    pub(super) coordinator: T,
    pub(super) workers: T,
    pub(super) nats: T,
    pub(super) redis: T,
}

impl Processes {
    /// Processor time so far, microseconds; `None` where the system does not tell or one has ended.
    pub(super) fn used_us(&self) -> Used<Option<u64>> {
        let sum = |pids: &[u32]| pids.iter().map(|pid| of_process_us(*pid)).sum();
        Used {
            client: sum(&self.client),
            coordinator: sum(&self.coordinator),
            workers: sum(&self.workers),
            nats: sum(&self.nats),
            redis: sum(&self.redis),
        }
    }
}

impl<T: Copy> Used<T> {
    fn pair<U: Copy, V>(&self, other: &Used<U>, with: impl Fn(T, U) -> V) -> Used<V> {
        Used {
            client: with(self.client, other.client),
            coordinator: with(self.coordinator, other.coordinator),
            workers: with(self.workers, other.workers),
            nats: with(self.nats, other.nats),
            redis: with(self.redis, other.redis),
        }
    }
}

impl Used<Option<u64>> {
    /// What was used since an earlier look.
    pub(super) fn since(&self, before: &Used<Option<u64>>) -> Used<Option<u64>> {
        self.pair(before, |now, before| Some(now?.saturating_sub(before?)))
    }

    /// Over so many calls, to a tenth of a microsecond.
    pub(super) fn per_call(&self, calls: u64) -> Used<Option<f64>> {
        self.pair(self, |used, _| {
            let each = used.filter(|_| calls > 0)? as f64 / calls as f64;
            Some((each * 10.0).round() / 10.0)
        })
    }
}

fn of_process_us(pid: u32) -> Option<u64> {
    ticks(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?).map(|ticks| ticks * TICK_US)
}

/// User and system ticks: the 14th and 15th field. The second is a name in brackets that may hold
/// blanks and brackets itself.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read_behind_a_name_with_brackets_and_blanks() {
        let stat = "42 (a) b) (c) S 1 42 42 0 -1 4194304 100 0 0 0 17 5 0 0 20 0 1 0 100 1000 10";
        assert_eq!(ticks(stat), Some(22));
        assert_eq!(ticks("42 (a) S 1"), None);
    }

    #[test]
    fn a_process_that_ended_has_no_figure() {
        let used = |redis| Used {
            client: Some(1_000),
            coordinator: Some(2_000),
            workers: Some(3_000),
            nats: Some(4_000),
            redis,
        };
        let spent = used(None).since(&used(Some(1)));
        assert_eq!((spent.client, spent.redis), (Some(0), None));
        let each = used(Some(55)).per_call(100);
        assert_eq!((each.client, each.redis), (Some(10.0), Some(0.6)));
        assert_eq!(used(Some(55)).per_call(0).client, None);
    }
}
