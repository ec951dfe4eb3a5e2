//! Marking what was published, with everything else of a settlement, in one fenced statement.
//!
//! Invariant: what is marked was acknowledged, dropped by a route, or erased (INV-7). What waits is
//! passed over and stays pending in the table's own words.

use std::collections::BTreeSet;

use postrider_core::waiting::{Passed, RowRef, Settlement, SettlementPart, WaitingChange};
use postrider_core::{Destination, Error, EventId, Lease, Result, Timestamp};
use serde_json::Value;

use super::OwnTable;
use super::attempt::{is_refused, refused};
use crate::sessions::Line;
use crate::settle::part as written;
use crate::sql::{Sql, sql};
use crate::typed::{params, partition, signed, unsigned, uuid};

const SETTLE: Sql = sql!("own/settle");

/// The parts of a settlement that only marks.
const NOTHING: &str = "[]";

/// What follows where a row cannot be marked.
const NO_MORE: &str = "Nothing more is sent";

/// How often the table may refuse before its rows are not told apart any more: enough for a few in a window, and below what a
/// call of the store may take.
const REFUSALS_MAX: usize = 64;

/// What a settlement says of the table's rows.
#[derive(Debug, Default, PartialEq, Eq)]
struct Marks {
    /// Published, or nobody's.
    done: BTreeSet<RowRef>,
    /// Passed without being done: by which destination, and whether they wait.
    passed: Vec<(String, RowRef, bool)>,
    /// Nobody's, though a destination said that another's route matches: routes have changed.
    anew: BTreeSet<RowRef>,
}

impl Marks {
    fn of(parts: &[&SettlementPart]) -> Marks {
        let mut marks = Marks::default();
        for part in parts {
            marks.add(part);
        }
        let Marks { done, passed, anew } = &mut marks;
        passed.retain(|(_, row, _)| !done.contains(row));
        anew.retain(|row| !done.contains(row));
        marks
    }

    fn add(&mut self, part: &SettlementPart) {
        let id = part.destination.as_str();
        for (row, passed) in &part.passed {
            match passed {
                Passed::Acked | Passed::Dropped | Passed::Erased => {
                    self.done.insert(*row);
                }
                Passed::OtherRoute if id == Destination::UNROUTED => {
                    self.anew.insert(*row);
                }
                Passed::OtherRoute => self.passed.push((id.to_owned(), *row, false)),
                Passed::Waiting => self.passed.push((id.to_owned(), *row, true)),
            }
        }
        for change in &part.changes {
            if let WaitingChange::Delivered(row) | WaitingChange::Erased(row) = change {
                self.done.insert(*row);
            }
        }
    }
}

/// Writes a settlement, if its lease stands. A row that cannot be marked now is owed, and asked for again.
pub(super) async fn settle(table: &OwnTable, settlement: &Settlement) -> Result<()> {
    let mut parts: Vec<&SettlementPart> = settlement.parts.iter().collect();
    parts.sort_by(|a, b| a.destination.as_str().cmp(b.destination.as_str()));
    let durable = parts.iter().any(|part| {
        !part.waiting.is_empty() || !part.changes.is_empty() || !part.disabled.is_empty()
    });
    // Cursors of readings are saved nowhere: the rows say what is pending.
    let plain = |part: &&SettlementPart| SettlementPart {
        cursor: None,
        passed: Vec::new(),
        ..(*part).clone()
    };
    let values = parts.iter().map(|part| written(&plain(part)));
    let values = Value::Array(values.collect::<Result<_>>()?).to_string();
    let mut marks = Marks::of(&parts);
    marks.done.extend(table.readings().owed().keys());
    let left = match write(table, &settlement.lease, durable, &values, &marks).await {
        Err(error) if is_refused(&error) && !marks.done.is_empty() => {
            let (left, _) = mark_apart(table, &settlement.lease, &marks.done, error).await?;
            // Nothing is noted of a row that stays pending: the next relay sends it again.
            let anew = left.iter().map(|(row, _)| *row).chain(marks.anew.iter().copied());
            let rest = Marks { done: BTreeSet::new(), anew: anew.collect(), passed: marks.passed };
            write(table, &settlement.lease, durable, &values, &rest).await?;
            left
        }
        left => left?,
    };
    let mut readings = table.readings();
    readings.owe(&marks.done, left.into_iter());
    for part in parts {
        readings.settle(&part.destination, part.passed.iter().map(|(row, _)| row.seq));
    }
    Ok(())
}

/// Marks what could not be marked when it was done, if it can be by now.
pub(super) async fn mark_owed(table: &OwnTable, lease: &Lease) -> Result<()> {
    let done: BTreeSet<RowRef> = table.readings().owed().keys().copied().collect();
    if done.is_empty() {
        return Ok(());
    }
    let marks = Marks { done, ..Marks::default() };
    let (left, error) = match write(table, lease, false, NOTHING, &marks).await {
        Err(error) if is_refused(&error) => {
            let (left, error) = mark_apart(table, lease, &marks.done, error).await?;
            (left, Some(error))
        }
        left => (left?, None),
    };
    table.readings().owe(&marks.done, left.into_iter());
    error.map_or(Ok(()), |error| Err(refused(table, error, NO_MORE)))
}

/// Marks in halves what could not be marked together, until it is known which rows are refused: they hold back no other.
/// Says what is left, as [`write`], and the last refusal.
async fn mark_apart(
    table: &OwnTable,
    lease: &Lease,
    rows: &BTreeSet<RowRef>,
    mut error: Error,
) -> Result<(Vec<(RowRef, bool)>, Error)> {
    let (mut left, mut refusals) = (Vec::new(), 0);
    let mut apart: Vec<Vec<RowRef>> = vec![rows.iter().copied().collect()];
    while let Some(rows) = apart.pop() {
        let marks = Marks { done: rows.iter().copied().collect(), ..Marks::default() };
        match write(table, lease, false, NOTHING, &marks).await {
            Ok(more) => left.extend(more),
            Err(again) if is_refused(&again) => {
                (error, refusals) = (again, refusals + 1);
                match &rows[..] {
                    _ if refusals > REFUSALS_MAX => return Err(refused(table, error, NO_MORE)),
                    [row] => left.push((*row, true)),
                    rows => apart.extend(rows.chunks(rows.len().div_ceil(2)).map(<[_]>::to_vec)),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok((left, error))
}

/// Says which rows are done and still pending, and of each whether it was not for want of its lock.
async fn write(
    table: &OwnTable,
    lease: &Lease,
    durable: bool,
    values: &str,
    marks: &Marks,
) -> Result<Vec<(RowRef, bool)>> {
    let search_path = &table.checked().await?.search_path;
    let (seqs, ids): (Vec<i64>, Vec<uuid::Uuid>) =
        marks.done.iter().map(|row| (signed(row.seq), uuid(row.id))).unzip();
    let names: Vec<String> = marks.passed.iter().map(|(name, ..)| name.clone()).collect();
    let (passed, passed_ids): (Vec<i64>, Vec<uuid::Uuid>) =
        marks.passed.iter().map(|(_, row, _)| (signed(row.seq), uuid(row.id))).unzip();
    let waits: Vec<bool> = marks.passed.iter().map(|(.., waits)| *waits).collect();
    let anew: Vec<i64> = marks.anew.iter().map(|row| signed(row.seq)).collect();
    // What waits may be changed by an operator since: one that comes late must not undo that.
    let store = &table.inner.store;
    let number = || signed(store.remembered().next_settlement(Timestamp::now()));
    let number: Option<i64> = durable.then(number);
    let session = store.sessions().line(Line::Write, "settle").await?;
    let rows = session
        .rows(
            "settle",
            &SETTLE,
            params![
                partition(lease.partition),
                lease.owner.as_str(),
                signed(lease.token),
                durable,
                values,
                seqs,
                ids,
                names,
                passed,
                passed_ids,
                waits,
                anew,
                number,
                search_path
            ],
        )
        .await
        .map_err(|error| {
            let error = table.theirs(error);
            error.context("partition", lease.partition).context("token", lease.token)
        })?;
    let left = rows.iter().skip(1).map(|row| {
        let id: uuid::Uuid = row.get(1);
        (RowRef { seq: unsigned(row.get(0)), id: EventId::from_u128(id.as_u128()) }, row.get(2))
    });
    Ok(left.collect())
}
