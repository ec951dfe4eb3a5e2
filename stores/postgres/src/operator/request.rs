//! Requests: what operators ask of the partitions' owners is written down here, and carried out
//! elsewhere, under a lease.
//!
//! Invariant: a request names exactly the rows that were counted, each in its partition, and commits
//! with its row of the audit table, in one statement.

use std::collections::BTreeMap;

use postrider_core::operate::{Note, RequestId, RequestState, Submission, Verb};
use postrider_core::{DestinationId, Error, ErrorKind, Result, Start};
use tokio_postgres::Row;

use super::note;
use super::recount::{self, Correction};
use super::rewind;
use super::value::{invalid, not_found};
use crate::PostgresStore;
use crate::session::Session;
use crate::sessions::Line;
use crate::sql::{Sql, sql};
use crate::typed::{params, signed, unsigned};

const REQUEST: Sql = sql!("operator/request");
const REQUESTS_OPEN: Sql = sql!("operator/requests_open");
const REQUEST_ROWS: Sql = sql!("operator/request_rows");
const REQUEST_PARTS: Sql = sql!("operator/request_parts");
const ENDPOINT: Sql = sql!("operator/endpoint");
const KNOWN: Sql = sql!("operator/known");

/// Open requests that are listed: what the contract says.
const OPEN_MAX: i64 = 1_000;

/// Writes a request down.
pub(super) async fn submit(store: &PostgresStore, submission: &Submission) -> Result<RequestId> {
    let note = note::checked(&submission.note)?;
    let tx = store.sessions().begin("submit").await?;
    let id = match &submission.verb {
        Verb::Redrive(_) | Verb::Discard(_) | Verb::Requeue(_) => {
            submit_rows(&tx, &submission.verb, &note).await?
        }
        Verb::Enable { destination, topic } => {
            let parts = Parts { destination, topic: Some(topic), target: None };
            submit_enable(&tx, &submission.verb, &parts, &note).await?
        }
        Verb::Rewind { destination, to } => {
            submit_rewind(&tx, &submission.verb, destination, *to, &note).await?
        }
        _ => return Err(invalid("submit", "this store does not know the request")),
    };
    tx.commit("submit").await?;
    store.announce().await;
    Ok(id)
}

/// Each row once, written in one statement with what it corrects of the settled log.
async fn submit_rows(session: &Session, verb: &Verb, note: &Note) -> Result<RequestId> {
    let (rows, what) = match verb {
        Verb::Redrive(rows) => (rows, "dead redrive"),
        Verb::Discard(rows) => (rows, "dead discard"),
        Verb::Requeue(rows) => (rows, "outbox requeue"),
        _ => return Err(invalid("submit", "the request has no rows")),
    };
    if rows.is_empty() || rows.len() > Submission::ROWS_MAX {
        let message = format!("a request has 1 to {} rows", Submission::ROWS_MAX);
        return Err(invalid("submit", message).context("rows", rows.len()));
    }
    let mut rows = rows.clone();
    rows.sort();
    rows.dedup();
    let mut counts: BTreeMap<&DestinationId, u64> = BTreeMap::new();
    for row in &rows {
        *counts.entry(&row.destination).or_default() += 1;
    }
    for destination in counts.keys() {
        known(session, destination).await?;
    }
    let corrections = match verb {
        Verb::Requeue(_) => recount::corrections(session, &rows).await?,
        _ => Vec::new(),
    };
    let parts: Vec<String> = counts.iter().map(|(id, count)| format!("{id} {count}")).collect();
    let subject = note::subject(&format!("{} rows ({})", rows.len(), parts.join(", ")));
    let named: Vec<&str> = counts.keys().map(|id| id.as_str()).collect();
    let destinations: Vec<&str> = rows.iter().map(|row| row.destination.as_str()).collect();
    let seqs: Vec<i64> = rows.iter().map(|row| signed(row.seq)).collect();
    let values = params![
        verb.as_str(),
        destinations,
        seqs,
        named,
        note.who,
        note.why,
        what,
        subject,
        Correction::to_json(&corrections)
    ];
    let written = session.optional("submit", &REQUEST_ROWS, values).await?;
    written.map(|row| id(&row)).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "submit")
            .message("a destination was removed meanwhile; nothing was changed")
    })
}

/// What a request for each partition of a destination is about.
struct Parts<'a> {
    destination: &'a DestinationId,
    topic: Option<&'a str>,
    target: Option<i64>,
}

async fn submit_enable(
    session: &Session,
    verb: &Verb,
    parts: &Parts<'_>,
    note: &Note,
) -> Result<RequestId> {
    let (destination, topic) = (parts.destination, parts.topic.unwrap_or_default());
    known(session, destination).await?;
    let values = params![destination.as_str(), topic];
    session.optional("submit", &ENDPOINT, values).await?.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "submit")
            .message("the endpoint is not disabled at this destination; nothing was changed")
            .context("destination", destination)
            .context("endpoint", topic.escape_debug())
    })?;
    let subject = format!("endpoint {topic} of {destination}");
    by_partition(session, verb, parts, note, "destinations enable", &subject).await
}

async fn submit_rewind(
    session: &Session,
    verb: &Verb,
    destination: &DestinationId,
    to: Start,
    note: &Note,
) -> Result<RequestId> {
    known(session, destination).await?;
    let target = rewind::target(session, destination, to).await?;
    let parts = Parts { destination, topic: None, target: Some(signed(target)) };
    let subject = format!("{destination} to before event number {target}");
    by_partition(session, verb, &parts, note, "destinations rewind", &subject).await
}

async fn by_partition(
    session: &Session,
    verb: &Verb,
    parts: &Parts<'_>,
    note: &Note,
    what: &str,
    subject: &str,
) -> Result<RequestId> {
    let values = params![
        verb.as_str(),
        parts.destination.as_str(),
        parts.topic,
        parts.target,
        note.who,
        note.why,
        what,
        note::subject(subject)
    ];
    let written = session.optional("submit", &REQUEST_PARTS, values).await?;
    let written = written.ok_or_else(|| not_found("submit", "destination", parts.destination))?;
    Ok(id(&written))
}

/// Checks that a destination is there.
async fn known(session: &Session, destination: &DestinationId) -> Result<()> {
    let found = session.optional("submit", &KNOWN, params![vec![destination.as_str()]]).await?;
    found.map(drop).ok_or_else(|| not_found("submit", "destination", destination))
}

fn id(row: &Row) -> RequestId {
    RequestId(unsigned(row.get(0)))
}

fn state(row: &Row) -> RequestState {
    RequestState {
        id: id(row),
        verb: row.get(1),
        who: row.get(2),
        why: row.get(3),
        total: unsigned(row.get(4)),
        done: unsigned(row.get(5)),
        skipped: unsigned(row.get(6)),
        finished: row.get(7),
        relay: row.get(8),
    }
}

/// How far a request is.
pub(super) async fn read(store: &PostgresStore, id: RequestId) -> Result<RequestState> {
    let session = store.sessions().line(Line::Read, "request").await?;
    let found = session.optional("request", &REQUEST, params![signed(id.0)]).await?;
    found.map(|row| state(&row)).ok_or_else(|| not_found("request", "request", id))
}

/// Requests that are not finished, oldest first.
pub(super) async fn open(store: &PostgresStore) -> Result<Vec<RequestState>> {
    let session = store.sessions().line(Line::Read, "open requests").await?;
    let rows = session.rows("open requests", &REQUESTS_OPEN, params![OPEN_MAX]).await?;
    Ok(rows.iter().map(state).collect())
}
