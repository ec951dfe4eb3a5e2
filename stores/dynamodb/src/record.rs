//! Event items: an event as the outbox table keeps it.
//!
//! Invariant: no item of ours stops the stream. What cannot be read as an event is handed on as
//! [`Malformed`] with its key, so that it becomes a dead letter; what is not ours is told apart by its
//! sort key.

use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use postrider_core::source::Malformed;
use postrider_core::waiting::Reason;
use postrider_core::{Event, EventId, Headers, KeyHash, PartitionId, Payload, Timestamp};

use crate::item::{Item, b, n, number, s, text, weight};
use crate::settings::Names;

/// The sparse index's partition key: which partition the event is pending in. Only what is pending has it.
pub(crate) const SHARD: &str = "pr_shard";
/// The sparse index's sort key: when the item was written, by the writer's clock, in milliseconds.
pub(crate) const AT: &str = "pr_at";
/// The number under which an event waits, while it does.
pub(crate) const SEQ: &str = "seq";

/// Of a business item that is an event itself: the id of its newest event.
pub(crate) const EVENT_ID: &str = "pr_event";
/// Likewise: the item's own version, as its writer says.
pub(crate) const VERSION: &str = "pr_n";

/// When it was marked as published, in milliseconds by the owner's clock.
pub(crate) const PUBLISHED_AT: &str = "published_at";
/// When a route dropped it, likewise.
pub(crate) const DROPPED_AT: &str = "dropped_at";
/// When an operator let it go, likewise.
pub(crate) const DISCARDED_AT: &str = "discarded_at";

/// What the sort keys of event items begin with.
pub(crate) const EVENT: &str = "OUTBOX#";
/// The sort key of a key's head item, which has the number of its newest event.
pub(crate) const HEAD: &str = "HEAD#OUTBOX";

/// The digits of a number in a sort key: every number of 64 bits, in its order.
const DIGITS: usize = 20;

/// The newest format of items that this program can read.
const FORMAT_MAX: u32 = 1;

/// What an item that cannot be read weighs beside its attributes.
const ENVELOPE_BYTES: u64 = 256;

/// Where an item stands; and where a business item is an event itself, which version of it is meant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) pk: Arc<str>,
    pub(crate) sk: Arc<str>,
    /// What the item says its newest event is, for one that was read.
    pub(crate) version: Option<Arc<str>>,
}

impl Place {
    pub(crate) fn new(pk: &str, sk: &str) -> Place {
        Place { pk: Arc::from(pk), sk: Arc::from(sk), version: None }
    }

    /// The same item in a version.
    pub(crate) fn of_version(&self, version: &str) -> Place {
        Place { version: Some(Arc::from(version)), ..self.clone() }
    }

    /// The same item in whatever version.
    pub(crate) fn whichever(&self) -> Place {
        Place { version: None, ..self.clone() }
    }

    /// Where an item of the outbox table says that it stands.
    pub(crate) fn of(item: &Item, names: &Names) -> Option<Place> {
        Some(Place::new(text(item, &names.pk)?, text(item, &names.sk)?))
    }

    pub(crate) fn key(&self, names: &Names) -> Item {
        Item::from([(names.pk.clone(), s(&*self.pk)), (names.sk.clone(), s(&*self.sk))])
    }

    /// The id of an event that has none of its own: it is named by its place, which stays the same.
    pub(crate) fn made_up_id(&self) -> EventId {
        let (pk, sk) = (KeyHash::of(&self.pk).0, KeyHash::of(&self.sk).0);
        EventId::from_u128(u128::from(pk) << 64 | u128::from(sk))
    }

    /// Whether the item is an event of ours.
    pub(crate) fn is_event(&self) -> bool {
        self.sk.starts_with(EVENT)
    }

    /// Whether the item is the outbox's own, on which marks are written; any other is the application's.
    pub(crate) fn is_ours(&self) -> bool {
        self.is_event() && self.version.is_none()
    }

    /// Whether the item may be a business item with an event of its own.
    pub(crate) fn may_derive(&self) -> bool {
        !self.is_event() && &*self.sk != HEAD
    }

    /// The event's number among its key's, if it has one.
    pub(crate) fn n(&self) -> Option<u64> {
        let digits = self.sk.strip_prefix(EVENT)?;
        (digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| digits.parse().ok())?
    }
}

/// The sort key of an event with a number.
pub(crate) fn numbered_sk(n: u64) -> String {
    format!("{EVENT}{n:0DIGITS$}")
}

/// The partition of an item collection, for ever.
pub(crate) fn partition_of(pk: &str, partitions: u16) -> PartitionId {
    let partition = KeyHash::of(pk).0 % u64::from(partitions.max(1));
    PartitionId(u16::try_from(partition).expect("invariant: smaller than a number of 16 bits"))
}

/// The index key of what is pending in a partition.
pub(crate) fn pending_in(partition: PartitionId) -> String {
    format!("p{:05}", partition.0)
}

/// The index key of what the destination has no route for, until it is a dead letter.
pub(crate) fn unrouted_in(partition: PartitionId) -> String {
    format!("u{:05}", partition.0)
}

/// An event as an item, pending in its partition.
pub(crate) fn encode(event: &Event, place: &Place, names: &Names, partition: PartitionId) -> Item {
    let mut item = place.key(names);
    let mut set = |name: &str, value: AttributeValue| _ = item.insert(name.to_owned(), value);
    set(SHARD, s(pending_in(partition)));
    set(AT, n(event.created_at.as_micros().max(0) / 1_000));
    if let Some(number) = place.n() {
        set("n", n(number));
    }
    set("format", n(FORMAT_MAX));
    set("id", s(event.id.to_string()));
    set("aggregate_type", s(&*event.aggregate_type));
    set("aggregate_id", s(&*event.aggregate_id));
    set("event_type", s(&*event.event_type));
    set("event_version", n(event.event_version));
    set("content_type", s(&*event.content_type));
    set("occurred_at", n(event.occurred_at.as_micros()));
    set("created_at", n(event.created_at.as_micros()));
    if !event.source.is_empty() {
        set("source", s(&*event.source));
    }
    for (name, value) in
        [("key", &event.key), ("encoding", &event.encoding), ("tenant", &event.tenant)]
    {
        if let Some(value) = value {
            set(name, s(&**value));
        }
    }
    if !event.headers.is_empty() {
        let headers = event.headers.iter().map(|(name, value)| (name.clone(), s(value)));
        set("headers", AttributeValue::M(headers.collect()));
    }
    match &event.payload {
        Payload::Json(json) => set("payload", s(String::from_utf8_lossy(json))),
        Payload::Bytes(bytes) => set("payload", b(bytes.to_vec())),
        Payload::Erased => set("erased_at", n(event.created_at.as_micros())),
    }
    item
}

/// An item that was read.
#[derive(Clone, Debug)]
pub(crate) struct Decoded {
    pub(crate) id: EventId,
    pub(crate) key_hash: KeyHash,
    pub(crate) bytes: u64,
    pub(crate) event: Result<Arc<Event>, Malformed>,
}

/// Reads an item of ours.
pub(crate) fn decode(item: &Item, place: &Place, source: &Arc<str>) -> Decoded {
    match read(item, source) {
        Ok(event) => Decoded {
            id: event.id,
            key_hash: event.key_hash(),
            bytes: event.size_bytes(),
            event: Ok(Arc::new(event)),
        },
        Err(malformed) => {
            let id = text(item, "id").and_then(|id| id.parse().ok());
            Decoded {
                id: id.unwrap_or_else(|| place.made_up_id()),
                key_hash: key_of(item, place),
                bytes: ENVELOPE_BYTES + weight(item),
                event: Err(malformed),
            }
        }
    }
}

/// The key of an item that cannot be read: what is behind it must not pass it.
fn key_of(item: &Item, place: &Place) -> KeyHash {
    if let Some(key) = text(item, "key") {
        return KeyHash::of(key);
    }
    match (text(item, "aggregate_type"), text(item, "aggregate_id")) {
        (Some(aggregate_type), Some(id)) => KeyHash::of_aggregate(aggregate_type, id),
        _ => KeyHash::of(&place.pk),
    }
}

fn read(item: &Item, source: &Arc<str>) -> Result<Event, Malformed> {
    let format: u32 = number(item, "format").ok_or_else(|| malformed("format"))?;
    if format > FORMAT_MAX {
        return Err(Malformed {
            reason: Reason::UnknownFormat,
            detail: format!("format {format}; this program knows {FORMAT_MAX}"),
            event: None,
        });
    }
    let required = |name: &'static str| {
        text(item, name).filter(|value| !value.is_empty()).ok_or_else(|| malformed(name))
    };
    let id = required("id")?.parse().map_err(|_| malformed("id"))?;
    let names = (required("aggregate_type")?, required("aggregate_id")?);
    let mut event = Event::new(id, names.0, names.1, required("event_type")?);
    event.source = match optional(item, "source")? {
        Some(own) => Arc::from(own),
        None => Arc::clone(source),
    };
    event.event_version = number(item, "event_version")
        .filter(|v| *v > 0)
        .ok_or_else(|| malformed("event_version"))?;
    event.key = optional(item, "key")?.map(Into::into);
    event.encoding = optional(item, "encoding")?.map(Into::into);
    event.tenant = optional(item, "tenant")?.map(Into::into);
    event.content_type = postrider_core::Text::from(required("content_type")?);
    event.headers = headers(item)?;
    event.payload = payload(item)?;
    let moment = |name: &'static str| {
        number(item, name).map(Timestamp::from_micros).ok_or_else(|| malformed(name))
    };
    event.occurred_at = moment("occurred_at")?;
    event.created_at = moment("created_at")?;
    Ok(event)
}

fn optional<'a>(item: &'a Item, name: &'static str) -> Result<Option<&'a str>, Malformed> {
    match item.get(name) {
        None | Some(AttributeValue::Null(_)) => Ok(None),
        Some(value) => value.as_s().map(|text| Some(text.as_str())).map_err(|_| malformed(name)),
    }
}

fn headers(item: &Item) -> Result<Headers, Malformed> {
    let Some(value) = item.get("headers") else { return Ok(Headers::new()) };
    let map = value.as_m().map_err(|_| malformed("headers"))?;
    map.iter()
        .map(|(name, value)| {
            let value = value.as_s().map_err(|_| malformed("headers"))?;
            Ok((name.clone(), value.clone()))
        })
        .collect()
}

fn payload(item: &Item) -> Result<Payload, Malformed> {
    match item.get("payload") {
        Some(AttributeValue::S(json)) => match Payload::json(json.clone()) {
            Ok(payload) => Ok(payload),
            Err(_) => Err(Malformed {
                reason: Reason::Malformed,
                detail: "the attribute payload is text and no JSON".to_owned(),
                event: None,
            }),
        },
        Some(AttributeValue::B(bytes)) => {
            Ok(Payload::Bytes(Bytes::copy_from_slice(bytes.as_ref())))
        }
        None if item.contains_key("erased_at") => Ok(Payload::Erased),
        _ => Err(malformed("payload")),
    }
}

fn malformed(name: &str) -> Malformed {
    Malformed {
        reason: Reason::Malformed,
        detail: format!("the attribute {name} is absent or cannot be read"),
        event: None,
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::NewEvent;

    use super::*;

    fn round_trip(event: &Event) -> Decoded {
        let place = Place::new(&event.key(), &numbered_sk(7));
        let item = encode(event, &place, &Names::default(), PartitionId(3));
        assert_eq!(Place::of(&item, &Names::default()), Some(place.clone()));
        decode(&item, &place, &Arc::from("urn:store"))
    }

    /// R013: an event's item has everything of it, byte for byte.
    #[test]
    fn an_event_comes_back_from_its_item() {
        let event = NewEvent::new("order", "42", "order.placed")
            .source("https://shop.example")
            .ordered_by("customer/7")
            .header("x", "y")
            .tenant("acme")
            .json(&serde_json::json!({"a": 1}))
            .unwrap();
        let decoded = round_trip(event.event());
        assert_eq!(*decoded.event.unwrap(), *event.event());
        assert_eq!(decoded.key_hash, event.event().key_hash());
    }

    /// R012: what cannot be read is handed on with its place, and the reason names the attribute.
    #[test]
    fn what_is_no_event_is_malformed_under_its_own_key() {
        let place = Place::new("order/1", &numbered_sk(2));
        let item = place.key(&Names::default());
        let decoded = decode(&item, &place, &Arc::from(""));
        assert_eq!(decoded.key_hash, KeyHash::of("order/1"));
        assert!(decoded.event.unwrap_err().detail.contains("format"));
        // INV-3: in a collection of another name it holds up its own key all the same.
        let mut named = place.key(&Names::default());
        for (name, value) in [("aggregate_type", "order"), ("aggregate_id", "9")] {
            named.insert(name.to_owned(), s(value));
        }
        let decoded = decode(&named, &place, &Arc::from(""));
        assert_eq!(decoded.key_hash, KeyHash::of("order/9"));
        let newer = Item::from([("format".to_owned(), n(2))]);
        let newer = decode(&newer, &place, &Arc::from(""));
        assert_eq!(newer.event.unwrap_err().reason, Reason::UnknownFormat);
    }

    #[test]
    fn numbers_sort_as_text_and_ids_are_no_numbers() {
        assert!(numbered_sk(9) < numbered_sk(10));
        assert_eq!(Place::new("k", &numbered_sk(u64::MAX)).n(), Some(u64::MAX));
        let id = format!("{EVENT}{}", EventId::mint());
        assert_eq!(Place::new("k", &id).n(), None);
        assert!(!Place::new("k", HEAD).is_event());
    }

    /// Whoever writes items in another language has the page alone: its values are those of the code.
    #[test]
    fn the_page_has_the_attributes_as_they_are_written() {
        let page = include_str!("../../../docs/internals/dynamodb.md");
        let id = "0190a6f0-7b5c-7000-8000-000000000001".parse().unwrap();
        let mut event = Event::new(id, "order", "42", "order.placed");
        event.source = Arc::from("https://shop.example");
        event.key = Some("customer/7".into());
        event.encoding = Some("zstd".into());
        event.tenant = Some("acme".into());
        event.headers = [("trace".to_owned(), "9f".to_owned())].into_iter().collect();
        event.payload = Payload::json(r#"{"total":1250}"#.to_owned()).unwrap();
        event.occurred_at = Timestamp::from_micros(1_767_323_044_000_000);
        event.created_at = Timestamp::from_micros(1_767_323_045_678_901);
        let (key, names) = (event.key(), Names::default());
        let item =
            encode(&event, &Place::new(&key, &numbered_sk(7)), &names, partition_of(&key, 8));
        for (name, value) in &item {
            let (kind, value) = match value {
                AttributeValue::S(text) => ("S", text.clone()),
                AttributeValue::N(number) => ("N", number.clone()),
                AttributeValue::M(_) => ("M", r#"{"trace":{"S":"9f"}}"#.to_owned()),
                other => panic!("{name}: {other:?}"),
            };
            let row = format!("| `{name}` | {kind} | `{value}` |");
            assert!(page.contains(&row), "the page has no {row}");
        }
        let (_, table) = page.split_once("| Attribute | Type |").unwrap();
        let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
        assert_eq!(rows.count(), item.len(), "the page has what is not written");
        let hash = KeyHash::of("customer/7").0.to_string();
        for told in [&*hash, HEAD, crate::control::CONTROL, crate::control::FACTS] {
            let quoted = format!("`{told}`");
            assert!(page.contains(&quoted) || told == hash && page.contains(told), "no {told}");
        }
    }
}
