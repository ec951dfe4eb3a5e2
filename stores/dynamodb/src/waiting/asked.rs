//! What an operator asks of waiting events, in memory.
//!
//! Invariant: of the events that hold a key only the first becomes due, whatever is brought out or let go.

use postrider_core::waiting::{Reason, WaitingState};

use super::{Stored, Waiting};

impl Waiting {
    /// Makes an event due that gave up or waited for its endpoint: in its place, or late where its key went on.
    /// Returns the row as it is now.
    pub(crate) fn bring_out(&mut self, seq: u64, reason: Reason, now: i64) -> Option<Stored> {
        let mut row = self.rows.get(&seq)?.clone();
        if row.state == WaitingState::Dead {
            (row.attempts, row.late) = (0, !row.holds_key);
        }
        (row.state, row.endpoint) = (WaitingState::Retrying, None);
        (row.reason, row.due, row.moved_at) = (reason, now, now);
        self.put(row, now);
        self.rows.get(&seq).cloned()
    }

    /// Lets an event wait that was settled before: late, and at once.
    pub(crate) fn requeue(&mut self, row: Stored, now: i64) {
        self.put(row, now);
    }

    /// Lets an event go for good. One that the cursor has not passed is remembered until it has, so that it
    /// is not read again; of others nothing stays. Returns the row as it is now.
    pub(crate) fn discard(&mut self, seq: u64, now: i64) -> Option<Stored> {
        let mut row = self.take(seq, now)?;
        (row.state, row.endpoint, row.moved_at) = (WaitingState::Discarded, None, now);
        (row.holds_key, row.late) = (false, false);
        if row.ahead {
            self.rows.insert(seq, row.clone());
        }
        Some(row)
    }

    /// Forgets a row that is not written, because its event was let go before.
    pub(crate) fn forget(&mut self, seq: u64, now: i64) {
        self.take(seq, now);
    }

    /// Forgets a row that was let go and that the cursor has passed now.
    pub(crate) fn forget_discarded(&mut self, seq: u64) -> Option<Stored> {
        let over = self
            .rows
            .get(&seq)
            .is_some_and(|row| row.state == WaitingState::Discarded && !row.ahead);
        if over { self.rows.remove(&seq) } else { None }
    }
}
