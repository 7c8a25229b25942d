//! Cancel signals: one subscription for this worker, one for all (DESIGN 4.3).

use crate::running::Running;
use futures::StreamExt as _;
use toolfleet_io::broker::{Broker, Error};
use toolfleet_proto::name::CallName;
use toolfleet_proto::wire;

/// Subscribes to the signals of this worker. It is sure when this returns: a request on the same
/// connection was answered after the subscriptions went out.
///
/// # Errors
/// Where the broker does not answer.
pub async fn listen(broker: &Broker, worker: &str, running: Running) -> Result<(), Error> {
    let silent = |error: &dyn std::fmt::Display| Error::Silent(error.to_string());
    let client = broker.client();
    let own = client
        .subscribe(broker.prefix().cancel_worker(worker))
        .await
        .map_err(|error| silent(&error))?;
    let all =
        client.subscribe(broker.prefix().cancel_all()).await.map_err(|error| silent(&error))?;
    broker.jetstream().query_account().await.map_err(|error| silent(&error))?;
    let mut signals = futures::stream::select(own, all);
    tokio::spawn(async move {
        while let Some(message) = signals.next().await {
            match wire::read_cancel(&message.payload) {
                Ok(signal) => {
                    let Some(name) = signal.name.as_ref().map(CallName::from) else { continue };
                    if running.cancel(&name, &signal.reason, signal.requested_at_ms) {
                        tracing::info!(call = %name, "cancelled by signal");
                    }
                }
                Err(error) => tracing::warn!(%error, "a cancel signal does not read"),
            }
        }
    });
    Ok(())
}
