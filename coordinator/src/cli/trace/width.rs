//! How wide the terminal is.

use std::fs::File;
use std::io::IsTerminal as _;
use std::process::{Command, Stdio};

/// Where it cannot be told, in characters.
const WIDTH_DEFAULT: usize = 120;
const WIDTH_MAX: usize = 1_000;

/// Characters in a line of standard output: `COLUMNS`, else the terminal's own answer.
pub(super) fn of_terminal() -> usize {
    let columns = std::env::var("COLUMNS").ok();
    columns
        .and_then(|text| read(&text))
        .or_else(|| if std::io::stdout().is_terminal() { ask() } else { None })
        .unwrap_or(WIDTH_DEFAULT)
}

/// Asks through `stty`, which POSIX has: it prints rows and columns.
fn ask() -> Option<usize> {
    let terminal = File::open("/dev/tty").ok()?;
    let asked =
        Command::new("stty").arg("size").stdin(terminal).stderr(Stdio::null()).output().ok()?;
    read(String::from_utf8_lossy(&asked.stdout).split_whitespace().nth(1)?)
}

fn read(text: &str) -> Option<usize> {
    text.trim().parse().ok().filter(|width| (1..=WIDTH_MAX).contains(width))
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn a_width_is_a_number_within_bounds() {
        assert_eq!(read(" 80\n"), Some(80));
        for text in ["", "0", "-3", "1001", "wide"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
