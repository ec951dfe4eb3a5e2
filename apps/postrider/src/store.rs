//! Store addresses: which of them this program can open.

use std::path::PathBuf;

use postrider_core::TargetUrl;

use crate::failure::Failure;

/// The stores that work today, as they are written.
pub(crate) const WORKS: [&str; 1] = ["sqlite://PATH"];

/// Reads the address of a SQLite file.
///
/// # Errors
/// A configuration failure that lists what works.
pub(crate) fn sqlite_path(text: &str) -> Result<PathBuf, Failure> {
    let url: TargetUrl = text.parse().map_err(|error| {
        Failure::from(error).advice(format!("A store is written {}.", WORKS.join(" or ")))
    })?;
    match url.scheme() {
        "sqlite" if url.path().is_empty() => Err(Failure::config("the store's path is missing")
            .advice("Write sqlite://shop.db, or sqlite:///var/lib/shop.db for an absolute path.")),
        "sqlite" => Ok(PathBuf::from(url.path())),
        scheme => Err(unknown("store", text, scheme, &WORKS)),
    }
}

/// The failure for a scheme that is not there: what it may have meant, and what works today.
pub(crate) fn unknown(what: &str, text: &str, scheme: &str, works: &[&str]) -> Failure {
    let schemes: Vec<&str> =
        works.iter().map(|form| form.split_once("://").map_or(*form, |(name, _)| name)).collect();
    let nearest = postrider_core::template::nearest(scheme, &schemes);
    let form = works.iter().find(|form| form.starts_with(nearest)).copied().unwrap_or(nearest);
    // A text without a scheme is a path that somebody forgot to name; with an `@` it may be a secret.
    let path = !text.contains("://") && !text.contains('@') && text.contains(['.', '/']);
    let message = if path {
        let text = text.escape_debug();
        let form = works.iter().rfind(|form| form.ends_with("PATH")).copied().unwrap_or(form);
        format!(
            "`{text}` is a path, not a {what}; did you mean `{}`?",
            form.replace("PATH", &text.to_string())
        )
    } else if is_close(scheme, nearest) {
        format!("unknown {what} scheme `{}`; did you mean `{form}`?", scheme.escape_debug())
    } else {
        format!("unknown {what} scheme `{}`", scheme.escape_debug())
    };
    Failure::config(message).advice(format!("What works today: {}.", works.join(", ")))
}

/// Whether one may be a slip for the other: they share at least half, at the ends.
fn is_close(written: &str, known: &str) -> bool {
    let common = |a: &mut dyn Iterator<Item = (char, char)>| a.take_while(|(x, y)| x == y).count();
    let head = common(&mut written.chars().zip(known.chars()));
    let tail = common(&mut written.chars().rev().zip(known.chars().rev()));
    2 * (head + tail) >= written.chars().count().max(known.chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_unless_they_begin_with_a_slash() {
        assert_eq!(sqlite_path("sqlite://shop.db").unwrap(), PathBuf::from("shop.db"));
        assert_eq!(sqlite_path("sqlite:///var/shop.db").unwrap(), PathBuf::from("/var/shop.db"));
    }

    #[test]
    fn what_was_meant_is_suggested() {
        let cases = [
            ("sqlit://a.db", "did you mean `sqlite://PATH`?"),
            ("shop.db", "did you mean `sqlite://shop.db`?"),
            ("sqlite://", "path is missing"),
            ("://", "begins with a scheme"),
        ];
        for (text, expected) in cases {
            let shown = sqlite_path(text).unwrap_err().plain_text();
            assert!(shown.contains(expected), "{text}: {shown}");
        }
    }

    #[test]
    fn secrets_are_not_repeated() {
        let shown = sqlite_path("postgres://u:hunter2@db/shop").unwrap_err();
        assert!(!shown.plain_text().contains("hunter2"));
    }
}
