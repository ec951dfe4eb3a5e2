//! Requests: what operators ask of the partitions' owners is written down here, and carried out elsewhere,
//! under a lease.
//!
//! Invariant: a request names exactly the rows that were counted, each in its partition, and begins to exist
//! in one transaction with its entry of the audit log.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::{TransactWriteItem, Update};
use futures_util::{StreamExt as _, stream};
use postrider_core::operate::{RequestId, RequestState, RowKey, Submission, Verb};
use postrider_core::source::Definitions;
use postrider_core::{DestinationId, Error, ErrorKind, PartitionId, Result};

use super::refusal;
use crate::audit::{Change, draw_now, numbered};
use crate::connection::call;
use crate::control::{ASKED, CONTROL, SK, VERSION, key};
use crate::definitions;
use crate::item::{n, s, text};
use crate::reading::partition_of_number;
use crate::record::Place;
use crate::request::{
    Asked, OPEN, PART_BYTES_MAX, PART_ROWS_MAX, Part, REQUESTS, Request, SEQUENCE,
};
use crate::store::DynamoStore;
use crate::tables::built;
use crate::transaction::{Cancelled, Patience, put, send};

/// Parts that are written at once.
const PARTS_AT_ONCE: usize = 16;

/// Open requests that are listed: what the contract says.
const OPEN_MAX: usize = 1_000;

/// Writes a request down.
pub(super) async fn submit(store: &DynamoStore, submission: &Submission) -> Result<RequestId> {
    let known = definitions::read(store.connection()).await?;
    let partitions = store.facts().await?.partitions;
    let (parts, what, subject) = match &submission.verb {
        Verb::Redrive(rows) => {
            let rows = counted(rows, &known)?;
            let subject = said(&rows);
            (by_rows(&rows, partitions, Asked::Redrive), "dead redrive", subject)
        }
        Verb::Discard(rows) => {
            let rows = counted(rows, &known)?;
            let subject = said(&rows);
            (by_rows(&rows, partitions, Asked::Discard), "dead discard", subject)
        }
        Verb::Requeue(rows) => {
            let rows = counted(rows, &known)?;
            let subject = said(&rows);
            (by_places(store, &rows, partitions)?, "outbox requeue", subject)
        }
        Verb::Enable { destination, topic } => {
            check_disabled(&known, destination, topic)?;
            let asked = Asked::Enable(topic.clone());
            let part = |one| (PartitionId(one), (destination.clone(), asked.clone()));
            let parts = (0..partitions).map(part).collect();
            (parts, "destinations enable", format!("endpoint {topic} of {destination}"))
        }
        Verb::Rewind { .. } => return Err(invalid(refusal::REWIND)),
        _ => return Err(invalid("this store does not know the request; nothing was changed")),
    };
    write(store, submission, parts, what, &subject).await
}

type Parts = Vec<(PartitionId, (DestinationId, Asked))>;

/// The rows, each once.
fn counted(rows: &[RowKey], known: &Definitions) -> Result<Vec<RowKey>> {
    if rows.is_empty() || rows.len() > Submission::ROWS_MAX {
        let message = format!("a request has 1 to {} rows", Submission::ROWS_MAX);
        return Err(invalid(message).context("rows", rows.len()));
    }
    let mut rows = rows.to_vec();
    rows.sort();
    rows.dedup();
    for row in &rows {
        if !known.rows.iter().any(|known| known.definition.id == row.destination) {
            return Err(Error::new(ErrorKind::NotFound, "submit")
                .message("there is no such destination; nothing was changed")
                .context("destination", &row.destination));
        }
    }
    Ok(rows)
}

fn by_rows(rows: &[RowKey], partitions: u16, asked: impl Fn(Vec<u64>) -> Asked) -> Parts {
    let mut groups: BTreeMap<(PartitionId, &DestinationId), Vec<u64>> = BTreeMap::new();
    for row in rows {
        // A number of no partition is none of a row: whoever looks for it skips it.
        let partition = partition_of_number(row.seq).filter(|one| one.0 < partitions);
        let group = (partition.unwrap_or(PartitionId(0)), &row.destination);
        groups.entry(group).or_default().push(row.seq);
    }
    let cut = groups.iter().flat_map(|((partition, id), seqs)| {
        seqs.chunks(PART_ROWS_MAX).map(|rows| (*partition, ((*id).clone(), asked(rows.to_vec()))))
    });
    cut.collect()
}

/// Of what is settled only the place is known, and only to the handle that showed it.
fn by_places(store: &DynamoStore, rows: &[RowKey], partitions: u16) -> Result<Parts> {
    let mut groups: BTreeMap<(PartitionId, &DestinationId), Vec<Place>> = BTreeMap::new();
    for row in rows {
        let known = partition_of_number(row.seq).filter(|one| one.0 < partitions);
        let known = known.and_then(|one| Some((one, store.listed().place(row.seq)?)));
        let (partition, place) = known.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "submit")
                .message(
                    "this program has not listed the event, and a settled event of DynamoDB has no number of \
                     its own; nothing was changed: list it first, with the same program",
                )
                .context("seq", row.seq)
        })?;
        if !place.is_event() {
            return Err(invalid(refusal::DERIVED).context("seq", row.seq));
        }
        groups.entry((partition, &row.destination)).or_default().push(place);
    }
    let mut parts = Vec::new();
    for ((partition, id), places) in groups {
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        for place in places {
            let more = place.pk.len() + place.sk.len();
            if !chunk.is_empty() && (bytes + more > PART_BYTES_MAX || chunk.len() == PART_ROWS_MAX)
            {
                parts.push((partition, (id.clone(), Asked::Requeue(std::mem::take(&mut chunk)))));
                bytes = 0;
            }
            bytes += more;
            chunk.push(place);
        }
        parts.push((partition, (id.clone(), Asked::Requeue(chunk))));
    }
    Ok(parts)
}

fn check_disabled(known: &Definitions, id: &DestinationId, topic: &str) -> Result<()> {
    if known.disabled.iter().any(|(of, name)| of == id && **name == *topic) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::NotFound, "submit")
        .message("the endpoint is not disabled at this destination; nothing was changed")
        .context("destination", id)
        .context("endpoint", topic.escape_debug()))
}

/// What is asked, in a line of the audit log.
fn said(rows: &[RowKey]) -> String {
    let mut counts: BTreeMap<&DestinationId, u64> = BTreeMap::new();
    for row in rows {
        *counts.entry(&row.destination).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(id, count)| format!("{id} {count}")).collect();
    format!("{} rows ({})", rows.len(), counts.join(", "))
}

/// Writes the parts, and then the request, which makes them count.
async fn write(
    store: &DynamoStore,
    submission: &Submission,
    asked: Parts,
    what: &'static str,
    subject: &str,
) -> Result<RequestId> {
    let connection = store.connection();
    let id = RequestId(draw_now(connection, "submit", SEQUENCE).await?);
    let parts = asked.into_iter().enumerate();
    let parts: Vec<(PartitionId, Part)> = parts
        .map(|(chunk, (partition, (of, asked)))| (partition, Part::new(id, chunk, &of, asked)))
        .collect();
    let state = RequestState {
        id,
        verb: submission.verb.as_str().to_owned(),
        who: submission.note.who.clone(),
        why: submission.note.why.clone(),
        total: parts.iter().map(|(_, part)| part.len() as u64).sum(),
        done: 0,
        skipped: 0,
        finished: false,
        relay: None,
    };
    let request = Request { state, left: parts.len() as u64, begun: false };
    let writes = parts.iter().map(|(partition, part)| put_part(store, *partition, part));
    let mut writes = stream::iter(writes.collect::<Vec<_>>()).buffer_unordered(PARTS_AT_ONCE);
    while let Some(written) = writes.next().await {
        written?;
    }
    let subject = format!("request {id}: {subject}");
    let mut patience = Patience::new();
    loop {
        let table = &connection.names().store;
        let mut actions = vec![
            TransactWriteItem::builder().put(built(put(table, request.item()).build())?).build(),
            TransactWriteItem::builder()
                .put(built(put(table, key(OPEN, &numbered(id.0))).build())?)
                .build(),
            told(table)?,
        ];
        let change = Change { note: &submission.note, what, subject: &subject };
        actions.extend(change.actions(connection, "submit").await?);
        match send(connection, "submit", table, actions).await {
            Ok(()) => return Ok(id),
            Err(error) if Cancelled::of(&error).is_some() => patience.pause(error).await?,
            Err(error) => return Err(error),
        }
    }
}

/// Tells the owners that something is asked: they read this item, and no other, while nothing is.
fn told(table: &str) -> Result<TransactWriteItem> {
    let update = Update::builder()
        .table_name(table)
        .set_key(Some(key(CONTROL, VERSION)))
        .update_expression("ADD #asked :one")
        .expression_attribute_names("#asked", ASKED)
        .expression_attribute_values(":one", n(1));
    Ok(TransactWriteItem::builder().update(built(update.build())?).build())
}

async fn put_part(store: &DynamoStore, partition: PartitionId, part: &Part) -> Result<()> {
    let table = &store.connection().names().store;
    let client = store.connection().tables().await;
    let put = client.put_item().table_name(table).set_item(Some(part.item(partition)));
    call("submit", table, put.send()).await.map(drop)
}

/// A request as it stands, if it is there.
pub(crate) async fn find(
    store: &DynamoStore,
    operation: &'static str,
    id: RequestId,
) -> Result<Option<Request>> {
    let table = &store.connection().names().store;
    let client = store.connection().tables().await;
    let get = client
        .get_item()
        .table_name(table)
        .set_key(Some(key(REQUESTS, &numbered(id.0))))
        .consistent_read(true);
    let item = call(operation, table, get.send()).await?.item;
    Ok(item.as_ref().and_then(Request::of))
}

/// How far a request is.
pub(super) async fn read(store: &DynamoStore, id: RequestId) -> Result<RequestState> {
    let found = find(store, "request", id).await?.map(|request| request.state);
    found.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "request")
            .message("there is no such request; finished ones are kept for 30 days")
            .context("request", id)
    })
}

/// Requests that are not finished, oldest first.
pub(super) async fn open(store: &DynamoStore) -> Result<Vec<RequestState>> {
    let mut states = Vec::new();
    for id in open_ids(store, "open requests").await? {
        // One that was finished meanwhile is open no more.
        let found = find(store, "open requests", id).await?;
        states.extend(found.map(|request| request.state).filter(|state| !state.finished));
    }
    Ok(states)
}

/// The numbers of what is open, oldest first, as many as are listed.
pub(super) async fn open_ids(
    store: &DynamoStore,
    operation: &'static str,
) -> Result<Vec<RequestId>> {
    let table = &store.connection().names().store;
    let client = store.connection().tables().await;
    let query = client
        .query()
        .table_name(table)
        .key_condition_expression("pk = :pk")
        .expression_attribute_values(":pk", s(OPEN))
        .consistent_read(true)
        .limit(i32::try_from(OPEN_MAX).unwrap_or(i32::MAX));
    let page = call(operation, table, query.send()).await?;
    let items = page.items.unwrap_or_default();
    Ok(items.iter().filter_map(|item| text(item, SK)?.parse().ok()).map(RequestId).collect())
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, "submit").message(message)
}
