//! Descriptor 3: what a tool says while it runs, one JSON object a line (CONTRACT 5.1). Spend is
//! recorded; log lines go to the worker's log, and so does what does not parse. Progress, output, ui,
//! artifact and metric lines are read and not kept yet.

use crate::spend::{Amount, Spend};
use command_fds::{CommandFdExt as _, FdMapping};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::Deserialize;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio::task::JoinHandle;

/// Its number in the tool.
const DESCRIPTOR: i32 = 3;
/// Bytes of one line; a longer one is cut, and so does not parse.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// How long a background child may keep talking once the tool itself has ended.
const FINISH: Duration = Duration::from_secs(1);

/// A line of descriptor 3. Amounts are strings: money is never a float.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Line {
    Spend {
        service: String,
        amount: String,
        currency: String,
        #[serde(default)]
        quantity: String,
        #[serde(default)]
        unit: String,
    },
    Log {
        #[serde(default)]
        level: String,
        message: String,
    },
    Progress {},
    Output {},
    Ui {},
    Artifact {},
    Metric {},
}

/// Gives the tool its descriptor 3. Returns our end.
pub(super) fn open(command: &mut Command) -> io::Result<OwnedFd> {
    let (ours, tools) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    let mapping = FdMapping { parent_fd: tools, child_fd: DESCRIPTOR };
    command.fd_mappings(vec![mapping]).map_err(io::Error::other)?;
    Ok(ours)
}

/// Listens until the tool has closed it.
pub(super) fn listen(ours: OwnedFd, spend: Option<Spend>, tool: String) -> Option<JoinHandle<()>> {
    let receiver = match pipe::Receiver::from_owned_fd(ours) {
        Ok(receiver) => receiver,
        Err(error) => {
            tracing::warn!(tool, %error, "nobody listens on descriptor 3");
            return None;
        }
    };
    Some(tokio::spawn(async move {
        let mut reader = BufReader::new(receiver);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await;
            match read {
                Ok(0) | Err(_) => return,
                Ok(_) => take_in(&line, spend.as_ref(), &tool).await,
            }
        }
    }))
}

/// Waits for what was said before the end.
pub(super) async fn finish(listening: Option<JoinHandle<()>>) {
    let Some(mut listening) = listening else { return };
    if tokio::time::timeout(FINISH, &mut listening).await.is_err() {
        listening.abort();
    }
}

async fn take_in(line: &[u8], spend: Option<&Spend>, tool: &str) {
    match serde_json::from_slice::<Line>(line) {
        Ok(Line::Spend { service, amount, currency, quantity, unit }) => {
            let Some(spend) = spend else { return };
            let amount = Amount { service, amount, currency, quantity, unit };
            if let Err(error) = spend.record(amount).await {
                tracing::warn!(tool, %error, "spend was not recorded");
            }
        }
        Ok(Line::Log { level, message }) => tracing::info!(tool, level, message, "the tool says"),
        Ok(other) => tracing::debug!(tool, ?other, "not kept yet"),
        Err(_) => {
            let text = String::from_utf8_lossy(line);
            tracing::info!(tool, message = text.trim_end(), "the tool says");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_by_their_type_and_amounts_are_text() {
        let read = |text: &str| serde_json::from_str::<Line>(text);
        let spend = r#"{"type":"spend","service":"s","amount":"0.0025","currency":"USD"}"#;
        assert!(matches!(read(spend).unwrap(), Line::Spend { amount, .. } if amount == "0.0025"));
        assert!(read(&spend.replace("\"0.0025\"", "0.0025")).is_err());
        assert!(matches!(
            read(r#"{"type":"progress","fraction":0.5}"#).unwrap(),
            Line::Progress {}
        ));
        assert!(read(r#"{"type":"unheard"}"#).is_err());
    }
}
