//! The account at the end of a soak: what each call did, what its result says, and what is left.

use super::clients::Heard;
use super::faults::Harm;
use super::plan::{Call, Kind, Plan};
use crate::fleet::Fleet;
use crate::ledger::Ledger;
use crate::streams::{Announcements, messages, subjects};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;
use toolfleet_proto::name::CallName;
use toolfleet_proto::wire::{self, CallResult, NEVER_STARTED};

/// Clocks of tools and of the fleet may be so far apart.
const CLOCKS_APART_MS: i64 = 100;
/// Violations that a report names.
const NAMED_MAX: usize = 20;

/// What is left when everything should be over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rest {
    pub(crate) jobs: usize,
    pub(crate) leases: usize,
    pub(crate) processes: Vec<u32>,
}

/// What a soak came to.
#[derive(Clone, Debug)]
pub struct Report {
    seed: u64,
    calls: usize,
    took: Duration,
    harm: BTreeMap<&'static str, u64>,
    outcomes: BTreeMap<String, u64>,
    cancels: BTreeMap<String, u64>,
    runs: usize,
    run_again: usize,
    excused: u64,
    cancel_delivery_ms: Vec<i64>,
    repaired: BTreeMap<&'static str, usize>,
    rest: Rest,
    /// Calls that ended because nobody took them in time: rare, and worth a look.
    late: Vec<String>,
    violations: Vec<String>,
}

impl Report {
    /// Promises that were broken; empty where all held.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    fn delivery_ms(&self, of_hundred: usize) -> i64 {
        let last = self.cancel_delivery_ms.len().saturating_sub(1);
        self.cancel_delivery_ms.get(last * of_hundred / 100).copied().unwrap_or(0)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |counts: &mut dyn Iterator<Item = (String, u64)>| {
            counts.map(|(what, count)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
        };
        let owned = |counts: &BTreeMap<&'static str, u64>| {
            list(&mut counts.iter().map(|(what, count)| ((*what).to_owned(), *count)))
        };
        writeln!(f, "seed      {}", self.seed)?;
        writeln!(f, "calls     {} in {:.0} s", self.calls, self.took.as_secs_f64())?;
        writeln!(f, "faults    {}: {}", self.harm.values().sum::<u64>(), owned(&self.harm))?;
        writeln!(f, "outcomes  {}", list(&mut self.outcomes.clone().into_iter()))?;
        writeln!(f, "cancels   {}", list(&mut self.cancels.clone().into_iter()))?;
        let (p50, p99) = (self.delivery_ms(50), self.delivery_ms(99));
        let delivered = self.cancel_delivery_ms.len();
        writeln!(f, "delivered {delivered} cancels to running tools: p50 {p50} ms, p99 {p99} ms")?;
        writeln!(
            f,
            "runs      {}; {} calls ran more than once, none of them a write",
            self.runs, self.run_again
        )?;
        if self.excused > 0 {
            let excused = self.excused;
            writeln!(
                f,
                "excused   {excused} reads that a store which had forgotten them said never to start"
            )?;
        }
        let repaired = self.repaired.iter().map(|(what, count)| format!("{count} {what}"));
        writeln!(f, "repaired  {}", repaired.collect::<Vec<_>>().join(", "))?;
        let Rest { jobs, leases, processes } = &self.rest;
        writeln!(f, "left      {jobs} jobs, {leases} leases, {} processes", processes.len())?;
        if !self.late.is_empty() {
            writeln!(f, "late      {}", self.late.join(", "))?;
        }
        writeln!(f, "broken    {}", self.violations.len())?;
        self.violations.iter().take(NAMED_MAX).try_for_each(|what| writeln!(f, "  {what}"))
    }
}

/// What the auditors mended, by their log lines: their counters end with them.
fn repaired(fleet: &Fleet) -> BTreeMap<&'static str, usize> {
    let logs = fleet.coordinators.iter().map(|member| member.log());
    let logs: Vec<String> =
        logs.map(|log| std::fs::read_to_string(log).unwrap_or_default()).collect();
    let count = |sign: &str| logs.iter().map(|log| log.matches(sign).count()).sum();
    [
        ("stranded jobs", "a stranded job was published again"),
        ("consumers ahead", "the consumer is ahead of its stream"),
        ("overdue calls", "ended an overdue call"),
    ]
    .map(|(what, sign)| (what, count(sign)))
    .into()
}

/// What is left now.
pub(crate) async fn rest(fleet: &Fleet) -> anyhow::Result<Rest> {
    let jobs = subjects(fleet.broker(), &fleet.broker().prefix().jobs_stream(), ">").await?;
    let mut redis = fleet.redis_connection().await?;
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg(format!("{}:x:*", fleet.broker().prefix().as_str()))
        .query_async(&mut redis)
        .await?;
    let mut leases = 0;
    for key in keys {
        let held: Option<String> = redis::cmd("GET").arg(&key).query_async(&mut redis).await?;
        leases += usize::from(held.is_some_and(|held| held != "done"));
    }
    Ok(Rest { jobs: jobs.len(), leases, processes: tool_processes(fleet.dir()) })
}

/// Processes whose command names a script of this fleet.
fn tool_processes(dir: &Path) -> Vec<u32> {
    let tools = dir.join("tools").to_string_lossy().into_owned();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).into_owned();
        if command.contains(&tools) && command.contains("script-") {
            found.push(pid);
        }
    }
    found
}

/// One line of a soak's ledger.
struct Noted {
    is_start: bool,
    fence: u64,
    at_ms: i64,
}

fn noted(ledger: &Ledger) -> Vec<Noted> {
    let read = |line: &String| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [what, _attempt, _pid, fence, at_ms] = words[..] else { return None };
        Some(Noted {
            is_start: what == "start",
            fence: fence.parse().ok()?,
            at_ms: at_ms.parse().ok()?,
        })
    };
    ledger.lines().iter().filter_map(read).collect()
}

/// What came in while the soak ran.
pub(crate) struct Told<'a> {
    pub(crate) calls: &'a [Call],
    pub(crate) heard: &'a [Heard],
    pub(crate) ledgers: &'a Path,
    pub(crate) rest: Rest,
    pub(crate) harm: &'a Harm,
}

pub(crate) async fn report(
    fleet: &Fleet,
    announcements: &Announcements,
    plan: &Plan,
    told: Told<'_>,
    took: Duration,
) -> anyhow::Result<Report> {
    let stream = fleet.broker().prefix().results_stream();
    let counts = subjects(fleet.broker(), &stream, ">").await?;
    let mut results = BTreeMap::new();
    for message in messages(fleet.broker(), &stream, ">").await? {
        results.insert(message.subject.to_string(), wire::read_result(&message.payload)?);
    }
    let mut report = Report {
        seed: plan.number,
        calls: told.calls.len(),
        took,
        harm: told.harm.done.clone(),
        outcomes: BTreeMap::new(),
        cancels: BTreeMap::new(),
        runs: 0,
        run_again: 0,
        excused: 0,
        cancel_delivery_ms: Vec::new(),
        repaired: repaired(fleet),
        rest: told.rest.clone(),
        late: Vec::new(),
        violations: Vec::new(),
    };
    for (call, heard) in told.calls.iter().zip(told.heard) {
        let name = CallName::direct("default", &call.execution, "main", &call.id);
        let subject = fleet.broker().prefix().result(&name);
        let stored = counts.get(&subject).copied().unwrap_or_default();
        let one = One {
            call,
            heard,
            result: results.get(&subject),
            lines: noted(&Ledger::at(told.ledgers.join(&call.id))),
        };
        if stored != 1 {
            report.broken(call, format!("{stored} results are stored"));
        }
        one.judge(told.harm.store_losses() > 0, &mut report);
        if plan.harm.is_gentle() {
            one.judge_gentle(&mut report);
        }
    }
    if counts.len() > told.calls.len() {
        report.violations.push(format!("{} results of {} calls", counts.len(), told.calls.len()));
    }
    for name in announcements.doubled() {
        report.violations.push(format!("{name}: its result was announced twice"));
    }
    if told.rest.jobs > 0 {
        report.violations.push(format!("{} jobs are left in the queue", told.rest.jobs));
    }
    if !told.rest.processes.is_empty() {
        report.violations.push(format!("processes are left: {:?}", told.rest.processes));
    }
    report.cancel_delivery_ms.sort_unstable();
    Ok(report)
}

impl Report {
    fn broken(&mut self, call: &Call, what: String) {
        self.violations.push(format!("{} ({}, {} ms): {what}", call.id, call.tool, call.ms));
    }
}

/// One call, with everything that is known of it.
struct One<'a> {
    call: &'a Call,
    heard: &'a Heard,
    result: Option<&'a CallResult>,
    lines: Vec<Noted>,
}

impl One<'_> {
    fn starts(&self) -> usize {
        self.lines.iter().filter(|line| line.is_start).count()
    }

    fn judge(&self, has_store_lost: bool, report: &mut Report) {
        let starts = self.starts();
        report.runs += starts;
        report.run_again += usize::from(starts > 1);
        if self.call.kind == Kind::Write && starts > 1 {
            report.broken(self.call, format!("a write started {starts} times"));
        }
        if self.heard.answers.is_empty() {
            report.broken(self.call, format!("no answer: {:?}", self.heard.refused));
        }
        let Some(result) = self.result else { return };
        *report.outcomes.entry(result.code.clone()).or_default() += 1;
        if ["queue_timed_out", "timed_out", "no_worker"].contains(&result.code.as_str()) {
            report.late.push(format!("{} {} {}", self.call.id, self.call.tool, result.code));
        }
        self.judge_answers(result, report);
        self.judge_start_state(result, has_store_lost, report);
        self.judge_holder(result, report);
        let cancel = result.cancel.filter(|cancel| cancel.delivered_at_ms > 0);
        if let Some(cancel) = cancel.filter(|cancel| cancel.requested_at_ms > 0) {
            report.cancel_delivery_ms.push(cancel.delivered_at_ms - cancel.requested_at_ms);
        }
    }

    /// Where nothing was killed, a call that is shorter than a drain (5 s in tests) ends well, or cancelled
    /// by whoever cancelled it, and runs once.
    fn judge_gentle(&self, report: &mut Report) {
        let Some(result) = self.result.filter(|_| self.call.ms < 4_500) else { return };
        let is_cancelled = result.code == "cancelled" && self.call.cancel_after.is_some();
        if result.code != "ok" && !is_cancelled {
            report.broken(self.call, format!("it ended {} though nothing failed", result.code));
        }
        if self.starts() > 1 {
            report.broken(
                self.call,
                format!("it started {} times though nothing failed", self.starts()),
            );
        }
    }

    /// Everybody reads the one stored result.
    fn judge_answers(&self, result: &CallResult, report: &mut Report) {
        for answer in &self.heard.answers {
            let code = answer["code"].as_str().unwrap_or("ok");
            if code != result.code {
                report
                    .broken(self.call, format!("a caller read {code}, stored is {}", result.code));
            }
        }
        if result.code == "ok" && !self.lines.iter().any(|line| !line.is_start) {
            report.broken(self.call, "it ended well and never ran to its end".to_owned());
        }
        if let Some(said) = &self.heard.cancel {
            *report.cancels.entry(said.clone()).or_default() += 1;
            let is_cancelled = result.code == "cancelled";
            if (said == "never_started" || said == "may_have_started") && !is_cancelled {
                report.broken(self.call, format!("cancelled ({said}), stored is {}", result.code));
            }
        }
    }

    /// What is said never to have started did not start.
    fn judge_start_state(&self, result: &CallResult, has_store_lost: bool, report: &mut Report) {
        let is_said = result.start_state == NEVER_STARTED
            || self.heard.cancel.as_deref() == Some("never_started");
        if !is_said || self.starts() == 0 {
            return;
        }
        if self.call.kind != Kind::Write && has_store_lost {
            // G4: for a read it is wrong only where the store lost its data while it was claimed.
            report.excused += 1;
        } else {
            report.broken(self.call, "it was said never to start, and started".to_owned());
        }
    }

    /// A verdict is stored by nobody whose successor had started before.
    fn judge_holder(&self, result: &CallResult, report: &mut Report) {
        let is_verdict = ["cancelled", "timed_out", "tool_crashed"].contains(&result.code.as_str());
        let Some(attempt) = result.attempt.as_ref().filter(|_| is_verdict) else { return };
        let successor = self.lines.iter().find(|line| {
            line.is_start
                && line.fence > attempt.fence
                && line.at_ms + CLOCKS_APART_MS < result.stored_at_ms
        });
        if let Some(successor) = successor {
            let (fence, later) = (attempt.fence, successor.fence);
            report.broken(self.call, format!("a stale holder ({fence} before {later}) judged it"));
        }
    }
}
