//! What is pending, by the fields that routes match.
//!
//! Invariant: so many events are looked at as the caller says, and no more than a bound of our own, the oldest
//! of each partition first.

use std::collections::HashMap;

use postrider_core::operate::BacklogGroup;
use postrider_core::{
    Destination, DestinationId, Error, ErrorKind, PartitionId, Result, Timestamp,
};

use super::event::items;
use crate::item::{number, text};
use crate::record::{SHARD, pending_in, unrouted_in};
use crate::store::DynamoStore;
use crate::{definitions, index};

/// The most events that one call reads: of 1 KB each, 5,000 read units.
const READ_MAX: u64 = 10_000;

/// What a destination has not passed yet.
pub(super) async fn read(
    store: &DynamoStore,
    destination: &DestinationId,
    rows_max: u64,
) -> Result<Vec<BacklogGroup>> {
    let known = definitions::read(store.connection()).await?;
    if !known.rows.iter().any(|row| row.definition.id == *destination) {
        return Err(Error::new(ErrorKind::NotFound, "backlog")
            .message("there is no such destination")
            .context("destination", destination));
    }
    let unrouted = destination.as_str() == Destination::UNROUTED;
    let mut left = usize::try_from(rows_max.min(READ_MAX)).unwrap_or_default();
    let mut groups: HashMap<(String, String, Option<String>), BacklogGroup> = HashMap::new();
    for partition in (0..store.facts().await?.partitions).map(PartitionId) {
        let shard = if unrouted { unrouted_in(partition) } else { pending_in(partition) };
        let mut resume = None;
        while left > 0 {
            let listing =
                index::list(store.connection(), &shard, resume.take(), 0, store.derives()).await?;
            let places: Vec<_> =
                listing.entries.iter().map(|entry| &entry.place).take(left).collect();
            left -= places.len();
            for item in items(store, "backlog", places.into_iter()).await?.into_iter().flatten() {
                if text(&item, SHARD) != Some(&shard) {
                    continue;
                }
                let of = |name: &str| text(&item, name).unwrap_or_default().to_owned();
                let tenant = text(&item, "tenant").map(str::to_owned);
                let created = number(&item, "created_at").map(Timestamp::from_micros);
                let created = created.unwrap_or_default();
                let name = (of("event_type"), of("aggregate_type"), tenant.clone());
                let group = groups.entry(name).or_insert_with(|| BacklogGroup {
                    event_type: of("event_type"),
                    aggregate_type: of("aggregate_type"),
                    tenant,
                    count: 0,
                    oldest: created,
                });
                group.count += 1;
                group.oldest = group.oldest.min(created);
            }
            resume = listing.resume;
            if resume.is_none() {
                break;
            }
        }
    }
    let mut groups: Vec<BacklogGroup> = groups.into_values().collect();
    groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.event_type.cmp(&b.event_type)));
    Ok(groups)
}
