//! What is checked while there is no authentication: a web page must not run tools on a developer's
//! machine (DESIGN 10).

use super::problem::Problem;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use std::net::IpAddr;
use std::sync::Arc;

/// Host names that requests may carry.
#[derive(Debug, Clone, Default)]
pub struct Hosts {
    allowed: Vec<String>,
}

impl Hosts {
    /// Loopback names, and these.
    pub fn new(allowed: &[String]) -> Hosts {
        Hosts { allowed: allowed.iter().map(|host| host.to_ascii_lowercase()).collect() }
    }

    /// Whether a host, with or without a port, is one of them.
    fn allows(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let name = without_port(&host);
        let is_loopback = name == "localhost"
            || name
                .trim_start_matches('[')
                .trim_end_matches(']')
                .parse::<IpAddr>()
                .is_ok_and(|address| address.is_loopback());
        is_loopback || self.allowed.iter().any(|allowed| allowed == name || *allowed == host)
    }

    /// Whether a page of that origin may ask.
    fn allows_origin(&self, origin: &str) -> bool {
        let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        host.is_some_and(|host| self.allows(host))
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        // Of `[::1]` the last colon is no port's.
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.ends_with(':') => {
            name
        }
        _ => host,
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &axum::http::HeaderName) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

fn judge(
    hosts: &Hosts,
    method: &Method,
    host: Option<&str>,
    headers: &HeaderMap,
) -> Result<(), Problem> {
    let forbidden = |code, detail: String| {
        Problem::new(
            StatusCode::FORBIDDEN,
            code,
            "This request is not served without authentication",
            detail,
            "ask through localhost, or list the name in server.allowed_hosts",
        )
    };
    if !host.is_some_and(|host| hosts.allows(host)) {
        return Err(forbidden(
            "host_forbidden",
            format!("the host {:?} is not allowed", host.unwrap_or_default()),
        ));
    }
    if let Some(origin) = text(headers, &ORIGIN).filter(|origin| !hosts.allows_origin(origin)) {
        return Err(forbidden("origin_forbidden", format!("the origin {origin:?} is not allowed")));
    }
    let is_json = text(headers, &CONTENT_TYPE).is_some_and(|media_type| {
        media_type
            .split(';')
            .next()
            .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
    });
    if *method == Method::POST && !is_json {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "media_type_unsupported",
            "The body must be JSON",
            "the content type is not application/json",
            "send the header content-type: application/json",
        ));
    }
    Ok(())
}

/// Refuses requests that a page of another site could make.
pub(crate) async fn check(
    State(hosts): State<Arc<Hosts>>,
    request: Request,
    next: Next,
) -> Response {
    let host = text(request.headers(), &HOST).or_else(|| request.uri().host());
    match judge(&hosts, request.method(), host, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_and_listed_ones_are_served() {
        let hosts = Hosts::new(&["fleet.internal".to_owned()]);
        for good in [
            "localhost",
            "localhost:8080",
            "127.0.0.1:1",
            "[::1]:8080",
            "[::1]",
            "LOCALHOST:1",
            "fleet.internal:80",
        ] {
            assert!(hosts.allows(good), "{good}");
        }
        for bad in [
            "evil.example",
            "localhost.evil.example:1",
            "127.0.0.1.nip.example:1",
            "",
            "10.0.0.1",
            "fleet.internal.evil",
        ] {
            assert!(!hosts.allows(bad), "{bad}");
        }
    }

    #[test]
    fn a_foreign_page_is_refused_and_so_is_a_form() {
        let hosts = Hosts::default();
        let with = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, "application/json; charset=utf-8".parse().unwrap());
            headers.insert(name, value.parse().unwrap());
            headers
        };
        let judge =
            |headers: &HeaderMap| judge(&hosts, &Method::POST, Some("localhost:1"), headers);
        assert!(judge(&with("origin", "http://localhost:3000")).is_ok());
        for origin in ["http://evil.example", "http://localhost.evil.example", "null"] {
            assert!(judge(&with("origin", origin)).is_err(), "{origin}");
        }
        for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx"] {
            assert!(judge(&with("content-type", kind)).is_err(), "{kind}");
        }
        assert!(super::judge(&hosts, &Method::GET, Some("localhost:1"), &HeaderMap::new()).is_ok());
    }
}
