//! Waiting events: at most the head of a key is due, what follows is parked behind it, and a dead
//! letter that holds its key lets nothing past (INV-3).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::source::DueRequest;
use postrider_core::waiting::{Counts, Due, Reason, RowRef, WaitingRow, WaitingState};
use postrider_core::{DestinationId, Event, KeyHash};

use super::MemoryStore;
use super::state::State;

/// A row of `waiting`.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) row: RowRef,
    pub(super) key: Arc<str>,
    pub(super) key_hash: KeyHash,
    pub(super) event: Option<Arc<Event>>,
    pub(super) state: WaitingState,
    pub(super) due: Duration,
    pub(super) attempts: u32,
    pub(super) reason: Reason,
    pub(super) detail: String,
    /// Of a dead letter: whether its successors wait behind it.
    pub(super) holds_key: bool,
    pub(super) late: bool,
    /// Of a disabled event: what it waits for.
    pub(super) endpoint: Option<Box<str>>,
}

/// A waiting event, as an operator sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitingView {
    /// Its number and id.
    pub row: RowRef,
    /// Its key's hash.
    pub key_hash: KeyHash,
    /// Where it stands.
    pub state: WaitingState,
    /// Why it waits.
    pub reason: Reason,
    /// Attempts that counted.
    pub attempts: u32,
    /// What was answered.
    pub detail: String,
    /// Whether its successors wait behind it.
    pub holds_key: bool,
    /// Delivered late on purpose.
    pub late: bool,
    /// When it is due, by the store's clock since its start; of no meaning unless it is retrying or held.
    pub due: Duration,
}

impl Stored {
    /// Whether events of its key wait because of it.
    pub(super) fn holds(&self) -> bool {
        match self.state {
            _ if self.late => false,
            WaitingState::Retrying
            | WaitingState::Parked
            | WaitingState::Held
            | WaitingState::Disabled => true,
            WaitingState::Dead => self.holds_key,
            WaitingState::Discarded => false,
        }
    }

    /// Whether it is tried by itself when its time has come, if it is the first of its key.
    pub(super) fn is_timed(&self) -> bool {
        matches!(self.state, WaitingState::Retrying | WaitingState::Held)
    }

    pub(super) fn is_dead(&self) -> bool {
        self.state == WaitingState::Dead
    }

    /// Waits no longer for its endpoint: it is due now, or parked if it is not the first of its key.
    pub(super) fn come_out(&mut self, now: Duration) {
        self.due = now;
        self.endpoint = None;
        self.state = if self.late { WaitingState::Retrying } else { WaitingState::Parked };
    }

    fn view(&self) -> WaitingView {
        WaitingView {
            row: self.row,
            key_hash: self.key_hash,
            state: self.state,
            reason: self.reason,
            attempts: self.attempts,
            detail: self.detail.clone(),
            holds_key: self.holds(),
            late: self.late,
            due: self.due,
        }
    }

    fn due_row(&self) -> Option<WaitingRow> {
        Some(WaitingRow {
            row: self.row,
            key_hash: self.key_hash,
            event: Arc::clone(self.event.as_ref()?),
            attempts: self.attempts,
            late: self.late
                && !(postrider_core::planted!(RedriveOutOfOrder)
                    && self.reason == Reason::Redriven),
            suspect: self.reason == Reason::Suspect,
            held: self.reason == Reason::Held,
        })
    }
}

impl MemoryStore {
    /// What waits of a destination, discarded rows included, by number.
    pub fn waiting(&self, destination: &DestinationId) -> Vec<WaitingView> {
        let state = self.state();
        let mut rows: Vec<WaitingView> = state.rows_of(destination).map(Stored::view).collect();
        rows.sort_by_key(|row| row.row.seq);
        rows
    }
}

impl State {
    /// What waits of a destination, partition by partition.
    fn rows_of(&self, id: &DestinationId) -> impl Iterator<Item = &Stored> {
        let places = self.waiting.range((id.clone(), 0)..=(id.clone(), u16::MAX));
        places.flat_map(|(_, rows)| rows.values())
    }

    /// What waits of a destination in a partition, by number.
    fn rows_in(&self, id: &DestinationId, partition: u16) -> impl Iterator<Item = &Stored> {
        self.waiting.get(&(id.clone(), partition)).into_iter().flat_map(BTreeMap::values)
    }

    pub(super) fn waiting_keys(&self, id: &DestinationId, partition: u16) -> Vec<(KeyHash, u32)> {
        let mut keys: BTreeMap<KeyHash, u32> = BTreeMap::new();
        for row in self.rows_in(id, partition) {
            if row.holds() {
                *keys.entry(row.key_hash).or_default() += 1;
            }
        }
        keys.into_iter().collect()
    }

    /// What waits though the destination has not passed it.
    pub(super) fn waiting_ahead(&self, id: &DestinationId, partition: u16) -> Vec<u64> {
        let ahead = |row: &&Stored| {
            let committed = self.row_of(partition, row.row.seq);
            committed.is_some_and(|committed| !self.has_passed(id, partition, committed))
        };
        self.rows_in(id, partition).filter(ahead).map(|row| row.row.seq).collect()
    }

    pub(super) fn counts(&self, id: &DestinationId) -> Counts {
        let mut counts = Counts::default();
        for row in self.rows_of(id) {
            match row.state {
                WaitingState::Retrying => counts.retrying += 1,
                WaitingState::Parked => counts.parked += 1,
                WaitingState::Held => counts.held += 1,
                WaitingState::Disabled => counts.disabled += 1,
                WaitingState::Dead => counts.dead += 1,
                WaitingState::Discarded => {}
            }
        }
        counts
    }

    pub(super) fn due(&self, request: &DueRequest, now: Duration) -> Due {
        let partition = request.lease.partition.0;
        let mut runs: Vec<Vec<&Stored>> = Vec::new();
        let mut open: BTreeMap<&str, usize> = BTreeMap::new();
        let rows = self
            .rows_in(&request.destination, partition)
            .filter(|row| !request.except.contains(&row.key_hash));
        for row in rows {
            match (row.state, open.get(&*row.key)) {
                _ if row.is_timed() && row.late => {
                    runs.push(vec![row]);
                }
                (_, None) if row.is_timed() => {
                    open.insert(&row.key, runs.len());
                    runs.push(vec![row]);
                }
                (WaitingState::Parked, Some(run)) if *run < runs.len() => runs[*run].push(row),
                // A head that is not to be delivered now: nothing behind it is either.
                _ if row.holds() => {
                    open.insert(&row.key, usize::MAX);
                }
                _ => {}
            }
        }
        runs.sort_by_key(|run| (run[0].due, run[0].row.seq));
        take_due(&runs, request, now)
    }
}

/// Takes whole runs whose head is due, up to the limits, and says when the next head is.
fn take_due(runs: &[Vec<&Stored>], request: &DueRequest, now: Duration) -> Due {
    let mut due = Due::default();
    let mut bytes = 0u64;
    for run in runs {
        let full = due.rows.len() >= request.rows_max.max(1) as usize || bytes > request.bytes_max;
        if run[0].due > now || full {
            due.next_in = Some(run[0].due.saturating_sub(now));
            break;
        }
        for row in run.iter().map_while(|stored| stored.due_row()) {
            bytes = bytes.saturating_add(row.event.size_bytes());
            let full = due.rows.len() >= request.rows_max.max(1) as usize;
            if full || (!due.rows.is_empty() && bytes > request.bytes_max) {
                break;
            }
            due.rows.push(row);
        }
    }
    due
}

/// The first of a key that holds it becomes due, if it was parked behind one that is gone.
pub(super) fn promote(rows: &mut BTreeMap<u64, Stored>, key: &str, now: Duration) {
    let head = rows.values_mut().find(|row| &*row.key == key && row.holds());
    if let Some(head) = head
        && head.state == WaitingState::Parked
    {
        head.state = WaitingState::Retrying;
        head.due = now;
    }
}
