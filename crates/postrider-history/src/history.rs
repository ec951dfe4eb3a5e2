//! A history: the record of a run, in the order in which it was observed.

use std::collections::BTreeSet;

use postrider_core::{Error, ErrorKind, EventId, Result};

use crate::index::Index;
use crate::{
    Ack, Commit, Delay, Delivery, Effect, Gauge, Ledger, Progress, Published, Record, Standing,
    Waiting,
};

/// What happened. The methods give each fact the next place in its order; [`History::push`] takes
/// facts that have their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    records: Vec<Record>,
    commits: u64,
    deliveries: u64,
    claims: u64,
}

impl History {
    /// A history in which nothing happened.
    pub fn new() -> History {
        History::default()
    }

    /// The facts, as they were recorded.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Adds a fact with its own place in its order.
    pub fn push(&mut self, record: Record) {
        match &record {
            Record::Commit(commit) => self.commits = self.commits.max(commit.order),
            Record::Delivery(delivery) => self.deliveries = self.deliveries.max(delivery.order),
            Record::Ack(Ack { order, .. }) | Record::Published(Published { order, .. }) => {
                self.claims = self.claims.max(*order);
            }
            _ => {}
        }
        self.records.push(record);
    }

    /// An event of a key was committed, after all before; it may arrive anywhere.
    pub fn commit(&mut self, id: EventId, key: &str) {
        self.commit_as(id, key, |_| {});
    }

    /// An event of a key was committed, after all before; it must arrive at these destinations.
    pub fn commit_for(&mut self, id: EventId, key: &str, destinations: &[&str]) {
        let expected: BTreeSet<String> = destinations.iter().map(ToString::to_string).collect();
        self.commit_as(id, key, |commit| commit.destinations = Some(expected));
    }

    /// An event was committed, after all before, with more to say about it.
    pub fn commit_as(&mut self, id: EventId, key: &str, say: impl FnOnce(&mut Commit)) {
        let mut commit = Commit {
            id,
            source: String::new(),
            key: key.to_owned(),
            order: self.commits + 1,
            destinations: None,
            unserialised: false,
        };
        say(&mut commit);
        self.push(Record::Commit(commit));
    }

    /// The transaction of an event was rolled back.
    pub fn roll_back(&mut self, id: EventId) {
        self.push(Record::Rollback { id });
    }

    /// An event arrived, after all before.
    pub fn deliver(&mut self, destination: &str, id: EventId) {
        self.deliver_as(destination, id, false);
    }

    /// An event arrived, after all before, marked as late or not.
    pub fn deliver_as(&mut self, destination: &str, id: EventId, late: bool) {
        let delivery = Delivery {
            destination: destination.to_owned(),
            id,
            order: self.deliveries + 1,
            late,
            at_ms: None,
        };
        self.push(Record::Delivery(delivery));
    }

    /// At the end an event is visible in the store, in `waiting` or before the cursor.
    pub fn wait(&mut self, destination: &str, id: EventId, state: Standing, holds_key: bool) {
        self.push(Record::Waiting(Waiting {
            destination: destination.to_owned(),
            id,
            state,
            holds_key,
        }));
    }

    /// A handler's effect is there once more.
    pub fn effect(&mut self, source: &str, id: EventId, handler: &str) {
        self.push(Record::Effect(Effect {
            source: source.to_owned(),
            id,
            handler: handler.to_owned(),
            count: 1,
        }));
    }

    /// The broker acknowledged an event, after all acknowledgements and claims before.
    pub fn ack(&mut self, destination: &str, id: EventId) {
        self.push(Record::Ack(Ack {
            destination: destination.to_owned(),
            id,
            order: self.claims + 1,
        }));
    }

    /// The store recorded an event as published, after all acknowledgements and claims before.
    pub fn published(&mut self, destination: &str, id: EventId) {
        self.push(Record::Published(Published {
            destination: destination.to_owned(),
            id,
            order: self.claims + 1,
        }));
    }

    /// Something that has a limit was measured.
    pub fn gauge(&mut self, name: &str, value: u64, limit: u64) {
        self.push(Record::Gauge(Gauge { name: name.to_owned(), value, limit }));
    }

    /// A destination was looked at for progress.
    pub fn progress(&mut self, progress: Progress) {
        self.push(Record::Progress(progress));
    }

    /// An event took so long.
    pub fn delay(&mut self, delay: Delay) {
        self.push(Record::Delay(delay));
    }

    /// The sums of the history.
    pub fn ledger(&self) -> Ledger {
        Ledger::of(&Index::of(self))
    }

    /// The history as JSON, one record a line.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if a record cannot be written.
    pub fn to_json_lines(&self) -> Result<String> {
        let mut text = String::new();
        for record in &self.records {
            let line = serde_json::to_string(record)
                .map_err(|e| Error::new(ErrorKind::Internal, "write history").source(e))?;
            text.push_str(&line);
            text.push('\n');
        }
        Ok(text)
    }

    /// Reads what [`History::to_json_lines`] wrote; empty lines are passed over.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] with the line that is no record.
    pub fn from_json_lines(text: &str) -> Result<History> {
        let mut history = History::new();
        for (number, line) in (1..).zip(text.lines()) {
            if line.trim().is_empty() {
                continue;
            }
            let record = serde_json::from_str(line).map_err(|e| {
                Error::new(ErrorKind::Invalid, "read history")
                    .message(format!("line {number} is no record: {e}"))
            })?;
            history.push(record);
        }
        Ok(history)
    }
}

impl Extend<Record> for History {
    fn extend<T: IntoIterator<Item = Record>>(&mut self, records: T) {
        records.into_iter().for_each(|record| self.push(record));
    }
}
