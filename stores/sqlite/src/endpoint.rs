//! Endpoints that are disabled: one topic, subject, queue, or URL of a destination that takes nothing
//! until an operator enables it.
//!
//! Invariant: no event waits for an endpoint that is not disabled. Whoever parks one there looks in the
//! same transaction, because an operator may have enabled it while the settlement was on its way, and
//! nobody would let the event out.

use postrider_core::waiting::SettlementPart;
use postrider_core::{DestinationId, Result};
use rusqlite::{Connection, params};

use crate::error::During;
use crate::waiting::cut;
use crate::{destination, sql};

/// Disables the endpoints that a settlement names. Other relays hear of it if that is news.
pub(crate) fn disable(connection: &Connection, part: &SettlementPart, now: i64) -> Result<()> {
    let mut news = 0;
    for endpoint in &part.disabled {
        let detail = cut(&endpoint.detail);
        news += connection
            .prepare_cached(sql::ENDPOINT_DISABLE)
            .and_then(|mut statement| {
                statement.execute(params![part.destination.as_str(), endpoint.topic, detail, now])
            })
            .during("settle")?;
    }
    if news > 0 { destination::bump(connection).map(drop) } else { Ok(()) }
}

/// Whether an endpoint is disabled.
pub(crate) fn is_disabled(
    connection: &Connection,
    destination: &DestinationId,
    topic: &str,
) -> rusqlite::Result<bool> {
    connection.prepare_cached(sql::ENDPOINT_FIND)?.exists([destination.as_str(), topic])
}

/// Takes an endpoint into service again. Other relays hear of it if that is news.
pub(crate) fn enable(
    connection: &Connection,
    destination: &DestinationId,
    topic: &str,
) -> Result<()> {
    let news = connection
        .prepare_cached(sql::ENDPOINT_ENABLE)
        .and_then(|mut statement| statement.execute([destination.as_str(), topic]))
        .during("carry out")?;
    if news > 0 { destination::bump(connection).map(drop) } else { Ok(()) }
}

/// All that are disabled, by destination and topic.
pub(crate) fn list(connection: &Connection) -> Result<Vec<(DestinationId, Box<str>)>> {
    let found: Vec<(String, String)> = connection
        .prepare_cached(sql::ENDPOINT_LIST)
        .and_then(|mut statement| {
            let rows = statement.query_map((), |row| row.try_into())?;
            rows.collect()
        })
        .during("destinations")?;
    found
        .into_iter()
        .map(|(destination, topic)| Ok((DestinationId::new(&destination)?, topic.into())))
        .collect()
}
