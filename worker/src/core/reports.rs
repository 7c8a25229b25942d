//! What a tool reports while it runs, as far as its call's record keeps it (CONTRACT 5.9). Everything has
//! a bound; what is beyond it is counted and let go.

use prost::Message as _;
use toolfleet_proto::wire::{ArtifactNote, ComponentNote, MetricNote, ProgressNote, Reports};

/// Reports of one attempt that are looked at.
const REPORTS_MAX: u32 = 10_000;
/// Their size together, bytes.
const REPORT_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Partial output that is kept: its first bytes.
const OUTPUT_BYTES_MAX: usize = 16 * 1024;
/// Text of a progress, and of what stands for a component.
const TEXT_BYTES_MAX: usize = 1024;
/// A name, an id or a media type.
const NAME_BYTES_MAX: usize = 128;
/// Components, artifacts and metrics that are kept, of each.
const ENTRIES_MAX: usize = 64;
/// Their size together as they are stored, bytes. With output and progress, 64 KiB.
const ENTRY_BYTES_MAX: usize = 46 * 1024;

/// The reports of one attempt.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    reports: Reports,
    seen: u32,
    seen_bytes: u64,
}

impl Kept {
    /// Counts a report of so many bytes. `false`: it is beyond the bounds, and only its spend counts.
    pub fn admit(&mut self, bytes: u64) -> bool {
        self.seen = self.seen.saturating_add(1);
        self.seen_bytes = self.seen_bytes.saturating_add(bytes);
        let is_within = self.seen <= REPORTS_MAX && self.seen_bytes <= REPORT_BYTES_MAX;
        if !is_within {
            self.let_go();
        }
        is_within
    }

    /// Counts a report that is not kept.
    pub fn let_go(&mut self) {
        self.reports.dropped = self.reports.dropped.saturating_add(1);
    }

    /// How far it is: the last one counts. A fraction outside of 0 to 1 is moved to the nearer end, one
    /// that is no number is left out.
    pub fn progress(&mut self, fraction: Option<f64>, text: &str) {
        let fraction = fraction.filter(|part| !part.is_nan()).map(|part| part.clamp(0.0, 1.0));
        let text = cut(text, TEXT_BYTES_MAX).to_owned();
        self.reports.progress = Some(ProgressNote { fraction, text });
    }

    /// A further part of the output: the first bytes of all are kept, whole characters.
    pub fn output(&mut self, text: &str) {
        // Nothing follows where something was left out.
        if self.reports.output.len() as u64 == self.reports.output_bytes {
            let room = OUTPUT_BYTES_MAX.saturating_sub(self.reports.output.len());
            self.reports.output.push_str(cut(text, room));
        }
        let whole = self.reports.output_bytes.saturating_add(text.len() as u64);
        self.reports.output_bytes = whole;
    }

    /// A component: the last version of each id counts, and without an id of each name.
    pub fn component(&mut self, mut component: ComponentNote) {
        if component.id.is_empty() {
            component.id.clone_from(&component.name);
        }
        let kept_bytes = component.fallback_text.floor_char_boundary(TEXT_BYTES_MAX);
        component.fallback_text.truncate(kept_bytes);
        if !are_names([&component.id, &component.name]) {
            return self.let_go();
        }
        let same = self.reports.components.iter().position(|other| other.id == component.id);
        let is_older =
            |other: &ComponentNote| other.version.is_some() && component.version < other.version;
        if same.and_then(|at| self.reports.components.get(at)).is_some_and(is_older) {
            return;
        }
        let mut components = self.reports.components.clone();
        replace(&mut components, same, component);
        self.keep(Reports { components, ..self.reports.clone() });
    }

    /// An artifact: the last one of each name counts.
    pub fn artifact(&mut self, artifact: ArtifactNote) {
        if !are_names([&artifact.name, &artifact.media_type]) || artifact.name.is_empty() {
            return self.let_go();
        }
        let same = self.reports.artifacts.iter().position(|other| other.name == artifact.name);
        let mut artifacts = self.reports.artifacts.clone();
        replace(&mut artifacts, same, artifact);
        self.keep(Reports { artifacts, ..self.reports.clone() });
    }

    /// A measured value: the last one of each name counts.
    pub fn metric(&mut self, name: &str, value: f64) {
        if !are_names([name, name]) || name.is_empty() || !value.is_finite() {
            return self.let_go();
        }
        let same = self.reports.metrics.iter().position(|other| other.name == name);
        let mut metrics = self.reports.metrics.clone();
        replace(&mut metrics, same, MetricNote { name: name.to_owned(), value });
        self.keep(Reports { metrics, ..self.reports.clone() });
    }

    /// Keeps what is within the bounds.
    fn keep(&mut self, next: Reports) {
        let counts = [next.components.len(), next.artifacts.len(), next.metrics.len()];
        let entries = Reports {
            components: next.components.clone(),
            artifacts: next.artifacts.clone(),
            metrics: next.metrics.clone(),
            ..Reports::default()
        };
        if counts.iter().all(|count| *count <= ENTRIES_MAX)
            && entries.encoded_len() <= ENTRY_BYTES_MAX
        {
            self.reports = next;
        } else {
            self.let_go();
        }
    }

    /// What is kept; `None` where nothing was reported.
    pub fn reports(&self) -> Option<Reports> {
        (self.reports != Reports::default()).then(|| self.reports.clone())
    }
}

fn replace<T>(entries: &mut Vec<T>, same: Option<usize>, entry: T) {
    match same.and_then(|at| entries.get_mut(at)) {
        Some(other) => *other = entry,
        None => entries.push(entry),
    }
}

fn are_names(names: [&str; 2]) -> bool {
    names.into_iter().all(|name| name.len() <= NAME_BYTES_MAX)
}

/// The first bytes of a text, whole characters.
fn cut(text: &str, bytes_max: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(id: &str, version: Option<u64>, props: &str) -> ComponentNote {
        ComponentNote {
            id: id.into(),
            name: "chart".into(),
            props: props.as_bytes().to_vec().into(),
            version,
            fallback_text: "a chart".into(),
        }
    }

    #[test]
    fn nothing_reported_is_nothing_kept() {
        assert_eq!(Kept::default().reports(), None);
    }

    #[test]
    fn the_last_progress_counts_and_its_fraction_is_one() {
        let mut kept = Kept::default();
        for (fraction, expected) in
            [(Some(0.5), Some(0.5)), (Some(7.0), Some(1.0)), (Some(-1.0), Some(0.0)), (None, None)]
        {
            kept.progress(fraction, &"€".repeat(1_000));
            let progress = kept.reports().unwrap().progress.unwrap();
            assert_eq!((progress.fraction, progress.text.len()), (expected, 1_023));
        }
        kept.progress(Some(f64::NAN), "");
        assert_eq!(kept.reports().unwrap().progress.unwrap().fraction, None);
    }

    #[test]
    fn the_first_bytes_of_the_output_are_kept_and_all_are_counted() {
        let mut kept = Kept::default();
        kept.output("one ");
        kept.output("two");
        let reports = kept.reports().unwrap();
        assert_eq!((reports.output.as_str(), reports.output_bytes), ("one two", 7));
        kept.output(&"€".repeat(10_000));
        kept.output("x");
        let reports = kept.reports().unwrap();
        assert_eq!(reports.output_bytes, 7 + 30_000 + 1);
        assert!(reports.output.len() <= OUTPUT_BYTES_MAX && reports.output.ends_with('€'));
    }

    #[test]
    fn the_last_version_of_each_component_is_kept() {
        let mut kept = Kept::default();
        kept.component(component("a", Some(2), "{\"n\":2}"));
        kept.component(component("a", Some(1), "{\"n\":1}"));
        kept.component(component("b", None, "{}"));
        kept.component(component("b", None, "[]"));
        kept.component(component("", None, "null"));
        let found: Vec<(String, Vec<u8>)> = kept
            .reports()
            .unwrap()
            .components
            .into_iter()
            .map(|component| (component.id, component.props.to_vec()))
            .collect();
        let expected = [
            ("a".to_owned(), b"{\"n\":2}".to_vec()),
            ("b".to_owned(), b"[]".to_vec()),
            ("chart".to_owned(), b"null".to_vec()),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_beyond_a_bound_is_counted_and_what_was_kept_stays() {
        let mut kept = Kept::default();
        kept.component(component("a", None, "1"));
        kept.component(component("a", None, &"x".repeat(ENTRY_BYTES_MAX)));
        kept.component(component(&"i".repeat(129), None, "1"));
        for number in 0..100 {
            kept.metric(&format!("m{number}"), 1.5);
        }
        kept.metric("m0", 2.5);
        kept.metric("m1", f64::INFINITY);
        let reports = kept.reports().unwrap();
        assert_eq!(reports.components[0].props.to_vec(), b"1");
        assert_eq!((reports.metrics.len(), reports.metrics[0].value), (64, 2.5));
        assert_eq!(reports.dropped, 2 + 36 + 1);
    }

    #[test]
    fn everything_together_stays_small() {
        let mut kept = Kept::default();
        kept.progress(Some(0.1), &"t".repeat(5_000));
        kept.output(&"o".repeat(50_000));
        for number in 0..100 {
            let name = format!("{number:0>120}");
            kept.component(component(&name, None, &"p".repeat(400)));
            let sha256 = "0".repeat(64);
            let media_type = "m".repeat(120);
            kept.artifact(ArtifactNote { name: name.clone(), media_type, bytes: 1, sha256 });
            kept.metric(&name, 1.0);
        }
        assert!(kept.reports().unwrap().encoded_len() <= 64 * 1024);
    }

    #[test]
    fn only_so_many_reports_are_looked_at() {
        let mut kept = Kept::default();
        assert!((0..REPORTS_MAX).all(|_| kept.admit(1)));
        assert!(!kept.admit(1));
        let mut kept = Kept::default();
        assert!(kept.admit(REPORT_BYTES_MAX) && !kept.admit(1));
        assert_eq!(kept.reports().unwrap().dropped, 1);
    }
}
