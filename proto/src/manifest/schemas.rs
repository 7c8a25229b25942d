//! `[input]` and `[output]`: the JSON Schema itself, or the path of a JSON file beside the manifest.

use super::fault::Faults;
use super::tree::{self, Kind, Member, Node};
use super::value::wrong_kind;
use super::{ReadBeside, Syntax, text_fits};
use crate::checks::{self, Finding};
use serde_json::{Map, Value};

/// Which of the two schemas.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Input,
    Output,
}

/// Reads and compiles the schema that a member holds or names.
pub(super) fn read(
    member: &Member,
    side: Side,
    read_beside: ReadBeside<'_>,
    faults: &mut Faults<'_>,
) -> Option<Value> {
    match &member.node.kind {
        Kind::Table(_) | Kind::Bool(_) => {
            let file = faults.file().to_owned();
            check(&member.node, &file, member, side, faults)
        }
        Kind::Text(path) => {
            let (file, node) = read_file(path, member, read_beside, faults)?;
            check(&node, &file, member, side, faults)
        }
        _ => {
            let example = format!("{} = \"schema.json\"", member.key);
            wrong_kind(member, "a JSON Schema or the path of one", &example, faults);
            None
        }
    }
}

/// Reads the file that a member names. Gives the name to report it by, and its content.
fn read_file(
    path: &str,
    member: &Member,
    read_beside: ReadBeside<'_>,
    faults: &mut Faults<'_>,
) -> Option<(String, Node)> {
    let Some(path) = inside(path) else {
        faults.at(
            member.line,
            "manifest.path",
            format!(
                "`{}` names `{path}`, which is not a file of the manifest's folder",
                member.key
            ),
            "name a JSON file beside the manifest by its relative path, without `..`",
        );
        return None;
    };
    let text = match read_beside(&path) {
        Ok(text) => text,
        Err(error) => {
            faults.at(
                member.line,
                "manifest.path",
                format!("`{}` names `{path}`, which cannot be read: {error}", member.key),
                "put the file beside the manifest, or correct the path",
            );
            return None;
        }
    };
    let file = sibling(faults.file(), &path);
    if let Err(message) = text_fits(&text) {
        faults.beside(&file, None, "manifest.too-large", message, "shorten the schema");
        return None;
    }
    match tree::read(&text, Syntax::Json) {
        Ok(node) => Some((file, node)),
        Err(problems) => {
            for problem in problems {
                let mend = "correct the JSON at this line";
                let line = Some(problem.line);
                faults.beside(&file, line, "manifest.syntax", problem.message, mend);
            }
            None
        }
    }
}

/// The path without `.` parts, if it stays in the folder.
fn inside(path: &str) -> Option<String> {
    let is_odd = |part: &&str| *part == ".." || part.contains(['\\', '\0']);
    if path.starts_with('/') || path.ends_with('/') || path.split('/').any(|part| is_odd(&part)) {
        return None;
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.is_empty() { None } else { Some(parts.join("/")) }
}

/// The name of a file beside another one.
fn sibling(file: &str, path: &str) -> String {
    match file.rsplit_once('/') {
        Some((folder, _)) => format!("{folder}/{path}"),
        None => path.to_owned(),
    }
}

fn check(
    node: &Node,
    file: &str,
    member: &Member,
    side: Side,
    faults: &mut Faults<'_>,
) -> Option<Value> {
    // A schema in the manifest is reported at its key, one in a file at the file.
    let line = if file == faults.file() { Some(member.line) } else { None };
    let type_line = match &node.kind {
        Kind::Table(members) => tree::find(members, "type").map_or(node.line, |found| found.line),
        // `true` and `false` are schemas too.
        Kind::Bool(_) => node.line,
        _ => {
            let message =
                format!("the schema of `{}` is {}, not an object", member.key, node.kind_name());
            faults.beside(file, line, "manifest.type", message, "write a JSON Schema object");
            return None;
        }
    };
    let value = match node.to_value() {
        Ok(value) => value,
        Err((line, kind)) => {
            faults.beside(
                file,
                Some(line),
                "manifest.type",
                format!("`{}` holds {kind}, which JSON cannot say", member.key),
                "write a string, or keep the schema in a JSON file",
            );
            return None;
        }
    };
    let before = faults.count();
    if side == Side::Input && !checks::may_be_object(&value) {
        let Finding { code, message, mend } = checks::not_an_object();
        faults.beside(file, Some(type_line), code, message, mend);
    }
    if let Some(Finding { code, message, mend }) = checks::compiled(&member.key, &value) {
        faults.beside(file, line, code, message, mend);
    }
    // Everything that shows or follows a schema can then take it for an object.
    let value = if value == Value::Bool(true) { Value::Object(Map::new()) } else { value };
    (faults.count() == before).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_inside_the_folder_are_taken() {
        assert_eq!(inside("a.json").as_deref(), Some("a.json"));
        assert_eq!(inside("./schemas//a.json").as_deref(), Some("schemas/a.json"));
        for path in ["", ".", "./", "/etc/passwd", "../a.json", "a/../../b.json", "a\\b", "a/"] {
            assert_eq!(inside(path), None, "{path}");
        }
        assert_eq!(sibling("tools/a.toml", "b.json"), "tools/b.json");
        assert_eq!(sibling("a.toml", "b.json"), "b.json");
    }
}
