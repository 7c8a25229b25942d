//! What a program may use beside its own scratch folder (CONTRACT 5.11): the system's libraries, the
//! folder of its manifest, and what an operator adds. Not the worker's secrets, not the folders of other
//! attempts.

use super::grant::Grant;
use super::scratch::Scratch;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where systems keep programs, libraries, certificates, zones and names; and the processes of the machine,
/// whose secrets the kernel keeps from a program that is shut in. What is not there is passed over.
const SYSTEM: [&str; 18] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/run/current-system",
    // Where `/etc/resolv.conf` leads to.
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/var/lib/ca-certificates",
    "/proc",
    "/sys",
];

/// Devices that hold nothing of anybody.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// What the programs of a worker may use, and what they may not although it lies in it.
#[derive(Clone, Debug)]
pub struct Walls {
    grants: Arc<Vec<Grant>>,
}

impl Walls {
    /// For every program of a worker: the system without `hidden`, `readable` and `writable` with all that
    /// is in them. Looks at the file system as it is now.
    pub fn of_worker(hidden: &[PathBuf], readable: &[PathBuf], writable: &[PathBuf]) -> Walls {
        let hidden = resolved(hidden);
        let mut system: Vec<PathBuf> =
            SYSTEM.iter().flat_map(|root| without(Path::new(root), &hidden)).collect();
        // `/bin` and its like are links into `/usr`.
        system.sort();
        system.dedup_by(|next, before| next.starts_with(before));
        let mut grants: Vec<Grant> = system.into_iter().map(Grant::Read).collect();
        grants.extend(DEVICES.iter().map(|device| Grant::Write(device.into())));
        grants.extend(readable.iter().cloned().map(Grant::Read));
        grants.extend(writable.iter().cloned().map(Grant::Write));
        Walls { grants: Arc::new(grants) }
    }

    /// For one tool: the folder of its manifest without `hidden`, and the files that its command names.
    pub fn of_tool(&self, folder: &Path, command: &[String], hidden: &[PathBuf]) -> Walls {
        let mut grants = self.grants.to_vec();
        grants.extend(without(folder, &resolved(hidden)).into_iter().map(Grant::Read));
        let files = command.iter().map(PathBuf::from).filter(|word| word.is_absolute());
        grants.extend(files.filter(|word| word.is_file()).map(Grant::Read));
        Walls { grants: Arc::new(grants) }
    }

    /// For one attempt: its scratch folder and its context file.
    pub(super) fn around(&self, scratch: &Scratch) -> Vec<Grant> {
        let mut grants = self.grants.to_vec();
        grants.push(Grant::Write(scratch.work().into()));
        grants.push(Grant::Read(scratch.context_file().into()));
        grants
    }
}

/// The paths that they lead to; what is not there stays as it is.
fn resolved(paths: &[PathBuf]) -> Vec<PathBuf> {
    paths.iter().map(|path| fs::canonicalize(path).unwrap_or_else(|_| path.clone())).collect()
}

/// A folder without what is hidden in it. Grants hold for all that is below, so where something is
/// hidden its neighbours are granted one by one. What hides the folder itself does not count.
fn without(folder: &Path, hidden: &[PathBuf]) -> Vec<PathBuf> {
    let Ok(folder) = fs::canonicalize(folder) else { return Vec::new() };
    let mut granted = Vec::new();
    let mut open = vec![folder.clone()];
    while let Some(path) = open.pop() {
        if path != folder && hidden.contains(&path) {
            continue;
        }
        let is_way = hidden.iter().any(|hidden| *hidden != path && hidden.starts_with(&path));
        if !is_way {
            granted.push(path);
            continue;
        }
        let inner = fs::read_dir(&path).into_iter().flatten().flatten();
        // A link leads to a place that has a grant of its own, or has none.
        let inner = inner.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
        open.extend(inner.map(|entry| entry.path()));
    }
    granted.sort();
    granted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        for folder in ["etc/fleet/secrets", "etc/fleet/tools", "etc/ssl"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("etc/hosts"), "").unwrap();
        fs::write(root.join("etc/fleet/fleet.toml"), "").unwrap();
        std::os::unix::fs::symlink(root.join("etc/fleet"), root.join("etc/link")).unwrap();
        (dir, root)
    }

    #[test]
    fn what_is_hidden_in_a_folder_is_left_out_and_nothing_else() {
        let (_dir, root) = tree();
        let granted = |folder: &str, hidden: &[&str]| -> Vec<String> {
            let hidden: Vec<PathBuf> = hidden.iter().map(|path| root.join(path)).collect();
            let paths = without(&root.join(folder), &hidden);
            let inner = |path: PathBuf| path.strip_prefix(&root).unwrap().display().to_string();
            paths.into_iter().map(inner).collect()
        };
        assert_eq!(granted("etc", &[]), ["etc"]);
        assert_eq!(granted("etc", &["etc", "", "var"]), ["etc"], "not below it");
        assert_eq!(
            granted("etc", &["etc/fleet/secrets", "etc/fleet/fleet.toml"]),
            ["etc/fleet/tools", "etc/hosts", "etc/ssl"]
        );
        // By the way of a link it is the same folder.
        assert_eq!(
            granted("etc/link", &["etc/fleet/secrets"]),
            ["etc/fleet/fleet.toml", "etc/fleet/tools"]
        );
        assert_eq!(granted("none", &[]), Vec::<String>::new());
    }

    #[test]
    fn a_tool_gets_its_folder_and_the_files_that_its_command_names() {
        let (_dir, root) = tree();
        let walls = Walls::of_worker(&[], &["/data".into()], &["/cache".into()]);
        let script = root.join("etc/hosts");
        let command = ["python3", "-u", script.to_str().unwrap(), "/", "/none"];
        let command: Vec<String> = command.map(str::to_owned).into();
        let own = walls.of_tool(&root.join("etc/fleet"), &command, &[]);
        let added: Vec<&Grant> = own.grants.iter().skip(walls.grants.len()).collect();
        assert_eq!(added, [&Grant::Read(root.join("etc/fleet")), &Grant::Read(script)]);
        for grant in [
            Grant::Read("/data".into()),
            Grant::Write("/cache".into()),
            Grant::Write("/dev/null".into()),
        ] {
            assert!(walls.grants.contains(&grant), "{grant:?}");
        }
        assert!(walls.grants.iter().any(|grant| grant.path() == Path::new("/proc")));
        assert!(walls.grants.iter().all(|grant| grant.path() != Path::new("/")));
    }
}
