//! The harm of a soak: a random fault about every second.

use super::clients::Doors;
use super::plan::HarmKind;
use super::seed::Seed;
use crate::fleet::Fleet;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::time::Duration;

/// A kind of fault, with how many of a hundred it is.
const KINDS: [(&str, u64); 8] = [
    ("worker killed", 30),
    ("worker paused", 27),
    ("coordinator killed", 14),
    ("coordinator paused", 5),
    ("broker killed", 8),
    ("lease store emptied", 6),
    ("lease store killed", 5),
    ("lease store frozen", 5),
];

/// What strands jobs at the broker.
const BROKER_KINDS: [(&str, u64); 2] = [("worker paused", 60), ("broker killed", 40)];

/// What a rollout does.
const ROLLING_KINDS: [(&str, u64); 2] = [("worker replaced", 70), ("coordinator replaced", 30)];

/// What an autoscaler does.
const SCALING_KINDS: [(&str, u64); 1] = [("workers scaled", 100)];
/// Most workers of a scaled fleet.
const SCALED_MAX: u64 = 8;

/// Does harm, and keeps count of it.
pub(crate) struct Harm {
    seed: Seed,
    kinds: &'static [(&'static str, u64)],
    pub(crate) done: BTreeMap<&'static str, u64>,
}

impl Harm {
    pub(crate) fn new(seed: Seed, kind: HarmKind) -> Harm {
        let kinds: &[_] = match kind {
            HarmKind::All => &KINDS,
            HarmKind::Broker => &BROKER_KINDS,
            HarmKind::Rolling => &ROLLING_KINDS,
            HarmKind::Scaling => &SCALING_KINDS,
            HarmKind::None => &[],
        };
        Harm { seed, kinds, done: BTreeMap::new() }
    }

    /// Until the next one.
    pub(crate) fn pause(&mut self) -> Duration {
        Duration::from_millis(self.seed.within(400, 1_400))
    }

    /// How often the lease store lost what it knew, or may have: it writes to disk after it has answered
    /// where the disk is busy.
    pub(crate) fn store_losses(&self) -> u64 {
        let losses = ["lease store emptied", "lease store killed"];
        losses.iter().filter_map(|kind| self.done.get(kind)).sum()
    }

    fn draw(&mut self) -> &'static str {
        let mut left = self.seed.below(self.kinds.iter().map(|(_, weight)| weight).sum());
        for (kind, weight) in self.kinds {
            if left < *weight {
                return kind;
            }
            left -= weight;
        }
        self.kinds[0].0
    }

    /// One fault. Returns when what was killed is there again; what was paused wakes by itself.
    pub(crate) async fn do_one(&mut self, fleet: &mut Fleet, doors: &Doors) -> anyhow::Result<()> {
        if self.kinds.is_empty() {
            return Ok(());
        }
        let kind = self.draw();
        let worker = self.pick(fleet.workers.len());
        let coordinator = self.pick(fleet.coordinators.len());
        let wait = Duration::from_millis(self.seed.below(700));
        match kind {
            "worker killed" => {
                fleet.workers[worker].kill().await?;
                tokio::time::sleep(wait).await;
                fleet.workers[worker].restart().await?;
            }
            "worker replaced" => {
                fleet.workers[worker].terminate().await?;
                fleet.workers[worker].restart().await?;
            }
            "workers scaled" => {
                let count = self.seed.within(1, SCALED_MAX);
                for status in fleet.scale_workers(usize::try_from(count)?).await? {
                    anyhow::ensure!(status.success(), "a worker that was to leave: {status}");
                }
            }
            "coordinator replaced" => {
                fleet.coordinators[coordinator].terminate().await?;
                fleet.coordinators[coordinator].restart().await?;
                doors.open(fleet)?;
            }
            // Up to more than two leases.
            "worker paused" => self.freeze(fleet.workers[worker].pid(), 5_000)?,
            "coordinator killed" => {
                fleet.coordinators[coordinator].kill().await?;
                tokio::time::sleep(wait).await;
                fleet.coordinators[coordinator].restart().await?;
                doors.open(fleet)?;
            }
            "coordinator paused" => self.freeze(fleet.coordinators[coordinator].pid(), 4_000)?,
            "broker killed" => {
                fleet.nats.kill().await?;
                tokio::time::sleep(wait).await;
                fleet.nats.restart().await?;
            }
            "lease store emptied" => {
                // It may be frozen still.
                if let Some(redis) = i32::try_from(fleet.redis.pid()).ok().and_then(Pid::from_raw) {
                    let _ = kill_process(redis, Signal::CONT);
                }
                let mut redis = fleet.redis_connection().await?;
                let _: String = redis::cmd("FLUSHALL").query_async(&mut redis).await?;
            }
            "lease store killed" => {
                fleet.redis.kill().await?;
                tokio::time::sleep(wait).await;
                fleet.redis.restart().await?;
            }
            _ => self.freeze(fleet.redis.pid(), 3_000)?,
        }
        *self.done.entry(kind).or_default() += 1;
        Ok(())
    }

    fn pick(&mut self, of: usize) -> usize {
        usize::try_from(self.seed.below(of.max(1) as u64)).unwrap_or(0)
    }

    /// Stops a process for a while, beside everything else.
    fn freeze(&mut self, pid: u32, up_to_ms: u64) -> anyhow::Result<()> {
        let ms = self.seed.within(300, up_to_ms);
        let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
        kill_process(pid, Signal::STOP)?;
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            // It may have been killed meanwhile.
            let _ = kill_process(pid, Signal::CONT);
        });
        Ok(())
    }

    /// Wakes everything up, so that what is open can end.
    pub(crate) fn repair(fleet: &Fleet, doors: &Doors) -> anyhow::Result<()> {
        for member in fleet.workers.iter().chain(&fleet.coordinators) {
            let _ = member.resume();
        }
        if let Some(redis) = i32::try_from(fleet.redis.pid()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(redis, Signal::CONT);
        }
        doors.open(fleet)
    }
}
