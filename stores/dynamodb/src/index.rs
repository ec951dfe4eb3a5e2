//! The sparse index: what is pending in a partition, by name.
//!
//! It lags, item by item, so it says where to look and not what is there: the items themselves are read
//! consistently. Published items leave it, so it is as large as the backlog, whatever the table holds.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{AttributeValue, Select};
use postrider_core::Result;

use crate::connection::{Connection, call};
use crate::item::{n, number, s};
use crate::record::{AT, Place, SHARD};

/// The most entries of one page of the index.
pub(crate) const ENTRIES_MAX: i32 = 1_000;

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) place: Place,
}

/// Where a listing goes on.
pub(crate) type Resume = HashMap<String, AttributeValue>;

/// A page of the index.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) entries: Vec<Listed>,
    /// Where items stand that are in the index and none of ours.
    pub(crate) foreign: Vec<Place>,
    /// The newest of the entries, in milliseconds.
    pub(crate) newest: u64,
    pub(crate) resume: Option<Resume>,
}

/// Lists what is pending under an index key: from where the last page ended, or from a moment. With business items
/// where events are made of them.
pub(crate) async fn list(
    connection: &Connection,
    shard: &str,
    resume: Option<Resume>,
    from: u64,
    derives: bool,
) -> Result<Listing> {
    let names = connection.names();
    let client = connection.tables().await;
    let query = client
        .query()
        .table_name(&names.outbox)
        .index_name(&names.index)
        .key_condition_expression("#shard = :shard AND #at >= :from")
        .expression_attribute_names("#shard", SHARD)
        .expression_attribute_names("#at", AT)
        .expression_attribute_values(":shard", s(shard))
        .expression_attribute_values(":from", n(from))
        .limit(ENTRIES_MAX)
        .set_exclusive_start_key(resume);
    let page = call("fetch", &names.outbox, query.send()).await?;
    let mut listing = Listing { resume: page.last_evaluated_key, ..Listing::default() };
    for item in page.items.unwrap_or_default() {
        listing.newest = listing.newest.max(number(&item, AT).unwrap_or_default());
        let ours = |place: &Place| place.is_event() || derives && place.may_derive();
        match Place::of(&item, names) {
            Some(place) if ours(&place) => listing.entries.push(Listed { place }),
            // The service's entries have keys; one without them is none of ours either.
            other => listing.foreign.push(other.unwrap_or_else(|| Place::new("", ""))),
        }
    }
    Ok(listing)
}

/// Pages of the index that a count reads at most, of up to 1 MB each.
const COUNT_PAGES_MAX: u32 = 8;

/// How many entries an index key has, at least, and when the oldest was written, in milliseconds.
pub(crate) async fn count(connection: &Connection, shard: &str) -> Result<(u64, Option<i64>)> {
    let names = connection.names();
    let client = connection.tables().await;
    let query = || {
        client
            .query()
            .table_name(&names.outbox)
            .index_name(&names.index)
            .key_condition_expression("#shard = :shard")
            .expression_attribute_names("#shard", SHARD)
            .expression_attribute_values(":shard", s(shard))
    };
    let first = call("overview", &names.outbox, query().limit(1).send()).await?;
    let Some(oldest) = first.items.unwrap_or_default().into_iter().next() else {
        return Ok((0, None));
    };
    let (mut sum, mut from) = (0, None);
    for _ in 0..COUNT_PAGES_MAX {
        let query = query().select(Select::Count).set_exclusive_start_key(from.take());
        let page = call("overview", &names.outbox, query.send()).await?;
        sum += u64::try_from(page.count).unwrap_or_default();
        from = page.last_evaluated_key;
        if from.is_none() {
            break;
        }
    }
    Ok((sum, number(&oldest, AT)))
}

/// The newest entries of an index key, so many at least if there are, before a moment and place of it, newest
/// first. Of one moment all are read, because the index orders them as it likes.
pub(crate) async fn before(
    connection: &Connection,
    shard: &str,
    before: Option<&(u64, Place)>,
    wanted: usize,
    derives: bool,
) -> Result<Vec<(u64, Place)>> {
    let names = connection.names();
    let client = connection.tables().await;
    let through = before.map_or(i64::MAX.unsigned_abs(), |(at, _)| *at);
    let (mut entries, mut from): (Vec<(u64, Place)>, Option<Resume>) = (Vec::new(), None);
    loop {
        let query = client
            .query()
            .table_name(&names.outbox)
            .index_name(&names.index)
            .key_condition_expression("#shard = :shard AND #at <= :through")
            .expression_attribute_names("#shard", SHARD)
            .expression_attribute_names("#at", AT)
            .expression_attribute_values(":shard", s(shard))
            .expression_attribute_values(":through", n(through))
            .scan_index_forward(false)
            .limit(ENTRIES_MAX)
            .set_exclusive_start_key(from.take());
        let page = call("events", &names.outbox, query.send()).await?;
        let mut oldest = u64::MAX;
        for item in page.items.unwrap_or_default() {
            let at = number(&item, AT).unwrap_or_default();
            oldest = at;
            let ours = |place: &Place| place.is_event() || derives && place.may_derive();
            let Some(place) = Place::of(&item, names).filter(ours) else { continue };
            let entry = (at, place);
            if before.is_none_or(|before| entry < *before) {
                entries.push(entry);
            }
        }
        from = page.last_evaluated_key;
        let enough = entries.get(wanted).is_some_and(|(at, _)| *at > oldest);
        if from.is_none() || enough {
            return Ok(entries);
        }
    }
}
