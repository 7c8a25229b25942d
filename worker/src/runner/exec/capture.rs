//! The three pipes of a tool process: fed and read at the same time, bounded while read.

use crate::runner::LastWords;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio_util::sync::CancellationToken;

/// Of standard error, only the last bytes are kept.
const STDERR_BYTES_MAX: usize = 8 * 1024;

/// One read; half of what a pipe holds.
const READ_BYTES: usize = 32 * 1024;

/// Our ends of a process's pipes.
pub(super) struct Pipes {
    pub(super) stdin: Option<ChildStdin>,
    pub(super) stdout: Option<ChildStdout>,
    pub(super) stderr: Option<ChildStderr>,
}

/// What a process wrote.
pub(super) struct Streams {
    pub(super) stdout: Capture,
    pub(super) stderr: Tail,
}

impl Streams {
    /// Nothing yet; keeps at most `capture_bytes_max` bytes of standard output.
    pub(super) fn new(capture_bytes_max: usize) -> Streams {
        Streams { stdout: Capture::new(capture_bytes_max), stderr: Tail::default() }
    }

    /// Writes `input`, and reads both outputs to their end, all at the same time. What was read
    /// stays when the future is dropped. A process that takes no input is no error; writing ends
    /// once `leader_gone` fires, since nobody that counts reads any more. Standard error goes to
    /// `last_words` as it comes.
    pub(super) async fn pump(
        &mut self,
        pipes: Pipes,
        input: &[u8],
        leader_gone: &CancellationToken,
        last_words: &LastWords,
    ) {
        let feed = leader_gone.run_until_cancelled(feed(pipes.stdin, input));
        let stdout = read(pipes.stdout, |bytes| self.stdout.push(bytes));
        let stderr = read(pipes.stderr, |bytes| {
            self.stderr.push(bytes);
            last_words.say(&self.stderr.text());
        });
        tokio::join!(feed, stdout, stderr);
    }
}

async fn feed(stdin: Option<ChildStdin>, input: &[u8]) {
    let Some(mut stdin) = stdin else { return };
    // Mostly a broken pipe: the tool has closed its input, which is its right.
    if let Err(error) = stdin.write_all(input).await {
        tracing::trace!(%error, "tool did not read its whole input");
    }
}

async fn read(pipe: Option<impl AsyncRead + Unpin>, mut push: impl FnMut(&[u8])) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match pipe.read(&mut buffer).await {
            Ok(0) => return,
            Ok(count) => push(buffer.get(..count).unwrap_or_default()),
            Err(error) => {
                tracing::warn!(%error, "tool output could not be read further");
                return;
            }
        }
    }
}

/// The first bytes of a stream, and facts about all of it.
pub(super) struct Capture {
    bytes: Vec<u8>,
    bytes_max: usize,
    whole_bytes: u64,
    utf8: Utf8Check,
}

impl Capture {
    fn new(bytes_max: usize) -> Capture {
        Capture { bytes: Vec::new(), bytes_max, whole_bytes: 0, utf8: Utf8Check::default() }
    }

    fn push(&mut self, bytes: &[u8]) {
        let room = self.bytes_max.saturating_sub(self.bytes.len());
        self.bytes.extend(bytes.iter().take(room));
        self.whole_bytes = self.whole_bytes.saturating_add(bytes.len() as u64);
        self.utf8.push(bytes);
    }

    /// The first bytes, the count of all, and the offset of the first byte that is not UTF-8.
    pub(super) fn finish(self) -> (Vec<u8>, u64, Option<u64>) {
        (self.bytes, self.whole_bytes, self.utf8.finish())
    }
}

/// Checks a stream for UTF-8 piece by piece, characters across pieces included.
#[derive(Default)]
struct Utf8Check {
    /// The start of a character whose end has not come yet: at most 3 bytes.
    pending: Vec<u8>,
    /// Bytes before `pending`.
    checked_bytes: u64,
    invalid_at: Option<u64>,
}

impl Utf8Check {
    fn push(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        // One byte at a time until the character that was cut is whole, or wrong.
        while !self.pending.is_empty() && self.invalid_at.is_none() {
            let Some((first, after)) = rest.split_first() else { return };
            rest = after;
            let mut joined = std::mem::take(&mut self.pending);
            joined.push(*first);
            self.check(&joined);
        }
        if self.invalid_at.is_none() {
            self.check(rest);
        }
    }

    /// Checks bytes that begin where a character begins.
    fn check(&mut self, bytes: &[u8]) {
        let Err(error) = std::str::from_utf8(bytes) else {
            self.checked_bytes += bytes.len() as u64;
            return;
        };
        self.checked_bytes += error.valid_up_to() as u64;
        if error.error_len().is_some() {
            self.invalid_at = Some(self.checked_bytes);
        } else {
            self.pending = bytes.get(error.valid_up_to()..).unwrap_or_default().to_vec();
        }
    }

    /// A character that never ended is wrong at its first byte.
    fn finish(self) -> Option<u64> {
        self.invalid_at.or((!self.pending.is_empty()).then_some(self.checked_bytes))
    }
}

/// The last bytes of a stream.
#[derive(Default)]
pub(super) struct Tail {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let surplus = self.bytes.len().saturating_sub(STDERR_BYTES_MAX);
        if surplus > 0 {
            self.bytes.drain(..surplus);
            self.is_cut = true;
        }
    }

    /// The last bytes as text, trimmed; what is not UTF-8 is replaced, and the rest of a character
    /// that the cut went through is left out.
    pub(super) fn text(&self) -> String {
        let is_rest = |byte: &&u8| self.is_cut && (**byte & 0b1100_0000) == 0b1000_0000;
        let rest_bytes = self.bytes.iter().take(3).take_while(is_rest).count();
        let bytes = self.bytes.get(rest_bytes..).unwrap_or_default();
        String::from_utf8_lossy(bytes).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sound answer, from the whole at once.
    fn invalid_at(bytes: &[u8]) -> Option<u64> {
        std::str::from_utf8(bytes).err().map(|error| error.valid_up_to() as u64)
    }

    const SAMPLES: [&[u8]; 10] = [
        b"",
        b"plain",
        "aé€𝄞z".as_bytes(),
        b"ab\xffcd",
        b"a\xe2\x82",
        b"\xf0\x9d\x84",
        b"\xe2\x82\xe2\x82\xac",
        b"\xed\xa0\x80x",
        b"\xc0\xaf",
        b"ok\x80",
    ];

    #[test]
    fn utf8_is_judged_alike_however_it_is_split() {
        for sample in SAMPLES {
            for first in 0..=sample.len() {
                for second in first..=sample.len() {
                    let mut check = Utf8Check::default();
                    check.push(&sample[..first]);
                    check.push(&sample[first..second]);
                    check.push(&sample[second..]);
                    assert_eq!(check.finish(), invalid_at(sample), "{sample:?} {first} {second}");
                }
            }
            let mut check = Utf8Check::default();
            sample.chunks(1).for_each(|byte| check.push(byte));
            assert_eq!(check.finish(), invalid_at(sample), "{sample:?} byte by byte");
        }
    }

    #[test]
    fn a_capture_keeps_the_first_bytes_and_counts_and_checks_all() {
        let mut capture = Capture::new(4);
        capture.push(b"abc");
        capture.push(b"def");
        capture.push(b"gh\xff");
        assert_eq!(capture.finish(), (b"abcd".to_vec(), 9, Some(8)));
        let mut none = Capture::new(0);
        none.push(b"abc");
        assert_eq!(none.finish(), (Vec::new(), 3, None));
    }

    #[test]
    fn a_tail_keeps_the_last_bytes_on_a_character_boundary() {
        let mut tail = Tail::default();
        tail.push(b"start ");
        tail.push(" end \n".as_bytes());
        assert_eq!(tail.text(), "start  end");
        let mut tail = Tail::default();
        tail.push("€".repeat(STDERR_BYTES_MAX).as_bytes());
        // 8,192 bytes are 2,730 characters of 3 bytes and the last 2 bytes of one more.
        assert_eq!(tail.text(), "€".repeat(STDERR_BYTES_MAX / 3));
        let mut tail = Tail::default();
        tail.push(b"\x80 bad \xff");
        assert_eq!(tail.text(), "\u{fffd} bad \u{fffd}");
    }
}
