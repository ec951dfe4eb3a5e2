//! The same promises inside a transaction of `sqlx`: stage events, and accept events that come in.
//!
//! Only `&mut sqlx::Transaction<'_, sqlx::Sqlite>` is accepted. A pool or a connection does not
//! compile, because an event beside a transaction is the mistake this exists to prevent.

use ::sqlx::{Row, Sqlite, SqliteConnection, Transaction};
use postrider_core::inbox::Accepted;
use postrider_core::{Error, ErrorKind, Event, EventId, HandlerName, InboxKey, NewEvent, Result};

use crate::outbox::{Outbox, Values};
use crate::{inbox, sql};

/// Stages an event in the transaction, and returns its id. See [`Outbox::enqueue`].
///
/// # Errors
/// As [`Outbox::enqueue`].
pub async fn enqueue(
    outbox: &Outbox,
    tx: &mut Transaction<'_, Sqlite>,
    event: &NewEvent,
) -> Result<EventId> {
    if outbox.is_to_learn() {
        // Undone as one, if what is read then refuses it.
        enqueue_many(outbox, tx, std::slice::from_ref(event)).await?;
        return Ok(event.event().id);
    }
    let values = outbox.values(event)?;
    check_backlog(outbox, &mut *tx).await?;
    insert(&mut *tx, &values).await
}

/// Stages events in their order, all or none. See [`Outbox::enqueue_many`].
///
/// # Errors
/// As [`Outbox::enqueue_many`].
pub async fn enqueue_many(
    outbox: &Outbox,
    tx: &mut Transaction<'_, Sqlite>,
    events: &[NewEvent],
) -> Result<Vec<EventId>> {
    let all: Vec<Values<'_>> =
        events.iter().map(|event| outbox.values(event)).collect::<Result<_>>()?;
    check_backlog(outbox, &mut *tx).await?;
    run(&mut *tx, sql::OUTBOX_SAVEPOINT).await?;
    let mut ids = Vec::with_capacity(all.len());
    for values in &all {
        match insert(&mut *tx, values).await {
            Ok(id) => ids.push(id),
            Err(error) => {
                run(&mut *tx, sql::OUTBOX_SAVEPOINT_UNDO).await?;
                return Err(error);
            }
        }
    }
    if let Err(error) = learn_behind(outbox, &mut *tx, &all).await {
        run(&mut *tx, sql::OUTBOX_SAVEPOINT_UNDO).await?;
        return Err(error);
    }
    run(&mut *tx, sql::OUTBOX_SAVEPOINT_KEEP).await?;
    Ok(ids)
}

/// Reads what destinations can carry, if that is due, and checks what was just written.
async fn learn_behind(
    outbox: &Outbox,
    connection: &mut SqliteConnection,
    written: &[Values<'_>],
) -> Result<()> {
    if !outbox.is_to_learn() {
        return Ok(());
    }
    let row = ::sqlx::query(sql::OUTBOX_LIMITS).fetch_one(connection).await;
    let text = row.and_then(|row| row.try_get::<String, _>(0));
    outbox.learn(&text.map_err(|e| of_sqlx("enqueue", e))?, written)
}

/// Records, in the caller's transaction, that the handler acts on the event. See
/// [`accept`](crate::accept).
///
/// # Errors
/// As [`accept`](crate::accept).
pub async fn accept(
    tx: &mut Transaction<'_, Sqlite>,
    event: &Event,
    handler: &HandlerName,
) -> Result<Accepted> {
    let key = InboxKey::of(event, handler)?;
    let hash = event.payload.hash();
    let id = key.event_id.to_string();
    let inserted = ::sqlx::query(sql::INBOX_ACCEPT)
        .bind(&*key.source)
        .bind(&id)
        .bind(key.handler.as_str())
        .bind(&*event.event_type)
        .bind(&hash[..])
        .execute(&mut **tx)
        .await
        .map_err(|e| of_sqlx("accept", e))?;
    if inserted.rows_affected() == 1 {
        return Ok(Accepted::FirstTime);
    }
    let known = ::sqlx::query(sql::INBOX_READ)
        .bind(&*key.source)
        .bind(&id)
        .bind(key.handler.as_str())
        .fetch_one(&mut **tx)
        .await
        .map_err(|e| of_sqlx("accept", e))?;
    let status: String = known.try_get(0).map_err(|e| of_sqlx("accept", e))?;
    let known_hash: Vec<u8> = known.try_get(1).map_err(|e| of_sqlx("accept", e))?;
    if !inbox::is_of_payload(&known_hash, &hash) {
        return Err(inbox::mismatch("accept", &key));
    }
    if status == "processed" {
        return Ok(Accepted::Duplicate);
    }
    let taken = ::sqlx::query(sql::INBOX_ACCEPT_CLAIMED)
        .bind(&*key.source)
        .bind(&id)
        .bind(key.handler.as_str())
        .execute(&mut **tx)
        .await
        .map_err(|e| of_sqlx("accept", e))?;
    if taken.rows_affected() == 1 {
        return Ok(Accepted::FirstTime);
    }
    Err(inbox::leased(&key))
}

/// Refuses what comes while the backlog is over the outbox's watermark.
async fn check_backlog(outbox: &Outbox, connection: &mut SqliteConnection) -> Result<()> {
    if !outbox.has_watermark() {
        return Ok(());
    }
    let row = ::sqlx::query(sql::OUTBOX_BACKLOG).fetch_one(connection).await;
    let backlog = row.and_then(|row| row.try_get(0)).map_err(|e| of_sqlx("enqueue", e))?;
    outbox.allow(backlog)
}

async fn insert(connection: &mut SqliteConnection, values: &Values<'_>) -> Result<EventId> {
    let event = values.event;
    let statement = match values.due_at {
        None => sql::OUTBOX_ENQUEUE,
        Some(_) => sql::OUTBOX_ENQUEUE_SCHEDULED,
    };
    let mut query = ::sqlx::query(statement)
        .bind(&values.id)
        .bind(values.source)
        .bind(&*event.aggregate_type)
        .bind(&*event.aggregate_id)
        .bind(event.key.as_deref())
        .bind(&*event.event_type)
        .bind(values.event_version)
        .bind(values.payload)
        .bind(values.payload_bytes)
        .bind(&*event.content_type)
        .bind(event.encoding.as_deref())
        .bind(&values.headers)
        .bind(event.tenant.as_deref())
        .bind(&values.occurred_at);
    if let Some(due_at) = &values.due_at {
        query = query.bind(due_at);
    }
    query
        .execute(connection)
        .await
        .map_err(|e| of_sqlx("enqueue", e).context("event", &values.id))?;
    Ok(event.id)
}

async fn run(connection: &mut SqliteConnection, statements: &'static str) -> Result<()> {
    ::sqlx::raw_sql(statements)
        .execute(connection)
        .await
        .map(drop)
        .map_err(|e| of_sqlx("enqueue", e))
}

/// The errors of the other driver, by SQLite's own codes.
fn of_sqlx(operation: &'static str, error: ::sqlx::Error) -> Error {
    let code: Option<i32> = error
        .as_database_error()
        .and_then(|database| database.code())
        .and_then(|code| code.parse().ok());
    let text =
        error.as_database_error().map(|database| database.message().to_owned()).unwrap_or_default();
    match code {
        Some(code) => crate::error::of_code(operation, code, &text).source(error),
        None => Error::new(ErrorKind::Unavailable, operation)
            .message("the connection to the database failed")
            .source(error),
    }
}
