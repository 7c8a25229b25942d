//! What commands print: lines and tables on standard output.

use std::io::Write as _;

/// Prints a line. A reader that is gone is no error.
pub(crate) fn line(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// Characters of a cell that take room: colours take none.
fn width(cell: &str) -> usize {
    let mut is_colour = false;
    cell.chars()
        .filter(|character| {
            let was_colour = is_colour;
            is_colour = if is_colour { *character != 'm' } else { *character == '\x1b' };
            !is_colour && !was_colour
        })
        .count()
}

/// Prints rows in columns as wide as their widest cell, two spaces between.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) {
    let widths: Vec<usize> = head
        .iter()
        .enumerate()
        .map(|(column, name)| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell));
            cells.chain([name.chars().count()]).max().unwrap_or(0)
        })
        .collect();
    let print = |cells: Vec<&str>| {
        let padded: Vec<String> = cells
            .iter()
            .zip(&widths)
            .map(|(cell, column)| {
                format!("{cell}{}", " ".repeat(column.saturating_sub(width(cell))))
            })
            .collect();
        line(padded.join("  ").trim_end());
    };
    print(head.to_vec());
    rows.iter().for_each(|row| print(row.iter().map(String::as_str).collect()));
}

#[cfg(test)]
mod tests {
    use super::width;

    #[test]
    fn colours_take_no_room() {
        assert_eq!(width("ok"), 2);
        assert_eq!(width("\x1b[32mok\x1b[0m mm"), 5);
        assert_eq!(width("é"), 1);
    }
}
