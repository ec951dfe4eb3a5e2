//! One event, with everything that is known of it.

use bytes::Bytes;
use postrider_core::operate::{EventDetail, Status};
use postrider_core::{Event, EventId, KeyHash, Payload, Result};
use tokio_postgres::Row;

use super::delivery::{Deliveries, Subject};
use super::find::{self, Place};
use super::value::{not_found, number, partition, shown, small, text, time};
use super::waiting;
use crate::row::{Decoder, EVENT_COLUMNS};
use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::{params, signed, uuid};
use crate::{PostgresStore, schema};

const EVENT: Sql = sql!("operator/event");
const EVENT_SCHEDULED: Sql = sql!("operator/event_scheduled");
const EVENT_WAITING: Sql = sql!("operator/event_waiting");
const WAITING_BEHIND: Sql = sql!("operator/waiting_behind");

/// Events ahead of one in its key that are shown with it: who holds it up is the first of them.
const BEHIND_MAX: i64 = 10;

/// One event: from the schedule, else the outbox, else its copy in `waiting`.
pub(super) async fn detail(store: &PostgresStore, id: EventId) -> Result<EventDetail> {
    let tx = store.sessions().begin_reading("event").await?;
    let found = known(&tx, id).await;
    tx.end("event").await;
    found
}

async fn known(session: &Session, id: EventId) -> Result<EventDetail> {
    let meta = schema::meta(session).await?;
    let source = meta.get("source").map(String::as_str).unwrap_or_default();
    let mut decoder = Decoder::new(source, 0);
    let named = params![uuid(id)];
    if let Some(row) = session.optional("event", &EVENT_SCHEDULED, named).await? {
        let event = whole(&mut decoder, &row);
        let deliveries = Deliveries::read(session).await?.scheduled(&event);
        let due = time(&row, EVENT_COLUMNS + 1);
        return Ok(EventDetail { seq: None, event, due, deliveries, behind: Vec::new() });
    }
    let Place { partition, seq } =
        find::place(session, id).await?.ok_or_else(|| not_found("event", "event", id))?;
    if let Some(row) = session.optional("event", &EVENT, params![partition, seq]).await? {
        return in_outbox(session, &row, whole(&mut decoder, &row)).await;
    }
    match session.optional("event", &EVENT_WAITING, named).await? {
        Some(row) => in_outbox(session, &row, whole(&mut decoder, &row)).await,
        None => Err(not_found("event", "event", id)),
    }
}

/// An event with what became of it. Behind its own columns a row has its partition, and the number of
/// its transaction unless it is a copy.
async fn in_outbox(session: &Session, row: &Row, event: Event) -> Result<EventDetail> {
    let deliveries = Deliveries::read(session).await?;
    let seq = super::value::count(row, 0);
    let partition = partition(row, EVENT_COLUMNS);
    let key = event.key();
    let subject = Subject {
        seq,
        xid: number(row, EVENT_COLUMNS + 1),
        partition,
        key: &key,
        event_type: &event.event_type,
        aggregate_type: &event.aggregate_type,
        tenant: event.tenant.as_deref(),
        erased: event.payload == Payload::Erased,
    };
    let views = deliveries.of(session, &[subject]).await?.pop().unwrap_or_default();
    let mut behind = Vec::new();
    for destination in deliveries.ids() {
        let held = views.iter().any(|view| {
            view.destination == *destination
                && matches!(view.status, Status::Parked | Status::Pending)
        });
        if held {
            let hash = KeyHash::of(&key).0.cast_signed();
            let (name, key) = (destination.as_str(), &*key);
            let place = params![name, partition, hash, key, signed(seq), BEHIND_MAX];
            let rows = session.rows("event", &WAITING_BEHIND, place).await?;
            behind.extend(rows.iter().map(waiting::view));
        }
    }
    Ok(EventDetail { seq: Some(seq), event, due: None, deliveries: views, behind })
}

/// A row as an event, or as much of one as can be read: people must be able to look at what a relay
/// cannot deliver.
fn whole(decoder: &mut Decoder, row: &Row) -> Event {
    let decoded = decoder.decode(row);
    if let Ok(event) = decoded.event {
        return std::sync::Arc::unwrap_or_clone(event);
    }
    let mut event = Event::new(decoded.row.id, &shown(row, 3), &shown(row, 4), &shown(row, 6));
    event.source = shown(row, 2).into();
    event.key = text(row, 5).map(Into::into);
    event.event_version = small(row, 7);
    event.payload = match (text(row, 8), time(row, 17)) {
        (_, Some(_)) => Payload::Erased,
        (Some(json), None) => Payload::Json(json.into_bytes().into()),
        (None, None) => Payload::Bytes(bytes_of(row)),
    };
    event.content_type = shown(row, 10).into();
    event.encoding = text(row, 11).map(Into::into);
    event.headers = crate::row::headers_of(row, 12).unwrap_or_default();
    event.tenant = text(row, 13).map(Into::into);
    event.occurred_at = time(row, 15).unwrap_or_default();
    event.created_at = time(row, 16).unwrap_or_default();
    event
}

fn bytes_of(row: &Row) -> Bytes {
    row.try_get::<_, Option<Vec<u8>>>(9).ok().flatten().map(Bytes::from).unwrap_or_default()
}
