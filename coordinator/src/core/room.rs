//! How full a stream is, and when it is too full to promise another result.

/// From here on nothing new is taken in: what is queued and runs must find room.
const SHORT_FROM: f64 = 0.9;

/// How full a stream is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fill {
    /// Of its room, by bytes or messages, whichever is nearer to its limit; 0 where it has none.
    pub of_room: f64,
    /// Whether nothing new may be taken in.
    pub is_short: bool,
}

/// The fill of a stream by its limits; a limit of 0 or less is none.
pub fn fill(bytes: u64, bytes_max: i64, messages: u64, messages_max: i64) -> Fill {
    let part = |used: u64, limit: i64| if limit > 0 { used as f64 / limit as f64 } else { 0.0 };
    let of_room = part(bytes, bytes_max).max(part(messages, messages_max));
    Fill { of_room, is_short: of_room >= SHORT_FROM }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearer_limit_counts_and_none_never_fills() {
        assert_eq!(fill(50, 100, 9, 10), Fill { of_room: 0.9, is_short: true });
        assert_eq!(fill(50, 100, 0, -1), Fill { of_room: 0.5, is_short: false });
        assert_eq!(fill(u64::MAX, -1, u64::MAX, 0), Fill { of_room: 0.0, is_short: false });
    }
}
