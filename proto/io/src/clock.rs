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
///
/// It counts by this host's boot clock: a step of the host's time of day changes nothing. Were it
/// counted by that, a step would end calls early or late until the next measurement.
#[derive(Clone, Debug)]
pub struct FleetClock {
    /// From the boot clock to the server's.
    offset_ms: Arc<AtomicI64>,
}

impl Default for FleetClock {
    fn default() -> Self {
        FleetClock::new()
    }
}

/// The boot clock as a signed number.
fn signed_boot_ms() -> i64 {
    i64::try_from(boot_ms()).unwrap_or(i64::MAX)
}

impl FleetClock {
    /// A clock that trusts this host until the first measurement.
    pub fn new() -> FleetClock {
        FleetClock { offset_ms: Arc::new(AtomicI64::new(host_ms() - signed_boot_ms())) }
    }

    /// Now, milliseconds since the Unix epoch on the Redis server's clock.
    pub fn now_ms(&self) -> i64 {
        signed_boot_ms() + self.offset_ms.load(Ordering::Relaxed)
    }

    /// Takes a measurement: the server said `server_ms` between `asked_ms` and `answered_ms` of the
    /// boot clock.
    pub fn measured(&self, server_ms: i64, asked_ms: u64, answered_ms: u64) {
        let middle_ms = asked_ms + answered_ms.saturating_sub(asked_ms) / 2;
        let middle_ms = i64::try_from(middle_ms).unwrap_or(i64::MAX);
        self.offset_ms.store(server_ms - middle_ms, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_ten_minutes_off_still_tells_the_fleets_time() {
        let clock = FleetClock::new();
        assert!((clock.now_ms() - host_ms()).abs() < 1_000, "not measured yet, it trusts the host");
        clock.measured(host_ms() + 600_000, boot_ms() - 10, boot_ms() + 10);
        assert!((clock.now_ms() - host_ms() - 600_000).abs() < 1_000);
    }

    #[test]
    fn a_slow_answer_is_taken_to_be_of_the_middle() {
        let clock = FleetClock::new();
        clock.measured(1_000, 5_000, 5_400);
        clock.clone().measured(1_000, 5_000, 5_400);
        let boot = signed_boot_ms();
        assert!((clock.now_ms() - (boot - 4_200)).abs() < 1_000);
    }

    #[test]
    fn the_boot_clock_goes_forward() {
        let first = boot_ms();
        assert!(first > 0 && boot_ms() >= first);
    }
}
