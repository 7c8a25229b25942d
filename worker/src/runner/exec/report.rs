//! What a guard leaves behind for its worker, in a file that the tool cannot reach. Also compiled into
//! the guard, which links nothing of the worker.

/// Bytes of a report.
pub const REPORT_BYTES: usize = 8;

/// How a guarded tool came to its end. Without a report the guard itself was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The tool ended with this wait status.
    Ended(i32),
    /// Nothing of the tool ran: an error number of the operating system.
    NotStarted(i32),
    /// The instant told last had passed: the group was killed.
    LeaseOver,
}

impl Report {
    /// Kind and value, each 4 bytes, little-endian.
    pub fn encode(self) -> [u8; REPORT_BYTES] {
        let (kind, value) = match self {
            Report::Ended(status) => (1_u32, status),
            Report::NotStarted(errno) => (2, errno),
            Report::LeaseOver => (3, 0),
        };
        let mut bytes = [0; REPORT_BYTES];
        let (first, second) = bytes.split_at_mut(4);
        first.copy_from_slice(&kind.to_le_bytes());
        second.copy_from_slice(&value.to_le_bytes());
        bytes
    }

    /// `None`: no report.
    pub fn decode(bytes: [u8; REPORT_BYTES]) -> Option<Report> {
        let [k0, k1, k2, k3, value @ ..] = bytes;
        let value = i32::from_le_bytes(value);
        match u32::from_le_bytes([k0, k1, k2, k3]) {
            1 => Some(Report::Ended(value)),
            2 => Some(Report::NotStarted(value)),
            3 => Some(Report::LeaseOver),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_read_back_and_other_bytes_are_none() {
        for report in
            [Report::Ended(9), Report::Ended(-1), Report::NotStarted(2), Report::LeaseOver]
        {
            assert_eq!(Report::decode(report.encode()), Some(report));
        }
        assert_eq!(Report::decode([0; REPORT_BYTES]), None);
        assert_eq!(Report::decode([4, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
