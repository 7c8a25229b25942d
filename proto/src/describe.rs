//! Tools as `describe` shows them (CONTRACT 12.1): every value, and where it comes from.

use crate::bound::grouped;
use crate::descriptor::{Descriptor, ResultForm, Runner};
use crate::effect::Effect;
use crate::limit::Limits;
use crate::lock::{Lock, unpinned_text};
use crate::unit::describe_ms;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// One tool, with what is known of it on this machine.
#[derive(Clone, Debug)]
pub struct Described {
    /// What it is.
    pub descriptor: Descriptor,
    /// Hash of the descriptor.
    pub hash: String,
    /// The folder that is its namespace, where it lies in one.
    pub package: Option<String>,
    /// Its manifest; `None`: it is part of the program.
    pub file: Option<String>,
    /// Names of the secrets that it is given.
    pub secrets: Vec<String>,
    /// By key of the manifest: `tool` or `built in`. Empty where nothing says it.
    pub origins: BTreeMap<&'static str, &'static str>,
}

/// The tools of one pool, and what they are held against.
#[derive(Clone, Debug)]
pub struct Pool<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its tools, by name.
    pub tools: &'a [Described],
    /// The fleet's clocks.
    pub limits: &'a Limits,
    /// What may be offered, where there is a lock.
    pub lock: Option<&'a Lock>,
}

/// The keys of a manifest whose values have defaults: name, name in JSON, path.
pub const WITH_DEFAULTS: [(&str, &str, &[&str]); 7] = [
    ("effect", "effect", &["effect"]),
    ("timeout", "timeoutMs", &["timeout"]),
    ("queue_timeout", "queueTimeoutMs", &["queue_timeout"]),
    ("total_timeout", "totalTimeoutMs", &["total_timeout"]),
    ("max_attempts", "maxAttempts", &["max_attempts"]),
    ("max_result_size", "resultBytesMax", &["max_result_size"]),
    ("result", "result", &["run", "result"]),
];

/// What may go wrong with a sound tool in a fleet of these limits.
pub fn warnings(descriptor: &Descriptor, limits: &Limits) -> Vec<String> {
    let mut warnings = Vec::new();
    if descriptor.effect.needs_start_record(descriptor.rerun)
        && descriptor.timeout_ms > limits.drain_ms
    {
        warnings.push(format!(
            "a write may run {}, longer than the drain of {}: a deploy can end it as outcome_unknown",
            describe_ms(descriptor.timeout_ms),
            describe_ms(limits.drain_ms)
        ));
    }
    let whole_ms = descriptor.queue_timeout_ms.saturating_add(descriptor.total_timeout_ms);
    if whole_ms > limits.longest_call_ms {
        warnings.push(format!(
            "a call may take {}, longer than limits.longest_call of {}",
            describe_ms(whole_ms),
            describe_ms(limits.longest_call_ms)
        ));
    }
    warnings
}

impl Pool<'_> {
    fn warnings(&self, tool: &Described) -> Vec<String> {
        let name = &tool.descriptor.name;
        let mut warnings = warnings(&tool.descriptor, self.limits);
        if let Some(lock) = self.lock.filter(|lock| !lock.has(name, &tool.hash)) {
            warnings.push(unpinned_text(name, &tool.hash, &lock.pinned(name)));
        }
        warnings
    }

    /// `{"pool", "tools"}`, sizes in bytes and spans in milliseconds.
    pub fn json(&self) -> Value {
        let tools: Vec<Value> = self.tools.iter().map(|tool| self.tool_json(tool)).collect();
        json!({"pool": self.name, "tools": tools})
    }

    fn tool_json(&self, tool: &Described) -> Value {
        let descriptor = &tool.descriptor;
        let origins: Map<String, Value> = WITH_DEFAULTS
            .iter()
            .filter_map(|(key, json, _)| {
                tool.origins.get(key).map(|origin| ((*json).to_owned(), (*origin).into()))
            })
            .collect();
        let mut value = serde_json::to_value(descriptor).unwrap_or_default();
        if let Some(object) = value.as_object_mut() {
            object.insert("hash".into(), json!(tool.hash));
            object.insert("package".into(), json!(tool.package));
            object.insert("file".into(), json!(tool.file));
            object.insert("secrets".into(), json!(tool.secrets));
            object.insert("origins".into(), Value::Object(origins));
            let pinned = self.lock.map(|lock| lock.has(&descriptor.name, &tool.hash));
            object.insert("isPinned".into(), json!(pinned));
            object.insert("warnings".into(), json!(self.warnings(tool)));
        }
        value
    }

    /// A paragraph a tool, for people.
    pub fn text(&self) -> String {
        let mut lines = vec![format!("pool {}: {}", self.name, tools_counted(self.tools.len()))];
        for tool in self.tools {
            lines.push(String::new());
            lines.extend(self.paragraph(tool));
        }
        lines.join("\n")
    }

    fn paragraph(&self, tool: &Described) -> Vec<String> {
        let descriptor = &tool.descriptor;
        let first_line = descriptor.description.lines().next().unwrap_or_default();
        let mut rows = vec![
            ("effect", effect_words(descriptor.effect, descriptor.rerun), "effect"),
            ("runner", runner_words(&descriptor.runner), ""),
            ("result", result_words(descriptor.result).to_owned(), "result"),
            ("timeout", describe_ms(descriptor.timeout_ms), "timeout"),
            ("in the queue", describe_ms(descriptor.queue_timeout_ms), "queue_timeout"),
            ("attempts", descriptor.max_attempts.to_string(), "max_attempts"),
            ("all of them", describe_ms(descriptor.total_timeout_ms), "total_timeout"),
            ("bound", format!("{} bytes", grouped(descriptor.result_bytes_max)), "max_result_size"),
        ];
        let lists = [("secrets", &tool.secrets), ("tags", &descriptor.tags)];
        for (name, words) in lists {
            if !words.is_empty() {
                rows.push((name, words.join(", "), ""));
            }
        }
        if let Some(package) = &tool.package {
            rows.push(("package", package.clone(), ""));
        }
        rows.push(("hash", tool.hash.clone(), ""));
        let mut lines = vec![format!("{}: {first_line}", descriptor.name)];
        lines.extend(rows.into_iter().map(|(label, value, key)| match tool.origins.get(key) {
            Some(origin) => format!("  {label:<13}{value:<18}{origin}"),
            None => format!("  {label:<13}{value}"),
        }));
        lines.extend(self.warnings(tool).iter().map(|text| format!("  warning: {text}")));
        lines
    }
}

fn tools_counted(count: usize) -> String {
    if count == 1 { "1 tool".to_owned() } else { format!("{count} tools") }
}

fn effect_words(effect: Effect, rerun: bool) -> String {
    let rerun = if rerun { ", may run again" } else { "" };
    format!("{}{rerun}", effect.as_str())
}

fn runner_words(runner: &Runner) -> String {
    match runner {
        Runner::Native => runner.kind().to_owned(),
        Runner::Exec { command } => format!("{} {}", runner.kind(), command.join(" ")),
    }
}

fn result_words(form: ResultForm) -> &'static str {
    match form {
        ResultForm::Text => "text",
        ResultForm::Json => "json",
        ResultForm::Envelope => "envelope",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{self, Syntax};

    fn described(text: &str) -> Described {
        let read = |_: &str| Err("no file".to_owned());
        let manifest = manifest::parse("t/pay.toml", "pay", text, Syntax::Toml, &read).unwrap();
        Described {
            hash: manifest.descriptor.hash(),
            descriptor: manifest.descriptor,
            package: Some("bank".into()),
            file: Some("t/pay.toml".into()),
            secrets: manifest.secrets,
            origins: [("timeout", "tool"), ("max_attempts", "built in")].into(),
        }
    }

    const MANIFEST: &str = "description = \"Pays\"\ntimeout = \"40s\"\nsecrets = [\"KEY\"]\n\
                            [run]\nexec = [\"./pay\", \"--once\"]\n";

    #[test]
    fn values_come_with_their_origins_and_warnings() {
        let tools = [described(MANIFEST)];
        let lock = Lock::default();
        let pool =
            Pool { name: "web", tools: &tools, limits: &Limits::default(), lock: Some(&lock) };
        let text = pool.text();
        for line in [
            "pool web: 1 tool",
            "pay: Pays",
            "  effect       write",
            "  runner       exec ./pay --once",
            "  timeout      40 s              tool",
            "  attempts     3                 built in",
            "  bound        131,072 bytes",
            "  secrets      KEY",
            "  package      bank",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(text.contains("\n  warning: a write may run 40 s, longer than the drain of 30 s"));
        assert!(text.contains("\n  warning: the tool pay is not offered: version "), "{text}");
        let value = &pool.json()["tools"][0];
        assert_eq!(
            (&value["timeoutMs"], &value["resultBytesMax"]),
            (&json!(40_000), &json!(131_072))
        );
        assert_eq!(value["origins"], json!({"timeoutMs": "tool", "maxAttempts": "built in"}));
        assert_eq!((&value["secrets"], &value["isPinned"]), (&json!(["KEY"]), &json!(false)));
        assert_eq!(value["runner"], json!({"kind": "exec", "command": ["./pay", "--once"]}));
        assert_eq!(value["warnings"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn what_a_deploy_would_cut_and_what_outlives_the_retention_is_warned_of() {
        let descriptor = described(MANIFEST).descriptor;
        let roomy = Limits { drain_ms: 40_000, ..Limits::default() };
        assert_eq!(warnings(&descriptor, &roomy), Vec::<String>::new());
        let read = Descriptor { effect: Effect::Read, ..descriptor.clone() };
        assert_eq!(warnings(&read, &Limits::default()), Vec::<String>::new());
        let short = Limits { longest_call_ms: 1_000, ..roomy };
        assert!(
            warnings(&descriptor, &short)[0].contains("longer than limits.longest_call of 1 s")
        );
    }
}
