//! `GET /v1/calls`: calls of all executions that are queued or run now (DESIGN 6, CONTRACT 12.4).

use super::executions::unavailable;
use super::problem::Problem;
use crate::service::Coordinator;
use crate::turn::TENANT;
use axum::Json;
use axum::extract::{Query, State};
use futures::StreamExt as _;
use serde::Deserialize;
use serde_json::{Value, json};
use toolfleet_io::broker::Error;
use toolfleet_proto::end::instant;
use toolfleet_proto::name::CallName;
use toolfleet_proto::topology::check_pool;
use toolfleet_proto::unit;
use toolfleet_proto::wire::Job;

/// Most entries of one page.
const PAGE_MAX: usize = 500;
/// Entries of a page where nothing is asked.
const PAGE_DEFAULT: usize = 100;
/// Most jobs that one page reads: a filter that fits nothing must not read a whole queue at once.
const READ_MAX: usize = 2_000;
/// Jobs that are read at the same time.
const AT_ONCE: usize = 16;
/// States that a call of this list can be in.
const STATES: [&str; 3] = ["queued", "running", "unknown"];

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Asked {
    state: Option<String>,
    tool: Option<String>,
    pool: Option<String>,
    older_than: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// What the list is narrowed to.
#[derive(Debug, Default)]
struct Filter {
    state: Option<String>,
    tool: Option<String>,
    older_than_ms: u64,
}

impl Filter {
    fn read(asked: &Asked) -> Result<Filter, Problem> {
        let state = asked.state.clone();
        if let Some(state) = state.as_deref().filter(|state| !STATES.contains(state)) {
            return Err(Problem::unprocessable(
                "state_invalid",
                format!("no call of this list is in the state {state:?}"),
                "use queued, running or unknown; calls that ended are listed by their execution",
            ));
        }
        if let Some(Err(error)) = asked.pool.as_deref().map(check_pool) {
            return Err(Problem::unprocessable(
                "pool_invalid",
                format!("pool: {error}"),
                "use a pool's name",
            ));
        }
        let older_than_ms = match asked.older_than.as_deref().map(unit::parse_duration_ms) {
            None => 0,
            Some(Ok(span_ms)) => span_ms,
            Some(Err(error)) => {
                let detail = format!("olderThan: {error}");
                return Err(Problem::unprocessable(
                    "older_than_invalid",
                    detail,
                    "use a span such as 90s",
                ));
            }
        };
        Ok(Filter { state, tool: asked.tool.clone(), older_than_ms })
    }

    fn takes(&self, item: &Value) -> bool {
        self.state.as_deref().is_none_or(|state| item["state"] == state)
            && self.tool.as_deref().is_none_or(|tool| item["toolName"] == tool)
            && item["ageMs"].as_u64().unwrap_or(0) >= self.older_than_ms
    }
}

/// One job of the queue: its subject, which is its place in the list, and its call.
type Place = (String, CallName);

/// Places after a cursor, sorted: the queue moves between two pages, so that only a name can tell where
/// the one before ended.
fn places(
    subjects: Vec<String>,
    cursor: Option<&str>,
    read: impl Fn(&str) -> Option<CallName>,
) -> Vec<Place> {
    let mut places: Vec<Place> = subjects
        .into_iter()
        .filter(|subject| cursor.is_none_or(|after| subject.as_str() > after))
        .filter_map(|subject| read(&subject).map(|name| (subject, name)))
        .filter(|(_, name)| name.tenant == TENANT)
        .collect();
    places.sort_unstable_by(|one, two| one.0.cmp(&two.0));
    places
}

/// `GET /v1/calls?state=&tool=&pool=&olderThan=&limit=&cursor=`. A page may have fewer items than its
/// limit; only the last one has no `nextCursor`.
pub(crate) async fn calls(
    State(coordinator): State<Coordinator>,
    Query(asked): Query<Asked>,
) -> Result<Json<Value>, Problem> {
    let filter = Filter::read(&asked)?;
    let limit = asked.limit.unwrap_or(PAGE_DEFAULT).clamp(1, PAGE_MAX);
    let prefix = coordinator.broker.prefix();
    let subjects = prefix.jobs_of_pool(asked.pool.as_deref().unwrap_or("*"));
    let subjects =
        coordinator.broker.subjects(&prefix.jobs_stream(), &subjects).await.map_err(unavailable)?;
    let places = places(subjects, asked.cursor.as_deref(), |subject| prefix.call_of_job(subject));
    let (mut items, mut last, total) = (Vec::new(), None, places.len());
    let mut read = 0;
    let mut entries = futures::stream::iter(places.into_iter().take(READ_MAX))
        .map(|(place, name)| {
            let coordinator = coordinator.clone();
            async move { (place, coordinator.queued_entry(&name).await) }
        })
        .buffered(AT_ONCE);
    while items.len() < limit {
        let Some((place, entry)) = entries.next().await else { break };
        items.extend(entry.map_err(unavailable)?.filter(|item| filter.takes(item)));
        last = Some(place);
        read += 1;
    }
    let next = last.filter(|_| read < total);
    Ok(Json(json!({"items": items, "nextCursor": next})))
}

impl Coordinator {
    /// The entry of a queued call; `None`: it has ended since its subject was listed.
    async fn queued_entry(&self, name: &CallName) -> Result<Option<Value>, Error> {
        let job = match self.find_job(name).await {
            Ok(Some(queued)) => queued.job,
            Ok(None) => return Ok(None),
            // A job of a newer build is listed by its name.
            Err(Error::Refused(_)) => Job::default(),
            Err(error) => return Err(error),
        };
        let state = match self.store.holder(name).await {
            Ok(Some(_)) => "running",
            Ok(None) => "queued",
            Err(_) => "unknown",
        };
        Ok(Some(entry(name, &job, state, self.clock.now_ms())))
    }
}

fn entry(name: &CallName, job: &Job, state: &str, now_ms: i64) -> Value {
    let submitted_at_ms = job.clocks.as_ref().map(|clocks| clocks.submitted_at_ms);
    json!({
        "executionId": name.execution,
        "call": name.call,
        "idempotencyKey": name.idempotency_key(),
        "toolName": job.tool,
        "pool": job.pool,
        "state": state,
        "submittedAt": submitted_at_ms.map(instant),
        "ageMs": submitted_at_ms.map(|submitted_at_ms| now_ms.saturating_sub(submitted_at_ms).max(0)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolfleet_proto::topology::Prefix;
    use toolfleet_proto::wire::Clocks;

    fn name(execution: &str) -> CallName {
        CallName::of_turn(TENANT, execution, "main", "t", "c")
    }

    #[test]
    fn places_are_sorted_and_begin_after_the_cursor() {
        let prefix = Prefix::parse("tf.v1").unwrap();
        let subjects = || ["b", "c", "a"].map(|id| prefix.job("default", &name(id))).to_vec();
        let read = |subject: &str| prefix.call_of_job(subject);
        let all = places(subjects(), None, read);
        let ids: Vec<&str> = all.iter().map(|(_, name)| name.execution.as_str()).collect();
        assert_eq!(ids, ["a", "b", "c"]);
        let rest = places(subjects(), Some(&all[0].0), read);
        assert_eq!(rest, all[1..]);
        // The cursor's own job may be gone.
        assert_eq!(places(subjects(), Some("tf.v1.job.default.0.zzz"), read), []);
    }

    #[test]
    fn other_tenants_and_other_subjects_are_not_listed() {
        let prefix = Prefix::parse("tf.v1").unwrap();
        let other = CallName { tenant: "other".into(), ..name("a") };
        let subjects = vec![prefix.job("default", &other), prefix.result(&name("a"))];
        assert_eq!(places(subjects, None, |subject| prefix.call_of_job(subject)), []);
    }

    #[test]
    fn an_entry_says_how_old_the_call_is_and_is_filtered_by_it() {
        let clocks = Clocks { submitted_at_ms: 1_000, ..Clocks::default() };
        let job = Job { tool: "echo".into(), clocks: Some(clocks), ..Job::default() };
        let item = entry(&name("e:1"), &job, "queued", 3_500);
        assert_eq!(
            (item["ageMs"].clone(), item["submittedAt"].clone()),
            (json!(2_500), json!("1970-01-01T00:00:01Z"))
        );
        assert_eq!(item["idempotencyKey"], "e%3A1:main:t:c");
        let takes = |asked: Asked| Filter::read(&asked).unwrap().takes(&item);
        assert!(takes(Asked {
            older_than: Some("2s".into()),
            tool: Some("echo".into()),
            ..Asked::default()
        }));
        assert!(!takes(Asked { older_than: Some("3s".into()), ..Asked::default() }));
        assert!(!takes(Asked { state: Some("running".into()), ..Asked::default() }));
        assert!(!takes(Asked { tool: Some("other".into()), ..Asked::default() }));
    }

    #[test]
    fn filters_that_cannot_be_are_refused() {
        let refused = |asked: Asked| Filter::read(&asked).is_err();
        assert!(refused(Asked { state: Some("done".into()), ..Asked::default() }));
        assert!(refused(Asked { pool: Some("a.b".into()), ..Asked::default() }));
        assert!(refused(Asked { older_than: Some("soon".into()), ..Asked::default() }));
    }
}
