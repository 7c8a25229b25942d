use super::*;

fn execution(max_tool_calls: u32) -> Execution {
    let wishes = Wishes { max_tool_calls: Some(max_tool_calls), ..Wishes::default() };
    Execution::new("e", "local", &wishes, None, 0)
}

fn call(id: &str) -> CallRecord {
    CallRecord {
        call: format!("main:t:{id}"),
        call_id: id.into(),
        provider_id: None,
        is_free_text: false,
        echo: Map::new(),
        tool: "refund".into(),
        arguments_hash: "h".into(),
        effect: "write".into(),
        pool: "p".into(),
        rerun: false,
        is_admitted: true,
    }
}

fn turn(ids: &[&str]) -> TurnRecord {
    TurnRecord {
        name: "t".into(),
        format: "openai-chat".into(),
        at_ms: 0,
        calls: ids.iter().map(|id| call(id)).collect(),
        local: vec![],
    }
}

fn closed(taken: &Taken) -> &Closed {
    match taken {
        Taken::Closed(closed) => closed,
        other => panic!("{other:?}"),
    }
}

#[test]
fn calls_are_admitted_in_order_while_the_limit_lasts() {
    let mut execution = execution(2);
    let taken = execution.take_turn(turn(&["a", "b", "c"]), 0);
    assert_eq!(taken[..2], [Taken::New, Taken::New]);
    assert_eq!(closed(&taken[2]).text, "limit exceeded: 2 of 2 tool calls used");
    assert_eq!((execution.state, execution.calls_used()), (State::LimitExceeded, 2));
    let later = execution.take_turn(turn(&["d"]), 0);
    assert_eq!(closed(&later[0]).code, Code::LimitExceeded);
    assert_eq!(execution.summary()["raise"], "maxToolCalls");
}

#[test]
fn the_same_turn_again_counts_nothing_and_is_not_judged_again() {
    let mut execution = execution(1);
    execution.take_turn(turn(&["a"]), 0);
    let before = execution.clone();
    assert_eq!(execution.take_turn(turn(&["a"]), 0), vec![Taken::Known]);
    assert_eq!(execution, before);
    execution.state = State::Cancelled;
    assert_eq!(execution.take_turn(turn(&["a"]), 0), vec![Taken::Known], "its result is there");
    assert_eq!(closed(&execution.take_turn(turn(&["a", "b"]), 0)[1]).code, Code::Cancelled);
}

#[test]
fn a_call_that_was_not_taken_is_not_taken_later_either() {
    let mut execution = execution(1);
    execution.take_turn(turn(&["a", "b"]), 0);
    let again = execution.take_turn(turn(&["a", "b"]), 0);
    assert_eq!(again[0], Taken::Known);
    assert_eq!(closed(&again[1]).text, "limit exceeded: 1 of 1 tool calls used");
}

#[test]
fn a_record_fits_one_message_whatever_a_loop_hands_in() {
    const MESSAGE_BYTES_MAX: usize = 1_048_576;
    // Ids of the longest kind, of characters that JSON escapes; then ordinary ones.
    for filler in ["\u{1}".repeat(110), String::new()] {
        let mut execution = execution(TOOL_CALLS_MAX);
        for number in 0..40 {
            let ids: Vec<String> =
                (0..128).map(|call| format!("{number}-{call}-{filler}")).collect();
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            let turn = TurnRecord { name: format!("t{number}{filler}"), ..turn(&ids) };
            execution.take_turn(turn.clone(), 0);
            // What was taken stays known.
            assert!(!execution.take_turn(turn, 0).contains(&Taken::New));
        }
        assert_eq!(execution.state, State::LimitExceeded);
        let bytes = serde_json::to_vec(&execution).unwrap().len();
        assert!(bytes < MESSAGE_BYTES_MAX, "{bytes}");
        let used = execution.calls_used();
        assert_eq!(filler.is_empty(), used == TOOL_CALLS_MAX, "{used}");
        // Nothing grows any more.
        for number in 0..100 {
            execution.take_turn(TurnRecord { name: format!("later{number}"), ..turn(&["x"]) }, 0);
        }
        assert!(serde_json::to_vec(&execution).unwrap().len() < MESSAGE_BYTES_MAX);
    }
}

#[test]
fn refused_calls_do_not_count() {
    let mut execution = execution(1);
    let refused = CallRecord { is_admitted: false, ..call("x") };
    let turn = TurnRecord { calls: vec![refused, call("a")], ..turn(&[]) };
    assert_eq!(execution.take_turn(turn, 0), vec![Taken::New, Taken::New]);
    assert_eq!(execution.calls_used(), 1);
}

#[test]
fn a_closed_execution_says_why() {
    let mut execution = execution(1);
    execution.deadline_ms = Some(1_000);
    assert_eq!(execution.closed(999), None);
    assert_eq!(execution.closed(1_000).unwrap().code, Code::TimedOut);
    execution.state = State::Cancelled;
    execution.reason = Some("no longer needed".into());
    assert_eq!(execution.closed(0).unwrap().text, "no longer needed");
}

#[test]
fn equal_writes_are_found_until_they_are_settled() {
    let mut execution = execution(9);
    execution.take_turn(turn(&["a"]), 0);
    let new = call("b");
    assert_eq!(execution.unsettled_equals(&new).count(), 1);
    let other = CallRecord { arguments_hash: "other".into(), ..call("b") };
    assert_eq!(execution.unsettled_equals(&other).count(), 0);
    execution.settled.insert("main:t:a".into(), Settled { outcome: "done".into(), at_ms: 0 });
    assert_eq!(execution.unsettled_equals(&new).count(), 0);
}

#[test]
fn the_allow_list_takes_patterns() {
    let mut execution = execution(1);
    assert!(execution.allows("anything"));
    execution.tools = Some(vec!["crm_*".into()]);
    assert!(execution.allows("crm_find") && !execution.allows("refund"));
}
