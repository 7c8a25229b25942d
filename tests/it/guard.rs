//! Workers that are killed or stopped leave no process of an `exec` tool behind.

use crate::asked::{SOON, fleet, ok};
use crate::conversation::noting;
use serde_json::json;
use std::time::Duration;
use toolfleet_proto::name::CallName;
use toolfleet_tests::{Answer, Fleet, Ledger, binary, until};

/// The first attempt never ends, nor does its child or grandchild, and TERM moves none of them. A later
/// one notes which of them it still finds, and ends.
const TREE: &str = r#"
if [ "$TOOLFLEET_ATTEMPT" != 1 ]; then
    for pid in $(sed -n 's/^pid //p' "$ledger"); do
        # What is dead and not yet reaped runs no more.
        state=$(sed 's/.*) //; s/ .*//' "/proc/$pid/stat" 2>/dev/null)
        [ "${state:-Z}" = Z ] || echo "alive $pid" >>"$ledger"
    done
    printf found
    exit 0
fi
trap '' TERM
echo "pid $$" >>"$ledger"
sh -c 'trap "" TERM; echo "pid $$" >>"$1"; sh -c "trap \"\" TERM; echo \"pid \$\$\" >>\"\$1\"; while :; do sleep 1; done" s "$1"; :' c "$ledger" &
while :; do sleep 1; done
"#;

async fn guarded() -> Fleet {
    binary("toolfleet-guard").unwrap();
    let script = noting("tree", TREE);
    let keys = "effect = \"read\"\ntimeout = \"60s\"";
    fleet().workers(2).exec_tool("tree", keys, &script).start().await.unwrap()
}

fn noted(ledger: &Ledger, word: &str) -> Vec<u32> {
    let lines = ledger.lines();
    let number = |line: &String| line.strip_prefix(word)?.trim().parse().ok();
    lines.iter().filter_map(number).collect()
}

/// A call whose three processes run, and the position of its worker.
async fn running(fleet: &Fleet) -> (tokio::task::JoinHandle<anyhow::Result<Answer>>, usize) {
    let http = fleet.http(0).unwrap();
    let call = tokio::spawn(async move { http.call_as("tree", "guard", "c", json!({})).await });
    let ledger = fleet.ledger("tree");
    until("tool, child and grandchild run", SOON, async || {
        (noted(&ledger, "pid ").len() == 3).then_some(())
    })
    .await
    .unwrap();
    let guard = parent(noted(&ledger, "pid ")[0]);
    (call, fleet.worker_of(parent(guard)).unwrap())
}

fn parent(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn is_gone(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    stat.rsplit(')').next().unwrap().trim_start().starts_with('Z')
}

async fn gone(ledger: &Ledger, within: Duration) {
    let pids = noted(ledger, "pid ");
    until("none of its processes is left", within, async || {
        pids.iter().all(|pid| is_gone(*pid)).then_some(())
    })
    .await
    .unwrap();
}

/// The call ends once, by its second attempt, which found nothing of the first.
async fn ended_by_the_second(fleet: &Fleet, answer: &Answer) {
    assert_eq!(ok(answer)["attempts"], 2);
    let ledger = fleet.ledger("tree");
    assert_eq!(noted(&ledger, "alive "), Vec::<u32>::new(), "{:?}", ledger.lines());
    assert_eq!(ledger.starts().len(), 2, "{:?}", ledger.lines());
    let name = CallName::direct("default", "guard", "main", "c");
    assert_eq!(fleet.results_of(&name).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_worker_leaves_no_process_of_its_tool() {
    let mut fleet = guarded().await;
    let (call, holder) = running(&fleet).await;
    fleet.workers[holder].kill().await.unwrap();
    gone(&fleet.ledger("tree"), Duration::from_secs(3)).await;
    ended_by_the_second(&fleet, &call.await.unwrap().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tool_of_a_stopped_worker_is_gone_before_another_may_start_it() {
    let mut fleet = guarded().await;
    let (call, holder) = running(&fleet).await;
    // Longer than a lease: it is renewed, and the guard hears of it.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let ledger = fleet.ledger("tree");
    assert!(!noted(&ledger, "pid ").into_iter().any(is_gone), "it runs while the lease is renewed");
    fleet.workers[holder].pause().unwrap();
    gone(&ledger, SOON).await;
    ended_by_the_second(&fleet, &call.await.unwrap().unwrap()).await;

    // Awake again it stores no second result, and takes calls as before.
    fleet.workers[holder].resume().unwrap();
    fleet.workers[1 - holder].kill().await.unwrap();
    let http = fleet.http(0).unwrap();
    let name = CallName::direct("default", "guard", "main", "c");
    assert_eq!(ok(&http.call("nap", json!({"ms": 1})).await.unwrap())["attempts"], 1);
    assert_eq!(fleet.results_of(&name).await.unwrap(), 1);
    assert_eq!(ledger.starts().len(), 2, "{:?}", ledger.lines());
}
