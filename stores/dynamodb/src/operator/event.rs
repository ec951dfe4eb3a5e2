//! Events of the outbox: pages of them, and one with everything that is known of it.
//!
//! Nothing is indexed for people: every producer would pay for it. So a key's events come from one query,
//! newest first; what is pending comes from the index, newest first; and everything else from a reading of
//! the table in its own order. Invariant: one call looks at a bounded number of items, and says where the
//! next goes on.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use postrider_core::operate::listing::{self, Fields, Gathering};
use postrider_core::operate::{EventDetail, EventView, Filter, Listed, PageRequest, Status};
use postrider_core::{Error, ErrorKind, EventId, PartitionId, Result, Timestamp};

use super::delivery::Deliveries;
use super::scan::{self, LOOKED_MAX};
use super::waiting::ordering_key;
use crate::collection::single;
use crate::item::{Item, number, text};
use crate::record::{Place, decode, pending_in, unrouted_in};
use crate::store::DynamoStore;
use crate::{derived, index};

/// Items that are read at once.
const ITEMS_AT_ONCE: usize = 32;

/// The items of places, in their order; nothing for one that is gone.
pub(super) async fn items<'a>(
    store: &DynamoStore,
    operation: &'static str,
    places: impl Iterator<Item = &'a Place>,
) -> Result<Vec<Option<Item>>> {
    let connection = store.connection();
    let read = |place: &'a Place| async move {
        let item = single(connection, operation, place).await?;
        Ok(item.and_then(|item| derived::shown(store, place, item)))
    };
    let reads = places.map(read).collect::<Vec<_>>();
    stream::iter(reads).buffered(ITEMS_AT_ONCE).try_collect().await
}

/// Where a page ended.
#[derive(Debug, PartialEq)]
enum After {
    /// In the collection of a key.
    Key(String),
    /// In the index, at a moment in milliseconds, before a place of it.
    Pending(u64, Place),
    /// In the table, behind a place; at its front where there is none.
    Table(Option<Place>),
}

impl After {
    fn written(&self) -> String {
        match self {
            After::Key(sk) => format!("k{sk}"),
            After::Pending(at, place) => format!("p{at}\0{}\0{}", place.pk, place.sk),
            After::Table(None) => "t".to_owned(),
            After::Table(Some(place)) => format!("t{}\0{}", place.pk, place.sk),
        }
    }

    fn read(text: &str) -> Result<After> {
        let of = |rest: &str| rest.rsplit_once('\0').map(|(pk, sk)| Place::new(pk, sk));
        let read = || match text.split_at_checked(1)? {
            ("k", sk) => Some(After::Key(sk.to_owned())),
            ("p", rest) => {
                let (at, place) = rest.split_once('\0')?;
                Some(After::Pending(at.parse().ok()?, of(place)?))
            }
            ("t", "") => Some(After::Table(None)),
            ("t", place) => Some(After::Table(Some(of(place)?))),
            _ => None,
        };
        read().ok_or_else(|| listing::misplaced("events", text))
    }
}

/// A page of events.
pub(super) async fn list(
    store: &DynamoStore,
    filter: &Filter,
    page: &PageRequest,
) -> Result<Listed<EventView>> {
    let mut listing = Listing {
        store,
        filter,
        deliveries: Deliveries::read(store).await?,
        gathering: Gathering::new(page.check()?),
        looked: 0,
    };
    let after = page.after.as_deref().map(After::read).transpose()?;
    if let Some(id) = filter.id {
        if let Some((place, item)) = scan::find(store, "events", id).await? {
            listing.take(&place, &item, After::Table(None)).await?;
        }
        return Ok(listing.gathering.end());
    }
    match (after, &filter.key) {
        (None, Some(key)) => {
            if scan::has_events(store, key).await? {
                listing.of_key(key, None).await
            } else {
                // A key whose events stand in a collection of the application's.
                listing.of_table(None).await
            }
        }
        (Some(After::Key(sk)), Some(key)) => listing.of_key(key, Some(sk)).await,
        (None, None) => listing.pending(None).await,
        (Some(After::Pending(at, place)), None) => listing.pending(Some((at, place))).await,
        (Some(After::Table(place)), _) => listing.of_table(place).await,
        (Some(other), _) => Err(listing::misplaced("events", &other.written())),
    }
}

struct Listing<'a> {
    store: &'a DynamoStore,
    filter: &'a Filter,
    deliveries: Deliveries<'a>,
    gathering: Gathering<EventView>,
    looked: usize,
}

impl Listing<'_> {
    /// Takes an event into the page if the filter lets it through; whether there was room.
    async fn take(&mut self, place: &Place, item: &Item, at: After) -> Result<bool> {
        self.looked += 1;
        let Some(view) = self.view(place, item).await? else { return Ok(true) };
        if self.gathering.is_full() {
            return Ok(false);
        }
        self.gathering.push(view, at.written());
        Ok(true)
    }

    /// An event as a person sees it, if the filter lets it through.
    async fn view(&mut self, place: &Place, item: &Item) -> Result<Option<EventView>> {
        let decoded = decode(item, place, self.store.default_source());
        let of = |name: &str| text(item, name).unwrap_or_default();
        let key = ordering_key(item).unwrap_or_else(|| place.pk.to_string());
        let created_at = number(item, "created_at").map(Timestamp::from_micros);
        let fields = Fields {
            id: Some(decoded.id),
            // Who names a collection of the application's means all that is in it.
            key: self.filter.key.as_deref().filter(|key| **key == *place.pk).unwrap_or(&key),
            event_type: of("event_type"),
            aggregate_type: of("aggregate_type"),
            tenant: text(item, "tenant"),
            created_at,
        };
        if !fields.pass(self.filter) {
            return Ok(None);
        }
        let deliveries = self.deliveries.of(item, place).await?;
        let filter = self.filter;
        if listing::asks_for_delivery(filter)
            && !deliveries.iter().any(|delivery| listing::delivery_passes(filter, delivery))
        {
            return Ok(None);
        }
        Ok(Some(EventView {
            seq: self.deliveries.seq(item, place),
            id: decoded.id,
            event_type: of("event_type").to_owned(),
            key,
            tenant: text(item, "tenant").map(str::to_owned),
            created_at: created_at.unwrap_or_default(),
            payload_bytes: decoded.event.map_or(0, |event| event.payload.len() as u64),
            deliveries,
        }))
    }

    /// The events of a collection, newest first.
    async fn of_key(mut self, key: &str, mut before: Option<String>) -> Result<Listed<EventView>> {
        loop {
            let (found, more) = scan::collection(self.store, key, before.as_deref()).await?;
            for (place, item) in &found {
                let at = After::Key(place.sk.to_string());
                if !self.take(place, item, at).await? {
                    return Ok(self.gathering.more());
                }
            }
            before = found.last().map(|(place, _)| place.sk.to_string()).or(before);
            match before.as_ref().filter(|_| more) {
                None => return Ok(self.gathering.end()),
                Some(sk) if self.looked >= LOOKED_MAX => {
                    return Ok(self.gathering.more_after(After::Key(sk.clone()).written()));
                }
                Some(_) => {}
            }
        }
    }

    /// What is pending, newest first; then, if it may be asked for, the table.
    async fn pending(mut self, mut before: Option<(u64, Place)>) -> Result<Listed<EventView>> {
        loop {
            let found = self.newest(before.as_ref()).await?;
            let Some(last) = found.last().cloned() else { break };
            let read = items(self.store, "events", found.iter().map(|(_, place)| place)).await?;
            for ((at, place), item) in found.iter().zip(read) {
                // One that is gone from the index by now is found in the table.
                let Some(item) = item.filter(|item| item.contains_key(crate::record::SHARD)) else {
                    continue;
                };
                let end = After::Pending(*at, place.clone());
                if !self.take(place, &item, end).await? {
                    return Ok(self.gathering.more());
                }
            }
            if self.looked >= LOOKED_MAX {
                return Ok(self.gathering.more_after(After::Pending(last.0, last.1).written()));
            }
            before = Some(last);
        }
        let wanted = &self.filter.status;
        if !wanted.is_empty() && wanted.iter().all(|status| *status == Status::Pending) {
            return Ok(self.gathering.end());
        }
        self.of_table(None).await
    }

    /// The next entries of the index before a place of it, newest first.
    async fn newest(&self, before: Option<&(u64, Place)>) -> Result<Vec<(u64, Place)>> {
        let partitions = self.store.facts().await?.partitions;
        let wanted = self.gathering.wanted().clamp(1, ITEMS_AT_ONCE * 8);
        let mut all = Vec::new();
        for partition in (0..partitions).map(PartitionId) {
            for shard in [pending_in(partition), unrouted_in(partition)] {
                let (connection, derives) = (self.store.connection(), self.store.derives());
                all.extend(index::before(connection, &shard, before, wanted, derives).await?);
            }
        }
        all.sort_by(|a, b| b.cmp(a));
        all.truncate(wanted);
        Ok(all)
    }

    /// What is not pending, in the table's own order.
    async fn of_table(mut self, mut after: Option<Place>) -> Result<Listed<EventView>> {
        loop {
            let page = scan::page(self.store, after.as_ref()).await?;
            for (place, item) in &page.events {
                let at = After::Table(Some(place.clone()));
                if !self.take(place, item, at).await? {
                    return Ok(self.gathering.more());
                }
            }
            self.looked += page.looked;
            after = page.next;
            match &after {
                None => return Ok(self.gathering.end()),
                Some(place) if self.looked >= LOOKED_MAX => {
                    let end = After::Table(Some(place.clone()));
                    return Ok(self.gathering.more_after(end.written()));
                }
                Some(_) => {}
            }
        }
    }
}

/// One event with everything that is known of it.
pub(super) async fn detail(store: &DynamoStore, id: EventId) -> Result<EventDetail> {
    let found = scan::find(store, "event", id).await?;
    let (place, item) = found.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "event")
            .message(
                "there is no event of this id; published ones expire by the table's time to live",
            )
            .context("event", id)
    })?;
    let event = decode(&item, &place, store.default_source()).event.map_err(|malformed| {
        Error::new(ErrorKind::Corrupt, "event")
            .message(format!(
                "the item is there and cannot be read as an event: {}; nothing was changed",
                malformed.detail
            ))
            .context("pk", place.pk.escape_debug())
            .context("sk", place.sk.escape_debug())
    })?;
    let mut deliveries = Deliveries::read(store).await?;
    Ok(EventDetail {
        seq: Some(deliveries.seq(&item, &place)),
        event: event.as_ref().clone(),
        due: None,
        behind: deliveries.behind(&item, &place).await?,
        deliveries: deliveries.of(&item, &place).await?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_page_is_read_as_it_was_written() {
        let place = Place::new("a\0b", "OUTBOX#1");
        for after in [
            After::Key("OUTBOX#7".to_owned()),
            After::Pending(7, place.clone()),
            After::Table(Some(place)),
            After::Table(None),
        ] {
            assert_eq!(After::read(&after.written()).unwrap(), after);
        }
        for wrong in ["", "x", "p7", "pz\0a\0b", "\u{e4}"] {
            assert_eq!(After::read(wrong).unwrap_err().kind(), ErrorKind::Invalid, "{wrong}");
        }
    }
}
