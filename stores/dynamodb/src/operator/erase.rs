//! Taking the payloads of a key out of the store.
//!
//! Ids, times, and marks stay, so that nothing is delivered twice. The events of a key stand in one item
//! collection, which one query reads; where none is named like the key, or the one that is has events of other
//! keys, the whole table is read, because a collection of the application's may have any name. Results in the
//! inbox are found by a reading of the whole inbox. Both are as long as the tables are: an erasure that leaves
//! something out is none.
//!
//! Invariant: the entry of the audit log is written before or with the first payload that goes. To do it again
//! finishes what a crash left. **What remains**: backups, and the stream's records for 24 hours; what a relay
//! has in its hands is still delivered.

use std::collections::HashSet;

use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::{StreamExt as _, stream};
use postrider_core::operate::{Erasure, Note, RowKey, Submission, Verb};
use postrider_core::waiting::WaitingState;
use postrider_core::{Error, ErrorKind, PartitionId, Result, Timestamp};

use super::request;
use super::scan;
use super::waiting::ordering_key;
use crate::audit::Change;
use crate::connection::call;
use crate::control::PK;
use crate::definitions;
use crate::inbox::parts::{self, PART};
use crate::inbox::row::{EVENT_ID, PARTS, RESULT, SOURCE, STEPS, steps_of, without_results};
use crate::item::{Item, b, n, text};
use crate::record::Place;
use crate::store::DynamoStore;
use crate::transaction::{Cancelled, Patience, send};

/// Items that are written at once.
const WRITES_AT_ONCE: usize = 32;

/// The events of a key that have a payload, and the results of handlers that acted on any of the key.
#[derive(Default)]
struct Found {
    events: Vec<Place>,
    all: HashSet<Place>,
    inbox: Vec<Item>,
    /// The keys of parts of results, those that no row points to among them.
    parts: Vec<Item>,
}

/// What an erasure would reach.
pub(super) async fn erasable(store: &DynamoStore, key: &str) -> Result<Erasure> {
    let found = find(store, key).await?;
    Ok(reached(&found))
}

fn reached(found: &Found) -> Erasure {
    let said = found.inbox.iter().chain(&found.parts).filter_map(|item| text(item, PK));
    let (outbox, inbox) = (found.events.len() as u64, said.collect::<HashSet<_>>().len() as u64);
    Erasure { outbox, inbox, ..Erasure::default() }
}

/// Erases, and asks for the key's dead letters to be sent again: their owner finds nothing to send, settles
/// them as erased, and the key flows.
pub(super) async fn erase(store: &DynamoStore, key: &str, note: &Note) -> Result<Erasure> {
    let found = find(store, key).await?;
    let erasure = reached(&found);
    write_down(store, key, note, &erasure).await?;
    let names = store.connection().names();
    let now = Timestamp::now().as_micros();
    let client = store.connection().tables().await;
    let event = |place: &Place| {
        client
            .update_item()
            .table_name(&names.outbox)
            .set_key(Some(place.key(names)))
            .update_expression("SET erased_at = :now REMOVE #payload, #headers")
            .condition_expression("attribute_exists(#pk)")
            .expression_attribute_names("#pk", &names.pk)
            .expression_attribute_names("#payload", "payload")
            .expression_attribute_names("#headers", "headers")
            .expression_attribute_values(":now", n(now))
    };
    let mut writes = Vec::new();
    for place in &found.events {
        writes.push(write(event(place), names.outbox.clone()));
    }
    let mut writes = stream::iter(writes).buffer_unordered(WRITES_AT_ONCE);
    while let Some(written) = writes.next().await {
        written?;
    }
    let rows = found.inbox.into_iter().map(|item| empty(store, item));
    let mut rows = stream::iter(rows).buffer_unordered(WRITES_AT_ONCE);
    while let Some(written) = rows.next().await {
        written?;
    }
    parts::drop_parts(store.connection(), "erase", found.parts).await?;
    let dead = dead_letters(store, &found.all).await?;
    for rows in dead.chunks(Submission::ROWS_MAX) {
        let submission = Submission { verb: Verb::Redrive(rows.to_vec()), note: note.clone() };
        request::submit(store, &submission).await?;
    }
    Ok(erasure)
}

/// Takes what a row of the inbox says: its result, and those of its steps. That they were made stays, or their
/// effects would be made again. What a handler wrote meanwhile is read, and goes as well.
async fn empty(store: &DynamoStore, mut item: Item) -> Result<()> {
    let table = &store.connection().names().inbox;
    let client = store.connection().tables().await;
    let row = parts::key_of(&item);
    let mut patience = Patience::new();
    while says_something(&item) {
        let update = client.update_item().table_name(table).set_key(Some(row.clone()));
        match call("erase", table, emptied(update, &item).send()).await {
            Err(error) if error.kind() == ErrorKind::Conflict => patience.pause(error).await?,
            Err(error) => return Err(error),
            // Those that were there at the reading, and what a handler has completed since.
            Ok(_) => {
                let gone = parts::keys_of(&item);
                return parts::drop_parts(store.connection(), "erase", gone).await;
            }
        }
        let get = client.get_item().table_name(table).set_key(Some(row.clone()));
        let read = call("erase", table, get.consistent_read(true).send()).await?;
        // One that is gone meanwhile is erased.
        item = read.item.unwrap_or_default();
    }
    Ok(())
}

/// Both are written where the row has them, and only over what was read; where its result is in parts, it points to them
/// no more.
fn emptied(mut update: UpdateItemFluentBuilder, item: &Item) -> UpdateItemFluentBuilder {
    let (mut sets, mut conditions) = (Vec::new(), vec!["attribute_exists(pk)".to_owned()]);
    update = update.expression_attribute_names("#parts", PARTS);
    match item.get(PARTS) {
        None => conditions.push("attribute_not_exists(#parts)".to_owned()),
        Some(was) => {
            conditions.push("#parts = :parts_was".to_owned());
            update = update.expression_attribute_values(":parts_was", was.clone());
        }
    }
    let steps = steps_of(item).map(without_results);
    for (name, value) in [(RESULT, item.get(RESULT).map(|_| b(""))), (STEPS, steps)] {
        update = update.expression_attribute_names(format!("#{name}"), name);
        let Some((value, was)) = value.zip(item.get(name)) else {
            conditions.push(format!("attribute_not_exists(#{name})"));
            continue;
        };
        sets.push(format!("#{name} = :{name}"));
        conditions.push(format!("#{name} = :{name}_was"));
        update = update
            .expression_attribute_values(format!(":{name}"), value)
            .expression_attribute_values(format!(":{name}_was"), was.clone());
    }
    update
        .update_expression(match sets.is_empty() {
            true => "REMOVE #parts".to_owned(),
            false => format!("SET {} REMOVE #parts", sets.join(", ")),
        })
        .condition_expression(conditions.join(" AND "))
}

/// Whether a result, or that of a step, is more than that there is one.
fn says_something(item: &Item) -> bool {
    let full = |value: &AttributeValue| value.as_b().is_ok_and(|blob| !blob.as_ref().is_empty());
    item.contains_key(PARTS)
        || item.get(RESULT).is_some_and(full)
        || steps_of(item).is_some_and(|steps| steps.values().any(full))
}

/// One that is gone meanwhile is erased.
async fn write(update: UpdateItemFluentBuilder, table: String) -> Result<()> {
    match call("erase", &table, update.send()).await {
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
        other => other.map(drop),
    }
}

async fn write_down(store: &DynamoStore, key: &str, note: &Note, of: &Erasure) -> Result<()> {
    let subject = format!("key {key}: {} events, {} results", of.outbox, of.inbox);
    let mut patience = Patience::new();
    loop {
        let change = Change { note, what: "erase", subject: &subject };
        let actions = change.actions(store.connection(), "erase").await?;
        let table = &store.connection().names().store;
        match send(store.connection(), "erase", table, actions).await {
            Err(error) if Cancelled::of(&error).is_some() => patience.pause(error).await?,
            other => return other,
        }
    }
}

/// The dead letters among some events.
async fn dead_letters(store: &DynamoStore, places: &HashSet<Place>) -> Result<Vec<RowKey>> {
    let known = definitions::read(store.connection()).await?;
    let partitions = store.facts().await?.partitions;
    let of = |place: &Place| crate::record::partition_of(&place.pk, partitions);
    let concerned: HashSet<PartitionId> = places.iter().map(of).collect();
    let mut dead = Vec::new();
    for id in known.rows.iter().map(|row| &row.definition.id) {
        for partition in &concerned {
            let waiting = store.read_waiting(*partition, id).await?;
            let rows = waiting
                .rows()
                .filter(|row| row.state == WaitingState::Dead && places.contains(&row.place));
            dead.extend(rows.map(|row| RowKey { destination: id.clone(), seq: row.row.seq }));
        }
    }
    Ok(dead)
}

/// The events of the item collection that is named like a key. Nothing if there is none, or if it has events of
/// other keys: then the application names its collections itself, and the key's events may be anywhere. What has
/// no key is nobody else's.
async fn of_collection(store: &DynamoStore, key: &str) -> Result<Option<Vec<(Place, Item)>>> {
    let (mut events, mut before) = (Vec::new(), None::<String>);
    loop {
        let (page, more) = scan::collection(store, key, before.as_deref()).await?;
        let own = |item: &Item| ordering_key(item).is_none_or(|of| of == key);
        if !page.iter().all(|(_, item)| own(item)) {
            return Ok(None);
        }
        before = page.last().map(|(place, _)| place.sk.to_string());
        events.extend(page.into_iter().map(bare));
        if !more || before.is_none() {
            return Ok(Some(events).filter(|events| !events.is_empty()));
        }
    }
}

/// The events of a key, wherever they stand.
async fn of_table(store: &DynamoStore, key: &str) -> Result<Vec<(Place, Item)>> {
    let (mut events, mut from) = (Vec::new(), None);
    loop {
        let (page, next) = scan::all(store, from).await?;
        let of_key = page.into_iter().filter(|(_, i)| ordering_key(i).as_deref() == Some(key));
        events.extend(of_key.map(bare));
        from = next;
        if from.is_none() {
            return Ok(events);
        }
    }
}

/// An event without what it says: only that it says something is kept in memory.
fn bare((place, mut item): (Place, Item)) -> (Place, Item) {
    for said in ["payload", "headers"] {
        if let Some(value) = item.get_mut(said) {
            *value = b("");
        }
    }
    (place, item)
}

/// Looks for everything of a key.
async fn find(store: &DynamoStore, key: &str) -> Result<Found> {
    if key.is_empty() {
        let error = Error::new(ErrorKind::Invalid, "erase");
        return Err(error.message("no event has an empty key; nothing was changed"));
    }
    // Who says what names no source is known from here on.
    store.facts().await?;
    let events = match of_collection(store, key).await? {
        Some(events) => events,
        None => of_table(store, key).await?,
    };
    let (mut found, mut ids) = (Found::default(), HashSet::new());
    for (place, item) in events {
        if let Some(id) = text(&item, "id") {
            let source = text(&item, "source").unwrap_or(store.default_source());
            ids.insert((id.to_owned(), source.to_owned()));
        }
        found.all.insert(place.clone());
        if item.contains_key("payload") || item.contains_key("headers") {
            found.events.push(place);
        }
    }
    results(store, &ids, &mut found).await?;
    Ok(found)
}

/// The rows of the inbox that keep something of these events, and the parts of results beside them. With no event there
/// is nothing to look for.
async fn results(
    store: &DynamoStore,
    ids: &HashSet<(String, String)>,
    found: &mut Found,
) -> Result<()> {
    let table = &store.connection().names().inbox;
    let client = store.connection().tables().await;
    let mut from = None;
    while !ids.is_empty() {
        let scan =
            client.scan().table_name(table).consistent_read(true).set_exclusive_start_key(from);
        let page = call("erase", table, scan.send()).await?;
        let of = |item: &Item, name| text(item, name).unwrap_or_default().to_owned();
        let mut items = page.items.unwrap_or_default();
        items.retain(|item| ids.contains(&(of(item, EVENT_ID), of(item, SOURCE))));
        for item in items {
            match () {
                () if item.contains_key(PART) => found.parts.push(parts::key_of(&item)),
                () if says_something(&item) => found.inbox.push(item),
                () => {}
            }
        }
        from = page.last_evaluated_key;
        if from.is_none() {
            break;
        }
    }
    Ok(())
}
