//! Derived events: events that are made of business items, without an item in the outbox (R027).
//!
//! A write of the business item carries a stamp; index and stream name the item, and its newest version is read and
//! published. The item is the application's: all that is ever done to it is to take away the key of the index, or to
//! change it, and with the publication the time of the write, so that an item without one has nothing that is not
//! published. Invariant: **that is done under the condition that the newest version is still the one that
//! was published or waits.** So a version that is written in between stays pending, whoever settles the older one, and
//! however late. A version that was overwritten before it was read is never seen: the newest one stands for it.

use std::sync::Arc;

use aws_sdk_dynamodb::types::{TransactWriteItem, Update};
use futures_util::{StreamExt as _, stream};
use postrider_core::source::Malformed;
use postrider_core::waiting::Reason;
use postrider_core::{Error, ErrorKind, Event, Payload, Result};

use crate::connection::call;
use crate::control::{PK, SK};
use crate::group::Group;
use crate::item::{Item, number, s, text};
use crate::job::Pending;
use crate::options::Options;
use crate::record::{AT, EVENT_ID, Place, SEQ, SHARD, decode, encode, partition_of};
use crate::settings::Names;
use crate::store::DynamoStore;
use crate::stored::Stored;
use crate::tables::built;

/// The condition of whatever is done to a business item.
const STILL: &str = "pr_event = :version";

/// The condition of what was published, dropped, or enters `waiting`.
const PENDING: &str = "attribute_exists(pr_shard)";

/// What takes a version that is settled out of the index, and says so of it: an item whose newest version is not
/// settled has the time of its write. Nothing is set, so no item grows beyond what the service takes, and there is no
/// time to live.
const TAKE_OUT: &str = "REMOVE pr_shard, pr_at";

/// What takes a version out of the index that begins to wait: what the stamp says of the write stays for as long.
const ENTER: &str = "REMOVE pr_shard";

/// What says of a version that waited that it is settled.
const SAY_SETTLED: &str = "REMOVE pr_at";

/// Of how many items that is said at once.
const SAID_AT_ONCE: usize = 32;

/// Refuses options that contradict each other.
pub(crate) fn check(options: &Options) -> Result<()> {
    if options.derivation.is_some() && options.mark_first {
        return Err(Error::new(ErrorKind::Config, "open").message(
            "marks that come first would be written on the application's own items, which get none: give up \
             `mark_first`, or the derivation",
        ));
    }
    Ok(())
}

/// An item that was read as one that is pending; nothing if it is none of ours.
pub(crate) fn pending(store: &DynamoStore, place: Place, item: Item) -> Option<Pending> {
    if place.is_event() {
        let decoded = decode(&item, &place, store.default_source());
        return Some(Pending { place, item, decoded });
    }
    let derivation = store.options().derivation.as_ref();
    let Some((derivation, version)) = derivation.zip(text(&item, EVENT_ID)) else {
        store.tally().saw_foreign(std::slice::from_ref(&place));
        return None;
    };
    let place = place.of_version(version);
    let decoded = derivation.decode(&item, &place, store.default_source());
    // What else the item says is not ours, whatever it is called.
    Some(Pending { place, item: Item::new(), decoded })
}

/// The event that waits in a row, made of its item as it is now: without a payload if the item has another version
/// by now, says that this one is published, or is gone. Then there is nothing to send: a newer version is pending by
/// itself. Where no version stands
/// for it, because the item was deleted or lost its stamp, an event is lost, and the log says so.
pub(crate) fn waiting(
    store: &DynamoStore,
    row: &Stored,
    item: Option<&Item>,
) -> Result<Arc<Event>, Malformed> {
    let version = row.place.version.as_deref();
    if item.and_then(|item| text(item, EVENT_ID)).is_none() && store.tally().found_gone(row.row.seq)
    {
        let (pk, sk) = (row.place.pk.escape_debug(), row.place.sk.escape_debug());
        tracing::warn!(event = %row.row.id, %pk, %sk, "a waiting event is lost: its business item was deleted, or \
            written without a stamp, before it was sent");
    }
    // What was published, though its row is still there: its relay ended between the two.
    let unsettled = |item: &&Item| text(item, EVENT_ID) == version && item.contains_key(AT);
    let Some(item) = item.filter(unsettled) else {
        let mut event = Event::new(row.row.id, "item", &row.place.pk, "item.overwritten");
        event.payload = Payload::Erased;
        return Ok(Arc::new(event));
    };
    let Some(derivation) = &store.options().derivation else {
        return Err(Malformed {
            reason: Reason::Malformed,
            detail:
                "this relay has no mapping for events of business items; give it one, and redrive"
                    .to_owned(),
            event: None,
        });
    };
    derivation.decode(item, &row.place, store.default_source()).event
}

/// Takes a version that was published, or dropped, out of the index; whether it was there.
pub(crate) async fn take_out(store: &DynamoStore, place: &Place, version: &str) -> Result<bool> {
    let names = store.connection().names();
    let client = store.connection().tables().await;
    let update = client
        .update_item()
        .table_name(&names.outbox)
        .set_key(Some(place.key(names)))
        .update_expression(TAKE_OUT)
        .condition_expression(format!("{PENDING} AND {STILL}"))
        .expression_attribute_values(":version", s(version));
    told(call("settle", &names.outbox, update.send()).await)
}

/// Hands a version from one index key to another; whether it was there.
pub(crate) async fn hand_on(
    store: &DynamoStore,
    place: &Place,
    version: &str,
    (from, to): (&str, &str),
) -> Result<bool> {
    let names = store.connection().names();
    let client = store.connection().tables().await;
    let update = client
        .update_item()
        .table_name(&names.outbox)
        .set_key(Some(place.key(names)))
        .update_expression("SET pr_shard = :to")
        .condition_expression(format!("pr_shard = :from AND {STILL}"))
        .expression_attribute_values(":from", s(from))
        .expression_attribute_values(":to", s(to))
        .expression_attribute_values(":version", s(version));
    told(call("settle", &names.outbox, update.send()).await)
}

/// Says of versions that waited, and were published, that they are: before their rows go, because who writes an item
/// may wait for that. Of an item that has another version by now nothing is said.
pub(crate) async fn say_settled(store: &DynamoStore, places: &[Place]) -> Result<()> {
    let said = places.iter().filter_map(|place| Some((place, place.version.as_deref()?)));
    let said: Vec<_> = said.map(|(place, version)| say_one(store, place, version)).collect();
    let mut said = stream::iter(said).buffer_unordered(SAID_AT_ONCE);
    while let Some(said) = said.next().await {
        said?;
    }
    Ok(())
}

async fn say_one(store: &DynamoStore, place: &Place, version: &str) -> Result<()> {
    let names = store.connection().names();
    let client = store.connection().tables().await;
    let update = client
        .update_item()
        .table_name(&names.outbox)
        .set_key(Some(place.key(names)))
        .update_expression(SAY_SETTLED)
        .condition_expression(STILL)
        .expression_attribute_values(":version", s(version));
    told(call("settle", &names.outbox, update.send()).await).map(drop)
}

fn told<T>(outcome: Result<T>) -> Result<bool> {
    match outcome {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(false),
        Err(error) => Err(error),
    }
}

/// The action that takes a version out of the index in the transaction in which it enters `waiting`.
pub(crate) fn enters(names: &Names, place: &Place, version: &str) -> Result<TransactWriteItem> {
    let update = Update::builder()
        .table_name(&names.outbox)
        .set_key(Some(place.key(names)))
        .update_expression(ENTER)
        .condition_expression(format!("{PENDING} AND {STILL}"))
        .expression_attribute_values(":version", s(version));
    Ok(TransactWriteItem::builder().update(built(update.build())?).build())
}

/// What is left to write of a row whose version is not pending any more: whether the row alone, or nothing. Where the
/// item has another version by now, the row is told so when it is due. Where it has not, this settlement is sent again:
/// the row is there, or somebody let it go.
pub(crate) async fn is_row_left(store: &DynamoStore, group: &Group, item: &Item) -> Result<bool> {
    if text(item, EVENT_ID) != group.place.version.as_deref() {
        return Ok(true);
    }
    let put = group.actions.first().and_then(TransactWriteItem::put);
    let row = put.map(|put| [PK, SK].map(|name| put.item().get(name).cloned()));
    let Some([Some(pk), Some(sk)]) = row else { return Ok(true) };
    let table = &store.connection().names().store;
    let client = store.connection().tables().await;
    let get = client.get_item().table_name(table).key(PK, pk).key(SK, sk).consistent_read(true);
    Ok(call("settle", table, get.send()).await?.item.is_some())
}

/// An item as an operator sees it: a business item as the event that is made of it, and nothing of one that has no
/// event here, or another version than is asked for.
pub(crate) fn shown(store: &DynamoStore, place: &Place, item: Item) -> Option<Item> {
    if place.is_event() {
        return Some(item);
    }
    let asked = place.version.as_deref();
    let version = text(&item, EVENT_ID).filter(|it| asked.is_none_or(|asked| asked == *it))?;
    let place = place.of_version(version);
    let derivation = store.options().derivation.as_ref()?;
    let decoded = derivation.decode(&item, &place, store.default_source());
    let names = store.connection().names();
    let mut shown = match &decoded.event {
        Ok(event) => encode(event, &place, names, partition_of(&place.pk, 1)),
        Err(_) => Item::from([("id".to_owned(), s(decoded.id.to_string()))]),
    };
    for name in [SHARD, AT] {
        shown.remove(name);
        shown.extend(item.get(name).map(|value| (name.to_owned(), value.clone())));
    }
    debug_assert!(number::<u64>(&shown, SEQ).is_none(), "its number is its row's");
    Some(shown)
}
