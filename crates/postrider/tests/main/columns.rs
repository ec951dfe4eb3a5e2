//! The reference of the tables gives a reason for every column.

use crate::pages::read;

/// Columns without a last cell that says something, as `table.column`. Tables whose heading promises
/// neither reason nor meaning list other things.
fn without_reason(page: &str) -> (usize, Vec<String>) {
    let (mut table, mut promised) = ("", false);
    let (mut columns, mut found) = (0, Vec::new());
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ").or_else(|| line.strip_prefix("### ")) {
            table = title.trim_matches('`');
        } else if line.starts_with("| column |") {
            promised = line.ends_with("| reason |") || line.ends_with("| meaning |");
        } else if !line.starts_with('|') {
            promised = false;
        }
        if !promised || !line.starts_with("| `") {
            continue;
        }
        columns += 1;
        let (column, rest) = line.trim_matches('|').split_once('|').unwrap_or((line, ""));
        if rest.rsplit('|').next().is_none_or(|reason| reason.trim().is_empty()) {
            found.push(format!("{table}.{}", column.trim().trim_matches('`')));
        }
    }
    (columns, found)
}

/// R021: each column stands on the page with what it is for; that none is missing there, the store's
/// own tests compare with the schema.
#[test]
fn every_column_has_a_reason() {
    let page = read("docs/reference/sqlite.md");
    let (columns, found) = without_reason(&page);
    assert!(columns > 100 && found.is_empty(), "{columns} columns; without a reason: {found:?}");
    let taken = page.replace("the order of commits, and what cursors count by", "");
    assert_ne!(taken, page);
    assert_eq!(without_reason(&taken).1, ["outbox.seq"], "the control");
}
