//! Waits: how an event comes to wait, and how much of each key does.
//!
//! Keeps INV-3: from the moment that an event is on its way into `waiting`, it holds its key.

use std::sync::Arc;

use postrider_core::waiting::{NewWaiting, Passed, Placement, RowRef};
use postrider_core::{Event, KeyHash, Tick, planted, reach};

use crate::flow::Flow;
use crate::notice::Notice;
use crate::window::Ordinal;

impl Flow {
    /// Lets an event of the window wait in the store, with the next settlement.
    pub(crate) fn enter_waiting(
        &mut self,
        ordinal: Ordinal,
        row: RowRef,
        key_hash: KeyHash,
        event: Option<Arc<Event>>,
        placement: Placement,
        now: Tick,
    ) {
        self.enter(row, key_hash, event, placement, now);
        self.window.settle(ordinal, Passed::Waiting);
    }

    /// The same for one that is not of the window.
    pub(crate) fn enter(
        &mut self,
        row: RowRef,
        key_hash: KeyHash,
        event: Option<Arc<Event>>,
        placement: Placement,
        now: Tick,
    ) {
        if let Placement::Retry { delay, .. } = &placement {
            self.due_at = self.due_at.min(now + *delay);
        }
        reach!(WaitingEntered);
        self.passage.entered += 1;
        let flows = matches!(placement, Placement::Dead { .. }) && planted!(DeadKeyFlows);
        if !flows && !matches!(placement, Placement::Dead { holds_key: false, .. }) {
            let count = self.waiting.entry(key_hash).or_default();
            *count += 1;
            if *count == 2 && matches!(placement, Placement::Behind(_)) {
                let subject = self.subject(row, event.clone());
                self.notices.push(Notice::Parked { subject });
            }
        }
        self.entering.enter(key_hash, row.seq, self.asking);
        self.skipping.enter(key_hash, &placement);
        self.entering_bytes += event.as_deref().map_or(0, Event::size_bytes);
        self.part.waiting.push(NewWaiting { row, key_hash, event, placement });
    }

    /// One more of what waits holds a key.
    pub(crate) fn wait_for_range(&mut self, key: KeyHash) {
        *self.waiting.entry(key).or_default() += 1;
    }

    /// How much of what waits holds a key.
    pub(crate) fn waiting_of(&self, key: KeyHash) -> u32 {
        self.waiting.get(&key).copied().unwrap_or_default()
    }

    /// One waiting event no longer holds its key.
    pub(crate) fn unwait(&mut self, key: KeyHash) {
        if let Some(count) = self.waiting.get_mut(&key) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.waiting.remove(&key);
            }
        }
    }

    /// Whether anything of the key waits.
    pub(crate) fn waits(&self, key: KeyHash) -> bool {
        self.waiting.contains_key(&key)
    }

    pub(crate) fn waiting_keys(&self) -> usize {
        self.waiting.len()
    }
}
