//! Requests: what operators ask of the partitions' owners is written down here, and carried out
//! elsewhere, under a lease.
//!
//! Invariant: a request names exactly the rows that were counted, each in its partition, and commits
//! with its row of the audit table.

use std::collections::BTreeMap;

use postrider_core::operate::{Note, RequestId, RequestState, RowKey, Submission, Verb};
use postrider_core::{Code, DestinationId, Error, ErrorKind, Result, Start, Timestamp};
use rusqlite::{Connection, Row, Transaction, params};

use super::value::{self, count, invalid, not_found, shown, text, time, to_millis};
use super::{audit, recount, sql};
use crate::error::During;
use crate::store::{SqliteStore, now, signed};
use crate::{page, schema};

/// Open requests that are listed: what the contract says.
const OPEN_MAX: i64 = 1_000;

/// Numbers that are looked through at once for the first event since a moment, so that the reading
/// thread is free again soon.
const STRETCH: u64 = 100_000;

/// Writes a request down.
pub(super) async fn submit(store: &SqliteStore, submission: &Submission) -> Result<RequestId> {
    let mut submission = submission.clone();
    match &mut submission.verb {
        Verb::Redrive(rows) | Verb::Discard(rows) | Verb::Requeue(rows) => {
            if rows.is_empty() || rows.len() > Submission::ROWS_MAX {
                return Err(invalid(
                    "submit",
                    format!("a request has 1 to {} rows", Submission::ROWS_MAX),
                )
                .context("rows", rows.len()));
            }
            rows.sort();
            rows.dedup();
            let corrections = match &submission.verb {
                Verb::Requeue(rows) => recount::corrections(store, rows).await?,
                _ => Vec::new(),
            };
            let write = move |tx: &Transaction<'_>| {
                let id = submit_rows(tx, &submission)?;
                corrections.iter().try_for_each(|correction| recount::correct(tx, correction))?;
                Ok(id)
            };
            store.write("submit", write).await
        }
        Verb::Enable { .. } => {
            store.write("submit", move |tx| submit_enable(tx, &submission)).await
        }
        Verb::Rewind { to, .. } => {
            let target = resolve(store, *to).await?;
            store.write("submit", move |tx| submit_rewind(tx, &submission, target)).await
        }
        _ => Err(invalid("submit", "this store does not know the request")),
    }
}

/// The rows of a request, written by [`insert_rows`], and what the audit says of them.
pub(super) fn submit_rows(connection: &Connection, submission: &Submission) -> Result<RequestId> {
    let (rows, what) = match &submission.verb {
        Verb::Redrive(rows) => (rows, "dead redrive"),
        Verb::Discard(rows) => (rows, "dead discard"),
        Verb::Requeue(rows) => (rows, "outbox requeue"),
        _ => return Err(invalid("submit", "the request has no rows")),
    };
    let mut counts: BTreeMap<&DestinationId, u64> = BTreeMap::new();
    for row in rows {
        *counts.entry(&row.destination).or_default() += 1;
    }
    for destination in counts.keys() {
        known(connection, destination)?;
    }
    let only = counts.keys().next().filter(|_| counts.len() == 1).copied();
    let total = rows.len() as u64;
    let id = insert(connection, submission, only, None, None, total)?;
    insert_rows(connection, id, rows)?;
    let parts: Vec<String> = counts.iter().map(|(id, count)| format!("{id} {count}")).collect();
    let subject = format!("request {id}: {total} rows ({})", parts.join(", "));
    audit::write(connection, &submission.note, what, &subject)?;
    Ok(id)
}

fn insert_rows(connection: &Connection, request: RequestId, rows: &[RowKey]) -> Result<()> {
    let mut statement = connection.prepare_cached(sql::REQUEST_ROW).during("submit")?;
    for row in rows {
        statement
            .execute(params![signed(request.0), row.destination.as_str(), signed(row.seq)])
            .during("submit")?;
    }
    Ok(())
}

fn submit_enable(connection: &Connection, submission: &Submission) -> Result<RequestId> {
    let Verb::Enable { destination, topic } = &submission.verb else {
        return Err(invalid("submit", "the request names no endpoint"));
    };
    known(connection, destination)?;
    let which = params![destination.as_str(), topic];
    value::first(connection, "submit", sql::ENDPOINT, which, |_| ())?.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "submit")
            .message("the endpoint is not disabled at this destination; nothing was changed")
            .context("destination", destination)
            .context("endpoint", topic.escape_debug())
    })?;
    let id = by_partition(connection, submission, destination, Some(topic), None)?;
    let subject = format!("request {id}: endpoint {topic} of {destination}");
    audit::write(connection, &submission.note, "destinations enable", &subject)?;
    Ok(id)
}

fn submit_rewind(
    connection: &Connection,
    submission: &Submission,
    target: Option<u64>,
) -> Result<RequestId> {
    let Verb::Rewind { destination, .. } = &submission.verb else {
        return Err(invalid("submit", "the request names no destination to rewind"));
    };
    known(connection, destination)?;
    let kept_from = schema::read_number(connection, "history_start")?;
    let target = target.unwrap_or(kept_from);
    if target < kept_from {
        return Err(gone(oldest(connection, kept_from)?));
    }
    let position: Option<i64> =
        value::first(connection, "submit", sql::POSITION_LEAST, [destination.as_str()], |row| {
            row.get(0).ok()
        })?
        .flatten();
    if position.is_none_or(|position| signed(target) > position) {
        return Err(invalid(
            "submit",
            "the destination has not passed any event from there on: there is nothing to replay",
        )
        .context("destination", destination)
        .context("position", position.unwrap_or_default()));
    }
    let id = by_partition(connection, submission, destination, None, Some(target))?;
    let subject = format!("request {id}: {destination} to before event number {target}");
    audit::write(connection, &submission.note, "destinations rewind", &subject)?;
    Ok(id)
}

/// A request whose parts are the destination's partitions.
fn by_partition(
    connection: &Connection,
    submission: &Submission,
    destination: &DestinationId,
    topic: Option<&str>,
    target: Option<u64>,
) -> Result<RequestId> {
    let name = [destination.as_str()];
    let parts =
        value::first(connection, "submit", sql::REQUEST_PARTS_COUNT, name, |row| count(row, 0))?;
    let total = parts.unwrap_or_default();
    let id = insert(connection, submission, Some(destination), topic, target, total)?;
    connection
        .prepare_cached(sql::REQUEST_PARTS)
        .and_then(|mut statement| statement.execute(params![signed(id.0), destination.as_str()]))
        .during("submit")?;
    Ok(id)
}

fn insert(
    connection: &Connection,
    submission: &Submission,
    destination: Option<&DestinationId>,
    topic: Option<&str>,
    target: Option<u64>,
    total: u64,
) -> Result<RequestId> {
    let Note { who, why } = &submission.note;
    let row = params![
        submission.verb.as_str(),
        destination.map(DestinationId::as_str),
        topic,
        target.map(signed),
        who,
        why,
        now(connection)?,
        signed(total),
    ];
    let id = value::first(connection, "submit", sql::REQUEST_INSERT, row, |row| count(row, 0))?;
    Ok(RequestId(id.unwrap_or_default()))
}

/// Checks that a destination is there.
pub(super) fn known(connection: &Connection, destination: &DestinationId) -> Result<()> {
    let name = [destination.as_str()];
    value::first(connection, "submit", sql::DESTINATION, name, |_| ())?
        .ok_or_else(|| not_found("submit", "destination", destination))
}

/// The first event to send again; `None` for the first that is kept, which is known for certain only
/// under the write lock.
async fn resolve(store: &SqliteStore, to: Start) -> Result<Option<u64>> {
    let moment = match to {
        Start::Beginning => return Ok(None),
        Start::At(moment) => moment,
        Start::Now => {
            return Err(invalid("submit", "a rewind goes back: say `beginning`, or a moment"));
        }
    };
    let bounds = move |tx: &Transaction<'_>| {
        let kept_from = schema::read_number(tx, "history_start")?;
        let begins = oldest(tx, kept_from)?;
        if kept_from > 1 && begins.is_none_or(|begins| moment < begins) {
            return Err(gone(begins));
        }
        Ok((kept_from, page::sequence(tx)?))
    };
    let (mut from, last) = store.read("submit", bounds).await?;
    while from <= last {
        let through = last.min(from.saturating_add(STRETCH - 1));
        let stretch = (signed(from), signed(through), to_millis(moment));
        let found = store
            .read("submit", move |tx| {
                value::first(tx, "submit", sql::FIRST_SINCE, stretch, |row| count(row, 0))
            })
            .await?;
        if found.is_some() {
            return Ok(found);
        }
        from = through + 1;
    }
    Err(Error::new(ErrorKind::NotFound, "submit")
        .message("no event was created at or after that moment; nothing was changed")
        .context("moment", moment))
}

/// When the oldest event that is kept was created.
fn oldest(connection: &Connection, kept_from: u64) -> Result<Option<Timestamp>> {
    let from = [signed(kept_from)];
    Ok(value::first(connection, "submit", sql::CREATED_AT, from, |row| time(row, 0))?.flatten())
}

/// The error for a rewind to what retention has deleted.
fn gone(begins: Option<Timestamp>) -> Error {
    let begins = begins.map_or_else(
        || "no event is kept".to_owned(),
        |begins| format!("the oldest moment that can be replayed is {begins}"),
    );
    Error::new(ErrorKind::NotFound, "submit").code(Code::HistoryGone).message(format!(
        "the history from there on was deleted by retention; {begins}; nothing was changed"
    ))
}

fn state(row: &Row<'_>) -> RequestState {
    RequestState {
        id: RequestId(count(row, 0)),
        verb: shown(row, 1),
        who: shown(row, 2),
        why: shown(row, 3),
        total: count(row, 4),
        done: count(row, 5),
        skipped: count(row, 6),
        finished: count(row, 7) != 0,
        relay: text(row, 8),
    }
}

/// How far a request is.
pub(super) fn read(connection: &Connection, id: RequestId) -> Result<RequestState> {
    let found = value::first(connection, "request", sql::REQUEST, [signed(id.0)], state)?;
    found.ok_or_else(|| not_found("request", "request", id))
}

/// Requests that are not finished, oldest first.
pub(super) fn open(connection: &Connection) -> Result<Vec<RequestState>> {
    value::all(connection, "open requests", sql::REQUESTS_OPEN, [OPEN_MAX], state)
}
