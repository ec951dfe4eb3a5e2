//! Pages of the inbox, newest first.

use postrider_core::operate::{InboxFilter, InboxState, InboxView, Listed, PageRequest};
use postrider_core::{Error, ErrorKind, EventId, Result, Timestamp};
use tokio_postgres::Row;
use uuid::Uuid;

use super::value::invalid;
use crate::PostgresStore;
use crate::session::Session;
use crate::sessions::Line;
use crate::sql::{Sql, sql};
use crate::typed::{self, Moment, params, span, unsigned};

const PAGE: Sql = sql!("operator/inbox_page");
const OF_EVENT: Sql = sql!("operator/inbox_of_event");
const STEPS: Sql = sql!("operator/inbox_steps");

/// Steps of one row that are named.
const STEPS_MAX: i64 = 100;

/// Rows of one statement.
const STRETCH: usize = 1_000;

/// Rows that one call looks at, however few of them its filter lets through.
const LOOKED_AT_MAX: usize = 20_000;

/// The streams of the list, by their number in a [`Place`].
const TOMBSTONES: i16 = 0;
const PROCESSED: i16 = 1;
const CLAIMED: i16 = 2;

/// A row's place in the list, later is greater: moment, stream, the number of a tombstone, source, event,
/// handler.
type Place = (i64, i16, i64, String, Uuid, String);

/// A page of the inbox.
pub(super) async fn list(
    store: &PostgresStore,
    filter: &InboxFilter,
    page: &PageRequest,
) -> Result<Listed<InboxView>> {
    let limit = page.check()?;
    let mut after = page.after.as_deref().map(read_place).transpose()?;
    let session = store.sessions().line(Line::Read, "inbox").await?;
    let mut listed = Listed { rows: Vec::new(), next: None };
    let mut last: Option<Place> = None;
    for _ in 0..LOOKED_AT_MAX / STRETCH {
        let rows = match filter.event_id {
            Some(event) => of_event(&session, event, after.as_ref()).await?,
            None => stretch(&session, filter, after.as_ref()).await?,
        };
        let all = filter.event_id.is_some() || rows.len() < STRETCH;
        for row in &rows {
            let view = view(row);
            if passes(&view, filter) {
                if listed.rows.len() == limit {
                    listed.next = last.as_ref().map(written).transpose()?;
                    return with_steps(&session, listed).await;
                }
                listed.rows.push(view);
                last = Some(place(row));
            }
            after = Some(place(row));
        }
        if all {
            return with_steps(&session, listed).await;
        }
    }
    listed.next = after.as_ref().map(written).transpose()?;
    with_steps(&session, listed).await
}

fn place(row: &Row) -> Place {
    (row.get::<_, Moment>(1).0, row.get(0), row.get(5), row.get(2), row.get(3), row.get(4))
}

fn is_wanted(stream: i16, filter: &InboxFilter) -> bool {
    match filter.state {
        None => true,
        Some(InboxState::Leased | InboxState::Expired) => stream == CLAIMED,
        Some(InboxState::Processed) => stream == PROCESSED,
        Some(InboxState::Forgotten) => stream == TOMBSTONES,
    }
}

/// Before which row a stream begins.
fn start(stream: i16, after: Option<&Place>) -> (Moment, String, Uuid, String, i64) {
    let from = |moment| (Moment(moment), String::new(), Uuid::nil(), String::new(), 0);
    match after {
        None => from(i64::MAX),
        Some((moment, last, number, source, event, handler)) if *last == stream => {
            (Moment(*moment), source.clone(), *event, handler.clone(), *number)
        }
        // Of the same moment, what is of a lesser stream comes after; the others came before.
        Some((moment, last, ..)) if *last > stream => from(moment.saturating_add(1)),
        Some((moment, ..)) => from(*moment),
    }
}

async fn stretch(
    session: &Session,
    filter: &InboxFilter,
    after: Option<&Place>,
) -> Result<Vec<Row>> {
    let (claimed, done) = (start(CLAIMED, after), start(PROCESSED, after));
    let gone = start(TOMBSTONES, after);
    let values = params![
        is_wanted(CLAIMED, filter),
        claimed.0,
        claimed.1,
        claimed.2,
        claimed.3,
        is_wanted(PROCESSED, filter),
        done.0,
        done.1,
        done.2,
        done.3,
        is_wanted(TOMBSTONES, filter),
        gone.0,
        STRETCH as i64,
        gone.4
    ];
    session.rows("inbox", &PAGE, values).await
}

/// The rows of one event: a handful, one for each handler and source.
async fn of_event(session: &Session, event: EventId, after: Option<&Place>) -> Result<Vec<Row>> {
    let values = params![typed::uuid(event), PageRequest::LIMIT_MAX as i64];
    let mut rows = session.rows("inbox", &OF_EVENT, values).await?;
    rows.retain(|row| after.is_none_or(|after| place(row) < *after));
    Ok(rows)
}

fn written(place: &Place) -> Result<String> {
    let (moment, stream, number, source, event, handler) = place;
    let parts = (moment, stream, number, source, event.to_string(), handler);
    serde_json::to_string(&parts).map_err(|e| Error::new(ErrorKind::Internal, "inbox").source(e))
}

fn read_place(text: &str) -> Result<Place> {
    let read: Option<(i64, i16, i64, String, String, String)> = serde_json::from_str(text).ok();
    let read = read.filter(|place| (TOMBSTONES..=CLAIMED).contains(&place.1));
    let place = read.and_then(|(moment, stream, number, source, event, handler)| {
        let nul = source.contains('\0') || handler.contains('\0');
        (!nul).then_some(())?;
        Some((moment, stream, number, source, event.parse().ok()?, handler))
    });
    place.ok_or_else(|| {
        invalid("inbox", "the page does not begin where a page ended; begin at the first page")
            .context("after", text.escape_debug())
    })
}

/// A row as a person sees it, without its steps.
fn view(row: &Row) -> InboxView {
    let left: Option<i64> = row.get(10);
    let state = match (row.get::<_, i16>(0), left) {
        (TOMBSTONES, _) => InboxState::Forgotten,
        (PROCESSED, _) => InboxState::Processed,
        (_, Some(_)) => InboxState::Leased,
        (_, None) => InboxState::Expired,
    };
    let forgotten = row.get::<_, Option<&str>>(11).zip(row.get::<_, Option<&str>>(12));
    InboxView {
        source: row.get(2),
        event_id: EventId::from_u128(row.get::<_, Uuid>(3).as_u128()),
        handler: row.get(4),
        event_type: row.get(6),
        state,
        attempts: u32::try_from(row.get::<_, i32>(7)).unwrap_or_default(),
        received_at: row.get::<_, Moment>(8).into(),
        ended_at: row.get::<_, Option<Moment>>(9).map(Timestamp::from),
        lease_left: left.map(span),
        steps: Vec::new(),
        result_bytes: row.get::<_, Option<i32>>(13).map_or(0, |bytes| unsigned(bytes.into())),
        forgotten_by: forgotten.map(|(who, why)| format!("{who}: {why}")),
    }
}

fn passes(view: &InboxView, filter: &InboxFilter) -> bool {
    filter.event_id.is_none_or(|wanted| view.event_id == wanted)
        && filter.handler.as_ref().is_none_or(|wanted| view.handler == wanted.as_str())
        && filter.source.as_ref().is_none_or(|wanted| view.source == *wanted)
        && filter.event_type.as_ref().is_none_or(|glob| glob.matches(&view.event_type))
        && filter.state.is_none_or(|wanted| view.state == wanted)
        && filter.since.is_none_or(|since| view.received_at >= since)
        && filter.until.is_none_or(|until| view.received_at < until)
}

async fn with_steps(session: &Session, mut listed: Listed<InboxView>) -> Result<Listed<InboxView>> {
    let sources: Vec<&str> = listed.rows.iter().map(|row| row.source.as_str()).collect();
    let events: Vec<Uuid> = listed.rows.iter().map(|row| typed::uuid(row.event_id)).collect();
    let handlers: Vec<&str> = listed.rows.iter().map(|row| row.handler.as_str()).collect();
    let values = params![sources, events, handlers, STEPS_MAX];
    let found = session.rows("inbox", &STEPS, values).await?;
    for step in &found {
        let index = usize::try_from(step.get::<_, i64>(0)).unwrap_or_default().saturating_sub(1);
        if let Some(row) = listed.rows.get_mut(index) {
            row.steps.push(step.get(1));
        }
    }
    Ok(listed)
}
