//! A row of the inbox as an item: its key, its attributes, and what they say.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use postrider_core::inbox::LeftOut;
use postrider_core::{ClaimLease, Error, ErrorKind, InboxKey, Result};

use crate::control;
use crate::inbox::parts::Pointer;
use crate::item::{Item, b, number, text, truth};

/// Who said it.
pub(crate) const SOURCE: &str = "source";
/// What was said.
pub(crate) const EVENT_ID: &str = "event_id";
/// Who acts on it.
pub(crate) const HANDLER: &str = "handler";
/// The event's type.
pub(crate) const TYPE: &str = "event_type";
/// `claimed` or `processed`.
pub(crate) const STATUS: &str = "status";
/// SHA-256 of the payload.
pub(crate) const HASH: &str = "payload_hash";
/// Grows at each claim.
pub(crate) const TOKEN: &str = "token";
/// Claims so far that count as tries.
pub(crate) const ATTEMPTS: &str = "attempts";
/// Those of them up to the last that came to an end.
pub(crate) const FAILED: &str = "failed";
/// When it was first seen; milliseconds since 1970 by a worker's clock, as all times but the next.
pub(crate) const RECEIVED_AT: &str = "received_at";
/// When it was claimed last.
pub(crate) const CLAIMED_AT: &str = "claimed_at";
/// When it was done.
pub(crate) const PROCESSED_AT: &str = "processed_at";
/// When the item goes, by the table's time to live: seconds since 1970. Only of what is processed.
pub(crate) const EXPIRES_AT: &str = control::TTL;
/// Another one at each claim and heartbeat.
pub(crate) const BEAT: &str = "beat";
/// How long the lease lasts from its beat, in milliseconds.
pub(crate) const DURATION: &str = "lease_ms";
/// When the lease ends by the wall clock of who holds it.
pub(crate) const UNTIL: &str = "lease_until";
/// The claim was let go.
pub(crate) const RELEASED: &str = "released";
/// What was stored when it was done.
pub(crate) const RESULT: &str = "result";
/// How many bytes a result had that found no room and was left out: the row is done all the same.
pub(crate) const TOO_LARGE: &str = "result_too_large";
/// Where the parts of a result are that has no room in the item.
pub(crate) const PARTS: &str = "result_parts";
/// The results of steps, by name; of one that found no room the number of its bytes. They stay when the row is processed: should it be forgotten, what was done
/// is not done again.
pub(crate) const STEPS: &str = "steps";

/// A status.
pub(crate) const CLAIMED: &str = "claimed";
/// A status.
pub(crate) const PROCESSED: &str = "processed";

/// The sort key of every row. Parts of its result may stand beside it.
pub(crate) const ROW: &str = "inbox";

/// The hash of a row that a person marked as done without having the payload: it is any payload's.
/// SHA-256 gives it for none.
pub(crate) const ANY_PAYLOAD: [u8; 32] = [0; 32];

/// The partition key of a row and of what stands beside it. The source comes last, because it may contain anything.
pub(crate) fn partition(key: &InboxKey) -> String {
    format!("{}#{}#{}", key.event_id, key.handler, key.source)
}

/// The key of a row.
pub(crate) fn key(key: &InboxKey) -> Item {
    control::key(&partition(key), ROW)
}

/// The results of a row's steps, by their names.
pub(crate) fn steps_of(item: &Item) -> Option<&Item> {
    item.get(STEPS).and_then(|steps| steps.as_m().ok())
}

/// Steps that were made, without what they said: an empty result is a stored one.
pub(crate) fn without_results(steps: &Item) -> AttributeValue {
    let said = |value: &AttributeValue| if value.is_b() { b("") } else { value.clone() };
    AttributeValue::M(steps.iter().map(|(name, value)| (name.clone(), said(value))).collect())
}

/// Of the tries before the last, how many ended without a word.
pub(crate) fn lost(item: &Item) -> u32 {
    let count = |name| number::<u32>(item, name).unwrap_or_default();
    count(ATTEMPTS).saturating_sub(1).saturating_sub(count(FAILED))
}

/// What a processed row has of its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// All of it.
    Whole(Bytes),
    /// Where its parts are.
    InParts(Pointer),
    /// How large it was.
    LeftOut(LeftOut),
}

/// What a row says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) processed: bool,
    hash: Vec<u8>,
    pub(crate) token: u64,
    pub(crate) tries: u32,
    pub(crate) lost: u32,
    pub(crate) released: bool,
    pub(crate) beat: String,
    pub(crate) duration: Duration,
    pub(crate) result: Stored,
}

impl Row {
    /// Reads an item.
    ///
    /// # Errors
    /// `Corrupt` if it is no row of the inbox.
    pub(crate) fn of(item: &Item, operation: &'static str) -> Result<Row> {
        let corrupt = |what: &str| {
            Error::new(ErrorKind::Corrupt, operation)
                .message(format!("an item of the inbox table has no {what}; it was left alone"))
        };
        let bytes = |name: &str| {
            let blob = item.get(name).and_then(|value| value.as_b().ok());
            blob.map(|blob| blob.as_ref().to_vec())
        };
        let processed = match text(item, STATUS).ok_or_else(|| corrupt(STATUS))? {
            PROCESSED => true,
            CLAIMED => false,
            _ => return Err(corrupt("status that is known")),
        };
        let lease = || -> Result<(String, u64)> {
            if processed {
                return Ok(Default::default());
            }
            let beat = text(item, BEAT).ok_or_else(|| corrupt(BEAT))?.to_owned();
            Ok((beat, number(item, DURATION).ok_or_else(|| corrupt(DURATION))?))
        };
        let (beat, duration) = lease()?;
        Ok(Row {
            processed,
            hash: bytes(HASH).ok_or_else(|| corrupt(HASH))?,
            // A row that a person made has none.
            token: number(item, TOKEN).unwrap_or_default(),
            tries: number(item, ATTEMPTS).unwrap_or(1),
            lost: lost(item),
            released: truth(item, RELEASED),
            beat,
            duration: Duration::from_millis(duration),
            result: match (Pointer::of(item), number(item, TOO_LARGE)) {
                (Some(pointer), _) => Stored::InParts(pointer),
                (None, Some(bytes)) => Stored::LeftOut(LeftOut::of(bytes)),
                (None, None) => Stored::Whole(Bytes::from(bytes(RESULT).unwrap_or_default())),
            },
        })
    }

    /// Whether it is of a payload.
    pub(crate) fn is_of(&self, hash: &[u8; 32]) -> bool {
        self.hash == hash || self.hash == ANY_PAYLOAD
    }

    /// Whether a claim still stands.
    pub(crate) fn is_held_by(&self, lease: &ClaimLease) -> bool {
        !self.processed && !self.released && self.token == lease.token
    }

    /// Whether this very claim was completed: then saying it again changes nothing.
    pub(crate) fn was_completed(&self, lease: &ClaimLease) -> bool {
        self.processed && self.token == lease.token
    }

    /// Whether this very claim was let go.
    pub(crate) fn was_released(&self, lease: &ClaimLease) -> bool {
        !self.processed && self.released && self.token == lease.token
    }
}
