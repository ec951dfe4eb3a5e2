//! One record, as the library gives it out, made our own.
//!
//! Invariant: whatever stands in a topic is a record here, if not an event (F21): who reads outlives it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use postrider_core::{ErrorKind, Event, Fault, KeyHash, Marks};
use rdkafka::message::{BorrowedHeaders, BorrowedMessage, Headers, Message, OwnedHeaders};

use crate::decode::decode;
use crate::settings::RECORD_BYTES_MAX;

/// One record, read and decoded.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) offset: i64,
    pub(crate) event: Result<Arc<Event>, Fault>,
    pub(crate) marks: Marks,
    /// The record's key.
    pub(crate) key: Option<Box<[u8]>>,
    /// Its value, where it is no event.
    pub(crate) value: Option<Box<[u8]>>,
    /// Its value is none, and too large to be kept.
    pub(crate) is_cut: bool,
    /// Its headers, for a dead letter.
    pub(crate) headers: Option<OwnedHeaders>,
}

impl Record {
    pub(crate) fn key_hash(&self) -> KeyHash {
        self.event.as_ref().map_or(KeyHash(0), |event| event.key_hash())
    }

    /// What it keeps of the memory, near enough: its bytes, and what each record has besides.
    pub(crate) fn bytes(&self) -> usize {
        const BESIDES: usize = 512;
        let event = self.event.as_ref().map_or(0, |event| event.payload.len());
        let headers = self.headers.iter().flat_map(|headers| headers.iter());
        let headers: usize = headers.map(|it| it.key.len() + it.value.map_or(0, <[u8]>::len)).sum();
        let length = |bytes: &Option<Box<[u8]>>| bytes.as_ref().map_or(0, |bytes| bytes.len());
        BESIDES + event + headers + length(&self.key) + length(&self.value)
    }
}

/// Reads one. The library's own reading of a header panics where its name is not UTF-8, which no server looks at; so
/// would a fault of ours, and each process of the group after the other would end at the same record.
pub(crate) fn record(message: &BorrowedMessage<'_>, router_source: &str) -> Record {
    let read =
        catch_unwind(AssertUnwindSafe(|| (decode(message, router_source), detached(message))));
    let (decoded, headers) = read.unwrap_or_else(|_| (Err(unreadable()), None));
    let (event, marks) = match decoded {
        Ok((event, marks)) => (Ok(event), marks),
        Err(fault) => (Err(fault), Marks::default()),
    };
    let boxed = |bytes: &[u8]| bytes.to_vec().into_boxed_slice();
    let value = message.payload().filter(|_| event.is_err());
    // A batch of some kilobytes may be a thousand times as large when it is unpacked, and a copy would double that. No
    // dead letter of ours can be so large either.
    let is_cut = value.is_some_and(|value| value.len() as u64 > RECORD_BYTES_MAX);
    Record {
        offset: message.offset(),
        value: value.filter(|_| !is_cut).map(boxed),
        is_cut,
        event,
        marks,
        key: message.key().map(boxed),
        headers,
    }
}

/// The headers, each of which can be read.
fn detached(message: &BorrowedMessage<'_>) -> Option<OwnedHeaders> {
    let headers = message.headers()?;
    headers.iter().for_each(drop);
    Some(BorrowedHeaders::detach(headers))
}

fn unreadable() -> Fault {
    Fault::new(
        ErrorKind::Invalid,
        "a header cannot be read: its name is not UTF-8. The dead letter has none of the headers",
    )
}
