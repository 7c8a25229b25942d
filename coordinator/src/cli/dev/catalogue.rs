//! Whether the tools can be called: asked of the coordinator, as any client would.

use serde::Deserialize;
use std::collections::BTreeSet;
use std::time::Duration;

const POLL: Duration = Duration::from_millis(50);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Built into every worker.
pub(super) const BUILT_IN: &str = "bench-echo";

#[derive(Deserialize)]
struct Listing {
    tools: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    name: String,
}

/// Asks `http` until it lists every name of `wanted`; then all that it lists. After `timeout`: what is
/// still missing and what the last answer was, in words.
pub(super) async fn until_listed(
    http: &str,
    wanted: &BTreeSet<String>,
    timeout: Duration,
) -> Result<BTreeSet<String>, String> {
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(REQUEST_TIMEOUT)
        .build()
        .map_err(|error| format!("could not make an http client: {error}"))?;
    let deadline = tokio::time::Instant::now() + timeout;
    loop {
        let answer = listed(&client, http).await;
        let missing = match &answer {
            Ok(names) if wanted.is_subset(names) => return answer,
            Ok(names) => {
                let missing: Vec<&str> = wanted.difference(names).map(String::as_str).collect();
                format!("not listed: {}", missing.join(", "))
            }
            Err(error) => error.clone(),
        };
        if tokio::time::Instant::now() >= deadline {
            let seconds = timeout.as_secs();
            return Err(format!("not every tool can be called after {seconds} s: {missing}"));
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn listed(client: &reqwest::Client, http: &str) -> Result<BTreeSet<String>, String> {
    let url = format!("{http}/v1/tools");
    let told = |error: reqwest::Error| format!("{url} does not answer: {error}");
    let response = client.get(&url).send().await.map_err(told)?;
    let status = response.status();
    let body = response.bytes().await.map_err(told)?;
    if !status.is_success() {
        return Err(format!("{url} answers {status}"));
    }
    names(&body).map_err(|error| format!("{url} answers no list of tools: {error}"))
}

fn names(body: &[u8]) -> serde_json::Result<BTreeSet<String>> {
    let listing: Listing = serde_json::from_slice(body)?;
    Ok(listing.tools.into_iter().map(|entry| entry.name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_from_a_listing_and_nothing_else() {
        let body = br#"{"tools": [{"name": "b", "pool": "default"}, {"name": "a"}]}"#;
        assert_eq!(names(body).unwrap().into_iter().collect::<Vec<_>>(), ["a", "b"]);
        assert!(names(br#"{"code": "unavailable"}"#).is_err());
    }
}
