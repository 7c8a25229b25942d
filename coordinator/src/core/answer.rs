//! Results as callers read them: entries of `calls`, answers to direct calls, the model's text
//! (CONTRACT 6.1, 9.1, DESIGN 6).

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use toolfleet_proto::code::Code;
use toolfleet_proto::end::instant;
use toolfleet_proto::output::{self, ERROR_PREFIX};
use toolfleet_proto::wire::{CallResult, CancelRecord, OutputForm, Reports, StopEnd};

/// One ended call, however it ended: with a stored result, or refused before anything was queued.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and callers read them all"
)]
pub struct Ended {
    /// `<node>:<turn>:<callId>`.
    pub call: String,
    /// Id within the turn.
    pub call_id: String,
    /// The idempotency key.
    pub idempotency_key: String,
    /// The tool's name as it was called.
    pub tool: String,
    /// The code; `None`: it ended well.
    pub code: Option<String>,
    /// What the model reads, without the prefix of an error.
    pub text: String,
    /// Whether the text is one whole JSON value.
    pub is_json: bool,
    /// Attempts.
    pub attempts: u32,
    /// Tries inside the last attempt.
    pub tries: u32,
    /// From submission to the start of the last attempt.
    pub queue_ms: i64,
    /// From the tool's start to its end.
    pub duration_ms: i64,
    /// Whether the result was cut.
    pub is_truncated: bool,
    /// Whether a dry run answered in the tool's place.
    pub is_stubbed: bool,
    /// Whether the result was recorded for an earlier submission.
    pub is_replayed: bool,
    /// 32 hexadecimal digits.
    pub trace_id: String,
    /// `never_started` or `may_have_started`; empty where the question does not arise.
    pub start_state: String,
    /// The call of the dead letter that this one was requeued from; empty for other calls.
    pub requeued_from: String,
    /// How it was cancelled.
    pub cancel: Option<CancelRecord>,
    /// What its tool reported while it ran.
    pub reports: Option<Reports>,
}

/// The trace id of a traceparent; empty where it does not read.
pub fn trace_id(traceparent: &str) -> String {
    traceparent.split('-').nth(1).filter(|id| id.len() == 32).unwrap_or_default().to_owned()
}

/// A cancel as callers read it; what did not happen is null.
pub fn cancel_value(cancel: &CancelRecord) -> Value {
    let at = |ms: i64| (ms != 0).then(|| instant(ms));
    let end = match cancel.end() {
        StopEnd::Unspecified => None,
        StopEnd::Stopped => Some("stopped"),
        StopEnd::Killed => Some("killed"),
        StopEnd::Abandoned => Some("abandoned"),
    };
    json!({
        "requestedAt": at(cancel.requested_at_ms),
        "deliveredAt": at(cancel.delivered_at_ms),
        "endedAt": at(cancel.ended_at_ms),
        "end": end,
    })
}

impl Ended {
    /// From a stored result.
    pub fn of_result(result: &CallResult, is_replayed: bool) -> Ended {
        let traceparent = result.trace.as_ref().map_or("", |trace| trace.traceparent.as_str());
        Ended {
            call: result.name.as_ref().map(|name| name.call.clone()).unwrap_or_default(),
            call_id: result.call_id.clone(),
            idempotency_key: result.idempotency_key.clone(),
            tool: result.tool.clone(),
            code: result.is_error().then(|| result.code.clone()),
            text: result.text(),
            is_json: result.form() == OutputForm::Json
                && !result.is_truncated
                && !result.is_error(),
            attempts: result.attempts,
            tries: result.attempt.as_ref().map_or(0, |attempt| attempt.tries),
            queue_ms: result.queued_ms,
            duration_ms: result.duration_ms,
            is_truncated: result.is_truncated,
            is_stubbed: result.is_stubbed,
            is_replayed,
            trace_id: trace_id(traceparent),
            start_state: result.start_state.clone(),
            requeued_from: result.requeued_from.clone(),
            cancel: result.cancel,
            reports: result.reports.clone(),
        }
    }

    /// Of a call that was refused before anything was queued; its text is bounded like any other.
    pub fn refused(code: Code, text: &str, bytes_max: u64) -> Ended {
        let rendered = output::render_error(code, text, bytes_max);
        Ended {
            call: String::new(),
            call_id: String::new(),
            idempotency_key: String::new(),
            tool: String::new(),
            code: Some(code.as_str().to_owned()),
            text: rendered.text,
            is_json: false,
            attempts: 0,
            tries: 0,
            queue_ms: 0,
            duration_ms: 0,
            is_truncated: rendered.is_truncated,
            is_stubbed: false,
            is_replayed: false,
            trace_id: String::new(),
            start_state: String::new(),
            requeued_from: String::new(),
            cancel: None,
            reports: None,
        }
    }

    /// What a model reads.
    pub fn model_text(&self) -> String {
        match &self.code {
            Some(_) => format!("{ERROR_PREFIX}{}", self.text),
            None => self.text.clone(),
        }
    }

    /// The entry in a turn's `calls`.
    pub fn entry(&self) -> Value {
        let mut entry = Map::new();
        entry.insert("call".into(), json!(self.call));
        entry.insert("callId".into(), json!(self.call_id));
        entry.insert("idempotencyKey".into(), json!(self.idempotency_key));
        entry.insert("toolName".into(), json!(self.tool));
        entry.insert("isError".into(), json!(self.code.is_some()));
        if let Some(code) = &self.code {
            entry.insert("code".into(), json!(code));
        }
        entry.insert("attempts".into(), json!(self.attempts));
        if self.tries > 1 {
            entry.insert("tries".into(), json!(self.tries));
        }
        entry.insert("queueMs".into(), json!(self.queue_ms));
        entry.insert("durationMs".into(), json!(self.duration_ms));
        entry.insert("isResultTruncated".into(), json!(self.is_truncated));
        entry.insert("traceId".into(), json!(self.trace_id));
        if self.is_stubbed {
            entry.insert("stubbed".into(), json!(true));
        }
        if self.code.is_some() && !self.start_state.is_empty() {
            entry.insert("startState".into(), json!(self.start_state));
        }
        if let Some(cancel) = &self.cancel {
            entry.insert("cancel".into(), cancel_value(cancel));
        }
        if !self.requeued_from.is_empty() {
            entry.insert("requeuedFrom".into(), json!(self.requeued_from));
        }
        Value::Object(entry)
    }

    /// The answer to a direct call, JSON text: `result` keeps the digits of the tool's output.
    pub fn direct_answer(&self, execution: &str) -> String {
        let Value::Object(entry) = self.entry() else { return String::new() };
        let mut members = vec![
            ("ok".to_owned(), json!(self.code.is_none()).to_string()),
            ("executionId".to_owned(), json!(execution).to_string()),
        ];
        members.extend(entry.into_iter().map(|(key, value)| (key, value.to_string())));
        members.push(("result".to_owned(), self.result_text()));
        members.push(("text".to_owned(), json!(self.model_text()).to_string()));
        members.push(("replayed".to_owned(), json!(self.is_replayed).to_string()));
        let members: Vec<String> =
            members.iter().map(|(key, value)| format!("{}:{value}", json!(key))).collect();
        format!("{{{}}}", members.join(","))
    }

    /// The JSON value where the output is one and is whole, else the bounded text.
    fn result_text(&self) -> String {
        let whole =
            self.is_json.then(|| serde_json::from_str::<&RawValue>(&self.text).ok()).flatten();
        whole.map_or_else(|| json!(self.text).to_string(), |value| value.get().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolfleet_proto::wire::{CallName, TraceContext, text_part};

    fn result(code: &str, text: &str, form: OutputForm) -> CallResult {
        CallResult {
            code: code.into(),
            name: Some(CallName { call: "main:t:c".into(), ..CallName::default() }),
            tool: "echo".into(),
            parts: vec![text_part(text.into())],
            form: form.into(),
            attempts: 1,
            trace: Some(TraceContext {
                traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
                ..TraceContext::default()
            }),
            ..CallResult::default()
        }
    }

    #[test]
    fn digits_survive_a_direct_answer() {
        let ended = Ended::of_result(
            &result("ok", r#"{"n":12345678901234567890.10}"#, OutputForm::Json),
            false,
        );
        let answer = ended.direct_answer("e");
        assert!(answer.contains(r#""result":{"n":12345678901234567890.10}"#), "{answer}");
        let value: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!((value["ok"].clone(), value["executionId"].clone()), (json!(true), json!("e")));
        assert_eq!(value["traceId"], "0af7651916cd43dd8448eb211c80319c");
        assert_eq!((value.get("code"), value.get("stubbed")), (None, None));
    }

    #[test]
    fn what_a_dry_run_answered_is_marked() {
        let stored = CallResult { is_stubbed: true, ..result("ok", "paid", OutputForm::Text) };
        assert_eq!(Ended::of_result(&stored, false).entry()["stubbed"], json!(true));
    }

    #[test]
    fn an_error_is_prefixed_for_the_model_only() {
        let ended =
            Ended::of_result(&result("tool_error", "exited with code 3", OutputForm::Text), true);
        assert_eq!(ended.model_text(), "Tool error: exited with code 3");
        let value: Value = serde_json::from_str(&ended.direct_answer("e")).unwrap();
        assert_eq!(value["result"], "exited with code 3");
        assert_eq!(
            (value["isError"].clone(), value["replayed"].clone()),
            (json!(true), json!(true))
        );
        assert_eq!(value["code"], "tool_error");
    }

    #[test]
    fn text_that_looks_like_json_stays_text() {
        let ended = Ended::of_result(&result("ok", "[1]", OutputForm::Text), false);
        let value: Value = serde_json::from_str(&ended.direct_answer("e")).unwrap();
        assert_eq!(value["result"], "[1]");
    }
}
