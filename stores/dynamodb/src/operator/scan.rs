//! Readings of the outbox table that no relay makes: of a key's collection, and of the table from its front.
//!
//! Invariant: each looks at a bounded number of items, and says where the next goes on.

use std::collections::HashMap;

use postrider_core::{Error, ErrorKind, EventId, PartitionId, Result};

use crate::collection::single;
use crate::connection::call;
use crate::item::{Item, n, s};
use crate::record::{EVENT, Place, SEQ, SHARD};
use crate::store::DynamoStore;
use crate::{definitions, derived};

/// Items that one call looks at, however few of them a filter lets through.
pub(super) const LOOKED_MAX: usize = 10_000;

/// Items of one page.
const PAGE_ITEMS: i32 = 1_000;

/// Items that are looked at for one event by its id: of 1 KB each, 12,500 read units.
const FIND_MAX: usize = 100_000;

/// A page of the table.
pub(super) struct Page {
    /// The events that are not pending.
    pub(super) events: Vec<(Place, Item)>,
    /// How many items were looked at, but for these.
    pub(super) looked: usize,
    pub(super) next: Option<Place>,
}

/// The next page of the table, of events that are not pending.
pub(super) async fn page(store: &DynamoStore, after: Option<&Place>) -> Result<Page> {
    let names = store.connection().names();
    let client = store.connection().tables().await;
    let scan = client
        .scan()
        .table_name(&names.outbox)
        .filter_expression("begins_with(#sk, :event) AND attribute_not_exists(#shard)")
        .expression_attribute_names("#sk", &names.sk)
        .expression_attribute_names("#shard", SHARD)
        .expression_attribute_values(":event", s(EVENT))
        .limit(PAGE_ITEMS)
        .set_exclusive_start_key(after.map(|place| place.key(names)));
    let found = call("events", &names.outbox, scan.send()).await?;
    let events: Vec<(Place, Item)> = placed(store, found.items);
    let looked = usize::try_from(found.scanned_count).unwrap_or_default();
    Ok(Page {
        looked: looked.saturating_sub(events.len()),
        events,
        next: found.last_evaluated_key.and_then(|key| Place::of(&key, names)),
    })
}

fn placed(store: &DynamoStore, items: Option<Vec<Item>>) -> Vec<(Place, Item)> {
    let names = store.connection().names();
    let items = items.unwrap_or_default().into_iter();
    items.filter_map(|item| Some((Place::of(&item, names)?, item))).collect()
}

/// Events of a collection, the newest first, before a sort key; and whether there are more.
pub(super) async fn collection(
    store: &DynamoStore,
    pk: &str,
    before: Option<&str>,
) -> Result<(Vec<(Place, Item)>, bool)> {
    let names = store.connection().names();
    let client = store.connection().tables().await;
    // The character behind `#`: what is between the two begins with the events' prefix.
    let end = EVENT.replace('#', "$");
    let query = client
        .query()
        .table_name(&names.outbox)
        .key_condition_expression("#pk = :pk AND #sk BETWEEN :first AND :last")
        .expression_attribute_names("#pk", &names.pk)
        .expression_attribute_names("#sk", &names.sk)
        .expression_attribute_values(":pk", s(pk))
        .expression_attribute_values(":first", s(EVENT))
        .expression_attribute_values(":last", s(before.unwrap_or(&end)))
        .scan_index_forward(false)
        .consistent_read(true)
        .limit(PAGE_ITEMS);
    let found = call("events", &names.outbox, query.send()).await?;
    let more = found.last_evaluated_key.is_some();
    let mut events = placed(store, found.items);
    // Between takes both ends.
    events.retain(|(place, _)| place.is_event() && before.is_none_or(|before| &*place.sk < before));
    Ok((events, more))
}

/// Whether a collection has events.
pub(super) async fn has_events(store: &DynamoStore, pk: &str) -> Result<bool> {
    let names = store.connection().names();
    let client = store.connection().tables().await;
    let query = client
        .query()
        .table_name(&names.outbox)
        .key_condition_expression("#pk = :pk AND begins_with(#sk, :event)")
        .expression_attribute_names("#pk", &names.pk)
        .expression_attribute_names("#sk", &names.sk)
        .expression_attribute_values(":pk", s(pk))
        .expression_attribute_values(":event", s(EVENT))
        .limit(1);
    let found = call("events", &names.outbox, query.send()).await?;
    Ok(found.count > 0)
}

/// The event of an id: among what waits, which is loaded anyway, and then by a reading of the table.
///
/// # Errors
/// `NotFound` if so many items were looked at that the reading ended before the table did.
pub(super) async fn find(
    store: &DynamoStore,
    operation: &'static str,
    id: EventId,
) -> Result<Option<(Place, Item)>> {
    let known = definitions::read(store.connection()).await?;
    for row in &known.rows {
        for partition in (0..store.facts().await?.partitions).map(PartitionId) {
            let waiting = store.read_waiting(partition, &row.definition.id).await?;
            let Some(row) = waiting.rows().find(|row| row.row.id == id) else { continue };
            let place = row.place.clone();
            let item = single(store.connection(), operation, &place).await?;
            if let Some(mut item) = item.and_then(|item| derived::shown(store, &place, item)) {
                item.insert(SEQ.to_owned(), n(row.row.seq));
                return Ok(Some((place, item)));
            }
        }
    }
    let names = store.connection().names();
    let client = store.connection().tables().await;
    let (mut from, mut looked): (Option<HashMap<_, _>>, usize) = (None, 0);
    while looked < FIND_MAX {
        let scan = client
            .scan()
            .table_name(&names.outbox)
            .filter_expression("#id = :id AND begins_with(#sk, :event)")
            .expression_attribute_names("#id", "id")
            .expression_attribute_names("#sk", &names.sk)
            .expression_attribute_values(":id", s(id.to_string()))
            .expression_attribute_values(":event", s(EVENT))
            .set_exclusive_start_key(from.take());
        let found = call(operation, &names.outbox, scan.send()).await?;
        looked += usize::try_from(found.scanned_count).unwrap_or_default();
        if let Some(event) = placed(store, found.items).into_iter().next() {
            return Ok(Some(event));
        }
        from = found.last_evaluated_key;
        if from.is_none() {
            return Ok(None);
        }
    }
    Err(Error::new(ErrorKind::NotFound, operation)
        .message(format!(
            "the event is not among the first {FIND_MAX} items of the table, and no index has its id; nothing \
             was changed: list the events of its key, which is one query"
        ))
        .context("event", id))
}

/// A page of all events of the table, whatever became of them, and where the next begins.
pub(super) async fn all(
    store: &DynamoStore,
    from: Option<Item>,
) -> Result<(Vec<(Place, Item)>, Option<Item>)> {
    let names = store.connection().names();
    let client = store.connection().tables().await;
    let scan = client
        .scan()
        .table_name(&names.outbox)
        .filter_expression("begins_with(#sk, :event)")
        .expression_attribute_names("#sk", &names.sk)
        .expression_attribute_values(":event", s(EVENT))
        .consistent_read(true)
        .set_exclusive_start_key(from);
    let found = call("erase", &names.outbox, scan.send()).await?;
    Ok((placed(store, found.items), found.last_evaluated_key))
}
