//! Scheduled events, taken back before they enter the outbox.

use postrider_core::operate::{Cancelled, Note};
use postrider_core::{EventId, Result};

use super::{find, note};
use crate::PostgresStore;
use crate::sessions::Line;
use crate::sql::{Sql, sql};
use crate::typed::{self, params};

const CANCEL: Sql = sql!("operator/cancel");

/// Takes an event back, in one statement: either it is still scheduled, or it has entered the outbox.
pub(super) async fn cancel(store: &PostgresStore, id: EventId, note: &Note) -> Result<Cancelled> {
    let note = note::checked(note)?;
    let session = store.sessions().line(Line::Write, "cancel").await?;
    let (number, subject) = (typed::uuid(id), format!("event {id}"));
    let values = params![number, note.who, note.why, subject];
    if session.row("cancel", &CANCEL, values).await?.get(0) {
        return Ok(Cancelled::Cancelled);
    }
    // A look at many rows: not on a session that saves wait for.
    let tx = store.sessions().begin("cancel").await?;
    let entered = find::place(&tx, id).await?;
    tx.commit("cancel").await?;
    Ok(if entered.is_some() { Cancelled::TooLate } else { Cancelled::Unknown })
}
