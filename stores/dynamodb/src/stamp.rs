//! The stamp: what a write of a business item carries so that the item is an event itself, without an item in
//! the outbox.
//!
//! Invariant: a stamp stands for one write. Its id names that version of the item, and what the relay does to the
//! item afterwards it does under the condition that the id is still this one. So whatever is written meanwhile
//! stays pending, and is published as it is then.

use postrider_core::{Error, ErrorKind, EventId, PartitionId, Result, Timestamp};

use crate::item::{Item, n, s};
use crate::record::{AT, EVENT_ID, Place, SHARD, VERSION, pending_in};

/// The attributes that a write of a business item carries, so that the relay makes an event of what was written.
///
/// They are four, and all are the store's: the key of the sparse index (`pr_shard`), which goes when the event is
/// published, and as well when it begins to wait for another try, so that its absence does not say that anything was
/// published; when it was written (`pr_at`), which goes when the event is published, or dropped by a route, and not
/// before, so that a deletion under the condition [`SETTLED`](Self::SETTLED) takes no event away; the id of the item's newest event (`pr_event`); and the item's version
/// (`pr_n`).
///
/// **Every write of an item that was ever stamped carries a new stamp**: never an old one, and never none. A `Put`
/// without one takes the stamp of the version before away, and with it an event that is not published yet. A `Put` of
/// an item as it was read carries the old one back: the same event id then stands for other content, which consumers
/// take for a repetition and leave out. An `Update` without one changes what a version says that may have been sent.
#[derive(Clone, Debug)]
#[must_use = "a change that is written without its stamp is no event"]
pub struct Stamp {
    id: EventId,
    attributes: Item,
}

impl Stamp {
    /// What an update expression sets: to be put behind `SET`, with [`values`](Self::values).
    pub const SET: &'static str =
        "pr_shard = :pr_shard, pr_at = :pr_at, pr_event = :pr_event, pr_n = :pr_n";

    /// A condition of a write: that the item has no event that is not settled, because its newest one was published,
    /// or dropped by a route, or because it never had one. An event that waits, or is a dead letter, is not settled; and of one that an
    /// operator discarded, or whose destination was removed, the item says nothing, so this does not hold before the
    /// item is written anew.
    pub const SETTLED: &'static str = "attribute_not_exists(pr_at)";

    pub(crate) fn new(place: &Place, partition: PartitionId, version: u64) -> Result<Stamp> {
        let refuse = |message: &str| {
            Err(Error::new(ErrorKind::Invalid, "stamp")
                .message(message.to_owned())
                .context("sk", place.sk.escape_debug()))
        };
        if !place.may_derive() {
            return refuse("the sort key is one of the outbox's own items; nothing was stamped");
        }
        if version == 0 {
            return refuse("an item's versions begin with 1; nothing was stamped");
        }
        let id = EventId::mint();
        let now_ms = Timestamp::now().as_micros().max(0) / 1_000;
        let attributes = Item::from([
            (SHARD.to_owned(), s(pending_in(partition))),
            (AT.to_owned(), n(now_ms)),
            (EVENT_ID.to_owned(), s(id.to_string())),
            (VERSION.to_owned(), n(version)),
        ]);
        Ok(Stamp { id, attributes })
    }

    /// The id of the event that the write becomes.
    pub fn id(&self) -> EventId {
        self.id
    }

    /// The attributes, for a `Put`.
    pub fn attributes(&self) -> Item {
        self.attributes.clone()
    }

    /// The values that [`SET`](Self::SET) names, for an `Update`.
    pub fn values(&self) -> Item {
        let values = self.attributes.iter();
        values.map(|(name, value)| (format!(":{name}"), value.clone())).collect()
    }
}
