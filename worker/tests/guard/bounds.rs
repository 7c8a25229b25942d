//! The bounds that a guard sets for its tool.

use super::*;

/// A script under the guard within these bounds, as nobody where this test is root: root may raise what
/// is hard, and its processes are not counted.
fn within_bounds(limits: &[&str], words: &[&str]) -> (String, Option<(u32, i32)>) {
    let (folder, line, report) = lay();
    open_to_all(&folder);
    let line = OpenOptions::new().read(true).write(true).open(line).unwrap();
    let (_copy, program) = open_copy(GUARD);
    let mut command = Command::new(program);
    command.arg(folder.path().join("line")).arg(folder.path().join("report"));
    command.args(limits).arg("--").args(words);
    // Nobody may look into every folder of this test's own path.
    command.process_group(0).current_dir(folder.path()).env("PATH", "/usr/bin:/bin");
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    unprivileged(&mut command);
    let guard = spawn(&mut command, &line, HOUR_MS);
    let mut guarded = Guarded { folder, line: Some(line), report, guard };
    let output = guarded.output();
    (output, guarded.end().1)
}

#[test]
fn bounds_hold_for_the_tool_and_all_below_it_and_cannot_be_raised() {
    let limits = ["memory=268435456", "cpu_time=7", "open_files=30", "file_size=4096"];
    let script = "ulimit -Hv; ulimit -Sn; ulimit -Hn; ulimit -f; ulimit -St; ulimit -Ht; \
                  sh -c 'ulimit -Hn'; ulimit -n 31 2>/dev/null || echo kept; ls -A; exit 3";
    let (output, report) = within_bounds(&limits, &["/bin/sh", "-c", script]);
    // In blocks of 1,024 and of 512 bytes. No file of the start is left.
    assert_eq!(output, "262144\n30\n30\n8\n7\n8\n30\nkept\n");
    assert_eq!(report, Some((ENDED, 3 << 8)));
}

#[test]
fn a_tool_over_a_bound_dies_of_its_signal_and_the_guard_does_not() {
    let spin = ["/bin/sh", "-c", "while :; do :; done"];
    assert_eq!(within_bounds(&["cpu_time=1"], &spin).1, Some((ENDED, 24)));
    // One that takes the signal has a second more.
    let deaf = ["/bin/sh", "-c", "trap '' XCPU; while :; do :; done"];
    assert_eq!(within_bounds(&["cpu_time=1"], &deaf).1, Some((ENDED, 9)));
    // The report is longer than what the tool may write.
    let fill = ["/bin/sh", "-c", "exec head -c 100000 /dev/zero > big"];
    assert_eq!(within_bounds(&["file_size=5"], &fill).1, Some((ENDED, 25)));
    // Fewer processes than this user has already.
    let fork = ["/bin/sh", "-c", "( : ) 2>/dev/null; echo started; exit 4"];
    let (output, report) = within_bounds(&["processes=1"], &fork);
    assert_ne!(report, Some((ENDED, 4 << 8)), "{output}");
}

#[test]
fn what_does_not_start_within_bounds_is_reported_by_its_error_number() {
    for (program, errno) in [("/no/such", 2), ("no-such-program", 2), ("/bin", 13)] {
        let (_, report) = within_bounds(&["open_files=64"], &[program]);
        assert_eq!(report, Some((NOT_STARTED, errno)), "{program}");
    }
    // A bound that the guard does not know is none that it may forget.
    let (folder, line, _) = lay();
    let _line = OpenOptions::new().read(true).write(true).open(line).unwrap();
    let mut guard = Command::new(GUARD);
    guard.arg(folder.path().join("line")).arg(folder.path().join("report"));
    guard.args(["stack=1", "--", "/bin/sh"]).process_group(0).stderr(Stdio::null());
    assert_eq!(guard.status().unwrap().code(), Some(2));
}
