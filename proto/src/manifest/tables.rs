//! Every key that a manifest can have, told once: manifests are checked by these tables, and the
//! reference and the editors' schema are rendered from them.

use super::keys::{Absent, Form, Key, Support};
use crate::checks::{
    MAX_ATTEMPTS_DEFAULT, QUEUE_TIMEOUT_DEFAULT_MS, RESULT_BYTES_DEFAULT, TIMEOUT_DEFAULT_MS,
};
use crate::declared::{RETRY_WAIT_MAX_DEFAULT_MS, TRIES_DEFAULT};

const fn now(name: &'static str, form: Form, absent: Absent, doc: &'static str) -> Key {
    Key { name, support: Support::Now, form, absent, doc }
}

const fn not_yet(name: &'static str, form: Form, doc: &'static str) -> Key {
    Key { name, support: Support::NotYet, form, absent: Absent::Nothing, doc }
}

/// A key of a value: it works as soon as the key that holds it does.
const fn part(name: &'static str, form: Form, doc: &'static str) -> Key {
    Key { name, support: Support::Now, form, absent: Absent::Nothing, doc }
}

/// Keys of the manifest itself.
pub(super) const TOP: &[Key] = &[
    now(
        "description",
        Form::Text,
        Absent::Fault,
        "What the tool does and when to use it, written for the model.",
    ),
    now(
        "effect",
        Form::Either(&[Form::Words(&["read", "idempotent", "write"]), Form::Expression]),
        Absent::Words("`write`"),
        "What a call may change, which decides whether it runs again after its worker was lost: `read` \
         and `idempotent` calls do, a `write` that may have started does not. An expression over `input` \
         tells it for each call; where it fails or yields something else, the call is a `write`.",
    ),
    now(
        "timeout",
        Form::Span,
        Absent::Span(TIMEOUT_DEFAULT_MS),
        "How long one attempt may run, counted from the start of the tool.",
    ),
    now(
        "queue_timeout",
        Form::Span,
        Absent::Span(QUEUE_TIMEOUT_DEFAULT_MS),
        "How long a call may wait for a worker before it ends without having run.",
    ),
    now(
        "total_timeout",
        Form::Span,
        Absent::Words("`timeout` times `max_attempts`"),
        "How long all attempts may take together; not shorter than `timeout`.",
    ),
    now(
        "max_attempts",
        Form::Count,
        Absent::Count(MAX_ATTEMPTS_DEFAULT),
        "How often a call may be started when its worker is lost each time.",
    ),
    now(
        "rerun",
        Form::Flag,
        Absent::Words("`false`"),
        "Lets a `write` whose worker was lost start again: only for a tool that passes the idempotency \
         key to a service which honours it; refused beside another effect.",
    ),
    now(
        "retry",
        Form::Keys(RETRY),
        Absent::Words("3 tries"),
        "How often one attempt tries a `read` or `idempotent` call whose tool fails for a passing cause \
         ([tools.md](tools.md)); refused beside `write`, which runs once.",
    ),
    now(
        "max_result_size",
        Form::Size,
        Absent::Size(RESULT_BYTES_DEFAULT),
        "Bound of the text that the model reads; a longer result is cut and marked, and is no error.",
    ),
    not_yet("roles", Form::List, "Roles that may call the tool, any of them."),
    not_yet("ability", Form::Text, "An ability that a caller must have."),
    now(
        "enabled",
        Form::Either(&[Form::Flag, Form::Keys(SWITCH)]),
        Absent::Words("`true`"),
        "Whether the tool is on; only `true` works yet, any other value is refused.",
    ),
    not_yet(
        "can_use",
        Form::Either(&[Form::Expression, Form::Keys(WEBHOOK)]),
        "A condition on the caller.",
    ),
    not_yet("channel", Form::Text, "Who is asked before a call runs."),
    not_yet("confirm", Form::Flag, "A preview first, the call after it was confirmed."),
    not_yet(
        "preflight",
        Form::Flag,
        "A check before a person is asked, and again before the call runs; not for a `read`.",
    ),
    now(
        "time_args",
        Form::List,
        Absent::Nothing,
        "Arguments that bound the tool in time, each a property of the input: in an execution with `asOf` \
         they must be there, absolute instants with a zone, none later than `asOf`.",
    ),
    now(
        "dry_run_result",
        Form::Either(&[Form::Expression, Form::Any]),
        Absent::Words("`Operation acknowledged.`"),
        "What a dry run answers for an `idempotent` or `write` call, which is then not run: a value that \
         the tool could answer, or an expression over `input` that yields one.",
    ),
    not_yet("cost", Form::Money, "The most that one call can cost, reserved before it runs."),
    now(
        "secrets",
        Form::List,
        Absent::Nothing,
        "Names of secrets that the program is given as variables, each looked up when an attempt starts: \
         a file of `worker.secrets_dir`, else the worker's environment.",
    ),
    now("tags", Form::List, Absent::Nothing, "Words to narrow the list of tools by."),
    now(
        "weight",
        Form::Count,
        Absent::Count(1),
        "Slots that a call takes; only 1 works yet, a greater number is refused.",
    ),
    now(
        "input",
        Form::Schema,
        Absent::Words("an object of any properties"),
        "What the tool takes; must allow an object. Defaults of absent properties are filled in.",
    ),
    now(
        "output",
        Form::Schema,
        Absent::Words("not checked"),
        "What the tool gives; an output that does not fit ends the call as `invalid_output`.",
    ),
    now(
        "presentation",
        Form::Keys(PRESENTATION),
        Absent::Nothing,
        "Words for people, never shown to the model.",
    ),
    now(
        "limits",
        Form::Keys(LIMITS),
        Absent::Words("the system's"),
        "Bounds of the program's memory, time, processes and files, which it cannot raise.",
    ),
    now("run", Form::Keys(RUN), Absent::Fault, "What runs the tool: exactly one runner."),
];

/// Keys of `[run]`.
pub(super) const RUN: &[Key] = &[
    now(
        "exec",
        Form::List,
        Absent::Fault,
        "The program and its arguments, without a shell. A first word with a `/` that is not absolute, \
         and any word that begins with `./` or `../`, is a path from the manifest's folder; other programs \
         come from `/usr/local/bin:/usr/bin:/bin`.",
    ),
    not_yet(
        "http",
        Form::Either(&[Form::Address, Form::Table]),
        "An endpoint as the runner: its address, or a table with `url`.",
    ),
    not_yet("mcp", Form::Keys(MCP), "A tool of an MCP server as the runner."),
    not_yet("agent", Form::Table, "A model loop as the runner."),
    now(
        "result",
        Form::Words(&["text", "json", "envelope"]),
        Absent::Words("`json` where there is an `[output]`, else `text`"),
        "How standard output is read: verbatim, as exactly one JSON value, or as an object with `content`.",
    ),
    not_yet(
        "mode",
        Form::Words(&["warm"]),
        "A program that stays and serves calls one after another.",
    ),
    not_yet(
        "verify",
        Form::Keys(VERIFY),
        "What tells whether a write that lost its worker took effect: exactly one runner.",
    ),
];

/// Keys of `[run.verify]`.
pub(super) const VERIFY: &[Key] = &[
    part("exec", Form::List, "The program that is asked, and its arguments."),
    part("http", Form::Either(&[Form::Address, Form::Table]), "The endpoint that is asked."),
    part("mcp", Form::Keys(MCP), "The tool of an MCP server that is asked."),
    part("agent", Form::Table, "The model loop that is asked."),
];

/// The keys of `[run]` that say what runs the tool.
pub(super) const RUNNERS: [&str; 4] = ["exec", "http", "mcp", "agent"];

/// Keys of `mcp` in `[run]`.
pub(super) const MCP: &[Key] = &[
    part("command", Form::List, "The server's program and its arguments; or `url`."),
    part("url", Form::Address, "The server's address; or `command`."),
    part("tool", Form::Text, "The name that the server has for the tool."),
];

/// Keys of `retry`.
pub(super) const RETRY: &[Key] = &[
    now(
        "tries",
        Form::Count,
        Absent::Count(TRIES_DEFAULT),
        "Tries in one attempt, the first included; 1: none again.",
    ),
    now(
        "wait_max",
        Form::Span,
        Absent::Span(RETRY_WAIT_MAX_DEFAULT_MS),
        "The longest wait between two of them. Waits are drawn at random, up to 0.2 s before the second \
         try and twice as much before each further one.",
    ),
];

/// Without a limit of the manifest.
const SYSTEMS: Absent = Absent::Words("the system's");

/// Keys of `[limits]`.
pub(super) const LIMITS: &[Key] = &[
    now(
        "memory",
        Form::Size,
        SYSTEMS,
        "Address space of one process, what it has only reserved included (`RLIMIT_AS`): programs that \
         reserve much and use little (JVM, Node.js, Go) need a high one. Beyond it memory is refused to \
         the program, which decides what it does then.",
    ),
    now(
        "cpu_time",
        Form::Span,
        SYSTEMS,
        "Time on processors of one process (`RLIMIT_CPU`), rounded up to whole seconds: it then gets \
         SIGXCPU, and KILL a second later.",
    ),
    now(
        "processes",
        Form::Count,
        SYSTEMS,
        "Processes and threads of the worker's user at the same time (`RLIMIT_NPROC`), those of the worker \
         and of other tools included: the program can start none while there are more. Not for root.",
    ),
    now("open_files", Form::Count, SYSTEMS, "Open files of one process (`RLIMIT_NOFILE`)."),
    now(
        "file_size",
        Form::Size,
        SYSTEMS,
        "Size of a file that is written (`RLIMIT_FSIZE`); one that writes beyond it gets SIGXFSZ.",
    ),
];

/// Keys of `enabled` where it is no boolean.
pub(super) const SWITCH: &[Key] = &[
    part("flag", Form::Text, "The flag that says whether the tool is on."),
    part("env", Form::Text, "The variable that says whether the tool is on."),
];

/// Keys of `can_use` where it is no expression.
pub(super) const WEBHOOK: &[Key] =
    &[part("webhook", Form::Address, "Who is asked whether the caller may.")];

/// Keys of an expression.
pub(super) const EXPRESSION: &[Key] = &[part("expr", Form::Text, "The expression, in CEL.")];

/// Keys of `[presentation]` and of `[presentation.<locale>]`.
pub(super) const PRESENTATION: &[Key] = &[
    now("label", Form::Text, Absent::Nothing, "The tool's name for people."),
    now("running", Form::Text, Absent::Nothing, "What is said while the call runs."),
    now("done", Form::Text, Absent::Nothing, "What is said when it has ended."),
    now("icon", Form::Text, Absent::Nothing, "The name of an icon."),
    now("tone", Form::Text, Absent::Nothing, "How grave the call looks."),
    now("confirm", Form::Table, Absent::Nothing, "The words of a question before the call."),
    now("result", Form::Text, Absent::Nothing, "How the output reads."),
    now("component", Form::Table, Absent::Nothing, "A component that shows the output."),
];
