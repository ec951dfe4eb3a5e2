//! Recording outcomes: cursor, waiting events, and the settled log, in one fenced statement.
//!
//! Invariants: a cursor moves only from where the relay believed it to be; what it passes is counted once,
//! however often the settlement is sent; and an event that waits is written in the transaction of the
//! cursor that passes it. A save that only moves cursors commits without waiting for the disk: a crash of the
//! server may take it back, and then the events come again. What waits is on the disk when `settle`
//! returns, and is numbered: a settlement that was sent again and arrives after a later one changes nothing.

use std::collections::BTreeMap;

use postrider_core::range::RangeChange;
use postrider_core::waiting::{Passed, RowRef, Settlement, SettlementPart};
use postrider_core::{Cursor, ErrorKind, KeyHash, Result, Timestamp};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::cursor::Columns;
use crate::gather::Reply;
use crate::sessions::Line;
use crate::sql::{Sql, sql};
use crate::store::PostgresStore;
use crate::typed::{params, partition, signed};
use crate::waiting;

const SETTLE: Sql = sql!("settle/settle");
const SETTLE_MANY: Sql = sql!("settle/settle_many");

/// How many sequence numbers share a row of the settled log.
pub(crate) const BUCKET: u64 = 4_096;

/// A settlement as the functions of the schema take it.
#[derive(Debug)]
pub(crate) struct Save {
    partition: i16,
    owner: String,
    token: i64,
    life: Option<Uuid>,
    parts: Value,
}

/// Writes a settlement, if its lease stands. Those that only move cursors share a statement with others of
/// the same moment.
pub(crate) async fn settle(store: &PostgresStore, settlement: &Settlement) -> Result<()> {
    let lease = &settlement.lease;
    let life = store.life_of(lease).map(|life| Uuid::from_u128(life.0));
    let mut parts: Vec<&SettlementPart> = settlement.parts.iter().collect();
    // Cursors are locked in one order everywhere.
    parts.sort_by(|a, b| a.destination.as_str().cmp(b.destination.as_str()));
    let durable = parts.iter().any(|part| {
        !part.waiting.is_empty()
            || !part.changes.is_empty()
            || !part.disabled.is_empty()
            || !part.ranges.is_empty()
    });
    let save = Save {
        partition: partition(lease.partition),
        owner: lease.owner.as_str().to_owned(),
        token: signed(lease.token),
        life,
        parts: Value::Array(parts.into_iter().map(part).collect::<Result<_>>()?),
    };
    let written = match durable || life.is_none() {
        true => {
            // One that only moves cursors says from where, and needs no number.
            let number = || signed(store.remembered().next_settlement(Timestamp::now()));
            settle_one(store, &save, durable.then(number)).await
        }
        false => {
            let writer = store.clone();
            let saved = store.inner.saves.ask("settle", save, move |group| {
                let store = writer.clone();
                async move { settle_many(&store, group).await.into_iter().map(Reply::Is).collect() }
            });
            saved.await
        }
    };
    written
        .map_err(|error| error.context("partition", lease.partition).context("token", lease.token))
}

/// With a number it is durable.
async fn settle_one(store: &PostgresStore, save: &Save, number: Option<i64>) -> Result<()> {
    let session = store.sessions().line(Line::Write, "settle").await?;
    let parts = save.parts.to_string();
    let durable = number.is_some();
    let of = params![save.partition, save.owner, save.token, save.life, durable, parts, number];
    session.execute("settle", &SETTLE, of).await.map(drop)
}

/// One statement for all. If the server refuses it, nothing of it is written, and each is asked for by itself:
/// what is wrong with one of them is not the others' affair.
async fn settle_many(store: &PostgresStore, mut saves: Vec<Save>) -> Vec<Result<()>> {
    if let [save] = saves.as_slice() {
        return vec![settle_one(store, save, None).await];
    }
    let mut places: Vec<usize> = (0..saves.len()).collect();
    places.sort_by_key(|place| saves[*place].partition);
    let all: Vec<Value> = places.iter().map(|place| saves[*place].object()).collect();
    let together = async {
        let session = store.sessions().line(Line::Write, "settle").await?;
        let all = Value::Array(all).to_string();
        session.execute("settle", &SETTLE_MANY, params![all]).await.map(drop)
    };
    match together.await {
        Ok(()) => saves.iter().map(|_| Ok(())).collect(),
        Err(error) if is_refusal(error.kind()) => {
            let alone =
                saves.drain(..).map(|save| async move { settle_one(store, &save, None).await });
            futures_util::future::join_all(alone).await
        }
        Err(error) => saves.iter().map(|_| Err(error.repeated())).collect(),
    }
}

/// Whether the server answered that it did nothing. Who did not answer may have written.
fn is_refusal(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Fenced | ErrorKind::Conflict | ErrorKind::Busy | ErrorKind::Invalid)
}

impl Save {
    fn object(&self) -> Value {
        json!({
            "partition": self.partition,
            "owner": self.owner,
            "token": self.token,
            "life": self.life.map(|life| life.to_string()),
            "parts": self.parts,
        })
    }
}

/// A part as the function of the schema takes it.
pub(crate) fn part(part: &SettlementPart) -> Result<Value> {
    let moves = part.cursor.as_ref().filter(|(from, to)| from != to);
    let disabled = part.disabled.iter().map(
        |endpoint| json!({ "topic": &*endpoint.topic, "detail": waiting::cut(&endpoint.detail) }),
    );
    Ok(json!({
        "destination": part.destination.as_str(),
        "cursor": moves.map(|(from, to)| cursor(from, to)).transpose()?,
        "buckets": buckets(&part.passed),
        "waiting": waiting::entering(&part.waiting),
        "changes": waiting::changes(&part.changes),
        "disabled": disabled.collect::<Vec<_>>(),
        "ranges": part.ranges.iter().map(range).collect::<Result<Vec<_>>>()?,
    }))
}

fn cursor(from: &Cursor, to: &Cursor) -> Result<Value> {
    Ok(both(standing(from), place(to)?))
}

/// What becomes of a range. A key is as long as it is; what the database takes in no text is none of a row's.
fn range(change: &RangeChange) -> Result<Value> {
    let said = |kind: &str, key: KeyHash| json!({ "kind": kind, "key_hash": key.0.cast_signed() });
    Ok(match change {
        RangeChange::Open(range) => {
            let named = json!({ "key": &*range.key, "version": signed(range.version) });
            both(both(said("open", range.key_hash), named), place(&range.cursor)?)
        }
        RangeChange::Move { key_hash, from, to } => {
            both(both(said("move", *key_hash), standing(from)), place(to)?)
        }
        RangeChange::Close { key_hash, from } => both(said("close", *key_hash), standing(from)),
    })
}

/// An object with what another has.
fn both(mut one: Value, other: Value) -> Value {
    if let (Value::Object(one), Value::Object(other)) = (&mut one, other) {
        one.extend(other);
    }
    one
}

/// Where something stands: what is to be changed stands there, or is left alone.
fn standing(at: &Cursor) -> Value {
    json!({ "from": hex(at.base()), "at": signed(at.position()) })
}

/// The columns of a cursor.
fn place(at: &Cursor) -> Result<Value> {
    let row = Columns::of(at)?;
    Ok(json!({
        "to": hex(&row.base),
        "position": row.position,
        "base_xmax": row.base_xmax,
        "floor": row.floor,
        "pending_xids": row.pending_xids,
        "pending_floors": row.pending_floors,
        "target_xmin": row.target_xmin,
        "target_xmax": row.target_xmax,
        "target_xip": row.target_xip,
        "target_floor": row.target_floor,
        "ground": row.ground,
    }))
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// What is added to one row of the settled log.
#[derive(Default)]
struct Bucket {
    id_sum: u64,
    count: u32,
    acked: u32,
    other_route: u32,
    dropped: u32,
    waiting: u32,
    erased: u32,
}

impl Bucket {
    fn add(&mut self, row: RowRef, passed: Passed) {
        self.id_sum = self.id_sum.wrapping_add(row.id.digest());
        self.count += 1;
        *match passed {
            Passed::Acked => &mut self.acked,
            Passed::OtherRoute => &mut self.other_route,
            Passed::Dropped => &mut self.dropped,
            Passed::Waiting => &mut self.waiting,
            Passed::Erased => &mut self.erased,
        } += 1;
    }

    fn row(&self, number: u64) -> Value {
        json!({
            "bucket": number,
            "count": self.count,
            "id_sum": self.id_sum.cast_signed(),
            "acked": self.acked,
            "other_route": self.other_route,
            "dropped": self.dropped,
            "waiting": self.waiting,
            "erased": self.erased,
        })
    }
}

fn buckets(passed: &[(RowRef, Passed)]) -> Vec<Value> {
    let mut buckets: BTreeMap<u64, Bucket> = BTreeMap::new();
    for (row, passed) in passed {
        buckets.entry(row.seq / BUCKET).or_default().add(*row, *passed);
    }
    buckets.iter().map(|(number, bucket)| bucket.row(*number)).collect()
}
