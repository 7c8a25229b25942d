//! What a terminal gets and a file does not: colours, and lines that are drawn again in place.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};

/// Most rows to draw in place: what has scrolled away cannot be drawn again.
pub(crate) const ROWS_MAX: usize = 20;
/// Turns the wrapping of long lines off and on: a row that wraps would count as two.
const WRAP_OFF: &str = "\x1b[?7l";
const WRAP_ON: &str = "\x1b[?7h";

/// Where output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

impl Target {
    /// Whether a person sees it as it comes.
    pub(crate) fn is_terminal(self) -> bool {
        match self {
            Target::Out => std::io::stdout().is_terminal(),
            Target::Err => std::io::stderr().is_terminal(),
        }
    }

    /// Writes. A reader that is gone is no error.
    pub(crate) fn write(self, text: &str) {
        let _ = match self {
            Target::Out => {
                let mut out = std::io::stdout().lock();
                out.write_all(text.as_bytes()).and_then(|()| out.flush())
            }
            Target::Err => std::io::stderr().lock().write_all(text.as_bytes()),
        };
    }
}

/// Colours, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    is_coloured: bool,
}

impl Style {
    /// Colours where the target is a terminal and `NO_COLOR` is not set.
    pub(crate) fn of(target: Target) -> Style {
        let is_wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Style { is_coloured: is_wanted && target.is_terminal() }
    }

    /// No colours.
    #[cfg(test)]
    pub(crate) fn plain() -> Style {
        Style { is_coloured: false }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.is_coloured { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// What went well.
    pub(crate) fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// What failed.
    pub(crate) fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    /// What goes on.
    pub(crate) fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    /// What matters less.
    pub(crate) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// What matters more.
    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }
}

/// Rows of a terminal that are drawn again in place.
#[derive(Debug)]
pub(crate) struct Live {
    target: Target,
    drawn: usize,
}

impl Live {
    /// Nothing is drawn yet.
    pub(crate) fn new(target: Target) -> Live {
        Live { target, drawn: 0 }
    }

    /// Draws rows in place of those before: at most [`ROWS_MAX`].
    pub(crate) fn draw(&mut self, rows: &[String]) {
        self.target.write(&frame(self.drawn, rows));
        self.drawn = rows.len();
    }

    /// Takes away what is drawn.
    pub(crate) fn clear(&mut self) {
        if self.drawn > 0 {
            self.draw(&[]);
        }
    }
}

/// What a terminal must be sent to show `rows` where it shows `drawn` rows now.
fn frame(drawn: usize, rows: &[String]) -> String {
    let mut frame = String::from(WRAP_OFF);
    if drawn > 0 {
        let _ = write!(frame, "\x1b[{drawn}A");
    }
    frame.push('\r');
    for row in rows {
        let _ = writeln!(frame, "{row}\x1b[K");
    }
    // Whatever was drawn below.
    frame.push_str("\x1b[J");
    frame.push_str(WRAP_ON);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: usize) -> Vec<String> {
        (0..count).map(|row| row.to_string()).collect()
    }

    #[test]
    fn a_frame_begins_where_the_one_before_began_and_leaves_nothing_of_it() {
        assert_eq!(frame(0, &rows(1)), "\x1b[?7l\r0\x1b[K\n\x1b[J\x1b[?7h");
        assert_eq!(frame(3, &[]), "\x1b[?7l\x1b[3A\r\x1b[J\x1b[?7h");
    }

    #[test]
    fn colours_are_there_only_where_they_are_wanted() {
        assert_eq!(Style::plain().red("no"), "no");
        assert_eq!(Style { is_coloured: true }.red("no"), "\x1b[31mno\x1b[0m");
    }
}
