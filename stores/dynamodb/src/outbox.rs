//! The write side: items to put into the application's own transactions.
//!
//! Invariants: an event's item is written with the change or not at all; and an event's number follows its
//! key's last one without a gap, because the transaction that draws it moves the key's head under a
//! condition. So writers of one key conflict, and of two that overlap one begins again.

use std::collections::BTreeMap;
use std::fmt;

use aws_sdk_dynamodb::types::{Put, TransactWriteItem, Update};
use postrider_core::{Error, ErrorKind, EventId, EventLimits, NewEvent, Result, Timestamp};

use crate::connection::{Connection, call};
use crate::control::{Facts, facts};
use crate::item::{Item, n, number};
use crate::record::{EVENT, HEAD, Place, encode, numbered_sk, partition_of};
use crate::stamp::Stamp;
use crate::tables::built;
use crate::transaction::{Cancelled, Patience, send};

/// The outbox of a store, for producers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Outbox {
    connection: Connection,
    facts: Facts,
    limits: EventLimits,
    ordered: bool,
}

/// An event of this id is there already. The source of an error, where [`Duplicate::of`] finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duplicate(pub EventId);

impl Duplicate {
    /// The duplicate that an error tells of, if it does.
    pub fn of(error: &Error) -> Option<Duplicate> {
        std::error::Error::source(error)?.downcast_ref().copied()
    }
}

impl fmt::Display for Duplicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {} is there already", self.0)
    }
}

impl std::error::Error for Duplicate {}

/// Events as actions of a transaction.
#[derive(Clone, Default)]
#[must_use = "an event whose actions are not sent in a transaction never happened"]
pub struct Staged {
    puts: Vec<(EventId, TransactWriteItem)>,
    heads: Vec<TransactWriteItem>,
}

/// The events by their ids: what they say is nobody's who prints them.
impl fmt::Debug for Staged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let events: Vec<&EventId> = self.puts.iter().map(|(id, _)| id).collect();
        f.debug_struct("Staged").field("events", &events).field("heads", &self.heads.len()).finish()
    }
}

impl Staged {
    /// The actions: a put for each event, then the heads of their keys.
    pub fn into_actions(self) -> Vec<TransactWriteItem> {
        self.puts.into_iter().map(|(_, put)| put).chain(self.heads).collect()
    }
}

impl Outbox {
    /// The outbox of a store that is there.
    ///
    /// # Errors
    /// `SchemaMissing` if it is not there, and whatever the service says.
    pub async fn open(connection: &Connection) -> Result<Outbox> {
        let facts = facts(connection).await?;
        let limits = EventLimits::default();
        Ok(Outbox { connection: connection.clone(), facts, limits, ordered: true })
    }

    /// The same for events that need no order: no number is drawn and no head is written, so writers of
    /// one key do not conflict, and an event's id is its place: a second one of the same key is refused.
    /// All producers of a table should say the same.
    #[must_use]
    pub fn unordered(mut self) -> Outbox {
        self.ordered = false;
        self
    }

    /// With other limits than the default ones.
    #[must_use]
    pub fn with_limits(mut self, limits: EventLimits) -> Outbox {
        self.limits = limits;
        self
    }

    /// Stages events, each in the item collection of its ordering key, with the numbers that follow what
    /// is there now: one read for each key. Whoever sends the actions with their own begins again when
    /// the condition of a head does not hold.
    ///
    /// # Errors
    /// `Invalid` or `TooLarge` for an event that breaks a rule; whatever the service says.
    pub async fn stage(&self, events: &[NewEvent]) -> Result<Staged> {
        let keyed = events.iter().map(|event| (event.key(), event));
        self.stage_in(keyed.collect()).await
    }

    /// The same in an item collection of the application's table, whatever the ordering key. All events
    /// of a key belong in one collection: it is what is kept in order.
    ///
    /// # Errors
    /// As [`stage`](Self::stage).
    pub async fn stage_under(&self, pk: &str, events: &[NewEvent]) -> Result<Staged> {
        let keyed = events.iter().map(|event| (pk.to_owned(), event));
        self.stage_in(keyed.collect()).await
    }

    async fn stage_in(&self, keyed: Vec<(String, &NewEvent)>) -> Result<Staged> {
        let mut staged = Staged::default();
        if !self.ordered {
            for (pk, event) in keyed {
                let sk = format!("{EVENT}{}", event.event().id);
                staged.puts.push(self.put(&pk, &sk, event)?);
            }
            return Ok(staged);
        }
        let mut keys: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (pk, _) in &keyed {
            if !keys.contains_key(&**pk) {
                let last = self.last(pk).await?;
                keys.insert(pk, (last, last));
            }
        }
        for (pk, event) in &keyed {
            let (_, last) = keys.get_mut(&**pk).expect("invariant: every key was read");
            *last += 1;
            staged.puts.push(self.put(pk, &numbered_sk(*last), event)?);
        }
        for (pk, (from, to)) in keys {
            staged.heads.push(self.head(pk, from, to)?);
        }
        Ok(staged)
    }

    /// An event with a number that the application draws itself, such as the version of the business item
    /// that it writes in the same transaction under a condition: then there is no head. The numbers of an
    /// item collection are 1, 2, 3, without a gap.
    ///
    /// # Errors
    /// `Invalid` or `TooLarge` for an event that breaks a rule.
    pub fn stage_numbered(
        &self,
        pk: &str,
        number: u64,
        event: &NewEvent,
    ) -> Result<TransactWriteItem> {
        Ok(self.put(pk, &numbered_sk(number), event)?.1)
    }

    /// The attributes with which a write of a business item is an event by itself, without an item in the outbox:
    /// the relay makes the event of the item, by its [`Derivation`](crate::Derivation). The item stands in the
    /// outbox's table, and is written with its stamp by any means: a transaction, a put, an update. Versions that
    /// are overwritten before they are published are **merged into the newest**, and a deletion is no event.
    ///
    /// The version is the item's own: its writer counts it up, best under a condition.
    ///
    /// # Errors
    /// `Invalid` for a sort key that is the outbox's own, and for the version 0.
    pub fn stamp(&self, pk: &str, sk: &str, version: u64) -> Result<Stamp> {
        Stamp::new(&Place::new(pk, sk), partition_of(pk, self.facts.partitions), version)
    }

    /// Writes the application's actions and the events in one transaction, and begins again while another
    /// writer draws the same numbers.
    ///
    /// # Errors
    /// `Conflict` if a condition of the application's does not hold: neither its items nor the events were
    /// written, and [`Cancelled`] names the action by its place in `actions`. With [`Duplicate`] if an
    /// event is there already, which only [`unordered`](Self::unordered) can say: with numbers an event's id is
    /// not its place, and one that is written twice has two items. `TooLarge` for what the service would
    /// refuse, before the call. `Busy` if others were in the way for too long. `Corrupt` if a key's head is
    /// behind its events: no try will pass until the head is mended. `Timeout` or `Unavailable` if it is not
    /// known whether it was written: the event's id finds it, and a second item of the same event is absorbed
    /// by the inbox, by its id.
    pub async fn write(&self, actions: &[TransactWriteItem], events: &[NewEvent]) -> Result<()> {
        let keyed: Vec<_> = events.iter().map(|event| (event.key(), event)).collect();
        self.write_in(actions, keyed).await
    }

    /// The same in an item collection of the application's table.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_under(
        &self,
        pk: &str,
        actions: &[TransactWriteItem],
        events: &[NewEvent],
    ) -> Result<()> {
        let keyed: Vec<_> = events.iter().map(|event| (pk.to_owned(), event)).collect();
        self.write_in(actions, keyed).await
    }

    async fn write_in(
        &self,
        actions: &[TransactWriteItem],
        keyed: Vec<(String, &NewEvent)>,
    ) -> Result<()> {
        let mut patience = Patience::new();
        let mut refused: Option<Place> = None;
        loop {
            let staged = self.stage_in(keyed.clone()).await?;
            let ids: Vec<EventId> = staged.puts.iter().map(|(id, _)| *id).collect();
            let places = self.places(&staged);
            let all = actions.iter().cloned().chain(staged.into_actions()).collect();
            let table = &self.connection.names().outbox;
            let Err(error) = send(&self.connection, "enqueue", table, all).await else {
                return Ok(());
            };
            let Some(told) = Cancelled::of(&error) else { return Err(unknown(error, &ids)) };
            let first = told.conditions().next();
            match first {
                Some(index) if index < actions.len() => return Err(error),
                Some(index) if !self.ordered => {
                    let id = ids[index - actions.len()];
                    return Err(Error::new(ErrorKind::Conflict, "enqueue")
                        .message("the event is there already; nothing was written")
                        .context("event", id)
                        .source(Duplicate(id)));
                }
                Some(index) => {
                    // Another writer drew the number, and moved the head, which says the next one. But where
                    // the head stands as it was read, and does so again, nobody moves it.
                    let mut heads = told.refusals.iter().skip(actions.len() + ids.len());
                    let stands = heads.all(Option::is_none);
                    let place = places.get(index - actions.len()).filter(|_| stands).cloned();
                    match place {
                        Some(place) if refused.as_ref() == Some(&place) => {
                            return Err(behind(error, &place));
                        }
                        place => refused = place,
                    }
                    patience.pause(busy(error)).await?;
                }
                None if told.is_passing() => patience.pause(error).await?,
                None => return Err(error),
            }
        }
    }

    /// Where the events of what is staged are to stand, in their order.
    fn places(&self, staged: &Staged) -> Vec<Place> {
        let names = self.connection.names();
        let puts = staged.puts.iter().filter_map(|(_, action)| action.put());
        puts.filter_map(|put| Place::of(put.item(), names)).collect()
    }

    /// The attributes of an event of a number in an item collection, for a producer that puts it by other
    /// means.
    ///
    /// # Errors
    /// `Invalid` or `TooLarge` for an event that breaks a rule.
    pub fn item(&self, pk: &str, number: u64, event: &NewEvent) -> Result<Item> {
        let (_, action) = self.put(pk, &numbered_sk(number), event)?;
        Ok(action.put.map(|put| put.item).unwrap_or_default())
    }

    /// The number of the newest event of an item collection; 0 where there is none.
    async fn last(&self, pk: &str) -> Result<u64> {
        let names = self.connection.names();
        let client = self.connection.tables().await;
        let get = client
            .get_item()
            .table_name(&names.outbox)
            .set_key(Some(Place::new(pk, HEAD).key(names)))
            .consistent_read(true);
        let answer = call("enqueue", &names.outbox, get.send()).await?;
        let Some(head) = answer.item else { return Ok(0) };
        number(&head, "n").ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, "enqueue")
                .message("the key's head has no number; nothing was written")
                .context("key", pk)
        })
    }

    fn put(&self, pk: &str, sk: &str, event: &NewEvent) -> Result<(EventId, TransactWriteItem)> {
        if event.due().is_some() {
            return Err(Error::new(ErrorKind::Invalid, "enqueue")
                .message("events cannot be scheduled in DynamoDB; nothing was written"));
        }
        let mut event = event.event().clone();
        self.limits.check(&event)?;
        if let postrider_core::Payload::Json(json) = &event.payload {
            postrider_core::Payload::json(String::from_utf8_lossy(json))?;
        }
        event.created_at = Timestamp::now();
        let names = self.connection.names();
        let place = Place::new(pk, sk);
        let item = encode(&event, &place, names, partition_of(pk, self.facts.partitions));
        let put = Put::builder()
            .table_name(&names.outbox)
            .set_item(Some(item))
            .condition_expression("attribute_not_exists(#pk)")
            .expression_attribute_names("#pk", &names.pk);
        Ok((event.id, TransactWriteItem::builder().put(built(put.build())?).build()))
    }

    /// Moves a key's head, if nobody else did.
    fn head(&self, pk: &str, from: u64, to: u64) -> Result<TransactWriteItem> {
        let names = self.connection.names();
        let mut update = Update::builder()
            .table_name(&names.outbox)
            .set_key(Some(Place::new(pk, HEAD).key(names)))
            .update_expression("SET #n = :to")
            .expression_attribute_names("#n", "n")
            .expression_attribute_values(":to", n(to));
        update = match from {
            0 => update.condition_expression("attribute_not_exists(#n)"),
            _ => update
                .condition_expression("#n = :from")
                .expression_attribute_values(":from", n(from)),
        };
        Ok(TransactWriteItem::builder().update(built(update.build())?).build())
    }
}

fn busy(error: Error) -> Error {
    Error::new(ErrorKind::Busy, "enqueue")
        .message("other writers of the same key were in the way; nothing was written")
        .source(error)
}

/// The number after the head's has an item already.
fn behind(error: Error, place: &Place) -> Error {
    Error::new(ErrorKind::Corrupt, "enqueue")
        .message(
            "the key's head is behind the key's events; nothing was written, and no later try will be. The head item \
             was deleted, or not restored with the others, or `stage_numbered` is used for the key beside `write`: \
             set the head's `n` to the key's greatest number, or use one of the two",
        )
        .context("key", &place.pk)
        .context("taken", place.n().unwrap_or_default())
        .source(error)
}

/// An answer that does not say whether the transaction was carried out.
fn unknown(error: Error, events: &[EventId]) -> Error {
    if !matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable) {
        return error;
    }
    let mut told = Error::new(error.kind(), "enqueue").message(
        "no answer says whether the transaction was carried out: look for the event by its id. Written again, it \
         may have two items where numbers are drawn, and the inbox absorbs the second by its id",
    );
    if let Some(first) = events.first() {
        told = told.context("event", first).context("events", events.len());
    }
    told.source(error)
}
