//! Signals of a process: the first asks for a drain, the second ends it at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exit code of a process that a second signal ended.
const EXIT_AT_ONCE: i32 = 130;

/// Installs handlers for SIGTERM and SIGINT. The token fires with the first; a second one exits the
/// process. First thing in a process: a PID 1 without handlers ignores SIGTERM.
///
/// # Errors
/// Where the runtime has no signal driver.
pub fn on_first_signal() -> std::io::Result<CancellationToken> {
    let token = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let first = token.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if first.is_cancelled() {
                tracing::warn!("second signal, ending at once");
                std::process::exit(EXIT_AT_ONCE);
            }
            first.cancel();
        }
    });
    Ok(token)
}
