//! A producer's or a handler's transaction: what it stages is there when it commits, and never was
//! when it does not (INV-1, INV-2).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use postrider_core::inbox::Accepted;
use postrider_core::waiting::RowRef;
use postrider_core::{
    BoxFuture, Error, ErrorKind, Event, HandlerName, InboxKey, NewEvent, Payload, Result, Text,
    Timestamp,
};

use super::inbox::InboxRow;
use super::kind::Kind;
use super::schedule::Scheduled;
use super::server::Needs;
use super::state::{NewRow, State};
use super::store::Shared;
use super::{Access, Line, MemoryStore, lock};
use crate::suite::OpenTransaction;

/// An open transaction. Dropping it rolls it back.
///
/// The operations whose names end in `_on` go through the line of the handle that began it, each a
/// statement of its own; the others act at once.
#[derive(Debug)]
#[must_use = "a transaction that is dropped is rolled back"]
pub struct MemoryTransaction {
    shared: Arc<Shared>,
    line: Option<Arc<dyn Line>>,
    /// Its number, and the life of the server in which it was given. None before the first write.
    begun: Option<Begun>,
    staged: Vec<Staged>,
    /// How many events each of its keys had when it first wrote one, where writers of one key conflict.
    heads: BTreeMap<Arc<str>, u64>,
    accepted: Vec<(InboxKey, [u8; 32], Text)>,
    effects: Vec<InboxKey>,
}

#[derive(Clone, Copy, Debug)]
struct Begun {
    xid: u64,
    epoch: u64,
}

#[derive(Debug)]
struct Staged {
    seq: u64,
    event: Event,
    format: u16,
    due: Option<Timestamp>,
}

impl MemoryStore {
    /// Begins a producer's transaction through the handle's line.
    ///
    /// # Errors
    /// What the line says.
    pub async fn begin_on(&self) -> Result<MemoryTransaction> {
        let transaction = self.begin();
        transaction.there("begin").await?;
        transaction.back("begin").await?;
        Ok(transaction)
    }
}

impl MemoryTransaction {
    pub(super) fn new(shared: Arc<Shared>, line: Option<Arc<dyn Line>>) -> MemoryTransaction {
        MemoryTransaction {
            shared,
            line,
            begun: None,
            staged: Vec::new(),
            heads: BTreeMap::new(),
            accepted: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// Stages an event and draws its number.
    ///
    /// # Errors
    /// `Invalid` or `TooLarge` if the event breaks a rule; `Backpressure` if the outbox is full;
    /// `Busy` if another transaction writes and only one may; `ReadOnly`, `DiskFull`, or `Unavailable`
    /// if the server is in that condition.
    pub fn enqueue(&mut self, event: NewEvent) -> Result<RowRef> {
        self.enqueue_format(event, 1)
    }

    /// Stages an event as a row of a format: one that is newer than a relay knows it cannot read.
    ///
    /// # Errors
    /// As [`MemoryTransaction::enqueue`].
    pub fn enqueue_format(&mut self, event: NewEvent, format: u16) -> Result<RowRef> {
        let due = event.due();
        let mut event = event.event().clone();
        self.shared.limits.check(&event)?;
        check_json(&event.payload)?;
        if event.source.is_empty() {
            event.source = Arc::clone(&self.shared.source);
        }
        event.created_at = self.shared.now();
        let seq = {
            let shared = Arc::clone(&self.shared);
            let mut state = lock(&shared.state);
            state.admits("enqueue", Needs::Room)?;
            state.check_watermark()?;
            self.write("enqueue", &mut state)?;
            if state.kind == Kind::Keyed {
                let key: Arc<str> = event.key().into();
                let head = state.heads.get(&key).copied().unwrap_or_default();
                self.heads.entry(key).or_insert(head);
            }
            let seq = state.draw_seq();
            state.open.insert(seq);
            seq
        };
        let row = RowRef { seq, id: event.id };
        self.staged.push(Staged { seq, event, format, due });
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
        let shared = Arc::clone(&self.shared);
        let mut state = lock(&shared.state);
        if let Some(row) = state.inbox.get(&key) {
            row.check_hash(&key, &hash)?;
            if row.is_processed() {
                return Ok(Accepted::Duplicate);
            }
        }
        state.admits("accept", Needs::Room)?;
        self.write("accept", &mut state)?;
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
    /// `Conflict` if an id was committed before, or, where writers of one key conflict, if one of its
    /// keys has another event since; `Unavailable` if the server went away since the first write.
    /// Then nothing was committed.
    pub fn commit(mut self) -> Result<Vec<RowRef>> {
        let shared = Arc::clone(&self.shared);
        let elapsed = shared.clock.elapsed();
        let rows = {
            let mut state = lock(&shared.state);
            self.check_alive("commit", &state)?;
            if !self.is_empty() {
                state.admits("commit", Needs::Room)?;
            }
            self.check_heads(&state)?;
            check_unique(&state, &self.staged)?;
            let staged = std::mem::take(&mut self.staged);
            let accepted = std::mem::take(&mut self.accepted);
            staged.iter().for_each(|staged| _ = state.open.remove(&staged.seq));
            for (key, hash, event_type) in accepted {
                state.accepting.remove(&key);
                let row = InboxRow::processed(hash, event_type, elapsed);
                state.inbox.insert(key, row);
            }
            state.effects.append(&mut self.effects);
            let xid = self.begun.map_or(0, |begun| begun.xid);
            let rows = staged.into_iter();
            let rows = rows.map(|staged| staged.admit(&mut state, xid, elapsed)).collect();
            self.end(&mut state, true);
            rows
        };
        shared.commits.send_modify(|commits| *commits += 1);
        Ok(rows)
    }

    /// Rolls back: nothing of it ever was.
    pub fn roll_back(self) {
        drop(self);
    }

    /// [`MemoryTransaction::enqueue_format`] through the line.
    ///
    /// # Errors
    /// The same, and what the line says.
    pub async fn enqueue_on(&mut self, event: NewEvent, format: u16) -> Result<RowRef> {
        self.there("enqueue").await?;
        let row = self.enqueue_format(event, format);
        self.back("enqueue").await?;
        row
    }

    /// [`MemoryTransaction::accept`] through the line.
    ///
    /// # Errors
    /// The same, and what the line says.
    pub async fn accept_on(&mut self, event: &Event, handler: &HandlerName) -> Result<Accepted> {
        self.there("accept").await?;
        let accepted = self.accept(event, handler);
        self.back("accept").await?;
        accepted
    }

    /// [`MemoryTransaction::commit`] through the line. An error on the way there rolls it back; after
    /// one on the way back nobody knows.
    ///
    /// # Errors
    /// The same, and what the line says.
    pub async fn commit_on(self) -> Result<Vec<RowRef>> {
        let line = self.line.clone();
        self.there("commit").await?;
        let rows = self.commit();
        if let Some(line) = line {
            line.back("commit").await?;
        }
        rows
    }

    async fn there(&self, statement: &'static str) -> Result<()> {
        match &self.line {
            Some(line) => line.there(statement, Access::Write).await,
            None => Ok(()),
        }
    }

    async fn back(&self, statement: &'static str) -> Result<()> {
        match &self.line {
            Some(line) => line.back(statement).await,
            None => Ok(()),
        }
    }

    fn is_empty(&self) -> bool {
        self.staged.is_empty() && self.accepted.is_empty() && self.effects.is_empty()
    }

    /// Draws the transaction's number before its first write, if it may write now.
    fn write(&mut self, statement: &'static str, state: &mut State) -> Result<()> {
        self.check_alive(statement, state)?;
        if self.begun.is_some() {
            return Ok(());
        }
        state.take_turn(statement)?;
        let xid = state.xids.begin();
        state.server.writer = Some(xid);
        self.begun = Some(Begun { xid, epoch: state.server.epoch });
        Ok(())
    }

    /// A server that went away has rolled it back.
    fn check_alive(&self, statement: &'static str, state: &State) -> Result<()> {
        if self.begun.is_none_or(|begun| begun.epoch == state.server.epoch) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unavailable, statement)
            .message("the server went away; the transaction is rolled back"))
    }

    fn check_heads(&self, state: &State) -> Result<()> {
        let moved = self
            .heads
            .iter()
            .find(|(key, head)| state.heads.get(*key).copied().unwrap_or_default() != **head);
        match moved {
            None => Ok(()),
            Some((key, _)) => Err(Error::new(ErrorKind::Conflict, "commit")
                .message("another event of the key was committed; nothing was committed")
                .context("key", key)),
        }
    }

    /// Lets go of what it holds on the server, once.
    fn end(&mut self, state: &mut State, committed: bool) {
        let Some(begun) = self.begun.take() else { return };
        if begun.epoch != state.server.epoch {
            return;
        }
        if state.server.writer == Some(begun.xid) {
            state.server.writer = None;
        }
        state.xids.end(begun.xid, committed);
        if let (Kind::Number, Some(first)) = (state.kind, self.staged.first()) {
            // The one writer there was gives its numbers back.
            state.seq_last = first.seq - 1;
        }
        for staged in &self.staged {
            state.open.remove(&staged.seq);
        }
        for (key, ..) in &self.accepted {
            state.accepting.remove(key);
        }
    }
}

impl Drop for MemoryTransaction {
    fn drop(&mut self) {
        if self.begun.is_some() {
            let shared = Arc::clone(&self.shared);
            self.end(&mut lock(&shared.state), false);
        }
    }
}

impl Staged {
    fn admit(self, state: &mut State, xid: u64, now: std::time::Duration) -> RowRef {
        let Staged { seq, event, format, due } = self;
        state.ids.insert(event.id);
        match due {
            None => state.append(NewRow { seq, xid, format, event }, now),
            Some(due) => {
                let row = RowRef { seq, id: event.id };
                state.scheduled.insert((due, seq), Scheduled { event, format });
                row
            }
        }
    }
}

fn check_unique(state: &State, staged: &[Staged]) -> Result<()> {
    let mut own = BTreeSet::new();
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
