//! The ledger: what was committed, sent, answered, and saved, noted down without a thought for how
//! the machine does it.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::source::{FetchRequest, Page};
use postrider_core::waiting::{Passed, Placement, Settlement, WaitingChange};
use postrider_core::{Cursor, DestinationId, EventId, Outcome, Outgoing, WindowLimits};
use proptest::test_runner::TestCaseError;

use crate::Ticket;

type Checked = Result<(), TestCaseError>;

/// What is broken, if the condition does not hold.
fn insist(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(TestCaseError::fail(what())) }
}

/// A row that was read, in the order in which it was.
#[derive(Debug)]
struct Read {
    id: EventId,
    cursor: Cursor,
    bytes: u64,
}

pub(super) struct Ledger {
    destination: DestinationId,
    window: WindowLimits,
    attempts_max: u32,
    /// The events of each key, as they were committed.
    keys: BTreeMap<String, Vec<EventId>>,
    pub(super) acked: BTreeSet<EventId>,
    /// What some settlement said that it waits.
    waiting: BTreeSet<EventId>,
    /// Batches under way.
    sent: BTreeMap<Ticket, Vec<(String, EventId)>>,
    read: Vec<Read>,
    /// Where the last page ended.
    end: Option<Cursor>,
    /// How many of the rows that were read are saved, and a settlement that is under way saves.
    saved: usize,
    saving: usize,
    pub(super) met: BTreeSet<&'static str>,
}

impl Ledger {
    pub(super) fn new(
        destination: DestinationId,
        window: WindowLimits,
        attempts_max: u32,
    ) -> Ledger {
        Ledger {
            destination,
            window,
            attempts_max,
            keys: BTreeMap::new(),
            acked: BTreeSet::new(),
            waiting: BTreeSet::new(),
            sent: BTreeMap::new(),
            read: Vec::new(),
            end: None,
            saved: 0,
            saving: 0,
            met: BTreeSet::new(),
        }
    }

    pub(super) fn committed(&mut self, key: &str, id: EventId) {
        self.keys.entry(key.to_owned()).or_default().push(id);
    }

    /// Everything that was committed, with the events of its key before it.
    pub(super) fn all(&self) -> impl Iterator<Item = (&[EventId], EventId)> {
        self.keys.values().flat_map(|ids| (0..ids.len()).map(|at| (&ids[..at], ids[at])))
    }

    /// A batch goes out: nothing of its keys may be under way, and nothing before it may be open.
    pub(super) fn sends(
        &mut self,
        ticket: Ticket,
        batch: &[Outgoing],
        prefix_order: bool,
    ) -> Checked {
        let mut sending: Vec<(String, EventId)> = Vec::new();
        for outgoing in batch {
            let (key, id) = (outgoing.event.key().to_string(), outgoing.event.id);
            let mut under_way = self.sent.values().flatten();
            insist(under_way.all(|(other, _)| *other != key), || {
                format!("{key} is under way already, and {id} is sent")
            })?;
            let again = sending.iter().any(|(other, _)| *other == key);
            insist(prefix_order || !again, || format!("{key} is under way already in its batch"))?;
            if again {
                self.met.insert("a run of a key was sent");
            }
            let ids = self.keys.get(&key).map(Vec::as_slice).unwrap_or_default();
            let before = ids.iter().take_while(|other| **other != id);
            let open = before.filter(|before| {
                !self.acked.contains(before) && !sending.iter().any(|(_, sent)| sent == *before)
            });
            let open: Vec<_> = open.collect();
            insist(open.is_empty(), || format!("{id} of {key} is sent before {open:?}"))?;
            insist(outgoing.attempt <= self.attempts_max, || {
                format!("{id} is tried a {}th time", outgoing.attempt)
            })?;
            sending.push((key, id));
        }
        insist(self.sent.insert(ticket, sending).is_none(), || format!("{ticket:?} comes twice"))
    }

    /// A batch is answered: it is not under way any more.
    pub(super) fn answered(&mut self, ticket: Ticket) {
        self.sent.remove(&ticket);
    }

    /// The broker has what it says it has.
    pub(super) fn told(&mut self, batch: &[Outgoing], outcomes: &[Outcome]) {
        for (outgoing, outcome) in batch.iter().zip(outcomes) {
            match outcome {
                Outcome::Acked => _ = self.acked.insert(outgoing.event.id),
                Outcome::Retry { .. } => _ = self.met.insert("an event failed"),
                Outcome::Rejected(_) => _ = self.met.insert("an event was refused"),
                _ => {}
            }
        }
    }

    fn unsaved(&self) -> &[Read] {
        &self.read[self.saved..]
    }

    fn is_ours(&self, request: &FetchRequest) -> bool {
        request.destinations.contains(&self.destination)
    }

    /// A page is asked for: there is room for it.
    pub(super) fn fetches(&mut self, request: &FetchRequest) -> Checked {
        if !self.is_ours(request) {
            return Ok(());
        }
        let (rows, limits) = (self.unsaved().len() as u64, self.window);
        let wanted = u64::from(request.rows_max);
        insist(rows + wanted <= u64::from(limits.rows_max), || {
            format!("{rows} and {wanted} more rows for a window of {}", limits.rows_max)
        })?;
        let bytes: u64 = self.unsaved().iter().map(|read| read.bytes).sum();
        let wanted = request.bytes_max;
        // An empty window is sure of a small page.
        let sure = if rows == 0 { limits.page_bytes_max / 8 } else { 0 };
        insist(bytes + wanted <= limits.bytes_max.max(sure), || {
            format!("{bytes} and {wanted} more bytes for a window of {}", limits.bytes_max)
        })
    }

    pub(super) fn fetched(&mut self, request: &FetchRequest, page: &Page) {
        if !self.is_ours(request) {
            return;
        }
        for row in &page.rows {
            let (id, cursor) = (row.row.id, row.cursor.clone());
            self.read.push(Read { id, cursor, bytes: row.bytes });
        }
        self.end = Some(page.end.clone());
        if self.unsaved().len() as u64 * 2 > u64::from(self.window.rows_max) {
            self.met.insert("a window was full");
        }
    }

    /// Outcomes are to be written: they are what was answered, and the cursor passes nothing else.
    pub(super) fn settles(&mut self, settlement: &Settlement) -> Checked {
        let parts = settlement.parts.iter();
        let Some(part) = parts.into_iter().find(|part| part.destination == self.destination) else {
            self.saving = 0;
            return Ok(());
        };
        for new in &part.waiting {
            self.waiting.insert(new.row.id);
            self.met.insert("events waited");
            if matches!(new.placement, Placement::Behind(_)) {
                self.met.insert("a key was parked");
            }
        }
        for change in &part.changes {
            let id = change.row().id;
            let right = match change {
                WaitingChange::Delivered(_) => self.acked.contains(&id),
                _ => self.waiting.contains(&id),
            };
            insist(right, || format!("{change:?} of what was not so"))?;
        }
        for (row, passed) in &part.passed {
            let right = match passed {
                Passed::Acked => self.acked.contains(&row.id),
                Passed::Waiting => self.waiting.contains(&row.id),
                _ => false,
            };
            insist(right, || format!("{row:?} is passed, and neither acknowledged nor waiting"))?;
        }
        self.saving = part.passed.len();
        let Some((_, to)) = &part.cursor else {
            return insist(part.passed.is_empty(), || "rows are passed by no cursor".to_owned());
        };
        let next = self.unsaved().get(..part.passed.len()).unwrap_or_default();
        let in_order = next.len() == part.passed.len()
            && next.iter().zip(&part.passed).all(|(read, (row, _))| read.id == row.id);
        let last = next.last().map(|read| &read.cursor);
        let all = next.len() == self.unsaved().len();
        let expected = if all { self.end.as_ref() } else { last };
        insist(in_order && expected == Some(to), || {
            format!("the cursor is saved at {to:?}, and not at {expected:?}: {:?}", part.passed)
        })
    }

    /// Rows whose cursor is not saved.
    pub(super) fn unsaved_rows(&self) -> Option<String> {
        let unsaved = self.unsaved();
        (!unsaved.is_empty()).then(|| format!("the cursor stands before {unsaved:?}"))
    }

    /// The settlement is known to be written.
    pub(super) fn settled(&mut self) {
        self.saved += std::mem::take(&mut self.saving);
    }
}
