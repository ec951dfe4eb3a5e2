//! Tables for people: columns that fit the terminal, and cells that cannot move the cursor.
//!
//! Invariant: an identity, a number, and a state are shown whole or not at all; only text is cut, and
//! then with `…`. No control character of the data reaches the terminal.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::terminal::Style;

/// Between two columns.
const GAP: usize = 2;

/// The least width of a text that is cut: less says nothing.
const TEXT_MIN: usize = 8;

/// How a column gives way when the terminal is narrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// It stays, whole.
    Whole,
    /// It stays, whole, aligned to the right.
    Number,
    /// It stays, and is cut.
    Text,
    /// It goes, the last one first.
    Extra,
    /// It goes like [`Fit::Extra`], and is aligned to the right.
    ExtraNumber,
}

impl Fit {
    const fn may_go(self) -> bool {
        matches!(self, Fit::Extra | Fit::ExtraNumber)
    }

    const fn is_right(self) -> bool {
        matches!(self, Fit::Number | Fit::ExtraNumber)
    }
}

/// A column: its heading, and how it gives way.
pub(crate) type Column = (&'static str, Fit);

/// How a cell is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    /// As anything else.
    #[default]
    Plain,
    /// As it should be.
    Good,
    /// It will take time, or attention.
    Notable,
    /// Somebody must act.
    Bad,
}

/// A cell: one line of plain text, and how it is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A cell that is coloured where colours are shown.
    pub(crate) fn toned(text: &str, tone: Tone) -> Cell {
        Cell { text: clean(text), tone }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::toned(text, Tone::Plain)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::from(&*text)
    }
}

impl From<Option<&str>> for Cell {
    fn from(text: Option<&str>) -> Cell {
        Cell::from(text.unwrap_or("-"))
    }
}

macro_rules! cell_from_number {
    ($($type:ty),+) => { $(impl From<$type> for Cell {
        fn from(number: $type) -> Cell {
            Cell::from(crate::terminal::count(u64::from(number)))
        }
    })+ };
}
cell_from_number!(u16, u32, u64);

/// What can stand in a table.
pub(crate) trait Tabular {
    /// The columns.
    fn columns() -> &'static [Column];

    /// The cells, one for each column. Ages are measured at `now`.
    fn cells(&self, now: postrider_core::Timestamp) -> Vec<Cell>;
}

impl<T: Tabular> Tabular for &T {
    fn columns() -> &'static [Column] {
        T::columns()
    }

    fn cells(&self, now: postrider_core::Timestamp) -> Vec<Cell> {
        (*self).cells(now)
    }
}

/// Rows under headings.
#[derive(Debug)]
pub(crate) struct Table<'a> {
    columns: &'a [Column],
    rows: Vec<Vec<Cell>>,
}

impl<'a> Table<'a> {
    pub(crate) fn new(columns: &'a [Column]) -> Table<'a> {
        Table { columns, rows: Vec::new() }
    }

    /// Rows of one shape.
    pub(crate) fn of<T: Tabular>(
        rows: impl IntoIterator<Item = T>,
        now: postrider_core::Timestamp,
    ) -> Table<'static> {
        let mut table = Table::new(T::columns());
        table.rows.extend(rows.into_iter().map(|row| row.cells(now)));
        table
    }

    pub(crate) fn push(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// The lines, each with its line break. A width of `None` cuts nothing.
    pub(crate) fn render(&self, width: Option<usize>, style: Style, heading: bool) -> String {
        let mut widths = self.natural(heading);
        if let Some(width) = width {
            self.fit(&mut widths, width);
        }
        let mut text = String::new();
        if heading {
            let cells: Vec<Cell> = self.columns.iter().map(|(name, _)| Cell::from(*name)).collect();
            text.push_str(&style.dim(&self.line(&cells, &widths, Style::plain())));
            text.push('\n');
        }
        for row in &self.rows {
            text.push_str(&self.line(row, &widths, style));
            text.push('\n');
        }
        text
    }

    /// What each column would like; a column without any value is left out where it may.
    fn natural(&self, heading: bool) -> Vec<Option<usize>> {
        let widest = |index: usize| self.rows.iter().map(|row| row[index].text.width()).max();
        self.columns
            .iter()
            .enumerate()
            .map(|(index, (name, fit))| {
                let empty = self.rows.iter().all(|row| matches!(&*row[index].text, "" | "-"));
                if fit.may_go() && empty && !self.rows.is_empty() {
                    return None;
                }
                let name = if heading { name.width() } else { 0 };
                Some(widest(index).unwrap_or(0).max(name))
            })
            .collect()
    }

    /// Takes columns away from the right until the least widths fit, then gives what is left to the
    /// texts, the narrow ones first.
    fn fit(&self, widths: &mut [Option<usize>], width: usize) {
        let least = |widths: &[Option<usize>], columns: &[Column]| {
            let shown = widths.iter().zip(columns).filter_map(|(width, (_, fit))| {
                width.map(|width| if *fit == Fit::Text { width.min(TEXT_MIN) } else { width })
            });
            let (count, sum) = shown.fold((0, 0), |(count, sum), width| (count + 1, sum + width));
            sum + GAP * usize::saturating_sub(count, 1)
        };
        for index in (0..widths.len()).rev() {
            if least(widths, self.columns) <= width {
                break;
            }
            if self.columns[index].1.may_go() {
                widths[index] = None;
            }
        }
        let mut left = width.saturating_sub(least(widths, self.columns));
        let mut texts: Vec<usize> = (0..widths.len())
            .filter(|index| self.columns[*index].1 == Fit::Text && widths[*index].is_some())
            .collect();
        texts.sort_by_key(|index| widths[*index]);
        let mut remaining = texts.len();
        for index in texts {
            let wanted = widths[index].unwrap_or(0);
            let given = wanted.min(wanted.min(TEXT_MIN) + left / remaining);
            left -= given - wanted.min(TEXT_MIN);
            widths[index] = Some(given);
            remaining -= 1;
        }
    }

    fn line(&self, cells: &[Cell], widths: &[Option<usize>], style: Style) -> String {
        let mut line = String::new();
        let mut pending = 0;
        for ((cell, width), (_, fit)) in cells.iter().zip(widths).zip(self.columns) {
            let Some(width) = *width else { continue };
            let text = cut(&cell.text, width);
            let space = width - text.width();
            let (before, after) = if fit.is_right() { (space, 0) } else { (0, space) };
            // Nothing is written behind the last cell, so that no line ends in blanks.
            line.extend(std::iter::repeat_n(' ', pending + before));
            line.push_str(&match cell.tone {
                Tone::Plain => text,
                Tone::Good => style.good(&text),
                Tone::Notable => style.notable(&text),
                Tone::Bad => style.bad(&text),
            });
            pending = after + GAP;
        }
        line
    }
}

/// The text in so many columns, with `…` where something is missing.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 1;
    for symbol in text.chars() {
        used += symbol.width().unwrap_or(0);
        if used > width {
            break;
        }
        kept.push(symbol);
    }
    if width > 0 {
        kept.push('…');
    }
    kept
}

/// One line without anything that a terminal would obey or that turns the direction of writing.
pub(crate) fn clean(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for symbol in text.chars() {
        match symbol {
            '\n' | '\r' | '\t' => plain.push(' '),
            _ if is_harmless(symbol) => plain.push(symbol),
            _ => plain.extend(symbol.escape_unicode()),
        }
    }
    plain
}

/// The same for text of several lines: line breaks stay.
pub(crate) fn clean_lines(text: &str) -> String {
    text.lines().map(clean_line).collect::<Vec<_>>().join("\n")
}

fn clean_line(line: &str) -> String {
    clean(&line.replace('\t', "    "))
}

/// Whether a terminal shows it and does nothing else.
pub(crate) fn is_harmless(symbol: char) -> bool {
    let turns = matches!(symbol, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
    !symbol.is_control() && !turns
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COLUMNS: &[Column] = &[
        ("ID", Fit::Whole),
        ("TYPE", Fit::Text),
        ("KEY", Fit::Text),
        ("N", Fit::Number),
        ("NOTE", Fit::Extra),
    ];

    fn table(texts: [&str; 5]) -> Table<'static> {
        let mut table = Table::new(COLUMNS);
        table.push(texts.into_iter().map(Cell::from).collect());
        table
    }

    #[test]
    fn what_does_not_fit_is_cut_or_goes() {
        let table = table(["0123456789", "order.placed.twice", "order/42", "7", "a note"]);
        let wide = table.render(None, Style::plain(), true);
        assert_eq!(
            wide,
            "ID          TYPE                KEY       N  NOTE\n\
             0123456789  order.placed.twice  order/42  7  a note\n"
        );
        let narrow = table.render(Some(40), Style::plain(), false);
        assert_eq!(narrow, "0123456789  order.placed.t…  order/42  7\n");
    }

    /// F32: what stands in a row may be hostile.
    #[test]
    fn nothing_in_a_cell_moves_the_cursor() {
        let table = table(["1", "\x1b[2Jgone", "a\nb\u{9b}c", "7", "\u{202e}evil"]);
        let text = table.render(None, Style::plain(), false);
        assert_eq!(text.lines().count(), 1);
        assert!(!text.contains(['\x1b', '\u{9b}', '\u{202e}']), "{text:?}");
        assert!(text.contains("\\u{1b}[2Jgone"), "{text}");
    }

    #[test]
    fn columns_without_values_go_where_they_may() {
        let text = table(["1", "t", "k", "7", "-"]).render(None, Style::plain(), true);
        assert!(!text.contains("NOTE"), "{text}");
    }

    proptest! {
        /// An identity is shown whole, whatever the width; where the width suffices, lines fit.
        #[test]
        fn lines_fit_and_identities_stay(
            kind in "[a-zäß漢]{0,60}", key in "\\PC{0,60}", note in "[a-z]{0,40}", width in 38usize..120
        ) {
            let table = table(["0123456789", &kind, &key, "12,345", &note]);
            for line in table.render(Some(width), Style::plain(), true).lines() {
                prop_assert!(line.width() <= width, "{line:?} is wider than {width}");
            }
            let text = table.render(Some(width), Style::plain(), false);
            prop_assert!(text.contains("0123456789") && text.contains("12,345"), "{text}");
        }
    }
}
