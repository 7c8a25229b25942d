//! The private folder of one attempt, removed whatever happens: by its worker, or, where that was killed,
//! by the next one that starts on the machine. A lock on the folder says that its worker lives.

use crate::context::CallContext;
use rustix::fs::{FlockOperation, flock};
use rustix::process::getuid;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use uuid::Uuid;

/// Only the worker's user may enter.
const FOLDER_MODE: u32 = 0o700;

/// What the name of an attempt's folder begins with.
const PREFIX: &str = "toolfleet-attempt-";

/// The same while it is not locked yet.
const PREFIX_FRESH: &str = ".toolfleet-attempt-";

/// How often the removal is tried: a process that was killed may still be writing as it dies.
const REMOVE_ATTEMPTS_MAX: u32 = 20;

/// Between two attempts to remove.
const REMOVE_WAIT: Duration = Duration::from_millis(50);

/// A folder for one attempt: an empty one to work in and, outside of it, the context file.
///
/// Dropped, it goes away on a blocking thread; [`Scratch::remove`] waits for that.
pub(super) struct Scratch {
    folder: Option<Folder>,
    work: PathBuf,
    context_file: PathBuf,
}

impl Scratch {
    /// Makes a fresh one under `root`, which is made too where it is missing, and writes the
    /// context file. Fails as the file system does (full, read-only, no permission).
    pub(super) async fn create(root: PathBuf, context: Arc<CallContext>) -> io::Result<Scratch> {
        spawn_blocking(move || Scratch::lay_out(&root, &context)).await.map_err(io::Error::other)?
    }

    fn lay_out(root: &Path, context: &CallContext) -> io::Result<Scratch> {
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(root)?;
        let fresh = tempfile::Builder::new()
            .prefix(PREFIX_FRESH)
            .permissions(Permissions::from_mode(FOLDER_MODE))
            .tempdir_in(root)?;
        let lock = File::open(fresh.path())?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        // Under a name that the sweep looks at only now that it is locked.
        let path = root.join(format!("{PREFIX}{}", Uuid::new_v4().simple()));
        fs::rename(fresh.path(), &path)?;
        drop(fresh.keep());
        let folder = Folder { path, _lock: lock };
        let work = folder.path.join("scratch");
        DirBuilder::new().mode(FOLDER_MODE).create(&work)?;
        let context_file = folder.path.join("context.json");
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&context_file)?;
        file.write_all(&serde_json::to_vec(context)?)?;
        Ok(Scratch { folder: Some(folder), work, context_file })
    }

    /// The working directory: empty, mode 0700.
    pub(super) fn work(&self) -> &Path {
        &self.work
    }

    /// The file that `$TOOLFLEET_CONTEXT` names.
    pub(super) fn context_file(&self) -> &Path {
        &self.context_file
    }

    /// The path of a file of ours beside the context file.
    pub(super) fn beside(&self, name: &str) -> PathBuf {
        self.context_file.with_file_name(name)
    }

    /// Removes everything and waits until that is done.
    pub(super) async fn remove(mut self) {
        let folder = self.folder.take();
        if let Err(error) = spawn_blocking(move || drop(folder)).await {
            tracing::warn!(%error, "scratch folder may be left");
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let Some(folder) = self.folder.take() else { return };
        // Outside a runtime, or where it takes no more work (it then drops the closure), the
        // folder goes right here.
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || drop(folder))),
            Err(_) => drop(folder),
        }
    }
}

/// Removes what workers that were killed have left under `root`: folders of this user whose lock nobody
/// holds. What cannot be removed is told and left.
pub(super) fn sweep(root: &Path) {
    let Ok(entries) = fs::read_dir(root) else { return };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry
                .metadata()
                .is_ok_and(|found| found.is_dir() && found.uid() == getuid().as_raw());
        if !is_ours {
            continue;
        }
        let path = entry.path();
        // Held until it is gone, so that two workers that start do not get into each other's way.
        let Ok(lock) = File::open(&path) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            tracing::info!(path = %path.display(), "removing what a lost worker left");
            drop(Folder { path, _lock: lock });
        }
    }
}

/// A folder that is removed, blocking, when it is dropped.
struct Folder {
    path: PathBuf,
    /// Held as long as this process lives, and by nobody else: programs do not get it.
    _lock: File,
}

impl Drop for Folder {
    fn drop(&mut self) {
        let mut failure = None;
        for _ in 0..REMOVE_ATTEMPTS_MAX {
            match remove_tree(&self.path) {
                Ok(()) => return,
                Err(error) if error.kind() == io::ErrorKind::NotFound && !self.path.exists() => {
                    return;
                }
                Err(error) => failure = Some(error),
            }
            std::thread::sleep(REMOVE_WAIT);
        }
        let path = self.path.display();
        tracing::warn!(%path, error = ?failure, "scratch folder is left");
    }
}

/// Removes a folder with all that is in it, read-only folders included; links are not followed.
///
/// Subfolders are first moved to the top, so that depth costs neither stack nor descriptors nor
/// path length: a tool may nest as deep as it likes.
fn remove_tree(top: &Path) -> io::Result<()> {
    let name = Uuid::new_v4().simple().to_string();
    let mut moved_count = 0_u64;
    loop {
        unlock(top)?;
        let mut is_flat = true;
        for entry in fs::read_dir(top)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                is_flat = false;
                let folder = entry.path();
                unlock(&folder)?;
                for inner in fs::read_dir(&folder)? {
                    let inner = inner?;
                    if inner.file_type()?.is_dir() {
                        // A folder that moves must be writable itself: its `..` changes.
                        unlock(&inner.path())?;
                        moved_count += 1;
                        fs::rename(inner.path(), top.join(format!("{name}-{moved_count}")))?;
                    } else {
                        fs::remove_file(inner.path())?;
                    }
                }
                fs::remove_dir(&folder)?;
            } else {
                fs::remove_file(entry.path())?;
            }
        }
        if is_flat {
            return fs::remove_dir(top);
        }
    }
}

fn unlock(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[tokio::test]
    async fn it_is_private_and_empty_and_holds_the_context_beside() {
        let root = tempfile::tempdir().unwrap();
        let root_path = root.path().join("deep/er");
        let context = CallContext { call_id: "call_1".into(), ..CallContext::default() };
        let scratch = Scratch::create(root_path.clone(), Arc::new(context)).await.unwrap();
        assert_eq!(fs::read_dir(scratch.work()).unwrap().count(), 0);
        assert_eq!(mode(scratch.work()), 0o700);
        assert_eq!(mode(scratch.work().parent().unwrap()), 0o700);
        assert_eq!(mode(scratch.context_file()), 0o600);
        let text = fs::read_to_string(scratch.context_file()).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["callId"], "call_1");
        scratch.remove().await;
        assert_eq!(fs::read_dir(&root_path).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_root_that_cannot_be_made_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let made = Scratch::create(file.path().join("x"), Arc::default()).await;
        assert!(made.is_err());
    }

    #[test]
    fn removal_takes_read_only_folders_links_and_depth() {
        let root = tempfile::tempdir().unwrap();
        let outside = root.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        let top = root.path().join("top");
        let mut deepest = top.clone();
        for _ in 0..300 {
            deepest.push("folder");
        }
        fs::create_dir_all(&deepest).unwrap();
        fs::write(deepest.join("file"), "x").unwrap();
        std::os::unix::fs::symlink(&outside, top.join("link")).unwrap();
        std::os::unix::fs::symlink(&outside, top.join("folder/link")).unwrap();
        for folder in [&deepest, &top.join("folder"), &top] {
            fs::set_permissions(folder, Permissions::from_mode(0o500)).unwrap();
        }
        remove_tree(&top).unwrap();
        assert!(!top.exists());
        assert!(outside.join("kept").exists());
    }

    #[test]
    fn what_a_lost_worker_left_is_swept_and_what_is_in_use_is_not() {
        let root = tempfile::tempdir().unwrap();
        let live = Scratch::lay_out(root.path(), &CallContext::default()).unwrap();
        let lost = root.path().join(format!("{PREFIX}lost"));
        fs::create_dir_all(lost.join("scratch/ro/deep")).unwrap();
        fs::write(lost.join("scratch/ro/file"), "x").unwrap();
        fs::set_permissions(lost.join("scratch/ro"), Permissions::from_mode(0o500)).unwrap();
        fs::create_dir(root.path().join("attempt-of-others")).unwrap();
        fs::create_dir(root.path().join(format!("{PREFIX_FRESH}new"))).unwrap();
        fs::write(root.path().join(format!("{PREFIX}file")), "x").unwrap();
        sweep(root.path());
        assert!(!lost.exists());
        assert!(live.work().exists());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 4);
        drop(live);
        sweep(root.path());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 3);
        sweep(&root.path().join("missing"));
    }

    #[test]
    fn dropped_outside_a_runtime_it_goes_at_once() {
        let root = tempfile::tempdir().unwrap();
        let scratch = Scratch::lay_out(root.path(), &CallContext::default()).unwrap();
        fs::write(scratch.work().join("left"), "x").unwrap();
        drop(scratch);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
