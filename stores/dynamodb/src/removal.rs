//! Removal of a destination: what waited for it goes, and its events are let go.
//!
//! Invariants: an event that waits is in no index, so its row does not go before its item has a mark and a time to live;
//! what is pending stays so, for whoever comes next; and a removal that was cut off is known by the definitions until
//! it is finished, by the next change of the destinations or the next relay that starts. So no destination of that name
//! finds rows of the one before.
//!
//! **Beside owners.** One that read the definitions before the removal may write a row after it was looked for. So each
//! partition is told before any is looked at (`fence.rs`): from then on such a write is refused. A look may come while a
//! transaction that was let through is still being applied, item by item; what it leaves, whoever loads the next
//! destination of the name drops.
//!
//! **Beside others that finish it.** A row says which destination of the name it waits for, by the version of the definitions
//! that came with it, and a removal has a version as well: only what is older is dropped, each row under that condition. So
//! it does not matter who is late, and how late.

use futures_util::{StreamExt as _, stream};
use postrider_core::source::DefinitionChange;
use postrider_core::waiting::WaitingState;
use postrider_core::{DestinationId, ErrorKind, PartitionId, Result};
use serde::{Deserialize, Serialize};

use crate::connection::call;
use crate::control::{SK, key};
use crate::definitions::{self, By};
use crate::fence;
use crate::item::{Item, n, s, text};
use crate::mark::settling;
use crate::record::{DISCARDED_AT, SEQ, SHARD};
use crate::store::{DynamoStore, now_ms};
use crate::stored::{SINCE, Stored, rows_pk, since};

/// Rows that are read at once, and then dropped: few enough to be forgotten when it is cut off, many enough to keep
/// the calls busy.
const ROWS_AT_ONCE: i32 = 100;
/// How many rows are dropped at once.
const DROPS_AT_ONCE: usize = 32;

/// A removal that was begun. One of two that finish it may be late, and meet a destination that was added again under the
/// name, or the removal of that: the version tells them apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Removing {
    pub(crate) destination: DestinationId,
    /// The version of the definitions that is without it. Whatever it left behind is older.
    pub(crate) since: u64,
}

/// Changes the destinations; what waited for those that are removed is gone when it returns. Returns the version.
pub(crate) async fn apply(
    store: &DynamoStore,
    change: &DefinitionChange,
    by: By<'_>,
) -> Result<u64> {
    finish(store).await?;
    let version = definitions::apply(store.connection(), change, by).await?;
    Ok(finish(store).await?.unwrap_or(version))
}

/// Finishes removals that were begun. Returns the version of the definitions, if there was one.
pub(crate) async fn finish(store: &DynamoStore) -> Result<Option<u64>> {
    let mut version = None;
    let partitions = store.facts().await?.partitions;
    for removal in definitions::removing(store.connection()).await? {
        let partitions = || (0..partitions).map(PartitionId);
        for partition in partitions() {
            fence::tell(store.connection(), partition, removal.since).await?;
        }
        // After all were told: what was let through before is there by then.
        for partition in partitions() {
            drop_rows(store, &removal.destination, partition, removal.since).await?;
        }
        version = Some(definitions::removed(store.connection(), &removal).await?);
    }
    Ok(version)
}

/// Drops what waits in a partition for destinations of a name that came before a version of the definitions.
pub(crate) async fn drop_rows(
    store: &DynamoStore,
    id: &DestinationId,
    partition: PartitionId,
    before: u64,
) -> Result<()> {
    let (table, pk) = (&store.connection().names().store, rows_pk(id, partition));
    let client = store.connection().tables().await;
    let mut from: Option<Item> = None;
    loop {
        let query = client
            .query()
            .table_name(table)
            .limit(ROWS_AT_ONCE)
            .key_condition_expression("pk = :pk")
            .expression_attribute_values(":pk", s(&pk))
            .consistent_read(true)
            .set_exclusive_start_key(from.take());
        let page = call("apply", table, query.send()).await?;
        let rows = page.items.unwrap_or_default();
        let older = rows.iter().filter(|row| since(row) < before);
        let drops: Vec<_> = older.map(|row| drop_row(store, &pk, row, before)).collect();
        let mut drops = stream::iter(drops).buffer_unordered(DROPS_AT_ONCE);
        while let Some(dropped) = drops.next().await {
            dropped?;
        }
        from = page.last_evaluated_key;
        if from.is_none() {
            return Ok(());
        }
    }
}

/// Drops a row, after its event was let go. One that the cursor has not passed is pending, and stays so, unless an
/// operator let it go before.
async fn drop_row(store: &DynamoStore, pk: &str, item: &Item, before: u64) -> Result<()> {
    let stays = |row: &Stored| row.ahead && row.state != WaitingState::Discarded;
    // On a business item nothing is said, whatever became of its event.
    let marked = |row: &Stored| row.place.is_ours() && !stays(row);
    if let Some(row) = Stored::of(item).filter(marked) {
        let_go(store, &row).await?;
    }
    let table = &store.connection().names().store;
    let client = store.connection().tables().await;
    let sk = text(item, SK).unwrap_or_default();
    let delete = client
        .delete_item()
        .table_name(table)
        .set_key(Some(key(pk, sk)))
        .condition_expression("attribute_not_exists(#since) OR #since < :before")
        .expression_attribute_names("#since", SINCE)
        .expression_attribute_values(":before", n(before));
    match call("apply", table, delete.send()).await {
        // The event waits for the next destination by now: it was pending.
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
        other => other.map(drop),
    }
}

/// Marks an event as let go, if its item still is the one that waits under this number.
async fn let_go(store: &DynamoStore, row: &Stored) -> Result<()> {
    let names = store.connection().names();
    let client = store.connection().tables().await;
    let update = client
        .update_item()
        .table_name(&names.outbox)
        .set_key(Some(row.place.key(names)))
        .update_expression(settling(DISCARDED_AT))
        .condition_expression("#seq = :seq")
        .expression_attribute_names("#moment", DISCARDED_AT)
        .expression_attribute_names("#ttl", &names.ttl)
        .expression_attribute_names("#shard", SHARD)
        .expression_attribute_names("#seq", SEQ)
        .expression_attribute_values(":seq", n(row.row.seq))
        .expression_attribute_values(":ttl", n(store.expires_at()))
        .expression_attribute_values(":now", n(now_ms()));
    match call("apply", &names.outbox, update.send()).await {
        // It is gone, or settled.
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
        other => other.map(drop),
    }
}
