//! Money: every record once, of every attempt.

use crate::asked::{SOON, fleet, nap, ok};
use prost::Message as _;
use std::collections::BTreeSet;
use toolfleet_proto::wire::SpendRecord;
use toolfleet_tests::{Fleet, Ledger, messages, subjects, until};

const AMOUNTS_NANO: [i64; 3] = [2_500_000, 1_000_000_001, 12_000_000_000];

async fn records(fleet: &Fleet) -> anyhow::Result<Vec<SpendRecord>> {
    let stream = fleet.broker().prefix().spend_stream();
    let found = messages(fleet.broker(), &stream, ">").await?;
    found.iter().map(|message| Ok(SpendRecord::decode(message.payload.clone())?)).collect()
}

/// The records of one attempt: the three amounts, in order, each once.
fn check_attempt(records: &[SpendRecord], attempt_id: &str) {
    let mut own: Vec<&SpendRecord> =
        records.iter().filter(|record| record.attempt_id == attempt_id).collect();
    own.sort_by_key(|record| record.n);
    let amounts: Vec<i64> = own.iter().map(|record| record.amount_nano).collect();
    assert_eq!(amounts, AMOUNTS_NANO);
    for record in own {
        assert_eq!((record.service.as_str(), record.currency.as_str()), ("search", "USD"));
        assert_eq!((record.quantity.as_str(), record.unit.as_str()), ("3", "queries"));
        assert_eq!(record.tool, "spender");
        assert_eq!(record.name.as_ref().map(|name| name.execution.as_str()), Some("money"));
    }
}

async fn spend(fleet: &Fleet, ledger: &Ledger, ms: u64) -> anyhow::Result<toolfleet_tests::Answer> {
    fleet.http(0)?.call_as("spender", "money", "c", nap(ms, ledger)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_records_are_three_messages_of_exact_amounts() {
    let fleet = fleet().start().await.unwrap();
    let ledger = fleet.ledger("spend");
    ok(&spend(&fleet, &ledger, 0).await.unwrap());
    // A result is stored after its records were acknowledged, so they are there now.
    let found = records(&fleet).await.unwrap();
    assert_eq!(found.len(), 3);
    check_attempt(&found, &found[0].attempt_id);

    ok(&spend(&fleet, &ledger, 0).await.unwrap());
    assert_eq!(records(&fleet).await.unwrap().len(), 3, "a replay spends nothing");
    let stream = fleet.broker().prefix().spend_stream();
    let counts = subjects(fleet.broker(), &stream, ">").await.unwrap();
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_lost_attempt_spent_counts_as_well() {
    let mut fleet = fleet().start().await.unwrap();
    let ledger = fleet.ledger("spend");
    let http = fleet.http(0).unwrap();
    let input = nap(4_000, &ledger);
    let call = tokio::spawn(async move { http.call_as("spender", "money", "c", input).await });
    ledger.started(1, SOON).await.unwrap();
    let stream = fleet.broker().prefix().spend_stream();
    until("the first attempt's records are stored", SOON, async || {
        (subjects(fleet.broker(), &stream, ">").await.ok()?.len() == 3).then_some(())
    })
    .await
    .unwrap();
    fleet.workers[0].restart().await.unwrap();
    let answer = call.await.unwrap().unwrap();
    assert_eq!(ok(&answer)["attempts"], 2);

    let found = records(&fleet).await.unwrap();
    assert_eq!(found.len(), 6);
    let attempts: BTreeSet<&str> = found.iter().map(|r| r.attempt_id.as_str()).collect();
    assert_eq!(attempts.len(), 2);
    for attempt_id in attempts {
        check_attempt(&found, attempt_id);
    }
    let total: i64 = found.iter().map(|record| record.amount_nano).sum();
    assert_eq!(total, 2 * AMOUNTS_NANO.iter().sum::<i64>());
}
