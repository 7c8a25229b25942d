//! How far this machine's kernel can shut a program in: Landlock, as much of it as is there.

use toolfleet_proto::isolation::Level;

/// Asks the kernel. Restricts nothing.
#[cfg(target_os = "linux")]
pub fn level() -> Level {
    use landlock::{
        ABI, Access as _, AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _, Scope,
    };
    let asked = || Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let has_files = |abi| asked().handle_access(AccessFs::from_all(abi)).is_ok();
    if !has_files(ABI::V1) {
        Level::None
    } else if !has_files(ABI::V3) {
        Level::FilesButTruncation
    } else if asked().scope(Scope::Signal).is_err() {
        Level::Files
    } else {
        Level::FilesAndSignals
    }
}

/// Asks the kernel. Restricts nothing.
#[cfg(not(target_os = "linux"))]
pub fn level() -> Level {
    Level::None
}
