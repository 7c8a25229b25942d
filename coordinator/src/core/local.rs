//! Tools that the loop runs itself (CONTRACT 3.1): names, or patterns with `*`.

/// Whether a name is one of the loop's own tools.
pub fn is_local(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| matches(pattern.as_bytes(), name.as_bytes()))
}

/// `*` stands for any run of bytes, also none. Linear in the product of the lengths.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while n < name.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            last_star = Some((p, n));
            p += 1;
        } else if p < pattern.len() && pattern[p] == name[n] {
            p += 1;
            n += 1;
        } else if let Some((star, at)) = last_star {
            last_star = Some((star, at + 1));
            p = star + 1;
            n = at + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::is_local;

    #[test]
    fn names_and_patterns() {
        let patterns = ["ask_user".to_owned(), "ui_*".to_owned(), "*-local".to_owned()];
        for name in ["ask_user", "ui_", "ui_show", "read-local"] {
            assert!(is_local(&patterns, name), "{name}");
        }
        for name in ["ask_users", "gui_show", "local", ""] {
            assert!(!is_local(&patterns, name), "{name}");
        }
        assert!(is_local(&["*".to_owned()], "anything"));
        assert!(is_local(&["a*b*c".to_owned()], "aXbYbZc"));
        assert!(!is_local(&[], "anything"));
    }
}
