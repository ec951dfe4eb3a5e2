//! Carrying out what operators asked for, as the owner of the partitions.
//!
//! Invariants: a row is changed and marked in one fenced statement, so that it is never done twice; of the
//! events that hold a key only the first becomes due; and nothing that may be under way is touched: only
//! dead letters, events of disabled endpoints, and what the cursor has passed. The decisions about rows are
//! the schema's (`sql/schema/001/54_requests.sql`); whether a row can be read as an event, and where a cursor
//! is set back to, is decided here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use postrider_core::snapshot::SnapshotCursor;
use postrider_core::source::{CarriedOut, CarryOutRequest};
use postrider_core::{
    Cursor, DestinationId, Error, ErrorKind, KeyHash, Lease, PartitionId, Payload, Result,
};
use tokio_postgres::Row;

use crate::cursor::Columns;
use crate::operator::rebase;
use crate::row::Decoder;
use crate::schema;
use crate::session::Session;
use crate::sessions::Line;
use crate::sql::{Sql, sql};
use crate::store::PostgresStore;
use crate::typed::{params, partition, signed, unsigned};

const OPEN: Sql = sql!("request/open");
const EVENTS: Sql = sql!("request/events");
const CARRY_OUT: Sql = sql!("request/carry_out");
const CURSOR: Sql = sql!("request/cursor");
const REWIND: Sql = sql!("request/rewind");

/// How often a rewind is tried where a settlement moves the cursor meanwhile.
const REWINDS_MAX: usize = 5;

/// Carries out what is open, oldest request first, up to the limit.
pub(crate) async fn carry_out(
    store: &PostgresStore,
    request: &CarryOutRequest,
) -> Result<CarriedOut> {
    let session = store.sessions().line(Line::Write, "carry out").await?;
    let room = request.rows_max.max(1);
    let partitions: Vec<i16> =
        request.leases.iter().map(|lease| partition(lease.partition)).collect();
    let rows = session.rows("carry out", &OPEN, params![partitions, i64::from(room) + 1]).await?;
    let mut carrying = Carrying {
        session: &session,
        room,
        touched: BTreeSet::new(),
        answer: CarriedOut::default(),
    };
    let mut open: BTreeMap<PartitionId, Vec<Asked>> = BTreeMap::new();
    for row in &rows {
        carrying.answer.definitions = unsigned(row.get(0));
        if let Some(place) = row.get::<_, Option<i16>>(1) {
            let place = PartitionId(u16::try_from(place).unwrap_or_default());
            open.entry(place).or_default().push(Asked::read(row)?);
        }
    }
    if open.is_empty() {
        return Ok(carrying.answer);
    }
    let meta = schema::meta(&session).await?;
    let mut decoder = Decoder::new(meta.get("source").map_or("", String::as_str), 1);
    for lease in &request.leases {
        if let Some(asked) = open.get(&lease.partition) {
            carrying.partition(lease, asked, &mut decoder).await?;
        }
    }
    let mut answer = carrying.answer;
    answer.touched = carrying.touched.into_iter().collect();
    if !answer.enabled.is_empty() {
        answer.definitions = schema::number(&schema::meta(&session).await?, "definitions_version")?;
    }
    Ok(answer)
}

/// One row of a request.
struct Asked {
    request: i64,
    destination: DestinationId,
    seq: i64,
    verb: String,
    topic: Option<String>,
    target: u64,
}

impl Asked {
    fn read(row: &Row) -> Result<Asked> {
        Ok(Asked {
            request: row.get(2),
            destination: DestinationId::new(row.get::<_, &str>(3))?,
            seq: row.get(4),
            verb: row.get(5),
            topic: row.get(6),
            target: row.get::<_, Option<i64>>(7).map_or(0, unsigned),
        })
    }

    /// As the schema's function takes it.
    fn to_json(&self, fit: Option<&KeyHash>) -> serde_json::Value {
        serde_json::json!({
            "request": self.request,
            "destination": self.destination.as_str(),
            "seq": self.seq,
            "verb": self.verb,
            "topic": self.topic,
            "fit": fit.is_some(),
            "key_hash": fit.map(|hash| hash.0.cast_signed()),
        })
    }
}

/// One call: what it may still do, and its answer so far.
struct Carrying<'a> {
    session: &'a Session,
    /// Rows, of requests and of `waiting`, that may still be changed.
    room: u32,
    touched: BTreeSet<(PartitionId, DestinationId)>,
    answer: CarriedOut,
}

impl Carrying<'_> {
    /// Does what is asked of the owner of one partition. A lease that is lost is left out.
    async fn partition(
        &mut self,
        lease: &Lease,
        asked: &[Asked],
        decoder: &mut Decoder,
    ) -> Result<()> {
        let mut rest = asked;
        while let Some(first) = rest.first() {
            if self.room == 0 {
                self.answer.more = true;
                return Ok(());
            }
            if first.verb == "rewind" {
                if !self.rewind(lease, first).await? {
                    return Ok(());
                }
                rest = &rest[1..];
                continue;
            }
            let run = rest.iter().take_while(|asked| asked.verb != "rewind");
            let (now, later) = rest.split_at(run.take(self.room as usize).count());
            if !self.rows(lease, now, decoder).await? {
                return Ok(());
            }
            rest = later;
        }
        Ok(())
    }

    /// Carries out rows that move no cursor. Says whether there is anything to do after them.
    async fn rows(
        &mut self,
        lease: &Lease,
        asked: &[Asked],
        decoder: &mut Decoder,
    ) -> Result<bool> {
        let fit = self.fit(lease, asked, decoder).await?;
        let rows: Vec<_> =
            asked.iter().zip(0..).map(|(asked, nth)| asked.to_json(fit.get(&nth))).collect();
        let rows = serde_json::Value::Array(rows).to_string();
        let room = i32::try_from(self.room).unwrap_or(i32::MAX);
        let of = params![
            partition(lease.partition),
            lease.owner.as_str(),
            signed(lease.token),
            rows,
            room
        ];
        let carried = self.session.rows("carry out", &CARRY_OUT, of).await?;
        let mut goes_on = !carried.is_empty();
        for row in &carried {
            let (number, what): (i64, &str) = (row.get(0), row.get(1));
            let nth = usize::try_from(number - 1).unwrap_or_default();
            let Some(asked) = asked.get(nth) else { continue };
            self.note(lease, asked, what, row);
            if what == "begun" {
                self.answer.more = true;
                goes_on = false;
            }
        }
        Ok(goes_on)
    }

    fn note(&mut self, lease: &Lease, asked: &Asked, what: &str, row: &Row) {
        let took = u32::try_from(row.get::<_, i32>(2)).unwrap_or_default();
        self.room = self.room.saturating_sub(took);
        if what != "begun" {
            self.answer.rows += 1;
        }
        if what != "skipped" {
            self.touched.insert((lease.partition, asked.destination.clone()));
        }
        if let Some(hash) = row.get::<_, Option<i64>>(3) {
            let freed = KeyHash(hash.cast_unsigned());
            self.answer.freed.push((lease.partition, asked.destination.clone(), freed));
        }
        if let (true, Some(topic)) = (row.get(4), &asked.topic) {
            let name = (asked.destination.clone(), Box::from(topic.as_str()));
            if !self.answer.enabled.contains(&name) {
                self.answer.enabled.push(name);
            }
        }
    }

    /// Which rows are about an event that can be read, with the hash of its key. What is erased is not sent
    /// again on request of a recount.
    async fn fit(
        &self,
        lease: &Lease,
        asked: &[Asked],
        decoder: &mut Decoder,
    ) -> Result<BTreeMap<i64, KeyHash>> {
        let about: Vec<(i64, &Asked)> = (0..)
            .zip(asked)
            .filter(|(_, asked)| matches!(&*asked.verb, "redrive" | "requeue"))
            .collect();
        if about.is_empty() {
            return Ok(BTreeMap::new());
        }
        let numbers: Vec<i64> = about.iter().map(|(nth, _)| *nth).collect();
        let verbs: Vec<&str> = about.iter().map(|(_, asked)| &*asked.verb).collect();
        let destinations: Vec<&str> =
            about.iter().map(|(_, asked)| asked.destination.as_str()).collect();
        let seqs: Vec<i64> = about.iter().map(|(_, asked)| asked.seq).collect();
        let of = params![partition(lease.partition), numbers, verbs, destinations, seqs];
        let mut fit = BTreeMap::new();
        for row in self.session.rows("carry out", &EVENTS, of).await? {
            let decoded = decoder.decode(&row);
            let nth: i64 = row.get(0);
            let verb = usize::try_from(nth).ok().and_then(|nth| asked.get(nth));
            let again = verb.is_some_and(|asked| asked.verb == "requeue");
            if let Ok(event) = decoded.event
                && !(again && matches!(event.payload, Payload::Erased))
            {
                fit.insert(nth, decoded.key_hash);
            }
        }
        Ok(fit)
    }

    /// Sets a cursor back, and lets the lease go in the same write. Says whether the lease still stands.
    async fn rewind(&mut self, lease: &Lease, asked: &Asked) -> Result<bool> {
        for _ in 0..REWINDS_MAX {
            let of = params![asked.destination.as_str(), partition(lease.partition)];
            let stands = self.session.optional("carry out", &CURSOR, of).await?;
            let back = match &stands {
                Some(row) => Back::of(row, asked.target)?,
                None => Back::default(),
            };
            let of = params![
                partition(lease.partition),
                lease.owner.as_str(),
                signed(lease.token),
                asked.request,
                asked.destination.as_str(),
                signed(asked.target),
                back.from,
                back.at,
                back.to.base,
                back.to.floor,
                back.to.pending_xids,
                back.to.pending_floors,
                back.to.ground
            ];
            let outcome = self.session.row("carry out", &REWIND, of).await?;
            match outcome.get::<_, &str>(0) {
                "moved" => continue,
                "lost" => return Ok(false),
                "done" => self.answer.surrendered.push(lease.clone()),
                _ => {}
            }
            self.answer.rows += 1;
            self.room = self.room.saturating_sub(1);
            return Ok(self.answer.surrendered.last() != Some(lease));
        }
        Err(Error::new(ErrorKind::Busy, "carry out")
            .message("the cursor moves faster than it can be set back; the request is still open"))
    }
}

/// A cursor, and what it becomes.
#[derive(Default)]
struct Back {
    from: Vec<u8>,
    at: i64,
    to: Columns,
}

impl Back {
    /// The cursor before a number, and before all that its ranges stand for.
    fn of(row: &Row, target: u64) -> Result<Back> {
        let (base, position): (&[u8], i64) = (row.get(0), row.get(1));
        let history_start = unsigned(row.get(2));
        let ranges = row.get::<_, Option<i64>>(3).map(unsigned);
        let stands = SnapshotCursor::decode(&Cursor::new(Arc::from(base), unsigned(position)))?;
        let to = Columns::of(&rebase::back(&stands, ranges, target, history_start).encode()?)?;
        Ok(Back { from: base.to_vec(), at: position, to })
    }
}
