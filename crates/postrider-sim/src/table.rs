//! Tables of a page that a command writes: between marks, so that the text around them stays.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// A table in Markdown.
pub fn markdown(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

/// Rows in columns, for a terminal; the last column is as wide as it is.
pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}

/// Replaces what stands between the marks of a name: `<!-- NAME: begin … -->` and `<!-- NAME: end -->`.
///
/// # Errors
/// In a sentence, if the marks are not there.
pub fn replace(page: &str, name: &str, text: &str) -> Result<String, String> {
    let missing = || format!("there are no marks `{name}: begin` and `{name}: end`");
    let begin = page.find(&format!("<!-- {name}: begin")).ok_or_else(missing)?;
    let end = page.find(&format!("<!-- {name}: end -->")).ok_or_else(missing)?;
    let start = begin + page[begin..].find("-->").ok_or_else(missing)? + "-->".len();
    if start > end {
        return Err(missing());
    }
    Ok(format!("{}\n\n{}\n\n{}", &page[..start], text.trim(), &page[end..]))
}

/// The same in a file.
///
/// # Errors
/// In a sentence, if the file cannot be read or written, or has no such marks.
pub fn bless(path: &Path, name: &str, text: &str) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let page = fs::read_to_string(path).map_err(|error| failed(&error))?;
    let page = replace(&page, name, text).map_err(|error| failed(&error))?;
    fs::write(path, page).map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_replaced_and_what_is_around_it_stays() {
        let page = "before\n<!-- t: begin, by a command -->\nold\n<!-- t: end -->\nafter\n";
        let table = markdown(&["a", "b"], [vec!["1".to_owned(), "x|y".to_owned()]]);
        assert_eq!(table, "| a | b |\n|---|---|\n| 1 | x\\|y |\n");
        let new = replace(page, "t", &table).unwrap();
        let expected =
            format!("before\n<!-- t: begin, by a command -->\n\n{table}\n<!-- t: end -->\nafter\n");
        assert_eq!(new, expected);
        assert_eq!(replace(&new, "t", &table).unwrap(), new);
        replace(page, "other", &table).unwrap_err();
    }

    #[test]
    fn columns_stand_below_each_other() {
        let rows = [["a", "bb", "c"], ["aaa", "b", "c"]];
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect();
        assert_eq!(columns(&rows), "a    bb  c\naaa  b   c\n");
    }
}
