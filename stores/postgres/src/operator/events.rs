//! Pages of events, newest first.
//!
//! There is no index by number alone: each partition has its own. So a page is read by stretches of
//! numbers, in all partitions at once, each stretch beginning at the newest event that is left; gaps cost
//! nothing. Invariant: one call looks at a stated number of events, and says where to go on.

use postrider_core::operate::listing::{self, Fields, Gathering, SCAN_MAX};
use postrider_core::operate::{EventView, Filter, Listed, PageRequest};
use postrider_core::{EventId, Result};
use tokio_postgres::Row;

use super::delivery::{Deliveries, Subject};
use super::value::{count, flag, id, number, partition, shown, text, time};
use super::{find, partitions};
use crate::PostgresStore;
use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::{Moment, params};

const EVENTS_STRETCH: Sql = sql!("operator/events_stretch");
const EVENTS_TOP: Sql = sql!("operator/events_top");

/// Numbers of a stretch at first, and at most: what a stretch brings is in memory at once.
const STRETCH: (i64, i64) = (200, 10_000);

/// Events whose deliveries are looked up at once where a filter asks for them.
const LOOKED_UP: usize = 500;

/// Events of one call whose deliveries are looked up, which costs a look into several tables for each.
/// What passes the cheap conditions is seldom more.
const READ_MAX: usize = 20_000;

/// A page of events.
pub(super) async fn list(
    store: &PostgresStore,
    filter: &Filter,
    page: &PageRequest,
) -> Result<Listed<EventView>> {
    let gathering = Gathering::new(page.check()?);
    let before = listing::number_after(page.after.as_deref(), "events")?.unwrap_or(i64::MAX);
    if listing::asks_for_no_text(filter) {
        return Ok(gathering.end());
    }
    let tx = store.sessions().begin_reading("events").await?;
    let listed = match filter.id {
        Some(id) => one(&tx, id, before, filter, gathering).await,
        None => gather(&tx, before, filter, gathering).await,
    };
    tx.end("events").await;
    listed
}

async fn one(
    session: &Session,
    id: EventId,
    before: i64,
    filter: &Filter,
    mut gathering: Gathering<EventView>,
) -> Result<Listed<EventView>> {
    let place = find::place(session, id).await?.filter(|place| place.seq < before);
    if let Some(place) = place {
        let found = stretch(session, &[place.partition], place.seq, place.seq, filter).await?;
        let deliveries = Deliveries::read(session).await?;
        for view in looked_up(session, &deliveries, &found, filter).await? {
            gathering.push(view, String::new());
        }
    }
    Ok(gathering.end())
}

async fn gather(
    session: &Session,
    mut before: i64,
    filter: &Filter,
    mut gathering: Gathering<EventView>,
) -> Result<Listed<EventView>> {
    let deliveries = Deliveries::read(session).await?;
    let all = partitions::of(session, None).await?.len();
    let partitions = partitions::of(session, filter.key.as_deref()).await?;
    // A key's numbers are spread over as many as there are partitions.
    let spread = i64::try_from(all / partitions.len().max(1)).unwrap_or(1).max(1);
    let mut left = i64::try_from(SCAN_MAX).unwrap_or(i64::MAX).saturating_mul(spread);
    let wanted = i64::try_from(gathering.wanted()).unwrap_or(i64::MAX);
    let most = STRETCH.1.saturating_mul(spread);
    let mut width = wanted.saturating_add(1).clamp(STRETCH.0, STRETCH.1).saturating_mul(spread);
    let mut read = 0;
    loop {
        let top = session.row("events", &EVENTS_TOP, params![partitions, before]).await?;
        let Some(top) = number(&top, 0) else { return Ok(gathering.end()) };
        width = width.min(left).max(1);
        let floor = top.saturating_sub(width - 1);
        let found = stretch(session, &partitions, floor, top, filter).await?;
        for some in found.chunks(batch(&gathering, filter)) {
            if gathering.is_full() && !listing::asks_for_delivery(filter) {
                return Ok(gathering.more());
            }
            if read >= READ_MAX {
                let first = some.first().map_or(floor, |found| found.seq);
                return Ok(gathering.more_after(first.saturating_add(1).to_string()));
            }
            read += some.len();
            for view in looked_up(session, &deliveries, some, filter).await? {
                if gathering.is_full() {
                    return Ok(gathering.more());
                }
                let place = view.seq.to_string();
                gathering.push(view, place);
            }
        }
        before = floor;
        left = left.saturating_sub(width);
        if left <= 0 {
            return Ok(gathering.more_after(floor.to_string()));
        }
        width = width.saturating_mul(4).min(most);
    }
}

/// How many events are looked up at once: as many as the page still takes, if each will be shown.
fn batch(gathering: &Gathering<EventView>, filter: &Filter) -> usize {
    if listing::asks_for_delivery(filter) { LOOKED_UP } else { gathering.wanted().max(1) }
}

/// An event that meets the conditions on itself.
struct Found {
    view: EventView,
    seq: i64,
    xid: Option<i64>,
    partition: i16,
    aggregate_type: String,
    erased: bool,
}

/// What a filter lets through in a stretch of numbers, newest first.
async fn stretch(
    session: &Session,
    partitions: &[i16],
    first: i64,
    last: i64,
    filter: &Filter,
) -> Result<Vec<Found>> {
    let (since, until) = (filter.since.map(Moment::from), filter.until.map(Moment::from));
    let (key, tenant) = (filter.key.as_deref(), filter.tenant.as_deref());
    let partitions = partitions.to_vec();
    let which = params![partitions, first, last, key, tenant, since, until];
    let rows = session.rows("events", &EVENTS_STRETCH, which).await?;
    Ok(rows.iter().map(found).filter(|found| passes(found, filter)).collect())
}

fn found(row: &Row) -> Found {
    Found {
        view: EventView {
            seq: count(row, 0),
            id: id(row, 3).unwrap_or(EventId::from_u128(0)),
            event_type: shown(row, 4),
            key: shown(row, 6),
            tenant: text(row, 7),
            created_at: time(row, 8).unwrap_or_default(),
            payload_bytes: count(row, 9),
            deliveries: Vec::new(),
        },
        seq: number(row, 0).unwrap_or_default(),
        xid: number(row, 1),
        partition: partition(row, 2),
        aggregate_type: shown(row, 5),
        erased: flag(row, 10),
    }
}

fn passes(found: &Found, filter: &Filter) -> bool {
    let fields = Fields {
        id: Some(found.view.id),
        key: &found.view.key,
        event_type: &found.view.event_type,
        aggregate_type: &found.aggregate_type,
        tenant: found.view.tenant.as_deref(),
        created_at: Some(found.view.created_at),
    };
    fields.pass(filter)
}

/// Events with what became of them, those that the filter lets through.
async fn looked_up(
    session: &Session,
    deliveries: &Deliveries,
    found: &[Found],
    filter: &Filter,
) -> Result<Vec<EventView>> {
    let subjects: Vec<Subject<'_>> = found.iter().map(subject).collect();
    let told = deliveries.of(session, &subjects).await?;
    let mut views = Vec::new();
    for (found, mut deliveries) in found.iter().zip(told) {
        if let Some(wanted) = &filter.destination {
            deliveries.retain(|delivery| delivery.destination == *wanted);
        }
        let passes = !listing::asks_for_delivery(filter)
            || deliveries.iter().any(|delivery| listing::delivery_passes(filter, delivery));
        if passes {
            views.push(EventView { deliveries, ..found.view.clone() });
        }
    }
    Ok(views)
}

fn subject(found: &Found) -> Subject<'_> {
    Subject {
        seq: found.view.seq,
        xid: found.xid,
        partition: found.partition,
        key: &found.view.key,
        event_type: &found.view.event_type,
        aggregate_type: &found.aggregate_type,
        tenant: found.view.tenant.as_deref(),
        erased: found.erased,
    }
}
