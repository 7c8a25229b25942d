//! The worker of toolfleet: a library to write tools in Rust, and the process that runs them.

pub mod context;
pub mod folder;
pub mod runner;
pub mod spend;
pub mod stop;
