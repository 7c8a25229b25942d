//! Every limit of the fleet, and the relations that must hold between them (DESIGN 5).

/// Clocks of leases, retention and the broker. All spans are milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a claim lasts without renewal.
    pub lease_ttl_ms: u64,
    /// How often a worker renews its leases.
    pub lease_renew_ms: u64,
    /// What a holder takes off its own view of the lease, for clocks that drift.
    pub lease_margin_ms: u64,
    /// From TERM to KILL.
    pub kill_grace_ms: u64,
    /// When the broker delivers again what nobody acknowledged.
    pub ack_wait_ms: u64,
    /// How long a cancelled call may take to end by itself.
    pub cancel_grace_ms: u64,
    /// How long a draining process lets calls run.
    pub drain_ms: u64,
    /// How long results are kept.
    pub retention_ms: u64,
    /// How long the result of an unnamed call is kept.
    pub unnamed_retention_ms: u64,
    /// How long start records of writes are kept.
    pub write_memory_ms: u64,
    /// Longest queue timeout, total timeout and grace of any tool, together: what retention must cover.
    pub longest_call_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        const SECOND: u64 = 1_000;
        const HOUR: u64 = 3_600 * SECOND;
        Limits {
            lease_ttl_ms: 15 * SECOND,
            lease_renew_ms: 5 * SECOND,
            lease_margin_ms: 1_500,
            kill_grace_ms: 2 * SECOND,
            ack_wait_ms: 20 * SECOND,
            cancel_grace_ms: 2 * SECOND,
            drain_ms: 30 * SECOND,
            retention_ms: 24 * HOUR,
            unnamed_retention_ms: HOUR,
            write_memory_ms: 7 * 24 * HOUR,
            longest_call_ms: 4 * HOUR,
        }
    }
}

impl Limits {
    /// Every relation that does not hold, as a sentence with the values. Empty: all hold.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut require = |holds: bool, text: String| {
            if !holds {
                faults.push(text);
            }
        };
        let Limits { lease_ttl_ms: ttl, lease_renew_ms: renew, lease_margin_ms: margin, .. } =
            *self;
        require(renew > 0, "limits.lease_renew must be above 0".into());
        require(
            3 * renew <= ttl,
            format!(
                "3 * limits.lease_renew ({renew} ms) must not exceed limits.lease_ttl ({ttl} ms)"
            ),
        );
        require(
            self.kill_grace_ms + margin + renew < ttl,
            format!(
                "limits.kill_grace ({} ms) + limits.lease_margin ({margin} ms) + limits.lease_renew ({renew} ms) must be below limits.lease_ttl ({ttl} ms)",
                self.kill_grace_ms
            ),
        );
        require(
            ttl + renew <= self.ack_wait_ms,
            format!(
                "limits.lease_ttl ({ttl} ms) + limits.lease_renew ({renew} ms) must not exceed limits.ack_wait ({} ms)",
                self.ack_wait_ms
            ),
        );
        require(
            self.retention_ms > 2 * self.longest_call_ms,
            format!(
                "limits.retention ({} ms) must exceed twice limits.longest_call ({} ms)",
                self.retention_ms, self.longest_call_ms
            ),
        );
        require(
            self.write_memory_ms >= self.retention_ms + self.longest_call_ms,
            format!(
                "limits.write_memory ({} ms) must cover limits.retention ({} ms) and limits.longest_call ({} ms)",
                self.write_memory_ms, self.retention_ms, self.longest_call_ms
            ),
        );
        faults
    }
}

/// Most bytes of an id (tenant, execution, turn, call id).
pub const ID_BYTES_MAX: usize = 128;
/// Most bytes of a call's arguments.
pub const ARGUMENT_BYTES_MAX: usize = 256 * 1024;
/// Most bytes of a request body.
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most calls of one turn.
pub const TURN_CALLS_MAX: usize = 128;
/// Calls of one execution that run at the same time, unless the execution says otherwise.
pub const PARALLEL_CALLS_MAX: usize = 16;
/// Largest bound a tool may ask for: what one broker message carries beside the envelope.
pub const RESULT_BYTES_CAP: u64 = 768 * 1024;
/// Slots of a worker whose tools only wait (native).
pub const SLOTS_WAITING: usize = 64;
/// Slots of a worker that starts processes.
pub const SLOTS_EXEC: usize = 8;
/// `max_ack_pending` of a pool's consumer: a job handed back with a delay counts as pending.
pub const ACK_PENDING_MAX: i64 = 20_000;
/// `max_waiting` of a pool's consumer: open pull requests.
pub const PULLS_WAITING_MAX: i64 = 8_192;
/// Leases renewed by one script: more would hold up every other client of the store.
pub const LEASES_PER_SCRIPT_MAX: usize = 200;
/// Time a `done` marker stays after a stored result.
pub const DONE_MARKER_MS: u64 = 5_000;

#[cfg(test)]
mod tests {
    use super::Limits;

    #[test]
    fn the_defaults_hold_and_each_broken_relation_is_named() {
        assert_eq!(Limits::default().faults(), Vec::<String>::new());
        let cases = [
            (Limits { lease_renew_ms: 5_001, ..Limits::default() }, "3 * limits.lease_renew"),
            (Limits { kill_grace_ms: 9_000, ..Limits::default() }, "limits.kill_grace"),
            (Limits { ack_wait_ms: 19_999, ..Limits::default() }, "limits.ack_wait"),
            (Limits { retention_ms: 3_600_000, ..Limits::default() }, "limits.retention"),
            (Limits { write_memory_ms: 3_600_000, ..Limits::default() }, "limits.write_memory"),
        ];
        for (limits, named) in cases {
            let faults = limits.faults();
            assert!(faults.iter().any(|fault| fault.contains(named)), "{named}: {faults:?}");
        }
    }
}
