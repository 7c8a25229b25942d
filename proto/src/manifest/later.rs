//! The keys that may be absent without a trace: checked whole and kept in the descriptor, also those
//! whose work comes later, so that what obeys them needs nothing but to turn them on (CONTRACT 1.1).

use super::effect::Effects;
use super::fault::Faults;
use super::run::Run;
use super::tables;
use super::tree::{self, Kind, Member};
use super::value::{
    address, bytes, count, expression, flag, known_keys, not_yet, over_input, span_ms, table, text,
    texts, wrong_kind,
};
use crate::checks;
use crate::declared::{
    CanUse, Declared, DryRunResult, Enabled, LIMIT_COUNT_MAX, ProcessLimits, Retry, TRIES_DEFAULT,
    TRIES_MAX,
};
use crate::descriptor::ResultForm;
use crate::effect::Effect;
use crate::money::{self, Money};
use crate::schema::Schema;
use serde_json::Value;

/// Reads them all. What is faulty is left out; the faults say so.
pub(super) fn read(
    members: &[Member],
    effects: &Effects,
    input: Option<&Value>,
    output: Output<'_>,
    run: Option<&Run>,
    faults: &mut Faults<'_>,
) -> Declared {
    let member = |key: &str| tree::find(members, key);
    let declared = Declared {
        effect_expr: effects.expression.clone(),
        retry: member("retry").and_then(|member| retry(member, effects, faults)),
        time_args: member("time_args")
            .map(|member| time_args(member, input, faults))
            .unwrap_or_default(),
        dry_run_result: member("dry_run_result")
            .and_then(|member| dry_run_result(member, output, faults)),
        limits: member("limits").and_then(|member| limits(member, faults)),
        roles: member("roles").map(|member| roles(member, faults)).unwrap_or_default(),
        ability: member("ability").and_then(|member| text(member, faults)),
        enabled: member("enabled").map(|member| enabled(member, faults)).unwrap_or_default(),
        can_use: member("can_use").and_then(|member| can_use(member, faults)),
        channel: member("channel").and_then(|member| text(member, faults)),
        confirm: member("confirm").and_then(|member| flag(member, faults)).unwrap_or(false),
        preflight: member("preflight")
            .and_then(|member| preflight(member, effects, faults))
            .unwrap_or(false),
        cost: member("cost").and_then(|member| cost(member, faults)),
        weight: member("weight").and_then(|member| weight(member, faults)),
        warm: run.is_some_and(|run| run.is_warm),
        verify: run.and_then(|run| run.verify.clone()),
    };
    if let Some(line) = run.and_then(|run| run.verify_line)
        && (effects.are_never_writes() || tree::find(members, "rerun").is_some_and(is_true))
    {
        faults.at(
            line,
            "tool.verify-invalid",
            "`verify` is for writes that do not run again",
            "remove it: this tool runs again by itself",
        );
    }
    declared
}

fn is_true(member: &Member) -> bool {
    member.node.kind == Kind::Bool(true)
}

fn retry(member: &Member, effects: &Effects, faults: &mut Faults<'_>) -> Option<Retry> {
    const CODE: &str = "tool.retry-invalid";
    let members = table(member, faults)?;
    known_keys(members, tables::RETRY, "retry", faults);
    let tries = tree::find(members, "tries").map_or(Some(u64::from(TRIES_DEFAULT)), |inner| {
        count(inner, 1..=u64::from(TRIES_MAX), CODE, faults)
    });
    let wait_max_ms = match tree::find(members, "wait_max") {
        Some(inner) => Some(span_ms(inner, CODE, faults)?),
        None => None,
    };
    if effects.is_always(Effect::Write) {
        let message = "`retry` is for `read` and `idempotent` tools: a write runs once";
        faults.at(member.line, CODE, message, "remove it, or declare the tool's `effect`");
    }
    Some(Retry { tries: u32::try_from(tries?).ok()?, wait_max_ms })
}

/// Names of properties that the input's schema has. `input` is `None` after a fault of its own.
fn time_args(member: &Member, input: Option<&Value>, faults: &mut Faults<'_>) -> Vec<String> {
    let schema = input.and_then(|schema| Schema::compile(schema).ok());
    let mut names = Vec::new();
    for (line, name) in texts(member, "[\"until\"]", faults).unwrap_or_default() {
        let finding = checks::time_arg(&name, schema.as_ref());
        if finding.is_some() {
            faults.finding(Some(line), finding);
        } else if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// How an output is read, and what it must fit.
#[derive(Clone, Copy)]
pub(super) struct Output<'a> {
    pub(super) form: ResultForm,
    pub(super) schema: Option<&'a Value>,
}

fn dry_run_result(
    member: &Member,
    output: Output<'_>,
    faults: &mut Faults<'_>,
) -> Option<DryRunResult> {
    if let Kind::Table(members) = &member.node.kind
        && matches!(members.as_slice(), [only] if only.key == "expr")
    {
        return over_input(member, faults).map(|found| DryRunResult::Expr(found.expr));
    }
    match member.node.to_value() {
        Ok(value) => {
            let finding = checks::dry_run_result(&value, output.form, output.schema);
            let is_sound = finding.is_none();
            faults.finding(Some(member.line), finding);
            is_sound.then_some(DryRunResult::Value(value))
        }
        Err((line, kind)) => {
            let message = format!("`dry_run_result` holds {kind}, which JSON cannot say");
            faults.at(line, "manifest.type", message, "write a string");
            None
        }
    }
}

fn limits(member: &Member, faults: &mut Faults<'_>) -> Option<ProcessLimits> {
    const CODE: &str = "tool.limits-invalid";
    let members = table(member, faults)?;
    known_keys(members, tables::LIMITS, "limits", faults);
    let found = |key: &str| tree::find(members, key);
    Some(ProcessLimits {
        memory_bytes: found("memory").and_then(|inner| bytes(inner, CODE, faults)),
        cpu_time_ms: found("cpu_time").and_then(|inner| span_ms(inner, CODE, faults)),
        processes: found("processes")
            .and_then(|inner| count(inner, 1..=LIMIT_COUNT_MAX, CODE, faults)),
        open_files: found("open_files")
            .and_then(|inner| count(inner, 1..=LIMIT_COUNT_MAX, CODE, faults)),
        file_size_bytes: found("file_size").and_then(|inner| bytes(inner, CODE, faults)),
    })
}

fn roles(member: &Member, faults: &mut Faults<'_>) -> Vec<String> {
    let mut roles: Vec<String> = Vec::new();
    let Some(named) = texts(member, "[\"admin\"]", faults) else { return roles };
    if named.is_empty() {
        let mend = "name a role, or remove the key so that all may call the tool";
        faults.at(member.line, "manifest.type", "`roles` names no role", mend);
    }
    for (line, role) in named {
        if role.trim().is_empty() {
            faults.at(line, "manifest.type", "a role is empty", "remove it");
        } else if !roles.contains(&role) {
            roles.push(role);
        }
    }
    roles
}

/// Only `true` works yet.
fn enabled(member: &Member, faults: &mut Faults<'_>) -> Enabled {
    let later = |faults: &mut Faults<'_>| {
        not_yet(member.line, "`enabled` with another value than `true`", faults);
    };
    match &member.node.kind {
        Kind::Bool(true) => Enabled::On,
        Kind::Bool(false) => {
            later(faults);
            Enabled::Off
        }
        Kind::Table(members) => {
            later(faults);
            known_keys(members, tables::SWITCH, "enabled", faults);
            match (tree::find(members, "flag"), tree::find(members, "env")) {
                (Some(inner), None) => text(inner, faults).map(Enabled::Flag),
                (None, Some(inner)) => text(inner, faults).map(Enabled::Env),
                _ => {
                    let message = "`enabled` names not exactly one of `flag` and `env`";
                    let mend = "write `{ flag = \"…\" }` or `{ env = \"…\" }`";
                    faults.at(member.line, "manifest.type", message, mend);
                    None
                }
            }
            .unwrap_or_default()
        }
        _ => {
            wrong_kind(member, "a boolean", "enabled = true", faults);
            Enabled::On
        }
    }
}

fn can_use(member: &Member, faults: &mut Faults<'_>) -> Option<CanUse> {
    if let Kind::Table(members) = &member.node.kind
        && let Some(inner) = tree::find(members, "webhook")
    {
        known_keys(members, tables::WEBHOOK, "can_use", faults);
        return address(inner, faults).map(CanUse::Webhook);
    }
    expression(member, faults).map(|found| CanUse::Expr(found.expr))
}

fn preflight(member: &Member, effects: &Effects, faults: &mut Faults<'_>) -> Option<bool> {
    let is_wanted = flag(member, faults)?;
    if is_wanted && effects.is_always(Effect::Read) {
        let message = "`preflight` is not for a `read`, which changes nothing";
        faults.at(member.line, "tool.preflight-invalid", message, "remove it");
    }
    Some(is_wanted)
}

fn cost(member: &Member, faults: &mut Faults<'_>) -> Option<Money> {
    const MEND: &str = "write an amount with its currency, as in `cost = \"0.05 USD\"`";
    match &member.node.kind {
        Kind::Text(text) => match money::parse_money(text) {
            Ok(cost) => return Some(cost),
            Err(error) => {
                let code = match error.code() {
                    "units.missing" => "units.missing",
                    _ => "tool.cost-invalid",
                };
                faults.at(member.line, code, format!("`cost`: {error}"), MEND);
            }
        },
        Kind::Number(number) => {
            let message = format!("`cost` is the bare number {number}");
            faults.at(member.line, "units.missing", message, MEND);
        }
        _ => wrong_kind(member, "an amount in quotes", "cost = \"0.05 USD\"", faults),
    }
    None
}

/// Only 1 works yet, which is what an absent one means.
fn weight(member: &Member, faults: &mut Faults<'_>) -> Option<u32> {
    let number = match &member.node.kind {
        Kind::Number(number) => number.as_u64().and_then(|weight| u32::try_from(weight).ok()),
        _ => None,
    };
    match number {
        Some(1) => None,
        Some(weight) if weight > 1 => {
            not_yet(member.line, "`weight` with another value than 1", faults);
            Some(weight)
        }
        _ => {
            wrong_kind(member, "a whole number from 1", "weight = 1", faults);
            None
        }
    }
}
