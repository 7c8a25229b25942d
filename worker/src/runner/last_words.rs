//! What a tool said last, for those who ask after its worker was lost.

use std::sync::Arc;
use tokio::sync::watch;

/// Most bytes that are kept.
const BYTES_MAX: usize = 512;

/// The last words of one attempt. Clones share them.
#[derive(Clone, Debug)]
pub struct LastWords(Arc<watch::Sender<String>>);

impl Default for LastWords {
    fn default() -> Self {
        LastWords(Arc::new(watch::Sender::new(String::new())))
    }
}

impl LastWords {
    /// Replaces them by the end of a text: at most its last 512 bytes, whole characters.
    pub fn say(&self, text: &str) {
        let text = text.trim();
        let from = text.len().saturating_sub(BYTES_MAX);
        let end = text.get(text.ceil_char_boundary(from)..).unwrap_or_default();
        self.0.send_if_modified(|said| {
            let is_new = said != end;
            if is_new {
                end.clone_into(said);
            }
            is_new
        });
    }

    /// Follows them; the first change is the first word.
    pub fn follow(&self) -> watch::Receiver<String> {
        self.0.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_what_was_said_is_kept_in_whole_characters() {
        let words = LastWords::default();
        let follow = words.follow();
        words.say("  \n");
        assert!(!follow.has_changed().unwrap());
        words.say(&"\u{20ac}".repeat(300));
        assert_eq!(follow.borrow().as_str(), "\u{20ac}".repeat(BYTES_MAX / 3));
        words.say("oh\n");
        assert_eq!(follow.borrow().as_str(), "oh");
    }
}
