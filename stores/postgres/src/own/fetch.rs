//! Reading what is pending, in order, by the rows' own word.
//!
//! Invariants: a page is read under the token, in the statement itself; what is handed out is durable
//! (INV-2); and a row that cannot be read as an event is handed on as such, and stops nobody. A negative number does:
//! there is no place for its row before the others.

use postrider_core::source::{FetchRequest, FetchedRow, Malformed, Page};
use postrider_core::waiting::Reason;
use postrider_core::{
    Destination, DestinationId, Error, ErrorKind, EventLimits, Lease, Payload, Result, Timestamp,
};
use tokio_postgres::Row;
use uuid::Uuid;

use super::OwnTable;
use super::attempt::{attempt, unmarkable};
use super::reading::Standing;
use super::settle::mark_owed;
use crate::answer::position;
use crate::fetch::not_there;
use crate::row::{Decoded, Decoder};
use crate::session::Session;
use crate::sessions::Line;
use crate::sql::{Sql, sql};
use crate::tick::life;
use crate::typed::{Moment, params, partition, signed};

const FETCH: Sql = sql!("own/fetch");
const FETCH_NUMBERED: Sql = sql!("own/fetch_numbered");
const AGAIN: Sql = sql!("own/again");
const UNROUTED: Sql = sql!("own/unrouted");

/// How much more than the page is asked for, by the size of the rows before: some are larger.
const SPARE: u64 = 2;

/// So many rows that were published may wait for their locks to be marked: if the relay dies, they are sent again.
const OWED_MAX: usize = 1_000;

/// The columns of the first row that say which life of the server this is, how far its log is written and
/// flushed, and whether the destination is there.
const LIFE: usize = 1;
const WRITTEN: usize = 2;
const FLUSHED: usize = 3;
const KNOWN: usize = 4;

/// The page behind a place of a reading.
pub(super) async fn fetch(table: &OwnTable, request: &FetchRequest) -> Result<Page> {
    table.checked().await?;
    let [destination] = &*request.destinations else {
        return Err(Error::new(ErrorKind::Internal, "fetch")
            .message("readings of a table that marks its rows are not shared"));
    };
    marks_are_written(table, &request.lease).await?;
    let standing = table.readings().standing(destination, &request.after)?;
    let session = table.inner.store.sessions().line(Line::Read, "fetch").await?;
    let rows = select(table, &session, request, destination, &standing).await?;
    let Some((server, rows)) = rows.split_first() else {
        return Err(Error::new(ErrorKind::Fenced, "fetch")
            .message("the lease was taken over; nothing was read")
            .context("partition", request.lease.partition)
            .context("token", request.lease.token));
    };
    if server.get::<_, Option<&str>>(KNOWN).is_none() {
        return Err(not_there(destination));
    }
    let store = &table.inner.store;
    if let Some(first) = rows.first() {
        attempt(table, first).await?;
        let read_in = server.get::<_, Option<Uuid>>(LIFE).map(life);
        if position(log(server, WRITTEN)) > position(log(server, FLUSHED)) {
            // A transaction that is seen may still be lost in a crash, and its event would be a ghost.
            store.flush(0, log(server, WRITTEN), read_in).await?;
        }
        store.await_standby(log(server, WRITTEN), read_in).await?;
    }
    let source = store.default_source(&session).await?;
    page(table, request, destination, &standing, &mut Decoder::new(&source, 0), rows)
}

/// Tries again to mark what could not be marked when it was done. What nobody has locked, and stays pending all the same,
/// would be sent again for ever, by this relay or the next: nothing more is read then.
async fn marks_are_written(table: &OwnTable, lease: &Lease) -> Result<()> {
    mark_owed(table, lease).await?;
    let row_security = table.checked().await?.row_security;
    let readings = table.readings();
    let owed = readings.owed();
    if owed.values().any(|held| *held || row_security) {
        return Err(unmarkable(table, "Nothing more is sent").context("rows", owed.len()));
    }
    if owed.len() < OWED_MAX {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Busy, "fetch")
        .message("rows that were published are locked by somebody, and cannot be marked yet; nothing more is sent")
        .context("rows", owed.len()))
}

fn log(row: &Row, column: usize) -> &str {
    row.get::<_, Option<&str>>(column).unwrap_or_default()
}

async fn select(
    table: &OwnTable,
    session: &Session,
    request: &FetchRequest,
    destination: &DestinationId,
    standing: &Standing,
) -> Result<Vec<Row>> {
    let lease = &request.lease;
    let (place, owner, token) =
        (partition(lease.partition), lease.owner.as_str(), signed(lease.token));
    let under_way: Vec<i64> = standing.under_way.iter().copied().map(signed).collect();
    let rows_max = rows_max(request, standing);
    if !standing.again.is_empty() {
        let again = standing.again.iter().take(rows_max as usize);
        let again: Vec<i64> = again.map(|(_, seq)| signed(*seq)).collect();
        let values = params![place, owner, token, destination.as_str(), again];
        return session.rows("fetch", &AGAIN, values).await;
    }
    if destination.as_str() == Destination::UNROUTED {
        let name = destination.as_str();
        // What is only compared is noted as if it were passed: nothing of it is without a route.
        let rows_max = if table.inner.compares { 0 } else { rows_max };
        let values = params![place, owner, token, name, under_way, rows_max];
        return session.rows("fetch", &UNROUTED, values).await;
    }
    let until = request.until.as_ref().map(|until| signed(until.position()));
    let statement = if table.is_numbered().await? { &FETCH_NUMBERED } else { &FETCH };
    let bytes_max = signed(request.bytes_max.max(1));
    let values =
        params![place, owner, token, destination.as_str(), under_way, until, rows_max, bytes_max];
    session.rows("fetch", statement, values).await
}

/// How many rows are asked for: no more than have room, by what those before weighed.
fn rows_max(request: &FetchRequest, standing: &Standing) -> i32 {
    let room = request.bytes_max.saturating_mul(SPARE).checked_div(standing.row_bytes);
    let rows = room.unwrap_or(u64::MAX).clamp(1, u64::from(request.rows_max.max(1)));
    i32::try_from(rows).unwrap_or(i32::MAX)
}

/// Rows up to the limits of the request, each with its place.
fn page(
    table: &OwnTable,
    request: &FetchRequest,
    destination: &DestinationId,
    standing: &Standing,
    decoder: &mut Decoder,
    rows: &[Row],
) -> Result<Page> {
    let asked = usize::try_from(rows_max(request, standing)).unwrap_or(usize::MAX);
    let after = &request.after;
    let mut page = Page { rows: Vec::new(), end: after.clone(), more: rows.len() >= asked };
    let mut bytes: u64 = 0;
    let mut readings = table.readings();
    for row in rows {
        let number: i64 = row.get(0);
        if number < 0 {
            return Err(Error::new(ErrorKind::Config, "fetch")
                .message(
                    "a row has a negative number, and would be overtaken by those behind it; nothing was read. Mark it \
                     yourself, or give it another number",
                )
                .context("number", number));
        }
        let decoded = examine(decoder.decode(row));
        let total = bytes.saturating_add(decoded.bytes);
        if !page.rows.is_empty() && total > request.bytes_max {
            page.more = true;
            break;
        }
        bytes = total;
        let seq = decoded.row.seq;
        let place = match standing.again.iter().find(|(_, known)| *known == seq) {
            Some((place, _)) => *place,
            None => readings.hand_out(destination, after, seq)?,
        };
        page.rows.push(FetchedRow {
            row: decoded.row,
            cursor: after.at(place),
            key_hash: decoded.key_hash,
            bytes: decoded.bytes,
            event: decoded.event,
        });
    }
    readings.weigh(destination, bytes, page.rows.len());
    if let Some(last) = page.rows.last() {
        page.end = last.cursor.clone();
    }
    if let Some((place, _)) = standing.again.last() {
        // Behind what was handed out before stands what is new. What went from the table since is passed.
        if page.rows.len() == rows.len() && rows.len() < asked {
            page.end = after.at(*place);
        }
        page.more = true;
    }
    Ok(page)
}

/// What the store's own tables refuse when it is written is found here when it is read.
fn examine(mut decoded: Decoded) -> Decoded {
    let limits = EventLimits { payload_bytes_max: u64::MAX, ..EventLimits::default() };
    let Ok(event) = &decoded.event else { return decoded };
    let wrong = match &event.payload {
        Payload::Json(text) if !is_json(text) => Some("payload is no JSON".to_owned()),
        _ if !is_finite(event.created_at) => Some("created_at is out of range".to_owned()),
        _ if !is_finite(event.occurred_at) => Some("occurred_at is out of range".to_owned()),
        _ => limits.check(event).err().map(|error| error.to_string()),
    };
    if let Some(detail) = wrong {
        decoded.event = Err(Malformed { reason: Reason::Malformed, detail, event: None });
    }
    decoded
}

fn is_finite(time: Timestamp) -> bool {
    Moment::from(time).is_finite()
}

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
}
