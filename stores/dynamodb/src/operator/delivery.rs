//! What became of an event, as its item and what waits say.
//!
//! Invariant: nothing is called published that was not marked so after its acknowledgement.

use std::collections::HashMap;

use postrider_core::operate::{DeliveryView, Status, WaitingView};
use postrider_core::{Destination, DestinationId, PartitionId, Result};

use super::event::items;
use super::waiting::{moment, status, view};
use crate::definitions;
use crate::item::{Item, number, text};
use crate::record::{
    DISCARDED_AT, DROPPED_AT, PUBLISHED_AT, Place, SEQ, SHARD, partition_of, unrouted_in,
};
use crate::store::DynamoStore;
use crate::stored::Stored;
use crate::waiting::Waiting;

/// Events ahead of one in its key that are shown with it.
const BEHIND_MAX: usize = 10;

/// What was read for a page, so that it is read once.
pub(super) struct Deliveries<'a> {
    store: &'a DynamoStore,
    partitions: u16,
    /// The destination that is served; nothing if none is defined.
    served: Option<DestinationId>,
    unrouted: DestinationId,
    waiting: HashMap<(PartitionId, DestinationId), Waiting>,
}

impl<'a> Deliveries<'a> {
    pub(super) async fn read(store: &'a DynamoStore) -> Result<Deliveries<'a>> {
        let known = definitions::read(store.connection()).await?;
        let mut ids = known.rows.into_iter().map(|row| row.definition);
        let served = ids.find(|definition| !definition.is_unrouted()).map(|found| found.id);
        let partitions = store.facts().await?.partitions;
        let unrouted = Destination::unrouted().id;
        Ok(Deliveries { store, partitions, served, unrouted, waiting: HashMap::new() })
    }

    pub(super) fn partition(&self, place: &Place) -> PartitionId {
        partition_of(&place.pk, self.partitions)
    }

    /// The number of an event: that of its row while it waits, else one that this handle remembers.
    pub(super) fn seq(&self, item: &Item, place: &Place) -> u64 {
        let shown = || self.store.listed().show(self.partition(place), place);
        number(item, SEQ).unwrap_or_else(shown)
    }

    /// What became of an event, where a destination is defined.
    pub(super) async fn of(&mut self, item: &Item, place: &Place) -> Result<Vec<DeliveryView>> {
        let Some(served) = self.served.clone() else { return Ok(Vec::new()) };
        if let Some((id, row)) = self.row(item, place).await? {
            return Ok(vec![DeliveryView {
                destination: id,
                status: status(row.state),
                attempts: row.attempts,
                reason: Some(row.reason.to_string()),
                detail: Some(row.detail.clone()),
                next_at: row.is_timed().then(|| moment(row.due)),
                settled_at: None,
            }]);
        }
        let shard = text(item, SHARD);
        let is_unrouted = shard == Some(&*unrouted_in(self.partition(place)));
        let at = |name: &str| number::<i64>(item, name);
        // What is marked before it is sent says that it is published; the others come after, and are true.
        let marked = [PUBLISHED_AT, DROPPED_AT, DISCARDED_AT].map(at);
        let erased_ms = at("erased_at").map(|micros| micros / 1_000);
        let (status, settled) = match (shard, marked) {
            (Some(_), _) => (Status::Pending, None),
            (None, [_, Some(at), _]) => (Status::Dropped, Some(at)),
            (None, [_, _, Some(at)]) => (Status::Discarded, Some(at)),
            (None, [Some(at), ..]) if erased_ms.is_some_and(|erased| erased <= at) => {
                (Status::Erased, Some(at))
            }
            (None, [Some(at), ..]) => (Status::Published, Some(at)),
            (None, _) => (Status::Settled, None),
        };
        Ok(vec![DeliveryView {
            destination: if is_unrouted { self.unrouted.clone() } else { served },
            status,
            attempts: 0,
            reason: None,
            detail: None,
            next_at: None,
            settled_at: settled.map(moment),
        }])
    }

    /// Earlier events of its key that hold an event up, oldest first.
    pub(super) async fn behind(&mut self, item: &Item, place: &Place) -> Result<Vec<WaitingView>> {
        let Some((id, row)) = self.row(item, place).await? else { return Ok(Vec::new()) };
        let partition = self.partition(place);
        let Some(waiting) = self.waiting.get(&(partition, id.clone())) else {
            return Ok(Vec::new());
        };
        let earlier = |other: &&Stored| {
            other.holds()
                && (&other.place.pk, other.key_hash) == (&row.place.pk, row.key_hash)
                && other.order() < row.order()
        };
        let mut ahead: Vec<Stored> = waiting.rows().filter(earlier).cloned().collect();
        ahead.sort_by_key(Stored::order);
        ahead.truncate(BEHIND_MAX);
        let found = items(self.store, "event", ahead.iter().map(|row| &row.place)).await?;
        let shown = ahead.iter().zip(&found);
        Ok(shown.map(|(row, item)| view(&id, partition, row, item.as_ref())).collect())
    }

    /// The row under which an event waits, if it does.
    async fn row(&mut self, item: &Item, place: &Place) -> Result<Option<(DestinationId, Stored)>> {
        let (Some(seq), Some(served)) = (number::<u64>(item, SEQ), self.served.clone()) else {
            return Ok(None);
        };
        let partition = self.partition(place);
        for id in [served, self.unrouted.clone()] {
            let of = (partition, id.clone());
            if !self.waiting.contains_key(&of) {
                let waiting = self.store.read_waiting(partition, &id).await?;
                self.waiting.insert(of.clone(), waiting);
            }
            let row = self.waiting.get(&of).and_then(|waiting| waiting.get(seq));
            if let Some(row) = row.filter(|row| row.place == *place) {
                return Ok(Some((id, row.clone())));
            }
        }
        Ok(None)
    }
}
