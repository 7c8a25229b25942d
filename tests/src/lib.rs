//! The testkit of toolfleet: fleets of real processes on real servers, made for one test each.
//!
//! | type | what it is |
//! |---|---|
//! | [`Fleet`], [`Builder`] | servers, coordinators and workers, gone when dropped |
//! | [`Member`] | one process, to be killed, paused, terminated and started again |
//! | [`Http`], [`Answer`] | the API as a caller sees it |
//! | [`FailPoints`], [`Fate`] | what befalls a process at a stage of the protocol |
//! | [`Announcements`] | every announcement of a stored result |
//! | [`Link`] | a network that can be broken, between one process and one server |
//! | [`Ledger`] | what a tool did, written by the tool itself |
//! | [`soak`] | calls of all kinds under faults of all kinds, and an account |
//! | [`OtlpSink`] | a receiver of traces |
//!
//! Nothing here sleeps to be in time for something: [`until`] looks again until a named condition
//! holds or its time is over.

mod binaries;
mod builder;
mod fail_points;
mod fleet;
mod http;
mod ledger;
mod link;
mod member;
mod otlp_sink;
mod servers;
pub mod soak;
mod streams;
mod wait;

pub use binaries::{TOOLFLEET, WORKER, binary};
pub use builder::{Builder, SHORT_CLOCKS, fleet_turn};
pub use fail_points::{FailPoints, Fate};
pub use fleet::{Fleet, Links};
pub use http::{Answer, Http, encode_segment};
pub use ledger::Ledger;
pub use link::{Link, Trap, Way};
pub use member::{Member, Recipe, clean_environment};
pub use otlp_sink::{OtlpSink, SinkSpan};
pub use servers::{Programs, broker_at, prefix, servers};
pub use streams::{Announcements, call_name, messages, subjects};
pub use wait::until;
