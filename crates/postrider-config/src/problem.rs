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
                write!(f, "{path}:{line}:{column}: {}", self.message)?;
            }
            Origin::Default => write!(f, "configuration: {}", self.message)?,
            origin => write!(f, "{origin}: {}", self.message)?,
        }
        if let Some(excerpt) = &self.excerpt {
            let number = excerpt.line.to_string();
            write!(f, "\n  {number} | {}", excerpt.text)?;
            let (gutter, lead) = (" ".repeat(number.len()), " ".repeat(excerpt.lead));
            write!(f, "\n  {gutter} | {lead}{}", "^".repeat(excerpt.width))?;
        }
        for related in &self.related {
            write!(f, "\n  {related}")?;
        }
        if !self.advice.is_empty() {
            write!(f, "\n  {}", self.advice)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}
