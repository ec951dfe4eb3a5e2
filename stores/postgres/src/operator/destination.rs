//! What an operator changes about destinations.
//!
//! Invariant: every change raises the version of the definitions in its own transaction, so that the
//! owners hear of it with their next heartbeat.

use postrider_core::operate::Note;
use postrider_core::source::DefinitionChange;
use postrider_core::{Destination, DestinationId, DestinationState, Error, ErrorKind, Result};

use super::note;
use super::value::{invalid, not_found};
use crate::PostgresStore;
use crate::session::Session;
use crate::sessions::Line;
use crate::sql::{Sql, sql};
use crate::typed::params;

const STATE: Sql = sql!("operator/destination_state");
const DEFINITION: Sql = sql!("operator/destination_definition");
const RENAME: Sql = sql!("operator/destination_rename");

/// Adds, changes, and removes destinations.
pub(super) async fn apply(
    store: &PostgresStore,
    change: &DefinitionChange,
    note: &Note,
) -> Result<u64> {
    crate::destination::apply_noted(store, change, Some(&note::checked(note)?)).await
}

impl PostgresStore {
    /// Whether a removal of this destination was cut off, so that rows of it are left. Another removal of the same id
    /// deletes them.
    ///
    /// # Errors
    /// `Unavailable`, `Unauthorized`, `Timeout`.
    pub async fn has_leftovers(&self, id: &DestinationId) -> Result<bool> {
        crate::destination::is_left(self, id).await
    }
}

/// Gives a destination another id, with everything that is its own.
pub(super) async fn rename(
    store: &PostgresStore,
    from: &DestinationId,
    to: &DestinationId,
    note: &Note,
) -> Result<()> {
    let note = note::checked(note)?;
    if [from, to].iter().any(|id| id.as_str() == Destination::UNROUTED) {
        return Err(invalid("rename", "the destination `unrouted` is built in and keeps its name"));
    }
    // A session of its own: with many waiting events it takes a while, and then it is one call.
    let session = store.sessions().connect("rename").await?;
    let text = definition(&session, from).await?;
    let text = text.ok_or_else(|| not_found("rename", "destination", from))?;
    if from == to {
        return Ok(());
    }
    if definition(&session, to).await?.is_some() {
        return Err(Error::new(ErrorKind::Conflict, "rename")
            .message("there is a destination of that name already; nothing was changed")
            .context("destination", to));
    }
    // What a removal that was cut off has left would be this one's.
    crate::destination::sweep(store, to).await?;
    let mut renamed = Destination::from_definition(&text)?;
    renamed.id = to.clone();
    let renamed = renamed.to_definition()?;
    let values = params![from.as_str(), to.as_str(), text, renamed, note.who, note.why];
    match session.row("rename", &RENAME, values).await?.get(0) {
        "renamed" => Ok(()),
        "left" => Err(Error::new(ErrorKind::Busy, "rename")
            .message(
                "what is left of a destination of that name is being deleted; nothing was renamed. Try again",
            )
            .context("destination", to)),
        _ => Err(Error::new(ErrorKind::Conflict, "rename")
            .message("the destination was changed meanwhile; nothing was renamed. Try again")
            .context("destination", from)),
    }
}

async fn definition(session: &Session, id: &DestinationId) -> Result<Option<String>> {
    let row = session.optional("rename", &DEFINITION, params![id.as_str()]).await?;
    Ok(row.map(|row| row.get(0)))
}

/// Lets a destination's events flow, or wait.
pub(super) async fn set_state(
    store: &PostgresStore,
    id: &DestinationId,
    state: DestinationState,
    note: &Note,
) -> Result<()> {
    let note = note::checked(note)?;
    let (text, what) = match state {
        DestinationState::Active => ("active", "destinations resume"),
        DestinationState::Paused => ("paused", "destinations pause"),
    };
    let values = params![id.as_str(), text, note.who, note.why, what, id.as_str()];
    let session = store.sessions().line(Line::Write, "set destination").await?;
    let known: bool = session.row("set destination", &STATE, values).await?.get(0);
    if known { Ok(()) } else { Err(not_found("set destination", "destination", id)) }
}
