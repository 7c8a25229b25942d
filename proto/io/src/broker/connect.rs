//! Getting to a broker, and back to it.

use super::{CONNECT_PATIENCE, Error, SERVER_MIN};
use crate::config::Nats;
use async_nats::{Event, ServerAddr};
use opentelemetry::metrics::Counter;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// A server that shuts down is left within this time.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);

pub(super) fn authenticate(
    options: async_nats::ConnectOptions,
    config: &Nats,
) -> Result<async_nats::ConnectOptions, Error> {
    let mut options = options;
    // The client does not look for them in the address by itself.
    let first = addresses(config).into_iter().find_map(|url| url.parse::<ServerAddr>().ok());
    if let Some((user, password)) = first
        .and_then(|address| Some((address.username()?.to_owned(), address.password()?.to_owned())))
    {
        options = options.user_and_password(user, password);
    }
    if let Some(path) = &config.ca_file {
        options = options.add_root_certificates(path.clone());
    }
    if let Some(path) = &config.creds_file {
        let unreadable = |error: std::io::Error| Error::File {
            what: "nats.creds_file",
            path: path.display().to_string(),
            reason: error.to_string(),
        };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        options = options.credentials(&text).map_err(unreadable)?;
    }
    Ok(options)
}

/// The broker's addresses.
pub(super) fn addresses(config: &Nats) -> Vec<String> {
    config.url.split(',').map(|url| url.trim().to_owned()).collect()
}

/// Addresses without what stands between `://` and `@`.
pub fn without_password(urls: &str) -> String {
    let strip = |url: &str| match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    };
    // Of one URL with several hosts, a comma may stand in the password.
    if urls.matches("://").count() == 1 {
        return strip(urls);
    }
    urls.split(',').map(strip).collect::<Vec<_>>().join(",")
}

pub(super) async fn connect_patiently(
    config: &Nats,
    options: impl Fn() -> Result<async_nats::ConnectOptions, Error>,
) -> Result<async_nats::Client, Error> {
    let (addresses, shown) = (addresses(config), without_password(&config.url));
    let until = tokio::time::Instant::now() + CONNECT_PATIENCE;
    let mut tries = 0_u32;
    loop {
        tries += 1;
        match options()?.connect(addresses.clone()).await {
            Ok(client) => return Ok(client),
            Err(error) if tokio::time::Instant::now() >= until => {
                return Err(Error::Unreachable { url: shown, reason: error.to_string() });
            }
            Err(error) if tries % 10 == 1 => {
                tracing::warn!(url = shown, %error, "nats is not reachable yet");
            }
            Err(_) => {}
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Waits before a connect: full jitter, so that a fleet does not come back as one.
pub(super) fn reconnect_delay(attempts: usize) -> Duration {
    full_jitter(reconnect_ceiling(attempts), uuid::Uuid::new_v4().as_u64_pair().1)
}

/// The longest wait before a connect: doubles from 100 ms at the first try to 4 s.
fn reconnect_ceiling(attempts: usize) -> Duration {
    Duration::from_millis((50_u64 << attempts.min(7)).min(4_000))
}

/// Somewhere from nothing to just below the ceiling, by a number drawn from all of `u64`.
fn full_jitter(ceiling: Duration, draw: u64) -> Duration {
    let ceiling_us = u64::try_from(ceiling.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(draw % ceiling_us.max(1))
}

/// What is noted of a connection's events.
#[derive(Clone)]
pub(super) struct Notes {
    pub(super) reconnected: watch::Sender<u64>,
    pub(super) disturbed: watch::Sender<u64>,
    /// The server is leaving: it has said that it shuts down.
    pub(super) leaving: Arc<Notify>,
    pub(super) counted: Counter<u64>,
}

impl Notes {
    pub(super) fn take(&self, event: &Event) {
        match event {
            Event::Connected => {
                tracing::info!("nats is connected");
                // The first connect is an event too.
                if *self.reconnected.borrow() > 0 {
                    self.counted.add(1, &[]);
                }
                self.reconnected.send_modify(|count| *count += 1);
                self.disturbed.send_modify(|count| *count += 1);
            }
            Event::SlowConsumer(subscription) => {
                tracing::warn!(subscription, "a slow subscription dropped messages");
                self.disturbed.send_modify(|count| *count += 1);
            }
            Event::Disconnected => tracing::warn!("nats is disconnected"),
            Event::LameDuckMode => {
                tracing::info!("nats is going to shut down");
                self.leaving.notify_one();
            }
            other => tracing::info!(event = %other, "nats says"),
        }
    }
}

/// Moves to another server of the cluster when this one says that it is going to shut down, each
/// client at a moment of its own, before it is thrown out in the middle of something. Where no other
/// server is known, staying to the end is better.
pub(super) async fn leave_lame_ducks(client: async_nats::Client, leaving: Arc<Notify>) {
    loop {
        leaving.notified().await;
        let servers = client.server_pool().await.map_or(0, |servers| servers.len());
        if servers < 2 {
            continue;
        }
        tokio::time::sleep(full_jitter(LEAVE_WITHIN, uuid::Uuid::new_v4().as_u64_pair().1)).await;
        if let Err(error) = client.force_reconnect().await {
            tracing::debug!(%error, "the connection is closed");
            return;
        }
    }
}

/// Whether a version such as `2.12.1-beta.3` is new enough.
pub fn is_supported(version: &str) -> bool {
    let mut numbers = version.trim_start_matches('v').split(['.', '-']).map(str::parse::<u64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= SERVER_MIN,
        _ => false,
    }
}

pub(super) fn check_version(url: &str, version: &str) -> Result<(), Error> {
    if is_supported(version) {
        Ok(())
    } else {
        Err(Error::TooOld { url: url.to_owned(), version: version.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_below_the_oldest_are_refused_with_what_to_install() {
        for good in ["2.12.0", "2.15.1", "v2.12.3", "3.0.0-beta.1"] {
            assert!(is_supported(good), "{good}");
        }
        for bad in ["2.9.10", "2.11.9", "", "nightly"] {
            assert!(!is_supported(bad), "{bad}");
        }
        let text = check_version("nats://x", "2.9.10").unwrap_err().to_string();
        assert!(
            text.contains("2.9.10") && text.contains("2.12") && text.contains("install"),
            "{text}"
        );
    }

    #[test]
    fn a_password_never_reaches_an_error_text() {
        assert_eq!(without_password("nats://u:secret@a:1,nats://b:2"), "nats://a:1,nats://b:2");
        assert_eq!(without_password("redis://host:6379"), "redis://host:6379");
    }

    #[test]
    fn reconnects_spread_out_over_all_the_time_below_their_ceiling() {
        let ceilings: Vec<u128> =
            (1..9).map(|attempts| reconnect_ceiling(attempts).as_millis()).collect();
        assert_eq!(ceilings, [100, 200, 400, 800, 1_600, 3_200, 4_000, 4_000]);
        assert_eq!(reconnect_ceiling(usize::MAX).as_millis(), 4_000);
        let ceiling = reconnect_ceiling(3);
        assert_eq!(full_jitter(ceiling, 0), Duration::ZERO, "full: from nothing on");
        assert_eq!(full_jitter(ceiling, 399_999), Duration::from_micros(399_999));
        assert_eq!(full_jitter(ceiling, 400_000), Duration::ZERO);
        assert!(full_jitter(ceiling, u64::MAX) < ceiling);
        assert_eq!(full_jitter(Duration::ZERO, 7), Duration::ZERO);
        for attempts in 0..40 {
            assert!(reconnect_delay(attempts) < reconnect_ceiling(attempts));
        }
    }
}
