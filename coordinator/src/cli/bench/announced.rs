//! Counts results that were announced for a call that had one: there must be none.

use futures::StreamExt as _;
use std::collections::HashSet;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use toolfleet_io::broker::{Broker, Error};

/// Listens to every stored result of the fleet.
pub(super) struct Announced {
    task: JoinHandle<u64>,
    stop: CancellationToken,
    disturbances: tokio::sync::watch::Receiver<u64>,
}

/// What was heard.
pub(super) struct Heard {
    /// Announcements of a call beyond its first.
    pub(super) second_results: u64,
    /// Whether announcements were missed.
    pub(super) has_gaps: bool,
}

impl Announced {
    /// Listens from now on.
    ///
    /// # Errors
    /// Where the broker is silent.
    pub(super) async fn listen(broker: &Broker) -> Result<Announced, Error> {
        let silent = |error: &dyn std::fmt::Display| Error::Silent(error.to_string());
        let subject = format!("{}.done.>", broker.prefix().as_str());
        let mut announcements =
            broker.client().subscribe(subject).await.map_err(|error| silent(&error))?;
        // Only what the server has taken note of is heard.
        broker.client().flush().await.map_err(|error| silent(&error))?;
        // From here on: the connection's own start is told as a disturbance too.
        let mut disturbances = broker.disturbances();
        disturbances.mark_unchanged();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let mut seen = Seen::default();
            loop {
                tokio::select! {
                    announcement = announcements.next() => match announcement {
                        Some(announcement) => seen.take(announcement.subject.as_str()),
                        None => return seen.second_results,
                    },
                    () = stopped.cancelled() => return seen.second_results,
                }
            }
        });
        Ok(Announced { task, stop, disturbances })
    }

    /// Ends, with what was heard.
    pub(super) async fn end(self) -> Heard {
        self.stop.cancel();
        let counted = self.task.await;
        let has_gaps = counted.is_err() || self.disturbances.has_changed().unwrap_or(true);
        Heard { second_results: counted.unwrap_or(0), has_gaps }
    }
}

/// Calls whose result was announced.
#[derive(Debug, Default)]
struct Seen {
    subjects: HashSet<Box<str>>,
    second_results: u64,
}

impl Seen {
    fn take(&mut self, subject: &str) {
        if !self.subjects.insert(subject.into()) {
            self.second_results += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_result_beyond_a_calls_first_counts() {
        let mut seen = Seen::default();
        for subject in ["a", "b", "a", "a"] {
            seen.take(subject);
        }
        assert_eq!(seen.second_results, 2);
    }
}
