//! Scheduled events: next due first, and taken back before they enter the outbox.

use postrider_core::operate::listing::{self, Fields, Gathering};
use postrider_core::operate::{
    Cancelled, Filter, Listed, Note, PageRequest, ScheduledView, Status,
};
use postrider_core::{Event, EventId, Result};
use rusqlite::{Connection, Row, params};

use super::delivery::{Taken, standings, taken_by};
use super::value::{self, count, id, moment_at, shown, text, time};
use super::{audit, sql};
use crate::error::During;

/// A page of scheduled events.
pub(super) fn list(
    connection: &Connection,
    filter: &Filter,
    page: &PageRequest,
) -> Result<Listed<ScheduledView>> {
    let mut gathering = Gathering::new(page.check()?);
    let (due, seq) = match listing::parts_after(page.after.as_deref(), "scheduled")? {
        Some((due, seq)) => (place_of(due)?, seq),
        None => (i64::MIN, 0),
    };
    if asks_for_what_was_tried(filter) {
        return Ok(gathering.end());
    }
    let standings = standings(connection)?;
    let mut statement = connection.prepare_cached(sql::SCHEDULED_LIST).during("scheduled")?;
    let mut rows = statement.query(params![due, seq, filter.key.as_deref()]).during("scheduled")?;
    while let Some(row) = rows.next().during("scheduled")? {
        let place = format!("{}:{}", row.get::<_, i64>(6).during("scheduled")?, count(row, 0));
        let goes_on = gathering.look();
        let (view, aggregate_type) = (view(row), shown(row, 3));
        if passes(&view, &aggregate_type, filter)
            && goes_to(&view, &aggregate_type, filter, &standings)
        {
            if gathering.is_full() {
                return Ok(gathering.more());
            }
            gathering.push(view, place.clone());
        }
        if !goes_on {
            return Ok(gathering.more_after(place));
        }
    }
    Ok(gathering.end())
}

/// When an event is due may lie before 1970.
fn place_of(due: &str) -> Result<i64> {
    let digits = due.strip_prefix('-').unwrap_or(due);
    let number = listing::number(digits, "scheduled")?;
    Ok(if digits.len() < due.len() { -number } else { number })
}

/// Nothing that is scheduled was tried, or is in another state.
fn asks_for_what_was_tried(filter: &Filter) -> bool {
    filter.error.is_some()
        || filter.attempts_min.is_some_and(|least| least > 0)
        || !(filter.status.is_empty() || filter.status.contains(&Status::Scheduled))
}

fn view(row: &Row<'_>) -> ScheduledView {
    ScheduledView {
        seq: count(row, 0),
        id: id(row, 1).unwrap_or(EventId::from_u128(0)),
        event_type: shown(row, 2),
        key: shown(row, 4),
        tenant: text(row, 5),
        due: moment_at(row, 6).unwrap_or_default(),
        created_at: time(row, 7).unwrap_or_default(),
    }
}

fn passes(view: &ScheduledView, aggregate_type: &str, filter: &Filter) -> bool {
    let fields = Fields {
        id: Some(view.id),
        key: &view.key,
        event_type: &view.event_type,
        aggregate_type,
        tenant: view.tenant.as_deref(),
        created_at: Some(view.created_at),
    };
    fields.pass(filter)
}

/// Whether the routes, as they are now, would bring the event to the destination that is asked for.
fn goes_to(
    view: &ScheduledView,
    aggregate_type: &str,
    filter: &Filter,
    standings: &[super::delivery::Standing],
) -> bool {
    let Some(wanted) = &filter.destination else {
        return true;
    };
    let mut event = Event::new(view.id, aggregate_type, "", &view.event_type);
    event.tenant = view.tenant.as_deref().map(Into::into);
    let taken = taken_by(standings, &event);
    let there = standings.iter().zip(taken).find(|(s, _)| s.definition.id == *wanted);
    there.is_some_and(|(_, taken)| taken != Taken::No)
}

/// Takes an event back, in one statement: either it is still scheduled, or it has entered the
/// outbox.
pub(super) fn cancel(connection: &Connection, id: EventId, note: &Note) -> Result<Cancelled> {
    let named = id.to_string();
    let deleted = connection
        .prepare_cached(sql::CANCEL)
        .and_then(|mut statement| statement.execute([&named]))
        .during("cancel")?;
    if deleted > 0 {
        audit::write(connection, note, "outbox cancel", &format!("event {named}"))?;
        return Ok(Cancelled::Cancelled);
    }
    let entered = value::first(connection, "cancel", sql::EVENT_SEQ, [&named], |_| ())?;
    Ok(match entered {
        Some(()) => Cancelled::TooLate,
        None => Cancelled::Unknown,
    })
}
