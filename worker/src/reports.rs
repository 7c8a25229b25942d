//! What a running tool reports, on its way to its call's record and to the worker's log (CONTRACT 5.9).

use crate::core::reports::Kept;
use rustix::fs::{CWD, Mode, OFlags, openat};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use toolfleet_proto::descriptor::hex;
use toolfleet_proto::wire::{self, ArtifactNote, ComponentNote};

/// Largest file that an artifact may name.
const ARTIFACT_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Bytes of a log line's message, and of its fields.
const LOG_BYTES_MAX: usize = 4 * 1024;

/// How grave a log line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// For those who look for a fault in the tool.
    Debug,
    /// For the record.
    Info,
    /// Somebody should look.
    Warn,
    /// Something failed.
    Error,
}

impl Level {
    /// By its word; a word that is none of them is [`Level::Info`].
    pub fn of(word: &str) -> Level {
        match word.to_ascii_lowercase().as_str() {
            "trace" | "debug" => Level::Debug,
            "warn" | "warning" => Level::Warn,
            "error" | "fatal" | "critical" => Level::Error,
            _ => Level::Info,
        }
    }
}

/// A part of a user interface that a tool shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Component {
    /// What renders it.
    pub name: String,
    /// What it shows.
    pub props: Value,
    /// Names it among those of the call; empty: its name does.
    pub id: String,
    /// Of two with the same id the higher one stays, without one the later.
    pub version: Option<u64>,
    /// Words where it cannot be rendered.
    pub fallback_text: String,
}

/// The reports of one attempt. Clones share them. What is kept of them is bounded, 64 KiB in all: what is
/// beyond is counted and let go.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    kept: Arc<Mutex<Kept>>,
}

impl Reports {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing panics while the lock is held.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, bytes: usize, take: impl FnOnce(&mut Kept)) {
        let mut kept = self.lock();
        if kept.admit(bytes as u64) {
            take(&mut kept);
        }
    }

    /// How far the tool is, from 0 to 1 where that can be said, in words. The last one is kept.
    pub fn progress(&self, fraction: Option<f64>, text: &str) {
        self.take(text.len(), |kept| kept.progress(fraction, text));
    }

    /// A part of the output before it is whole. The first 16 KiB are kept, apart from the result.
    pub fn output(&self, text: &str) {
        self.take(text.len(), |kept| kept.output(text));
    }

    /// Shows a component, or a new version of it. The last one of each is kept.
    pub fn ui(&self, component: Component) {
        let Component { name, props, id, version, fallback_text } = component;
        let props = props.to_string().into_bytes().into();
        let note = ComponentNote { id, name, props, version, fallback_text };
        self.take(note.props.len(), |kept| kept.component(note));
    }

    /// A measured value. The last one of each name is kept with the call; it is no metric of the worker.
    pub fn metric(&self, name: &str, value: f64) {
        self.take(name.len(), |kept| kept.metric(name, value));
    }

    /// A line of the worker's log.
    pub fn log(&self, level: Level, message: &str, fields: &Map<String, Value>) {
        self.take(message.len(), |_| say(level, message, fields));
    }

    /// A file that the tool has made: its name, size, hash and media type are kept. There is no store of
    /// artifacts yet, so the file itself is not. Without a name it has that of the file.
    ///
    /// # Errors
    /// Where it is no file, cannot be read, or has more than 256 MiB.
    pub async fn artifact(&self, path: PathBuf, name: &str, media_type: &str) -> io::Result<()> {
        self.artifact_below(None, path, name, media_type).await
    }

    /// The same of a file that must lie below a folder, links followed.
    pub(crate) async fn artifact_below(
        &self,
        folder: Option<PathBuf>,
        path: PathBuf,
        name: &str,
        media_type: &str,
    ) -> io::Result<()> {
        let name = match name {
            "" => path.file_name().map(|name| name.to_string_lossy().into_owned()),
            name => Some(name.to_owned()),
        };
        let looked = tokio::task::spawn_blocking(move || look_at(folder.as_deref(), &path)).await;
        let (bytes, sha256) = match looked.map_err(io::Error::other)? {
            Ok(looked) => looked,
            Err(error) => {
                self.lock().let_go();
                return Err(error);
            }
        };
        let (name, media_type) = (name.unwrap_or_default(), media_type.to_owned());
        let note = ArtifactNote { name, media_type, bytes, sha256 };
        self.take(note.name.len(), |kept| kept.artifact(note));
        Ok(())
    }

    /// What is kept so far; `None` where nothing was reported.
    pub(crate) fn kept(&self) -> Option<wire::Reports> {
        self.lock().reports()
    }
}

/// Size and SHA-256 of a file.
fn look_at(folder: Option<&Path>, path: &Path) -> io::Result<(u64, String)> {
    let refused = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    let whole =
        folder.map_or_else(|| path.to_owned(), |folder| folder.join(path)).canonicalize()?;
    if let Some(folder) = folder
        && !whole.starts_with(folder.canonicalize()?)
    {
        return refused("it is outside of the tool's folder");
    }
    // A FIFO in its place must not stop this thread.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = File::from(openat(CWD, &whole, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return refused("it is no file");
    }
    if metadata.len() > ARTIFACT_BYTES_MAX {
        return refused("it is larger than 256 MiB");
    }
    let (mut hasher, mut bytes) = (Sha256::new(), 0);
    let mut file = file.take(ARTIFACT_BYTES_MAX);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok((bytes, hex(&hasher.finalize())));
        }
        hasher.update(buffer.get(..count).unwrap_or_default());
        bytes += count as u64;
    }
}

/// Says it in the worker's log, in the span of the try.
fn say(level: Level, message: &str, fields: &Map<String, Value>) {
    let said = bounded(message);
    // Without any, nothing is said of them.
    let fields = if fields.is_empty() { None } else { serde_json::to_string(fields).ok() };
    let fields = fields.as_deref().map(bounded);
    match level {
        Level::Debug => tracing::debug!(said, fields, "the tool says"),
        Level::Info => tracing::info!(said, fields, "the tool says"),
        Level::Warn => tracing::warn!(said, fields, "the tool says"),
        Level::Error => tracing::error!(said, fields, "the tool says"),
    }
}

fn bounded(text: &str) -> &str {
    text.get(..text.floor_char_boundary(LOG_BYTES_MAX)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn levels_are_a_closed_set() {
        assert_eq!(Level::of("WARNING"), Level::Warn);
        assert_eq!(Level::of("error"), Level::Error);
        assert_eq!(Level::of("debug"), Level::Debug);
        assert_eq!(Level::of("shout"), Level::Info);
    }

    #[test]
    fn clones_share_what_is_kept() {
        let reports = Reports::default();
        assert_eq!(reports.kept(), None);
        reports.clone().progress(Some(0.5), "half");
        reports.ui(Component {
            name: "chart".into(),
            props: json!({"n": 1}),
            ..Component::default()
        });
        reports.metric("rows", 3.0);
        let kept = reports.kept().unwrap();
        assert_eq!(kept.progress.unwrap().text, "half");
        assert_eq!(kept.components[0].props.to_vec(), b"{\"n\":1}");
        assert_eq!((kept.metrics[0].name.as_str(), kept.metrics[0].value), ("rows", 3.0));
    }

    #[tokio::test]
    async fn an_artifact_is_hashed_and_what_lies_elsewhere_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("work");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("a.txt"), "abc").unwrap();
        std::fs::write(place.path().join("secret"), "s").unwrap();
        std::os::unix::fs::symlink(place.path().join("secret"), folder.join("link")).unwrap();
        let reports = Reports::default();
        let note = async |path: &str, name: &str| {
            let below = Some(folder.clone());
            reports.artifact_below(below, path.into(), name, "text/plain").await
        };
        note("a.txt", "").await.unwrap();
        note("./a.txt", "letters").await.unwrap();
        for path in ["../secret", "link", "/etc/passwd", ".", "missing"] {
            assert!(note(path, "").await.is_err(), "{path}");
        }
        rustix::fs::mknodat(
            CWD,
            folder.join("fifo"),
            rustix::fs::FileType::Fifo,
            Mode::from_bits_retain(0o600),
            0,
        )
        .unwrap();
        assert!(note("fifo", "").await.is_err());
        let kept = reports.kept().unwrap();
        let names: Vec<&str> = kept.artifacts.iter().map(|note| note.name.as_str()).collect();
        assert_eq!((names, kept.dropped), (vec!["a.txt", "letters"], 6));
        assert_eq!(kept.artifacts[0].bytes, 3);
        assert_eq!(
            kept.artifacts[0].sha256,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
