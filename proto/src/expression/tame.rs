//! A parsed expression, checked and made to account for its work: what is compared, copied or put
//! together goes through [`COUNTED`], what a macro goes through through [`RANGE`].

use super::{DEPTH_MAX, INPUT, MACROS_MAX};
use crate::schema::path::shorten;
use cel::IdedExpr;
use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapExpr, SelectExpr,
    operators,
};
use cel::common::types::CelInt;
use regex::{Regex, RegexBuilder};

/// Takes the size of its argument off the allowance. No name that can be written.
pub(super) const COUNTED: &str = "@counted";
/// Takes what a macro will do off the allowance.
pub(super) const RANGE: &str = "@range";

/// Whether a text has what a pattern, told by its place, looks for. In place of [`MATCHES`].
pub(super) const MATCH: &str = "@match";

/// Largest pattern of `matches`, compiled, in bytes.
const PATTERN_BYTES_MAX: usize = 256 * 1_024;

/// What is done with single values, or with parts of what is there already: no work that grows.
const FREE: [&str; 10] = [
    operators::CONDITIONAL,
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::INDEX,
    operators::NEGATE,
    operators::NOT_STRICTLY_FALSE,
    "size",
    "type",
    "dyn",
];

/// The other operators and functions that there are.
const COUNTING: [&str; 21] = [
    operators::ADD,
    operators::SUBSTRACT,
    operators::MULTIPLY,
    operators::DIVIDE,
    operators::MODULO,
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::GREATER,
    operators::GREATER_EQUALS,
    operators::LESS,
    operators::LESS_EQUALS,
    operators::IN,
    "contains",
    "startsWith",
    "endsWith",
    "string",
    "bytes",
    "int",
    "uint",
    "double",
    "bool",
];

const MATCHES: &str = "matches";

/// Checks and rewrites; also gives the patterns that it has, compiled once. The error is a line for the
/// author.
pub(super) fn tame(root: IdedExpr) -> Result<(IdedExpr, Vec<Regex>), String> {
    let mut walk = Walk { scope: vec![INPUT.to_owned()], macros: 0, patterns: Vec::new() };
    let root = walk.expr(root, 0)?;
    Ok((root, walk.patterns))
}

struct Walk {
    /// Names that may be used here, the innermost last.
    scope: Vec<String>,
    macros: usize,
    patterns: Vec<Regex>,
}

impl Walk {
    fn expr(&mut self, node: IdedExpr, depth: usize) -> Result<IdedExpr, String> {
        if depth > DEPTH_MAX {
            return Err(format!("the expression is nested deeper than {DEPTH_MAX} levels"));
        }
        let IdedExpr { id, expr } = node;
        let expr = match expr {
            Expr::Literal(_) => expr,
            Expr::Ident(name) => {
                self.known(&name)?;
                Expr::Ident(name)
            }
            Expr::Select(select) => {
                let operand = Box::new(self.expr(*select.operand, depth + 1)?);
                Expr::Select(SelectExpr { operand, ..select })
            }
            Expr::Call(call) if call.func_name == MATCHES => self.matches(call, depth)?,
            Expr::Call(call) => Expr::Call(self.call(call, depth)?),
            Expr::List(list) => {
                let elements = list.elements.into_iter();
                let elements = elements.map(|element| self.counted(element, depth));
                Expr::List(ListExpr { elements: elements.collect::<Result<_, _>>()?, ..list })
            }
            Expr::Map(map) => Expr::Map(self.map(map, depth)?),
            Expr::Comprehension(comprehension) => {
                Expr::Comprehension(Box::new(self.comprehension(*comprehension, depth)?))
            }
            Expr::Struct(written) => {
                return Err(format!("there is no type `{}`", shorten(&written.type_name)));
            }
            Expr::Unspecified => return Err("a part of it is missing".to_owned()),
        };
        Ok(IdedExpr { id, expr })
    }

    fn known(&self, name: &str) -> Result<(), String> {
        if self.scope.iter().any(|known| known == name) {
            return Ok(());
        }
        Err(format!("there is no `{}`; the arguments are `{INPUT}`", shorten(name)))
    }

    /// An expression whose value is copied or looked through.
    fn counted(&mut self, node: IdedExpr, depth: usize) -> Result<IdedExpr, String> {
        let node = self.expr(node, depth + 1)?;
        Ok(if matches!(node.expr, Expr::Literal(_)) { node } else { call(COUNTED, vec![node]) })
    }

    fn call(&mut self, call: CallExpr, depth: usize) -> Result<CallExpr, String> {
        let CallExpr { func_name, target, args } = call;
        let is_free = FREE.contains(&func_name.as_str());
        if !is_free && !COUNTING.contains(&func_name.as_str()) {
            return Err(format!("there is no function `{}`", shorten(&func_name)));
        }
        // The step of `map`, `filter` and `exists_one`, which is done in place.
        let is_step = func_name == operators::ADD && args.first().is_some_and(is_own);
        let mut inner = |node| {
            if is_free || is_step { self.expr(node, depth + 1) } else { self.counted(node, depth) }
        };
        let target = target.map(|target| inner(*target)).transpose()?.map(Box::new);
        let args = args.into_iter().map(inner).collect::<Result<_, _>>()?;
        Ok(CallExpr { func_name, target, args })
    }

    /// `text.matches(pattern)` and `matches(text, pattern)`. The pattern is compiled here: at each call it
    /// would be the larger part of the work.
    fn matches(&mut self, written: CallExpr, depth: usize) -> Result<Expr, String> {
        let CallExpr { target, args, .. } = written;
        let parts: Vec<IdedExpr> = target.map(|target| *target).into_iter().chain(args).collect();
        let Ok([text, pattern]) = <[IdedExpr; 2]>::try_from(parts) else {
            return Err("`matches` takes a text and a pattern".to_owned());
        };
        let Expr::Literal(LiteralValue::String(pattern)) = &pattern.expr else {
            return Err("the pattern of `matches` must be written out".to_owned());
        };
        let compiled = RegexBuilder::new(pattern.inner()).size_limit(PATTERN_BYTES_MAX).build();
        self.patterns.push(compiled.map_err(|error| {
            let error = error.to_string();
            let line = error.lines().last().unwrap_or_default();
            format!(
                "the pattern {}: {}",
                shorten(pattern.inner()),
                line.trim_start_matches("error: ")
            )
        })?);
        let place = i64::try_from(self.patterns.len() - 1).unwrap_or(i64::MAX);
        let place = node(Expr::Literal(LiteralValue::Int(CelInt::from(place))));
        Ok(call(MATCH, vec![self.expr(text, depth + 1)?, place]).expr)
    }

    fn map(&mut self, map: MapExpr, depth: usize) -> Result<MapExpr, String> {
        let mut entries = Vec::with_capacity(map.entries.len());
        for mut entry in map.entries {
            match &mut entry.expr {
                EntryExpr::MapEntry(pair) => {
                    pair.key = self.counted(std::mem::take(&mut pair.key), depth)?;
                    pair.value = self.counted(std::mem::take(&mut pair.value), depth)?;
                }
                EntryExpr::StructField(_) => return Err("a field stands outside a type".to_owned()),
            }
            entries.push(entry);
        }
        Ok(MapExpr { entries })
    }

    fn comprehension(
        &mut self,
        comprehension: ComprehensionExpr,
        depth: usize,
    ) -> Result<ComprehensionExpr, String> {
        self.macros += 1;
        if self.macros > MACROS_MAX {
            return Err(format!("the expression has more than {MACROS_MAX} macros"));
        }
        let below = depth + 1;
        let iter_range = self.expr(comprehension.iter_range, below)?;
        let accu_init = self.expr(comprehension.accu_init, below)?;
        let outer = self.scope.len();
        self.scope.push(comprehension.accu_var.clone());
        let result = self.expr(comprehension.result, below)?;
        self.scope.push(comprehension.iter_var.clone());
        self.scope.extend(comprehension.iter_var2.clone());
        let loop_cond = self.expr(comprehension.loop_cond, below)?;
        let loop_step = self.expr(comprehension.loop_step, below)?;
        self.scope.truncate(outer);
        let steps = nodes(&loop_cond) + nodes(&loop_step);
        let steps = node(Expr::Literal(LiteralValue::Int(CelInt::from(steps))));
        Ok(ComprehensionExpr {
            iter_range: call(RANGE, vec![iter_range, steps]),
            accu_init,
            loop_cond,
            loop_step,
            result,
            ..comprehension
        })
    }
}

/// Whether it is what a macro gathers in, which cannot be written.
fn is_own(node: &IdedExpr) -> bool {
    matches!(&node.expr, Expr::Ident(name) if name.starts_with('@'))
}

fn node(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

fn call(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    node(Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }))
}

/// How many nodes an expression has; those of a macro inside are its own to count.
fn nodes(node: &IdedExpr) -> i64 {
    let inner: i64 = match &node.expr {
        Expr::Call(call) => {
            call.target.iter().map(|target| nodes(target)).sum::<i64>()
                + call.args.iter().map(nodes).sum::<i64>()
        }
        Expr::Select(select) => nodes(&select.operand),
        Expr::List(list) => list.elements.iter().map(nodes).sum(),
        Expr::Map(map) => map.entries.iter().map(|entry| entry_nodes(&entry.expr)).sum(),
        Expr::Comprehension(comprehension) => nodes(&comprehension.iter_range),
        _ => 0,
    };
    inner + 1
}

fn entry_nodes(entry: &EntryExpr) -> i64 {
    match entry {
        EntryExpr::MapEntry(pair) => nodes(&pair.key) + nodes(&pair.value),
        EntryExpr::StructField(field) => nodes(&field.value),
    }
}
