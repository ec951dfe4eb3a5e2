//! Whether the sequence was set back while nobody looked.
//!
//! A fetch compares the sequence with its cursor and refuses one that lies behind. If it was carried past the
//! cursor again before the first fetch, that says nothing. Then the rows do: events at or below the floor of
//! a cursor by transactions that its base did not know. So whoever reads a partition under a new lease looks
//! for them first: once, for all destinations and all partitions that it begins with, since a look reads what no
//! range of the index sums up yet. Invariant (INV-1): no event is passed unread because its number
//! was given a second time.

use std::collections::BTreeMap;

use postrider_core::snapshot::SnapshotCursor;
use postrider_core::source::FetchRequest;
use postrider_core::{DestinationId, Error, ErrorKind, Result};

use crate::sql::{Sql, sql};
use crate::store::PostgresStore;
use crate::typed::{params, partition, signed};

const CURSORS: Sql = sql!("fetch/cursors");
const GONE_BACK: Sql = sql!("fetch/gone_back");
const STATEMENT_TIMEOUT: Sql = sql!("operator/statement_timeout");

/// How long the look may take, in milliseconds. Default 5 s: many times what it needs where the index has its
/// ranges, and a lease's third. What cannot be found out by then is not waited for.
const LOOK_MAX: &str = "5000";

/// What was found in a partition.
#[derive(Clone, Copy, Debug)]
struct Found {
    events: i64,
    first: i64,
}

/// An error for each question whose partition has such events, or whose partition could not be looked through: a
/// cursor that moved on hides them. One that takes longer than [`LOOK_MAX`] refuses nothing.
pub(crate) async fn look(store: &PostgresStore, group: &[FetchRequest]) -> Vec<Option<Error>> {
    let is_new = |request: &FetchRequest| store.remembered().is_to_be_looked_at(request);
    let none = || group.iter().map(|_| None).collect();
    if !group.iter().any(is_new) {
        return none();
    }
    // Those who ask for other destinations at the same moment find that theirs were looked at.
    let _one_at_a_time = store.inner.backward_looks.lock().await;
    let new: Vec<bool> = group.iter().map(is_new).collect();
    let asked: Vec<&FetchRequest> =
        group.iter().zip(&new).filter(|(_, new)| **new).map(|(request, _)| request).collect();
    if asked.is_empty() {
        return none();
    }
    let (places, found) = match read(store, &asked).await {
        Ok(read) => read,
        Err(error) if error.kind() == ErrorKind::Timeout => (Places::new(), BTreeMap::new()),
        Err(error) => {
            return new.iter().map(|new| new.then(|| error.repeated())).collect();
        }
    };
    let mut answers = Vec::with_capacity(group.len());
    for (request, new) in group.iter().zip(new) {
        let place = partition(request.lease.partition);
        let found = found.get(&place).filter(|_| new);
        if new && found.is_none() {
            let others = places.get(&place).into_iter().flatten();
            store.remembered().was_looked_at(request, others);
        }
        answers.push(found.map(|found| refused(request, *found)));
    }
    answers
}

/// The destinations whose cursors were looked at, by partition.
type Places = BTreeMap<i16, Vec<DestinationId>>;

/// Looks, for the cursors of these questions and all others of their partitions.
async fn read(
    store: &PostgresStore,
    asked: &[&FetchRequest],
) -> Result<(Places, BTreeMap<i16, Found>)> {
    let (mut partitions, mut xmaxs, mut floors) = (Vec::new(), Vec::new(), Vec::new());
    for request in asked {
        // One that cannot be read is refused by the fetch.
        let Ok(cursor) = SnapshotCursor::decode(&request.after) else { continue };
        partitions.push(partition(request.lease.partition));
        xmaxs.push(signed(cursor.xmax()));
        floors.push(signed(cursor.floor()));
    }
    let tx = store.sessions().begin("fetch").await?;
    tx.row("fetch", &STATEMENT_TIMEOUT, params![LOOK_MAX]).await?;
    let mut places = Places::new();
    for row in &tx.rows("fetch", &CURSORS, params![partitions.clone()]).await? {
        let (place, destination): (i16, &str) = (row.get(0), row.get(1));
        // One with a name that is none cannot be asked for.
        let Ok(destination) = DestinationId::new(destination) else { continue };
        places.entry(place).or_default().push(destination);
        partitions.push(place);
        xmaxs.push(row.get(2));
        floors.push(row.get(3));
    }
    let rows = tx.rows("fetch", &GONE_BACK, params![partitions, xmaxs, floors]).await?;
    let mut found: BTreeMap<i16, Found> = BTreeMap::new();
    for row in &rows {
        let (place, events, first): (i16, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let here = found.entry(place).or_insert(Found { events: 0, first });
        here.events = here.events.saturating_add(events);
        here.first = here.first.min(first);
    }
    tx.end("fetch").await;
    Ok((places, found))
}

fn refused(request: &FetchRequest, found: Found) -> Error {
    Error::new(ErrorKind::Rewound, "fetch")
        .message(
            "the sequence was set back, and gave events numbers that the cursor had passed; nothing is \
             lost: stop the relays and run `postrider repair sequence`, which gives these events new \
             numbers",
        )
        .context("partition", request.lease.partition)
        .context("events", found.events)
        .context("first", found.first)
}
