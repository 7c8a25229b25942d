//! Admission of one call: from what the model sent to a job, or to a refusal that the model can read
//! (CONTRACT 2.4, 3.3, 3.4, 3.12).

use super::catalog::{Offer, Offered, Why};
use super::execution::Execution;
use super::expressions::Judged;
use super::formats::ModelCall;
use super::mode::Mode;
use std::collections::BTreeMap;
use toolfleet_proto::arguments;
use toolfleet_proto::code::Code;
use toolfleet_proto::json::Json;
use toolfleet_proto::lock;
use toolfleet_proto::name::CallName;
use toolfleet_proto::near;
use toolfleet_proto::time_args;
use toolfleet_proto::wire::{self, Caller, Clocks, Job, LANE, SCHEMA, TraceContext};

/// Why a call is not admitted. Nothing was queued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The code.
    pub code: Code,
    /// What the model reads.
    pub text: String,
}

/// Arguments that fit the tool.
#[derive(Debug, Clone)]
pub struct Arguments {
    /// What the tool gets.
    pub admitted: String,
    /// What the caller sent, where it differs.
    pub sent: Option<String>,
    /// Hash of the canonical form of what the caller sent.
    pub hash: [u8; 32],
    /// What the call may change.
    pub judged: Judged,
}

/// Names that a call goes by.
#[derive(Debug, Clone)]
pub struct Names {
    /// The call.
    pub name: CallName,
    /// Agent's name or `main`.
    pub node: String,
    /// Turn, or `direct`.
    pub turn: String,
    /// The call's id within the turn.
    pub call_id: String,
    /// The conversation that its execution belongs to; empty: none was named.
    pub thread: String,
    /// Id of the request.
    pub request_id: String,
    /// Whether the caller named neither execution nor turn.
    pub is_unnamed: bool,
    /// The call of the dead letter that this one is requeued from; empty for other calls.
    pub requeued_from: String,
}

/// The tool of that name, or why it is not offered, or what is on offer instead.
pub fn find<'a>(offered: &'a Offered, name: &str) -> Result<&'a Offer, Refusal> {
    if let Some(offer) = offered.get(name) {
        return Ok(offer);
    }
    let unpinned = offered.withheld.iter().find_map(|one| match &one.why {
        Why::Unpinned { pinned } if one.name == name => {
            Some(lock::unpinned_text(name, &one.hash, pinned))
        }
        _ => None,
    });
    if let Some(text) = unpinned {
        return Err(Refusal { code: Code::ToolUnpinned, text });
    }
    let names: Vec<&str> = offered.keys().map(String::as_str).collect();
    Err(Refusal { code: Code::ToolNotFound, text: near::not_found_text(name, &names) })
}

/// Whether the execution's allow-list lets a tool through (CONTRACT 2.2).
pub fn allow(
    record: Option<&Execution>,
    offers: &BTreeMap<String, Offer>,
    name: &str,
) -> Result<(), Refusal> {
    let Some(record) = record.filter(|record| !record.allows(name)) else { return Ok(()) };
    let reachable: Vec<&str> =
        offers.keys().map(String::as_str).filter(|name| record.allows(name)).collect();
    let text = format!(
        "the tool {name} is not allowed in this execution; allowed: {}",
        if reachable.is_empty() { "none".to_owned() } else { reachable.join(", ") }
    );
    Err(Refusal { code: Code::ToolForbidden, text })
}

/// Hash of the arguments of a call that was refused.
pub fn hash_unchecked(call: &ModelCall) -> [u8; 32] {
    hash_of_text(match &call.arguments {
        Ok(text) => text.as_deref(),
        Err(why) => Some(why.as_str()),
    })
}

/// Hash of arguments that nobody checked: of their canonical form where they are JSON, else of their
/// text, so that a call handed in again with the same ones is the same call.
pub fn hash_of_text(text: Option<&str>) -> [u8; 32] {
    match Json::parse_arguments(text) {
        Ok(json) => json.hash(),
        Err(_) => Json::String(text.unwrap_or_default().to_owned()).hash(),
    }
}

/// Admits a direct call: the tool is on offer, its execution may use it, the arguments fit.
pub fn direct(
    offers: &Offered,
    record: Option<&Execution>,
    tool: &str,
    input: Option<&str>,
    mode: Mode,
) -> Result<(Offer, Arguments), Refusal> {
    let offer = find(offers, tool)?;
    allow(record, offers, tool)?;
    let arguments = check(offer, input, mode)?;
    Ok((offer.clone(), arguments))
}

fn invalid(text: String) -> Refusal {
    Refusal { code: Code::InvalidInput, text }
}

/// Reads and checks the arguments of a model's call.
pub fn check_call(offer: &Offer, call: &ModelCall, mode: Mode) -> Result<Arguments, Refusal> {
    match &call.arguments {
        Ok(text) => check(offer, text.as_deref(), mode),
        Err(why) => Err(invalid(arguments::invalid(why))),
    }
}

/// Reads and checks arguments: never guessed at, never repaired. `mode`: that of the execution, which
/// may ask for bounds in time.
pub fn check(offer: &Offer, text: Option<&str>, mode: Mode) -> Result<Arguments, Refusal> {
    let arguments::Admitted { sent, given } =
        arguments::admit(&offer.input, text).map_err(invalid)?;
    check_time(offer, &given, mode)?;
    let judged = offer.expressions.effect(&offer.descriptor, &given);
    let hash = sent.hash();
    let (admitted, sent) = (given.to_text(), sent.to_text());
    let sent = (sent != admitted).then_some(sent);
    Ok(Arguments { admitted, sent, hash, judged })
}

fn check_time(offer: &Offer, input: &Json, mode: Mode) -> Result<(), Refusal> {
    let names = &offer.descriptor.declared.time_args;
    match mode.as_of_ms {
        Some(as_of_ms) => time_args::check(names, input, as_of_ms)
            .map_err(|issue| invalid(arguments::invalid(&issue))),
        None => Ok(()),
    }
}

/// Looks at the bounds in time once more: the execution may have been made, with its instant, after the
/// arguments were checked.
pub fn check_time_again(offer: &Offer, arguments: &Arguments, mode: Mode) -> Result<(), Refusal> {
    if mode.as_of_ms.is_none() || offer.descriptor.declared.time_args.is_empty() {
        return Ok(());
    }
    let input = Json::parse(&arguments.admitted)
        .map_err(|error| invalid(arguments::invalid(&error.to_string())))?;
    check_time(offer, &input, mode)
}

/// The clocks of a call that is submitted now. `deadline_ms` is the caller's or the execution's.
pub fn clocks(offer: &Offer, now_ms: i64, deadline_ms: Option<i64>) -> Clocks {
    let descriptor = &offer.descriptor;
    let span = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX / 4);
    let latest = deadline_ms.unwrap_or(i64::MAX);
    let queue_deadline_ms = now_ms + span(descriptor.queue_timeout_ms);
    let whole = queue_deadline_ms + span(descriptor.total_timeout_ms);
    Clocks {
        submitted_at_ms: now_ms,
        queue_deadline_ms: queue_deadline_ms.min(latest),
        deadline_ms: whole.min(latest),
        timeout_ms: descriptor.timeout_ms,
        total_timeout_ms: descriptor.total_timeout_ms,
        queue_timeout_ms: descriptor.queue_timeout_ms,
    }
}

/// The job of an admitted call.
pub fn job(
    offer: &Offer,
    arguments: &Arguments,
    names: &Names,
    clocks: Clocks,
    caller: &Caller,
    trace: TraceContext,
    mode: Mode,
) -> Job {
    let descriptor = &offer.descriptor;
    Job {
        schema: SCHEMA,
        features: Vec::new(),
        name: Some(wire::CallName::from(&names.name)),
        pool: offer.pool.clone(),
        lane: LANE.to_owned(),
        tool: descriptor.name.clone(),
        descriptor_hash: offer.hash.clone(),
        arguments: arguments.admitted.clone().into(),
        arguments_sent: arguments.sent.clone().unwrap_or_default().into(),
        arguments_hash: arguments.hash.to_vec().into(),
        effect: wire::Effect::from(arguments.judged.effect).into(),
        rerun: descriptor.rerun,
        clocks: Some(clocks),
        max_attempts: descriptor.max_attempts,
        result_bytes_max: descriptor.result_bytes_max,
        node: names.node.clone(),
        turn: names.turn.clone(),
        call_id: names.call_id.clone(),
        idempotency_key: names.name.idempotency_key(),
        caller: Some(Caller { thread: names.thread.clone(), ..caller.clone() }),
        trace: Some(trace),
        dry_run: mode.dry_run,
        as_of_ms: mode.as_of_ms.unwrap_or(0),
        is_unnamed: names.is_unnamed,
        request_id: names.request_id.clone(),
        requeued_from: names.requeued_from.clone(),
        signature_key: String::new(),
        signature: Vec::new().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::catalog::tests::plain;
    use serde_json::json;
    use std::sync::Arc;
    use toolfleet_proto::descriptor::Descriptor;
    use toolfleet_proto::schema::Schema;

    fn offer() -> Offer {
        let input_schema = json!({
            "type": "object", "required": ["city"],
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 3}},
        });
        Offer {
            pool: "web".into(),
            hash: "h".into(),
            input: Arc::new(Schema::compile(&input_schema).unwrap()),
            descriptor: Arc::new(Descriptor {
                name: "weather".into(),
                queue_timeout_ms: 60_000,
                total_timeout_ms: 90_000,
                input_schema,
                ..plain()
            }),
            expressions: Arc::default(),
            is_live: true,
        }
    }

    #[test]
    fn defaults_are_filled_in_and_what_was_sent_is_kept() {
        let arguments = check(&offer(), Some(r#"{"city":"Oslo"}"#), Mode::default()).unwrap();
        assert_eq!(arguments.admitted, r#"{"city":"Oslo","days":3}"#);
        assert_eq!(arguments.sent.as_deref(), Some(r#"{"city":"Oslo"}"#));
        let whole = check(&offer(), Some(r#"{"city":"Oslo","days":3}"#), Mode::default()).unwrap();
        assert_eq!(whole.sent, None);
        let spaced =
            check(&offer(), Some(" { \"days\" : 3, \"city\":\"Oslo\" } "), Mode::default())
                .unwrap();
        assert_eq!(spaced.hash, whole.hash, "the same arguments, however they are written");
    }

    #[test]
    fn a_refusal_says_what_and_where() {
        let text = |text: Option<&str>| check(&offer(), text, Mode::default()).unwrap_err().text;
        assert!(text(None).starts_with("invalid input: city: "), "{}", text(None));
        assert!(text(Some(r#"{"city":5}"#)).starts_with("invalid input: city: "));
        assert!(
            text(Some("{")).starts_with("invalid input: not valid JSON"),
            "{}",
            text(Some("{"))
        );
    }

    #[test]
    fn an_execution_as_of_an_instant_asks_for_bounds_in_time() {
        let mut bounded = offer();
        let mut descriptor = Descriptor::clone(&bounded.descriptor);
        descriptor.declared.time_args = vec!["city".into()];
        bounded.descriptor = Arc::new(descriptor);
        let as_of = |as_of_ms| Mode { as_of_ms, dry_run: false };
        let text = Some(r#"{"city":"Oslo"}"#);
        let arguments = check(&bounded, text, as_of(None)).unwrap();
        assert_eq!(check_time_again(&bounded, &arguments, as_of(None)), Ok(()));
        let refusal = check(&bounded, text, as_of(Some(1_000))).unwrap_err();
        assert_eq!(refusal.code, Code::InvalidInput);
        assert!(refusal.text.starts_with("invalid input: city: expected an absolute instant"));
        assert_eq!(check_time_again(&bounded, &arguments, as_of(Some(1_000))), Err(refusal));
        let text = Some(r#"{"city":"1970-01-01T00:00:01Z"}"#);
        assert!(check(&bounded, text, as_of(Some(1_000))).is_ok());
        assert!(check(&bounded, text, as_of(Some(999))).is_err());
    }

    #[test]
    fn a_callers_deadline_shortens_every_clock() {
        let free = clocks(&offer(), 1_000, None);
        assert_eq!((free.queue_deadline_ms, free.deadline_ms), (61_000, 151_000));
        let bound = clocks(&offer(), 1_000, Some(5_000));
        assert_eq!((bound.queue_deadline_ms, bound.deadline_ms), (5_000, 5_000));
    }

    #[test]
    fn an_unknown_tool_is_refused_with_what_is_on_offer() {
        let mut offered = Offered::default();
        offered.tools.insert("weather".to_owned(), offer());
        assert!(find(&offered, "weather").is_ok());
        let refusal = find(&offered, "Weather").unwrap_err();
        assert_eq!(refusal.code, Code::ToolNotFound);
        assert!(refusal.text.contains("weather"), "{}", refusal.text);
    }

    #[test]
    fn a_tool_whose_version_is_not_pinned_is_refused_with_both_versions() {
        let why = Why::Unpinned { pinned: vec!["b".repeat(64)] };
        let withheld = super::super::catalog::Withheld {
            name: "weather".into(),
            pool: "web".into(),
            hash: "a".repeat(64),
            why,
        };
        let offered = Offered { withheld: vec![withheld], ..Offered::default() };
        let refusal = find(&offered, "weather").unwrap_err();
        assert_eq!(refusal.code, Code::ToolUnpinned);
        assert!(refusal.text.contains("aaaaaaaaaaaa") && refusal.text.contains("bbbbbbbbbbbb"));
        assert_eq!(find(&offered, "other").unwrap_err().code, Code::ToolNotFound);
    }
}
