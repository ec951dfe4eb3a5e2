//! A waiting event's row, and the item that it is kept in.
//!
//! A row refers to the event's item, which stays where it is until the event is published. Invariant: a row
//! that was read is the row that was written.

use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use postrider_core::waiting::{Attempted, DETAIL_BYTES_MAX, Reason, RowRef, WaitingState};
use postrider_core::{DestinationId, KeyHash, PartitionId};

use crate::control::{PK, SK};
use crate::item::{Item, n, number, s, text, truth};
use crate::record::Place;

/// Of a business item's event: which version of the item waits.
const ITEM_VERSION: &str = "item_version";

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    pub(crate) row: RowRef,
    pub(crate) place: Place,
    pub(crate) key_hash: KeyHash,
    pub(crate) state: WaitingState,
    /// In milliseconds, by the clock of the owner that wrote it. It delays, and decides nothing else.
    pub(crate) due: i64,
    pub(crate) attempts: u32,
    pub(crate) reason: Reason,
    pub(crate) detail: String,
    /// Of a dead letter: whether its successors wait behind it.
    pub(crate) holds_key: bool,
    /// Of a disabled event: what it waits for.
    pub(crate) endpoint: Option<String>,
    /// Whether the cursor has not passed it: its item is pending as well.
    pub(crate) ahead: bool,
    /// Whether it is delivered out of its key's order: it holds no key, and waits for nobody.
    pub(crate) late: bool,
    /// When it came into this state, in milliseconds, for people.
    pub(crate) moved_at: i64,
    /// When the event was created, in milliseconds, where that can be read.
    pub(crate) created_at: Option<i64>,
}

/// Which destination of its name a row is of: the version of the definitions that came with it.
pub(crate) const SINCE: &str = "since";

/// Which destination of its name the item of a row is of.
pub(crate) fn since(item: &Item) -> u64 {
    number(item, SINCE).unwrap_or_default()
}

/// Where rows are written: those of a partition that wait for a destination.
#[derive(Clone, Debug)]
pub(crate) struct RowsOf {
    pub(crate) pk: String,
    /// Which destination of the name it is.
    pub(crate) since: u64,
}

impl RowsOf {
    pub(crate) fn new(destination: &DestinationId, partition: PartitionId, since: u64) -> RowsOf {
        RowsOf { pk: rows_pk(destination, partition), since }
    }
}

/// The partition key of the rows.
pub(crate) fn rows_pk(destination: &DestinationId, partition: PartitionId) -> String {
    format!("W#{destination}#{:05}", partition.0)
}

impl Stored {
    /// Whether events of its key wait because of it.
    pub(crate) fn holds(&self) -> bool {
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
    pub(crate) fn is_timed(&self) -> bool {
        matches!(self.state, WaitingState::Retrying | WaitingState::Held)
    }

    /// Its place in its key's line.
    pub(crate) fn order(&self) -> (u64, u64) {
        (self.place.n().unwrap_or_default(), self.row.seq)
    }

    /// Notes an attempt, with what was answered cut to its limit.
    pub(crate) fn record(&mut self, attempted: &Attempted) {
        self.attempts = attempted.attempts;
        self.reason = attempted.reason;
        let end = attempted.detail.floor_char_boundary(DETAIL_BYTES_MAX);
        attempted.detail[..end].clone_into(&mut self.detail);
    }

    pub(crate) fn sk(&self) -> String {
        format!("{:020}", self.row.seq)
    }

    /// The row as an item.
    pub(crate) fn item(&self, of: &RowsOf) -> Item {
        let mut item = Item::from([
            (PK.to_owned(), s(&of.pk)),
            (SINCE.to_owned(), n(of.since)),
            (SK.to_owned(), s(self.sk())),
            ("event_pk".to_owned(), s(&*self.place.pk)),
            ("event_sk".to_owned(), s(&*self.place.sk)),
            ("event".to_owned(), s(self.row.id.to_string())),
            ("key_hash".to_owned(), n(self.key_hash.0)),
            ("state".to_owned(), s(self.state.as_str())),
            ("due".to_owned(), n(self.due)),
            ("attempts".to_owned(), n(self.attempts)),
            ("reason".to_owned(), s(self.reason.as_str())),
            ("detail".to_owned(), s(&self.detail)),
            ("holds_key".to_owned(), AttributeValue::Bool(self.holds_key)),
            ("ahead".to_owned(), AttributeValue::Bool(self.ahead)),
            ("late".to_owned(), AttributeValue::Bool(self.late)),
            ("moved_at".to_owned(), n(self.moved_at)),
        ]);
        if let Some(created_at) = self.created_at {
            item.insert("created_at".to_owned(), n(created_at));
        }
        if let Some(version) = &self.place.version {
            item.insert(ITEM_VERSION.to_owned(), s(&**version));
        }
        if let Some(endpoint) = &self.endpoint {
            item.insert("endpoint".to_owned(), s(endpoint));
        }
        item
    }

    /// What the item of a row says; nothing if it is none.
    pub(crate) fn of(item: &Item) -> Option<Stored> {
        let mut place = Place::new(text(item, "event_pk")?, text(item, "event_sk")?);
        place.version = text(item, ITEM_VERSION).map(Arc::from);
        Some(Stored {
            row: RowRef {
                seq: text(item, SK)?.parse().ok()?,
                id: text(item, "event")?.parse().ok()?,
            },
            place,
            key_hash: KeyHash(number(item, "key_hash")?),
            state: text(item, "state")?.parse().ok()?,
            due: number(item, "due")?,
            attempts: number(item, "attempts")?,
            reason: text(item, "reason")?.parse().ok()?,
            detail: text(item, "detail")?.to_owned(),
            holds_key: truth(item, "holds_key"),
            endpoint: text(item, "endpoint").map(str::to_owned),
            ahead: truth(item, "ahead"),
            late: truth(item, "late"),
            moved_at: number(item, "moved_at").unwrap_or_default(),
            created_at: number(item, "created_at"),
        })
    }
}
