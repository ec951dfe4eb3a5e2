//! The story of a scenario: what happened, when, and whether it came out as it should.
//!
//! Invariant: a story holds only if both halves were judged and every judgement was right.

use std::time::Instant;

use serde::Serialize;

use crate::chaos::scenario::Scenario;
use crate::failure::Failure;
use crate::terminal::{self, stdout_style, wrap};

/// The columns before a text.
const TEXT_AT: &str = "              ";

/// The two halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Half {
    /// The way that breaks.
    Wrong,
    /// Ours.
    Right,
}

/// One line.
#[derive(Debug, Serialize)]
struct Line {
    at_ms: u64,
    half: Half,
    text: String,
    /// Whether it came out as it should, if it is a judgement.
    #[serde(skip_serializing_if = "Option::is_none")]
    holds: Option<bool>,
}

/// A story that is being told.
#[derive(Debug)]
pub(crate) struct Story {
    name: &'static str,
    page: &'static str,
    store: &'static str,
    broker: &'static str,
    aloud: bool,
    half: Half,
    started: Instant,
    lines: Vec<Line>,
}

/// A story, for programs.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    scenario: &'a str,
    /// The kind of store that our half was played on.
    store: &'a str,
    /// The kind of broker that it was played by.
    broker: &'a str,
    holds: bool,
    took_ms: u64,
    page: &'a str,
    story: &'a [Line],
}

impl Story {
    /// A story that begins now, on a kind of store and by a kind of broker. One that is told aloud is written line
    /// by line while it happens.
    pub(crate) fn new(
        scenario: &Scenario,
        store: &'static str,
        broker: &'static str,
        aloud: bool,
    ) -> Story {
        let story = Story {
            name: scenario.name,
            page: scenario.page,
            store,
            broker,
            aloud,
            half: Half::Wrong,
            started: Instant::now(),
            lines: Vec::new(),
        };
        story.say(&format!("{}: {}", scenario.name, scenario.summary));
        story
    }

    /// Begins the half that breaks.
    pub(crate) fn wrong(&mut self, how: &str) {
        self.half = Half::Wrong;
        let head = "the wrong way";
        self.title(head, &stdout_style().notable(head), how);
    }

    /// Begins the half that holds.
    pub(crate) fn right(&mut self, how: &str) {
        self.half = Half::Right;
        let on = match self.store {
            "postgres" => " on PostgreSQL",
            "dynamodb" => " on DynamoDB",
            _ => "",
        };
        let by = if self.broker == "sqs" { " by SQS" } else { "" };
        let head = format!("with Postrider{on}{by}");
        self.title(&head, &stdout_style().good(&head), how);
    }

    fn title(&mut self, head: &str, painted: &str, how: &str) {
        self.say(&lay(&format!("  {painted}: "), head.len() + 4, how, "    "));
        self.note(how, None);
    }

    /// Tells what happened.
    pub(crate) fn tell(&mut self, text: impl AsRef<str>) {
        let text = text.as_ref();
        self.say(&lay(&self.clock(), TEXT_AT.len(), text, TEXT_AT));
        self.note(text, None);
    }

    /// Judges: something came out, and it should have or not.
    pub(crate) fn judge(&mut self, text: impl AsRef<str>, holds: bool) {
        let (text, style) = (text.as_ref(), stdout_style());
        let mark = match (holds, self.half) {
            (true, Half::Wrong) => "✓ damage: ",
            (true, Half::Right) => "✓ held: ",
            (false, Half::Wrong) => "✗ no damage: ",
            (false, Half::Right) => "✗ broken: ",
        };
        let painted = match (holds, self.half) {
            (true, Half::Wrong) => style.notable(mark),
            (true, Half::Right) => style.good(mark),
            (false, _) => style.bad(mark),
        };
        let plain = TEXT_AT.len() + mark.chars().count();
        self.say(&lay(&format!("{}{painted}", self.clock()), plain, text, TEXT_AT));
        self.note(text, Some(holds));
    }

    /// Whether both halves were judged, and came out as they should.
    pub(crate) fn holds(&self) -> bool {
        let judged = |half| self.lines.iter().any(|l| l.half == half && l.holds.is_some());
        let right = self.lines.iter().all(|line| line.holds != Some(false));
        judged(Half::Wrong) && judged(Half::Right) && right
    }

    /// Says how it ended, and what to read.
    ///
    /// # Errors
    /// What standard output says.
    pub(crate) fn end(&self) -> Result<(), Failure> {
        if !self.aloud {
            return Ok(());
        }
        let style = stdout_style();
        let word = if self.holds() { style.good("held") } else { style.bad("failed") };
        let text =
            format!("  {word} after {:.1} s; read {}\n", self.seconds(), style.dim(self.page));
        terminal::data(&text).map_err(Failure::of_stdout)
    }

    /// The whole of it, for programs.
    pub(crate) fn report(&self) -> Report<'_> {
        let took_ms = self.lines.last().map_or(0, |line| line.at_ms);
        Report {
            scenario: self.name,
            store: self.store,
            broker: self.broker,
            holds: self.holds(),
            took_ms,
            page: self.page,
            story: &self.lines,
        }
    }

    /// The time, in the columns before a text.
    fn clock(&self) -> String {
        format!("    {:>6.2} s  ", self.seconds())
    }

    fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    fn say(&self, text: &str) {
        if self.aloud {
            // A reader that went away is noticed at the end.
            let _ = terminal::data(text);
        }
    }

    fn note(&mut self, text: &str, holds: Option<bool>) {
        let at_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.lines.push(Line { at_ms, half: self.half, text: text.to_owned(), holds });
    }
}

/// A text behind a head that is so many columns wide, whatever its colours; further lines after an indent.
fn lay(head: &str, columns: usize, text: &str, indent: &str) -> String {
    // As wide as the head, less the indent, which `wrap` counts by itself.
    let filler = "_".repeat(columns.saturating_sub(indent.len()));
    let wrapped = wrap(&format!("{filler}{text}"), indent);
    format!("{head}{}", &wrapped[filler.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::scenario::SCENARIOS;

    fn story() -> Story {
        Story::new(&SCENARIOS[0], "sqlite", "local", false)
    }

    #[test]
    fn a_story_holds_only_if_both_halves_were_judged() {
        let mut story = story();
        assert!(!story.holds(), "nothing was judged");
        story.wrong("x");
        story.judge("damage", true);
        assert!(!story.holds(), "one half was judged");
        story.right("y");
        story.judge("held", true);
        assert!(story.holds());
        story.judge("held as well", false);
        assert!(!story.holds(), "a judgement was wrong");
    }

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        let text = "word ".repeat(40);
        let laid = lay(&format!("{TEXT_AT}\u{1b}[32m✓ held: \u{1b}[0m"), 22, text.trim(), TEXT_AT);
        let plain = laid.replace("\u{1b}[32m", "").replace("\u{1b}[0m", "");
        assert!(plain.lines().all(|line| line.chars().count() <= 80), "{plain}");
        assert_eq!(plain.split_whitespace().count(), 42, "{plain}");
    }

    #[test]
    fn a_wrong_way_without_damage_fails_a_story() {
        let mut story = story();
        story.right("y");
        story.judge("held", true);
        story.wrong("x");
        story.judge("damage", false);
        assert!(!story.holds());
    }
}
