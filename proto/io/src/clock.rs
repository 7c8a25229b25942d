//! The fleet's clock: the Redis server's, as this process knows it (DESIGN 4, headers).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch on this host.
pub fn host_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Milliseconds of a clock that only goes forward and counts a suspended machine.
pub fn boot_ms() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let id = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let id = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(id);
    (time.tv_sec as u64) * 1_000 + (time.tv_nsec as u64) / 1_000_000
}

/// The fleet's clock. Clones share the measured offset.
#[derive(Clone, Debug, Default)]
pub struct FleetClock {
    offset_ms: Arc<AtomicI64>,
}

impl FleetClock {
    /// A clock that trusts this host until the first measurement.
    pub fn new() -> FleetClock {
        FleetClock::default()
    }

    /// Now, milliseconds since the Unix epoch on the Redis server's clock.
    pub fn now_ms(&self) -> i64 {
        host_ms() + self.offset_ms.load(Ordering::Relaxed)
    }

    /// Takes a measurement: the server said `server_ms` between `asked_ms` and `answered_ms` of this
    /// host.
    pub fn measured(&self, server_ms: i64, asked_ms: i64, answered_ms: i64) {
        let middle = asked_ms + (answered_ms - asked_ms) / 2;
        self.offset_ms.store(server_ms - middle, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_ten_minutes_off_still_tells_the_fleets_time() {
        let clock = FleetClock::new();
        clock.measured(host_ms() + 600_000, host_ms() - 10, host_ms() + 10);
        assert!((clock.now_ms() - host_ms() - 600_000).abs() < 1_000);
    }

    #[test]
    fn the_boot_clock_goes_forward() {
        let first = boot_ms();
        assert!(first > 0 && boot_ms() >= first);
    }
}
