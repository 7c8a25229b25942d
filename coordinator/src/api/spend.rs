//! `GET /v1/spend?execution=`: what an execution spent.

use super::executions::unavailable;
use super::problem::Problem;
use crate::core::spend::{entry, sums};
use crate::service::Coordinator;
use crate::turn::TENANT;
use axum::Json;
use axum::extract::{Query, State};
use prost::Message as _;
use serde::Deserialize;
use serde_json::{Value, json};
use toolfleet_io::broker::Error;
use toolfleet_proto::name::check_id;
use toolfleet_proto::wire::SpendRecord;

/// Most records that one answer counts.
const RECORDS_MAX: usize = 10_000;

#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    execution: Option<String>,
}

pub(crate) async fn read(
    State(coordinator): State<Coordinator>,
    Query(asked): Query<Asked>,
) -> Result<Json<Value>, Problem> {
    let Some(execution) = asked.execution else {
        return Err(Problem::unprocessable(
            "execution_missing",
            "spend is told by execution",
            "ask with ?execution=ID",
        ));
    };
    check_id("execution", &execution)?;
    let prefix = coordinator.broker.prefix();
    let (stream, filter) = (prefix.spend_stream(), prefix.spend_of_execution(TENANT, &execution));
    let subjects = coordinator.broker.subjects(&stream, &filter).await.map_err(unavailable)?;
    if subjects.len() > RECORDS_MAX {
        return Err(Problem::unprocessable(
            "too_many_records",
            format!(
                "the execution has {} records, the limit of one answer is {RECORDS_MAX}",
                subjects.len()
            ),
            "read the stream of spend records itself",
        ));
    }
    let mut records = Vec::with_capacity(subjects.len());
    for subject in subjects {
        let Some(message) =
            coordinator.broker.read_last(&stream, &subject).await.map_err(unavailable)?
        else {
            continue;
        };
        let record = SpendRecord::decode(message.payload.as_ref())
            .map_err(|error| unavailable(Error::Refused(error.to_string())))?;
        records.push(record);
    }
    records.sort_by_key(|record| (record.at_ms, record.n));
    let sums = sums(&records).map_err(|error| unavailable(Error::Refused(error)))?;
    let items: Vec<Value> = records.iter().map(entry).collect();
    Ok(Json(json!({"executionId": execution, "sums": sums, "items": items})))
}
