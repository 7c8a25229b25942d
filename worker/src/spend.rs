//! What a running tool spends, on its way to the SPEND stream (CONTRACT 7.1, 7.2).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::mpsc;
use toolfleet_proto::money;
use toolfleet_proto::wire::SpendRecord;

/// Records of one attempt that may wait for the broker at the same time.
const WAITING_MAX: usize = 256;

/// One amount that a tool spent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Amount {
    /// Who is paid, e.g. `search-api`.
    pub service: String,
    /// Decimal text, e.g. `0.0025`.
    pub amount: String,
    /// Currency, e.g. `USD`.
    pub currency: String,
    /// Decimal text, e.g. `1200`; may be empty.
    pub quantity: String,
    /// What the quantity counts, e.g. `tokens`; may be empty.
    pub unit: String,
}

/// Why an amount was not recorded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The amount does not read.
    #[error("the amount {amount:?} does not read: {reason}")]
    Amount {
        /// What was given.
        amount: String,
        /// Why it is refused.
        reason: String,
    },
    /// The attempt is over.
    #[error("the attempt is over")]
    Over,
}

/// The recorder of one attempt. Clones share it.
#[derive(Clone, Debug)]
pub struct Spend {
    records: mpsc::Sender<SpendRecord>,
    next: Arc<AtomicU32>,
    base: Arc<SpendRecord>,
}

impl Spend {
    /// A recorder and the queue that it fills. `base` holds what every record of the attempt shares.
    pub(crate) fn new(base: SpendRecord) -> (Spend, mpsc::Receiver<SpendRecord>) {
        let (records, queue) = mpsc::channel(WAITING_MAX);
        (Spend { records, next: Arc::default(), base: Arc::new(base) }, queue)
    }

    /// Records an amount. It counts once, whatever is redelivered, and also when the call fails.
    ///
    /// Waits while 256 records of this attempt wait for the broker. Cancel safe: either it is handed
    /// over or not.
    pub async fn record(&self, amount: Amount) -> Result<(), Error> {
        let amount_nano = money::parse_nano(&amount.amount).map_err(|error| Error::Amount {
            amount: amount.amount.clone(),
            reason: error.to_string(),
        })?;
        let slot = self.records.reserve().await.map_err(|_| Error::Over)?;
        slot.send(SpendRecord {
            n: self.next.fetch_add(1, Ordering::Relaxed),
            service: amount.service,
            amount_nano,
            currency: amount.currency,
            quantity: amount.quantity,
            unit: amount.unit,
            ..(*self.base).clone()
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(text: &str) -> Amount {
        Amount {
            service: "search".into(),
            amount: text.into(),
            currency: "USD".into(),
            quantity: String::new(),
            unit: String::new(),
        }
    }

    #[tokio::test]
    async fn records_are_exact_and_numbered() {
        let (spend, mut queue) =
            Spend::new(SpendRecord { tool: "t".into(), ..SpendRecord::default() });
        spend.record(amount("0.0025")).await.unwrap();
        spend.clone().record(amount("1")).await.unwrap();
        let (first, second) = (queue.recv().await.unwrap(), queue.recv().await.unwrap());
        assert_eq!((first.n, first.amount_nano, first.tool.as_str()), (0, 2_500_000, "t"));
        assert_eq!((second.n, second.amount_nano), (1, 1_000_000_000));
    }

    #[tokio::test]
    async fn what_does_not_read_is_refused_and_nothing_is_recorded() {
        let (spend, mut queue) = Spend::new(SpendRecord::default());
        assert!(matches!(spend.record(amount("a lot")).await, Err(Error::Amount { .. })));
        assert!(queue.try_recv().is_err());
        drop(queue);
        assert!(matches!(spend.record(amount("1")).await, Err(Error::Over)));
    }
}
