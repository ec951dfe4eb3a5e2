//! Carrying out what operators asked for, as the owner of the partitions.
//!
//! Invariants: rows are changed and counted in one transaction that has the lease as a condition, so that
//! none is done twice; of the events that hold a key only the first becomes due; nothing that may be under way
//! is touched: only dead letters, events of disabled endpoints, and what is settled; and while nothing is
//! asked, an owner reads one item, whatever the number of its partitions.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::TransactWriteItem;
use postrider_core::source::{CarriedOut, CarryOutRequest};
use postrider_core::waiting::{Reason, RowRef, WaitingState};
use postrider_core::{DestinationId, ErrorKind, Lease, PartitionId, Payload, Result};

use crate::collection::single;
use crate::connection::call;
use crate::control::{ASKED, CONTROL, VERSION, key};
use crate::fence::Fence;
use crate::item::{Item, number, s};
use crate::operator::request::find;
use crate::progress::{self, Done};
use crate::record::{DISCARDED_AT, Place, SHARD, decode};
use crate::remembered::Of;
use crate::request::{Asked, Part, Request, parts_pk};
use crate::settle::{gone_actions, requeue_actions, row_actions};
use crate::store::{DynamoStore, now_ms};
use crate::waiting::{RowsOf, Stored, Waiting};
use crate::{definitions, due, lease, remembered};

/// Rows of one transaction: each takes two actions of a hundred, and the counting a few.
const ROWS_AT_ONCE: usize = 40;

/// Carries out what is open, oldest request first, up to the limit.
pub(crate) async fn carry_out(
    store: &DynamoStore,
    request: &CarryOutRequest,
) -> Result<CarriedOut> {
    let (asked, definitions) = asked(store).await?;
    let mut carrying = Carrying {
        store,
        room: request.rows_max.max(1) as usize,
        touched: BTreeSet::new(),
        answer: CarriedOut { definitions, ..CarriedOut::default() },
    };
    for lease in request.leases.iter().filter(|lease| !store.is_idle_at(lease, asked)) {
        let item = match lease::check(store.connection(), "carry out", lease).await {
            Ok(item) => item,
            // A lease that is lost is left out.
            Err(error) if error.kind() == ErrorKind::Fenced => continue,
            Err(error) => return Err(error),
        };
        if carrying.partition(&Fence::of(lease, &item)).await? {
            store.note_idle(lease, asked);
        }
    }
    let mut answer = carrying.answer;
    answer.touched = carrying.touched.into_iter().collect();
    if !answer.enabled.is_empty() {
        answer.definitions = self::asked(store).await?.1;
    }
    Ok(answer)
}

/// How many requests were ever written down, and the version of the definitions.
async fn asked(store: &DynamoStore) -> Result<(u64, u64)> {
    let table = &store.connection().names().store;
    let client = store.connection().tables().await;
    let get = client
        .get_item()
        .table_name(table)
        .set_key(Some(key(CONTROL, VERSION)))
        .consistent_read(true);
    let item = call("carry out", table, get.send()).await?.item.unwrap_or_default();
    let of = |name: &str| number(&item, name).unwrap_or_default();
    Ok((of(ASKED), of("version")))
}

/// One call: what it may still do, and its answer so far.
struct Carrying<'a> {
    store: &'a DynamoStore,
    /// Rows that may still be changed.
    room: usize,
    touched: BTreeSet<(PartitionId, DestinationId)>,
    answer: CarriedOut,
}

/// A row of a part, and what it takes to do it.
struct Changes {
    actions: Vec<TransactWriteItem>,
    done: u64,
    skipped: u64,
    freed: Vec<postrider_core::KeyHash>,
}

impl Carrying<'_> {
    /// Does what is asked of the owner of one partition; whether nothing is left.
    async fn partition(&mut self, fence: &Fence<'_>) -> Result<bool> {
        let mut from: Option<Item> = None;
        loop {
            let table = &self.store.connection().names().store;
            let client = self.store.connection().tables().await;
            let query = client
                .query()
                .table_name(table)
                .key_condition_expression("pk = :pk")
                .expression_attribute_values(":pk", s(parts_pk(fence.lease.partition)))
                .consistent_read(true)
                .set_exclusive_start_key(from.take());
            let page = call("carry out", table, query.send()).await?;
            for item in page.items.unwrap_or_default() {
                let Some(part) = Part::of(&item) else { continue };
                if !self.part(fence, part).await? {
                    return Ok(false);
                }
            }
            from = page.last_evaluated_key;
            if from.is_none() {
                return Ok(true);
            }
        }
    }

    /// Does a part, as far as there is room; whether it is done.
    async fn part(&mut self, fence: &Fence<'_>, mut part: Part) -> Result<bool> {
        let Some(request) = find(self.store, "carry out", part.request).await? else {
            if part.is_abandoned() {
                progress::delete(self.store, fence.lease.partition, &part).await?;
                return Ok(true);
            }
            // It is being written: its request comes, and is told then.
            return Ok(true);
        };
        if let Asked::Enable(topic) = &part.asked {
            let topic = topic.clone();
            return self.enable(fence, &part, &request, &topic).await;
        }
        while part.next < part.len() {
            if self.room == 0 {
                self.answer.more = true;
                return Ok(false);
            }
            let rows = (part.len() - part.next).min(self.room).min(ROWS_AT_ONCE);
            if !self.rows(fence, &mut part, rows).await? {
                self.answer.more = true;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Does so many rows of a part; whether they are written.
    async fn rows(&mut self, fence: &Fence<'_>, part: &mut Part, rows: usize) -> Result<bool> {
        let lease = fence.lease;
        let shared = self.store.waiting(lease.partition, &part.destination);
        let mut cell = shared.lock().await;
        let mut changes = Changes { actions: Vec::new(), done: 0, skipped: 0, freed: Vec::new() };
        let mut waits = remembered::take(self.store, lease, &part.destination, &mut cell).await?;
        match &mut waits {
            Some((of, waiting)) => {
                for index in part.next..part.next + rows {
                    changes.row(self.store, lease, (part, index), *of, waiting).await?;
                }
            }
            // Of a destination that was removed meanwhile nobody would ever send, or find, what is written here.
            None => changes.skipped = rows as u64,
        }
        let done = Done { rows, done: changes.done, skipped: changes.skipped, begun: false };
        if !self.write(fence, part, changes.actions, done).await? {
            return Ok(false);
        }
        part.next += rows;
        let destination = &part.destination;
        if let Some((of, waiting)) = waits {
            let behind = waiting.behind(self.store.options().waiting_max);
            self.store.readings().note_waiting(lease.partition, destination, behind);
            cell.put(of, waiting);
        }
        drop(cell);
        self.room -= rows;
        self.answer.rows += u32::try_from(rows).unwrap_or(u32::MAX);
        if changes.done > 0 {
            self.touched.insert((lease.partition, destination.clone()));
        }
        let freed = |key| (lease.partition, destination.clone(), key);
        self.answer.freed.extend(changes.freed.into_iter().map(freed));
        Ok(true)
    }

    /// Takes an endpoint into service again, and lets its events out in their order, so many at once. If it
    /// was disabled anew meanwhile, what is left stays. Returns whether the part is done.
    async fn enable(
        &mut self,
        fence: &Fence<'_>,
        part: &Part,
        request: &Request,
        topic: &str,
    ) -> Result<bool> {
        let lease = fence.lease;
        let (connection, destination) = (self.store.connection(), &part.destination);
        let mut again = false;
        if request.begun {
            let known = definitions::read(connection).await?;
            again = known.disabled.iter().any(|(of, name)| of == destination && **name == *topic);
        } else {
            definitions::enable(connection, lease, destination, topic).await?;
        }
        let named = (destination.clone(), Box::from(topic));
        if !again && !self.answer.enabled.contains(&named) {
            self.answer.enabled.push(named);
        }
        loop {
            let shared = self.store.waiting(lease.partition, destination);
            let mut cell = shared.lock().await;
            let mut waits = remembered::take(self.store, lease, destination, &mut cell).await?;
            let all = match &waits {
                Some((_, waiting)) if !again => of_endpoint(waiting, topic),
                _ => Vec::new(),
            };
            let rows = all.len().min(self.room).min(ROWS_AT_ONCE);
            let mut actions = Vec::new();
            if let Some((of, waiting)) = &mut waits {
                let of = RowsOf::new(destination, lease.partition, of.since);
                for seq in all.iter().take(rows) {
                    if let Some(row) = waiting.bring_out(*seq, Reason::Behind, now_ms()) {
                        actions.extend(row_actions(self.store, &of, &row, false)?);
                    }
                }
            }
            let over = rows == all.len();
            let done = Done { rows: usize::from(over), done: over.into(), skipped: 0, begun: true };
            if !self.write(fence, part, actions, done).await? {
                self.answer.more = true;
                return Ok(false);
            }
            if let Some((of, waiting)) = waits {
                cell.put(of, waiting);
            }
            drop(cell);
            self.room -= rows;
            if !again {
                self.touched.insert((lease.partition, destination.clone()));
            }
            if over {
                self.answer.rows += 1;
                return Ok(true);
            }
            if self.room == 0 {
                self.answer.more = true;
                return Ok(false);
            }
        }
    }

    /// Writes what changes, with how far the part is, under the lease; whether it is written. If another owner
    /// ended its part of the same request at the same moment, it is not, and is tried again.
    async fn write(
        &self,
        fence: &Fence<'_>,
        part: &Part,
        mut actions: Vec<TransactWriteItem>,
        done: Done,
    ) -> Result<bool> {
        let Some(request) = find(self.store, "carry out", part.request).await? else {
            return Ok(false);
        };
        actions.extend(progress::actions(self.store, fence.lease, part, &request, done)?);
        match fence.write(self.store.connection(), "carry out", actions).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The events that wait for an endpoint, in the order of their keys.
fn of_endpoint(waiting: &Waiting, topic: &str) -> Vec<u64> {
    let of = |row: &&Stored| {
        row.state == WaitingState::Disabled && row.endpoint.as_deref() == Some(topic)
    };
    let mut rows: Vec<&Stored> = waiting.rows().filter(of).collect();
    rows.sort_by_key(|row| row.order());
    rows.into_iter().map(|row| row.row.seq).collect()
}

impl Changes {
    async fn row(
        &mut self,
        store: &DynamoStore,
        lease: &Lease,
        (part, index): (&Part, usize),
        of: Of,
        waiting: &mut Waiting,
    ) -> Result<()> {
        let of = RowsOf::new(&part.destination, lease.partition, of.since);
        let done = match &part.asked {
            Asked::Redrive(seqs) => self.redrive(store, &of, seqs[index], waiting).await?,
            Asked::Discard(seqs) => self.discard(store, &of, seqs[index], waiting).await?,
            Asked::Requeue(places) => {
                self.requeue(store, lease, &of, &places[index], waiting).await?
            }
            Asked::Enable(_) => false,
        };
        if done {
            self.done += 1
        } else {
            self.skipped += 1
        }
        Ok(())
    }

    /// Sends a dead letter again. What cannot be read as an event stays dead.
    async fn redrive(
        &mut self,
        store: &DynamoStore,
        of: &RowsOf,
        seq: u64,
        waiting: &mut Waiting,
    ) -> Result<bool> {
        let dead = |row: &&Stored| row.state == WaitingState::Dead;
        let Some(row) = waiting.get(seq).filter(dead) else { return Ok(false) };
        let item = single(store.connection(), "carry out", &row.place).await?;
        if due::event(store, row, item.as_ref()).is_err() {
            return Ok(false);
        }
        let row = waiting.bring_out(seq, Reason::Redriven, now_ms());
        let Some(row) = row else { return Ok(false) };
        self.actions.extend(row_actions(store, of, &row, false)?);
        Ok(true)
    }

    /// Lets an event go for good; the next of its key comes out.
    async fn discard(
        &mut self,
        store: &DynamoStore,
        of: &RowsOf,
        seq: u64,
        waiting: &mut Waiting,
    ) -> Result<bool> {
        let lost = |row: &&Stored| matches!(row.state, WaitingState::Dead | WaitingState::Disabled);
        let Some(row) = waiting.get(seq).filter(lost) else { return Ok(false) };
        let (held, place) = (row.holds(), row.place.clone());
        let item = single(store.connection(), "carry out", &place).await?;
        let Some(row) = waiting.discard(seq, now_ms()) else { return Ok(false) };
        self.actions.extend(match (row.ahead, item) {
            (true, _) => row_actions(store, of, &row, false)?,
            (false, Some(_)) => gone_actions(store, &of.pk, &row, DISCARDED_AT)?,
            // Somebody deleted the item by hand: the row alone is left.
            (false, None) => {
                gone_actions(store, &of.pk, &row, DISCARDED_AT)?.into_iter().take(1).collect()
            }
        });
        if held {
            self.freed.push(row.key_hash);
        }
        Ok(true)
    }

    /// Sends an event again that is settled: late, because its key went on. One that is pending or waits
    /// comes by itself; of one that was erased nothing is left to send.
    async fn requeue(
        &mut self,
        store: &DynamoStore,
        lease: &Lease,
        of: &RowsOf,
        place: &Place,
        waiting: &mut Waiting,
    ) -> Result<bool> {
        let Some(item) = single(store.connection(), "carry out", place).await? else {
            return Ok(false);
        };
        let decoded = decode(&item, place, store.default_source());
        let waits = waiting.rows().any(|row| row.place == *place);
        let sendable = decoded.event.as_ref().is_ok_and(|event| event.payload != Payload::Erased);
        if waits || !sendable || !place.is_event() || item.contains_key(SHARD) {
            return Ok(false);
        }
        let now = now_ms();
        let created = decoded.event.as_ref().map(|event| event.created_at.as_micros() / 1_000);
        let row = Stored {
            row: RowRef { seq: store.readings().under(lease).next_number(), id: decoded.id },
            place: place.clone(),
            key_hash: decoded.key_hash,
            state: WaitingState::Retrying,
            due: now,
            attempts: 0,
            reason: Reason::Requeued,
            detail: String::new(),
            holds_key: false,
            endpoint: None,
            ahead: false,
            late: true,
            moved_at: now,
            created_at: created.ok(),
        };
        self.actions.extend(requeue_actions(store, of, &row)?);
        waiting.requeue(row, now);
        Ok(true)
    }
}
