//! What both processes of toolfleet need at their edge.
//!
//! | module | what it talks to |
//! |---|---|
//! | [`config`] | defaults, file, environment, flags |
//! | [`broker`], [`topology`] | NATS JetStream |
//! | [`lease_store`] | Redis |
//! | [`ending`] | both: the end of a call that its tool did not end |
//! | [`clock`], [`signal`] | the host |
//! | [`telemetry`], [`metrics`], [`health`] | whoever watches |
//! | [`fail_point`] | tests, in builds with debug assertions |
//! | [`tools_folder`], [`described`] | the manifests of a folder and the programs that they name |
//! | [`child`] | servers started as children, for `toolfleet dev` and the tests |

pub mod broker;
pub mod child;
pub mod clock;
pub mod config;
pub mod described;
pub mod ending;
pub mod fail_point;
pub mod health;
pub mod isolation;
pub mod lease_store;
pub mod metrics;
pub mod signal;
pub mod telemetry;
pub mod tools_folder;
pub mod topology;
