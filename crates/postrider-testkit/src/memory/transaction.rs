//! A producer's or a handler's transaction: what it stages is there when it commits, and never was
//! when it does not (INV-1, INV-2).

use std::sync::Arc;

use postrider_core::inbox::Accepted;
use postrider_core::waiting::RowRef;
use postrider_core::{
    BoxFuture, Error, ErrorKind, Event, HandlerName, InboxKey, NewEvent, Payload, Result, Timestamp,
};

use super::inbox::InboxRow;
use super::lock;
use super::schedule::Scheduled;
use super::store::{Shared, State};
use crate::suite::OpenTransaction;

/// An open transaction. Dropping it rolls it back; its numbers stay drawn.
#[derive(Debug)]
#[must_use = "a transaction that is dropped is rolled back"]
pub struct MemoryTransaction {
    shared: Arc<Shared>,
    staged: Vec<Staged>,
    accepted: Vec<(InboxKey, [u8; 32], Box<str>)>,
    effects: Vec<InboxKey>,
}

#[derive(Debug)]
struct Staged {
    seq: u64,
    event: Event,
    due: Option<Timestamp>,
}

impl MemoryTransaction {
    pub(super) fn new(shared: Arc<Shared>) -> MemoryTransaction {
        MemoryTransaction { shared, staged: Vec::new(), accepted: Vec::new(), effects: Vec::new() }
    }

    /// Stages an event and draws its number.
    ///
    /// # Errors
    /// `Invalid` or `TooLarge` if the event breaks a rule.
    pub fn enqueue(&mut self, event: NewEvent) -> Result<RowRef> {
        let due = event.due();
        let mut event = event.event().clone();
        self.shared.limits.check(&event)?;
        check_json(&event.payload)?;
        if event.source.is_empty() {
            event.source = Arc::clone(&self.shared.source);
        }
        event.created_at = self.shared.now();
        let seq = {
            let mut state = lock(&self.shared.state);
            let seq = state.draw_seq();
            state.open.insert(seq);
            seq
        };
        let row = RowRef { seq, id: event.id };
        self.staged.push(Staged { seq, event, due });
        Ok(row)
    }

    /// Accepts an event for a handler: the marker is part of this transaction.
    ///
    /// # Errors
    /// `Conflict` if the id is known with another payload; `Busy` while another open transaction
    /// has accepted the same.
    pub fn accept(&mut self, event: &Event, handler: &HandlerName) -> Result<Accepted> {
        let key = InboxKey::of(event, handler)?;
        let hash = event.payload.hash();
        let mut state = lock(&self.shared.state);
        if let Some(row) = state.inbox.get(&key) {
            row.check_hash(&key, &hash)?;
            if row.is_processed() {
                return Ok(Accepted::Duplicate);
            }
        }
        if !state.accepting.insert(key.clone()) {
            return Err(Error::new(ErrorKind::Busy, "accept")
                .message("another transaction is at the same event")
                .context("event", event.id));
        }
        drop(state);
        self.accepted.push((key, hash, event.event_type.clone()));
        Ok(Accepted::FirstTime)
    }

    /// Writes one effect row for an event, as a handler's business change does.
    ///
    /// # Errors
    /// `Invalid` if the event has no source.
    pub fn effect(&mut self, event: &Event, handler: &HandlerName) -> Result<()> {
        self.effects.push(InboxKey::of(event, handler)?);
        Ok(())
    }

    /// Commits, and returns the numbers of the staged events.
    ///
    /// # Errors
    /// `Conflict` if an id was committed before; then nothing was committed.
    pub fn commit(mut self) -> Result<Vec<RowRef>> {
        let staged = std::mem::take(&mut self.staged);
        let elapsed = self.shared.clock.elapsed();
        let rows = {
            let mut state = lock(&self.shared.state);
            staged.iter().for_each(|staged| _ = state.open.remove(&staged.seq));
            check_unique(&state, &staged)?;
            for (key, hash, event_type) in self.accepted.drain(..) {
                state.accepting.remove(&key);
                let row = InboxRow::processed(hash, event_type, elapsed);
                state.inbox.insert(key, row);
            }
            state.effects.append(&mut self.effects);
            staged
                .into_iter()
                .map(|staged| admit_staged(&mut state, staged, self.shared.partitions))
                .collect()
        };
        self.shared.commits.send_modify(|commits| *commits += 1);
        Ok(rows)
    }

    /// Rolls back: nothing of it ever was.
    pub fn roll_back(self) {
        drop(self);
    }
}

impl Drop for MemoryTransaction {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        for staged in &self.staged {
            state.open.remove(&staged.seq);
        }
        for (key, ..) in &self.accepted {
            state.accepting.remove(key);
        }
    }
}

fn admit_staged(state: &mut State, staged: Staged, partitions: u16) -> RowRef {
    let Staged { seq, event, due } = staged;
    state.ids.insert(event.id);
    match due {
        None => state.append(seq, event, partitions),
        Some(due) => {
            let row = RowRef { seq, id: event.id };
            state.scheduled.insert((due, seq), Scheduled { event });
            row
        }
    }
}

fn check_unique(state: &State, staged: &[Staged]) -> Result<()> {
    let mut own = std::collections::BTreeSet::new();
    for Staged { event, .. } in staged {
        if state.ids.contains(&event.id) || !own.insert(event.id) {
            return Err(Error::new(ErrorKind::Conflict, "commit")
                .message("an event with this id exists; nothing was committed")
                .context("event", event.id));
        }
    }
    Ok(())
}

/// What a database's CHECK does: JSON text must be JSON.
fn check_json(payload: &Payload) -> Result<()> {
    let Payload::Json(text) = payload else {
        return Ok(());
    };
    serde_json::from_slice::<&serde_json::value::RawValue>(text).map(drop).map_err(|e| {
        Error::new(ErrorKind::Invalid, "enqueue").message(format!("the payload is not JSON: {e}"))
    })
}

impl OpenTransaction for MemoryTransaction {
    fn enqueue(&mut self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            events
                .into_iter()
                .try_for_each(|event| MemoryTransaction::enqueue(self, event).map(drop))
        })
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move { MemoryTransaction::commit(*self).map(drop) })
    }

    fn roll_back(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            MemoryTransaction::roll_back(*self);
            Ok(())
        })
    }
}
