//! Whether what is taken in will find room when it ends (DESIGN 10, "RESULTS full"): admission stops while a
//! result could not be stored, not when the first one is refused.

use crate::core::room::{Fill, fill};
use crate::service::Coordinator;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use toolfleet_io::broker::Error;

/// How often the streams are looked at.
const LOOK: Duration = Duration::from_secs(2);

/// What the last look saw.
#[derive(Debug, Default)]
pub(crate) struct Room {
    is_short_of_results: AtomicBool,
    is_short_of_starts: AtomicBool,
}

impl Room {
    /// Whether a new call must not be taken in now. `is_write`: it takes a start record too.
    pub(crate) fn is_short(&self, is_write: bool) -> bool {
        self.is_short_of_results.load(Ordering::Relaxed)
            || (is_write && self.is_short_of_starts.load(Ordering::Relaxed))
    }
}

impl Coordinator {
    /// Looks at the streams for ever. While the broker is silent the last look holds.
    pub(crate) async fn watch_room(self) {
        let prefix = self.broker.prefix().clone();
        loop {
            for (stream, word, is_short) in [
                (prefix.results_stream(), "results", &self.room.is_short_of_results),
                (prefix.starts_stream(), "starts", &self.room.is_short_of_starts),
            ] {
                match self.fill_of(&stream).await {
                    Ok(found) => {
                        self.measures.stream_fill(word, found.of_room);
                        if is_short.swap(found.is_short, Ordering::Relaxed) != found.is_short {
                            let of_room = found.of_room;
                            if found.is_short {
                                tracing::error!(
                                    stream,
                                    of_room,
                                    "no calls are taken in: the stream is nearly full"
                                );
                            } else {
                                tracing::info!(stream, of_room, "the stream has room again");
                            }
                        }
                    }
                    Err(error) => tracing::debug!(stream, %error, "the stream was not looked at"),
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn fill_of(&self, stream: &str) -> Result<Fill, Error> {
        let silent = |error: &dyn std::fmt::Display| Error::Silent(error.to_string());
        let stream =
            self.broker.jetstream().get_stream(stream).await.map_err(|error| silent(&error))?;
        let info = stream.cached_info();
        let (config, state) = (&info.config, &info.state);
        Ok(fill(state.bytes, config.max_bytes, state.messages, config.max_messages))
    }
}
