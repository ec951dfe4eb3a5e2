//! A version of a business item: what a mapping makes an event of.
//!
//! Invariant: what is the store's own is not shown, so that no event says it; and the identity and the time of an
//! event are those of the write, so that a version that is sent twice is the same event twice.

use std::fmt;

use postrider_core::source::Malformed;
use postrider_core::waiting::Reason;
use postrider_core::{EventId, NewEvent, Payload, Result, Timestamp};

use crate::document;
use crate::item::{Item, number, text};
use crate::record::{AT, EVENT_ID, Place, SHARD, VERSION};

/// The header of a derived event that says which version of its item it is.
pub const ITEM_VERSION_HEADER: &str = "itemversion";

/// A business item as it was read, in the version that its stamp names.
pub struct Version<'a> {
    place: &'a Place,
    id: EventId,
    number: u64,
    written_at: Timestamp,
    item: Item,
}

/// Without what the item says: that is nobody's who prints it.
impl fmt::Debug for Version<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Version");
        shown.field("pk", &self.place.pk).field("sk", &self.place.sk);
        shown.field("id", &self.id).field("number", &self.number).finish_non_exhaustive()
    }
}

impl<'a> Version<'a> {
    /// Reads the stamp of an item.
    pub(crate) fn of(item: &Item, place: &'a Place) -> Result<Version<'a>, Malformed> {
        let malformed = |name: &str| Malformed {
            reason: Reason::Malformed,
            detail: format!(
                "the attribute {name} of the business item is absent or cannot be read"
            ),
            event: None,
        };
        let id = text(item, EVENT_ID).and_then(|id| id.parse().ok());
        let written_ms: Option<i64> = number(item, AT);
        let version = Version {
            place,
            id: id.ok_or_else(|| malformed(EVENT_ID))?,
            number: number(item, VERSION).ok_or_else(|| malformed(VERSION))?,
            written_at: Timestamp::from_micros(
                written_ms.ok_or_else(|| malformed(AT))?.saturating_mul(1_000),
            ),
            item: item
                .iter()
                .filter(|(name, _)| ![SHARD, AT, EVENT_ID, VERSION].contains(&&***name))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        };
        Ok(version)
    }

    /// The item's partition key.
    pub fn pk(&self) -> &str {
        &self.place.pk
    }

    /// The item's sort key.
    pub fn sk(&self) -> &str {
        &self.place.sk
    }

    /// The id of the event.
    pub fn id(&self) -> EventId {
        self.id
    }

    /// The item's version, as its writer said.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// When it was written, by its writer's clock, in milliseconds.
    pub fn written_at(&self) -> Timestamp {
        self.written_at
    }

    /// The item's attributes without those of the stamp.
    pub fn item(&self) -> &Item {
        &self.item
    }

    /// A text attribute of it.
    pub fn text(&self, name: &str) -> Option<&str> {
        text(&self.item, name)
    }

    /// The whole item as plain JSON: names sorted, numbers as exact as they were, bytes as base64.
    ///
    /// # Errors
    /// `Invalid` for an attribute that JSON has no form for.
    pub fn document(&self) -> Result<Payload> {
        Payload::json(document::object(&self.item)?)
    }

    /// An event of this version: its id, the time of the write as when it happened, and the item's version in the
    /// header `itemversion`. What is not set here is the same at every call.
    pub fn event(&self, aggregate_type: &str, aggregate_id: &str, event_type: &str) -> NewEvent {
        NewEvent::new(aggregate_type, aggregate_id, event_type)
            .id(self.id)
            .occurred_at(self.written_at)
            .header(ITEM_VERSION_HEADER, self.number.to_string())
    }
}
