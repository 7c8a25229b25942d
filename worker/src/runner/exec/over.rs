//! What a program's death says of its limits (CONTRACT 5.11), and the limits as the guard is told them.

use super::limits::Limit;
use rustix::process::Signal;
use toolfleet_proto::declared::ProcessLimits;
use toolfleet_proto::unit::{describe_ms, thousands};

/// The limits one by one. Time on processors is counted in whole seconds, so it is rounded up.
pub(super) fn each(limits: &ProcessLimits) -> Vec<Limit> {
    let ProcessLimits { memory_bytes, cpu_time_ms, processes, open_files, file_size_bytes } =
        *limits;
    [
        memory_bytes.map(Limit::Memory),
        cpu_time_ms.map(|ms| Limit::CpuTime(ms.div_ceil(1_000))),
        processes.map(Limit::Processes),
        open_files.map(Limit::OpenFiles),
        file_size_bytes.map(Limit::FileSize),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The limit that a signal tells of, as the end of an error's text; "perhaps" where the signal may have
/// another cause. A program that is refused memory often ends by an exit code of its own, which tells
/// nothing.
pub(super) fn told_by(signal: i32, limits: &ProcessLimits) -> Option<String> {
    let is = |one: Signal| one.as_raw() == signal;
    let time = limits.cpu_time_ms.map(|ms| {
        format!("its limit of {} on processors", describe_ms(ms.div_ceil(1_000) * 1_000))
    });
    if is(Signal::XCPU) {
        return time.map(|limit| format!("over {limit}"));
    }
    if is(Signal::XFSZ) {
        let bytes = limits.file_size_bytes?;
        return Some(format!("over its limit of {} bytes for a file", thousands(bytes)));
    }
    let memory = limits
        .memory_bytes
        .map(|bytes| format!("its limit of {} bytes of memory", thousands(bytes)));
    let dies_without_memory =
        [Signal::SEGV, Signal::ABORT, Signal::KILL, Signal::BUS, Signal::TRAP, Signal::ILL];
    let memory = memory.filter(|_| dies_without_memory.into_iter().any(is));
    // Who takes XCPU and goes on is killed a second later.
    let time = time.filter(|_| is(Signal::KILL));
    let causes: Vec<String> = memory.into_iter().chain(time).collect();
    (!causes.is_empty()).then(|| format!("perhaps over {}", causes.join(" or ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: ProcessLimits = ProcessLimits {
        memory_bytes: Some(64 << 20),
        cpu_time_ms: Some(1_500),
        processes: Some(8),
        open_files: Some(64),
        file_size_bytes: Some(1_024),
    };

    #[test]
    fn the_limits_that_are_there_are_told_one_by_one() {
        assert!(each(&ProcessLimits::default()).is_empty());
        let expected = [
            Limit::Memory(64 << 20),
            Limit::CpuTime(2),
            Limit::Processes(8),
            Limit::OpenFiles(64),
            Limit::FileSize(1_024),
        ];
        assert_eq!(each(&ALL), expected);
    }

    #[test]
    fn a_signal_names_the_limit_that_it_comes_from_and_no_other() {
        let told = |signal: Signal, limits: &ProcessLimits| told_by(signal.as_raw(), limits);
        assert_eq!(told(Signal::XCPU, &ALL).unwrap(), "over its limit of 2 s on processors");
        assert_eq!(told(Signal::XFSZ, &ALL).unwrap(), "over its limit of 1,024 bytes for a file");
        assert_eq!(
            told(Signal::SEGV, &ALL).unwrap(),
            "perhaps over its limit of 67,108,864 bytes of memory"
        );
        assert_eq!(
            told(Signal::KILL, &ALL).unwrap(),
            "perhaps over its limit of 67,108,864 bytes of memory or its limit of 2 s on processors"
        );
        assert_eq!(told(Signal::TERM, &ALL), None);
        for signal in [Signal::XCPU, Signal::XFSZ, Signal::KILL, Signal::SEGV] {
            assert_eq!(told(signal, &ProcessLimits::default()), None, "{signal:?}");
        }
    }
}
