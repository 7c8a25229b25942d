//! Whether this machine has the memory that the limits of its tools allow (DESIGN 5).

use crate::registry::Registry;
use std::fs;

/// Where a control group says how much memory its processes may have, in version 2 and 1.
const GROUP_LIMITS: [&str; 2] =
    ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];

/// Warns where as many calls as there are slots could together take more memory than there is.
pub fn warn(registry: &Registry, slots: usize) {
    let limits = registry.tools().filter_map(|tool| {
        let bytes = tool.descriptor.declared.limits.as_ref()?.memory_bytes?;
        Some((bytes, tool.descriptor.name.as_str()))
    });
    let Some((bytes, tool)) = limits.max() else { return };
    let Some(available_bytes) = available_bytes() else { return };
    if is_too_much(slots, bytes, available_bytes) {
        tracing::warn!(
            tool,
            slots,
            memory_bytes = bytes,
            available_bytes,
            "calls in all slots may take more memory than there is: lower `limits.memory` or `worker.slots`"
        );
    }
}

fn is_too_much(slots: usize, bytes: u64, available_bytes: u64) -> bool {
    u128::from(bytes) * slots as u128 > u128::from(available_bytes)
}

/// Memory of the machine, or of the control group where that is less. `None` where neither is known.
fn available_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| machine_bytes(&text));
    let groups = GROUP_LIMITS.iter().filter_map(|path| {
        // `max` where there is no limit.
        fs::read_to_string(path).ok()?.trim().parse().ok()
    });
    machine.into_iter().chain(groups).min()
}

/// The total of `/proc/meminfo`.
fn machine_bytes(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_all_slots_is_held_against_what_there_is() {
        assert!(!is_too_much(8, 1 << 30, 8 << 30));
        assert!(is_too_much(9, 1 << 30, 8 << 30));
        assert!(is_too_much(2, u64::MAX, u64::MAX));
    }

    #[test]
    fn the_machine_says_its_total_in_kilobytes() {
        let text = "MemFree:  5 kB\nMemTotal:       24681012 kB\n";
        assert_eq!(machine_bytes(text), Some(24_681_012 * 1_024));
        assert_eq!(machine_bytes("MemTotal: lots"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_has_memory() {
        assert!(available_bytes().unwrap() > 64 << 20);
    }
}
