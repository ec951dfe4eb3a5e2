//! A key's item collection, read in windows from the top down.
//!
//! An item collection may be split, and a query of it is answered page by page, each at a moment of its
//! own. Read upwards, a page may end before number n is committed, and the next one show n+1. Read
//! downwards it cannot: what was committed before n+1 was seen is there when its place is read. Invariant:
//! **when a number is handed on, every smaller one of its key is handed on before it, or is not pending.**

use postrider_core::Result;

use crate::connection::{Connection, call};
use crate::item::{Item, s, text};
use crate::record::{Place, SHARD, numbered_sk};

/// The most items of one window: at 400 KB each, what memory has to hold of one key at once.
pub(crate) const WINDOW: u64 = 32;

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
    pending.items.retain(|(_, item)| text(item, SHARD) == Some(shard));
    pending.items.reverse();
    Ok(pending)
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
        let query = client
            .query()
            .table_name(&names.outbox)
            .key_condition_expression("#pk = :pk AND #sk BETWEEN :low AND :high")
            .expression_attribute_names("#pk", &names.pk)
            .expression_attribute_names("#sk", &names.sk)
            .expression_attribute_values(":pk", s(pk))
            .expression_attribute_values(":low", s(numbered_sk(low)))
            .expression_attribute_values(":high", s(numbered_sk(high)))
            .scan_index_forward(false)
            .consistent_read(true)
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
