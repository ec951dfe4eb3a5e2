//! The inbox as an operator sees it: pages of it, forgetting, and marking by hand.
//!
//! Rows are found by their whole name. A list, and a name without its source, read the table in its own order,
//! a bounded part of it. Invariants: nothing that a handler is at is touched: its sign of life is a condition of
//! the write, and its lease counts as over only when its own clock's end is well past; what is forgotten leaves
//! a tombstone with who and why; the token of a row that was ever claimed stays, so that an old worker is
//! refused; and results of steps stay, because they are effects that have happened.

use std::collections::BTreeSet;
use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, Delete, Put, TransactWriteItem, Update};
use postrider_core::operate::{Forgotten, InboxName, Marked, Note};
use postrider_core::{Error, ErrorKind, Event, InboxKey, Result};
use uuid::Uuid;

use crate::audit::Change;
use crate::connection::call;
use crate::control::key;
use crate::inbox::condition::expires;
use crate::inbox::parts;
use crate::inbox::row::{
    self, ANY_PAYLOAD, ATTEMPTS, BEAT, CLAIMED, DURATION, EVENT_ID, EXPIRES_AT, HANDLER, HASH,
    PARTS, PROCESSED, PROCESSED_AT, RECEIVED_AT, RELEASED, RESULT, SOURCE, STATUS, STEPS, TOKEN,
    TOO_LARGE, TYPE, UNTIL,
};
use crate::item::{Item, b, n, number, s, text, truth};
use crate::store::{DynamoStore, now_ms};
use crate::tables::built;
use crate::transaction::{Cancelled, Patience, put, send};

/// The state of a tombstone.
pub(super) const FORGOTTEN: &str = "forgotten";
/// When it was forgotten, in milliseconds.
pub(super) const FORGOTTEN_AT: &str = "forgotten_at";

/// So long after the end that a holder named by its own clock, a lease counts as over: clocks differ.
const SKEW: Duration = Duration::from_secs(60);

/// Items that are looked at for a name without its source.
const FIND_MAX: usize = 100_000;

/// Forgets that a handler was done with an event.
pub(super) async fn forget(
    store: &DynamoStore,
    name: &InboxName,
    note: &Note,
) -> Result<Forgotten> {
    let mut patience = Patience::new();
    loop {
        let Some((key, item)) = find(store, "forget", name).await? else {
            return Ok(Forgotten::Unknown);
        };
        if let Some(left) = lease_left(&item) {
            return Ok(Forgotten::Leased { left });
        }
        let was = text(&item, STATUS).unwrap_or_default().to_owned();
        let mut actions = vec![released(store, &key, &item)?, tombstone(store, &key, &item, note)?];
        let subject =
            format!("event {} of {} for {} (was {was})", key.event_id, key.source, key.handler);
        let change = Change { note, what: "inbox forget", subject: &subject };
        actions.extend(change.actions(store.connection(), "forget").await?);
        let table = &store.connection().names().inbox;
        match send(store.connection(), "forget", table, actions).await {
            Ok(()) => {
                // The row is forgotten, whatever becomes of these: nothing points to them, and they expire.
                let keys = parts::keys_of(&item);
                if let Err(error) = parts::drop_parts(store.connection(), "forget", keys).await {
                    tracing::warn!(event = %key.event_id, handler = %key.handler, %error,
                        "the event is forgotten, and parts of its result are left until they expire");
                }
                return Ok(Forgotten::Forgotten);
            }
            Err(error) if Cancelled::of(&error).is_some() => patience.pause(error).await?,
            Err(error) => return Err(error),
        }
    }
}

/// Records that a handler is done with an event, because a person did its work.
pub(super) async fn mark(store: &DynamoStore, name: &InboxName, note: &Note) -> Result<Marked> {
    let mut patience = Patience::new();
    loop {
        let found = find(store, "mark processed", name).await?;
        let (key, action) = match &found {
            Some((_, item)) if text(item, STATUS) == Some(PROCESSED) => return Ok(Marked::Already),
            Some((key, item)) => {
                if let Some(left) = lease_left(item) {
                    return Ok(Marked::Leased { left });
                }
                (key.clone(), processed(store, key, item)?)
            }
            None => {
                let source = name.source.as_deref().ok_or_else(|| {
                    Error::new(ErrorKind::Invalid, "mark processed")
                        .message("the inbox does not know the event: name its source as well")
                        .context("event", name.event_id)
                })?;
                let key = named(name, source)?;
                let action = made(store, &key)?;
                (key, action)
            }
        };
        let mut actions = vec![action];
        let subject = format!("event {} of {} for {}", key.event_id, key.source, key.handler);
        let change = Change { note, what: "inbox mark-processed", subject: &subject };
        actions.extend(change.actions(store.connection(), "mark processed").await?);
        let table = &store.connection().names().inbox;
        match send(store.connection(), "mark processed", table, actions).await {
            Ok(()) => return Ok(Marked::Marked),
            Err(error) if Cancelled::of(&error).is_some() => patience.pause(error).await?,
            Err(error) => return Err(error),
        }
    }
}

fn named(name: &InboxName, source: &str) -> Result<InboxKey> {
    let mut event = Event::new(name.event_id, "", "", "");
    event.source = source.into();
    InboxKey::of(&event, &name.handler)
}

/// How long a row may not be touched: its holder's lease, and what clocks may differ.
fn lease_left(item: &Item) -> Option<Duration> {
    if text(item, STATUS) != Some(CLAIMED) || truth(item, RELEASED) {
        return None;
    }
    let until: i64 = number(item, UNTIL)?;
    let skew = i64::try_from(SKEW.as_millis()).unwrap_or(i64::MAX);
    let left = until.saturating_add(skew).saturating_sub(now_ms());
    u64::try_from(left).ok().filter(|left| *left > 0).map(Duration::from_millis)
}

/// The row of a name.
async fn find(
    store: &DynamoStore,
    operation: &'static str,
    name: &InboxName,
) -> Result<Option<(InboxKey, Item)>> {
    let sources = match &name.source {
        Some(source) => BTreeSet::from([source.clone()]),
        None => sources(store, operation, name).await?,
    };
    if sources.len() > 1 {
        let names = sources.into_iter().collect::<Vec<_>>().join(", ");
        return Err(Error::new(ErrorKind::Invalid, operation)
            .message("several sources have this event id; nothing was changed: name one")
            .context("sources", names));
    }
    let Some(source) = sources.first() else { return Ok(None) };
    let key = named(name, source)?;
    let table = &store.connection().names().inbox;
    let client = store.connection().tables().await;
    let get =
        client.get_item().table_name(table).set_key(Some(row::key(&key))).consistent_read(true);
    Ok(call(operation, table, get.send()).await?.item.map(|item| (key, item)))
}

/// The sources that have a row of this event and handler.
async fn sources(
    store: &DynamoStore,
    operation: &'static str,
    name: &InboxName,
) -> Result<BTreeSet<String>> {
    let table = &store.connection().names().inbox;
    let client = store.connection().tables().await;
    let (mut sources, mut from, mut looked) = (BTreeSet::new(), None, 0);
    while looked < FIND_MAX {
        let scan = client
            .scan()
            .table_name(table)
            .consistent_read(true)
            .filter_expression("#event = :event AND #handler = :handler AND #status <> :forgotten")
            .expression_attribute_names("#event", EVENT_ID)
            .expression_attribute_names("#handler", HANDLER)
            .expression_attribute_names("#status", STATUS)
            .expression_attribute_values(":event", s(name.event_id.to_string()))
            .expression_attribute_values(":handler", s(name.handler.as_str()))
            .expression_attribute_values(":forgotten", s(FORGOTTEN))
            .set_exclusive_start_key(from);
        let page = call(operation, table, scan.send()).await?;
        looked += usize::try_from(page.scanned_count).unwrap_or_default();
        let items = page.items.unwrap_or_default();
        sources.extend(items.iter().filter_map(|item| text(item, SOURCE).map(str::to_owned)));
        from = page.last_evaluated_key;
        if from.is_none() {
            return Ok(sources);
        }
    }
    Err(Error::new(ErrorKind::Invalid, operation).message(format!(
        "the inbox has more than {FIND_MAX} rows, and the event is found by its source alone; nothing was \
         changed: name it"
    )))
}

/// The condition that a row is as it was read.
fn unchanged(mut update: aws_sdk_dynamodb::types::builders::UpdateBuilder, item: &Item) -> Update {
    let mut condition = "#status = :was".to_owned();
    update = update
        .expression_attribute_names("#status", STATUS)
        .expression_attribute_values(":was", s(text(item, STATUS).unwrap_or_default()));
    for (name, place, value) in [(TOKEN, "token", ":token"), (BEAT, "beat", ":beat_was")] {
        let Some(stored) = item.get(name) else { continue };
        condition.push_str(&format!(" AND #{place} = {value}"));
        update = update
            .expression_attribute_names(format!("#{place}"), name)
            .expression_attribute_values(value, stored.clone());
    }
    update.condition_expression(condition).build().expect("invariant: table, key, and expression")
}

/// The row as one whose claim was let go. What a person had marked and nobody ever claimed goes.
fn released(store: &DynamoStore, key: &InboxKey, item: &Item) -> Result<TransactWriteItem> {
    let table = &store.connection().names().inbox;
    if item.get(HASH) == Some(&b(ANY_PAYLOAD)) {
        let delete = Delete::builder()
            .table_name(table)
            .set_key(Some(row::key(key)))
            .condition_expression("#status = :was AND attribute_not_exists(#token)")
            .expression_attribute_names("#status", STATUS)
            .expression_attribute_names("#token", TOKEN)
            .expression_attribute_values(":was", s(PROCESSED));
        return Ok(TransactWriteItem::builder().delete(built(delete.build())?).build());
    }
    let update = Update::builder()
        .table_name(table)
        .set_key(Some(row::key(key)))
        .update_expression(
            "SET #status = :claimed, #released = :yes, #beat = :beat, #duration = :none, #until = :now, \
             #steps = if_not_exists(#steps, :empty) REMOVE #done, #expires, #result, #large, #parts",
        )
        .expression_attribute_names("#released", RELEASED)
        .expression_attribute_names("#beat", BEAT)
        .expression_attribute_names("#duration", DURATION)
        .expression_attribute_names("#until", UNTIL)
        .expression_attribute_names("#steps", STEPS)
        .expression_attribute_names("#done", PROCESSED_AT)
        .expression_attribute_names("#expires", EXPIRES_AT)
        .expression_attribute_names("#result", RESULT)
        .expression_attribute_names("#large", TOO_LARGE)
        .expression_attribute_names("#parts", PARTS)
        .expression_attribute_values(":claimed", s(CLAIMED))
        .expression_attribute_values(":yes", AttributeValue::Bool(true))
        .expression_attribute_values(":beat", s(Uuid::now_v7().simple().to_string()))
        .expression_attribute_values(":none", n(0))
        .expression_attribute_values(":now", n(now_ms()))
        .expression_attribute_values(":empty", AttributeValue::M(Item::new()));
    Ok(TransactWriteItem::builder().update(unchanged(update, item)).build())
}

/// A row that nobody holds, as done. The token grows, so that a worker that comes back is refused.
fn processed(store: &DynamoStore, key: &InboxKey, item: &Item) -> Result<TransactWriteItem> {
    let kept = expires(now_ms(), store.options().inbox.retention);
    let token: u64 = number(item, TOKEN).unwrap_or_default();
    let update = Update::builder()
        .table_name(&store.connection().names().inbox)
        .set_key(Some(row::key(key)))
        .update_expression(
            "SET #status = :processed, #done = :now, #expires = :kept, #token = :next \
             REMOVE #beat, #duration, #until, #released",
        )
        .expression_attribute_names("#done", PROCESSED_AT)
        .expression_attribute_names("#expires", EXPIRES_AT)
        .expression_attribute_names("#token", TOKEN)
        .expression_attribute_names("#beat", BEAT)
        .expression_attribute_names("#duration", DURATION)
        .expression_attribute_names("#until", UNTIL)
        .expression_attribute_names("#released", RELEASED)
        .expression_attribute_values(":processed", s(PROCESSED))
        .expression_attribute_values(":now", n(now_ms()))
        .expression_attribute_values(":kept", n(kept))
        .expression_attribute_values(":next", n(token + 1));
    Ok(TransactWriteItem::builder().update(unchanged(update, item)).build())
}

/// A row that a person makes.
fn made(store: &DynamoStore, name: &InboxKey) -> Result<TransactWriteItem> {
    let now = now_ms();
    let mut item = row::key(name);
    let attributes = [
        (SOURCE, s(&*name.source)),
        (EVENT_ID, s(name.event_id.to_string())),
        (HANDLER, s(name.handler.as_str())),
        (TYPE, s("")),
        (STATUS, s(PROCESSED)),
        (HASH, b(ANY_PAYLOAD)),
        (ATTEMPTS, n(0)),
        (RECEIVED_AT, n(now)),
        (PROCESSED_AT, n(now)),
        (EXPIRES_AT, n(expires(now, store.options().inbox.retention))),
    ];
    item.extend(attributes.map(|(name, value)| (name.to_owned(), value)));
    let put = put(&store.connection().names().inbox, item)
        .condition_expression("attribute_not_exists(pk)");
    Ok(TransactWriteItem::builder().put(built(put.build())?).build())
}

/// That a row was forgotten, by whom, and why.
fn tombstone(
    store: &DynamoStore,
    name: &InboxKey,
    item: &Item,
    note: &Note,
) -> Result<TransactWriteItem> {
    let now = now_ms();
    let pk = format!("{FORGOTTEN}#{}#{}#{}", name.event_id, name.handler, name.source);
    let mut stone = key(&pk, &Uuid::now_v7().simple().to_string());
    for kept in [SOURCE, EVENT_ID, HANDLER, TYPE, ATTEMPTS, RECEIVED_AT] {
        stone.extend(item.get(kept).map(|value| (kept.to_owned(), value.clone())));
    }
    let attributes = [
        (STATUS, s(FORGOTTEN)),
        (FORGOTTEN_AT, n(now)),
        ("forgotten_by", s(format!("{}: {}", note.who, note.why))),
        (EXPIRES_AT, n(expires(now, store.options().inbox.retention))),
    ];
    stone.extend(attributes.map(|(name, value)| (name.to_owned(), value)));
    let put = Put::builder().table_name(&store.connection().names().inbox).set_item(Some(stone));
    Ok(TransactWriteItem::builder().put(built(put.build())?).build())
}
