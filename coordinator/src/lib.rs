//! The coordinator of toolfleet, and the command line of the whole system.
//!
//! `core` decides, pure; the modules around it perform. [`service::Coordinator`] is the running part;
//! [`api`] is its HTTP edge; [`cli`] is `toolfleet`.

mod alarms;
pub mod api;
mod audit;
mod cancel;
mod catalog;
pub mod cli;
mod core;
mod dead_letters;
mod deliver;
mod direct;
mod durable;
mod execute;
mod executions;
mod job_message;
mod measure;
mod reading;
mod room;
pub mod service;
mod submit;
mod tool_entry;
mod turn;
