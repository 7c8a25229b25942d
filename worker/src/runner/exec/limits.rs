//! Bounds of a program's processes (CONTRACT 5.11), as a worker names them to a guard. Also compiled into
//! the guard, which links nothing of the worker.

/// One bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Address space of one process, bytes.
    Memory(u64),
    /// Time on processors of one process, whole seconds.
    CpuTime(u64),
    /// Processes and threads of the user.
    Processes(u64),
    /// Open files of one process.
    OpenFiles(u64),
    /// Size of a file that is written, bytes.
    FileSize(u64),
}

impl Limit {
    /// One word, e.g. `memory=1048576`.
    pub fn encode(self) -> String {
        let (name, value) = match self {
            Limit::Memory(bytes) => ("memory", bytes),
            Limit::CpuTime(seconds) => ("cpu_time", seconds),
            Limit::Processes(count) => ("processes", count),
            Limit::OpenFiles(count) => ("open_files", count),
            Limit::FileSize(bytes) => ("file_size", bytes),
        };
        format!("{name}={value}")
    }

    /// `None`: no such bound.
    pub fn decode(word: &str) -> Option<Limit> {
        let (name, value) = word.split_once('=')?;
        let value = value.parse().ok()?;
        match name {
            "memory" => Some(Limit::Memory(value)),
            "cpu_time" => Some(Limit::CpuTime(value)),
            "processes" => Some(Limit::Processes(value)),
            "open_files" => Some(Limit::OpenFiles(value)),
            "file_size" => Some(Limit::FileSize(value)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_read_back_and_other_words_are_none() {
        for limit in [
            Limit::Memory(u64::MAX),
            Limit::CpuTime(1),
            Limit::Processes(2),
            Limit::OpenFiles(3),
            Limit::FileSize(4),
        ] {
            assert_eq!(Limit::decode(&limit.encode()), Some(limit));
        }
        for word in ["", "memory", "memory=", "memory=-1", "stack=1"] {
            assert_eq!(Limit::decode(word), None, "{word}");
        }
    }
}
