//! How the results of a turn fit the calls of its message.

use serde_json::Value;

/// Calls and results, counted by the provider's own ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    calls: usize,
    results: usize,
    /// Calls without a result of their id.
    lost: usize,
}

impl Tally {
    /// Exactly one result a call.
    pub(super) fn is_whole(self) -> bool {
        self.lost == 0 && self.results == self.calls
    }

    /// Both together.
    pub(super) fn and(self, other: Tally) -> Tally {
        Tally {
            calls: self.calls + other.calls,
            results: self.results + other.results,
            lost: self.lost + other.lost,
        }
    }

    /// Counts the answer to a message.
    pub(super) fn count(message: &Value, answer: &Value) -> Tally {
        let asked = asked_ids(message);
        let answered = answered_ids(answer);
        let lost = asked.iter().filter(|id| !answered.contains(id)).count();
        Tally { calls: asked.len(), results: answered.len(), lost }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} calls, {} results, {} lost", self.calls, self.results, self.lost)
    }
}

fn texts<'a>(list: &'a Value, key: &str) -> Vec<&'a str> {
    list.as_array().into_iter().flatten().filter_map(|item| item[key].as_str()).collect()
}

/// Ids of the calls of a message of either format.
fn asked_ids(message: &Value) -> Vec<&str> {
    let mut ids = texts(&message["tool_calls"], "id");
    let blocks = message["content"].as_array().into_iter().flatten();
    ids.extend(
        blocks.filter(|block| block["type"] == "tool_use").filter_map(|block| block["id"].as_str()),
    );
    ids
}

/// Ids of the results that go back to the provider.
fn answered_ids(answer: &Value) -> Vec<&str> {
    let mut ids = texts(&answer["messages"], "tool_call_id");
    for message in answer["messages"].as_array().into_iter().flatten() {
        ids.extend(texts(&message["content"], "tool_use_id"));
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_result_a_call_is_whole_in_both_formats() {
        let openai = json!({"tool_calls": [{"id": "a"}, {"id": "b"}]});
        let answer = json!({"messages": [{"tool_call_id": "b"}, {"tool_call_id": "a"}]});
        let tally = Tally::count(&openai, &answer);
        assert!(tally.is_whole());
        assert_eq!(tally.to_string(), "2 calls, 2 results, 0 lost");
        let anthropic = json!({"content": [{"type": "text"}, {"type": "tool_use", "id": "c"}]});
        let answer = json!({"messages": [{"content": [{"tool_use_id": "c"}]}]});
        let both = tally.and(Tally::count(&anthropic, &answer));
        assert_eq!(both.to_string(), "3 calls, 3 results, 0 lost");
    }

    #[test]
    fn a_missing_a_doubled_and_a_foreign_result_are_not_whole() {
        let asked = json!({"tool_calls": [{"id": "a"}, {"id": "b"}]});
        let of = |ids: &[&str]| {
            let messages: Vec<Value> = ids.iter().map(|id| json!({"tool_call_id": id})).collect();
            Tally::count(&asked, &json!({"messages": messages}))
        };
        assert_eq!(of(&["a"]).lost, 1);
        assert!(!of(&["a", "b", "b"]).is_whole());
        assert!(!of(&["a", "x"]).is_whole());
        assert_eq!(Tally::count(&asked, &json!({})).lost, 2);
    }

    #[test]
    fn the_example_messages_have_calls() {
        let trip =
            serde_json::from_str(include_str!("../../../../examples/turns/trip.openai.json"));
        let buy = serde_json::from_str(include_str!(
            "../../../../examples/turns/procurement.anthropic.json"
        ));
        assert_eq!(asked_ids(&trip.unwrap()).len() + asked_ids(&buy.unwrap()).len(), 11);
    }
}
