//! The soak: calls of all kinds under faults of all kinds, and an account of every one at the end.
//!
//! Several coordinators and workers, a random fault about every second, calls of 1 ms to 30 s of which
//! some are handed in twice and some cancelled. Everything random comes from one seed, but for the timing
//! of processes.

mod account;
mod clients;
mod faults;
mod plan;
mod seed;

pub use account::Report;
pub use plan::{Call, HarmKind, Plan};
pub use seed::Seed;

use crate::builder::Builder;
use crate::fleet::Fleet;
use crate::member::Member;
use crate::streams::Announcements;
use crate::wait::until;
use anyhow::Context as _;
use clients::{Doors, Heard};
use faults::Harm;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Calls that are open at the same time.
const OPEN_MAX: usize = 48;
/// How long what is queued may take to end once no harm is done any more: longer than the longest call,
/// run twice, with a lease time and an ack wait between.
const SETTLE: Duration = Duration::from_secs(150);

/// The script of the soak's programs: as the native tools, from their input alone.
const SCRIPT: &str = r#"
input=$(cat)
part() { printf %s "$input" | sed "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/"; }
ledger=$(part ledger)
note() { echo "$1 $TOOLFLEET_ATTEMPT $$ $TOOLFLEET_FENCE $(date +%s%3N)" >>"$ledger"; }
note start
sleep "$(part seconds)"
note end
printf %s "$TOOLFLEET_ATTEMPT"
"#;

/// A fleet for a soak.
pub fn fleet(worker_program: &Path, coordinators: usize, workers: usize) -> Builder {
    let builder = Fleet::builder().worker_program(worker_program);
    let builder = builder.coordinators(coordinators).workers(workers).slots(8);
    ["read", "idempotent", "write"].into_iter().fold(builder, |builder, effect| {
        let keys = format!("effect = \"{effect}\"\ntimeout = \"60s\"");
        builder.exec_tool(&format!("script-{effect}"), &keys, SCRIPT)
    })
}

/// Runs a plan on a fleet to its end and gives the account.
///
/// # Errors
/// Where the fleet cannot be handled; what calls came to is in the report.
pub async fn run(fleet: Fleet, plan: Plan) -> anyhow::Result<Report> {
    let mut fleet = fleet;
    let since = Instant::now();
    let announcements = Announcements::listen(fleet.broker()).await?;
    let ledgers = fleet.dir().join("soak");
    std::fs::create_dir(&ledgers)?;
    let doors = Doors::default();
    doors.open(&fleet)?;
    let calls = Arc::new(plan.calls());
    let clients = spawn_clients(&calls, &doors, &ledgers);
    let mut harm = Harm::new(plan.seed.branch("harm"), plan.harm);
    while since.elapsed() < plan.lasts && !clients.iter().all(tokio::task::JoinHandle::is_finished)
    {
        tokio::time::sleep(harm.pause()).await;
        harm.do_one(&mut fleet, &doors).await?;
    }
    Harm::repair(&fleet, &doors)?;
    let mut heard = Vec::with_capacity(calls.len());
    let settling = Instant::now();
    for client in clients {
        let left = SETTLE.saturating_sub(settling.elapsed()).max(Duration::from_millis(1));
        let answer = tokio::time::timeout(left, client).await;
        heard
            .push(answer.map_or(Ok(Heard::default()), |joined| joined).context("a client's task")?);
    }
    let rest = wait_for_rest(&fleet).await;
    let told = account::Told { calls: &calls, heard: &heard, ledgers: &ledgers, rest, harm: &harm };
    let report = account::report(&fleet, &announcements, &plan, told, since.elapsed()).await;
    if let Some(keep) = &plan.keep {
        keep_logs(&fleet, keep)?;
    }
    report
}

/// Copies the logs of all processes.
fn keep_logs(fleet: &Fleet, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    let members = fleet.coordinators.iter().chain(&fleet.workers).map(Member::log);
    for log in members.chain([fleet.nats.log(), fleet.redis.log()]) {
        let name = log.file_name().context("a log without a name")?;
        std::fs::copy(log, to.join(name))?;
    }
    Ok(())
}

fn spawn_clients(
    calls: &Arc<Vec<Call>>,
    doors: &Doors,
    ledgers: &Path,
) -> Vec<tokio::task::JoinHandle<Heard>> {
    let open = Arc::new(Semaphore::new(OPEN_MAX));
    let one = |number: usize| {
        let (calls, doors, open) = (Arc::clone(calls), doors.clone(), Arc::clone(&open));
        let ledgers = ledgers.to_path_buf();
        tokio::spawn(async move {
            let call = &calls[number];
            tokio::time::sleep(call.after).await;
            let _open = open.acquire().await;
            clients::hand_in(call, &doors, &ledgers).await
        })
    };
    (0..calls.len()).map(one).collect()
}

/// Waits until nothing is queued and no tool runs; says what is left where that does not come.
async fn wait_for_rest(fleet: &Fleet) -> account::Rest {
    let _ = until("nothing is left", SETTLE, async || {
        let rest = account::rest(fleet).await.ok()?;
        (rest.jobs == 0 && rest.processes.is_empty()).then_some(())
    })
    .await;
    account::rest(fleet).await.unwrap_or_default()
}
