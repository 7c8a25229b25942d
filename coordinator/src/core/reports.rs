//! What a tool reported while it ran, as callers read it (CONTRACT 5.9).

use serde::Serialize;
use serde_json::value::RawValue;
use toolfleet_proto::wire::Reports;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<Progress<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Output<'a>>,
    components: Vec<Component<'a>>,
    artifacts: Vec<Artifact<'a>>,
    metrics: Vec<Metric<'a>>,
    dropped: u32,
}

#[derive(Serialize)]
struct Progress<'a> {
    fraction: Option<f64>,
    text: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Output<'a> {
    text: &'a str,
    whole_bytes: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Component<'a> {
    id: &'a str,
    name: &'a str,
    version: Option<u64>,
    props: Option<&'a RawValue>,
    fallback_text: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Artifact<'a> {
    name: &'a str,
    media_type: &'a str,
    bytes: u64,
    sha256: &'a str,
    /// Whether its content can be read.
    is_kept: bool,
}

#[derive(Serialize)]
struct Metric<'a> {
    name: &'a str,
    value: f64,
}

/// JSON text; the numbers of components keep their digits.
pub fn text(reports: &Reports) -> String {
    let shown = Shown {
        progress: reports
            .progress
            .as_ref()
            .map(|progress| Progress { fraction: progress.fraction, text: &progress.text }),
        output: (reports.output_bytes > 0)
            .then_some(Output { text: &reports.output, whole_bytes: reports.output_bytes }),
        components: reports
            .components
            .iter()
            .map(|component| Component {
                id: &component.id,
                name: &component.name,
                version: component.version,
                props: serde_json::from_slice(&component.props).ok(),
                fallback_text: &component.fallback_text,
            })
            .collect(),
        artifacts: reports
            .artifacts
            .iter()
            .map(|artifact| Artifact {
                name: &artifact.name,
                media_type: &artifact.media_type,
                bytes: artifact.bytes,
                sha256: &artifact.sha256,
                // There is no store of artifacts yet.
                is_kept: false,
            })
            .collect(),
        metrics: reports
            .metrics
            .iter()
            .map(|metric| Metric { name: &metric.name, value: metric.value })
            .collect(),
        dropped: reports.dropped,
    };
    serde_json::to_string(&shown).unwrap_or_else(|_| "null".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolfleet_proto::wire::{ArtifactNote, ComponentNote, ProgressNote};

    #[test]
    fn everything_is_shown_with_its_digits() {
        let reports = Reports {
            progress: Some(ProgressNote { fraction: Some(0.5), text: "half".into() }),
            output: "par".into(),
            output_bytes: 7,
            components: vec![ComponentNote {
                id: "t".into(),
                name: "table".into(),
                props: b"{\"n\":12345678901234567890.10}".to_vec().into(),
                ..ComponentNote::default()
            }],
            artifacts: vec![ArtifactNote { name: "plot".into(), ..ArtifactNote::default() }],
            dropped: 2,
            ..Reports::default()
        };
        assert_eq!(
            text(&reports),
            concat!(
                r#"{"progress":{"fraction":0.5,"text":"half"},"output":{"text":"par","wholeBytes":7},"#,
                r#""components":[{"id":"t","name":"table","version":null,"#,
                r#""props":{"n":12345678901234567890.10},"fallbackText":""}],"#,
                r#""artifacts":[{"name":"plot","mediaType":"","bytes":0,"sha256":"","isKept":false}],"#,
                r#""metrics":[],"dropped":2}"#
            )
        );
        assert_eq!(
            text(&Reports::default()),
            r#"{"components":[],"artifacts":[],"metrics":[],"dropped":0}"#
        );
    }
}
