//! How the calls of an execution are run: for real or dry, as of now or of an instant (CONTRACT 3.9,
//! 3.10).

use super::execution::Execution;
use toolfleet_proto::effect::Effect;
use toolfleet_proto::wire::Job;

/// Given at an execution's creation, fixed for its life; each of its jobs carries it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// Reads run, everything else is answered without being run.
    pub dry_run: bool,
    /// The instant that the execution sees the world as of, milliseconds since the Unix epoch.
    pub as_of_ms: Option<i64>,
}

impl Mode {
    /// That of an execution; the usual one where there is no record of it.
    pub fn of(record: Option<&Execution>) -> Mode {
        record.map_or_else(Mode::default, |record| Mode {
            dry_run: record.dry_run,
            as_of_ms: record.as_of_ms,
        })
    }

    /// That of a job's execution.
    pub fn of_job(job: &Job) -> Mode {
        Mode { dry_run: job.dry_run, as_of_ms: (job.as_of_ms != 0).then_some(job.as_of_ms) }
    }

    /// Whether a call is answered without being run.
    pub fn is_stubbed(self, effect: Effect) -> bool {
        self.dry_run && effect != Effect::Read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_runs_reads_only_and_a_job_carries_the_mode() {
        let dry = Mode { dry_run: true, as_of_ms: None };
        assert!(!dry.is_stubbed(Effect::Read));
        assert!(dry.is_stubbed(Effect::Idempotent) && dry.is_stubbed(Effect::Write));
        assert!(!Mode::default().is_stubbed(Effect::Write));
        let job = Job { dry_run: true, as_of_ms: 5, ..Job::default() };
        assert_eq!(Mode::of_job(&job), Mode { dry_run: true, as_of_ms: Some(5) });
        assert_eq!(Mode::of_job(&Job::default()), Mode::default());
        assert_eq!(Mode::of(None), Mode::default());
    }
}
