//! Shuts a thread in, and all that it starts: Landlock, as far as the kernel has it.

use super::grant::Grant;
use std::io;

/// From here on this thread and what it starts use only what was granted, and signal only each other.
/// Nothing takes it back. What a kernel does not know is left out: the worker has looked before.
///
/// A grant of what is not there is passed over.
#[cfg(target_os = "linux")]
pub(super) fn shut_in(grants: &[Grant]) -> io::Result<()> {
    use landlock::{
        ABI, Access, AccessFs, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError,
        Scope, path_beneath_rules,
    };
    let is_write = |grant: &&Grant| matches!(grant, Grant::Write(_));
    let reads = grants.iter().filter(|grant| !is_write(grant)).map(Grant::path);
    let writes = grants.iter().filter(is_write).map(Grant::path);
    let restrict = || -> Result<(), RulesetError> {
        let all = AccessFs::from_all(ABI::V5);
        Ruleset::default()
            .handle_access(all)?
            .scope(Scope::Signal)?
            .create()?
            .add_rules(path_beneath_rules(reads, AccessFs::from_read(ABI::V5)))?
            .add_rules(path_beneath_rules(writes, all))?
            .restrict_self()?;
        Ok(())
    };
    restrict().map_err(io::Error::other)
}

/// There is nothing to shut it in with; a worker does not ask for it here.
#[cfg(not(target_os = "linux"))]
pub(super) fn shut_in(_grants: &[Grant]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
