//! Events of the outbox: pages of them, newest first, and one with everything that is known of it.

use bytes::Bytes;
use postrider_core::operate::listing::{self, Fields, Gathering, SCAN_MAX};
use postrider_core::operate::{
    EventDetail, EventView, Filter, Listed, PageRequest, Status, WaitingView,
};
use postrider_core::{Event, EventId, Payload, Result};
use rusqlite::{Connection, Row, params};

use super::delivery::{Deliveries, Subject};
use super::value::{self, count, id, not_found, shown, text, time};
use super::{sql, waiting};
use crate::error::During;
use crate::page;
use crate::row::{Decoder, EVENT_COLUMNS};
use crate::store::signed;

/// Events ahead of one in its key that are shown with it: who holds it up is the first of them.
const BEHIND_MAX: u32 = 10;

/// Events of one call whose deliveries are looked up, which costs a look into several tables for each.
/// What passes the cheap conditions is seldom more.
const READ_MAX: usize = 20_000;

/// A page of events.
pub(super) fn list(
    connection: &Connection,
    filter: &Filter,
    page: &PageRequest,
) -> Result<Listed<EventView>> {
    let mut gathering = Gathering::new(page.check()?);
    let before = listing::number_after(page.after.as_deref(), "events")?.unwrap_or(i64::MAX);
    let mut deliveries = Deliveries::read(connection)?;
    if let Some(id) = filter.id {
        let seq = seq_of(connection, id)?.filter(|seq| *seq < before);
        if let Some(view) = seq.map(|seq| read(connection, seq, filter, &mut deliveries)) {
            view?.into_iter().for_each(|view| gathering.push(view, String::new()));
        }
        return Ok(gathering.end());
    }
    let top: Option<i64> =
        value::first(connection, "events", sql::EVENTS_TOP, [before], |row| row.get(0).ok())?
            .flatten();
    let Some(top) = top else {
        return Ok(gathering.end());
    };
    let floor = top.saturating_sub(signed(SCAN_MAX) - 1).max(1);
    let mut statement = connection.prepare_cached(sql::EVENTS_SCAN).during("events")?;
    let mut rows = statement.query(params![floor, top, filter.key.as_deref()]).during("events")?;
    let mut looked = 0;
    while let Some(row) = rows.next().during("events")? {
        if !may_pass(row, filter) {
            continue;
        }
        let seq: i64 = row.get(0).during("events")?;
        looked += 1;
        if looked > READ_MAX {
            return Ok(gathering.more_after(seq.saturating_add(1).to_string()));
        }
        if let Some(view) = read(connection, seq, filter, &mut deliveries)? {
            if gathering.is_full() {
                return Ok(gathering.more());
            }
            gathering.push(view, seq.to_string());
        }
    }
    Ok(if floor > 1 { gathering.more_after(floor.to_string()) } else { gathering.end() })
}

/// Whether the columns before the payload let a row through: most rows are left here, and the rest
/// of them is never read.
fn may_pass(row: &Row<'_>, filter: &Filter) -> bool {
    filter.event_type.as_ref().is_none_or(|glob| glob.matches(&shown(row, 1)))
        && filter.aggregate_type.as_ref().is_none_or(|glob| glob.matches(&shown(row, 2)))
}

fn seq_of(connection: &Connection, id: EventId) -> Result<Option<i64>> {
    let found = value::first(connection, "events", sql::EVENT_SEQ, [id.to_string()], |row| {
        row.get(0).ok()
    })?;
    Ok(found.flatten())
}

/// An event of the outbox, if the filter lets it through.
fn read(
    connection: &Connection,
    seq: i64,
    filter: &Filter,
    deliveries: &mut Deliveries<'_>,
) -> Result<Option<EventView>> {
    let found = value::first(connection, "events", sql::EVENT_VIEW, [seq], |row| {
        let view = EventView {
            seq: count(row, 0),
            id: id(row, 1).unwrap_or(EventId::from_u128(0)),
            event_type: shown(row, 2),
            key: shown(row, 4),
            tenant: text(row, 5),
            created_at: time(row, 6).unwrap_or_default(),
            payload_bytes: count(row, 7),
            deliveries: Vec::new(),
        };
        (view, shown(row, 3), time(row, 6), count(row, 8) != 0)
    })?;
    let Some((mut view, aggregate_type, created_at, erased)) = found else {
        return Ok(None);
    };
    let fields = Fields {
        id: Some(view.id),
        key: &view.key,
        event_type: &view.event_type,
        aggregate_type: &aggregate_type,
        tenant: view.tenant.as_deref(),
        created_at,
    };
    if !fields.pass(filter) {
        return Ok(None);
    }
    view.deliveries = deliveries.of(&Subject {
        seq: view.seq,
        key: &view.key,
        event_type: &view.event_type,
        aggregate_type: &aggregate_type,
        tenant: view.tenant.as_deref(),
        erased,
    })?;
    if let Some(wanted) = &filter.destination {
        view.deliveries.retain(|delivery| delivery.destination == *wanted);
    }
    let passes = !listing::asks_for_delivery(filter)
        || view.deliveries.iter().any(|delivery| listing::delivery_passes(filter, delivery));
    Ok(passes.then_some(view))
}

/// One event: from the outbox, else the schedule, else its copy in `waiting`.
pub(super) fn detail(connection: &Connection, id: EventId) -> Result<EventDetail> {
    let named = id.to_string();
    let mut decoder = Decoder::new(&page::default_source(connection)?);
    let mut deliveries = Deliveries::read(connection)?;
    let mut find = |statement: &str| {
        value::first(connection, "event", statement, [&named], |row| {
            (
                count(row, 0),
                whole(&mut decoder, row),
                value::moment_at(row, EVENT_COLUMNS).ok_or(()),
            )
        })
    };
    if let Some((seq, event, _)) = find(sql::EVENT)? {
        return in_outbox(connection, seq, event, &mut deliveries);
    }
    if let Some((_, event, due)) = find(sql::EVENT_SCHEDULED)? {
        let deliveries = deliveries.scheduled(&event);
        return Ok(EventDetail { seq: None, event, due: due.ok(), deliveries, behind: Vec::new() });
    }
    match find(sql::EVENT_WAITING)? {
        Some((seq, event, _)) => in_outbox(connection, seq, event, &mut deliveries),
        None => Err(not_found("event", "event", id)),
    }
}

fn in_outbox(
    connection: &Connection,
    seq: u64,
    event: Event,
    deliveries: &mut Deliveries<'_>,
) -> Result<EventDetail> {
    let subject = Subject {
        seq,
        key: &event.key(),
        event_type: &event.event_type,
        aggregate_type: &event.aggregate_type,
        tenant: event.tenant.as_deref(),
        erased: event.payload == Payload::Erased,
    };
    let views = deliveries.of(&subject)?;
    let mut behind = Vec::new();
    for (destination, partition) in deliveries.ids() {
        let held = views.iter().any(|view| {
            view.destination == *destination
                && matches!(view.status, Status::Parked | Status::Pending)
        });
        if held {
            let key = event.key();
            let place = params![destination.as_str(), partition, key, signed(seq), BEHIND_MAX];
            let rows: Vec<WaitingView> =
                value::all(connection, "event", sql::WAITING_BEHIND, place, waiting::view)?;
            behind.extend(rows);
        }
    }
    Ok(EventDetail { seq: Some(seq), event, due: None, deliveries: views, behind })
}

/// A row as an event, or as much of one as can be read: people must be able to look at what a relay
/// cannot deliver.
fn whole(decoder: &mut Decoder, row: &Row<'_>) -> Event {
    let decoded = decoder.decode(row);
    if let Ok(event) = decoded.event {
        return std::sync::Arc::unwrap_or_clone(event);
    }
    let mut event = Event::new(decoded.row.id, &shown(row, 3), &shown(row, 4), &shown(row, 6));
    event.source = shown(row, 2).into();
    event.key = text(row, 5).map(Into::into);
    event.event_version = value::small(row, 7);
    event.payload = match (row.get::<_, String>(8), text(row, 17)) {
        (_, Some(_)) => Payload::Erased,
        (Ok(json), None) => Payload::Json(json.into_bytes().into()),
        (Err(_), None) => Payload::Bytes(bytes_of(row)),
    };
    event.content_type = shown(row, 10).into();
    event.encoding = text(row, 11).map(Into::into);
    event.headers = serde_json::from_str(&shown(row, 12)).unwrap_or_default();
    event.tenant = text(row, 13).map(Into::into);
    event.occurred_at = time(row, 15).unwrap_or_default();
    event.created_at = time(row, 16).unwrap_or_default();
    event
}

fn bytes_of(row: &Row<'_>) -> Bytes {
    row.get::<_, Vec<u8>>(9).map(Bytes::from).unwrap_or_default()
}
