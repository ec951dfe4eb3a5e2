//! Standard output: tables for people, documents and lines of JSON for programs.
//!
//! Invariant: a list is written page by page and never held as a whole, whatever its length.

use std::io::{self, IsTerminal as _, Write};

use clap::ValueEnum;
use postrider_core::Timestamp;
use serde::Serialize;

use crate::failure::Failure;
use crate::table::{Table, Tabular, is_harmless};
use crate::terminal;

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people: columns, ages like "3m ago"
    #[default]
    Table,
    /// For programs: one document
    Json,
    /// For programs: one document per line, written while it is read
    Ndjson,
}

/// The width of the terminal; of a file or a pipe, which cut nothing, none.
pub(crate) fn width(stream: &impl std::os::fd::AsFd, terminal: bool) -> Option<usize> {
    let asked = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let asked = asked.filter(|columns| *columns >= 20);
    asked.or_else(|| {
        let size = terminal.then(|| terminal_size::terminal_size_of(stream)).flatten();
        size.map(|(columns, _)| usize::from(columns.0))
    })
}

/// The width of standard output.
pub(crate) fn stdout_width() -> Option<usize> {
    let stdout = io::stdout();
    width(&stdout, stdout.is_terminal())
}

/// Writes answers.
#[derive(Debug)]
pub(crate) struct Out {
    format: Format,
    now: Timestamp,
    rows: u64,
}

impl Out {
    pub(crate) fn new(format: Format) -> Out {
        Out { format, now: Timestamp::now(), rows: 0 }
    }

    /// Whether nothing was written so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// How it writes.
    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// The moment that ages are measured at.
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// Writes a page of a list. Call [`Out::end`] after the last.
    ///
    /// # Errors
    /// What the operating system says. A closed pipe ends the program quietly.
    pub(crate) fn page<T: Tabular + Serialize>(&mut self, page: Vec<T>) -> Result<(), Failure> {
        if self.format != Format::Table {
            return self.documents_of_page(page);
        }
        let first = self.rows == 0;
        self.rows += page.len() as u64;
        if page.is_empty() {
            return Ok(());
        }
        let table = Table::of(page, self.now);
        write(&table.render(stdout_width(), terminal::stdout_style(), first))
    }

    /// Writes a page of a list as JSON; of what people are shown otherwise.
    ///
    /// # Errors
    /// As [`Out::page`].
    pub(crate) fn documents_of_page<T: Serialize>(&mut self, page: Vec<T>) -> Result<(), Failure> {
        let mut text = String::new();
        let first = self.rows == 0;
        self.rows += page.len() as u64;
        match self.format {
            Format::Json => {
                for (index, row) in page.iter().enumerate() {
                    let opens = first && index == 0;
                    text.push_str(if opens { "{\"rows\":[\n" } else { ",\n" });
                    text.push_str(&json(row)?);
                }
            }
            Format::Table | Format::Ndjson => {
                for row in &page {
                    text.push_str(&json(row)?);
                    text.push('\n');
                }
            }
        }
        write(&text)
    }

    /// Ends a list.
    ///
    /// # Errors
    /// As [`Out::page`].
    pub(crate) fn end(&self, next: Option<&str>) -> Result<(), Failure> {
        if self.format != Format::Json {
            return Ok(());
        }
        let begin = if self.rows == 0 { "{\"rows\":[" } else { "\n" };
        write(&format!("{begin}],\"next\":{}}}\n", json(&next)?))
    }

    /// Writes one thing: as a document, or as people are shown it.
    ///
    /// # Errors
    /// As [`Out::page`].
    pub(crate) fn one(
        &self,
        document: &impl Serialize,
        shown: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table => write(&shown()),
            Format::Json => {
                let text = serde_json::to_string_pretty(document).map_err(unwritable).map(plain)?;
                write(&format!("{text}\n"))
            }
            Format::Ndjson => write(&format!("{}\n", json(document)?)),
        }
    }

    /// Writes a few rows: a list without pages.
    ///
    /// # Errors
    /// As [`Out::page`].
    pub(crate) fn rows<T: Tabular + Serialize>(&mut self, rows: Vec<T>) -> Result<(), Failure> {
        self.page(rows)?;
        self.end(None)
    }
}

/// A document on one line. On a terminal, what the terminal may obey is escaped, which JSON allows
/// in every string; into a file or a pipe goes what there is.
fn json(document: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(document).map_err(unwritable).map(plain)
}

fn plain(text: String) -> String {
    if !io::stdout().is_terminal() {
        return text;
    }
    escaped(&text)
}

/// The same document without a control character, line breaks apart.
fn escaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for symbol in text.chars() {
        match symbol {
            // Between the values of a payload, where JSON allows them.
            '\n' | '\t' => plain.push(symbol),
            '\r' => plain.push(' '),
            _ if is_harmless(symbol) => plain.push(symbol),
            _ => plain.push_str(&format!("\\u{:04x}", u32::from(symbol))),
        }
    }
    plain
}

fn unwritable(error: serde_json::Error) -> Failure {
    Failure::plain(format!("the answer cannot be written as JSON: {error}"))
}

/// Writes to standard output, at once.
///
/// # Errors
/// What the operating system says; a closed pipe ends the program quietly.
pub(crate) fn write(text: &str) -> Result<(), Failure> {
    if text.is_empty() {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::of_stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F32: the document stays the same for who reads it, and harmless for who sees it.
    #[test]
    fn a_hostile_document_is_escaped_for_a_terminal() {
        let text = serde_json::to_string("a\u{9b}2J\u{202e}ü\u{7f}").unwrap();
        let shown = escaped(&text);
        assert_eq!(shown, "\"a\\u009b2J\\u202eü\\u007f\"");
        assert_eq!(
            serde_json::from_str::<String>(&shown).unwrap(),
            serde_json::from_str::<String>(&text).unwrap()
        );
    }
}
