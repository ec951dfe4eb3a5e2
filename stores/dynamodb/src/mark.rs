//! Marks: what an event's item says of its publication.
//!
//! Invariants: an item leaves the index, and has a time to live, only after its event was acknowledged; and
//! where marks come first, an event is handed out only under a mark of its owner's token, so that an owner
//! that is none any more gets nothing that its successor has.
//!
//! Marked first, an item says `published_at` before it is true. Nobody has to roll that back for the event to
//! be sent: it stays in the index, and whoever has the partition next, under a greater token, marks it anew.

use futures_util::{StreamExt as _, stream};
use postrider_core::{ErrorKind, Lease, Result};

use crate::collection::single;
use crate::connection::call;
use crate::derived;
use crate::item::{n, number, s, text};
use crate::job::Pending;
use crate::record::{PUBLISHED_AT, Place, SEQ, SHARD};
use crate::store::{DynamoStore, now_ms};
use crate::tally::add;

/// The token under which an item was marked before its event was published.
const MARKED_BY: &str = "marked_by";
/// How many items are marked at once.
const MARKS_AT_ONCE: usize = 32;

/// What was marked before it is handed out.
pub(crate) struct Marked {
    pub(crate) items: Vec<Pending>,
    /// Whether the list ends at an item that a later owner has marked.
    pub(crate) later: bool,
}

/// Marks items before they are handed out, in their order: those that are marked. One that somebody else has
/// settled is left out; one that a later owner has marked ends the list.
pub(crate) async fn first(
    store: &DynamoStore,
    lease: &Lease,
    shard: &str,
    items: Vec<Pending>,
) -> Result<Marked> {
    let marks: Vec<_> = items.iter().map(|pending| one(store, lease, shard, pending)).collect();
    let told: Vec<Result<Mark>> = stream::iter(marks).buffered(MARKS_AT_ONCE).collect().await;
    let mut marked = Marked { items: Vec::with_capacity(items.len()), later: false };
    for (item, mark) in items.into_iter().zip(told) {
        match mark? {
            Mark::Ours => marked.items.push(item),
            Mark::Settled => add(&store.tally().marked_by_others, 1),
            Mark::Later => {
                add(&store.tally().marked_by_others, 1);
                marked.later = true;
                break;
            }
        }
    }
    Ok(marked)
}

/// What became of a mark.
enum Mark {
    Ours,
    /// The event is published, or waits.
    Settled,
    /// Somebody has the partition after us.
    Later,
}

async fn one(
    store: &DynamoStore,
    lease: &Lease,
    shard: &str,
    Pending { place, item, .. }: &Pending,
) -> Result<Mark> {
    if number(item, MARKED_BY) == Some(lease.token) {
        return Ok(Mark::Ours);
    }
    let names = store.connection().names();
    let client = store.connection().tables().await;
    let update = client
        .update_item()
        .table_name(&names.outbox)
        .set_key(Some(place.key(names)))
        .update_expression("SET published_at = :now, #by = :token")
        .condition_expression("#shard = :shard AND (attribute_not_exists(#by) OR #by <= :token)")
        .expression_attribute_names("#by", MARKED_BY)
        .expression_attribute_names("#shard", SHARD)
        .expression_attribute_values(":now", n(now_ms()))
        .expression_attribute_values(":token", n(lease.token))
        .expression_attribute_values(":shard", s(shard));
    match call("fetch", &names.outbox, update.send()).await {
        Ok(_) => Ok(Mark::Ours),
        Err(error) if error.kind() == ErrorKind::Conflict => {
            let found = single(store.connection(), "fetch", place).await?;
            let pending = found.is_some_and(|item| text(&item, SHARD) == Some(shard));
            Ok(if pending { Mark::Later } else { Mark::Settled })
        }
        Err(error) => Err(error),
    }
}

/// What settles an item, at the moment of a name: what was marked before it was published, and was not, does not
/// say so any more.
pub(crate) fn settling(moment: &str) -> &'static str {
    match moment == PUBLISHED_AT {
        true => "SET #ttl = :ttl, #moment = :now REMOVE #shard, #seq, marked_by",
        false => "SET #ttl = :ttl, #moment = :now REMOVE #shard, #seq, marked_by, published_at",
    }
}

/// What is said of an item in the end.
#[derive(Clone, Copy)]
pub(crate) enum Told<'a> {
    /// Settled, at the moment of this name, under the number that its owner had handed it out with.
    Settled(&'a str, u64),
    /// Handed from one index key to another.
    Moved(&'a str, &'a str),
}

/// Marks one item after the broker's answer: settled, or handed from one index key to another.
pub(crate) async fn settled(store: &DynamoStore, place: &Place, told: Told<'_>) -> Result<()> {
    if let Some(version) = &place.version {
        let done = match told {
            Told::Settled(..) => derived::take_out(store, place, version).await?,
            Told::Moved(from, to) => derived::hand_on(store, place, version, (from, to)).await?,
        };
        add(&store.tally().marked_by_others, u64::from(!done));
        return Ok(());
    }
    let names = store.connection().names();
    let client = store.connection().tables().await;
    let update = client
        .update_item()
        .table_name(&names.outbox)
        .set_key(Some(place.key(names)))
        .expression_attribute_names("#shard", SHARD);
    let update = match told {
        Told::Settled(moment, seq) => update
            .update_expression(settling(moment))
            .expression_attribute_names("#moment", moment)
            // Under another number it waits ahead of a later owner's cursor, who has the last word.
            .condition_expression(
                "attribute_exists(#shard) AND (attribute_not_exists(#seq) OR #seq = :seq)",
            )
            .expression_attribute_values(":seq", n(seq))
            .expression_attribute_names("#ttl", &names.ttl)
            .expression_attribute_names("#seq", SEQ)
            .expression_attribute_values(":ttl", n(store.expires_at()))
            .expression_attribute_values(":now", n(now_ms())),
        Told::Moved(from, to) => update
            .update_expression("SET #shard = :to REMOVE published_at, marked_by")
            .condition_expression("#shard = :from")
            .expression_attribute_values(":from", s(from))
            .expression_attribute_values(":to", s(to)),
    };
    match call("settle", &names.outbox, update.send()).await {
        Err(error) if error.kind() == ErrorKind::Conflict => {
            add(&store.tally().marked_by_others, 1);
            Ok(())
        }
        other => other.map(drop),
    }
}
