//! The tools of a worker: descriptor, compiled schemas, and what runs each (CONTRACT 1.4, 1.5).

mod native;
mod shared;

pub use native::describe;
pub use shared::Shared;

use crate::isolation::ShutIn;
use crate::runner::exec::Exec;
use crate::runner::native::Native;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toolfleet_io::tools_folder::{self, Found, FoundTool};
use toolfleet_proto::checks::{self, Finding, Naming};
use toolfleet_proto::descriptor::Descriptor;
use toolfleet_proto::layers::Rules;
use toolfleet_proto::limit::{SLOTS_EXEC, SLOTS_WAITING};
use toolfleet_proto::manifest::Fault;
use toolfleet_proto::schema::Schema;

/// What runs a tool here.
#[derive(Clone)]
pub enum Run {
    /// A Rust type.
    Native(Arc<dyn Native>),
    /// A program.
    Exec(Exec),
}

impl Run {
    /// Whether it is a Rust type.
    pub fn is_native(&self) -> bool {
        matches!(self, Run::Native(_))
    }
}

/// One tool of this worker.
#[derive(Clone)]
pub struct Registered {
    /// What it is.
    pub descriptor: Descriptor,
    /// Hash of the descriptor.
    pub hash: String,
    /// Schema of the input.
    pub input_schema: Arc<Schema>,
    /// Schema of the output, where one is declared.
    pub output_schema: Option<Arc<Schema>>,
    /// What runs it.
    pub run: Run,
    /// Names of the secrets that it gets.
    pub secrets: Vec<String>,
}

/// The tools of a worker, by name.
#[derive(Clone, Default)]
pub struct Registry {
    tools: BTreeMap<String, Arc<Registered>>,
}

impl Registry {
    /// The tool of that name and version; `None`: this worker must hand the job back.
    pub fn find(&self, name: &str, hash: &str) -> Option<&Arc<Registered>> {
        self.tools.get(name).filter(|tool| tool.hash == hash)
    }

    /// The tool of that name, whatever its version.
    pub fn named(&self, name: &str) -> Option<&Arc<Registered>> {
        self.tools.get(name)
    }

    /// Every tool, by name.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<Registered>> {
        self.tools.values()
    }

    /// Slots of a worker with these tools, where the configuration names none: few where a call may
    /// be a process, many where all only wait.
    pub fn slots(&self) -> usize {
        let starts_processes = self.tools().any(|tool| matches!(tool.run, Run::Exec(_)));
        if starts_processes { SLOTS_EXEC } else { SLOTS_WAITING }
    }
}

/// Gathers tools and all their faults.
#[derive(Default)]
pub struct Builder {
    rules: Rules,
    registry: Registry,
    faults: Vec<Fault>,
}

/// What the programs of a worker run with.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Each attempt gets a folder of its own below it.
    pub scratch_root: PathBuf,
    /// The guard that each runs under.
    pub guard: PathBuf,
    /// What they may use.
    pub shut_in: ShutIn,
}

/// What faults of tools in Rust name as their file.
const BUILT_IN: &str = "(built in)";

impl Builder {
    /// Gathers by the rules of the pool and the fleet.
    pub fn by(rules: Rules) -> Builder {
        Builder { rules, ..Builder::default() }
    }

    /// Adds a tool written in Rust. It goes through the same checks as a manifest.
    pub fn native(&mut self, tool: Arc<dyn Native>) {
        let naming = self.rules.naming;
        self.checked(tool, naming);
    }

    /// Adds a tool that every worker has, whose name no house rule asks.
    pub fn own(&mut self, tool: Arc<dyn Native>) {
        self.checked(tool, None);
    }

    fn checked(&mut self, tool: Arc<dyn Native>, naming: Option<Naming>) {
        let (descriptor, _) = native::describe_native(tool.as_ref(), &self.rules);
        for Finding { code, message, mend } in checks::of(&descriptor, naming) {
            let message = format!("{}: {message}", descriptor.name);
            self.faults.push(Fault { code, file: BUILT_IN.into(), line: None, message, mend });
        }
        self.add(BUILT_IN, descriptor, Run::Native(tool), Vec::new());
    }

    /// Adds every manifest of a folder, whose programs run as they say.
    pub fn folder(&mut self, dir: &Path, programs: &Programs) {
        let Found { tools, faults } = tools_folder::look(dir, &self.rules);
        let has_manifests = !tools.is_empty() || faults.iter().any(|f| f.code != "manifest.folder");
        self.faults.extend(faults);
        if has_manifests {
            self.faults
                .extend(no_guard(&programs.guard).into_iter().chain(programs.shut_in.fault()));
        }
        tools.into_iter().for_each(|tool| self.manifest(tool, programs));
    }

    fn manifest(&mut self, found: FoundTool, programs: &Programs) {
        let FoundTool { manifest, folder, file } = found;
        let command = tools_folder::resolve_command(&folder, &manifest.command);
        let limits = manifest.descriptor.declared.limits.clone().unwrap_or_default();
        let walls = programs.shut_in.walls_of(&folder, &command);
        let exec = Exec::new(command, programs.scratch_root.clone());
        let exec = exec.under(programs.guard.clone()).within(limits).between(walls);
        self.add(&file, manifest.descriptor, Run::Exec(exec), manifest.secrets);
    }

    /// Adds a tool that was checked. A schema that does not compile has been told already.
    fn add(&mut self, file: &str, descriptor: Descriptor, run: Run, secrets: Vec<String>) {
        let name = descriptor.name.clone();
        if self.registry.tools.contains_key(&name) {
            self.faults.push(Fault {
                code: "tool.duplicate-name",
                file: file.to_owned(),
                line: None,
                message: format!("the tool `{name}` is there already"),
                mend: "rename one of the two".into(),
            });
            return;
        }
        let Ok(input_schema) = Schema::compile(&descriptor.input_schema).map(Arc::new) else {
            return;
        };
        let output_schema = descriptor.output_schema.as_ref().map(Schema::compile);
        let output_schema = output_schema.and_then(Result::ok).map(Arc::new);
        let hash = descriptor.hash();
        let tool = Registered { descriptor, hash, input_schema, output_schema, run, secrets };
        self.registry.tools.insert(name, Arc::new(tool));
    }

    /// The registry.
    ///
    /// # Errors
    /// All faults of all tools at once.
    pub fn build(self) -> Result<Registry, Vec<Fault>> {
        if self.faults.is_empty() { Ok(self.registry) } else { Err(self.faults) }
    }
}

fn no_guard(guard: &Path) -> Option<Fault> {
    (!guard.is_file()).then(|| Fault {
        code: "exec.no-guard",
        file: guard.display().to_string(),
        line: None,
        message: "there is no such program, and no exec tool runs without it".into(),
        mend: "install toolfleet-guard in the folder of the worker's program".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench_echo::BenchEcho;
    use crate::tool::ToolSpec;
    use std::time::Duration;
    use toolfleet_proto::layers::Own;

    #[test]
    fn a_tool_is_found_only_under_its_own_version() {
        let mut builder = Builder::default();
        builder.native(Arc::new(BenchEcho));
        let registry = builder.build().unwrap();
        let hash = registry.tools().next().unwrap().hash.clone();
        assert!(registry.find("bench-echo", &hash).is_some());
        assert!(registry.find("bench-echo", "other").is_none());
        assert_eq!(registry.slots(), SLOTS_WAITING);
    }

    #[test]
    fn the_same_name_twice_is_a_fault() {
        let mut builder = Builder::default();
        builder.native(Arc::new(BenchEcho));
        builder.native(Arc::new(BenchEcho));
        let faults = builder.build().err().unwrap();
        assert_eq!(faults[0].code, "tool.duplicate-name");
    }

    struct Odd(ToolSpec);

    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Anything {}

    impl crate::tool::Tool for Odd {
        type Input = Anything;
        type Output = String;

        fn spec(&self) -> ToolSpec {
            self.0.clone()
        }

        async fn call(
            &self,
            _input: Anything,
            _context: crate::context::Context,
        ) -> Result<String, crate::tool::ToolError> {
            Ok(String::new())
        }
    }

    #[test]
    fn a_tool_in_rust_goes_through_the_checks_of_manifests() {
        let mut builder =
            Builder::by(Rules { naming: Some(Naming::KebabTool), ..Rules::default() });
        builder.own(Arc::new(BenchEcho));
        let spec = ToolSpec::read("odd", " ")
            .rerun()
            .timeout(Duration::ZERO)
            .max_attempts(0)
            .tries(11)
            .result_bytes_max(1 << 30);
        builder.native(Arc::new(Odd(spec)));
        let codes: Vec<_> =
            builder.build().err().unwrap().into_iter().map(|fault| fault.code).collect();
        assert_eq!(
            codes,
            [
                "tool.name-kind-suffix",
                "manifest.missing",
                "tool.timeout-invalid",
                "tool.timeout-invalid",
                "tool.max-attempts-invalid",
                "tool.max-result-size-invalid",
                "tool.rerun-invalid",
                "tool.retry-invalid",
            ]
        );
    }

    #[test]
    fn a_missing_guard_is_told_with_the_faults_of_the_manifests() {
        let dir = tempfile::tempdir().unwrap();
        let codes = || -> Vec<&'static str> {
            let mut builder = Builder::default();
            let programs = Programs {
                scratch_root: dir.path().into(),
                guard: "/nowhere/guard".into(),
                shut_in: ShutIn::available(dir.path()),
            };
            builder.folder(dir.path(), &programs);
            builder.build().err().into_iter().flatten().map(|fault| fault.code).collect()
        };
        assert!(codes().is_empty(), "without a manifest nothing runs under it");
        std::fs::write(dir.path().join("a.toml"), "[run]\nexec = [\"/bin/sh\"]\n").unwrap();
        assert_eq!(codes(), ["manifest.missing", "exec.no-guard"]);
    }

    #[test]
    fn a_tool_in_rust_declares_what_a_manifest_can() {
        let built = |spec: ToolSpec| {
            let mut builder = Builder::default();
            builder.native(Arc::new(Odd(spec)));
            let faults = |faults: Vec<Fault>| faults.iter().map(|fault| fault.code).collect();
            builder.build().map_err::<Vec<_>, _>(faults)
        };
        let spec = ToolSpec::dynamic("odd", "Odd", "has(input.dry) ? 'read' : 'write'");
        let registry = built(spec.dry_run_result("done")).unwrap();
        let found = &registry.tools().next().unwrap().descriptor;
        assert_eq!(found.effect.as_str(), "write", "the most that it may be");
        assert!(found.declared.effect_expr.is_some() && found.declared.dry_run_result.is_some());
        let spec = ToolSpec::dynamic("odd", "Odd", "dry");
        let codes = built(spec.dry_run_expr("input.").time_arg("since")).err().unwrap();
        assert_eq!(
            codes,
            ["tool.expression-invalid", "tool.time-args-invalid", "tool.expression-invalid"]
        );
    }

    #[test]
    fn a_tool_in_rust_gets_the_defaults_that_it_leaves_open() {
        let pool = Own { timeout_ms: Some(5_000), max_attempts: Some(2), ..Own::default() };
        let rules = Rules { pool, ..Rules::default() };
        let mut builder = Builder::by(rules);
        builder.native(Arc::new(Odd(ToolSpec::read("odd", "Odd").max_attempts(4))));
        let registry = builder.build().unwrap();
        let found = registry.tools().next().unwrap().descriptor.clone();
        assert_eq!((found.timeout_ms, found.max_attempts), (5_000, 4));
        assert_eq!((found.total_timeout_ms, found.queue_timeout_ms), (20_000, 60_000));
    }
}
