//! Which child a child is.

/// A child of `dev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// The broker.
    Nats,
    /// The lease store.
    Redis,
    /// `toolfleet serve`.
    Coordinator,
    /// A `toolfleet-worker`, counted from 1.
    Worker(usize),
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Role::Nats => f.write_str("nats-server"),
            Role::Redis => f.write_str("redis-server"),
            Role::Coordinator => f.write_str("coordinator"),
            Role::Worker(number) => write!(f, "worker-{number}"),
        }
    }
}
