//! TOML and JSON as one tree whose nodes know their lines, so that both are checked by one text.

mod json;

use super::Syntax;
use serde_json::{Map, Number, Value};
use toml::de::{DeTable, DeValue};

/// Deepest nesting that is read. Dotted TOML keys nest without any bracket, and the walks here and
/// in the schema compiler recurse.
const DEPTH_MAX: usize = 100;

/// A value and where it stands.
#[derive(Debug, PartialEq)]
pub(super) struct Node {
    /// Line from 1.
    pub(super) line: u32,
    pub(super) kind: Kind,
}

#[derive(Debug, PartialEq)]
pub(super) enum Kind {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    /// What JSON cannot say: a TOML date, an infinite or huge number. Holds its kind.
    Alien(&'static str),
    List(Vec<Node>),
    Table(Vec<Member>),
}

/// A key of a table and its value.
#[derive(Debug, PartialEq)]
pub(super) struct Member {
    pub(super) key: String,
    /// Line of the key, from 1.
    pub(super) line: u32,
    pub(super) node: Node,
}

/// A text that cannot be read at all.
#[derive(Debug, PartialEq)]
pub(super) struct Problem {
    /// Line from 1.
    pub(super) line: u32,
    pub(super) message: String,
}

impl Node {
    /// The kind with its article, for messages.
    pub(super) fn kind_name(&self) -> &'static str {
        match &self.kind {
            Kind::Null => "null",
            Kind::Bool(_) => "a boolean",
            Kind::Number(_) => "a number",
            Kind::Text(_) => "a string",
            Kind::Alien(name) => name,
            Kind::List(_) => "a list",
            Kind::Table(_) => "a table",
        }
    }

    /// The value as JSON, the author's order kept.
    ///
    /// # Errors
    /// Line and kind of the first part that JSON cannot say.
    pub(super) fn to_value(&self) -> Result<Value, (u32, &'static str)> {
        Ok(match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(flag) => Value::Bool(*flag),
            Kind::Number(number) => Value::Number(number.clone()),
            Kind::Text(text) => Value::String(text.clone()),
            Kind::Alien(name) => return Err((self.line, name)),
            Kind::List(items) => {
                Value::Array(items.iter().map(Node::to_value).collect::<Result<_, _>>()?)
            }
            Kind::Table(members) => {
                let mut object = Map::new();
                for member in members {
                    object.insert(member.key.clone(), member.node.to_value()?);
                }
                Value::Object(object)
            }
        })
    }
}

/// The member of that name.
pub(super) fn find<'a>(members: &'a [Member], key: &str) -> Option<&'a Member> {
    members.iter().find(|member| member.key == key)
}

/// Reads a text. All that is wrong with its syntax comes back, at most one problem a line.
pub(super) fn read(text: &str, syntax: Syntax) -> Result<Node, Vec<Problem>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader { text, lines: Lines::of(text), problems: Vec::new() };
    let node = match syntax {
        Syntax::Toml => reader.toml(),
        Syntax::Json => reader.json(),
    };
    match node {
        Some(node) if reader.problems.is_empty() => Ok(node),
        _ => {
            if reader.problems.is_empty() {
                reader.problem(1, "not readable".into());
            }
            Err(reader.problems)
        }
    }
}

/// Where the lines of a text begin.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Lines {
        let after = text.match_indices('\n').map(|(offset, _)| offset + 1);
        Lines(std::iter::once(0).chain(after).collect())
    }

    fn at(&self, offset: usize) -> u32 {
        self.0.partition_point(|start| *start <= offset) as u32
    }
}

struct Reader<'a> {
    text: &'a str,
    lines: Lines,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn problem(&mut self, line: u32, message: String) {
        if self.problems.iter().all(|problem| problem.line != line) {
            self.problems.push(Problem { line, message });
        }
    }

    fn too_deep(&mut self, line: u32) {
        self.problem(line, format!("nested deeper than {DEPTH_MAX} levels"));
    }

    fn toml(&mut self) -> Option<Node> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        for error in errors {
            let line = error.span().map_or(1, |span| self.lines.at(span.start));
            self.problem(line, error.message().trim().replace('\n', ", "));
        }
        let root = DeValue::Table(table.into_inner());
        let node = self.toml_node(&root, 0, 0);
        dismantle(root);
        node
    }

    fn toml_node(&mut self, value: &DeValue<'_>, offset: usize, depth: usize) -> Option<Node> {
        let line = self.lines.at(offset);
        if depth > DEPTH_MAX {
            self.too_deep(line);
            return None;
        }
        let kind = match value {
            DeValue::String(text) => Kind::Text(text.to_string()),
            DeValue::Integer(integer) => {
                let (digits, radix) = (integer.as_str(), integer.radix());
                i64::from_str_radix(digits, radix)
                    .map(Number::from)
                    .or_else(|_| u64::from_str_radix(digits, radix).map(Number::from))
                    .map_or(Kind::Alien("an integer above 64 bits"), Kind::Number)
            }
            DeValue::Float(float) => {
                let number = float.as_str().parse().ok().and_then(Number::from_f64);
                number.map_or(Kind::Alien("a number that is not finite"), Kind::Number)
            }
            DeValue::Boolean(flag) => Kind::Bool(*flag),
            DeValue::Datetime(_) => Kind::Alien("a date or time"),
            DeValue::Array(items) => {
                let mut nodes = Vec::with_capacity(items.len());
                for item in items {
                    nodes.push(self.toml_node(item.get_ref(), item.span().start, depth + 1)?);
                }
                Kind::List(nodes)
            }
            DeValue::Table(table) => {
                let mut members = Vec::with_capacity(table.len());
                for (key, value) in table {
                    let node = self.toml_node(value.get_ref(), value.span().start, depth + 1)?;
                    let line = self.lines.at(key.span().start);
                    members.push(Member { key: key.get_ref().to_string(), line, node });
                }
                Kind::Table(members)
            }
        };
        Some(Node { line, kind })
    }
}

/// Drops a TOML value level by level: dropped as a whole, a long dotted key overflows the stack.
fn dismantle(root: DeValue<'_>) {
    let mut left = vec![root];
    while let Some(value) = left.pop() {
        match value {
            DeValue::Table(table) => {
                left.extend(table.into_iter().map(|(_, value)| value.into_inner()));
            }
            DeValue::Array(items) => {
                left.extend(items.into_iter().map(toml::Spanned::into_inner));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn table(node: &Node) -> &[Member] {
        match &node.kind {
            Kind::Table(members) => members,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn both_syntaxes_give_one_tree_in_the_authors_order() {
        let toml = "z = 1\na = [true, 1.5]\n[m]\nd.y = 'x'\nd.b = 0x10\n";
        let json = r#"{"z": 1, "a": [true, 1.5], "m": {"d": {"y": "x", "b": 16}}}"#;
        let from_toml = read(toml, Syntax::Toml).unwrap().to_value().unwrap();
        let from_json = read(json, Syntax::Json).unwrap().to_value().unwrap();
        assert_eq!(from_toml.to_string(), from_json.to_string());
        assert_eq!(from_json, json!({"z": 1, "a": [true, 1.5], "m": {"d": {"y": "x", "b": 16}}}));
    }

    #[test]
    fn keys_know_their_lines() {
        let node = read("\u{feff}a = 1\n\n[b]\nc = 2\n", Syntax::Toml).unwrap();
        let lines: Vec<u32> = table(&node).iter().map(|member| member.line).collect();
        assert_eq!(lines, [1, 3]);
        assert_eq!(table(&table(&node)[1].node)[0].line, 4);

        let node = read("{\n \"a\": 1,\n \"b\"\n :\n {\"c\":\n 2}}", Syntax::Json).unwrap();
        let lines: Vec<u32> = table(&node).iter().map(|member| member.line).collect();
        assert_eq!(lines, [2, 3]);
        assert_eq!(table(&table(&node)[1].node)[0].line, 5);
        assert_eq!(table(&table(&node)[1].node)[0].node.line, 6);
    }

    #[test]
    fn a_key_given_twice_is_a_problem_in_both() {
        let problems = read("{\"a\": 1,\n\"a\": 2}", Syntax::Json).unwrap_err();
        assert_eq!(problems[0].line, 2);
        let problems = read("a = 1\na = 2\n", Syntax::Toml).unwrap_err();
        assert_eq!(problems[0].line, 2);
    }

    #[test]
    fn depth_is_refused_and_never_overflows_the_stack() {
        let dotted = format!("{} = 1", vec!["a"; 100_000].join("."));
        assert!(read(&dotted, Syntax::Toml).is_err());
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let deep = format!("{}1{}", open.repeat(50_000), close.repeat(50_000));
            assert!(read(&deep, Syntax::Json).is_err());
            assert!(read(&format!("a = {deep}"), Syntax::Toml).is_err());
        }
        let edge = format!("{}1{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
        assert!(read(&edge, Syntax::Json).is_ok());
        assert!(read(&format!("[{edge}]"), Syntax::Json).is_err());
    }

    #[test]
    fn what_json_cannot_say_is_named() {
        let node = read("a = 1\nb = [2020-01-01]\n", Syntax::Toml).unwrap();
        assert_eq!(node.to_value(), Err((2, "a date or time")));
        for number in ["inf", "nan", "99999999999999999999"] {
            let node = read(&format!("a = {number}"), Syntax::Toml).unwrap();
            assert!(node.to_value().is_err(), "{number}");
        }
        let node = read("{\"a\": 99999999999999999999}", Syntax::Json).unwrap();
        assert_eq!(node.to_value(), Err((1, "an integer above 64 bits")));
        assert!(read("[18446744073709551615, -9223372036854775808, 1e30]", Syntax::Json).is_ok());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_has_a_problem(text in "[\\[\\]{}a-c=:,.\"' \n0-9#]{0,60}|.*") {
            for syntax in [Syntax::Toml, Syntax::Json] {
                if let Err(problems) = read(&text, syntax) {
                    prop_assert!(!problems.is_empty());
                }
            }
        }
    }
}
