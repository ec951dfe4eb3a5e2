//! The inbox: which (source, event id, handler) was done.
//!
//! Two ways, one table. [`accept`] writes the marker in the caller's transaction, beside the change
//! that the event causes; nothing here commits a marker alone. [`InboxStore`] claims with a lease,
//! for effects outside the database.

use std::time::Duration;

use bytes::Bytes;
use postrider_core::inbox::{Accepted, HORIZON_UNKNOWN};
use postrider_core::{
    BoxFuture, Claim, ClaimLease, ClaimRequest, Code, Error, ErrorKind, Event, HandlerName,
    InboxKey, InboxStore, Result, Tried,
};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use crate::error::During;
use crate::sql;
use crate::store::{SqliteStore, millis, now, signed, span, unsigned};

/// How the keys of `outbox_meta` begin that say for how long messages of a handler may come again.
const HORIZON: &str = "inbox_horizon:";

/// Records, in the caller's transaction, that the handler acts on the event, or says that it did
/// before. The marker commits with the handler's change or not at all.
///
/// The deduplication key comes from the event itself; there is no way to pass another. Only a
/// transaction is accepted:
///
/// ```compile_fail
/// # let connection = rusqlite::Connection::open_in_memory().unwrap();
/// # let event: postrider_core::Event = unimplemented!();
/// # let handler: postrider_core::HandlerName = unimplemented!();
/// postrider_sqlite::accept(&connection, &event, &handler);
/// ```
///
/// # Errors
/// `Invalid` if the event has no source; `Conflict` with [`Code::PayloadMismatch`] if the id was
/// done with another payload; `Busy` if a worker holds a lease on it.
pub fn accept(tx: &Transaction<'_>, event: &Event, handler: &HandlerName) -> Result<Accepted> {
    let key = InboxKey::of(event, handler)?;
    let hash = event.payload.hash();
    let id = key.event_id.to_string();
    let inserted = tx
        .prepare_cached(sql::INBOX_ACCEPT)
        .and_then(|mut statement| {
            statement.execute(params![
                &*key.source,
                id,
                key.handler.as_str(),
                &*event.event_type,
                hash
            ])
        })
        .during("accept")?;
    if inserted == 1 {
        return Ok(Accepted::FirstTime);
    }
    let known = read(tx, &key)?.ok_or_else(|| {
        Error::new(ErrorKind::Internal, "accept").message("a row is there and is not")
    })?;
    if !is_of_payload(&known.payload_hash, &hash) {
        return Err(mismatch("accept", &key));
    }
    if known.processed {
        return Ok(Accepted::Duplicate);
    }
    let taken = tx
        .prepare_cached(sql::INBOX_ACCEPT_CLAIMED)
        .and_then(|mut statement| {
            statement.execute(params![&*key.source, id, key.handler.as_str(), hash])
        })
        .during("accept")?;
    if taken == 1 {
        return Ok(Accepted::FirstTime);
    }
    Err(leased(&key))
}

/// The error for an event that a worker holds with a lease.
pub(crate) fn leased(key: &InboxKey) -> Error {
    Error::new(ErrorKind::Busy, "accept")
        .message("a worker holds a lease on the event")
        .context("event", key.event_id)
        .context("handler", &key.handler)
}

/// The error for one id with two payloads.
pub(crate) fn mismatch(operation: &'static str, key: &InboxKey) -> Error {
    Error::new(ErrorKind::Conflict, operation)
        .code(Code::PayloadMismatch)
        .message("this event id is known with another payload; the handler must not act on it")
        .context("source", &key.source)
        .context("event", key.event_id)
        .context("handler", &key.handler)
}

/// The hash of a row that a person marked as done without having the payload: it is any payload's.
/// SHA-256 gives it for none.
const ANY_PAYLOAD: [u8; 32] = [0; 32];

/// Whether a row's hash is that of a payload.
pub(crate) fn is_of_payload(known: &[u8], hash: &[u8; 32]) -> bool {
    known == hash || known == ANY_PAYLOAD
}

/// A row of the inbox.
struct Known {
    processed: bool,
    payload_hash: [u8; 32],
    expires_at: i64,
    result: Bytes,
}

fn read(connection: &Connection, key: &InboxKey) -> Result<Option<Known>> {
    connection
        .prepare_cached(sql::INBOX_READ)
        .and_then(|mut statement| {
            let row = params![&*key.source, key.event_id.to_string(), key.handler.as_str()];
            statement
                .query_row(row, |row| {
                    let result: Option<Vec<u8>> = row.get(4)?;
                    Ok(Known {
                        processed: row.get::<_, String>(0)? == "processed",
                        payload_hash: row.get(1)?,
                        expires_at: row.get::<_, Option<i64>>(3)?.unwrap_or_default(),
                        result: Bytes::from(result.unwrap_or_default()),
                    })
                })
                .optional()
        })
        .during("read inbox")
}

/// One conditional write; if it wrote nothing, the row that stands in its way says why, read in the
/// same transaction.
pub(crate) fn claim(connection: &Connection, request: &ClaimRequest) -> Result<Claim> {
    let now = now(connection)?;
    let key = &request.key;
    let claimed: Option<(i64, u32, i64)> = connection
        .prepare_cached(sql::INBOX_CLAIM)
        .and_then(|mut statement| {
            let row = params![
                &*key.source,
                key.event_id.to_string(),
                key.handler.as_str(),
                &*request.event_type,
                request.payload_hash,
                now,
                now.saturating_add(millis(request.duration)),
                request.outlived,
            ];
            statement.query_row(row, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()
        })
        .during("claim")?;
    if let Some((token, tries, lost)) = claimed {
        let (key, token) = (key.clone(), unsigned(token));
        let lost = u32::try_from(lost).unwrap_or_default();
        return Ok(Claim::Claimed(ClaimLease { key, token, tries, lost }));
    }
    let known = read(connection, key)?.ok_or_else(|| {
        Error::new(ErrorKind::Internal, "claim").message("a row is there and is not")
    })?;
    Ok(if !is_of_payload(&known.payload_hash, &request.payload_hash) {
        Claim::Mismatch
    } else if known.processed {
        Claim::Processed { result: known.result }
    } else {
        Claim::Leased { remaining: span(now, known.expires_at) }
    })
}

/// A statement's row of the claim's key and token, followed by what is new.
macro_rules! of_lease {
    ($lease:expr $(, $value:expr)*) => {
        params![
            &*$lease.key.source,
            $lease.key.event_id.to_string(),
            $lease.key.handler.as_str(),
            signed($lease.token)
            $(, $value)*
        ]
    };
}

fn fenced(operation: &'static str, lease: &ClaimLease) -> Error {
    Error::new(ErrorKind::Fenced, operation)
        .message("the claim was lost; nothing was written")
        .context("event", lease.key.event_id)
        .context("handler", &lease.key.handler)
        .context("token", lease.token)
}

fn heartbeat(connection: &Connection, lease: &ClaimLease, duration: Duration) -> Result<()> {
    let until = now(connection)?.saturating_add(millis(duration));
    let kept = connection
        .prepare_cached(sql::INBOX_HEARTBEAT)
        .and_then(|mut statement| statement.execute(of_lease!(lease, until)))
        .during("heartbeat")?;
    if kept == 1 { Ok(()) } else { Err(fenced("heartbeat", lease)) }
}

fn complete(connection: &Connection, lease: &ClaimLease, result: &[u8]) -> Result<()> {
    let now = now(connection)?;
    let done = connection
        .prepare_cached(sql::INBOX_COMPLETE)
        .and_then(|mut statement| statement.execute(of_lease!(lease, now, result)))
        .during("complete")?;
    if done == 1 {
        return Ok(());
    }
    // The answer of the first try may have been lost.
    let before = connection
        .prepare_cached(sql::INBOX_COMPLETED)
        .and_then(|mut statement| statement.query_row(of_lease!(lease), |_| Ok(())).optional())
        .during("complete")?;
    before.ok_or_else(|| fenced("complete", lease))
}

pub(crate) fn release(connection: &Connection, lease: &ClaimLease, tried: Tried) -> Result<()> {
    let released = connection
        .prepare_cached(sql::INBOX_RELEASE)
        .and_then(|mut statement| {
            let row = of_lease!(lease, tried.taken_back(), tried.came_to_an_end());
            statement.execute(row)
        })
        .during("release")?;
    if released == 1 { Ok(()) } else { Err(fenced("release", lease)) }
}

fn fence(connection: &Connection, lease: &ClaimLease, operation: &'static str) -> Result<()> {
    connection
        .prepare_cached(sql::INBOX_FENCE)
        .and_then(|mut statement| statement.query_row(of_lease!(lease), |_| Ok(())).optional())
        .during(operation)?
        .ok_or_else(|| fenced(operation, lease))
}

fn step(connection: &Connection, lease: &ClaimLease, step: &str) -> Result<Option<Bytes>> {
    fence(connection, lease, "step")?;
    let result: Option<Vec<u8>> = connection
        .prepare_cached(sql::INBOX_STEP)
        .and_then(|mut statement| {
            let row = params![
                &*lease.key.source,
                lease.key.event_id.to_string(),
                lease.key.handler.as_str(),
                step
            ];
            statement.query_row(row, |row| row.get(0)).optional()
        })
        .during("step")?;
    Ok(result.map(Bytes::from))
}

fn complete_step(
    connection: &Connection,
    lease: &ClaimLease,
    step: &str,
    result: &[u8],
) -> Result<()> {
    fence(connection, lease, "complete step")?;
    let now = now(connection)?;
    connection
        .prepare_cached(sql::INBOX_COMPLETE_STEP)
        .and_then(|mut statement| {
            statement.execute(params![
                &*lease.key.source,
                lease.key.event_id.to_string(),
                lease.key.handler.as_str(),
                step,
                result,
                now
            ])
        })
        .map(drop)
        .during("complete step")
}

fn record_horizon(connection: &Connection, handler: &HandlerName, horizon: Duration) -> Result<()> {
    let key = format!("{HORIZON}{handler}");
    connection
        .prepare_cached(sql::META_WRITE)
        .and_then(|mut statement| statement.execute((key, millis(horizon).to_string())))
        .map(drop)
        .during("record horizon")
}

/// The longest of the recorded horizons.
fn horizon(connection: &Connection) -> Result<Option<Duration>> {
    let longest: Option<i64> = connection
        .prepare_cached(sql::INBOX_HORIZON)
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
        .during("purge")?;
    Ok(longest.map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or_default())))
}

fn purge(connection: &Connection, older_than: Duration, rows_max: u32) -> Result<u64> {
    let kept = horizon(connection)?.unwrap_or(HORIZON_UNKNOWN).max(older_than);
    let now = now(connection)?;
    let before = now.saturating_sub(millis(kept));
    let before_silent = now.saturating_sub(millis(HORIZON_UNKNOWN.max(older_than)));
    let purged = || -> rusqlite::Result<u64> {
        let mut keys: Vec<(String, String, String)> = Vec::new();
        for find in [sql::INBOX_PURGE_FIND, sql::INBOX_PURGE_FIND_CLAIMS] {
            let found = u32::try_from(keys.len()).unwrap_or(u32::MAX);
            let rest = rows_max.saturating_sub(found);
            let mut find = connection.prepare_cached(find)?;
            for row in find.query_map(params![before, rest, before_silent], |row| row.try_into())? {
                keys.push(row?);
            }
        }
        let mut rows = connection.prepare_cached(sql::INBOX_PURGE)?;
        let mut steps = connection.prepare_cached(sql::INBOX_PURGE_STEPS)?;
        for (source, event, handler) in &keys {
            steps.execute((source, event, handler))?;
            rows.execute((source, event, handler))?;
        }
        Ok(keys.len() as u64)
    };
    purged().during("purge")
}

impl InboxStore for SqliteStore {
    fn claim<'a>(&'a self, request: &'a ClaimRequest) -> BoxFuture<'a, Result<Claim>> {
        let request = request.clone();
        Box::pin(self.write("claim", move |tx| claim(tx, &request)))
    }

    fn heartbeat<'a>(
        &'a self,
        lease: &'a ClaimLease,
        duration: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        let lease = lease.clone();
        Box::pin(self.write("heartbeat", move |tx| heartbeat(tx, &lease, duration)))
    }

    fn complete<'a>(
        &'a self,
        lease: &'a ClaimLease,
        result: &'a [u8],
    ) -> BoxFuture<'a, Result<()>> {
        let (lease, result) = (lease.clone(), result.to_vec());
        Box::pin(self.write("complete", move |tx| complete(tx, &lease, &result)))
    }

    fn release<'a>(&'a self, lease: &'a ClaimLease, tried: Tried) -> BoxFuture<'a, Result<()>> {
        let lease = lease.clone();
        Box::pin(self.write("release", move |tx| release(tx, &lease, tried)))
    }

    fn step<'a>(
        &'a self,
        lease: &'a ClaimLease,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Bytes>>> {
        let (lease, name) = (lease.clone(), name.to_owned());
        Box::pin(self.read("step", move |tx| step(tx, &lease, &name)))
    }

    fn complete_step<'a>(
        &'a self,
        lease: &'a ClaimLease,
        step: &'a str,
        result: &'a [u8],
    ) -> BoxFuture<'a, Result<()>> {
        let (lease, step, result) = (lease.clone(), step.to_owned(), result.to_vec());
        Box::pin(self.write("complete step", move |tx| complete_step(tx, &lease, &step, &result)))
    }

    fn record_horizon<'a>(
        &'a self,
        handler: &'a HandlerName,
        horizon: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        let handler = handler.clone();
        Box::pin(self.write("record horizon", move |tx| record_horizon(tx, &handler, horizon)))
    }

    fn purge(&self, older_than: Duration, rows_max: u32) -> BoxFuture<'_, Result<u64>> {
        Box::pin(self.write("purge", move |tx| purge(tx, older_than, rows_max)))
    }
}
