//! Whether rows can be marked, found out before the first one is sent.
//!
//! Invariant: a table whose rows cannot be marked sends nothing, or everything would be sent again and again. What keeps a
//! mark from a row may be anything that the table has: a trigger, a policy, a constraint. So the mark of the first row is
//! written, and rolled back.

use std::sync::atomic::Ordering;

use postrider_core::{Error, ErrorKind, Result};
use tokio_postgres::Row;
use uuid::Uuid;

use super::OwnTable;
use crate::error::told;
use crate::own::mapping::Settled;
use crate::sql::{Sql, sql};
use crate::typed::params;

const ATTEMPT: Sql = sql!("own/attempt");
const END: Sql = sql!("own/attempt_end");
const STILL: Sql = sql!("own/still");
const UNDO: Sql = sql!("own/attempt_undo");

const OPERATION: &str = "try to mark";

/// Tries the mark on a row that is about to be handed out, if none was tried yet.
pub(super) async fn attempt(table: &OwnTable, row: &Row) -> Result<()> {
    let inner = &table.inner;
    if inner.compares || inner.attempted.load(Ordering::Relaxed) {
        return Ok(());
    }
    let (seq, id): (i64, Uuid) = (row.get(0), row.get(1));
    match left(table, seq, id).await {
        Ok(false) => {
            inner.attempted.store(true, Ordering::Relaxed);
            Ok(())
        }
        Ok(true) => Err(unmarkable(table, "Nothing was sent").context("number", seq)),
        // Who has it locked may have it: it is tried with another one.
        Err(error) if error.kind() == ErrorKind::Busy => Ok(()),
        Err(error) => Err(refused(table, error, "Nothing was sent").context("number", seq)),
    }
}

/// Whether the row is pending though it was marked. Ends without a commit.
async fn left(table: &OwnTable, seq: i64, id: Uuid) -> Result<bool> {
    let search_path = &table.checked().await?.search_path;
    let tx = table.inner.store.sessions().begin(OPERATION).await?;
    let tried = async {
        tx.row(OPERATION, &ATTEMPT, params![seq, id, search_path]).await?;
        tx.batch(OPERATION, &tx.texts().text(&END)).await?;
        Ok(tx.row(OPERATION, &STILL, params![seq, id]).await?.get(0))
    };
    let left = tried.await;
    // Waited for, before the row is handed out: while this has it locked, a mark passes it over. Where it fails, the session
    // is closed with its transaction, and the server lets go of it then.
    _ = tx.batch(OPERATION, &tx.texts().text(&UNDO)).await;
    left
}

/// Rows that a mark changes nothing of.
pub(super) fn unmarkable(table: &OwnTable, what: &str) -> Error {
    let mapping = &table.inner.mapping;
    let (verb, mark) = match mapping.settled {
        Settled::Delete => ("DELETE", "delete them"),
        _ => ("UPDATE", "mark them"),
    };
    Error::new(ErrorKind::Config, OPERATION)
        .message(format!(
            "rows stay pending though they are marked as published: a trigger of the table, or a policy of row security, \
             undoes the {verb}. {what}, and nothing is lost. Let the relay's user {mark}; then this goes on"
        ))
        .context("table", mapping.table.escape_debug())
}

/// Whether a constraint or a trigger of the table refused a mark. Ours raise states of their own.
pub(super) fn is_refused(error: &Error) -> bool {
    let kinds = [ErrorKind::Invalid, ErrorKind::Internal, ErrorKind::Conflict];
    kinds.contains(&error.kind())
        && told(error).is_some_and(|said| !said.code().code().starts_with("PR"))
}

/// What the table's own constraints and triggers say to a mark.
pub(super) fn refused(table: &OwnTable, error: Error, what: &str) -> Error {
    let theirs = is_refused(&error)
        || matches!(error.kind(), ErrorKind::Unauthorized | ErrorKind::SchemaMissing);
    let (true, Some(said)) = (theirs, told(&error)) else { return error };
    Error::new(ErrorKind::Config, OPERATION)
        .message(format!(
            "a row cannot be marked as published: {}. {what}, and nothing is lost. Correct what is said \
             there, a constraint or a trigger of the table; then this goes on",
            said.message()
        ))
        .context("table", table.inner.mapping.table.escape_debug())
}
