//! Results that have no room in the row's item: parts beside it, and the pointer in the row.
//!
//! Invariants: parts count by nothing but the pointer that the row's conditional settlement writes, so those of a worker
//! that lost its lease are never read; and a pointer names its parts by the sum of the whole, so those of two results
//! are never taken for each other, and what is put together is the result or nothing.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::{Bytes, BytesMut};
use postrider_core::inbox::{LeftOut, RESULT_BYTES_MAX};
use postrider_core::{InboxKey, Payload, Result};

use crate::connection::{Connection, call};
use crate::control::{self, PK, SK};
use crate::inbox::Inbox;
use crate::inbox::condition::{Kept, expires};
use crate::inbox::row::{self, EVENT_ID, EXPIRES_AT, PARTS, SOURCE, Stored};
use crate::item::{Item, b, n, number, s, text};

/// The bytes of a result that one part holds.
pub(crate) const PART: &str = "part";

/// How many bytes one part has at most: 384 KiB leave 16 KiB of an item for its key and names, of which the key may
/// take 3 KiB.
const PART_BYTES: usize = 384 * 1024;

/// The most parts of one result, whatever a pointer says.
const PARTS_MAX: usize = RESULT_BYTES_MAX.div_ceil(PART_BYTES);

/// A result up to this size is not put into parts, because the pointer to them takes as much of the row.
pub(crate) const POINTER_BYTES: usize = 256;

/// By how much parts outlast their row: the service deletes what has expired within some days and in no order, and a row
/// without its parts would be found.
const LINGER: Duration = Duration::from_secs(7 * 24 * 3_600);

const AT: &str = "at";
const COUNT: &str = "count";
const BYTES: &str = "bytes";
const SUM: &str = "sha256";

/// Where the parts of a result are, and how it is known that they are all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pointer {
    /// How their sort keys begin.
    at: String,
    count: usize,
    /// The size of the whole.
    pub(crate) bytes: u64,
    /// SHA-256 of the whole.
    sum: Vec<u8>,
}

impl Pointer {
    /// To the parts of a result that is recorded under a token.
    fn to(result: &[u8], token: u64) -> Pointer {
        let sum = Payload::bytes(result.to_vec()).hash();
        let short = u64::from_be_bytes(std::array::from_fn(|n| sum[n]));
        Pointer {
            at: format!("result#{token}#{short:016x}"),
            count: result.chunks(PART_BYTES).len(),
            bytes: result.len() as u64,
            sum: sum.to_vec(),
        }
    }

    /// The pointer of a row that has one. Of what is not readable in it, nothing is found behind it.
    pub(crate) fn of(item: &Item) -> Option<Pointer> {
        let stored = item.get(PARTS)?;
        let nothing = Item::new();
        let fields = stored.as_m().unwrap_or(&nothing);
        let sum = fields.get(SUM).and_then(|sum| sum.as_b().ok());
        Some(Pointer {
            at: text(fields, AT).unwrap_or_default().to_owned(),
            count: number::<usize>(fields, COUNT).unwrap_or_default().min(PARTS_MAX),
            bytes: number(fields, BYTES).unwrap_or_default(),
            sum: sum.map(|sum| sum.as_ref().to_vec()).unwrap_or_default(),
        })
    }

    pub(crate) fn value(&self) -> AttributeValue {
        let fields = [
            (AT, s(&*self.at)),
            (COUNT, n(self.count)),
            (BYTES, n(self.bytes)),
            (SUM, b(&*self.sum)),
        ];
        AttributeValue::M(fields.map(|(name, value)| (name.to_owned(), value)).into())
    }

    /// The keys of the parts, in their order. `pk` is the row's.
    pub(crate) fn keys<'a>(&'a self, pk: &'a str) -> impl Iterator<Item = Item> + 'a {
        (0..self.count).map(move |part| control::key(pk, &format!("{}#{part}", self.at)))
    }

    /// The whole, if this is it.
    fn whole(&self, bytes: Bytes) -> Option<Bytes> {
        let sum = Payload::bytes(bytes.clone()).hash();
        (sum[..] == self.sum[..]).then_some(bytes)
    }
}

/// The keys of the parts that a row points to.
pub(crate) fn keys_of(row: &Item) -> Vec<Item> {
    let pk = text(row, PK).unwrap_or_default();
    Pointer::of(row).iter().flat_map(|pointer| pointer.keys(pk).collect::<Vec<_>>()).collect()
}

/// The key of an item that was read.
pub(crate) fn key_of(item: &Item) -> Item {
    let names = [PK, SK].into_iter().filter_map(|name| item.get_key_value(name));
    names.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Deletes parts that no row points to any more. What a crash leaves of them is read by nobody, and expires.
pub(crate) async fn drop_parts(
    connection: &Connection,
    operation: &'static str,
    keys: Vec<Item>,
) -> Result<()> {
    let table = &connection.names().inbox;
    for key in keys {
        let delete = connection.tables().await.delete_item().table_name(table).set_key(Some(key));
        call(operation, table, delete.send()).await?;
    }
    Ok(())
}

impl Inbox {
    /// Writes the parts of a result, which nobody reads before the row points to them. Said again, as after a lost
    /// answer, it writes the same.
    pub(super) async fn put_parts(&self, kept: &Kept<'_>, result: &[u8]) -> Result<Pointer> {
        let key = &kept.lease.key;
        let pointer = Pointer::to(result, kept.lease.token);
        let pk = row::partition(key);
        let retention = self.options.retention.saturating_add(LINGER);
        for (at, part) in pointer.keys(&pk).zip(result.chunks(PART_BYTES)) {
            // An update, because a handler's permissions have no more; and whose it is, for an erasure to find it.
            let client = self.connection.tables().await;
            let update = client.update_item().table_name(self.table()).set_key(Some(at));
            let update = update
                .update_expression(
                    "SET #part = :part, #expires = :expires, #event = :event, #source = :source",
                )
                .expression_attribute_names("#part", PART)
                .expression_attribute_names("#expires", EXPIRES_AT)
                .expression_attribute_names("#event", EVENT_ID)
                .expression_attribute_names("#source", SOURCE)
                .expression_attribute_values(":part", b(part))
                .expression_attribute_values(":expires", n(expires(kept.now_ms, retention)))
                .expression_attribute_values(":event", s(key.event_id.to_string()))
                .expression_attribute_values(":source", s(&*key.source));
            let _turn = self.turn().await;
            call("complete", self.table(), update.send()).await?;
        }
        Ok(pointer)
    }

    /// The result of a processed row, wherever it stands. Where it is not kept, or not all of it is found any more, a
    /// mark that says so: the event is done in any case.
    pub(super) async fn fetch(&self, key: &InboxKey, stored: Stored) -> Result<Bytes> {
        let pointer = match stored {
            Stored::Whole(result) => return Ok(result),
            Stored::LeftOut(left_out) => return Ok(left_out.to_bytes()),
            Stored::InParts(pointer) => pointer,
        };
        if let Some(result) = self.join(key, &pointer).await? {
            return Ok(result);
        }
        tracing::error!(
            event = %key.event_id, handler = %key.handler, source = %key.source, bytes = pointer.bytes,
            parts = pointer.count,
            "a part of a stored result is missing or was changed: the event stays done, and its result is answered as \
             not kept"
        );
        Ok(LeftOut::of(pointer.bytes).to_bytes())
    }

    async fn join(&self, key: &InboxKey, pointer: &Pointer) -> Result<Option<Bytes>> {
        let pk = row::partition(key);
        let mut whole = BytesMut::new();
        for at in pointer.keys(&pk) {
            let client = self.connection.tables().await;
            let get = client.get_item().table_name(self.table()).set_key(Some(at));
            let _turn = self.turn().await;
            let item = call("claim", self.table(), get.consistent_read(true).send()).await?.item;
            let part = item.as_ref().and_then(|item| item.get(PART)?.as_b().ok());
            let Some(part) = part else { return Ok(None) };
            whole.extend_from_slice(part.as_ref());
        }
        Ok(pointer.whole(whole.freeze()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pointer: AttributeValue) -> Item {
        Item::from([(PK.to_owned(), s("1#billing#/shop")), (PARTS.to_owned(), pointer)])
    }

    #[test]
    fn a_pointer_is_read_as_it_was_written() {
        let result = vec![7; RESULT_BYTES_MAX];
        let pointer = Pointer::to(&result, 3);
        let row = row(pointer.value());
        assert_eq!(Pointer::of(&row), Some(pointer.clone()));
        assert_eq!(keys_of(&row).len(), 3);
        assert!(keys_of(&row).iter().all(|key| text(key, SK).unwrap().starts_with("result#3#")));
        assert_eq!(pointer.whole(Bytes::from(result.clone())).unwrap(), result);
        assert_eq!(Pointer::of(&Item::new()), None);
    }

    /// What is put together counts only if it is the result, byte for byte.
    #[test]
    fn another_whole_is_none() {
        let pointer = Pointer::to(b"receipt", 1);
        for other in [&b""[..], b"receip", b"receipts", b"Receipt"] {
            assert_eq!(pointer.whole(Bytes::copy_from_slice(other)), None);
        }
        assert_ne!(Pointer::to(b"receipt", 2).at, pointer.at, "each claim has its own");
        assert_ne!(Pointer::to(b"Receipt", 1).at, pointer.at, "and each result");
    }

    /// A pointer that somebody changed by hand is bounded, and nothing is behind it.
    #[test]
    fn a_pointer_that_is_none_finds_nothing() {
        for stored in [s("?"), n(7), AttributeValue::M(Item::new())] {
            assert!(keys_of(&row(stored)).is_empty());
        }
        let mut large = Pointer::to(b"receipt", 1);
        large.count = 1_000_000;
        assert_eq!(keys_of(&row(large.value())).len(), PARTS_MAX);
    }
}
