//! Keeping producers off while numbers are given anew.
//!
//! Invariant: in the transaction that is handed out nobody owns a partition, and everybody who has drawn a number has
//! ended: what he wrote is seen, or never comes. Without that, an event whose number lies below a cursor, and whose
//! transaction is open, is neither renumbered nor found by its transaction afterwards, and is passed unread (INV-1).

use std::time::Duration;

use postrider_core::{Error, ErrorKind, Result};

use super::rebase;
use crate::PostgresStore;
use crate::sessions::Tx;
use crate::sql::{Sql, sql};
use crate::typed::params;

const PATIENCE: Sql = sql!("operator/patience");
const HOLD: Sql = sql!("operator/producers_hold");
const PRODUCERS: Sql = sql!("operator/producers");

/// How long the lock is waited for, in turn: every new producer queues behind who waits, so better to try again. The
/// last try is longer than a server bears a vacuum of its own in somebody's way (`deadlock_timeout`, 1 s).
const WAITS: [&str; 4] = ["400ms", "400ms", "400ms", "2s"];

/// Between two tries producers go on.
const PAUSE: Duration = Duration::from_millis(400);

/// Begins a transaction in which producers wait, and no relay owns a partition.
///
/// # Errors
/// `Busy` if a relay owns one, or who has written to the outbox does not end.
pub(super) async fn keep_out<'a>(
    store: &'a PostgresStore,
    operation: &'static str,
) -> Result<Tx<'a>> {
    for (nth, wait) in WAITS.iter().enumerate() {
        if nth > 0 {
            // waits: producers go on, and who is open may end; a lock that is given back tells nobody
            tokio::time::sleep(PAUSE).await;
        }
        let tx = store.sessions().begin(operation).await?;
        rebase::keep_owners_out(&tx, operation).await?;
        tx.row(operation, &PATIENCE, params![*wait]).await?;
        match tx.execute(operation, &HOLD, params![]).await {
            Ok(_) => {
                tx.row(operation, &PATIENCE, params!["0"]).await?;
                return Ok(tx);
            }
            Err(error) if error.kind() == ErrorKind::Busy => {}
            Err(error) => return Err(error),
        }
    }
    Err(held(store, operation).await?)
}

/// Who does not end.
async fn held(store: &PostgresStore, operation: &'static str) -> Result<Error> {
    let session = store.sessions().connect(operation).await?;
    let rows = session.rows(operation, &PRODUCERS, params![]).await?;
    let who = rows.iter().map(|row| {
        let who: &str = row.get(0);
        match row.get::<_, Option<i64>>(1) {
            Some(seconds) => format!("{who}, for {seconds} s"),
            None => who.to_owned(),
        }
    });
    let who = who.collect::<Vec<_>>().join("; ");
    Ok(Error::new(ErrorKind::Busy, operation)
        .message(
            "a transaction that has written to the outbox is open: its events have numbers already. Nothing was \
             changed. End it, and try again",
        )
        .context("held_by", if who.is_empty() { "nobody any more" } else { &who }))
}
