//! Which waiting events are due: the heads whose time has come, each with the run behind it.
//!
//! Invariants: of the events that hold a key only the first by number is handed out as a head; nothing is
//! handed out under a lease that is lost; and a row that cannot be read never stays due.

use std::time::Duration;

use postrider_core::source::DueRequest;
use postrider_core::waiting::{
    Attempted, Counts, Due, Reason, RowRef, Settlement, SettlementPart, WaitingChange, WaitingRow,
    WaitingState,
};
use postrider_core::{DestinationId, Error, ErrorKind, KeyHash, Lease, Result};
use tokio_postgres::Row;

use crate::gather::Reply;
use crate::row::Decoder;
use crate::sessions::Line;
use crate::settle;
use crate::sql::{Sql, sql};
use crate::store::PostgresStore;
use crate::typed::{params, partition, signed, span, unsigned};

const LOOK: Sql = sql!("due/look");
const DUE: Sql = sql!("due/due");
const COUNTS: Sql = sql!("due/counts");

/// The first column of an event in the answer.
const EVENT: usize = 6;

/// So often what cannot be read is put back among the dead, and the question asked again; each time at
/// least one row goes.
const BURIALS_MAX: usize = 8;

/// What is due, and which due rows cannot be read as events.
struct Found {
    due: Due,
    unreadable: Vec<(RowRef, String)>,
}

/// The runs whose heads are due, up to the limits. Most questions find nothing, and all that are asked at
/// one moment find it in one statement.
pub(crate) async fn due(store: &PostgresStore, request: &DueRequest) -> Result<Due> {
    let (asker, place) = (store.clone(), (request.lease.clone(), request.destination.clone()));
    let look = store.inner.looks.ask("due", place, move |group| {
        let store = asker.clone();
        async move { look(&store, &group).await.into_iter().map(Reply::Is).collect() }
    });
    match look.await? {
        // Something is, or its time has come while we asked.
        Some(next_in) if next_in.is_zero() => {}
        next_in => return Ok(Due { rows: Vec::new(), next_in }),
    }
    let mut found = ask(store, request).await?;
    for _ in 0..BURIALS_MAX {
        if found.unreadable.is_empty() {
            break;
        }
        bury(store, request, &found.unreadable).await?;
        found = ask(store, request).await?;
    }
    Ok(found.due)
}

/// When the next is due at each place; zero where something is due already.
async fn look(
    store: &PostgresStore,
    group: &[(Lease, DestinationId)],
) -> Vec<Result<Option<Duration>>> {
    let leases = || group.iter().map(|(lease, _)| lease);
    let found = async {
        let session = store.sessions().line(Line::Read, "due").await?;
        let partitions: Vec<i16> = leases().map(|lease| partition(lease.partition)).collect();
        let owners: Vec<&str> = leases().map(|lease| lease.owner.as_str()).collect();
        let tokens: Vec<i64> = leases().map(|lease| signed(lease.token)).collect();
        let destinations: Vec<&str> = group.iter().map(|(_, id)| id.as_str()).collect();
        session.rows("due", &LOOK, params![partitions, owners, tokens, destinations]).await
    };
    match found.await {
        Err(error) => group.iter().map(|_| Err(error.repeated())).collect(),
        Ok(rows) => {
            let answer = |(row, lease): (&Row, &Lease)| match row.get(1) {
                true => Ok(row.get::<_, Option<i64>>(2).map(span)),
                false => Err(lost(lease)),
            };
            rows.iter().zip(leases()).map(answer).collect()
        }
    }
}

fn lost(lease: &Lease) -> Error {
    Error::new(ErrorKind::Fenced, "due")
        .message("the lease was taken over; nothing is handed out")
        .context("partition", lease.partition)
        .context("token", lease.token)
}

async fn ask(store: &PostgresStore, request: &DueRequest) -> Result<Found> {
    let session = store.sessions().line(Line::Read, "due").await?;
    let lease = &request.lease;
    let except: Vec<i64> = request.except.iter().map(|key| key.0.cast_signed()).collect();
    let rows = session
        .rows(
            "due",
            &DUE,
            params![
                partition(lease.partition),
                lease.owner.as_str(),
                signed(lease.token),
                request.destination.as_str(),
                except,
                i32::try_from(request.rows_max.max(1)).unwrap_or(i32::MAX),
                signed(request.bytes_max)
            ],
        )
        .await?;
    let mut answer = Found { due: Due::default(), unreadable: Vec::new() };
    if let Some(row) = rows.first() {
        if !row.get::<_, bool>(0) {
            return Err(lost(lease));
        }
        answer.due.next_in = row.get::<_, Option<i64>>(1).map(span);
    }
    let mut decoder = Decoder::new(&store.default_source(&session).await?, EVENT);
    let is_event = |row: &&Row| row.get::<_, Option<i64>>(EVENT).is_some();
    let mut bytes = 0;
    for row in rows.iter().filter(is_event) {
        let decoded = decoder.decode(row);
        let event = match decoded.event {
            Ok(event) => event,
            Err(malformed) => {
                answer.unreadable.push((decoded.row, malformed.detail));
                continue;
            }
        };
        let key_hash: i64 = row.get(5);
        let taken = !answer.due.rows.is_empty();
        if taken && decoded.bytes.saturating_add(bytes) > request.bytes_max {
            break;
        }
        bytes = bytes.saturating_add(decoded.bytes);
        answer.due.rows.push(WaitingRow {
            row: decoded.row,
            key_hash: KeyHash(key_hash.cast_unsigned()),
            event,
            attempts: u32::try_from(row.get::<_, i32>(2)).unwrap_or_default(),
            late: row.get(3),
            suspect: row.get::<_, &str>(4) == Reason::Suspect.as_str(),
            held: row.get::<_, &str>(4) == Reason::Held.as_str(),
        });
    }
    Ok(answer)
}

/// Puts back among the dead what came due and cannot be read: redriving it cannot help, and it would be
/// due for ever.
async fn bury(
    store: &PostgresStore,
    request: &DueRequest,
    rows: &[(RowRef, String)],
) -> Result<()> {
    let mut part = SettlementPart::new(request.destination.clone());
    part.changes = rows
        .iter()
        .map(|(row, detail)| {
            let attempted =
                Attempted { attempts: 0, reason: Reason::Malformed, detail: detail.clone() };
            WaitingChange::Dead { row: *row, attempted, holds_key: true }
        })
        .collect();
    settle::settle(store, &Settlement { lease: request.lease.clone(), parts: vec![part] }).await
}

/// How many events of a destination wait.
pub(crate) async fn counts(store: &PostgresStore, destination: &DestinationId) -> Result<Counts> {
    let session = store.sessions().line(Line::Read, "counts").await?;
    let mut counts = Counts::default();
    for row in session.rows("counts", &COUNTS, params![destination.as_str()]).await? {
        let count = unsigned(row.get(1));
        match row.get::<_, &str>(0).parse::<WaitingState>()? {
            WaitingState::Retrying => counts.retrying = count,
            WaitingState::Parked => counts.parked = count,
            WaitingState::Held => counts.held = count,
            WaitingState::Disabled => counts.disabled = count,
            WaitingState::Dead => counts.dead = count,
            WaitingState::Discarded => {}
        }
    }
    Ok(counts)
}
