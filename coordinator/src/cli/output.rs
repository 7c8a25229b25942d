//! What commands print: lines and tables on standard output.

use std::io::Write as _;

/// Prints a line. A reader that is gone is no error.
pub(crate) fn line(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// Prints rows in columns as wide as their widest cell, two spaces between.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) {
    let widths: Vec<usize> = head
        .iter()
        .enumerate()
        .map(|(column, name)| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([name.chars().count()]).max().unwrap_or(0)
        })
        .collect();
    let print = |cells: Vec<&str>| {
        let padded: Vec<String> = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell}{}", " ".repeat(width - cell.chars().count().min(*width))))
            .collect();
        line(padded.join("  ").trim_end());
    };
    print(head.to_vec());
    rows.iter().for_each(|row| print(row.iter().map(String::as_str).collect()));
}
