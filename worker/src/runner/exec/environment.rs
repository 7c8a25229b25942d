//! The environment of a tool process: a pure function of its call.

use crate::context::CallContext;

/// The search path of every tool, whatever the worker's own is.
pub(super) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The variables of a tool process but for those that name places on this machine.
///
/// Secrets come first, so that a later entry of the same name wins: a secret cannot take the place
/// of a variable of ours. What is optional (`TOOLFLEET_AS_OF`, the trace context) is absent where
/// it is empty; everything else is always there.
pub(super) fn variables(
    context: &CallContext,
    secrets: &[(String, String)],
) -> Vec<(String, String)> {
    let mut variables = secrets.to_vec();
    let mut set = |name: &str, value: &str| variables.push((name.to_owned(), value.to_owned()));
    set("PATH", PATH);
    set("LANG", "C.UTF-8");
    set("TOOLFLEET_EXECUTION_ID", &context.execution_id);
    set("TOOLFLEET_THREAD_ID", &context.thread_id);
    set("TOOLFLEET_OWNER_ID", &context.owner_id);
    set("TOOLFLEET_TENANT", &context.tenant);
    set("TOOLFLEET_AGENT", &context.agent);
    set("TOOLFLEET_TURN", &context.turn);
    set("TOOLFLEET_CALL_ID", &context.call_id);
    set("TOOLFLEET_IDEMPOTENCY_KEY", &context.idempotency_key);
    set("TOOLFLEET_ATTEMPT", &context.attempt.to_string());
    set("TOOLFLEET_FENCE", &context.fence.to_string());
    set("TOOLFLEET_DEADLINE", &context.deadline);
    set("TOOLFLEET_TIMEOUT_MS", &context.timeout_ms.to_string());
    set("TOOLFLEET_DRY_RUN", if context.dry_run { "true" } else { "false" });
    set("TOOLFLEET_PHASE", &context.phase);
    let optional = [
        ("TOOLFLEET_AS_OF", &context.as_of),
        ("TRACEPARENT", &context.traceparent),
        ("TRACESTATE", &context.tracestate),
        ("BAGGAGE", &context.baggage),
    ];
    for (name, value) in optional {
        if !value.is_empty() {
            set(name, value);
        }
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn map(context: &CallContext, secrets: &[(String, String)]) -> BTreeMap<String, String> {
        variables(context, secrets).into_iter().collect()
    }

    #[test]
    fn every_field_has_its_variable() {
        let context = CallContext {
            tenant: "acme".into(),
            execution_id: "e1".into(),
            thread_id: "th".into(),
            owner_id: "ow".into(),
            agent: "support".into(),
            turn: "t-1".into(),
            call_id: "call_1".into(),
            idempotency_key: "e1:support:t-1:call_1".into(),
            attempt: 2,
            fence: u64::MAX,
            deadline: "2026-01-02T03:04:05Z".into(),
            timeout_ms: 1_500,
            phase: "execute".into(),
            dry_run: true,
            as_of: "2025-01-01T00:00:00Z".into(),
            traceparent: "00-a-b-01".into(),
            tracestate: "v=1".into(),
            baggage: "k=v".into(),
            ..CallContext::default()
        };
        let expected = [
            ("BAGGAGE", "k=v"),
            ("LANG", "C.UTF-8"),
            ("PATH", "/usr/local/bin:/usr/bin:/bin"),
            ("TOOLFLEET_AGENT", "support"),
            ("TOOLFLEET_AS_OF", "2025-01-01T00:00:00Z"),
            ("TOOLFLEET_ATTEMPT", "2"),
            ("TOOLFLEET_CALL_ID", "call_1"),
            ("TOOLFLEET_DEADLINE", "2026-01-02T03:04:05Z"),
            ("TOOLFLEET_DRY_RUN", "true"),
            ("TOOLFLEET_EXECUTION_ID", "e1"),
            ("TOOLFLEET_FENCE", "18446744073709551615"),
            ("TOOLFLEET_IDEMPOTENCY_KEY", "e1:support:t-1:call_1"),
            ("TOOLFLEET_OWNER_ID", "ow"),
            ("TOOLFLEET_PHASE", "execute"),
            ("TOOLFLEET_TENANT", "acme"),
            ("TOOLFLEET_THREAD_ID", "th"),
            ("TOOLFLEET_TIMEOUT_MS", "1500"),
            ("TOOLFLEET_TURN", "t-1"),
            ("TRACEPARENT", "00-a-b-01"),
            ("TRACESTATE", "v=1"),
        ];
        let expected: BTreeMap<_, _> =
            expected.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        assert_eq!(map(&context, &[]), expected);
    }

    #[test]
    fn what_is_optional_is_absent_where_it_is_empty() {
        let variables = map(&CallContext::default(), &[]);
        for name in ["TOOLFLEET_AS_OF", "TRACEPARENT", "TRACESTATE", "BAGGAGE"] {
            assert!(!variables.contains_key(name), "{name}");
        }
        assert_eq!(variables["TOOLFLEET_THREAD_ID"], "");
        assert_eq!(variables["TOOLFLEET_DRY_RUN"], "false");
    }

    #[test]
    fn a_secret_is_given_by_its_name_and_replaces_nothing_of_ours() {
        let secrets =
            [("ISSUES_TOKEN".into(), "s3cret".into()), ("PATH".into(), "/tmp/evil".into())];
        let variables = map(&CallContext::default(), &secrets);
        assert_eq!(variables["ISSUES_TOKEN"], "s3cret");
        assert_eq!(variables["PATH"], PATH);
    }
}
