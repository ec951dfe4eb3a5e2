//! The text of the file: which line a place is on, and how that line is shown without its secrets.
//!
//! Invariant: what is masked is shown by no excerpt, whichever problem the excerpt is for. Excerpts
//! are bounded and hold no control characters.

use std::ops::Range;

/// Characters of a line that are shown at most.
const WIDTH_MAX: usize = 120;
/// Characters before the marked place that are kept when a line is cut.
const LEAD: usize = 40;
/// What stands for a masked value.
const MASK: char = '…';

/// A file's name and text, with the places that are not to be shown.
#[derive(Debug, Default)]
pub(crate) struct Source {
    name: String,
    text: String,
    masked: Vec<Range<usize>>,
    /// The byte at which each line begins.
    lines: Vec<usize>,
}

/// A line of the file with a place marked in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Excerpt {
    pub(crate) line: usize,
    pub(crate) text: String,
    /// Characters of `text` before the marked place.
    pub(crate) lead: usize,
    /// Characters marked, at least one.
    pub(crate) width: usize,
}

impl Source {
    pub(crate) fn new(name: String, text: String) -> Source {
        let begins = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(at, _)| at + 1);
        let lines = std::iter::once(0).chain(begins).collect();
        Source { name, text, masked: Vec::new(), lines }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn mask(&mut self, span: Range<usize>) {
        self.masked.push(span);
    }

    /// The line, from 1.
    pub(crate) fn line(&self, at: usize) -> usize {
        self.lines.partition_point(|begin| *begin <= at).max(1)
    }

    /// The column in characters, from 1.
    pub(crate) fn column(&self, at: usize) -> usize {
        let begin = self.begin(self.line(at));
        let end = self.floor(at.min(self.text.len()));
        self.text.get(begin..end).map_or(1, |text| text.chars().count() + 1)
    }

    fn begin(&self, line: usize) -> usize {
        self.lines.get(line.saturating_sub(1)).copied().unwrap_or_default()
    }

    /// The nearest character border at or before a byte.
    fn floor(&self, mut at: usize) -> usize {
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        at
    }

    /// The text of the line, without its end.
    pub(crate) fn line_text(&self, line: usize) -> &str {
        self.text[self.begin(line)..].lines().next().unwrap_or_default()
    }

    /// The line with the place marked, secrets masked, and its length bounded.
    pub(crate) fn excerpt(&self, span: &Range<usize>) -> Excerpt {
        let line = self.line(span.start);
        let begin = self.begin(line);
        let text = self.line_text(line);
        let line_span = begin..begin + text.len();
        let touches =
            |mask: &&Range<usize>| mask.start < line_span.end && mask.end > line_span.start;
        let masked: Vec<&Range<usize>> = self.masked.iter().filter(touches).collect();
        let mut shown: Vec<char> = Vec::new();
        let (mut from, mut to) = (None, 0);
        for (offset, c) in text.char_indices() {
            let at = begin + offset;
            let inside = masked.iter().find(|mask| mask.contains(&at));
            match inside {
                // One mark stands for the whole: its length says nothing.
                Some(mask) if mask.start < at && offset > 0 => {}
                Some(_) => shown.push(MASK),
                None => shown.push(if c.is_control() { ' ' } else { c }),
            }
            if span.contains(&at) {
                from.get_or_insert_with(|| shown.len().saturating_sub(1));
                to = shown.len();
            }
        }
        let lead = from.unwrap_or(shown.len());
        cut(line, shown, lead, to.saturating_sub(lead).max(1))
    }

    /// A line of which only the first part is shown, for a file that cannot be read as TOML.
    pub(crate) fn excerpt_until(&self, at: usize, shown_until: Option<usize>) -> Excerpt {
        let line = self.line(at);
        let begin = self.begin(line);
        let text = self.line_text(line);
        let until = shown_until.unwrap_or(text.len()).min(text.len());
        let mut shown: Vec<char> =
            text[..until].chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if until < text.len() {
            shown.push(MASK);
        }
        let offset = self.floor(at.min(self.text.len())).saturating_sub(begin).min(until);
        cut(line, shown, text[..offset].chars().count(), 1)
    }
}

/// Bounds an excerpt around the marked place.
fn cut(line: usize, mut shown: Vec<char>, lead: usize, width: usize) -> Excerpt {
    let begin = if shown.len() > WIDTH_MAX { lead.saturating_sub(LEAD) } else { 0 };
    shown.drain(..begin.min(shown.len()));
    shown.truncate(WIDTH_MAX);
    let lead = (lead - begin).min(WIDTH_MAX);
    let width = width.min(shown.len().saturating_sub(lead)).max(1);
    Excerpt { line, text: shown.into_iter().collect(), lead, width }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masked_places_are_one_mark_wherever_the_excerpt_points() {
        let text = "a = 1\nkey = \"hunter2\", b = 5\n";
        let mut source = Source::new("f".into(), text.into());
        let secret = text.find("\"hunter").unwrap();
        source.mask(secret..secret + 9);
        let at = text.find("b =").unwrap();
        let excerpt = source.excerpt(&(at..at + 1));
        assert_eq!((excerpt.line, excerpt.text.as_str()), (2, "key = …, b = 5"));
        assert_eq!((excerpt.lead, excerpt.width), (9, 1));
        let excerpt = source.excerpt(&(secret..secret + 9));
        assert_eq!((excerpt.lead, excerpt.width), (6, 1));
    }

    #[test]
    fn long_lines_are_cut_around_the_place() {
        let text = format!("{}X{}", "a".repeat(5_000), "b".repeat(5_000));
        let excerpt = Source::new("f".into(), text).excerpt(&(5_000..5_001));
        assert_eq!(excerpt.text.chars().nth(excerpt.lead), Some('X'));
        assert!(excerpt.text.len() <= WIDTH_MAX);
    }

    #[test]
    fn places_past_the_end_have_a_line() {
        let source = Source::new("f".into(), "ä\nb".into());
        assert_eq!((source.line(99), source.column(99)), (2, 2));
        assert_eq!(source.column(1), 1);
        assert_eq!(Source::new("f".into(), String::new()).excerpt(&(0..1)).line, 1);
    }
}
