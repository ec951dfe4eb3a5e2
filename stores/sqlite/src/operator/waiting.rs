//! Waiting events, in the order (destination, seq).

use std::cmp::Reverse;

use postrider_core::operate::listing::{self, Fields, Gathering};
use postrider_core::operate::{Filter, Listed, PageRequest, Status, WaitingView};
use postrider_core::{DestinationId, PartitionId, Result};
use rusqlite::{Connection, Row, params};

use super::merge::Merge;
use super::sql;
use super::value::{self, count, id, moment_at, shown, small, text, time};
use crate::error::During;

const AGGREGATE_TYPE: usize = 15;

/// A page of waiting events.
pub(super) fn list(
    connection: &Connection,
    filter: &Filter,
    page: &PageRequest,
) -> Result<Listed<WaitingView>> {
    let mut gathering = Gathering::new(page.check()?);
    let after = listing::parts_after(page.after.as_deref(), "waiting")?;
    let states = listing::states(filter);
    let mut from = after.map_or(0, |(_, seq)| seq);
    let mut next = start(connection, filter, after.map(|(destination, _)| destination))?;
    // Past the destination that the page before ended in, numbers begin anew.
    if next.as_deref() != after.map(|(destination, _)| destination) {
        from = 0;
    }
    while let Some(destination) = next {
        let mut statements = Vec::new();
        for _ in &states {
            statements.push(connection.prepare_cached(sql::WAITING_LIST).during("waiting")?);
        }
        let mut streams = Vec::new();
        for (statement, state) in statements.iter_mut().zip(&states) {
            let of = params![destination, state.as_str(), from];
            streams.push(statement.query(of).during("waiting")?);
        }
        // Each state by its own reading of the index, merged by number: nothing is sorted.
        let mut merge = Merge::open(streams, |_, row| Reverse(count(row, 2)))?;
        while let Some((_, row)) = merge.current() {
            let seq = count(row, 2);
            let goes_on = gathering.look();
            if passes(row, filter) {
                if gathering.is_full() {
                    return Ok(gathering.more());
                }
                gathering.push(view(row), place(&destination, seq));
            }
            if !goes_on {
                return Ok(gathering.more_after(place(&destination, seq)));
            }
            merge.advance()?;
        }
        from = 0;
        next = match &filter.destination {
            Some(_) => None,
            None => neighbour(connection, sql::WAITING_DESTINATION_AFTER, &destination)?,
        };
    }
    Ok(gathering.end())
}

fn place(destination: &str, seq: u64) -> String {
    format!("{destination}:{seq}")
}

/// The destination to begin with, if there is one that the filter lets through.
fn start(connection: &Connection, filter: &Filter, after: Option<&str>) -> Result<Option<String>> {
    match (&filter.destination, after) {
        (Some(only), Some(after)) if only.as_str() < after => Ok(None),
        (Some(only), _) => Ok(Some(only.as_str().to_owned())),
        (None, after) => neighbour(connection, sql::WAITING_DESTINATION, after.unwrap_or_default()),
    }
}

fn neighbour(connection: &Connection, statement: &str, name: &str) -> Result<Option<String>> {
    Ok(value::first(connection, "waiting", statement, [name], |row| text(row, 0))?.flatten())
}

fn passes(row: &Row<'_>, filter: &Filter) -> bool {
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

/// A row with the columns of `operator/waiting_list.sql`.
pub(super) fn view(row: &Row<'_>) -> WaitingView {
    let status = listing::status_of(&shown(row, 4)).unwrap_or(Status::Held);
    let timed = matches!(status, Status::Retrying | Status::Held);
    WaitingView {
        destination: DestinationId::new(shown(row, 0))
            .unwrap_or_else(|_| postrider_core::Destination::unrouted().id),
        partition: PartitionId(u16::try_from(count(row, 1)).unwrap_or_default()),
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
        next_at: moment_at(row, 7).filter(|_| timed),
        moved_at: moment_at(row, 12).unwrap_or_default(),
        holds_key: count(row, 5) != 0,
        late: count(row, 6) != 0,
    }
}
