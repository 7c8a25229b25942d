//! The protocol of toolfleet, pure.
//!
//! Everything in this crate is a plain function over values: no runtime, no clock, no network, no
//! randomness. Its manifest shows it. Processes read the clock and hand it in.
//!
//! | module | what it decides |
//! |---|---|
//! | [`wire`] | the messages, their encoding, and who may read them |
//! | [`name`], [`topology`], [`lease`] | names of calls, subjects, streams, keys; lease arithmetic |
//! | [`limit`] | every limit, and the relations that must hold between them |
//! | [`code`], [`effect`], [`bound`] | the vocabulary of outcomes, effects, the bound of a result |
//! | [`end`] | how a call ends that no tool ended, and what may be said of it |
//! | [`descriptor`], [`declared`], [`catalog`], [`manifest`], [`unit`] | what a tool is, and how an author says it |
//! | [`checks`], [`layers`] | what can be wrong with a tool, however it was authored; defaults and which won |
//! | [`describe`], [`lock`] | tools for people to read; the versions that may be offered |
//! | [`json`], [`schema`], [`arguments`], [`output`] | arguments and outputs: parsing, validation, reading |
//! | [`near`] | names near one that does not exist |
//! | [`money`] | exact amounts |
//! | [`expression`], [`time_args`] | expressions over a call's input; its bounds in time |

pub mod arguments;
pub mod bound;
pub mod catalog;
pub mod checks;
pub mod code;
pub mod declared;
pub mod describe;
pub mod descriptor;
pub mod effect;
pub mod end;
pub mod expression;
pub mod isolation;
pub mod json;
pub mod layers;
pub mod lease;
pub mod limit;
pub mod lock;
pub mod manifest;
pub mod money;
pub mod name;
pub mod near;
pub mod output;
pub mod schema;
pub mod time_args;
pub mod topology;
pub mod unit;
pub mod wire;
