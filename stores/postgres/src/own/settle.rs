//! Marking what was published, with everything else of a settlement, in one fenced statement.
//!
//! Invariant: what is marked was acknowledged, dropped by a route, or erased (INV-7). What waits is
//! passed over and stays pending in the table's own words.

use std::collections::BTreeSet;

use postrider_core::waiting::{Passed, RowRef, Settlement, SettlementPart, WaitingChange};
use postrider_core::{Destination, Result, Timestamp};
use serde_json::Value;

use super::OwnTable;
use crate::sessions::Line;
use crate::settle::part as written;
use crate::sql::{Sql, sql};
use crate::typed::{params, partition, signed, uuid};

const SETTLE: Sql = sql!("own/settle");

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

/// Writes a settlement, if its lease stands.
pub(super) async fn settle(table: &OwnTable, settlement: &Settlement) -> Result<()> {
    table.columns().await?;
    let lease = &settlement.lease;
    let mut parts: Vec<&SettlementPart> = settlement.parts.iter().collect();
    parts.sort_by(|a, b| a.destination.as_str().cmp(b.destination.as_str()));
    let durable = parts.iter().any(|part| {
        !part.waiting.is_empty() || !part.changes.is_empty() || !part.disabled.is_empty()
    });
    let marks = Marks::of(&parts);
    // Cursors of readings are saved nowhere: the rows say what is pending.
    let plain = |part: &&SettlementPart| SettlementPart {
        cursor: None,
        passed: Vec::new(),
        ..(*part).clone()
    };
    let values = parts.iter().map(|part| written(&plain(part)));
    let values = Value::Array(values.collect::<Result<_>>()?).to_string();
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
    session
        .execute(
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
                number
            ],
        )
        .await
        .map_err(|error| {
            error.context("partition", lease.partition).context("token", lease.token)
        })?;
    let mut readings = table.readings();
    for part in parts {
        readings.settle(&part.destination, part.passed.iter().map(|(row, _)| row.seq));
    }
    Ok(())
}
