//! The window against a naive list of rows, over any order of reading, outcomes, and saves.
//!
//! A save is taken and answered later, as the engine does it; between the two more rows are read and more
//! outcomes come. Windows with a flaw each are caught.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use super::*;
use postrider_core::EventId;

/// What happens to a window.
#[derive(Clone, Debug)]
enum Happening {
    /// Rows are read, each of so many bytes, and the page ends so far behind the last.
    Page(Vec<u8>, u8),
    /// A row has an outcome: one of those that were ever read.
    Outcome(u16, Passed),
    /// A save begins, if none is under way.
    Save,
    /// It is answered.
    Saved,
}

fn happening() -> impl Strategy<Value = Happening> {
    let outcome = prop_oneof![
        4 => Just(Passed::Acked),
        1 => Just(Passed::Waiting),
        1 => Just(Passed::OtherRoute),
    ];
    prop_oneof![
        2 => (proptest::collection::vec(any::<u8>(), 0..8), 0u8..3)
            .prop_map(|(rows, gap)| Happening::Page(rows, gap)),
        8 => (any::<u16>(), outcome).prop_map(|(which, how)| Happening::Outcome(which, how)),
        2 => Just(Happening::Save),
        2 => Just(Happening::Saved),
    ]
}

/// What the engine uses of a window; a flawed one answers otherwise.
trait Windowed {
    fn window(&mut self) -> &mut Window;

    fn settle(&mut self, ordinal: Ordinal, outcome: Passed) {
        Window::settle(self.window(), ordinal, outcome);
    }

    fn advance(&mut self) -> Option<Advance> {
        Window::advance(self.window())
    }

    fn saved(&mut self, to: Cursor) {
        Window::saved(self.window(), to);
    }
}

impl Windowed for Window {
    fn window(&mut self) -> &mut Window {
        self
    }
}

/// A row, as a person would note it down.
#[derive(Clone, Debug)]
struct Noted {
    at: u64,
    cursor: Cursor,
    bytes: u64,
    outcome: Option<Passed>,
}

/// Everything that was ever read, and how much of it is saved.
struct Notes {
    rows: Vec<Noted>,
    ordinals: Vec<Ordinal>,
    saved_rows: usize,
    saved: Cursor,
    read: Cursor,
    /// The save under way.
    saving: Option<Advance>,
}

fn row(at: u64) -> RowRef {
    RowRef { seq: at, id: EventId::from_u128(u128::from(at)) }
}

impl Notes {
    fn new() -> Notes {
        Notes {
            rows: Vec::new(),
            ordinals: Vec::new(),
            saved_rows: 0,
            saved: Cursor::number(0),
            read: Cursor::number(0),
            saving: None,
        }
    }

    fn unsaved(&self) -> &[Noted] {
        &self.rows[self.saved_rows..]
    }

    /// The run of settled rows at the front.
    fn run(&self) -> &[Noted] {
        let unsaved = self.unsaved();
        let open = unsaved.iter().position(|row| row.outcome.is_none());
        &unsaved[..open.unwrap_or(unsaved.len())]
    }

    fn happen(
        &mut self,
        happening: &Happening,
        window: &mut impl Windowed,
    ) -> Result<(), TestCaseError> {
        match happening {
            Happening::Page(rows, gap) => {
                let mut at = self.read.position();
                // Often the same as before, and never the same allocation.
                let base = Cursor::new(self.read.base().to_vec().into(), 0);
                for bytes in rows {
                    at += 1;
                    let (bytes, cursor) = (u64::from(*bytes), base.at(at));
                    self.rows.push(Noted { at, cursor: cursor.clone(), bytes, outcome: None });
                    let pushed = window.window().push(row(at), KeyHash(at), cursor, bytes);
                    self.ordinals.push(pushed);
                }
                self.read = base.at(at + u64::from(*gap));
                if *gap == 2 {
                    let next = base.base().first().map_or(1, |number| number.wrapping_add(1));
                    self.read = Cursor::new([next].into(), self.read.position());
                }
                window.window().read_to(self.read.clone());
            }
            Happening::Outcome(which, outcome) => {
                let Some(index) = usize::from(*which).checked_rem(self.rows.len()) else {
                    return Ok(());
                };
                window.settle(self.ordinals[index], *outcome);
                if index >= self.saved_rows {
                    self.rows[index].outcome.get_or_insert(*outcome);
                }
            }
            Happening::Save if self.saving.is_none() => {
                let advance = window.advance();
                self.compare_advance(advance.as_ref())?;
                self.saving = advance;
            }
            Happening::Save => {}
            Happening::Saved => {
                let Some(advance) = self.saving.take() else { return Ok(()) };
                window.saved(advance.to.clone());
                self.saved_rows += advance.passed.len();
                self.saved = advance.to;
            }
        }
        Ok(())
    }

    fn compare_advance(&self, advance: Option<&Advance>) -> Result<(), TestCaseError> {
        let run = self.run();
        let to = match run.last() {
            _ if run.len() == self.unsaved().len() => self.read.clone(),
            Some(last) => last.cursor.clone(),
            None => self.saved.clone(),
        };
        let Some(advance) = advance else {
            prop_assert_eq!(to, self.saved.clone(), "nothing to save");
            return Ok(());
        };
        for open in self.unsaved().iter().filter(|row| row.outcome.is_none()) {
            let position = advance.to.position();
            prop_assert!(position < open.at, "{position} passes the unsettled row {}", open.at);
        }
        prop_assert_eq!(&advance.from, &self.saved, "it begins where the last one ended");
        prop_assert_eq!(&advance.to, &to, "it ends with the run of settled rows");
        let passed: Vec<_> =
            run.iter().filter_map(|noted| Some((row(noted.at), noted.outcome?))).collect();
        prop_assert_eq!(&advance.passed, &passed, "it passes each row of the run once");
        Ok(())
    }

    fn compare(&self, window: &Window) -> Result<(), TestCaseError> {
        let unsaved = self.unsaved();
        let settled = unsaved.iter().filter(|row| row.outcome.is_some()).count();
        prop_assert_eq!(window.len(), unsaved.len(), "rows");
        let bytes = unsaved.iter().map(|row| row.bytes).sum::<u64>();
        prop_assert_eq!(window.bytes(), bytes, "bytes");
        let open = unsaved.iter().filter(|row| row.outcome.is_none());
        let open = open.map(|row| row.bytes).sum::<u64>();
        prop_assert_eq!(window.open_bytes(), open, "what is in memory");
        prop_assert_eq!(window.settled(), settled, "outcomes");
        prop_assert_eq!(window.read(), &self.read, "where to read on");
        let dirty = match unsaved.first() {
            Some(first) => first.outcome.is_some(),
            None => self.read != self.saved,
        };
        prop_assert_eq!(window.is_dirty(), dirty, "whether something can be saved");
        let mut holders = Vec::new();
        if settled * 2 >= unsaved.len() && settled < unsaved.len() {
            let first = &unsaved[..unsaved.len().div_ceil(2)];
            let open = first.iter().filter(|row| row.outcome.is_none());
            holders.extend(open.map(|row| KeyHash(row.at)));
        }
        prop_assert_eq!(window.holders(), holders, "who holds the others");
        Ok(())
    }
}

fn judge<W: Windowed>(window: impl Fn(Window) -> W) -> Result<(), String> {
    let config = Config { cases: 250, max_shrink_iters: 256, ..Config::default() };
    let config = Config { failure_persistence: None, ..config };
    TestRunner::new(config)
        .run(&proptest::collection::vec(happening(), 1..80), |happenings| {
            let mut window = window(Window::new(Cursor::number(0)));
            let mut notes = Notes::new();
            for happening in &happenings {
                notes.happen(happening, &mut window)?;
                notes.compare(window.window())?;
            }
            Ok(())
        })
        .map_err(|error| error.to_string())
}

/// F1: whatever the order, the cursor passes no unsettled row, each row once, and rows and bytes are
/// counted as they are.
#[test]
fn any_order_follows_the_notes() {
    judge(|window| window).unwrap_or_else(|broken| panic!("{broken}"));
}

const PASSES_ONE_MORE: u8 = 0;
const ENDS_WITH_THE_PAGE: u8 = 1;
const FORGETS_ONE_MORE: u8 = 2;
const FORGETS_NO_BYTES: u8 = 3;
const LAST_OUTCOME_COUNTS: u8 = 4;
const SETTLES_THE_NEXT: u8 = 5;
const TAKES_THE_LAST_BASE: u8 = 6;
const FORGETS_A_BASE: u8 = 7;

/// A window with a flaw.
struct Flawed<const FLAW: u8>(Window);

impl<const FLAW: u8> Windowed for Flawed<FLAW> {
    fn window(&mut self) -> &mut Window {
        &mut self.0
    }

    fn settle(&mut self, ordinal: Ordinal, outcome: Passed) {
        let Ordinal(place) = ordinal;
        let index = place.checked_sub(self.0.first).and_then(|index| usize::try_from(index).ok());
        match (FLAW, index.and_then(|index| self.0.slots.get_mut(index))) {
            (LAST_OUTCOME_COUNTS, Some(slot)) if slot.outcome.is_some() => {
                slot.outcome = Some(outcome);
            }
            // An ordinal that left is taken for a place.
            (SETTLES_THE_NEXT, None) => self.0.settle(Ordinal(self.0.first), outcome),
            _ => self.0.settle(ordinal, outcome),
        }
    }

    fn advance(&mut self) -> Option<Advance> {
        let mut advance = self.0.advance()?;
        if FLAW == PASSES_ONE_MORE
            && let Some(slot) = self.0.slots.front()
            && let Some(base) = self.0.base(self.0.first)
        {
            advance.to = Cursor::new(base, slot.position);
            advance.passed.push((slot.row, Passed::Acked));
        }
        if FLAW == TAKES_THE_LAST_BASE
            && let Some((_, base)) = self.0.bases.back()
        {
            advance.to = Cursor::new(Arc::clone(base), advance.to.position());
        }
        if FLAW == ENDS_WITH_THE_PAGE {
            advance.to = self.0.read.clone();
        }
        Some(advance)
    }

    fn saved(&mut self, to: Cursor) {
        let before = self.0.bytes;
        self.0.saved(to);
        if FLAW == FORGETS_ONE_MORE {
            self.0.slots.pop_front();
        }
        if FLAW == FORGETS_NO_BYTES {
            self.0.bytes = before;
        }
        if FLAW == FORGETS_A_BASE && self.0.bases.len() > 1 {
            self.0.bases.pop_front();
        }
    }
}

/// Each of these is a mistake that is easily made; the notes tell every one.
#[test]
fn windows_with_a_flaw_are_caught() {
    let told = [
        (judge(Flawed::<PASSES_ONE_MORE>), "passes the unsettled row"),
        (judge(Flawed::<ENDS_WITH_THE_PAGE>), "passes the unsettled row"),
        (judge(Flawed::<FORGETS_ONE_MORE>), "rows"),
        (judge(Flawed::<FORGETS_NO_BYTES>), "bytes"),
        (judge(Flawed::<LAST_OUTCOME_COUNTS>), "it passes each row of the run once"),
        (judge(Flawed::<SETTLES_THE_NEXT>), "outcomes"),
        (judge(Flawed::<TAKES_THE_LAST_BASE>), "it ends with the run of settled rows"),
        (judge(Flawed::<FORGETS_A_BASE>), "nothing to save"),
    ];
    for (outcome, mistake) in told {
        let broken = outcome.expect_err(mistake);
        assert!(broken.contains(mistake), "caught for another reason than {mistake}: {broken}");
    }
}
