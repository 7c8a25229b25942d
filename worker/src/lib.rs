//! The worker of toolfleet: a library to write tools in Rust, and the process that runs them.
//!
//! A tool is a type that implements [`Tool`]. A worker binary of one's own is a `main` that hands its
//! tools to [`process::main`]:
//!
//! ```no_run
//! use toolfleet_worker::{Context, Tool, ToolError, ToolSpec, process};
//!
//! struct Greeter {
//!     greeting: String,
//! }
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Greet {
//!     /// Whom to greet.
//!     name: String,
//! }
//!
//! impl Tool for Greeter {
//!     type Input = Greet;
//!     type Output = String;
//!
//!     fn spec(&self) -> ToolSpec {
//!         ToolSpec::read("greet", "Greets somebody by name")
//!     }
//!
//!     async fn call(&self, input: Greet, _context: Context) -> Result<String, ToolError> {
//!         Ok(format!("{}, {}!", self.greeting, input.name))
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     process::main(process::Tools::new().with(Greeter { greeting: "Hello".into() }))
//! }
//! ```

mod announce;
mod bench_echo;
mod cancel;
mod claim;
mod context;
mod core;
mod drive;
mod edge;
mod isolation;
mod lease;
mod measure;
mod memory;
mod outcome;
pub mod process;
mod registry;
pub mod reports;
mod runner;
mod running;
mod secrets;
mod service;
mod slot;
pub mod spend;
mod stop;
mod supply;
pub mod testing;
mod tool;
mod watch;

pub use context::{CallContext, Context};
pub use stop::{Stop, StopReason};
pub use tool::{Tool, ToolError, ToolSpec};
