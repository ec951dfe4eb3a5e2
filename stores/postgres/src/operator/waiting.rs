//! Waiting events, in the order (destination, seq).

use std::collections::VecDeque;

use postrider_core::operate::listing::{self, Fields, Gathering};
use postrider_core::operate::{Filter, Listed, PageRequest, Status, WaitingView};
use postrider_core::{Destination, DestinationId, PartitionId, Result};
use tokio_postgres::Row;

use super::delivery::standings;
use super::value::{count, flag, id, partition, shown, small, text, time};
use crate::PostgresStore;
use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::params;

const WAITING_PAGE: Sql = sql!("operator/waiting_page");

const AGGREGATE_TYPE: usize = 15;

/// Rows that are read at once where a filter leaves most of them out: half a megabyte.
const CHUNK_MAX: usize = 2_000;

/// A page of waiting events.
pub(super) async fn list(
    store: &PostgresStore,
    filter: &Filter,
    page: &PageRequest,
) -> Result<Listed<WaitingView>> {
    let gathering = Gathering::new(page.check()?);
    let after = listing::parts_after(page.after.as_deref(), "waiting")?;
    let tx = store.sessions().begin_reading("waiting").await?;
    let listed = gather(&tx, filter, after, gathering).await;
    tx.end("waiting").await;
    listed
}

async fn gather(
    session: &Session,
    filter: &Filter,
    after: Option<(&str, i64)>,
    mut gathering: Gathering<WaitingView>,
) -> Result<Listed<WaitingView>> {
    let states: Vec<&str> = listing::states(filter).iter().map(|state| state.as_str()).collect();
    let mut destinations = destinations(session, filter, after.map(|(name, _)| name)).await?;
    // Past the destination that the page before ended in, numbers begin anew.
    let same = destinations.front().map(DestinationId::as_str) == after.map(|(name, _)| name);
    let mut from = after.filter(|_| same).map_or(0, |(_, seq)| seq);
    let mut chunk = gathering.wanted().saturating_add(1).min(CHUNK_MAX);
    while let Some(destination) = destinations.front() {
        let asked = i64::try_from(chunk).unwrap_or(i64::MAX);
        let which = params![destination.as_str(), states, from, asked];
        let rows = session.rows("waiting", &WAITING_PAGE, which).await?;
        for row in &rows {
            let seq = count(row, 2);
            from = i64::try_from(seq).unwrap_or(i64::MAX);
            let goes_on = gathering.look();
            if passes(row, filter) {
                if gathering.is_full() {
                    return Ok(gathering.more());
                }
                gathering.push(view(row), place(destination, seq));
            }
            if !goes_on {
                return Ok(gathering.more_after(place(destination, seq)));
            }
        }
        if rows.len() < chunk {
            destinations.pop_front();
            from = 0;
        }
        chunk = (chunk * 4).min(CHUNK_MAX);
    }
    Ok(gathering.end())
}

fn place(destination: &DestinationId, seq: u64) -> String {
    format!("{destination}:{seq}")
}

/// The destinations that the filter lets through, from a name on.
async fn destinations(
    session: &Session,
    filter: &Filter,
    from: Option<&str>,
) -> Result<VecDeque<DestinationId>> {
    let known = standings(session).await?.into_iter().map(|standing| standing.definition.id);
    let wanted = |id: &DestinationId| {
        filter.destination.as_ref().is_none_or(|only| only == id)
            && from.is_none_or(|from| id.as_str() >= from)
    };
    Ok(known.filter(wanted).collect())
}

fn passes(row: &Row, filter: &Filter) -> bool {
    let (key, event_type, aggregate_type) =
        (shown(row, 3), shown(row, 14), shown(row, AGGREGATE_TYPE));
    let tenant = text(row, 16);
    let fields = Fields {
        id: id(row, 13),
        key: &key,
        event_type: &event_type,
        aggregate_type: &aggregate_type,
        tenant: tenant.as_deref(),
        created_at: time(row, 17),
    };
    fields.pass(filter)
        && filter.attempts_min.is_none_or(|least| small(row, 8) >= least)
        && listing::error_passes(filter, &shown(row, 9), &shown(row, 10))
}

/// A row with the columns of `operator/waiting_page.sql`.
pub(super) fn view(row: &Row) -> WaitingView {
    let status = listing::status_of(&shown(row, 4)).unwrap_or(Status::Held);
    let timed = matches!(status, Status::Retrying | Status::Held);
    WaitingView {
        destination: DestinationId::new(shown(row, 0))
            .unwrap_or_else(|_| Destination::unrouted().id),
        partition: PartitionId(u16::try_from(partition(row, 1)).unwrap_or_default()),
        seq: count(row, 2),
        id: id(row, 13),
        event_type: text(row, 14),
        key: shown(row, 3),
        tenant: text(row, 16),
        created_at: time(row, 17),
        status,
        attempts: small(row, 8),
        reason: shown(row, 9),
        detail: shown(row, 10),
        endpoint: text(row, 11),
        next_at: time(row, 7).filter(|_| timed),
        moved_at: time(row, 12).unwrap_or_default(),
        holds_key: flag(row, 5),
        late: flag(row, 6),
    }
}
