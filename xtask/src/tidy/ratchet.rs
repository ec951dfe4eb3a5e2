//! The ratchet: what is too long already may stay as long as it is, and may only become shorter.
//!
//! `xtask/ratchet.txt` is checked in; a line is `<lines> <path>` or `<lines> <path>::<function>`.

use std::fs;
use std::path::Path;

use super::Finding;
use super::lengths::{self, Lengths};
use crate::step::Verdict;

const RULE: &str = "length";
const FILE: &str = "xtask/ratchet.txt";
const HEADER: &str = "\
# Files over 400 lines and functions over 70, with the length that is accepted for now.
# Growing past it fails `cargo x tidy`; after shortening, `cargo x tidy --bless` lowers it.
";

pub(super) fn load(root: &Path) -> Result<Lengths, String> {
    match fs::read_to_string(root.join(FILE)) {
        Ok(text) => parse(&text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Lengths::new()),
        Err(error) => Err(format!("{FILE} cannot be read: {error}")),
    }
}

fn parse(text: &str) -> Result<Lengths, String> {
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (lines, key) = line.split_once(' ').unwrap_or((line, ""));
            match lines.parse() {
                Ok(lines) if !key.is_empty() => Ok((key.to_owned(), lines)),
                _ => Err(format!("{FILE}: `{line}` is not `<lines> <path>`")),
            }
        })
        .collect()
}

pub(super) fn save(root: &Path, measured: &Lengths) -> Verdict {
    let mut text = HEADER.to_owned();
    for (key, lines) in measured {
        text.push_str(&format!("{lines} {key}\n"));
    }
    fs::write(root.join(FILE), text).map_err(|error| format!("{FILE} cannot be written: {error}"))
}

/// Findings for what grew, and notes for what shrank.
pub(super) fn compare(recorded: &Lengths, measured: &Lengths) -> (Vec<Finding>, Vec<String>) {
    let mut findings = Vec::new();
    for (key, lines) in measured {
        let (path, name) = key.split_once("::").unwrap_or((key, "the file"));
        let (limit, aim) = (lengths::limit(key), lengths::aim(key));
        let message = match recorded.get(key) {
            _ if *lines > limit => {
                format!("{name} has {lines} lines, the limit is {limit}: split it")
            }
            None => format!(
                "{name} has {lines} lines, the aim is {aim}: split it, or record it with `cargo x tidy --bless`"
            ),
            Some(accepted) if lines > accepted => {
                format!("{name} has {lines} lines, up from {accepted}: split it before it grows")
            }
            Some(_) => continue,
        };
        findings.push(Finding::whole(path, RULE, message));
    }
    let shorter = recorded
        .iter()
        .filter(|(key, accepted)| measured.get(*key).is_none_or(|lines| lines < accepted))
        .map(|(key, accepted)| {
            format!("{key} is below its recorded {accepted} lines; `cargo x tidy --bless` lowers the ratchet")
        })
        .collect();
    (findings, shorter)
}

/// What recording `measured` changes, a line each; what is raised is said loudest.
pub(super) fn changes(recorded: &Lengths, measured: &Lengths) -> Vec<String> {
    let mut lines = Vec::new();
    for (key, now) in measured {
        match recorded.get(key) {
            None => lines.push(format!("recorded {key}: {now}")),
            Some(before) if now > before => {
                lines.push(format!("RAISED {key}: {before} to {now}; say why in the commit"));
            }
            Some(before) if now < before => lines.push(format!("lowered {key}: {before} to {now}")),
            Some(_) => {}
        }
    }
    for key in recorded.keys().filter(|key| !measured.contains_key(*key)) {
        lines.push(format!("removed {key}"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(entries: &[(&str, usize)]) -> Lengths {
        entries.iter().map(|(key, lines)| ((*key).to_owned(), *lines)).collect()
    }

    #[test]
    fn growth_is_flagged_and_standing_still_is_not() {
        let recorded = lengths(&[("a/src/b.rs", 500), ("a/src/c.rs::d", 80)]);
        let grown = lengths(&[("a/src/b.rs", 501), ("a/src/c.rs::d", 81), ("a/src/e.rs", 401)]);
        assert_eq!(compare(&recorded, &grown).0.len(), 3);
        assert_eq!(compare(&recorded, &recorded), (vec![], vec![]));
    }

    #[test]
    fn the_hard_limit_holds_even_where_a_record_allows_more() {
        let recorded = lengths(&[("a/src/b.rs", 900), ("a/tests/b.rs", 900)]);
        let (findings, _) = compare(&recorded, &recorded);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("limit is 800"));
    }

    #[test]
    fn shrinking_asks_for_a_lower_record() {
        let recorded = lengths(&[("a/src/b.rs", 500), ("a/src/gone.rs", 450)]);
        let (findings, notes) = compare(&recorded, &lengths(&[("a/src/b.rs", 450)]));
        assert_eq!((findings.len(), notes.len()), (0, 2));
    }

    #[test]
    fn raising_a_record_is_said() {
        let recorded = lengths(&[("a/src/b.rs", 500)]);
        let said = changes(&recorded, &lengths(&[("a/src/b.rs", 520)]));
        assert!(said[0].starts_with("RAISED"), "{said:?}");
    }

    #[test]
    fn the_file_is_read_as_it_is_written() {
        let text = format!("{HEADER}500 a/src/b.rs\n");
        assert_eq!(parse(&text), Ok(lengths(&[("a/src/b.rs", 500)])));
        assert!(parse("many a/src/b.rs").is_err());
    }
}
