//! The overview: everything at a glance, by the database's clock.
//!
//! Invariant: its cost does not grow with the outbox. Events are counted by their numbers, and
//! waiting ones by their index; what would need a look at rows looks at a stated number of them.

use std::collections::HashMap;
use std::path::Path;

use postrider_core::operate::{
    BacklogGroup, DestinationView, ErrorGroup, Overview, PartitionView, RelayView, SettledTotals,
};
use postrider_core::source::StoreFacts;
use postrider_core::waiting::{Counts, WaitingState};
use postrider_core::{
    Destination, DestinationId, DestinationState, Hindrance, PartitionId, RelayId, Result,
    Timestamp,
};
use rusqlite::{Connection, params};

use super::delivery::{Standing, standings};
use super::identity::{self, Copy};
use super::sql;
use super::value::{self, count, moment, moment_at, not_found, shown, small, text, time};
use crate::schema;
use crate::store::{now, signed, span};

/// Waiting rows of a destination whose reasons are read, and dead letters whose times are: enough to
/// tell what is wrong, and milliseconds.
const LOOKED_AT_MAX: i64 = 10_000;

/// Reasons that are shown.
const REASONS_MAX: usize = 10;

/// Disabled endpoints that are shown.
const ENDPOINTS_MAX: i64 = 100;

/// The state of everything.
pub(super) fn read(connection: &Connection, path: &Path, name: String) -> Result<Overview> {
    let schema = schema::check(connection)?;
    let now = now(connection)?;
    let (sequence, kept, first) = outbox(connection)?;
    let (scheduled, scheduled_next) = scheduled(connection)?;
    let partitions = schema::read_number(connection, "partitions")?;
    let mut destinations = Vec::new();
    for standing in standings(connection)? {
        destinations.push(destination(connection, &standing, sequence)?);
    }
    Ok(Overview {
        facts: StoreFacts {
            name,
            partitions: u16::try_from(partitions).unwrap_or(u16::MAX),
            schema,
        },
        now: moment(now),
        definitions: schema::read_number(connection, "definitions_version")?,
        enqueued: sequence,
        kept,
        oldest: created_from(connection, first)?,
        relays: relays(connection, now)?,
        partitions: self::partitions(connection, now)?,
        destinations,
        scheduled,
        scheduled_next,
        requests: value::first(connection, "overview", sql::REQUESTS_OPEN_COUNT, (), |row| {
            count(row, 0)
        })?
        .unwrap_or_default(),
        stray_bytes: None,
        copy: identity::compare(connection, path)? == Copy::Other,
    })
}

/// The sequence, how many events are here at most, and the first of them.
fn outbox(connection: &Connection) -> Result<(u64, u64, u64)> {
    let found = value::first(connection, "overview", sql::SEQUENCE, (), |row| {
        let (first, last) = (count(row, 1), count(row, 2));
        let kept = if first == 0 { 0 } else { last.saturating_sub(first) + 1 };
        (count(row, 0), kept, first)
    })?;
    Ok(found.unwrap_or_default())
}

/// When the first event from a number on was created.
fn created_from(connection: &Connection, seq: u64) -> Result<Option<Timestamp>> {
    let from = [signed(seq)];
    Ok(value::first(connection, "overview", sql::CREATED_AT, from, |row| time(row, 0))?.flatten())
}

fn scheduled(connection: &Connection) -> Result<(u64, Option<Timestamp>)> {
    let found = value::first(connection, "overview", sql::SCHEDULED_TOTALS, (), |row| {
        (count(row, 0), moment_at(row, 1))
    })?;
    Ok(found.unwrap_or_default())
}

fn relays(connection: &Connection, now: i64) -> Result<Vec<RelayView>> {
    let rows = value::all(connection, "overview", sql::RELAYS, [now], |row| {
        Ok(RelayView {
            owner: RelayId::new(shown(row, 0))?,
            current: count(row, 1) != 0,
            expires_in: span(now, signed(count(row, 2))),
            hindrances: Hindrance::read(&shown(row, 3)),
        })
    })?;
    rows.into_iter().collect()
}

fn partitions(connection: &Connection, now: i64) -> Result<Vec<PartitionView>> {
    let rows = value::all(connection, "overview", sql::PARTITIONS, (), |row| {
        let expires_at = signed(count(row, 3));
        let owner = text(row, 1).filter(|_| expires_at > now);
        Ok(PartitionView {
            partition: PartitionId(u16::try_from(count(row, 0)).unwrap_or(u16::MAX)),
            host: text(row, 2).filter(|_| owner.is_some()),
            expires_in: owner.as_ref().map(|_| span(now, expires_at)),
            owner: owner.map(RelayId::new).transpose()?,
            takeovers: small(row, 4),
            paused: count(row, 5) != 0,
        })
    })?;
    rows.into_iter().collect()
}

fn destination(
    connection: &Connection,
    standing: &Standing,
    sequence: u64,
) -> Result<DestinationView> {
    let Standing { definition: Destination { id, .. }, position, .. } = standing;
    let waits = waiting(connection, id)?;
    let pending = sequence.saturating_sub(*position);
    let since = if pending == 0 { None } else { created_from(connection, position + 1)? };
    let name = params![id.as_str()];
    let first_moment = |statement: &str, values: &[&dyn rusqlite::ToSql]| {
        let found =
            value::first(connection, "overview", statement, values, |row| moment_at(row, 0))?;
        Ok::<_, postrider_core::Error>(found.flatten())
    };
    Ok(DestinationView {
        kind: standing.kind.clone(),
        version: standing.version,
        state: if standing.paused { DestinationState::Paused } else { DestinationState::Active },
        pending,
        pending_since: since,
        waiting: waits.counts,
        ranges: value::first(connection, "overview", sql::RANGES_COUNT, name, |row| count(row, 0))?
            .unwrap_or_default(),
        waiting_since: waits.since,
        dead_since: first_moment(sql::DEAD_SINCE, params![id.as_str(), LOOKED_AT_MAX])?,
        retry_next: first_moment(sql::RETRY_NEXT, params![id.as_str(), standing.partition])?,
        settled: value::first(connection, "overview", sql::SETTLED_TOTALS, name, |row| {
            SettledTotals {
                count: count(row, 0),
                acked: count(row, 1),
                other_route: count(row, 2),
                dropped: count(row, 3),
                waiting: count(row, 4),
                erased: count(row, 5),
            }
        })?
        .unwrap_or_default(),
        saved_at: standing.saved_at.map(moment),
        errors: reasons(connection, id)?,
        disabled: value::all(
            connection,
            "overview",
            sql::ENDPOINTS,
            params![id.as_str(), ENDPOINTS_MAX],
            |row| shown(row, 0),
        )?,
        id: id.clone(),
    })
}

/// What waits at a destination.
#[derive(Default)]
struct Waits {
    counts: Counts,
    /// When the oldest that is not dead was created.
    since: Option<Timestamp>,
}

fn waiting(connection: &Connection, id: &DestinationId) -> Result<Waits> {
    let name = [id.as_str()];
    let rows = value::all(connection, "overview", sql::WAITING_COUNTS, name, |row| {
        (shown(row, 0).parse::<WaitingState>(), count(row, 1), count(row, 2))
    })?;
    let mut waits = Waits::default();
    let mut oldest = None::<u64>;
    for (state, count, first) in rows {
        let counts = &mut waits.counts;
        let slot = match state? {
            WaitingState::Retrying => &mut counts.retrying,
            WaitingState::Parked => &mut counts.parked,
            WaitingState::Held => &mut counts.held,
            WaitingState::Disabled => &mut counts.disabled,
            WaitingState::Dead => {
                counts.dead = count;
                continue;
            }
            WaitingState::Discarded => continue,
        };
        *slot = count;
        oldest = Some(oldest.map_or(first, |known| known.min(first)));
    }
    if let Some(seq) = oldest {
        let place = params![id.as_str(), signed(seq)];
        let read =
            value::first(connection, "overview", sql::WAITING_CREATED_AT, place, |r| time(r, 0));
        waits.since = read?.flatten();
    }
    Ok(waits)
}

/// The most frequent reasons. Those parked have none of their own.
fn reasons(connection: &Connection, id: &DestinationId) -> Result<Vec<ErrorGroup>> {
    let mut groups: HashMap<(String, String), u64> = HashMap::new();
    let mut left = LOOKED_AT_MAX;
    let states =
        [WaitingState::Dead, WaitingState::Disabled, WaitingState::Held, WaitingState::Retrying];
    for state in states {
        let which = params![id.as_str(), state.as_str(), left];
        let rows = value::all(connection, "overview", sql::REASONS, which, |row| {
            let detail = shown(row, 1);
            (shown(row, 0), detail.lines().next().unwrap_or_default().to_owned())
        })?;
        left = left.saturating_sub(i64::try_from(rows.len()).unwrap_or(left));
        for group in rows {
            *groups.entry(group).or_default() += 1;
        }
    }
    let mut groups: Vec<ErrorGroup> = groups
        .into_iter()
        .map(|((reason, detail), count)| ErrorGroup { reason, detail, count })
        .collect();
    groups.sort_by(|a, b| {
        b.count.cmp(&a.count).then_with(|| (&a.reason, &a.detail).cmp(&(&b.reason, &b.detail)))
    });
    groups.truncate(REASONS_MAX);
    Ok(groups)
}

/// What a destination has not passed yet, by what routes match.
pub(super) fn backlog(
    connection: &Connection,
    destination: &DestinationId,
    rows_max: u64,
) -> Result<Vec<BacklogGroup>> {
    let position: Option<i64> =
        value::first(connection, "backlog", sql::POSITION_LEAST, [destination.as_str()], |row| {
            row.get(0).ok()
        })?
        .flatten();
    let position = position.ok_or_else(|| not_found("backlog", "destination", destination))?;
    let wanted = params![position, signed(rows_max)];
    value::all(connection, "backlog", sql::BACKLOG, wanted, |row| BacklogGroup {
        event_type: shown(row, 0),
        aggregate_type: shown(row, 1),
        tenant: text(row, 2),
        count: count(row, 3),
        oldest: time(row, 5).unwrap_or_default(),
    })
}
