use super::*;
use std::os::unix::fs::{PermissionsExt as _, symlink};

fn write(dir: &Path, name: &str, text: &str) {
    fs::write(dir.join(name), text).unwrap();
}

fn manifest(program: &str) -> String {
    format!("description = \"D\"\n[run]\nexec = [\"{program}\"]\n")
}

fn codes(faults: &[Fault]) -> Vec<(&str, &'static str, Option<u32>)> {
    let name = |fault: &'_ Fault| fault.file.rfind('/').map_or(0, |at| at + 1);
    faults.iter().map(|fault| (&fault.file[name(fault)..], fault.code, fault.line)).collect()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn paths_start_at_the_manifests_folder() {
    let resolve = |list: &[&str]| resolve_command(Path::new("/t"), &words(list));
    assert_eq!(resolve(&["./a.py", "--x", "b/c"]), ["/t/a.py", "--x", "b/c"]);
    assert_eq!(resolve(&["bin/a", "./d/", "../e"]), ["/t/bin/a", "/t/d/", "/t/../e"]);
    assert_eq!(resolve(&["/bin/sh", "-c", "a/b"]), ["/bin/sh", "-c", "a/b"]);
    assert_eq!(resolve(&["python3", "./x.py"]), ["python3", "/t/x.py"]);
    assert!(resolve(&[]).is_empty());
}

#[test]
fn manifests_are_found_by_name_and_other_files_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    write(path, "b.toml", &manifest("sh"));
    write(path, "a.json", r#"{"description": "D", "run": {"exec": ["/bin/sh"]}}"#);
    write(path, ".hidden.toml", "not read");
    write(path, "b.sh", "not read");
    fs::create_dir(path.join("empty.toml")).unwrap();
    fs::create_dir(path.join("..data")).unwrap();
    write(&path.join("..data"), "c.toml", &manifest("sh"));
    symlink("..data/c.toml", path.join("c.toml")).unwrap();
    let tools = read(path, &Rules::default()).unwrap();
    let names: Vec<_> = tools.iter().map(|t| t.manifest.descriptor.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert!(tools.iter().all(|tool| tool.folder == path));
}

#[test]
fn a_schema_of_a_manifest_is_no_manifest() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    write(path, "a.toml", &format!("input = \"./in.json\"\n{}", manifest("sh")));
    write(path, "in.json", r#"{"type": "object"}"#);
    let json = r#"{"description": "D", "output": "out.json", "run": {"exec": ["sh"]}}"#;
    write(path, "b.json", json);
    write(path, "out.json", r#"{"type": "string"}"#);
    let names: Vec<_> = read(path, &Rules::default())
        .unwrap()
        .into_iter()
        .map(|tool| tool.manifest.descriptor.name)
        .collect();
    assert_eq!(names, ["a", "b"]);

    write(path, "loose.json", r#"{"type": "object"}"#);
    assert!(
        codes(&read(path, &Rules::default()).unwrap_err())
            .iter()
            .all(|(file, ..)| *file == "loose.json")
    );
}

#[test]
fn a_manifest_that_names_itself_is_not_lost() {
    let dir = tempfile::tempdir().unwrap();
    let json = r#"{"description": "D", "bogus": 1, "input": "a.json", "run": {"exec": ["sh"]}}"#;
    write(dir.path(), "a.json", json);
    let faults = read(dir.path(), &Rules::default()).unwrap_err();
    assert!(codes(&faults).contains(&("a.json", "manifest.unknown-key", Some(1))));
}

#[test]
fn the_programs_are_looked_for_at_load() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    write(path, "plain.sh", "#!/bin/sh\n");
    fs::set_permissions(path.join("plain.sh"), fs::Permissions::from_mode(0o644)).unwrap();
    write(path, "good.sh", "#!/bin/sh\n");
    fs::set_permissions(path.join("good.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    for (name, text) in [
        ("bare", "echo hi\n"),
        ("lost", "#!no-such-interpreter\necho hi\n"),
        ("env", "#!/usr/bin/env no-such-program\n"),
        ("dos", "#!/bin/sh\r\n"),
        ("well", "#!/usr/bin/env -S A=1 sh -e\n"),
    ] {
        write(path, name, text);
        fs::set_permissions(path.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    for (name, program) in [
        ("a", "./plain.sh"),
        ("b", "./gone.sh"),
        ("c", "no-such-program-anywhere"),
        ("d", "/no/such/program"),
        ("e", ".."),
        ("f", "./good.sh"),
        ("g", "sh"),
        ("h", "./bare"),
        ("i", "./lost"),
        ("j", "./env"),
        ("k", "./dos"),
        ("l", "./well"),
    ] {
        write(path, &format!("{name}.toml"), &manifest(program));
    }
    assert_eq!(
        codes(&read(path, &Rules::default()).unwrap_err()),
        [
            ("a.toml", "exec.not-executable", Some(3)),
            ("b.toml", "exec.not-found", Some(3)),
            ("c.toml", "exec.not-found", Some(3)),
            ("d.toml", "exec.not-found", Some(3)),
            ("e.toml", "exec.not-found", Some(3)),
            ("h.toml", "exec.no-interpreter", Some(3)),
            ("i.toml", "exec.no-interpreter", Some(3)),
            ("j.toml", "exec.no-interpreter", Some(3)),
            ("k.toml", "exec.no-interpreter", Some(3)),
        ]
    );
}

#[test]
fn all_faults_of_all_files_come_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    write(path, "a.toml", "timeout = 1\n[run]\nexec = [\"sh\"]\n");
    write(path, "a.json", r#"{"description": "D", "run": {"exec": ["sh"]}}"#);
    symlink("gone", path.join("b.toml")).unwrap();
    fs::write(path.join("c.toml"), b"\xff").unwrap();
    fs::write(path.join("d.toml"), vec![b'#'; MANIFEST_BYTES_MAX + 10]).unwrap();
    write(path, "e.toml", &manifest("sh"));
    assert_eq!(
        codes(&read(path, &Rules::default()).unwrap_err()),
        [
            ("a.json", "tool.duplicate-name", None),
            ("a.toml", "manifest.missing", None),
            ("a.toml", "tool.duplicate-name", None),
            ("a.toml", "units.missing", Some(1)),
            ("b.toml", "manifest.unreadable", None),
            ("c.toml", "manifest.unreadable", None),
            ("d.toml", "manifest.too-large", None),
        ]
    );
}

#[test]
fn a_missing_folder_is_a_fault_and_an_empty_one_is_fine() {
    let dir = tempfile::tempdir().unwrap();
    assert!(read(dir.path(), &Rules::default()).unwrap().is_empty());
    let faults = read(&dir.path().join("gone"), &Rules::default()).unwrap_err();
    assert_eq!(codes(&faults), [("gone", "manifest.folder", None)]);
}

#[test]
fn a_folder_is_a_namespace() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let crm = path.join("crm");
    fs::create_dir_all(crm.join("deeper")).unwrap();
    fs::create_dir(path.join(".git")).unwrap();
    write(&path.join(".git"), "x.toml", "not read");
    write(&crm.join("deeper"), "x.toml", "not read");
    write(&crm, "find.toml", &format!("input = \"find.json\"\n{}", manifest("./find.sh")));
    write(&crm, "find.json", r#"{"type": "object"}"#);
    write(&crm, "find.sh", "#!/bin/sh\n");
    fs::set_permissions(crm.join("find.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(path.join("schemas")).unwrap();
    write(path, "a.toml", &format!("input = \"schemas/in.json\"\n{}", manifest("sh")));
    write(&path.join("schemas"), "in.json", r#"{"type": "object"}"#);
    let found = look(path, &Rules::default());
    assert!(found.faults.is_empty(), "{:?}", found.faults);
    let names: Vec<_> = found.tools.iter().map(|t| t.manifest.descriptor.name.as_str()).collect();
    assert_eq!(names, ["a", "crm_find"]);
    assert_eq!(found.tools[1].folder, crm);

    // The same name by another way, and a package whose name no tool may have.
    write(path, "crm_find.json", r#"{"description": "D", "run": {"exec": ["sh"]}}"#);
    fs::create_dir(path.join("my crm")).unwrap();
    write(&path.join("my crm"), "b.toml", &manifest("sh"));
    let found = look(path, &Rules::default());
    assert_eq!(
        codes(&found.faults),
        [
            ("find.toml", "tool.duplicate-name", None),
            ("crm_find.json", "tool.duplicate-name", None),
            ("b.toml", "tool.name-invalid", None),
        ]
    );
    assert_eq!(found.tools.len(), 1, "the sound ones are given beside the faults");
}

#[test]
fn a_schema_that_two_manifests_name_has_its_faults_once() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        let text = format!("input = \"in.json\"\n{}", manifest("sh"));
        write(dir.path(), &format!("{name}.toml"), &text);
    }
    write(dir.path(), "in.json", "{\"type\": \"objekt\"}");
    let found = look(dir.path(), &Rules::default());
    assert_eq!(
        codes(&found.faults),
        [("in.json", "tool.input-not-object", Some(1)), ("in.json", "schema.invalid", None)]
            .into_iter()
            .rev()
            .collect::<Vec<_>>()
    );
}
