//! A key's item collection, read in windows from the top down.
//!
//! An item collection may be split, and a query of it is answered page by page, each at a moment of its
//! own. Read upwards, a page may end before number n is committed, and the next one show n+1. Read
//! downwards it cannot: what was committed before n+1 was seen is there when its place is read. Invariant:
//! **when a number is handed on, every smaller one of its key is handed on before it, or is not pending.**

use std::collections::{BTreeSet, HashMap};

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::KeysAndAttributes;
use postrider_core::{Error, ErrorKind, Result};

use crate::connection::{Connection, call};
use crate::item::{Item, s, text};
use crate::record::{Place, SHARD, numbered_sk};
use crate::settings::Names;
use crate::tables::built;
use crate::transaction::Patience;

/// The most items of one window: at 400 KB each, what memory has to hold of one key at once.
pub(crate) const WINDOW: u64 = 32;

/// The most items that are read at once by their places: as much memory.
pub(crate) const SINGLES_MAX: usize = 32;

/// The pending items of a window, by number.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) items: Vec<(Place, Item)>,
    /// A number above the window, up to which there may be more; and everything below the second one was
    /// looked at.
    pub(crate) next: Option<(u64, u64)>,
}

/// Reads what is pending of a collection: from a number that was named, which is not the first that is
/// pending if the index lags; or behind one that was handed out.
pub(crate) async fn read(
    connection: &Connection,
    pk: &str,
    shard: &str,
    from: From,
) -> Result<Pending> {
    let (mut low, exact, named) = match from {
        From::Named(n, most) => (n.saturating_sub(1), false, most),
        From::Behind(n, named) => (n + 1, true, named),
    };
    let mut high = low.saturating_add(WINDOW - 1);
    let mut pending = Pending::default();
    let mut lower = false;
    loop {
        // Of a long backlog only the lowest window is kept: those above are read again, upwards.
        let items = window(connection, pk, low, high).await?;
        let first_is_pending = items.last().is_some_and(|(place, item)| {
            place.n() == Some(low) && text(item, SHARD) == Some(shard)
        });
        // Where the highest is there, or one above it is known to be, others may stand above.
        let above = lower || items.first().is_some_and(|(place, _)| place.n() == Some(high));
        let next = high.saturating_add(1);
        pending.next = (above || named > high).then_some((named.max(next), next));
        pending.items = items;
        if exact || low == 0 || !first_is_pending {
            break;
        }
        // The index names less than there is: look further down.
        lower = true;
        high = low - 1;
        low = low.saturating_sub(WINDOW);
    }
    if pending.items.is_empty() && !lower && named > high {
        // Nobody counts up to a number that is far away, 32 at a time.
        pending.next = match next_above(connection, pk, high.saturating_add(1), named).await? {
            Above::Nothing => None,
            Above::From(next) => Some((named, next)),
        };
    }
    pending.items.retain(|(_, item)| text(item, SHARD) == Some(shard));
    pending.items.reverse();
    Ok(pending)
}

/// What stands above an empty window.
enum Above {
    Nothing,
    /// Below this number nothing does.
    From(u64),
}

/// Finds where the next number of a range stands. What is found going upwards may have been committed while
/// numbers below it were passed: so it is looked once more whether there is anything below it, when it is there
/// for certain. Where the service has no answer in one page, nothing is left out.
async fn next_above(connection: &Connection, pk: &str, low: u64, high: u64) -> Result<Above> {
    match least_or_greatest(connection, pk, low, high, true).await? {
        Edge::Nothing => Ok(Above::Nothing),
        Edge::Number(n) if n > low => {
            Ok(match least_or_greatest(connection, pk, low, n - 1, false).await? {
                Edge::Nothing => Above::From(n),
                Edge::Number(_) | Edge::Unknown => Above::From(low),
            })
        }
        Edge::Number(_) | Edge::Unknown => Ok(Above::From(low)),
    }
}

/// The least or the greatest number of a range.
enum Edge {
    Nothing,
    Number(u64),
    /// The page ended before it was found, or what stands there has no number.
    Unknown,
}

async fn least_or_greatest(
    connection: &Connection,
    pk: &str,
    low: u64,
    high: u64,
    least: bool,
) -> Result<Edge> {
    let names = connection.names();
    let client = connection.tables().await;
    let query = between(client.query(), names, pk, low, high)
        .scan_index_forward(least)
        .projection_expression("#pk, #sk")
        .limit(1);
    let page = call("fetch", &names.outbox, query.send()).await?;
    let first = page.items.unwrap_or_default().into_iter().next();
    Ok(match first {
        Some(item) => {
            Place::of(&item, names).and_then(|place| place.n()).map_or(Edge::Unknown, Edge::Number)
        }
        None if page.last_evaluated_key.is_none() => Edge::Nothing,
        None => Edge::Unknown,
    })
}

/// A consistent query of a range of numbers.
fn between(
    query: QueryFluentBuilder,
    names: &Names,
    pk: &str,
    low: u64,
    high: u64,
) -> QueryFluentBuilder {
    query
        .table_name(&names.outbox)
        .key_condition_expression("#pk = :pk AND #sk BETWEEN :low AND :high")
        .expression_attribute_names("#pk", &names.pk)
        .expression_attribute_names("#sk", &names.sk)
        .expression_attribute_values(":pk", s(pk))
        .expression_attribute_values(":low", s(numbered_sk(low)))
        .expression_attribute_values(":high", s(numbered_sk(high)))
        .consistent_read(true)
}

/// Where a reading of a collection begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum From {
    /// These were named, the least and the greatest, and nothing of the collection was handed out yet.
    Named(u64, u64),
    /// Everything up to the first number was handed out, or is not pending; and the second was named.
    Behind(u64, u64),
}

/// The items of a range of numbers, from the highest down.
async fn window(
    connection: &Connection,
    pk: &str,
    low: u64,
    high: u64,
) -> Result<Vec<(Place, Item)>> {
    let names = connection.names();
    let client = connection.tables().await;
    let (mut items, mut from) = (Vec::new(), None);
    loop {
        let query = between(client.query(), names, pk, low, high)
            .scan_index_forward(false)
            .set_exclusive_start_key(from.take());
        let page = call("fetch", &names.outbox, query.send()).await?;
        let places = page.items.unwrap_or_default().into_iter();
        items.extend(places.filter_map(|item| Some((Place::of(&item, names)?, item))));
        from = page.last_evaluated_key;
        if from.is_none() {
            return Ok(items);
        }
    }
}

/// Items at their places, whatever their version; what is not there is gone. No more than [`SINGLES_MAX`] at once. What
/// the service leaves out of its answer, because it is throttled or the answer is full, is asked for again.
pub(crate) async fn singles(
    connection: &Connection,
    operation: &'static str,
    places: &[Place],
) -> Result<HashMap<Place, Item>> {
    let names = connection.names();
    if let [place] = places {
        let item = single(connection, operation, place).await?;
        return Ok(item.map(|item| (place.whichever(), item)).into_iter().collect());
    }
    let client = connection.tables().await;
    let mut items = HashMap::new();
    // Two versions of an item are one item, and the service refuses to be asked for it twice.
    let asked: BTreeSet<Place> = places.iter().map(Place::whichever).collect();
    let mut keys: Vec<Item> = asked.iter().map(|place| place.key(names)).collect();
    let mut patience = Patience::new();
    while !keys.is_empty() {
        let asked = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true);
        let get = client.batch_get_item().request_items(&names.outbox, built(asked.build())?);
        let answer = call(operation, &names.outbox, get.send()).await?;
        let found = answer.responses.unwrap_or_default().remove(&names.outbox).unwrap_or_default();
        let some = !found.is_empty();
        items.extend(found.into_iter().filter_map(|item| Some((Place::of(&item, names)?, item))));
        let left = answer.unprocessed_keys.unwrap_or_default().remove(&names.outbox);
        keys = left.map(|left| left.keys).unwrap_or_default();
        if some {
            patience = Patience::new();
        } else if !keys.is_empty() {
            let busy = Error::new(ErrorKind::Busy, operation)
                .message(
                    "the table is throttled and leaves items out of its answers; nothing was lost, and \
                     it is tried again: raise its capacity, or switch it to on-demand",
                )
                .context("table", &names.outbox)
                .context("left", keys.len());
            patience.pause(busy).await?;
        }
    }
    Ok(items)
}

/// One item, as it is.
pub(crate) async fn single(
    connection: &Connection,
    operation: &'static str,
    place: &Place,
) -> Result<Option<Item>> {
    let names = connection.names();
    let client = connection.tables().await;
    let get = client
        .get_item()
        .table_name(&names.outbox)
        .set_key(Some(place.key(names)))
        .consistent_read(true);
    Ok(call(operation, &names.outbox, get.send()).await?.item)
}
