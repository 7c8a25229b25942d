//! The record of an execution: limits, state, and every call that was admitted, by name (DESIGN 4
//! "Calls used", 10; CONTRACT 2.2, 3.8, 5.4, 5.6). One value in the bucket of executions, changed by
//! compare-and-set, one change for a whole turn.

use super::local;
use super::wishes::Wishes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use toolfleet_proto::code::Code;
use toolfleet_proto::effect::Effect;
use toolfleet_proto::end;
use toolfleet_proto::limit::PARALLEL_CALLS_MAX;

/// Calls that an outside loop's execution may use, unless it says otherwise.
pub const TOOL_CALLS_DEFAULT: u32 = 500;
/// Most calls that an execution may be given: its record must fit one message.
pub const TOOL_CALLS_MAX: u32 = 2_000;
/// Bytes that calls and turns may take in a record, by a cautious estimate: a message has 1 MiB.
const CALLS_BYTES_MAX: usize = 900_000;
/// Refused calls that a record keeps; further ones have only their stored results.
const REFUSED_MAX: usize = 500;
/// Bytes of a call or turn in a record beside its names.
const FRAME_BYTES: usize = 180;
/// Most calls at the same time that an execution may be given.
pub const PARALLEL_MAX: u32 = 128;

/// Keys of a record that callers do not read, or read in another form.
const HIDDEN: [&str; 7] =
    ["turns", "madeWith", "settled", "deadlineMs", "createdAtMs", "endedAtMs", "asOfMs"];

/// Whether calls are still taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Calls are taken.
    Open,
    /// Cancelled: nothing starts any more.
    Cancelled,
    /// Its loop is done with it.
    Finished,
    /// All its calls are used.
    LimitExceeded,
}

/// One admitted or refused call, as its execution remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallRecord {
    /// The key without the execution.
    pub call: String,
    /// Id within the turn.
    pub call_id: String,
    /// The provider's own id, where it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Whether it called a free-text tool, which some formats answer in another form.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_free_text: bool,
    /// Members that its result repeats in the format that it came in.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub echo: Map<String, Value>,
    /// The tool's name as it was called.
    pub tool: String,
    /// Hash of the arguments, hexadecimal.
    pub arguments_hash: String,
    /// `read`, `idempotent`, `write`; empty where the call was refused.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub effect: String,
    /// The pool; empty where the call was refused.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pool: String,
    /// Whether a lost write may start again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rerun: bool,
    /// Whether it counts against the limit: it passed gates and validation.
    pub is_admitted: bool,
}

impl CallRecord {
    /// What it takes in a record, not less than it does.
    fn bytes(&self) -> usize {
        let provider_id = self.provider_id.as_deref().unwrap_or_default();
        let names: [&str; 5] =
            [&self.call, &self.call_id, provider_id, &self.tool, &self.arguments_hash];
        names.into_iter().map(json_bytes).sum::<usize>() + self.pool.len() + FRAME_BYTES
    }
}

/// Bytes of a text as JSON: an id may be of characters that are escaped.
fn json_bytes(text: &str) -> usize {
    serde_json::to_string(text).map_or(text.len() * 6, |json| json.len())
}

/// One turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnRecord {
    /// The turn's name.
    pub name: String,
    /// The provider's format.
    pub format: String,
    /// When it was handed in, fleet's clock.
    pub at_ms: i64,
    /// Its calls, in order.
    pub calls: Vec<CallRecord>,
    /// Calls left to the loop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub local: Vec<Value>,
}

/// How a person settled a call whose outcome was unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settled {
    /// `done` or `not-done`.
    pub outcome: String,
    /// When.
    pub at_ms: i64,
}

/// The record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Execution {
    /// Its id.
    pub id: String,
    /// The conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// Who it acts for.
    pub actor: String,
    /// Whether calls are taken.
    pub state: State,
    /// Why it was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it was made, fleet's clock.
    pub created_at_ms: i64,
    /// When it stopped taking calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at_ms: Option<i64>,
    /// Allow-list of names and patterns; absent: every tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Tools that the loop runs itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub local_tools: Vec<String>,
    /// Calls that it may use.
    pub max_tool_calls: u32,
    /// Calls of one turn at the same time.
    pub max_parallel_calls: u32,
    /// Nothing starts or runs after it, fleet's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<i64>,
    /// Whether only reads run; everything else is answered without being run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// The instant that it sees the world as of, milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of_ms: Option<i64>,
    /// Words to find it by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Hash of what it was made with: the same again is the same.
    pub made_with: String,
    /// Turns, in order.
    #[serde(default)]
    pub turns: Vec<TurnRecord>,
    /// Settled calls, by call.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settled: BTreeMap<String, Settled>,
}

/// What an execution says of one call of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It was there already: its result counts, whatever holds now.
    Known,
    /// It is new and taken.
    New,
    /// It is new and not taken.
    Closed(Closed),
}

/// Why calls are not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The code of each call's result.
    pub code: Code,
    /// What the model reads.
    pub text: String,
}

impl Execution {
    /// A record as it is made.
    pub fn new(
        id: &str,
        actor: &str,
        wishes: &Wishes,
        deadline_ms: Option<i64>,
        now_ms: i64,
    ) -> Execution {
        Execution {
            id: id.to_owned(),
            thread_id: wishes.thread_id.clone(),
            actor: actor.to_owned(),
            state: State::Open,
            reason: None,
            created_at_ms: now_ms,
            ended_at_ms: None,
            tools: wishes.tools.clone(),
            local_tools: wishes.local_tools.clone().unwrap_or_default(),
            max_tool_calls: wishes.max_tool_calls.unwrap_or(TOOL_CALLS_DEFAULT),
            max_parallel_calls: wishes
                .max_parallel_calls
                .unwrap_or(u32::try_from(PARALLEL_CALLS_MAX).unwrap_or(u32::MAX)),
            deadline_ms,
            dry_run: wishes.dry_run.unwrap_or(false),
            // One that does not read was refused before.
            as_of_ms: wishes.as_of_ms().unwrap_or(None),
            labels: wishes.labels.clone().unwrap_or_default(),
            made_with: wishes.hash(),
            turns: Vec::new(),
            settled: BTreeMap::new(),
        }
    }

    /// Calls used, once each.
    pub fn calls_used(&self) -> u32 {
        let used =
            self.turns.iter().flat_map(|turn| &turn.calls).filter(|call| call.is_admitted).count();
        u32::try_from(used).unwrap_or(u32::MAX)
    }

    /// Every call with its turn's name.
    pub fn calls(&self) -> impl Iterator<Item = (&str, &CallRecord)> {
        self.turns.iter().flat_map(|turn| turn.calls.iter().map(|call| (turn.name.as_str(), call)))
    }

    /// What calls and turns take in the record: not less than they do.
    fn calls_bytes(&self) -> usize {
        let turns = self.turns.iter().map(|turn| json_bytes(&turn.name) + FRAME_BYTES);
        turns.sum::<usize>() + self.calls().map(|(_, call)| call.bytes()).sum::<usize>()
    }

    fn refused(&self) -> usize {
        self.calls().filter(|(_, call)| !call.is_admitted).count()
    }

    /// One call.
    pub fn call(&self, call: &str) -> Option<(&str, &CallRecord)> {
        self.calls().find(|(_, record)| record.call == call)
    }

    /// One turn.
    pub fn turn(&self, name: &str) -> Option<&TurnRecord> {
        self.turns.iter().find(|turn| turn.name == name)
    }

    /// Why new calls are not taken now; `None`: they are.
    pub fn closed(&self, now_ms: i64) -> Option<Closed> {
        let closed = |code, text: String| Some(Closed { code, text });
        match self.state {
            State::Cancelled => closed(
                Code::Cancelled,
                self.reason.clone().unwrap_or_else(|| "cancelled".to_owned()),
            ),
            State::Finished => closed(Code::Cancelled, "the execution is finished".to_owned()),
            State::LimitExceeded => closed(Code::LimitExceeded, self.limit_text()),
            State::Open => match self.deadline_ms {
                Some(deadline_ms) if now_ms >= deadline_ms => {
                    let text =
                        format!("the execution's deadline {} is over", end::instant(deadline_ms));
                    closed(Code::TimedOut, text)
                }
                _ => None,
            },
        }
    }

    /// `limit exceeded: 20 of 20 tool calls used`.
    pub fn limit_text(&self) -> String {
        let limit = self.max_tool_calls;
        format!("limit exceeded: {} of {limit} tool calls used", self.calls_used().min(limit))
    }

    /// Whether the allow-list lets a tool through.
    pub fn allows(&self, tool: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| local::is_local(tools, tool))
    }

    /// Earlier writes of the same tool with equal arguments that nobody has settled: where one of them
    /// ended with an unknown outcome, the new one is held back (CONTRACT 5.6).
    pub fn unsettled_equals<'a>(
        &'a self,
        new: &'a CallRecord,
    ) -> impl Iterator<Item = &'a CallRecord> {
        self.calls().map(|(_, call)| call).filter(move |call| {
            call.call != new.call
                && call.tool == new.tool
                && call.arguments_hash == new.arguments_hash
                && call.effect == Effect::Write.as_str()
                && !self.settled.contains_key(&call.call)
        })
    }

    /// Takes a turn in: its new calls are added, in order, while the limit and the room of the record last.
    /// Says for each call of the turn what became of it. Of refused calls only the first 500 are kept: a
    /// loop may go on for ever with an execution that takes none.
    pub fn take_turn(&mut self, turn: TurnRecord, now_ms: i64) -> Vec<Taken> {
        let closed = self.closed(now_ms);
        let (mut used, mut refused) = (self.calls_used(), self.refused());
        let mut bytes = self.calls_bytes() + json_bytes(&turn.name) + FRAME_BYTES;
        let known: Vec<Option<bool>> = turn
            .calls
            .iter()
            .map(|call| self.call(&call.call).map(|(_, known)| known.is_admitted))
            .collect();
        let (mut taken, mut added) = (Vec::with_capacity(turn.calls.len()), Vec::new());
        let mut over_limit = false;
        for (mut call, known) in turn.calls.into_iter().zip(known) {
            match (known, &closed) {
                (None, _) => {}
                // It was not taken then, and its result may not have been stored.
                (Some(false), Some(closed)) => {
                    taken.push(Taken::Closed(closed.clone()));
                    continue;
                }
                (Some(_), _) => {
                    taken.push(Taken::Known);
                    continue;
                }
            }
            let verdict = match &closed {
                Some(closed) => Taken::Closed(closed.clone()),
                None if call.is_admitted
                    && (used >= self.max_tool_calls || bytes + call.bytes() > CALLS_BYTES_MAX) =>
                {
                    over_limit = true;
                    Taken::Closed(Closed { code: Code::LimitExceeded, text: String::new() })
                }
                None => Taken::New,
            };
            call.is_admitted &= verdict == Taken::New;
            used += u32::from(call.is_admitted);
            taken.push(verdict);
            refused += usize::from(!call.is_admitted);
            if call.is_admitted
                || (refused <= REFUSED_MAX && bytes + call.bytes() <= CALLS_BYTES_MAX)
            {
                bytes += call.bytes();
                added.push(call);
            }
        }
        match self.turns.iter_mut().find(|known| known.name == turn.name) {
            Some(known) => known.calls.extend(added),
            // One of which nothing is kept would fill the record by itself.
            None if added.is_empty() && refused > REFUSED_MAX => {}
            None => self.turns.push(TurnRecord { calls: added, ..turn }),
        }
        if over_limit {
            self.state = State::LimitExceeded;
            self.ended_at_ms = Some(now_ms);
            // The text counts what is used once the turn is in.
            let text = self.limit_text();
            for verdict in &mut taken {
                if let Taken::Closed(closed) = verdict {
                    closed.text.clone_from(&text);
                }
            }
        }
        taken
    }

    /// The record as callers read it, without its calls.
    pub fn summary(&self) -> Value {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        if let Some(object) = value.as_object_mut() {
            for key in HIDDEN {
                object.remove(key);
            }
            object.insert("toolCallsUsed".into(), self.calls_used().into());
            object.insert("createdAt".into(), end::instant(self.created_at_ms).into());
            if let Some(at_ms) = self.ended_at_ms {
                object.insert("endedAt".into(), end::instant(at_ms).into());
            }
            if let Some(at_ms) = self.deadline_ms {
                object.insert("deadline".into(), end::instant(at_ms).into());
            }
            if let Some(at_ms) = self.as_of_ms {
                object.insert("asOf".into(), end::instant(at_ms).into());
            }
            if self.state == State::LimitExceeded {
                object.insert("raise".into(), "maxToolCalls".into());
            }
        }
        value
    }
}

#[cfg(test)]
mod tests;
