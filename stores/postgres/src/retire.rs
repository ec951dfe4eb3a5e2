//! Retiring: deleting events that nobody needs any more.
//!
//! Invariants: only what every cursor has passed, and every range of a key's, and has for long enough, goes; what is asked for again stays
//! until it waits; every event from `history_start` on is there, and that is committed before anything goes.
//!
//! Where the outbox is partitioned, whole tables go, when every cursor and range has passed all of them for good: what
//! waits then has its copy. Where it is one table, where a table takes long to fill, and where an archive takes
//! the events first, rows go, a bounded number at a time, and what waits stays.

use std::sync::Arc;

use postrider_core::source::{RetireRequest, Retired};
use postrider_core::{Error, ErrorKind, Event, Lease, Result};

use crate::maintain;
use crate::row::Decoder;
use crate::schema;
use crate::session::Session;
use crate::sessions::Line;
use crate::setup::Layout;
use crate::sql::{Sql, sql};
use crate::store::PostgresStore;
use crate::typed::{micros, params, partition, signed, uuid};

const AGE: Sql = sql!("retire/age");
const FENCE: Sql = sql!("retire/fence");
const TO: Sql = sql!("retire/to");
const EMPTY: Sql = sql!("retire/empty");
const ROWS: Sql = sql!("retire/rows");
const LOOK: Sql = sql!("retire/look");
const EVENTS: Sql = sql!("retire/events");
const NAMED: Sql = sql!("retire/named");
const FORGET_REQUESTS: Sql = sql!("retire/forget_requests");

/// Rows that are looked at in one go: enough for a page of thousands, and read in milliseconds. Where
/// nothing may be deleted, as among dead letters, the next look begins behind them.
const LOOK_MAX: usize = 4_000;

/// How often one call for an archive looks, where it finds nothing.
const LOOKS_MAX: usize = 16;

/// What an archive is handed at once, in bytes of events, but at least one event.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// What may be deleted.
struct Found {
    seqs: Vec<i64>,
    more: bool,
}

/// The oldest events that may be deleted, by number. What is no event cannot be archived, and stays.
pub(crate) async fn retirable(
    store: &PostgresStore,
    request: &RetireRequest,
) -> Result<Vec<Arc<Event>>> {
    let session = store.sessions().line(Line::Read, "retire").await?;
    age(&session, request).await?;
    for _ in 0..LOOKS_MAX {
        let found = look(store, &session, request).await?;
        let events = events(&session, request, &found.seqs).await?;
        if !events.is_empty() || !found.more {
            return Ok(events);
        }
        if let Some(last) = found.seqs.last() {
            store.maintained().look_from(request.lease.partition, *last);
        }
    }
    Ok(Vec::new())
}

/// Deletes what is old: whole tables, or rows.
pub(crate) async fn retire(store: &PostgresStore, request: &RetireRequest) -> Result<Retired> {
    let session = store.sessions().line(Line::Write, "retire").await?;
    let layout = maintain::layout(store, &session).await?;
    let mut retired = match (&request.only, layout) {
        (None, Layout::Partitioned) => match tables(store, &session, request).await? {
            Some(emptied) => emptied,
            None => aged(store, &session, &slow(request)).await?,
        },
        (None, Layout::Plain) => aged(store, &session, request).await?,
        (Some(ids), _) if ids.is_empty() => {
            fence(&session, &request.lease).await?;
            Retired::default()
        }
        (Some(_), _) => {
            let found = named(store, &session, request).await?;
            rows(&session, request, found).await?
        }
    };
    let of = params![micros(request.older_than), rows_max(request)];
    retired.more |= session.row("retire", &FORGET_REQUESTS, of).await?.get::<_, bool>(0);
    Ok(retired)
}

/// The rows of a table that takes long to fill go by themselves when they are a tenth older than asked.
/// Where a table fills sooner than that it goes whole before, and no row is ever deleted.
fn slow(request: &RetireRequest) -> RetireRequest {
    RetireRequest { older_than: request.older_than + request.older_than / 10, ..request.clone() }
}

/// Deletes rows that are old, whatever is beside them.
async fn aged(
    store: &PostgresStore,
    session: &Session,
    request: &RetireRequest,
) -> Result<Retired> {
    age(session, request).await?;
    let found = look(store, session, request).await?;
    rows(session, request, found).await
}

/// Empties the oldest table that nobody needs any more. A lock that is not free at once is tried with the
/// next call: nobody is to wait behind us. Nothing, if there is no such table.
async fn tables(
    store: &PostgresStore,
    session: &Session,
    request: &RetireRequest,
) -> Result<Option<Retired>> {
    let (place, owner, token) = of_lease(&request.lease);
    let age = micros(request.older_than);
    let bound = match session.row("retire", &TO, params![place, owner, token, age]).await {
        Ok(row) => row.get::<_, i64>(0),
        Err(busy) if busy.kind() == ErrorKind::Busy => return Ok(Some(Retired::default())),
        Err(error) => return Err(error),
    };
    if bound == 0 {
        return Ok(None);
    }
    let emptied = session.row("retire", &EMPTY, params![place, owner, token, bound]).await;
    let (gone, more) = match emptied {
        Ok(row) => (row.get::<_, i64>(0), row.get::<_, bool>(1)),
        Err(busy) if busy.kind() == ErrorKind::Busy => return Ok(Some(Retired::default())),
        Err(error) => return Err(error),
    };
    if !more {
        return Ok(None);
    }
    maintain::detach_soon(store);
    Ok(Some(Retired { rows: u32::try_from(gone).unwrap_or(u32::MAX), more }))
}

/// Deletes rows that were found and may still go.
async fn rows(session: &Session, request: &RetireRequest, found: Found) -> Result<Retired> {
    if found.seqs.is_empty() {
        fence(session, &request.lease).await?;
        return Ok(Retired { rows: 0, more: found.more });
    }
    let (place, owner, token) = of_lease(&request.lease);
    let of = params![place, owner, token, micros(request.older_than), found.seqs];
    let gone: i64 = session.row("retire", &ROWS, of).await?.get(0);
    Ok(Retired { rows: u32::try_from(gone).unwrap_or(u32::MAX), more: found.more })
}

fn of_lease(lease: &Lease) -> (i16, &str, i64) {
    (partition(lease.partition), lease.owner.as_str(), signed(lease.token))
}

/// Notes what is passed now, so that it is known to be old later on; fenced.
async fn age(session: &Session, request: &RetireRequest) -> Result<()> {
    let (place, owner, token) = of_lease(&request.lease);
    let of = params![place, owner, token, micros(request.older_than)];
    session.rows("retire", &AGE, of).await.map(drop)
}

async fn fence(session: &Session, lease: &Lease) -> Result<()> {
    let (place, owner, token) = of_lease(lease);
    session.rows("retire", &FENCE, params![place, owner, token]).await.map(drop)
}

fn rows_max(request: &RetireRequest) -> i32 {
    i32::try_from(request.rows_max.max(1)).unwrap_or(i32::MAX)
}

/// Finds what may be deleted, without a lock.
async fn look(store: &PostgresStore, session: &Session, request: &RetireRequest) -> Result<Found> {
    let place = request.lease.partition;
    let from = store.maintained().looks_from(place);
    let limit = LOOK_MAX as i64 + 1;
    let of = params![partition(place), from, micros(request.older_than), limit];
    let rows = session.rows("retire", &LOOK, of).await?;
    let mut found = Found { seqs: Vec::new(), more: false };
    let (mut looked, mut last, mut cut) = (0, from, false);
    for row in &rows {
        let (seq, young, waits): (i64, bool, bool) = (row.get(0), row.get(1), row.get(2));
        // What follows stays with it: history begins behind what went last.
        if young {
            break;
        }
        let full = !waits && found.seqs.len() >= rows_max(request) as usize;
        found.more = full || looked == LOOK_MAX;
        if found.more {
            cut = !full;
            break;
        }
        if !waits {
            found.seqs.push(seq);
        }
        (looked, last) = (looked + 1, seq);
    }
    // What is found is looked at again until it is deleted; of what is in its way only what fits. At the end
    // it begins anew, because what was in the way may have gone meanwhile.
    let next = match (cut, found.seqs.first()) {
        (true, Some(first)) => first - 1,
        (true, None) => last,
        (false, Some(_)) => from,
        (false, None) => 0,
    };
    store.maintained().look_from(place, next);
    Ok(found)
}

/// The numbers of the events that the request names: those that an archive was handed last.
async fn named(store: &PostgresStore, session: &Session, request: &RetireRequest) -> Result<Found> {
    let ids: Vec<_> = request.only.iter().flatten().map(|id| uuid(*id)).collect();
    let limit = ids.len().saturating_add(LOOK_MAX) as i64;
    let from = store.maintained().looks_from(request.lease.partition);
    let mut seqs = Vec::new();
    // An archive's events stand where the last look found them, or, after a restart, further on than the
    // beginning by what waits: then nothing is deleted now, and they are archived again.
    for from in [from, 0] {
        let of = params![partition(request.lease.partition), from, ids, limit];
        let rows = session.rows("retire", &NAMED, of).await?;
        seqs.extend(rows.iter().map(|row| row.get::<_, i64>(0)));
        if seqs.len() >= ids.len() || from == 0 {
            break;
        }
    }
    seqs.sort_unstable();
    seqs.dedup();
    let more = seqs.len() > rows_max(request) as usize;
    seqs.truncate(rows_max(request) as usize);
    Ok(Found { seqs, more })
}

/// Those of the rows that can be read as events, up to the limit of bytes.
async fn events(
    session: &Session,
    request: &RetireRequest,
    seqs: &[i64],
) -> Result<Vec<Arc<Event>>> {
    if seqs.is_empty() {
        return Ok(Vec::new());
    }
    let meta = schema::meta(session).await?;
    let source = meta.get("source").ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, "retire").message("outbox_meta has no source")
    })?;
    let mut decoder = Decoder::new(source, 0);
    let of = params![partition(request.lease.partition), Vec::from(seqs)];
    let mut events = Vec::new();
    let mut bytes = 0u64;
    for row in session.rows("retire", &EVENTS, of).await? {
        let decoded = decoder.decode(&row);
        let Ok(event) = decoded.event else { continue };
        bytes = bytes.saturating_add(decoded.bytes);
        if !events.is_empty() && bytes > BYTES_MAX {
            break;
        }
        events.push(event);
    }
    Ok(events)
}
