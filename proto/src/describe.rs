//! Tools as `describe` shows them (CONTRACT 12.1): every value, and where it comes from.

use crate::bound::grouped;
use crate::checks;
use crate::descriptor::{Descriptor, ResultForm, Runner};
use crate::effect::Effect;
use crate::isolation::{Isolation, Level};
use crate::layers::Origins;
use crate::limit::Limits;
use crate::lock::{Lock, unpinned_text};
use crate::unit::describe_ms;
use serde_json::{Value, json};

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
    /// Where its values come from.
    pub origins: Origins,
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
    /// How far its programs are shut in.
    pub isolation: Isolation,
    /// What this machine's kernel can do of it.
    pub kernel: Level,
}

impl Pool<'_> {
    fn warnings(&self, tool: &Described) -> Vec<String> {
        let name = &tool.descriptor.name;
        let found = checks::warnings(&tool.descriptor, self.limits);
        let mut warnings: Vec<String> = found.into_iter().map(|finding| finding.message).collect();
        if let Some(lock) = self.lock.filter(|lock| !lock.has(name, &tool.hash)) {
            warnings.push(unpinned_text(name, &tool.hash, &lock.pinned(name)));
        }
        warnings
    }

    /// `{"pool", "isolation": {"setting", "level"}, "tools"}`, sizes in bytes and spans in milliseconds.
    pub fn json(&self) -> Value {
        let tools: Vec<Value> = self.tools.iter().map(|tool| self.tool_json(tool)).collect();
        let reached = self.isolation.reached(self.kernel);
        let isolation = json!({"setting": self.isolation, "level": reached});
        json!({"pool": self.name, "isolation": isolation, "tools": tools})
    }

    fn tool_json(&self, tool: &Described) -> Value {
        let descriptor = &tool.descriptor;
        let from = &tool.origins;
        let origins = json!({
            "effect": from.effect,
            "result": from.result,
            "timeoutMs": from.timeout,
            "queueTimeoutMs": from.queue_timeout,
            "totalTimeoutMs": from.total_timeout,
            "maxAttempts": from.max_attempts,
            "resultBytesMax": from.max_result_size,
        });
        let mut value = serde_json::to_value(descriptor).unwrap_or_default();
        if let Some(object) = value.as_object_mut() {
            object.insert("hash".into(), json!(tool.hash));
            object.insert("package".into(), json!(tool.package));
            object.insert("file".into(), json!(tool.file));
            object.insert("secrets".into(), json!(tool.secrets));
            object.insert("origins".into(), origins);
            let pinned = self.lock.map(|lock| lock.has(&descriptor.name, &tool.hash));
            object.insert("isPinned".into(), json!(pinned));
            object.insert("warnings".into(), json!(self.warnings(tool)));
        }
        value
    }

    /// A paragraph a tool, for people.
    pub fn text(&self) -> String {
        let mut lines = vec![format!("pool {}: {}", self.name, tools_counted(self.tools.len()))];
        let reached = self.isolation.reached(self.kernel).words();
        lines.push(format!("isolation of programs on this machine: {reached}"));
        for tool in self.tools {
            lines.push(String::new());
            lines.extend(self.paragraph(tool));
        }
        lines.join("\n")
    }

    fn paragraph(&self, tool: &Described) -> Vec<String> {
        let descriptor = &tool.descriptor;
        let first_line = descriptor.description.lines().next().unwrap_or_default();
        let bound = format!("{} bytes", grouped(descriptor.result_bytes_max));
        let from = &tool.origins;
        let mut rows = vec![
            ("effect", effect_words(descriptor.effect, descriptor.rerun), Some(from.effect)),
            ("runner", runner_words(&descriptor.runner), None),
            ("result", result_words(descriptor.result).to_owned(), Some(from.result)),
            ("timeout", describe_ms(descriptor.timeout_ms), Some(from.timeout)),
            ("in the queue", describe_ms(descriptor.queue_timeout_ms), Some(from.queue_timeout)),
            ("attempts", descriptor.max_attempts.to_string(), Some(from.max_attempts)),
            ("all of them", describe_ms(descriptor.total_timeout_ms), Some(from.total_timeout)),
            ("bound", bound, Some(from.max_result_size)),
        ];
        let lists = [("secrets", &tool.secrets), ("tags", &descriptor.tags)];
        for (name, words) in lists {
            if !words.is_empty() {
                rows.push((name, words.join(", "), None));
            }
        }
        if let Some(package) = &tool.package {
            rows.push(("package", package.clone(), None));
        }
        rows.push(("hash", tool.hash.clone(), None));
        let mut lines = vec![format!("{}: {first_line}", descriptor.name)];
        lines.extend(rows.into_iter().map(|(label, value, origin)| match origin {
            Some(origin) => format!("  {label:<13}{value:<18}{}", origin.words()),
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
    use crate::layers::{Defaults, Rules};
    use crate::manifest::{self, Source, Syntax};

    fn described(text: &str) -> Described {
        let read = |_: &str| Err("no file".to_owned());
        let source =
            Source { file: "t/pay.toml", package: None, stem: "pay", text, syntax: Syntax::Toml };
        let pool = Defaults { max_attempts: Some(2), ..Defaults::default() };
        let rules = Rules { pool, ..Rules::default() };
        let manifest = manifest::parse(source, &rules, &read).unwrap();
        Described {
            hash: manifest.descriptor.hash(),
            descriptor: manifest.descriptor,
            package: Some("bank".into()),
            file: Some("t/pay.toml".into()),
            secrets: manifest.secrets,
            origins: manifest.origins,
        }
    }

    const MANIFEST: &str = "description = \"Pays\"\ntimeout = \"40s\"\nsecrets = [\"KEY\"]\n\
                            [run]\nexec = [\"./pay\", \"--once\"]\n";

    #[test]
    fn values_come_with_their_origins_and_warnings() {
        let tools = [described(MANIFEST)];
        let lock = Lock::default();
        let pool = Pool {
            name: "web",
            tools: &tools,
            limits: &Limits::default(),
            lock: Some(&lock),
            isolation: Isolation::Available,
            kernel: Level::Files,
        };
        let text = pool.text();
        for line in [
            "pool web: 1 tool",
            "isolation of programs on this machine: files",
            "pay: Pays",
            "  effect       write             built in",
            "  runner       exec ./pay --once",
            "  timeout      40 s              tool",
            "  attempts     2                 pool",
            "  bound        131,072 bytes     built in",
            "  secrets      KEY",
            "  package      bank",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(text.contains("\n  warning: a write may run for 40 s and a drain waits 30 s"));
        assert!(text.contains("\n  warning: the tool pay is not offered: version "), "{text}");
        let shown = json!({"setting": "available", "level": "files"});
        assert_eq!(pool.json()["isolation"], shown);
        let value = &pool.json()["tools"][0];
        assert_eq!(
            (&value["timeoutMs"], &value["resultBytesMax"]),
            (&json!(40_000), &json!(131_072))
        );
        let origins = &value["origins"];
        assert_eq!(
            (&origins["timeoutMs"], &origins["maxAttempts"]),
            (&json!("tool"), &json!("pool"))
        );
        assert_eq!(origins["resultBytesMax"], "built-in");
        assert_eq!((&value["secrets"], &value["isPinned"]), (&json!(["KEY"]), &json!(false)));
        assert_eq!(value["runner"], json!({"kind": "exec", "command": ["./pay", "--once"]}));
        assert_eq!(value["warnings"].as_array().unwrap().len(), 2);
    }
}
