//! Descriptor 3: what a tool says while it runs, one JSON object a line (CONTRACT 5.1). Spend is
//! recorded, log lines and what does not parse go to the worker's log, everything else to the reports of
//! the call.

use crate::reports::{Level, Reports};
use crate::spend::{Amount, Spend};
use command_fds::{CommandFdExt as _, FdMapping};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio::task::JoinHandle;
use toolfleet_proto::wire::ComponentNote;
use tracing::Instrument as _;

/// Its number in the tool.
const DESCRIPTOR: i32 = 3;
/// Bytes of one line, the line break included; a longer one is let go.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// How long a background child may keep talking once the tool itself has ended.
const FINISH: Duration = Duration::from_secs(1);

/// A line of descriptor 3. Amounts are strings: money is never a float.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Line {
    Spend {
        service: String,
        amount: String,
        currency: String,
        #[serde(default)]
        quantity: String,
        #[serde(default)]
        unit: String,
    },
    Log {
        #[serde(default)]
        level: String,
        message: String,
        #[serde(default)]
        fields: Map<String, Value>,
    },
    Progress {
        #[serde(default)]
        fraction: Option<f64>,
        #[serde(default)]
        text: String,
    },
    Output {
        text: String,
    },
    /// Read as [`Component`]: a tagged line would be taken apart, and its numbers would lose digits.
    Ui {},
    Artifact {
        path: PathBuf,
        #[serde(default)]
        name: String,
        #[serde(default, rename = "mediaType")]
        media_type: String,
    },
    Metric {
        name: String,
        value: f64,
    },
}

/// A line of the type `ui`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Component<'a> {
    name: String,
    #[serde(default, borrow)]
    props: Option<&'a RawValue>,
    #[serde(default)]
    id: String,
    #[serde(default)]
    version: Option<u64>,
    #[serde(default)]
    fallback_text: String,
}

/// Gives the tool its descriptor 3. Returns our end.
pub(super) fn open(command: &mut Command) -> io::Result<OwnedFd> {
    let (ours, tools) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    let mapping = FdMapping { parent_fd: tools, child_fd: DESCRIPTOR };
    command.fd_mappings(vec![mapping]).map_err(io::Error::other)?;
    Ok(ours)
}

/// Where lines go.
pub(super) struct Listener {
    /// Records spend.
    pub(super) spend: Option<Spend>,
    /// Takes everything else.
    pub(super) reports: Reports,
    /// The tool's working directory, in which artifacts lie.
    pub(super) work: PathBuf,
}

impl Listener {
    /// Listens until the tool has closed its end.
    pub(super) fn listen(self, ours: OwnedFd) -> Option<JoinHandle<()>> {
        let receiver = match pipe::Receiver::from_owned_fd(ours) {
            Ok(receiver) => receiver,
            Err(error) => {
                tracing::warn!(%error, "nobody listens on descriptor 3");
                return None;
            }
        };
        let span = tracing::Span::current();
        Some(tokio::spawn(self.read(receiver).instrument(span)))
    }

    async fn read(self, receiver: pipe::Receiver) {
        let mut reader = BufReader::new(receiver);
        let mut line = Vec::new();
        let mut is_rest = false;
        loop {
            line.clear();
            let read = (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await;
            if matches!(read, Ok(0) | Err(_)) {
                return;
            }
            let is_cut = line.len() as u64 == LINE_BYTES_MAX && !line.ends_with(b"\n");
            if is_rest || is_cut {
                if !is_rest {
                    tracing::warn!("a line of descriptor 3 is longer than 64 KiB");
                    self.reports.lock().let_go();
                }
            } else {
                self.take_in(&line).await;
            }
            is_rest = is_cut;
        }
    }

    async fn take_in(&self, line: &[u8]) {
        let reports = &self.reports;
        match serde_json::from_slice::<Line>(line) {
            // Whatever else was said: what is spent counts.
            Ok(Line::Spend { service, amount, currency, quantity, unit }) => {
                let Some(spend) = &self.spend else { return };
                let amount = Amount { service, amount, currency, quantity, unit };
                if let Err(error) = spend.record(amount).await {
                    tracing::warn!(%error, "spend was not recorded");
                }
            }
            Ok(Line::Log { level, message, fields }) => {
                reports.log(Level::of(&level), &message, &fields);
            }
            Ok(Line::Progress { fraction, text }) => reports.progress(fraction, &text),
            Ok(Line::Output { text }) => reports.output(&text),
            Ok(Line::Ui {}) => match serde_json::from_slice::<Component<'_>>(line) {
                Ok(component) => self.show(component, line.len()),
                Err(_) => self.say(line),
            },
            Ok(Line::Artifact { path, name, media_type }) => {
                let below = Some(self.work.clone());
                let shown = path.display().to_string();
                let noted = reports.artifact_below(below, path, &name, &media_type).await;
                if let Err(error) = noted {
                    tracing::warn!(path = shown, %error, "an artifact was not noted");
                }
            }
            Ok(Line::Metric { name, value }) => reports.metric(&name, value),
            Err(_) => self.say(line),
        }
    }

    fn show(&self, component: Component<'_>, bytes: usize) {
        let mut kept = self.reports.lock();
        if kept.admit(bytes as u64) {
            let props = component.props.map_or("null", RawValue::get).as_bytes().to_vec();
            kept.component(ComponentNote {
                id: component.id,
                name: component.name,
                props: props.into(),
                version: component.version,
                fallback_text: component.fallback_text,
            });
        }
    }

    /// A line that does not parse is a log line.
    fn say(&self, line: &[u8]) {
        self.reports.log(Level::Info, String::from_utf8_lossy(line).trim_end(), &Map::new());
    }
}

/// Waits for what was said before the end.
pub(super) async fn finish(listening: Option<JoinHandle<()>>) {
    let Some(mut listening) = listening else { return };
    if tokio::time::timeout(FINISH, &mut listening).await.is_err() {
        listening.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_by_their_type_and_amounts_are_text() {
        let read = |text: &str| serde_json::from_str::<Line>(text);
        let spend = r#"{"type":"spend","service":"s","amount":"0.0025","currency":"USD"}"#;
        assert!(matches!(read(spend).unwrap(), Line::Spend { amount, .. } if amount == "0.0025"));
        assert!(read(&spend.replace("\"0.0025\"", "0.0025")).is_err());
        let half = read(r#"{"type":"progress","fraction":0.5}"#).unwrap();
        assert_eq!(half, Line::Progress { fraction: Some(0.5), text: String::new() });
        assert!(read(r#"{"type":"unheard"}"#).is_err());
        assert!(read(r#"{"type":"metric","name":"rows","value":"3"}"#).is_err());
    }

    /// What a listener keeps of these bytes.
    async fn said(text: &str) -> Option<toolfleet_proto::wire::Reports> {
        let (ours, tools) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        rustix::io::ioctl_fionbio(&ours, true).unwrap();
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("plot.svg"), "<svg/>").unwrap();
        let reports = Reports::default();
        let (listener_reports, work) = (reports.clone(), place.path().to_owned());
        let listener = Listener { spend: None, reports: listener_reports, work };
        let listening = listener.listen(ours).unwrap();
        let text = text.to_owned();
        let writing = tokio::task::spawn_blocking(move || {
            std::io::Write::write_all(&mut std::fs::File::from(tools), text.as_bytes()).unwrap();
        });
        writing.await.unwrap();
        tokio::time::timeout(Duration::from_secs(10), listening).await.unwrap().unwrap();
        reports.kept()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_type_is_kept_as_it_was_said() {
        let kept = said(concat!(
            "{\"type\":\"progress\",\"fraction\":0.25,\"text\":\"reading\"}\n",
            "{\"type\":\"output\",\"text\":\"part one\"}\n",
            "{\"type\":\"ui\",\"name\":\"table\",\"id\":\"t\",\"version\":1,\"props\":{\"n\":1}}\n",
            "{\"type\":\"ui\",\"name\":\"table\",\"id\":\"t\",\"version\":2,",
            "\"props\":{\"n\":12345678901234567890.10},\"fallbackText\":\"a table\"}\n",
            "{\"type\":\"artifact\",\"path\":\"plot.svg\",\"name\":\"plot\",\"mediaType\":\"image/svg+xml\"}\n",
            "{\"type\":\"artifact\",\"path\":\"../secret\"}\n",
            "{\"type\":\"metric\",\"name\":\"rows\",\"value\":3}\n",
            "{\"type\":\"log\",\"level\":\"warn\",\"message\":\"slow\",\"fields\":{\"ms\":7}}\n",
            "not json\n",
            "{\"type\":\"progress\",\"fraction\":1}",
        ))
        .await
        .unwrap();
        assert_eq!(kept.progress.unwrap().fraction, Some(1.0));
        assert_eq!((kept.output.as_str(), kept.output_bytes), ("part one", 8));
        assert_eq!(kept.components.len(), 1);
        assert_eq!(kept.components[0].props.to_vec(), b"{\"n\":12345678901234567890.10}");
        assert_eq!(kept.components[0].fallback_text, "a table");
        assert_eq!((kept.artifacts[0].name.as_str(), kept.artifacts[0].bytes), ("plot", 6));
        assert_eq!((kept.metrics[0].name.as_str(), kept.metrics[0].value), ("rows", 3.0));
        assert_eq!(kept.dropped, 1, "the artifact from outside");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_line_that_is_too_long_is_let_go_and_the_next_one_is_read() {
        let long = "x".repeat(200_000);
        let kept = said(&format!(
            "{{\"type\":\"output\",\"text\":\"{long}\"}}\n{{\"type\":\"output\",\"text\":\"short\"}}\n"
        ))
        .await
        .unwrap();
        assert_eq!((kept.output.as_str(), kept.dropped), ("short", 1));
    }
}
