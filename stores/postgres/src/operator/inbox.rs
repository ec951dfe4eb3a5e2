//! Rows of the inbox as operators change them: forgetting, and marking by hand.
//!
//! Invariants: nothing that a handler is at is touched, and its lease decides that by the database's
//! clock; what is forgotten leaves a tombstone with who and why (F34), and with its token, from which the
//! next claim goes on; results of steps stay, because they are effects that have happened: an event that
//! is acted on again resumes behind them.

use postrider_core::Result;
use postrider_core::operate::{Forgotten, InboxName, Marked, Note};

use super::note;
use super::value::invalid;
use crate::PostgresStore;
use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::{self, params, span};

pub(super) use super::inbox_list::list;

const SOURCES: Sql = sql!("operator/inbox_sources");
const STANDING: Sql = sql!("operator/inbox_standing");
const SAID_BY: Sql = sql!("operator/inbox_said_by");
const FORGET: Sql = sql!("operator/inbox_forget");
const MARK: Sql = sql!("operator/inbox_mark");

/// The one source that has such a row; `None` if none has.
async fn source_of(
    session: &Session,
    operation: &'static str,
    name: &InboxName,
) -> Result<Option<String>> {
    if name.source.is_some() {
        return Ok(name.source.clone());
    }
    let values = params![typed::uuid(name.event_id), name.handler.as_str()];
    let rows = session.rows(operation, &SOURCES, values).await?;
    let found: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    if found.len() > 1 {
        return Err(invalid(operation, "several sources have this event id: name one")
            .context("sources", found.join(", ")));
    }
    Ok(found.first().map(|&source| source.to_owned()))
}

/// Forgets that a handler was done with an event.
pub(super) async fn forget(
    store: &PostgresStore,
    name: &InboxName,
    note: &Note,
) -> Result<Forgotten> {
    let note = note::checked(note)?;
    // Not on the inbox's session: the row may be locked by a handler's transaction.
    let tx = store.sessions().begin("forget").await?;
    let Some(source) = source_of(&tx, "forget", name).await? else {
        tx.commit("forget").await?;
        return Ok(Forgotten::Unknown);
    };
    let subject =
        note::subject(&format!("event {} of {source} for {}", name.event_id, name.handler));
    let (id, handler) = (typed::uuid(name.event_id), name.handler.as_str());
    let values = params![source, id, handler, note.who, note.why, subject];
    let judged = tx.optional("forget", &FORGET, values).await?;
    tx.commit("forget").await?;
    Ok(match judged.map(|row| row.get::<_, Option<i64>>(0)) {
        None => Forgotten::Unknown,
        Some(Some(left)) => Forgotten::Leased { left: span(left) },
        Some(None) => Forgotten::Forgotten,
    })
}

/// Records that a handler is done with an event, because a person did its work.
pub(super) async fn mark(store: &PostgresStore, name: &InboxName, note: &Note) -> Result<Marked> {
    let note = note::checked(note)?;
    let tx = store.sessions().begin("mark processed").await?;
    let (source, event_type) = said_by(&tx, name).await?;
    let subject =
        note::subject(&format!("event {} of {source} for {}", name.event_id, name.handler));
    let (id, handler) = (typed::uuid(name.event_id), name.handler.as_str());
    let values = params![source, id, handler, event_type, note.who, note.why, subject];
    let marked: bool = tx.row("mark processed", &MARK, values).await?.get(0);
    let standing = match marked {
        true => None,
        false => {
            let key = params![source, id, handler];
            tx.optional("mark processed", &STANDING, key).await?
        }
    };
    tx.commit("mark processed").await?;
    if marked {
        return Ok(Marked::Marked);
    }
    // Between the two looks a lease may have ended, and a row may have gone: to say it again tells.
    let left = standing.filter(|row| !row.get::<_, bool>(0));
    let left = left.map(|row| row.get::<_, Option<i64>>(1));
    Ok(match left {
        None => Marked::Already,
        Some(left) => Marked::Leased { left: span(left.unwrap_or_default()) },
    })
}

/// Whose event it is, and its type as far as this store knows it. The row need not be there yet.
async fn said_by(session: &Session, name: &InboxName) -> Result<(String, String)> {
    let values = params![typed::uuid(name.event_id), name.handler.as_str()];
    let known = session.optional("mark processed", &SAID_BY, values).await?;
    let known = known.map(|row| (row.get::<_, String>(0), row.get::<_, String>(1)));
    let event_type = |source: &str| match &known {
        Some((of, event_type)) if of == source => event_type.clone(),
        _ => String::new(),
    };
    if let Some(source) = source_of(session, "mark processed", name).await? {
        let event_type = event_type(&source);
        return Ok((source, event_type));
    }
    known.ok_or_else(|| {
        invalid("mark processed", "this store does not know the event: name its source as well")
            .context("event", name.event_id)
    })
}
