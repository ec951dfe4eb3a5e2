//! Files that are not TOML: every error with its place, and as much of its line as surely holds no
//! secret.
//!
//! Invariant: while the text cannot be read, nothing tells a secret from another value. So only
//! values of keys that never hold one are shown, and of other lines nothing behind the name.

use toml::de::{DeTable, Error};

use crate::config::Config;
use crate::key::{Shape, TableShape, quoted};
use crate::problem::{Origin, Problem};
use crate::reading::PROBLEMS_MAX;
use crate::source::Source;

/// Reads the text, or says all that is wrong with it.
pub(crate) fn parse(source: &Source) -> Result<DeTable<'_>, Vec<Problem>> {
    let (table, errors) = DeTable::parse_recoverable(source.text());
    if errors.is_empty() {
        return Ok(table.into_inner());
    }
    let mut problems: Vec<Problem> = Vec::new();
    for error in &errors {
        let problem = describe(source, error);
        // One mistake often gives several errors on its line, of which the first is the clearest.
        let repeated = problems.iter().any(|known| line(known) == line(&problem));
        if !repeated && problems.len() < PROBLEMS_MAX {
            problems.push(problem);
        }
    }
    problems.sort_by(|a, b| a.origin.cmp(&b.origin));
    Err(problems)
}

fn line(problem: &Problem) -> usize {
    match problem.origin {
        Origin::File { line, .. } => line,
        _ => 0,
    }
}

fn describe(source: &Source, error: &Error) -> Problem {
    let at = error.span().map_or(0, |span| span.start);
    let line = source.line(at);
    let text = source.line_text(line);
    let shown = shown_until(text);
    Problem {
        origin: Origin::File { path: source.name().to_owned(), line, column: source.column(at) },
        key: String::new(),
        message: format!("this is not TOML: {}", error.message()),
        advice: advice(text, shown),
        related: Vec::new(),
        excerpt: Some(source.excerpt_until(at, Some(shown))),
    }
}

/// The bytes of the line that surely hold no secret.
fn shown_until(line: &str) -> usize {
    let trimmed = line.trim();
    let Some(first) = line.find('=') else {
        let heading = |text: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-[] ".contains(c);
            let inner = text.trim_start_matches('[');
            let table = inner.split(['.', ']']).next().unwrap_or_default().trim();
            text.starts_with('[')
                && text.chars().all(plain)
                && Config::TABLE.keys.iter().any(|key| key.name == table)
        };
        if heading(trimmed) {
            return line.len();
        }
        let lead = line.len() - line.trim_start().len();
        let word = trimmed.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next();
        let word = word.filter(|word| openness(word).is_some());
        return word.map_or(0, |word| lead + word.len());
    };
    // Every word before a `=`: if all are keys without secrets, so is the line.
    let pieces: Vec<&str> = line.split('=').collect();
    let names = pieces[..pieces.len() - 1].iter().map(|piece| last_word(piece));
    let all_open = names.map(openness).all(|open| open == Some(true));
    // A comment may hold an old secret, and an address a new one.
    if all_open && !line.contains('#') && !line.contains("://") {
        line.len()
    } else if openness(last_word(&line[..first])).is_some() && trimmed.len() > 1 {
        first + 1
    } else {
        0
    }
}

fn last_word(text: &str) -> &str {
    let text = text.trim_end().trim_end_matches(['"', '\'']);
    text.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// Whether a name is a key, and if it is, whether its value never holds a secret.
fn openness(name: &str) -> Option<bool> {
    fn search(table: &TableShape, name: &str) -> Option<bool> {
        let own = table.keys.iter().filter(|key| key.name == name);
        let own = own.map(|key| !key.shape.holds_secret());
        let inner = table.keys.iter().filter_map(|key| descend(&key.shape, name));
        own.chain(inner).reduce(|a, b| a && b)
    }
    fn descend(shape: &Shape, name: &str) -> Option<bool> {
        match shape {
            Shape::Leaf(_) => None,
            Shape::Table(table) => search(table, name),
            Shape::Map(map) => descend(&map.of, name),
            Shape::List(of) => descend(of, name),
        }
    }
    search(&Config::TABLE, name)
}

/// For the most frequent mistake: a text without quotes.
fn advice(line: &str, shown: usize) -> String {
    let Some((name, value)) = line.split_once('=') else { return String::new() };
    let (name, value) = (name.trim(), value.trim());
    if shown < line.len() {
        return "what stands here is not shown, because it may be a secret".into();
    }
    let bare = value.starts_with(|c: char| c.is_ascii_alphanumeric());
    let plain = bare && !name.chars().any(char::is_control);
    if plain && value.len() <= 80 && !value.contains(['"', '=', ',']) {
        format!("texts stand in quotes: write {name} = {}", quoted(value))
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the file holds is said as text: a terminal that is told of it does nothing of it.
    #[test]
    fn advice_holds_no_control_character() {
        let said = |line: &str| advice(line, line.len());
        assert_eq!(said("lease = 15s"), "texts stand in quotes: write lease = \"15s\"");
        assert_eq!(said("lease = a\\b"), "texts stand in quotes: write lease = \"a\\\\b\"");
        assert_eq!(
            said("lease = a\u{1b}[2Jb"),
            "texts stand in quotes: write lease = \"a\\u001B[2Jb\""
        );
        assert_eq!(said("\u{1b}[2J lease = a"), "");
    }

    /// R107: a line that cannot be read shows no secret.
    #[test]
    fn only_lines_without_secrets_are_shown_whole() {
        for whole in
            ["lease = 15s", "window = { rows = 1 bytes = 2 }", "[relay", "[[destinations.a"]
        {
            assert_eq!(shown_until(whole), whole.len(), "{whole}");
        }
        for (line, shown) in [
            ("token = hunter2", "token ="),
            ("  keys = [\"hunter2", "  keys ="),
            ("acme = { keys = hunter2 }", ""),
            ("webhook = { timeout = 1, token = hunter2", "webhook ="),
            ("  whsec_aHVudGVyMg==", ""),
            ("  \"hunter2", ""),
            ("[hunter2", ""),
            ("lease = \"x://u:hunter2@db", "lease ="),
            ("lease = 15s # was token hunter2", "lease ="),
            ("store = postgres://u:hunter2@db", "store ="),
            ("hunter2", ""),
            ("  token \"hunter2\"", "  token"),
        ] {
            assert_eq!(&line[..shown_until(line)], shown, "{line}");
        }
    }
}
