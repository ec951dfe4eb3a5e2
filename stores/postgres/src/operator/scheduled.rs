//! Scheduled events: next due first.

use postrider_core::operate::listing::{self, Fields, Gathering};
use postrider_core::operate::{Filter, Listed, PageRequest, ScheduledView, Status};
use postrider_core::{Event, EventId, Result};
use tokio_postgres::Row;

use super::delivery::{Standing, Taken, standings, taken_by};
use super::partitions;
use super::value::{count, id, shown, text, time};
use crate::PostgresStore;
use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::{Moment, params, signed};

const SCHEDULED_PAGE: Sql = sql!("operator/scheduled_page");

/// Rows that are read at once where a filter leaves most of them out. Each partition is asked for as
/// many.
const CHUNK_MAX: usize = 1_000;

/// Rows that one call looks at: there is an index for each partition, so each that is shown may cost as
/// many as there are partitions.
const SCHEDULED_SCAN_MAX: usize = 20_000;

/// A page of scheduled events.
pub(super) async fn list(
    store: &PostgresStore,
    filter: &Filter,
    page: &PageRequest,
) -> Result<Listed<ScheduledView>> {
    let gathering = Gathering::new(page.check()?);
    let after = match listing::parts_after(page.after.as_deref(), "scheduled")? {
        Some((due, seq)) => (Moment(place_of(due)?), seq),
        None => (Moment(i64::MIN), 0),
    };
    if asks_for_what_was_tried(filter) || listing::asks_for_no_text(filter) {
        return Ok(gathering.end());
    }
    let tx = store.sessions().begin_reading("scheduled").await?;
    let listed = gather(&tx, filter, after, gathering).await;
    tx.end("scheduled").await;
    listed
}

async fn gather(
    session: &Session,
    filter: &Filter,
    (mut due, mut after): (Moment, i64),
    mut gathering: Gathering<ScheduledView>,
) -> Result<Listed<ScheduledView>> {
    let standings = standings(session).await?;
    let partitions = partitions::of(session, filter.key.as_deref()).await?;
    let mut chunk = gathering.wanted().saturating_add(1).min(CHUNK_MAX);
    let mut looked = 0;
    loop {
        let asked = i64::try_from(chunk).unwrap_or(i64::MAX);
        let behind = params![partitions, due, after, asked];
        let rows = session.rows("scheduled", &SCHEDULED_PAGE, behind).await?;
        looked += rows.len();
        for row in &rows {
            let (view, aggregate_type) = (view(row), shown(row, 3));
            (due, after) = (view.due.into(), signed(view.seq));
            let place = place(&view);
            if passes(&view, &aggregate_type, filter)
                && goes_to(&view, &aggregate_type, filter, &standings)
            {
                if gathering.is_full() {
                    return Ok(gathering.more());
                }
                gathering.push(view, place);
            }
        }
        if rows.len() < chunk {
            return Ok(gathering.end());
        }
        if looked >= SCHEDULED_SCAN_MAX {
            return Ok(gathering.more_after(format!("{}:{after}", due.0)));
        }
        chunk = (chunk * 4).min(CHUNK_MAX);
    }
}

fn place(view: &ScheduledView) -> String {
    format!("{}:{}", view.due.as_micros(), view.seq)
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

fn view(row: &Row) -> ScheduledView {
    ScheduledView {
        seq: count(row, 0),
        id: id(row, 1).unwrap_or(EventId::from_u128(0)),
        event_type: shown(row, 2),
        key: shown(row, 4),
        tenant: text(row, 5),
        due: time(row, 6).unwrap_or_default(),
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
    standings: &[Standing],
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
