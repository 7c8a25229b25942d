//! Real processes: small shell scripts, each with a bounded wait.

mod start;

use super::*;
use crate::context::CallContext;
use crate::stop::Stop;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::TempDir;

/// No test may take longer.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Folders of one test: scratch root, and a place outside of it for scripts and notes.
struct Place {
    root: TempDir,
    notes: TempDir,
}

impl Place {
    fn new() -> Place {
        Place { root: tempfile::tempdir().unwrap(), notes: tempfile::tempdir().unwrap() }
    }

    fn note(&self, name: &str) -> PathBuf {
        self.notes.path().join(name)
    }

    /// An executable file of this content.
    fn file(&self, name: &str, content: &str) -> String {
        let path = self.note(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn exec(&self, words: &[&str]) -> Exec {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        guarded(Exec::new(words, self.root.path().to_owned()))
    }

    /// A shell script; `$1` is the folder for notes.
    fn script(&self, body: &str) -> Exec {
        let file = self.file("tool.sh", body);
        self.exec(&["/bin/sh", &file, self.notes.path().to_str().unwrap()])
    }

    fn is_clean(&self) -> bool {
        fs::read_dir(self.root.path()).unwrap().count() == 0
    }

    /// The process whose id a tool wrote to a note.
    fn pid(&self, name: &str) -> Option<u32> {
        fs::read_to_string(self.note(name)).ok()?.trim().parse().ok()
    }
}

/// Where the binaries were built before (`./dev test` does), every test here runs under the guard.
fn guarded(exec: Exec) -> Exec {
    match std::env::var_os("TOOLFLEET_TEST_BIN_DIR") {
        Some(dir) => exec.under(PathBuf::from(dir).join("toolfleet-guard")),
        None => exec,
    }
}

fn invocation(timeout_ms: u64) -> Invocation {
    Invocation {
        context: Arc::new(CallContext::default()),
        arguments: bytes::Bytes::from_static(b"{}"),
        timeout: Duration::from_millis(timeout_ms),
        kill_grace: Duration::from_millis(500),
        capture_bytes_max: 1_000_000,
        stop: Stop::new(),
        expiry: crate::runner::Expiry::at(u64::MAX),
        secrets: Vec::new(),
        last_words: crate::runner::LastWords::default(),
        reports: crate::reports::Reports::default(),
    }
}

async fn run(exec: &Exec, invocation: &Invocation) -> Ended {
    timeout(TEST_TIMEOUT, exec.run(invocation, None)).await.expect("bounded")
}

/// Waits until something holds; fails after `limit`.
async fn within(limit: Duration, mut holds: impl FnMut() -> bool) {
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    let probe = async {
        while !holds() {
            ticks.tick().await;
        }
    };
    timeout(limit, probe).await.expect("it holds in time");
}

/// Whether a process is gone, or a zombie that waits for a parent outside of this test.
fn is_gone(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    stat.rsplit(')').next().unwrap().trim_start().starts_with('Z')
}

fn output(ended: &Ended) -> String {
    match &ended.outcome {
        RunOutcome::Output(RawOutput::Captured { bytes, invalid_utf8_at: None, .. }) => {
            String::from_utf8(bytes.clone()).unwrap()
        }
        other => panic!("no output: {other:?}"),
    }
}

fn failure(ended: &Ended) -> &str {
    match &ended.outcome {
        RunOutcome::Failed { message, is_transient: false } => message,
        other => panic!("no failure: {other:?}"),
    }
}

fn start_refusal(ended: &Ended) -> &str {
    match &ended.outcome {
        RunOutcome::NotStarted { message } => message,
        other => panic!("started: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_input_meets_a_chatty_tool() {
    let place = Place::new();
    let exec = place.script("head -c 3145728 /dev/zero | tr '\\0' x; cat");
    let mut invocation = invocation(20_000);
    invocation.arguments = bytes::Bytes::from(vec![b'z'; 1_048_576]);
    invocation.capture_bytes_max = 100_000;
    let ended = run(&exec, &invocation).await;
    let RunOutcome::Output(RawOutput::Captured { bytes, whole_bytes, invalid_utf8_at }) =
        ended.outcome
    else {
        panic!("no output: {:?}", ended.outcome)
    };
    assert_eq!(bytes, vec![b'x'; 100_000]);
    assert_eq!(whole_bytes, 4 * 1_048_576);
    assert_eq!(invalid_utf8_at, None);
    assert!(place.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_reads_nothing_is_fine_or_times_out() {
    let place = Place::new();
    let mut long = invocation(20_000);
    long.arguments = bytes::Bytes::from(vec![b'z'; 1_048_576]);
    let ended = run(&place.script("printf '{\"ok\": true}'"), &long).await;
    assert_eq!(output(&ended), "{\"ok\": true}");
    long.timeout = Duration::from_millis(200);
    let ended = run(&place.script("exec sleep 60"), &long).await;
    assert!(matches!(ended.outcome, RunOutcome::TimedOut), "{:?}", ended.outcome);
    assert!(ended.duration < Duration::from_secs(10));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tools_that_read_nothing_end_well_at_the_same_time() {
    let place = Arc::new(Place::new());
    let exec = place.script("printf '{\"ok\": true}'");
    let runs = (0..60).map(|_| {
        let exec = exec.clone();
        tokio::spawn(async move {
            let mut invocation = invocation(25_000);
            invocation.arguments = bytes::Bytes::from(vec![b'z'; 1_048_576]);
            output(&run(&exec, &invocation).await)
        })
    });
    for run in runs.collect::<Vec<_>>() {
        assert_eq!(run.await.unwrap(), "{\"ok\": true}");
    }
    assert!(place.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_starts_with_a_broken_pipe_as_ever() {
    // This process ignores the signal, as every Rust program does; a tool must not.
    let place = Place::new();
    let exec = place.exec(&["grep", "SigIgn", "/proc/self/status"]);
    let output = output(&run(&exec, &invocation(9_000)).await);
    let mask = u64::from_str_radix(output.split_whitespace().last().unwrap(), 16).unwrap();
    assert_eq!(mask & (1 << 12), 0, "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_closes_its_outputs_still_gets_all_its_input() {
    let place = Place::new();
    let exec = place.script("exec >&- 2>&-; wc -c > \"$1/count\"");
    let mut invocation = invocation(20_000);
    invocation.arguments = bytes::Bytes::from(vec![b'z'; 1_048_576]);
    assert_eq!(output(&run(&exec, &invocation).await), "");
    assert_eq!(place.pid("count"), Some(1_048_576));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_names_the_code_and_the_end_of_stderr() {
    let place = Place::new();
    let exec = place.script("echo out; echo ' bad luck ' >&2; exit 3");
    let ended = run(&exec, &invocation(9_000)).await;
    assert_eq!(failure(&ended), "exited with code 3: bad luck");
    let ended = run(&place.script("exit 4"), &invocation(9_000)).await;
    assert_eq!(failure(&ended), "exited with code 4");
    let long = "head -c 20000 /dev/zero | tr '\\0' a >&2; echo end >&2; exit 1";
    let ended = run(&place.script(long), &invocation(9_000)).await;
    let message = failure(&ended);
    assert!(message.starts_with("exited with code 1: aaa"), "{message}");
    assert!(message.ends_with("aend"), "{message}");
    assert_eq!(message.len(), "exited with code 1: ".len() + 8 * 1024 - 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_code_75_is_a_failure_that_may_pass() {
    let place = Place::new();
    let ended =
        run(&place.script("echo 'the service is busy' >&2; exit 75"), &invocation(9_000)).await;
    let RunOutcome::Failed { message, is_transient: true } = &ended.outcome else {
        panic!("{:?}", ended.outcome)
    };
    assert_eq!(message, "exited with code 75: the service is busy");
}

#[tokio::test(flavor = "multi_thread")]
async fn death_by_a_signal_is_a_failure_whatever_was_printed() {
    let place = Place::new();
    for (signal, expected) in [
        ("KILL", "killed by signal 9 (SIGKILL): oops"),
        ("SEGV", "killed by signal 11 (SIGSEGV): oops"),
        ("TERM", "killed by signal 15 (SIGTERM): oops"),
        ("PIPE", "killed by signal 13 (SIGPIPE): oops"),
    ] {
        let body = format!("printf '{{\"status\": \"ok\"}}'; echo oops >&2; kill -s {signal} $$");
        let ended = run(&place.script(&body), &invocation(9_000)).await;
        assert_eq!(failure(&ended), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_kills_children_and_grandchildren() {
    let place = Place::new();
    // The grandchild does not hear TERM and holds no pipe of ours; the leader ends on TERM.
    let exec = place.script(
        "( ( trap '' TERM; sh -c 'echo $$ > \"$0/grandchild\"; exec sleep 60' \"$1\" ) & wait ) & \
         ( sh -c 'echo $$ > \"$0/deaf\"; trap \"\" TERM; while :; do sleep 1; done' \"$1\" ) & wait",
    );
    let ended = run(&exec, &invocation(1_000)).await;
    assert!(matches!(ended.outcome, RunOutcome::TimedOut), "{:?}", ended.outcome);
    assert!(ended.duration >= Duration::from_millis(1_000), "{:?}", ended.duration);
    for name in ["grandchild", "deaf"] {
        let pid = place.pid(name).expect("it was started");
        within(Duration::from_secs(3), || is_gone(pid)).await;
    }
    assert!(place.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_background_child_that_holds_the_pipe_costs_a_second() {
    let place = Place::new();
    let exec = place.script("sleep 60 & echo $! > \"$1/child\"; printf 'server started'");
    let ended = run(&exec, &invocation(20_000)).await;
    assert_eq!(output(&ended), "server started");
    assert!(ended.duration >= Duration::from_secs(1), "{:?}", ended.duration);
    assert!(ended.duration < Duration::from_secs(10), "{:?}", ended.duration);
    let pid = place.pid("child").unwrap();
    within(Duration::from_secs(3), || is_gone(pid)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_written_after_the_leader_has_gone_counts() {
    let place = Place::new();
    let exec = place.script("( sleep 0.2; echo tail ) & echo head");
    assert_eq!(output(&run(&exec, &invocation(20_000)).await), "head\ntail\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_sees_its_own_environment_and_an_empty_folder() {
    let place = Place::new();
    let exec = place.exec(&[
        "sh",
        "-c",
        "pwd; ls -A . | wc -l; cat \"$TOOLFLEET_CONTEXT\"; \
         echo; exec env",
    ]);
    let mut invocation = invocation(20_000);
    invocation.context = Arc::new(CallContext { turn: "t-1".into(), ..CallContext::default() });
    invocation.secrets = vec![("ISSUES_TOKEN".into(), "s3cret".into())];
    let output = output(&run(&exec, &invocation).await);
    let mut lines = output.lines();
    let folder = lines.next().unwrap();
    assert!(Path::new(folder).starts_with(place.root.path()), "{folder}");
    assert_eq!(lines.next().unwrap().trim(), "0");
    let context: serde_json::Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!(context["turn"], "t-1");
    let variables: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once('=')).collect();
    // What a shell sets by itself is not ours.
    let mut names: Vec<&str> = variables
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name))
        .collect();
    names.sort_unstable();
    let ours = environment::variables(&invocation.context, &invocation.secrets);
    let mut expected: Vec<&str> = ours.iter().map(|(name, _)| name.as_str()).collect();
    expected.extend(["HOME", "TMPDIR", "TOOLFLEET_CONTEXT"]);
    expected.sort_unstable();
    assert_eq!(names, expected);
    assert!(variables.contains(&("HOME", folder)) && variables.contains(&("TMPDIR", folder)));
    assert!(variables.contains(&("ISSUES_TOKEN", "s3cret")));
    assert!(place.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_has_no_descriptor_of_ours() {
    let place = Place::new();
    let _ours = fs::File::open(place.notes.path()).unwrap();
    // What this test's own process was started with, and would hand on to anybody.
    let is_handed_on = |entry: fs::DirEntry| {
        let info = fs::read_to_string(entry.path()).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = u32::from_str_radix(flags.trim(), 8).unwrap();
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        (flags & 0o2_000_000 == 0 && number > 2).then_some(number)
    };
    let entries = fs::read_dir("/proc/self/fdinfo").unwrap();
    let mut expected: BTreeSet<u32> = entries.flatten().filter_map(is_handed_on).collect();
    // 3 is the one that the tool may talk on.
    expected.extend([0, 1, 2, 3]);
    // The listing holds the folder that it lists.
    expected.extend((0..1_000).find(|number| !expected.contains(number)));
    let ended = run(&place.exec(&["ls", "/proc/self/fd"]), &invocation(20_000)).await;
    let numbers: BTreeSet<u32> = output(&ended).lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(numbers, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn scratch_is_removed_after_every_end() {
    let place = Place::new();
    let mess = "head -c 100000 /dev/zero > left.bin; mkdir -p ro/sub; : > ro/sub/f; \
                chmod -R a-w ro; : > \"$TMPDIR/left.tmp\"";
    for end in ["exit 0", "exit 1", "kill -9 $$", "sleep 60"] {
        let ended = run(&place.script(&format!("{mess}; {end}")), &invocation(1_000)).await;
        assert!(!matches!(ended.outcome, RunOutcome::NotStarted { .. }), "{:?}", ended.outcome);
        assert!(place.is_clean(), "{end}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_run_leaves_neither_process_nor_folder() {
    let place = Place::new();
    let exec = place.script("sleep 60 & echo $! > \"$1/child\"; echo $$ > \"$1/leader\"; wait");
    let invocation = invocation(20_000);
    tokio::select! {
        ended = exec.run(&invocation, None) => panic!("ended by itself: {ended:?}"),
        () = within(Duration::from_secs(10), || place.pid("leader").is_some()) => {}
    }
    let pids = [place.pid("child").unwrap(), place.pid("leader").unwrap()];
    let limit = Duration::from_secs(3);
    within(limit, || pids.iter().all(|pid| is_gone(*pid)) && place.is_clean()).await;
    // The leader is our child: it must not stay as a zombie either.
    within(limit, || !Path::new(&format!("/proc/{}", pids[1])).exists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_is_not_utf8_is_located_in_the_whole() {
    let place = Place::new();
    let exec = place.script("printf 'a\\303'; sleep 0.1; printf '\\251b'; printf '\\377c'");
    let mut invocation = invocation(9_000);
    invocation.capture_bytes_max = 2;
    let ended = run(&exec, &invocation).await;
    let RunOutcome::Output(captured) = ended.outcome else { panic!("{:?}", ended.outcome) };
    let expected =
        RawOutput::Captured { bytes: b"a\xc3".to_vec(), whole_bytes: 6, invalid_utf8_at: Some(4) };
    assert_eq!(captured, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_signal_lets_the_tool_end_in_order() {
    let place = Place::new();
    let exec = place.script(
        "trap 'echo done > \"$1/ended\"; echo late; exit 0' TERM; : > \"$1/ready\"; \
         while :; do sleep 0.05; done",
    );
    let mut invocation = invocation(20_000);
    invocation.kill_grace = Duration::from_secs(10);
    let stop = async {
        within(Duration::from_secs(10), || place.note("ready").exists()).await;
        invocation.stop.fire(StopReason::Cancelled("changed my mind".into()));
    };
    let (ended, ()) = tokio::join!(run(&exec, &invocation), stop);
    let RunOutcome::Stopped(reason) = &ended.outcome else { panic!("{:?}", ended.outcome) };
    assert_eq!(*reason, StopReason::Cancelled("changed my mind".into()));
    assert!(place.note("ended").exists(), "the trap has run");
    assert!(ended.duration < Duration::from_secs(8), "the grace is not waited out");
    assert!(place.is_clean());
}
