//! The instant at which a lease is over by its holder's clock, moved by every renewal and told at once
//! to whoever must know.

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// When KILL must have happened (G6), milliseconds of the boot clock. Clones share it.
#[derive(Clone, Debug)]
pub struct Expiry {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    over_at_ms: u64,
    /// The write end of a guard's FIFO; whoever runs the tool owns it.
    line: Weak<File>,
}

impl Expiry {
    /// Over at this instant, until it is moved.
    pub fn at(over_at_ms: u64) -> Expiry {
        Expiry { state: Arc::new(Mutex::new(State { over_at_ms, line: Weak::new() })) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the lock is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves it forward; an earlier instant changes nothing. The line is written to right here, on the
    /// thread that renews: a tool that starves its own runtime must not look like a lost lease.
    pub fn move_to(&self, over_at_ms: u64) {
        let mut state = self.state();
        if over_at_ms <= state.over_at_ms {
            return;
        }
        state.over_at_ms = over_at_ms;
        let Some(line) = state.line.upgrade() else { return };
        if let Err(error) = write(&line, over_at_ms) {
            // The guard keeps to the instant before: early, never late.
            tracing::debug!(%error, "a guard was not told of a renewal");
        }
    }

    /// Tells the instant on this line, now and each time it moves, as long as the line is held: 8
    /// bytes, little-endian. The line must not block. Fails where the first write does.
    pub fn tell(&self, line: &Arc<File>) -> io::Result<()> {
        let mut state = self.state();
        write(line, state.over_at_ms)?;
        state.line = Arc::downgrade(line);
        Ok(())
    }
}

/// Fewer bytes than a FIFO takes at once: all of them or none.
fn write(mut line: &File, over_at_ms: u64) -> io::Result<()> {
    line.write_all(&over_at_ms.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn a_line_hears_the_instant_and_every_move_forward_until_it_is_dropped() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let expiry = Expiry::at(5);
        expiry.move_to(7);
        let line = Arc::new(File::from(writer));
        expiry.tell(&line).unwrap();
        expiry.clone().move_to(9);
        expiry.move_to(8);
        drop(line);
        expiry.move_to(10);
        let mut heard = Vec::new();
        // It ends: the instant does not hold the line open.
        File::from(reader).read_to_end(&mut heard).unwrap();
        assert_eq!(heard, [7_u64.to_le_bytes(), 9_u64.to_le_bytes()].concat());
    }
}
