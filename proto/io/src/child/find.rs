//! Where the servers are: configured, in the project, or on PATH.

use crate::config::Dev;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const VERSION_TIMEOUT: Duration = Duration::from_secs(5);
/// Under the working directory; filled by the project's own preparation script.
const PROJECT_BIN: &str = ".toolfleet/bin";

/// A server's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number; 0 where it is missing.
    pub patch: u32,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Which of the three ways led to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Named in the configuration.
    Configured,
    /// `.toolfleet/bin` under the working directory.
    Project,
    /// The first fit on PATH.
    Path,
}

/// A server that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The executable.
    pub program: PathBuf,
    /// What it says its version is.
    pub version: Version,
    /// How it was found.
    pub origin: Origin,
}

/// Why no server can be used.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// The one that was configured cannot be used. Never passed over for another.
    #[error("{key} names {}, which cannot be used: {why}", .program.display())]
    Configured {
        /// The variable that names it.
        key: &'static str,
        /// What it names.
        program: PathBuf,
        /// Why not.
        why: String,
    },
    /// None was found.
    #[error(
        "found no {names} {least} or newer{}; {install}, or set {key} to its path, or put it into \
         {PROJECT_BIN} under the working directory, or onto PATH", passed_over(.unfit)
    )]
    Missing {
        /// The names that were looked for.
        names: String,
        /// The oldest version that would do.
        least: Version,
        /// How to install it.
        install: &'static str,
        /// The variable that would name it.
        key: &'static str,
        /// What was found and does not do, one entry each.
        unfit: Vec<String>,
    },
}

fn passed_over(unfit: &[String]) -> String {
    if unfit.is_empty() { String::new() } else { format!(" (passed over: {})", unfit.join("; ")) }
}

struct Wanted {
    names: &'static [&'static str],
    least: Version,
    key: &'static str,
    install: &'static str,
}

const NATS: Wanted = Wanted {
    names: &["nats-server"],
    least: Version { major: 2, minor: 12, patch: 0 },
    key: "TOOLFLEET_DEV__NATS_SERVER",
    install: "install nats-server from its releases or by `brew install nats-server`",
};

const REDIS: Wanted = Wanted {
    names: &["redis-server", "valkey-server"],
    least: Version { major: 7, minor: 0, patch: 0 },
    key: "TOOLFLEET_DEV__REDIS_SERVER",
    install: "install it by `apt-get install redis-server` or `brew install redis`",
};

/// Finds a nats-server, 2.12 or newer: `config.nats_server`, then `.toolfleet/bin` under `cwd`, then
/// PATH. Blocks for as long as the candidates take to tell their version (at most 5 s each).
pub fn find_nats_server(config: &Dev, cwd: &Path) -> Result<Found, FindError> {
    find(&NATS, config.nats_server.as_deref(), cwd, std::env::var_os("PATH").as_deref())
}

/// Finds a redis-server or valkey-server, 7.0 or newer, as [`find_nats_server`] does.
pub fn find_redis_server(config: &Dev, cwd: &Path) -> Result<Found, FindError> {
    find(&REDIS, config.redis_server.as_deref(), cwd, std::env::var_os("PATH").as_deref())
}

fn find(
    wanted: &Wanted,
    configured: Option<&Path>,
    cwd: &Path,
    path: Option<&OsStr>,
) -> Result<Found, FindError> {
    if let Some(program) = configured {
        let program = cwd.join(program);
        return match fit(wanted, &program) {
            Ok(version) => Ok(Found { program, version, origin: Origin::Configured }),
            Err(why) => Err(FindError::Configured { key: wanted.key, program, why }),
        };
    }
    let folders = || std::env::split_paths(path.unwrap_or_default()).map(|dir| cwd.join(dir));
    let project =
        wanted.names.iter().map(|name| (cwd.join(PROJECT_BIN).join(name), Origin::Project));
    let on_path = wanted
        .names
        .iter()
        .flat_map(|name| folders().map(move |folder| (folder.join(name), Origin::Path)));
    let mut unfit = Vec::new();
    for (program, origin) in project.chain(on_path).filter(|(program, _)| program.is_file()) {
        match fit(wanted, &program) {
            Ok(version) => return Ok(Found { program, version, origin }),
            Err(why) => unfit.push(format!("{}: {why}", program.display())),
        }
    }
    let (least, key, install) = (wanted.least, wanted.key, wanted.install);
    Err(FindError::Missing { names: wanted.names.join(" or "), least, install, key, unfit })
}

fn fit(wanted: &Wanted, program: &Path) -> Result<Version, String> {
    if !program.is_file() {
        return Err("there is no such file".into());
    }
    let text = version_text(program).map_err(|error| format!("it does not run: {error}"))?;
    let version = parse_version(&text).ok_or("`--version` names no version")?;
    if version < wanted.least {
        return Err(format!("version {version} is older than {}", wanted.least));
    }
    Ok(version)
}

fn version_text(program: &Path) -> std::io::Result<String> {
    let mut child = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let deadline = Instant::now() + VERSION_TIMEOUT;
    while child.try_wait()?.is_none() {
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Err(std::io::Error::other("`--version` does not end"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Reads `nats-server: v2.15.1`, `Redis server v=7.0.15 sha=…` and the like.
fn parse_version(text: &str) -> Option<Version> {
    text.split_whitespace().find_map(|word| {
        let word = word.strip_prefix('v')?;
        let word = word.strip_prefix('=').unwrap_or(word);
        let numbers = word.split(['-', '+']).next()?;
        let mut parts = numbers.split('.').map(|part| part.parse().ok());
        let (major, minor) = (parts.next()??, parts.next()??);
        let patch = parts.next().map_or(Some(0), |part| part)?;
        Some(Version { major, minor, patch })
    })
}

/// The servers that the tests of this crate run against: nats-server and Redis.
#[cfg(test)]
pub(super) fn found_for_tests() -> (PathBuf, PathBuf) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let named = |key| std::env::var_os(key).map(PathBuf::from);
    let dev = Dev { nats_server: named(NATS.key), redis_server: named(REDIS.key) };
    let nats = find_nats_server(&dev, &root).unwrap_or_else(|error| panic!("{error}"));
    let redis = find_redis_server(&dev, &root).unwrap_or_else(|error| panic!("{error}"));
    (nats.program, redis.program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn script(path: &Path, says: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Written under another name first: a file open for writing cannot be run.
        let new = path.with_extension("new");
        std::fs::write(&new, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
        std::fs::set_permissions(&new, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::rename(&new, path).unwrap();
    }

    #[test]
    fn versions_are_read() {
        let version = |major, minor, patch| Some(Version { major, minor, patch });
        assert_eq!(parse_version("nats-server: v2.15.1"), version(2, 15, 1));
        assert_eq!(parse_version("nats-server: v2.12.0-RC.3"), version(2, 12, 0));
        assert_eq!(parse_version("Redis server v=7.0.15 sha=0:0 bits=64"), version(7, 0, 15));
        assert_eq!(parse_version("Valkey server v=9.1 malloc=libc"), version(9, 1, 0));
        assert_eq!(parse_version("no version at all"), None);
        assert!(version(2, 9, 10) < version(2, 12, 0));
    }

    #[test]
    fn the_project_wins_over_path_and_the_old_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("path");
        script(&path.join("redis-server"), "Redis server v=6.2.5 sha=0");
        script(&path.join("valkey-server"), "Valkey server v=8.0.1 sha=0");
        let found = find(&REDIS, None, dir.path(), Some(path.as_os_str())).unwrap();
        assert_eq!(found.origin, Origin::Path);
        assert_eq!(found.program, path.join("valkey-server"));

        script(&dir.path().join(".toolfleet/bin/redis-server"), "Redis server v=7.2.0 sha=0");
        let found = find(&REDIS, None, dir.path(), Some(path.as_os_str())).unwrap();
        assert_eq!((found.origin, found.version.minor), (Origin::Project, 2));
    }

    #[test]
    fn a_configured_server_is_never_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("path");
        script(&path.join("nats-server"), "nats-server: v2.15.1");
        script(&dir.path().join("old"), "nats-server: v2.9.10");
        for (name, why) in [("none", "no such file"), ("old", "2.9.10 is older than 2.12.0")] {
            let named = Path::new(name);
            let error = find(&NATS, Some(named), dir.path(), Some(path.as_os_str())).unwrap_err();
            assert!(matches!(error, FindError::Configured { .. }), "{error}");
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn nothing_found_names_the_three_ways_and_the_unfit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("path");
        script(&path.join("nats-server"), "nats-server: v2.9.10");
        let error = find(&NATS, None, dir.path(), Some(path.as_os_str())).unwrap_err().to_string();
        for part in ["TOOLFLEET_DEV__NATS_SERVER", ".toolfleet/bin", "PATH", "2.9.10", "install"] {
            assert!(error.contains(part), "{part} is missing in: {error}");
        }
    }
}
