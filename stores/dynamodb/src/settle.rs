//! Marking what was published, and writing down what waits.
//!
//! A settlement is not one transaction: it may name ten thousand events, and the service takes a hundred
//! actions. It need not be. Invariants: what is marked was acknowledged, dropped by a route, or erased
//! (INV-7), which is true whoever marks it, so a mark's own condition is fence enough; whatever changes
//! what waits is written under the lease; an event enters `waiting` in the transaction that takes it from
//! the index; of one key in the order of its numbers; and all of it may be written twice.

use std::collections::{BTreeMap, HashMap, HashSet};

use aws_sdk_dynamodb::types::{Delete, TransactWriteItem, Update};
use futures_util::{StreamExt as _, stream};
use postrider_core::source::Definitions;
use postrider_core::waiting::{Passed, Settlement, SettlementPart, WaitingChange};
use postrider_core::{Destination, Error, ErrorKind, PartitionId, Result};

use crate::control::key;
use crate::definitions::Known;
use crate::fence::Fence;
use crate::group::{self, Group, Progress};
use crate::item::n;
use crate::lease;
use crate::mark::Told;
use crate::record::{
    DISCARDED_AT, DROPPED_AT, PUBLISHED_AT, Place, SEQ, SHARD, pending_in, unrouted_in,
};
use crate::remembered::{self, Of, Remembered};
use crate::store::{DynamoStore, now_ms};
use crate::tables::built;
use crate::transaction::put;
use crate::waiting::{RowsOf, Stored, Waiting};
use crate::{definitions, derived, mark};

/// How many items are marked at once.
const MARKS_AT_ONCE: usize = 32;

/// Writes a settlement, if its lease stands.
pub(crate) async fn settle(store: &DynamoStore, settlement: &Settlement) -> Result<()> {
    let lease = &settlement.lease;
    let item = lease::check(store.connection(), "settle", lease).await?;
    let fence = Fence::of(lease, &item);
    let mut progress = Progress::default();
    for part in &settlement.parts {
        let settled = settle_part(store, &fence, part, &mut progress).await;
        settled.map_err(|error| progress.told(error))?;
    }
    let moved = settlement.parts.iter().any(|part| !part.passed.is_empty());
    if moved && item.takeovers > 0 {
        lease::forget_takeovers(store.connection(), lease).await?;
    }
    Ok(())
}

async fn settle_part(
    store: &DynamoStore,
    fence: &Fence<'_>,
    part: &SettlementPart,
    progress: &mut Progress,
) -> Result<()> {
    let (connection, id, lease) = (store.connection(), &part.destination, fence.lease);
    // Who enables an endpoint lets its rows out under the same lock: so what is read here of endpoints is true
    // until the rows are written, or whoever enables one afterwards finds them.
    let shared = store.waiting(lease.partition, id);
    let mut cell = shared.lock().await;
    if !part.disabled.is_empty() {
        definitions::disable(connection, lease, id, &part.disabled).await?;
    }
    let remembered = cell.of_token(lease.token);
    let mut known = Known::default();
    let of = match remembered.filter(|(_, waiting)| !changes_rows(part, waiting)) {
        Some((of, _)) => of,
        None => {
            known = definitions::known(connection).await?;
            let Some(since) = known.since(id) else {
                // So that what waited for it is not handed out again.
                *cell = Remembered::default();
                return Ok(());
            };
            Of { token: lease.token, since }
        }
    };
    let mut waiting = match cell.take(of) {
        Some(waiting) => waiting,
        None => remembered::read(store, lease.partition, id, of.since).await?,
    };
    let plan = Plan::make(store, lease.partition, part, &mut waiting, &known.all)?;
    let groups = plan.groups(store, &RowsOf::new(id, lease.partition, of.since))?;
    // Before nobody knows it any more.
    derived::say_settled(store, &plan.said).await?;
    for seq in group::write(store, fence, groups, progress).await? {
        waiting.forget(seq, now_ms());
    }
    store.readings().note_waiting(
        lease.partition,
        &part.destination,
        waiting.behind(store.options().waiting_max),
    );
    cell.put(of, waiting);
    drop(cell);
    plan.mark(store, lease.partition).await?;
    plan.note(store, lease.partition, part);
    Ok(())
}

/// Whether a settlement may write rows, so that it has to know that the destination is there.
fn changes_rows(part: &SettlementPart, waiting: &Waiting) -> bool {
    let waits = |seq| waiting.get(seq).is_some();
    !part.waiting.is_empty()
        || !part.changes.is_empty()
        || part.passed.iter().any(|(row, _)| waits(row.seq))
}

/// What a settlement writes.
#[derive(Debug, Default)]
struct Plan {
    /// Rows that change or enter, by their key and its order; with whether the event's item changes too.
    rows: BTreeMap<(Place, u64), (Stored, bool)>,
    /// Rows that leave: their events are published.
    gone: Vec<Stored>,
    /// Those of them that are of business items, on which that is said.
    said: Vec<Place>,
    /// Rows that leave: an operator let their events go.
    let_go: Vec<Stored>,
    /// Settled, with the name of what it says of them, and their numbers.
    done: Vec<(Place, &'static str, u64)>,
    /// Nobody's of this destination: from and to which index key.
    handed_on: Vec<Place>,
    unrouted: bool,
}

impl Plan {
    /// Works out what changes, in memory.
    fn make(
        store: &DynamoStore,
        partition: PartitionId,
        part: &SettlementPart,
        waiting: &mut Waiting,
        known: &Definitions,
    ) -> Result<Plan> {
        let now = now_ms();
        let is_disabled = |topic: &str| {
            let mut disabled = known.disabled.iter();
            disabled.any(|(id, other)| *id == part.destination && **other == *topic)
        };
        let unrouted = part.destination.as_str() == Destination::UNROUTED;
        let mut plan = Plan { unrouted, ..Plan::default() };
        let places = places(store, partition, part);
        let passed: HashSet<u64> = part.passed.iter().map(|(row, _)| row.seq).collect();
        for new in &part.waiting {
            let seq = new.row.seq;
            let Some(place) = places.get(&seq) else {
                if waiting.get(seq).is_some() {
                    continue;
                }
                return Err(unknown(partition, seq));
            };
            // Before a version there is none that could be pending: it waits for no other.
            let ahead = place.version.is_none() && !passed.contains(&seq);
            if waiting.enter(new, place, ahead, now, is_disabled) {
                plan.touch(waiting, seq, true);
            }
        }
        for (row, outcome) in &part.passed {
            if waiting.get(row.seq).is_some() {
                if waiting.pass(row.seq) {
                    match waiting.forget_discarded(row.seq) {
                        Some(row) => plan.let_go.push(row),
                        None => plan.touch(waiting, row.seq, true),
                    }
                }
                continue;
            }
            // What is unknown was settled before: this is the same settlement again.
            let Some(place) = places.get(&row.seq) else { continue };
            match outcome {
                Passed::Acked | Passed::Erased => {
                    plan.done.push((place.clone(), PUBLISHED_AT, row.seq));
                }
                Passed::Dropped => plan.done.push((place.clone(), DROPPED_AT, row.seq)),
                Passed::OtherRoute => plan.handed_on.push(place.clone()),
                // It waited ahead of the cursor, and was delivered.
                Passed::Waiting => {}
            }
        }
        for change in &part.changes {
            let seq = change.row().seq;
            let before = waiting.get(seq).cloned();
            if !waiting.change(change, now, is_disabled) {
                continue;
            }
            match (change, before) {
                (WaitingChange::Delivered(_) | WaitingChange::Erased(_), Some(row)) => {
                    plan.leave(store, row, matches!(change, WaitingChange::Erased(_)));
                }
                _ => plan.touch(waiting, seq, false),
            }
        }
        Ok(plan)
    }

    /// A row leaves: its event was delivered, or had nothing to say.
    fn leave(&mut self, store: &DynamoStore, row: Stored, erased: bool) {
        store.tally().left(&row, erased);
        self.rows.remove(&(row.place.clone(), row.row.seq));
        self.said.extend((!erased).then(|| row.place.clone()));
        self.gone.push(row);
    }

    fn touch(&mut self, waiting: &Waiting, seq: u64, item: bool) {
        let Some(row) = waiting.get(seq) else { return };
        let entry = self.rows.entry((row.place.clone(), seq));
        let (stored, with_item) = entry.or_insert_with(|| (row.clone(), item));
        stored.clone_from(row);
        *with_item |= item;
    }

    /// What there is to write of what waits, of one key in its order.
    fn groups(&self, store: &DynamoStore, of: &RowsOf) -> Result<Vec<Group>> {
        let mut groups = Vec::new();
        let mut add = |row: &Stored, actions: Vec<TransactWriteItem>| {
            groups.push(Group { seq: row.row.seq, place: row.place.clone(), actions });
        };
        for (row, with_item) in self.rows.values() {
            add(row, row_actions(store, of, row, *with_item)?);
        }
        for row in &self.gone {
            add(row, gone_actions(store, &of.pk, row, PUBLISHED_AT)?);
        }
        for row in &self.let_go {
            add(row, gone_actions(store, &of.pk, row, DISCARDED_AT)?);
        }
        Ok(groups)
    }

    /// Marks items. One that is marked already was somebody else's, and is let be.
    async fn mark(&self, store: &DynamoStore, partition: PartitionId) -> Result<()> {
        let done = self.done.iter();
        let done = done.map(|(place, moment, seq)| (place, Told::Settled(moment, *seq)));
        let (from, to) = match self.unrouted {
            true => (unrouted_in(partition), pending_in(partition)),
            false => (pending_in(partition), unrouted_in(partition)),
        };
        let moved = Told::Moved(&from, &to);
        let handed_on = self.handed_on.iter().map(|place| (place, moved));
        let marks: Vec<_> =
            done.chain(handed_on).map(|(place, to)| mark::settled(store, place, to)).collect();
        let mut marks = stream::iter(marks).buffer_unordered(MARKS_AT_ONCE);
        while let Some(marked) = marks.next().await {
            marked?;
        }
        Ok(())
    }

    /// Forgets what is settled.
    fn note(&self, store: &DynamoStore, partition: PartitionId, part: &SettlementPart) {
        let mut readings = store.readings();
        let is_handed_on = |passed: &Passed| *passed == Passed::OtherRoute;
        let of = |other: bool| {
            let passed =
                part.passed.iter().filter(move |(_, passed)| is_handed_on(passed) == other);
            passed.map(|(row, _)| row.seq).collect::<HashSet<u64>>()
        };
        if let Some(known) = readings.partition(partition) {
            known.settle(&of(false));
            known.hand_on(&part.destination, &of(true));
        }
        if !self.handed_on.is_empty() {
            readings.stir_others(partition, &part.destination);
        }
    }
}

/// Where the rows stand that a settlement names, as far as this owner handed them out.
fn places(
    store: &DynamoStore,
    partition: PartitionId,
    part: &SettlementPart,
) -> HashMap<u64, Place> {
    let mut readings = store.readings();
    let Some(known) = readings.partition(partition) else { return HashMap::new() };
    let seqs = part.waiting.iter().map(|new| new.row.seq);
    let seqs = seqs.chain(part.passed.iter().map(|(row, _)| row.seq));
    seqs.filter_map(|seq| Some((seq, known.place(seq)?.clone()))).collect()
}

fn unknown(partition: PartitionId, seq: u64) -> Error {
    Error::new(ErrorKind::Conflict, "settle")
        .message("an event that should wait was not handed out by this owner; nothing was written")
        .context("partition", partition)
        .context("seq", seq)
}

/// A row that enters or changes; the first with its event's item, which leaves the index if the cursor has
/// passed it.
pub(crate) fn row_actions(
    store: &DynamoStore,
    of: &RowsOf,
    row: &Stored,
    with_item: bool,
) -> Result<Vec<TransactWriteItem>> {
    let names = store.connection().names();
    let written = put(&names.store, row.item(of)).build();
    let mut actions = vec![TransactWriteItem::builder().put(built(written)?).build()];
    if let Some(version) = row.place.version.as_deref().filter(|_| with_item) {
        actions.push(derived::enters(names, &row.place, version)?);
    } else if with_item && row.place.is_ours() {
        // What was marked before it was published was not: the mark goes with the write that says so.
        let shard = if row.ahead { "" } else { ", #shard" };
        let mut update = Update::builder()
            .table_name(&names.outbox)
            .set_key(Some(row.place.key(names)))
            .update_expression(format!("SET #seq = :seq REMOVE published_at, marked_by{shard}"))
            // The same settlement, sent again, undoes nothing that an operator did after its first half.
            .condition_expression("attribute_exists(#pk) AND attribute_not_exists(#discarded)")
            .expression_attribute_names("#pk", &names.pk)
            .expression_attribute_names("#discarded", DISCARDED_AT)
            .expression_attribute_names("#seq", SEQ)
            .expression_attribute_values(":seq", n(row.row.seq));
        if !row.ahead {
            update = update.expression_attribute_names("#shard", SHARD);
        }
        actions.push(TransactWriteItem::builder().update(built(update.build())?).build());
    }
    Ok(actions)
}

/// A row that leaves, and its event, which is published, or let go, as the name of the moment says.
pub(crate) fn gone_actions(
    store: &DynamoStore,
    pk: &str,
    row: &Stored,
    moment: &str,
) -> Result<Vec<TransactWriteItem>> {
    let names = store.connection().names();
    let delete = Delete::builder().table_name(&names.store).set_key(Some(key(pk, &row.sk())));
    let delete = TransactWriteItem::builder().delete(built(delete.build())?).build();
    if !row.place.is_ours() {
        // Its item left the index when the row came, and says nothing of what became of it.
        return Ok(vec![delete]);
    }
    let update = Update::builder()
        .table_name(&names.outbox)
        .set_key(Some(row.place.key(names)))
        .update_expression(mark::settling(moment))
        .condition_expression("attribute_exists(#pk)")
        .expression_attribute_names("#pk", &names.pk)
        .expression_attribute_names("#moment", moment)
        .expression_attribute_names("#ttl", &names.ttl)
        .expression_attribute_names("#shard", SHARD)
        .expression_attribute_names("#seq", SEQ)
        .expression_attribute_values(":ttl", n(store.expires_at()))
        .expression_attribute_values(":now", n(now_ms()));
    Ok(vec![delete, TransactWriteItem::builder().update(built(update.build())?).build()])
}

/// A row that enters late, and its event, which does not expire while it waits.
pub(crate) fn requeue_actions(
    store: &DynamoStore,
    of: &RowsOf,
    row: &Stored,
) -> Result<Vec<TransactWriteItem>> {
    let names = store.connection().names();
    let written = put(&names.store, row.item(of)).build();
    let update = Update::builder()
        .table_name(&names.outbox)
        .set_key(Some(row.place.key(names)))
        .update_expression("SET #seq = :seq REMOVE #ttl, #discarded, #dropped")
        .condition_expression("attribute_exists(#pk) AND attribute_not_exists(#shard)")
        .expression_attribute_names("#pk", &names.pk)
        .expression_attribute_names("#ttl", &names.ttl)
        .expression_attribute_names("#discarded", DISCARDED_AT)
        .expression_attribute_names("#dropped", DROPPED_AT)
        .expression_attribute_names("#shard", SHARD)
        .expression_attribute_names("#seq", SEQ)
        .expression_attribute_values(":seq", n(row.row.seq));
    Ok(vec![
        TransactWriteItem::builder().put(built(written)?).build(),
        TransactWriteItem::builder().update(built(update.build())?).build(),
    ])
}
