//! Names near a name that does not exist (CONTRACT 2.4).

/// Names listed in an error.
const LISTED_MAX: usize = 20;

/// Edit distance: insertions, deletions and substitutions of bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// The text for a tool that is not on offer: the names that are, near ones first, at most 20, then
/// how many more. The unknown name is quoted only up to 64 bytes.
pub fn not_found_text(name: &str, on_offer: &[&str]) -> String {
    let mut cut = name.len().min(64);
    while !name.is_char_boundary(cut) {
        cut -= 1;
    }
    let ellipsis = if cut < name.len() { "…" } else { "" };
    let quoted = format!("{:?}{ellipsis}", &name[..cut]);
    if on_offer.is_empty() {
        return format!("unknown tool {quoted}; no tool is on offer");
    }
    let mut names: Vec<&str> = on_offer.to_vec();
    names.sort_by_key(|known| (distance(&name[..cut], known), *known));
    let listed = names.iter().take(LISTED_MAX).copied().collect::<Vec<_>>().join(", ");
    let more = names.len().saturating_sub(LISTED_MAX);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!("unknown tool {quoted}; on offer: {listed}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_come_first_and_the_list_is_bounded() {
        let text = not_found_text("serch", &["weather", "search", "zebra"]);
        assert_eq!(text, "unknown tool \"serch\"; on offer: search, zebra, weather");
        let many: Vec<String> = (0..30).map(|n| format!("tool{n:02}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(not_found_text("x", &many).ends_with(", and 10 more"));
        assert_eq!(not_found_text("x", &[]), "unknown tool \"x\"; no tool is on offer");
    }

    #[test]
    fn a_hostile_name_is_quoted_and_cut() {
        let text = not_found_text(&"ü\n".repeat(100), &["a"]);
        assert!(text.len() < 300 && text.contains("\\n") && text.contains('…'), "{text}");
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
