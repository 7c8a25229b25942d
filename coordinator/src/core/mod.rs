//! The coordinator's decisions, pure: no runtime, no clock, no randomness, no IO.

pub mod admit;
pub mod answer;
pub mod audit;
pub mod catalog;
pub mod dead_letter;
pub mod execution;
pub mod export;
pub mod expressions;
pub mod formats;
#[cfg(test)]
pub(crate) mod golden;
pub mod local;
pub mod mode;
pub mod openapi;
pub mod reports;
pub mod room;
pub mod spend;
pub mod turn;
pub mod wait;
pub mod wishes;
