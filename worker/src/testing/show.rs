//! A call as `toolfleet-worker test` shows it: for people, and as JSON.

use super::{OutputCheck, TestRun, TestTool};
use crate::spend::Amount;
use serde::Serialize;
use serde_json::value::RawValue;
use toolfleet_proto::bound::grouped;
use toolfleet_proto::unit::describe_ms;

fn ms(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Sections for people.
pub(super) fn text(tool: &TestTool, run: &TestRun) -> String {
    let mut out = vec![head(tool)];
    match &run.input {
        Ok(given) => block(&mut out, "input: fits; the tool gets", given),
        Err(refusal) => block(&mut out, "input: does not fit, the tool was not run", refusal),
    }
    if run.input.is_ok() {
        out.push(run_line(run));
    }
    if let Some(process) = run.process.as_ref().filter(|process| !process.stderr.is_empty()) {
        block(&mut out, "standard error, its end", &process.stderr);
    }
    if let Some(output) = &run.output {
        let head = format!("output: {} bytes, {}", grouped(run.output_bytes), check_words(run));
        block(&mut out, &head, output);
    }
    for amount in &run.spend {
        out.push(format!("spend: {}", spend_words(amount)));
    }
    match &run.model_reads {
        Some(text) => {
            let cut = if run.is_truncated {
                format!(", cut to its bound, {} bytes kept", grouped(run.kept_bytes))
            } else {
                String::new()
            };
            let code = run.code.map_or_else(String::new, |code| format!(", {code}"));
            block(&mut out, &format!("the model reads{code}{cut}"), text);
        }
        None => out.push("the model reads nothing yet: another worker would run the call".into()),
    }
    out.join("\n")
}

fn head(tool: &TestTool) -> String {
    let descriptor = &tool.tool.descriptor;
    format!(
        "{}: {}, {}, timeout {}, bound {} bytes, hash {}",
        descriptor.name,
        descriptor.effect.as_str(),
        descriptor.runner.kind(),
        describe_ms(descriptor.timeout_ms),
        grouped(descriptor.result_bytes_max),
        tool.tool.hash.get(..12).unwrap_or_default(),
    )
}

fn run_line(run: &TestRun) -> String {
    let how = match &run.process {
        Some(process) if process.how.is_empty() => "stopped, ".to_owned(),
        Some(process) => format!("ended with {}, ", process.how),
        None => String::new(),
    };
    format!("run: {how}{}", describe_ms(ms(run.duration)))
}

/// A heading and a text below it, indented.
fn block(out: &mut Vec<String>, heading: &str, text: &str) {
    if text.is_empty() {
        out.push(format!("{heading}: nothing"));
        return;
    }
    out.push(format!("{heading}:"));
    out.extend(text.lines().map(|line| format!("  {line}")));
}

fn check_words(run: &TestRun) -> &'static str {
    match run.output_check {
        OutputCheck::Fits => "fits the output schema",
        OutputCheck::NotDeclared => "no output schema to check it by",
        OutputCheck::Faulty(_) => "faulty",
        OutputCheck::NotChecked => "larger than what is kept to be checked",
    }
}

fn spend_words(amount: &Amount) -> String {
    let quantity = match (amount.quantity.as_str(), amount.unit.as_str()) {
        ("", "") => String::new(),
        (quantity, unit) => format!(" for {quantity} {unit}").trim_end().to_owned(),
    };
    format!("{} {} to {}{quantity}", amount.amount, amount.currency, amount.service)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    tool: &'a str,
    runner: &'static str,
    effect: &'static str,
    hash: &'a str,
    ok: bool,
    code: Option<&'static str>,
    input: Input<'a>,
    run: Run<'a>,
    output: Option<Output<'a>>,
    spend: Vec<Spent<'a>>,
    model: Option<Model<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Input<'a> {
    ok: bool,
    given: Option<Box<RawValue>>,
    issues: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Run<'a> {
    duration_ms: u64,
    timeout_ms: u64,
    exit: Option<&'a str>,
    stderr: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Output<'a> {
    text: &'a str,
    bytes: u64,
    check: &'static str,
    issues: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spent<'a> {
    service: &'a str,
    amount: &'a str,
    currency: &'a str,
    quantity: &'a str,
    unit: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Model<'a> {
    text: &'a str,
    is_error: bool,
    is_truncated: bool,
    kept_bytes: u64,
    result_bytes_max: u64,
}

/// One JSON object, on one line.
pub(super) fn json(tool: &TestTool, run: &TestRun) -> String {
    let descriptor = &tool.tool.descriptor;
    let (check, issues) = match &run.output_check {
        OutputCheck::Fits => ("fits", None),
        OutputCheck::NotDeclared => ("not_declared", None),
        OutputCheck::Faulty(issues) => ("faulty", Some(issues.as_str())),
        OutputCheck::NotChecked => ("not_checked", None),
    };
    let shown = Shown {
        tool: &descriptor.name,
        runner: descriptor.runner.kind(),
        effect: descriptor.effect.as_str(),
        hash: &tool.tool.hash,
        ok: run.is_ok(),
        code: run.code,
        input: Input {
            ok: run.input.is_ok(),
            given: run
                .input
                .as_ref()
                .ok()
                .and_then(|text| RawValue::from_string(text.clone()).ok()),
            issues: run.input.as_ref().err().map(String::as_str),
        },
        run: Run {
            duration_ms: ms(run.duration),
            timeout_ms: descriptor.timeout_ms,
            exit: run.process.as_ref().map(|process| process.how.as_str()),
            stderr: run.process.as_ref().map(|process| process.stderr.as_str()),
        },
        output: run.output.as_ref().map(|text| Output {
            text,
            bytes: run.output_bytes,
            check,
            issues,
        }),
        spend: run.spend.iter().map(spent).collect(),
        model: run.model_reads.as_ref().map(|text| Model {
            text,
            is_error: run.code.is_some(),
            is_truncated: run.is_truncated,
            kept_bytes: run.kept_bytes,
            result_bytes_max: descriptor.result_bytes_max,
        }),
    };
    serde_json::to_string(&shown).unwrap_or_default()
}

fn spent(amount: &Amount) -> Spent<'_> {
    Spent {
        service: &amount.service,
        amount: &amount.amount,
        currency: &amount.currency,
        quantity: &amount.quantity,
        unit: &amount.unit,
    }
}
