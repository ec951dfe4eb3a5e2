//! Renaming: a destination gets another name, with everything that is its own, in one atomic act.
//!
//! Invariant: what stood under the old name stands under the new one, and nothing under the old. A
//! relay that still has the old name finds no such destination: what it settles is left out.

use std::collections::BTreeMap;

use postrider_core::operate::{RowKey, Verb};
use postrider_core::{Destination, DestinationId, Error, ErrorKind, Result};

use super::MemoryStore;
use super::destinations::not_found;
use super::request::Request;
use super::state::State;

impl MemoryStore {
    /// Gives a destination another name. Its cursors, what waits, its settled log, its disabled
    /// endpoints, and what was asked for go with it. Relays hear of it with their next heartbeat.
    ///
    /// # Errors
    /// `NotFound` if there is no such destination, `Conflict` if the new name is taken, `Invalid` for
    /// `unrouted`. Nothing is changed then.
    pub fn rename(&self, from: &DestinationId, to: &DestinationId) -> Result<()> {
        self.state().rename(from, to)
    }
}

impl State {
    fn rename(&mut self, from: &DestinationId, to: &DestinationId) -> Result<()> {
        if [from, to].iter().any(|id| id.as_str() == Destination::UNROUTED) {
            return Err(Error::new(ErrorKind::Invalid, "rename")
                .message("the destination `unrouted` is built in and keeps its name"));
        }
        if !self.destinations.contains_key(from) {
            return Err(not_found(from));
        }
        if from == to {
            return Ok(());
        }
        if self.destinations.contains_key(to) {
            return Err(Error::new(ErrorKind::Conflict, "rename")
                .message("there is a destination of that name already; nothing was changed")
                .context("destination", to));
        }
        if let Some(mut row) = self.destinations.remove(from) {
            row.definition.id = to.clone();
            self.destinations.insert(to.clone(), row);
        }
        move_one(&mut self.cursors, from, to);
        move_one(&mut self.snapshots, from, to);
        move_one(&mut self.pending, from, to);
        move_one(&mut self.settled, from, to);
        move_all(&mut self.waiting, from, to);
        move_all(&mut self.endpoints, from, to);
        move_all(&mut self.replay, from, to);
        move_all(&mut self.ranges, from, to);
        self.requests.iter_mut().for_each(|request| request.rename(from, to));
        self.definitions += 1;
        Ok(())
    }
}

impl Request {
    fn rename(&mut self, from: &DestinationId, to: &DestinationId) {
        let ours = self.rows.iter_mut().map(|row| &mut row.destination);
        ours.filter(|id| *id == from).for_each(|id| *id = to.clone());
        match &mut self.submission.verb {
            Verb::Redrive(rows) | Verb::Discard(rows) | Verb::Requeue(rows) => {
                let ours = rows.iter_mut().filter(|row| row.destination == *from);
                ours.for_each(|row: &mut RowKey| row.destination = to.clone());
            }
            Verb::Enable { destination, .. } | Verb::Rewind { destination, .. }
                if destination == from =>
            {
                *destination = to.clone();
            }
            _ => {}
        }
    }
}

/// Moves what is kept once by destination.
fn move_one<T>(kept: &mut BTreeMap<DestinationId, T>, from: &DestinationId, to: &DestinationId) {
    if let Some(value) = kept.remove(from) {
        kept.insert(to.clone(), value);
    }
}

/// Moves what is kept by destination and something else.
fn move_all<K: Clone + Ord, T>(
    kept: &mut BTreeMap<(DestinationId, K), T>,
    from: &DestinationId,
    to: &DestinationId,
) {
    let moved: Vec<(K, T)> =
        kept.extract_if(.., |(id, _), _| id == from).map(|((_, of), value)| (of, value)).collect();
    kept.extend(moved.into_iter().map(|(of, value)| ((to.clone(), of), value)));
}
