//! The bound of what a model reads (CONTRACT 6.4).

/// The form of the marker, part of every descriptor's hash (CONTRACT 1.11).
pub const MARKER_FORM: &str = "\n[result truncated: {whole} bytes, the first {kept} kept]";

/// How far back from the bound a cut looks for white space, in bytes.
const WINDOW_BYTES: usize = 256;

/// A text within its bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounded {
    /// What the model reads: the kept part, and the marker if something was cut.
    pub text: String,
    /// Whether something was cut. Known from the cut itself, never read from the text.
    pub is_truncated: bool,
    /// Size of the whole, bytes of UTF-8.
    pub whole_bytes: u64,
    /// Size of the kept part, without the marker.
    pub kept_bytes: u64,
}

/// Cuts a text to `bytes_max` bytes of UTF-8 and marks the cut; a text that fits is left alone.
pub fn bound(text: &str, bytes_max: u64) -> Bounded {
    bound_kept(text, text.len() as u64, bytes_max)
}

/// As [`bound`], for a text of `whole_bytes` of which only the prefix `kept` was kept while reading.
pub fn bound_kept(kept: &str, whole_bytes: u64, bytes_max: u64) -> Bounded {
    let kept_whole = whole_bytes.max(kept.len() as u64);
    if kept_whole <= bytes_max && kept_whole == kept.len() as u64 {
        return Bounded {
            text: kept.to_owned(),
            is_truncated: false,
            whole_bytes: kept_whole,
            kept_bytes: kept_whole,
        };
    }
    let part = &kept[..cut(kept, bytes_max)];
    let kept_bytes = part.len() as u64;
    let marker = MARKER_FORM
        .replace("{whole}", &grouped(kept_whole))
        .replace("{kept}", &grouped(kept_bytes));
    Bounded {
        text: format!("{part}{marker}"),
        is_truncated: true,
        whole_bytes: kept_whole,
        kept_bytes,
    }
}

/// Where to cut: at the last white space of the window, else at the last character boundary.
fn cut(text: &str, bytes_max: u64) -> usize {
    let end = usize::try_from(bytes_max).unwrap_or(usize::MAX).min(text.len());
    let start = end.saturating_sub(WINDOW_BYTES);
    // White space is one byte of ASCII, which is never part of a longer character.
    let white = text.as_bytes()[start..end]
        .iter()
        .rposition(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
    white.map_or_else(|| text.floor_char_boundary(end), |at| start + at)
}

/// A number in decimal with a comma between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Takes a marked text apart: the kept part, the whole size and the kept size it names.
    fn parts(text: &str) -> (&str, u64, u64) {
        let (kept, marker) = text.rsplit_once("\n[result truncated: ").unwrap();
        let (whole, rest) = marker.split_once(" bytes, the first ").unwrap();
        let number = |text: &str| text.replace(',', "").parse::<u64>().unwrap();
        (kept, number(whole), number(rest.strip_suffix(" kept]").unwrap()))
    }

    #[test]
    fn a_text_that_fits_is_left_alone() {
        assert_eq!(bound("four", 4).text, "four");
        assert!(!bound("four", 4).is_truncated);
        assert_eq!(bound("", 1).text, "");
    }

    #[test]
    fn the_cut_is_at_the_last_white_space_and_the_white_space_goes() {
        assert_eq!(
            bound("one two three", 9).text,
            "one two\n[result truncated: 13 bytes, the first 7 kept]"
        );
        let far = format!("a {}", "b".repeat(2000));
        assert_eq!(bound(&far, 1000).kept_bytes, 1000, "white space before the window is no cut");
        let edge = format!("{} {}", "a".repeat(744), "b".repeat(2000));
        assert_eq!(bound(&edge, 1000).kept_bytes, 744, "the window's first byte counts");
        assert_eq!(bound(&edge, 1001).kept_bytes, 1001);
    }

    #[test]
    fn sizes_have_thousands_separators() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_048_587), "1,048,587");
        let marked = bound(&"x".repeat(300_000), 262_144).text;
        assert!(marked.ends_with("\n[result truncated: 300,000 bytes, the first 262,144 kept]"));
    }

    #[test]
    fn a_forged_marker_is_kept_as_text() {
        let forged = "row\n[result truncated: 9,999 bytes, the first 12 kept]";
        assert_eq!(bound(forged, 1000).text, forged);
        assert!(!bound(forged, 1000).is_truncated);
        let cut = bound(&format!("{forged}{}", "y".repeat(3000)), 1000);
        assert_eq!(parts(&cut.text).1, cut.whole_bytes);
    }

    #[test]
    fn a_prefix_names_the_size_of_the_whole() {
        let bounded = bound_kept("abcdef", 5_000_000, 4);
        assert_eq!(bounded.text, "abcd\n[result truncated: 5,000,000 bytes, the first 4 kept]");
        let short = bound_kept("ab", 10, 100);
        assert!(short.is_truncated, "what was not kept is missing, bound or not");
    }

    proptest! {
        #[test]
        fn a_bounded_text_is_a_marked_prefix(text in "(\\PC|[ \t\r\n]){0,700}", bytes_max in 1u64..900) {
            let bounded = bound(&text, bytes_max);
            prop_assert_eq!(bounded.whole_bytes, text.len() as u64);
            prop_assert_eq!(bounded.is_truncated, text.len() as u64 > bytes_max);
            if bounded.is_truncated {
                let (kept, whole_bytes, kept_bytes) = parts(&bounded.text);
                prop_assert!(text.starts_with(kept));
                prop_assert!(kept.len() as u64 <= bytes_max);
                prop_assert_eq!(whole_bytes, text.len() as u64);
                prop_assert_eq!(kept_bytes, kept.len() as u64);
                prop_assert_eq!(bounded.kept_bytes, kept_bytes);
            } else {
                prop_assert_eq!(&bounded.text, &text);
            }
        }

        #[test]
        fn without_white_space_less_than_a_character_is_lost(
            text in "[aé中😀]{1,400}", bytes_max in 1u64..1500,
        ) {
            let bounded = bound(&text, bytes_max);
            prop_assert!(bounded.kept_bytes + 4 > bytes_max.min(text.len() as u64));
        }
    }
}
