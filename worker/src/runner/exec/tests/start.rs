//! Starts, and what cannot be started.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_started_says_why() {
    let place = Place::new();
    let bad_shebang = place.file("bad.sh", "#!no-such-interpreter\necho hi\n");
    let plain = place.file("plain", "echo hi\n");
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
    let folder = place.notes.path().to_str().unwrap();
    for (program, reason) in [
        ("/no/such/program", "not found"),
        ("no-such-program", "not found"),
        (bad_shebang.as_str(), "no interpreter"),
        (plain.as_str(), "not executable"),
        (folder, "not executable"),
    ] {
        let ended = run(&place.exec(&[program]), &invocation(9_000)).await;
        assert_eq!(start_refusal(&ended), format!("could not start {program}: {reason}"));
        assert!(place.is_clean());
    }
    assert!(start_refusal(&run(&place.exec(&[]), &invocation(9_000)).await).contains("empty"));
    let no_root = Exec::new(vec!["true".into()], PathBuf::from(&plain).join("root"));
    let ended = run(&no_root, &invocation(9_000)).await;
    assert!(start_refusal(&ended).starts_with("could not make a scratch folder: "));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_removes_its_own_folder_harms_no_other() {
    let place = Place::new();
    let ended = run(&place.script("rm -rf \"$HOME\"; printf gone"), &invocation(9_000)).await;
    assert_eq!(output(&ended), "gone");
    let ended = run(&place.exec(&["ls"]), &invocation(9_000)).await;
    assert_eq!(output(&ended), "");
    assert!(place.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_program_file_is_waited_for_but_not_for_ever() {
    let place = Place::new();
    let program = place.file("busy.sh", "#!/bin/sh\necho hi\n");
    let writer = fs::OpenOptions::new().append(true).open(&program).unwrap();
    let (exec, invocation) = (place.exec(&[&program]), invocation(9_000));
    let began = Instant::now();
    let ended = run(&exec, &invocation).await;
    assert_eq!(start_refusal(&ended), format!("could not start {program}: text file busy"));
    assert!(began.elapsed() >= Duration::from_millis(500));
    // The first attempt comes when the attempt's folder is there; only then is the file released.
    let release = async {
        within(Duration::from_secs(5), || !place.is_clean()).await;
        drop(writer);
    };
    let (ended, ()) = tokio::join!(run(&exec, &invocation), release);
    assert_eq!(output(&ended), "hi\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_before_the_start_starts_nothing() {
    let place = Place::new();
    let exec = place.script(": > \"$1/started\"");
    for (reason, is_timeout) in [(StopReason::LeaseLost, false), (StopReason::TimedOut, true)] {
        let invocation = invocation(9_000);
        invocation.stop.fire(reason);
        let ended = run(&exec, &invocation).await;
        assert_eq!(matches!(ended.outcome, RunOutcome::TimedOut), is_timeout);
        assert_eq!(
            matches!(ended.outcome, RunOutcome::Stopped(StopReason::LeaseLost)),
            !is_timeout
        );
        assert!(!place.note("started").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn freshly_written_programs_start_in_parallel() {
    let place = Arc::new(Place::new());
    let runs = (0..32).map(|number| {
        let place = Arc::clone(&place);
        tokio::spawn(async move {
            let program = place.file(&format!("fresh-{number}"), "#!/bin/sh\nprintf ok\n");
            let ended = run(&place.exec(&[&program]), &invocation(20_000)).await;
            output(&ended)
        })
    });
    for run in runs.collect::<Vec<_>>() {
        assert_eq!(run.await.unwrap(), "ok");
    }
    assert!(place.is_clean());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_tool_spends_on_descriptor_3_is_recorded_before_its_end() {
    let dir = tempfile::tempdir().expect("a folder");
    let line =
        r#"{"type":"spend","service":"search","amount":"0.0025","currency":"USD","unit":"calls"}"#;
    let script = format!("echo '{line}' >&3; echo 'not json' >&3; echo done");
    let exec =
        guarded(Exec::new(vec!["sh".into(), "-c".into(), script], dir.path().join("scratch")));
    let (spend, mut records) =
        crate::spend::Spend::new(toolfleet_proto::wire::SpendRecord::default());
    let ended = exec.run(&super::invocation(5_000), Some(spend)).await;
    assert!(matches!(ended.outcome, RunOutcome::Output(_)), "{ended:?}");
    let record = records.try_recv().expect("a record");
    assert_eq!((record.amount_nano, record.currency.as_str()), (2_500_000, "USD"));
    assert!(records.try_recv().is_err());
}
