//! The tools of a worker that runs, versions that were replaced included.

use super::{Registered, Registry};
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock};

/// The tools of a worker as they are now. With `--watch` they change while it runs; versions that were
/// replaced stay runnable for the jobs that were admitted under them.
#[derive(Clone)]
pub struct Shared {
    state: Arc<RwLock<State>>,
}

struct State {
    now: Arc<Registry>,
    replaced: VecDeque<Arc<Registered>>,
}

/// Replaced versions that are remembered.
const REPLACED_MAX: usize = 256;

impl Shared {
    /// These tools, for now.
    pub fn new(registry: Arc<Registry>) -> Shared {
        Shared { state: Arc::new(RwLock::new(State { now: registry, replaced: VecDeque::new() })) }
    }

    /// The tools as they are now.
    pub fn now(&self) -> Arc<Registry> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner).now)
    }

    /// The tool of that name and version, also where it was replaced since.
    pub fn find(&self, name: &str, hash: &str) -> Option<Arc<Registered>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let replaced =
            || state.replaced.iter().find(|tool| tool.hash == hash && tool.descriptor.name == name);
        state.now.find(name, hash).or_else(replaced).cloned()
    }

    /// Other tools from now on.
    pub fn replace(&self, next: Arc<Registry>) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut state.now, next);
        for tool in before.tools() {
            if state.now.find(&tool.descriptor.name, &tool.hash).is_none() {
                state.replaced.push_front(Arc::clone(tool));
            }
        }
        state.replaced.truncate(REPLACED_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench_echo::BenchEcho;
    use crate::registry::Builder;

    #[test]
    fn a_replaced_version_still_runs_what_was_admitted_under_it() {
        let mut builder = Builder::default();
        builder.native(Arc::new(BenchEcho));
        let registry = Arc::new(builder.build().unwrap());
        let hash = registry.tools().next().unwrap().hash.clone();
        let shared = Shared::new(registry);
        shared.replace(Arc::new(Registry::default()));
        assert!(shared.now().find("bench-echo", &hash).is_none());
        assert!(shared.find("bench-echo", &hash).is_some());
        assert!(shared.find("bench-echo", "other").is_none());
    }
}
