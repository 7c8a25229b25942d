//! What an execution spent: records, each counted once, and their sums (CONTRACT 7.1, 7.2).

use serde_json::{Value, json};
use std::collections::BTreeMap;
use toolfleet_proto::end::instant;
use toolfleet_proto::money::describe_nano;
use toolfleet_proto::wire::SpendRecord;

/// One record as callers read it. Amounts are decimal text: money is never a float.
pub fn entry(record: &SpendRecord) -> Value {
    json!({
        "call": record.name.as_ref().map(|name| name.call.clone()).unwrap_or_default(),
        "attemptId": record.attempt_id,
        "toolName": record.tool,
        "service": record.service,
        "amount": describe_nano(record.amount_nano),
        "currency": record.currency,
        "quantity": record.quantity,
        "unit": record.unit,
        "at": instant(record.at_ms),
    })
}

/// Sums by tool, service and currency, exact. A sum that does not fit is told as an error, not wrapped.
pub fn sums(records: &[SpendRecord]) -> Result<Vec<Value>, String> {
    let mut sums: BTreeMap<(&str, &str, &str), (i64, u64)> = BTreeMap::new();
    for record in records {
        let key = (record.tool.as_str(), record.service.as_str(), record.currency.as_str());
        let (amount, count) = sums.entry(key).or_default();
        *amount = amount.checked_add(record.amount_nano).ok_or_else(|| {
            format!("the sum of {} at {} does not fit", record.tool, record.service)
        })?;
        *count += 1;
    }
    let sum = |((tool, service, currency), (amount, count)): ((&str, &str, &str), (i64, u64))| {
        json!({
            "toolName": tool,
            "service": service,
            "currency": currency,
            "amount": describe_nano(amount),
            "records": count,
        })
    };
    Ok(sums.into_iter().map(sum).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(tool: &str, amount_nano: i64) -> SpendRecord {
        SpendRecord {
            tool: tool.into(),
            service: "search".into(),
            currency: "USD".into(),
            amount_nano,
            ..SpendRecord::default()
        }
    }

    #[test]
    fn sums_are_exact_and_apart_by_tool() {
        let records = [record("a", 100_000_000), record("a", 200_000_000), record("b", 1)];
        let sums = sums(&records).unwrap();
        assert_eq!(
            (sums[0]["amount"].as_str(), sums[0]["records"].as_u64()),
            (Some("0.3"), Some(2))
        );
        assert_eq!(sums[1]["amount"], "0.000000001");
        assert_eq!(entry(&records[2])["amount"], "0.000000001");
    }

    #[test]
    fn a_sum_that_does_not_fit_is_told() {
        assert!(sums(&[record("a", i64::MAX), record("a", 1)]).is_err());
    }
}
