//! Requests as items: what an operator asked for, and the parts of it for the owners of the partitions.
//!
//! A request with all its rows may be larger than a transaction. So its parts are written first, and mean
//! nothing until its own item is there, which comes with the entry of the audit log. Invariants: a part
//! whose request is not there is left alone, and deleted when nobody can still be writing it; and what is
//! done of a part stands in the same item that says what is left.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use postrider_core::operate::{RequestId, RequestState};
use postrider_core::{DestinationId, PartitionId};

use crate::audit::numbered;
use crate::control::{SK, key};
use crate::item::{Item, b, n, number, s, text, truth};
use crate::record::Place;
use crate::store::now_ms;

/// The partition key of the requests.
pub(crate) const REQUESTS: &str = "requests";
/// The partition key of what says that a request is open.
pub(crate) const OPEN: &str = "requests#open";
/// The sequence that their numbers are drawn from.
pub(crate) const SEQUENCE: &str = "requests";

/// How long a request stays after it is finished.
pub(crate) const KEPT: Duration = Duration::from_secs(30 * 86_400);
/// A part without a request is nobody's after so long: whoever wrote it has given up by then.
const ABANDONED_AFTER: Duration = Duration::from_secs(3_600);

/// Rows of one part: 40 KB of numbers.
pub(crate) const PART_ROWS_MAX: usize = 5_000;
/// Bytes of places of one part: an item takes 400 KB.
pub(crate) const PART_BYTES_MAX: usize = 200_000;

/// What a part asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Asked {
    Redrive(Vec<u64>),
    Discard(Vec<u64>),
    Requeue(Vec<Place>),
    Enable(String),
}

/// A request's part for the owner of one partition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) request: RequestId,
    pub(crate) chunk: usize,
    pub(crate) destination: DestinationId,
    pub(crate) asked: Asked,
    /// How many rows of it are done.
    pub(crate) next: usize,
    written_at: i64,
}

/// The partition key of the parts of a partition.
pub(crate) fn parts_pk(partition: PartitionId) -> String {
    format!("R#{:05}", partition.0)
}

impl Part {
    pub(crate) fn new(
        request: RequestId,
        chunk: usize,
        destination: &DestinationId,
        asked: Asked,
    ) -> Part {
        let destination = destination.clone();
        Part { request, chunk, destination, asked, next: 0, written_at: now_ms() }
    }

    /// How many rows it has; one where it is for all of an endpoint.
    pub(crate) fn len(&self) -> usize {
        match &self.asked {
            Asked::Redrive(rows) | Asked::Discard(rows) => rows.len(),
            Asked::Requeue(places) => places.len(),
            Asked::Enable(_) => 1,
        }
    }

    /// Whether nobody can still be writing the request that it is of.
    pub(crate) fn is_abandoned(&self) -> bool {
        let age = u64::try_from(now_ms().saturating_sub(self.written_at)).unwrap_or_default();
        Duration::from_millis(age) > ABANDONED_AFTER
    }

    pub(crate) fn sk(&self) -> String {
        format!("{}#{:05}", numbered(self.request.0), self.chunk)
    }

    pub(crate) fn item(&self, partition: PartitionId) -> Item {
        let mut item = key(&parts_pk(partition), &self.sk());
        let mut set = |name: &str, value: AttributeValue| _ = item.insert(name.to_owned(), value);
        set("destination", s(self.destination.as_str()));
        set("next", n(self.next));
        set("at", n(self.written_at));
        let seqs =
            |rows: &[u64]| b(rows.iter().flat_map(|seq| seq.to_be_bytes()).collect::<Vec<_>>());
        match &self.asked {
            Asked::Redrive(rows) => set("redrive", seqs(rows)),
            Asked::Discard(rows) => set("discard", seqs(rows)),
            Asked::Requeue(places) => {
                let texts = places.iter().flat_map(|place| [s(&*place.pk), s(&*place.sk)]);
                set("requeue", AttributeValue::L(texts.collect()));
            }
            Asked::Enable(topic) => set("enable", s(topic)),
        }
        item
    }

    /// What the item of a part says; nothing if it is none.
    pub(crate) fn of(item: &Item) -> Option<Part> {
        let (request, chunk) = text(item, SK)?.split_once('#')?;
        let seqs = |name: &str| {
            let bytes = item.get(name)?.as_b().ok()?;
            let (rows, _) = bytes.as_ref().as_chunks::<8>();
            Some(rows.iter().map(|row| u64::from_be_bytes(*row)).collect())
        };
        let places = || {
            let texts = item.get("requeue")?.as_l().ok()?;
            let (pairs, _) = texts.as_chunks::<2>();
            let place = |pair: &[AttributeValue; 2]| {
                Some(Place::new(pair[0].as_s().ok()?, pair[1].as_s().ok()?))
            };
            pairs.iter().map(place).collect::<Option<Vec<Place>>>()
        };
        let asked = seqs("redrive")
            .map(Asked::Redrive)
            .or_else(|| seqs("discard").map(Asked::Discard))
            .or_else(|| places().map(Asked::Requeue))
            .or_else(|| text(item, "enable").map(|topic| Asked::Enable(topic.to_owned())))?;
        Some(Part {
            request: RequestId(request.parse().ok()?),
            chunk: chunk.parse().ok()?,
            destination: DestinationId::new(text(item, "destination")?).ok()?,
            asked,
            next: number(item, "next")?,
            written_at: number(item, "at")?,
        })
    }
}

/// A request as it stands.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) state: RequestState,
    /// Parts that are not done.
    pub(crate) left: u64,
    /// Whether a part of it was begun.
    pub(crate) begun: bool,
}

impl Request {
    pub(crate) fn item(&self) -> Item {
        let state = &self.state;
        let mut item = key(REQUESTS, &numbered(state.id.0));
        let attributes = [
            ("verb", s(&state.verb)),
            ("who", s(&state.who)),
            ("why", s(&state.why)),
            ("total", n(state.total)),
            ("done", n(state.done)),
            ("skipped", n(state.skipped)),
            ("left", n(self.left)),
        ];
        item.extend(attributes.map(|(name, value)| (name.to_owned(), value)));
        item
    }

    pub(crate) fn of(item: &Item) -> Option<Request> {
        let of = |name: &str| text(item, name).unwrap_or_default().to_owned();
        let left = number(item, "left")?;
        let state = RequestState {
            id: RequestId(text(item, SK)?.parse().ok()?),
            verb: of("verb"),
            who: of("who"),
            why: of("why"),
            total: number(item, "total")?,
            done: number(item, "done")?,
            skipped: number(item, "skipped")?,
            finished: left == 0,
            relay: text(item, "relay").map(str::to_owned),
        };
        Some(Request { state, left, begun: truth(item, "begun") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_comes_back_from_its_item() {
        let id = DestinationId::new("a").unwrap();
        for asked in [
            Asked::Redrive(vec![1, u64::MAX]),
            Asked::Discard(vec![7]),
            Asked::Requeue(vec![Place::new("a\0#", "OUTBOX#1"), Place::new("b", "OUTBOX#2")]),
            Asked::Enable("https://gone.example/#hook".to_owned()),
        ] {
            let part = Part::new(RequestId(3), 2, &id, asked);
            assert_eq!(Part::of(&part.item(PartitionId(1))), Some(part.clone()), "{part:?}");
            assert!(!part.is_abandoned());
        }
    }
}
