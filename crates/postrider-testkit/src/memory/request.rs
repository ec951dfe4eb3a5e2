//! Requests: what an operator asks for is written down with its rows, and counted as it is done.

use std::collections::BTreeSet;

use postrider_core::operate::{RequestId, RequestState, RowKey, Submission, Verb};
use postrider_core::{Cursor, DestinationId, Error, ErrorKind, Result, Start};

use super::MemoryStore;
use super::destinations::not_found;
use super::server::Needs;
use super::state::State;

/// A request, with its rows.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) submission: Submission,
    pub(super) rows: Vec<RequestRow>,
    relay: Option<String>,
}

/// One row of a request: an event, or for `enable` and `rewind` a partition.
#[derive(Clone, Debug)]
pub(super) struct RequestRow {
    pub(super) partition: u16,
    pub(super) destination: DestinationId,
    pub(super) seq: u64,
    /// Of a rewind: where the destination goes back to.
    pub(super) target: Cursor,
    pub(super) outcome: Option<Carried>,
}

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carried {
    Done,
    Skipped,
}

impl RequestRow {
    /// Where what waits of it stands.
    pub(super) fn place(&self) -> (DestinationId, u16) {
        (self.destination.clone(), self.partition)
    }
}

impl Request {
    fn state(&self, id: RequestId) -> RequestState {
        let count = |outcome| self.rows.iter().filter(|row| row.outcome == outcome).count() as u64;
        RequestState {
            id,
            verb: self.submission.verb.as_str().to_owned(),
            who: self.submission.note.who.clone(),
            why: self.submission.note.why.clone(),
            total: self.rows.len() as u64,
            done: count(Some(Carried::Done)),
            skipped: count(Some(Carried::Skipped)),
            finished: count(None) == 0,
            relay: self.relay.clone(),
        }
    }

    /// Records what became of a row, and who did it. Says whether it was the last.
    pub(super) fn record(&mut self, row: usize, carried: Carried, relay: &str) -> bool {
        if let Some(row) = self.rows.get_mut(row) {
            row.outcome = Some(carried);
        }
        self.relay = Some(relay.to_owned());
        self.rows.iter().all(|row| row.outcome.is_some())
    }
}

impl MemoryStore {
    /// Asks the owners of the partitions for a change of deliveries, as an operator does.
    ///
    /// # Errors
    /// `Invalid` if there are no rows, or a rewind to now; `NotFound` if a destination does not
    /// exist or a rewind would go before the history that is kept.
    pub fn submit(&self, submission: &Submission) -> Result<RequestId> {
        self.state().submit(submission)
    }

    /// [`MemoryStore::submit`] through the handle's line.
    ///
    /// # Errors
    /// The same, and what the line says.
    pub async fn submit_on(&self, submission: &Submission) -> Result<RequestId> {
        self.statement("submit", Needs::Room, |state| state.submit(submission)).await
    }

    /// How far a request is carried out.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn request(&self, id: RequestId) -> Result<RequestState> {
        let state = self.state();
        let index = usize::try_from(id.0).ok().and_then(|id| id.checked_sub(1));
        let request = index.and_then(|index| state.requests.get(index));
        request
            .map(|request| request.state(id))
            .ok_or_else(|| Error::new(ErrorKind::NotFound, "find request").context("request", id.0))
    }

    /// Erases the payloads and headers of a key's events wherever they stand.
    pub fn erase(&self, key: &str) {
        self.state().erase(key);
    }
}

impl State {
    fn submit(&mut self, submission: &Submission) -> Result<RequestId> {
        let rows = match &submission.verb {
            Verb::Redrive(rows) | Verb::Discard(rows) | Verb::Requeue(rows) => {
                self.event_rows(rows)?
            }
            Verb::Enable { destination, .. } => {
                self.partition_rows(destination, |_| Ok(Cursor::number(0)))?
            }
            Verb::Rewind { destination, to } => {
                if *to == Start::Now {
                    return Err(Error::new(ErrorKind::Invalid, "rewind")
                        .message("a rewind goes back, and `now` does not"));
                }
                self.partition_rows(destination, |partition| self.rewind_target(partition, *to))?
            }
            _ => return Err(Error::new(ErrorKind::Invalid, "submit").message("an unknown verb")),
        };
        if rows.is_empty() || rows.len() > Submission::ROWS_MAX {
            return Err(Error::new(ErrorKind::Invalid, "submit")
                .message(format!("{} rows; nothing was written", rows.len())));
        }
        self.unfinished.insert(self.requests.len());
        self.requests.push(Request { submission: submission.clone(), rows, relay: None });
        Ok(RequestId(self.requests.len() as u64))
    }

    fn event_rows(&self, rows: &[RowKey]) -> Result<Vec<RequestRow>> {
        // A row that is asked for twice is done once.
        let rows: BTreeSet<&RowKey> = rows.iter().collect();
        rows.into_iter()
            .map(|row| {
                self.check_exists(&row.destination)?;
                let waits = |p: &u16| {
                    let rows = self.waiting.get(&(row.destination.clone(), *p));
                    rows.is_some_and(|rows| rows.contains_key(&row.seq))
                };
                let stands = |p: &u16| self.row_of(*p, row.seq).is_some();
                let home = self.partitions().find(waits).or_else(|| self.partitions().find(stands));
                Ok(RequestRow {
                    partition: home.unwrap_or_default(),
                    destination: row.destination.clone(),
                    seq: row.seq,
                    target: Cursor::number(0),
                    outcome: None,
                })
            })
            .collect()
    }

    fn partition_rows(
        &self,
        destination: &DestinationId,
        target: impl Fn(u16) -> Result<Cursor>,
    ) -> Result<Vec<RequestRow>> {
        self.check_exists(destination)?;
        self.partitions()
            .map(|partition| {
                Ok(RequestRow {
                    partition,
                    destination: destination.clone(),
                    seq: 0,
                    target: target(partition)?,
                    outcome: None,
                })
            })
            .collect()
    }

    fn rewind_target(&self, partition: u16, to: Start) -> Result<Cursor> {
        if let (Start::At(time), Some(retired)) = (to, self.retired_at)
            && time <= retired
        {
            return Err(Error::new(ErrorKind::NotFound, "rewind")
                .message("retention has deleted events of that time; nothing was written"));
        }
        Ok(self.start(partition, to))
    }

    fn check_exists(&self, destination: &DestinationId) -> Result<()> {
        match self.destinations.contains_key(destination) {
            true => Ok(()),
            false => Err(not_found(destination)),
        }
    }
}
