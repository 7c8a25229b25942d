//! The worker's decisions, pure: no runtime, no clock, no randomness, no IO.

pub mod attempt;
pub mod heartbeat;
pub mod pulls;
pub mod reports;
pub mod supply;
pub mod tries;
