//! What is wrong with a configuration, said so that it can be mended: the place, the line, what was
//! expected, and what to write.
//!
//! Invariant: no text of a problem holds a secret, nor what may be one.

use std::fmt;

use crate::source::Excerpt;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Nobody wrote it.
    Default,
    /// It stands in the file. Line and column count from 1, columns in characters; both are 0 where
    /// the file as a whole is meant.
    File {
        /// The file's path, as it was given.
        path: String,
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// An environment variable of this name holds it.
    Variable(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line: 0, .. } => f.write_str(path),
            Origin::File { path, line, .. } => write!(f, "{path}:{line}"),
            Origin::Variable(name) => f.write_str(name),
        }
    }
}

/// One thing that is wrong, or, as a warning, that may not be meant.
///
/// `Display` writes several lines: place and message, the line with a mark under what is meant, the
/// other places that have to do with it, and what to write instead. There is no line end after the
/// last one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The place.
    pub origin: Origin,
    /// The dotted key that it is about; empty if none is.
    pub key: String,
    /// What is wrong, in one line.
    pub message: String,
    /// What to write or do; may be empty.
    pub advice: String,
    /// Other places that have to do with it, each as one line.
    pub related: Vec<String>,
    pub(crate) excerpt: Option<Excerpt>,
}

impl Problem {
    /// A problem of a file as a whole.
    pub(crate) fn of_file(path: &str, message: impl Into<String>, advice: &str) -> Problem {
        Problem {
            origin: Origin::File { path: path.to_owned(), line: 0, column: 0 },
            key: String::new(),
            message: message.into(),
            advice: advice.to_owned(),
            related: Vec::new(),
            excerpt: None,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::File { path, line, column } if *line > 0 => {
                write!(f, "{}:{line}:{column}: {}", Shown(path), Shown(&self.message))?;
            }
            Origin::Default => write!(f, "configuration: {}", Shown(&self.message))?,
            origin => write!(f, "{}: {}", Shown(&origin.to_string()), Shown(&self.message))?,
        }
        if let Some(excerpt) = &self.excerpt {
            let number = excerpt.line.to_string();
            write!(f, "\n  {number} | {}", excerpt.text)?;
            let (gutter, lead) = (" ".repeat(number.len()), " ".repeat(excerpt.lead));
            write!(f, "\n  {gutter} | {lead}{}", "^".repeat(excerpt.width))?;
        }
        for related in &self.related {
            write!(f, "\n  {}", Shown(related))?;
        }
        if !self.advice.is_empty() {
            write!(f, "\n  {}", Shown(&self.advice))?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

/// A text that may hold a name of somebody else's choice: control characters are told, not written.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.split_inclusive(|c: char| c.is_control() && c != '\n').try_for_each(|part| {
            let mut chars = part.chars();
            match chars.next_back() {
                Some(last) if last.is_control() && last != '\n' => {
                    write!(f, "{}{}", chars.as_str(), last.escape_default())
                }
                _ => f.write_str(part),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::{Environment, Loader};

    /// Names of variables and files are a stranger's: a terminal that is told of them does nothing of it.
    #[test]
    fn a_problem_is_shown_without_control_characters() {
        let environment: Environment =
            [("POSTRIDER_RELAY__LEAS\u{7f}E", "1s"), ("POSTRIDER_\u{1b}[2J", "1")]
                .into_iter()
                .collect();
        let loader = Loader::new(&environment).text("a\u{1b}[2J.toml", "[relay]\nlease = 1\n");
        let problems = loader.load().unwrap_err();
        assert_eq!(problems.len(), 3, "{problems:?}");
        for problem in problems {
            let shown = problem.to_string();
            assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
        }
    }
}
