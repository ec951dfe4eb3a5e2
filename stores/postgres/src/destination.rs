//! Destinations: rows in the store that all relays share, with their cursors.
//!
//! Invariant: a destination and its cursors come and go in one transaction, so that none is ever read from a
//! place that nobody chose.

use std::collections::BTreeMap;

use postrider_core::operate::Note;
use postrider_core::snapshot::{Snapshot, SnapshotCursor};
use postrider_core::source::{DefinitionChange, Definitions};
use postrider_core::{
    Destination, DestinationId, DestinationRow, DestinationState, Error, ErrorKind, Result, Start,
};
use uuid::Uuid;

use crate::cursor::Columns;
use crate::lease::of_partition;
use crate::operator::note;
use crate::session::Session;
use crate::sessions::{Line, Tx};
use crate::since::first_since;
use crate::sql::{Sql, sql};
use crate::store::PostgresStore;
use crate::tick::life;
use crate::typed::{Moment, params, signed, unsigned};

const LOCK: Sql = sql!("destination/lock");
const KNOWN: Sql = sql!("destination/known");
const INSERT: Sql = sql!("destination/insert");
const CHANGE: Sql = sql!("destination/change");
const HISTORY: Sql = sql!("destination/history");
const NOW: Sql = sql!("destination/now");
const START: Sql = sql!("destination/start");
const LOCK_CURSORS: Sql = sql!("destination/lock_cursors");
const REMOVE: Sql = sql!("destination/remove");
const SWEEP: Sql = sql!("destination/sweep");
const LEFT: Sql = sql!("destination/left");
const BUMP: Sql = sql!("destination/bump");
const LIST: Sql = sql!("destination/list");

/// Rows of a removed destination that are deleted in one transaction: some hundredths of a second.
const SWEEP_ROWS: i64 = 5_000;

/// What is there, read under the lock of the definitions.
struct Known {
    version: u64,
    definitions: BTreeMap<String, String>,
}

/// Writes the definitions into a store that has none, each from the beginning.
pub(crate) async fn register(store: &PostgresStore, definitions: &[Destination]) -> Result<()> {
    if !read(&*store.sessions().line(Line::Lease, "register").await?, "register")
        .await?
        .definitions
        .is_empty()
    {
        return Ok(());
    }
    let tx = begin(store, "register").await?;
    if !read(&tx, "register").await?.definitions.is_empty() {
        return tx.commit("register").await;
    }
    for definition in definitions.iter().filter(|given| !given.is_unrouted()) {
        add(store, &tx, definition, Start::Beginning).await?;
    }
    add(store, &tx, &Destination::unrouted(), Start::Beginning).await?;
    bump(&tx, "register").await?;
    tx.commit("register").await
}

/// Adds, changes, and removes destinations, and returns the version after that.
pub(crate) async fn apply(store: &PostgresStore, change: &DefinitionChange) -> Result<u64> {
    apply_noted(store, change, None).await
}

/// The same with a row of the audit table, if anything changes.
pub(crate) async fn apply_noted(
    store: &PostgresStore,
    change: &DefinitionChange,
    note: Option<&Note>,
) -> Result<u64> {
    if change.remove.iter().any(|id| id.as_str() == Destination::UNROUTED) {
        return Err(Error::new(ErrorKind::Invalid, "apply")
            .message("the destination `unrouted` is built in and cannot be removed"));
    }
    // What an earlier removal has left would be the new one's.
    for (definition, _) in &change.put {
        sweep(store, &definition.id).await?;
    }
    // A new destination begins at a moment, and its first reading at what a tick before it says.
    let line = store.sessions().line(Line::Read, "apply").await?;
    store.tick(&line).await?;
    let tx = begin(store, "apply").await?;
    let known = read(&tx, "apply").await?;
    if let Some(expected) = change.expected.filter(|expected| *expected != known.version) {
        return Err(Error::new(ErrorKind::Conflict, "apply")
            .message("the definitions were changed by somebody else; nothing was written")
            .context("expected", expected)
            .context("version", known.version));
    }
    let mut changed = false;
    if known.definitions.is_empty() {
        add(store, &tx, &Destination::unrouted(), Start::Beginning).await?;
        changed = true;
    }
    for (definition, start) in &change.put {
        changed |= put(store, &tx, &known, definition, *start).await?;
    }
    // Last, because from here on whoever settles waits.
    // In the order in which settlements lock their cursors. Should this process stand still meanwhile, the server ends
    // its session after 5 s (`session/setup.sql`).
    let mut leaving: Vec<&DestinationId> = change.remove.iter().collect();
    leaving.sort_unstable();
    for id in leaving {
        changed |= remove(&tx, id).await?;
    }
    if !changed {
        tx.commit("apply").await?;
        // As after a removal that was cut off.
        sweep_all(store, &change.remove).await?;
        return Ok(known.version);
    }
    let version = bump(&tx, "apply").await?;
    if let Some(note) = note {
        let put = change.put.iter().map(|(definition, _)| definition.id.to_string());
        let removed = change.remove.iter().map(|id| format!("{id} removed"));
        let names: Vec<String> = put.chain(removed).collect();
        let subject = format!("version {version}: {}", names.join(", "));
        note::write(&tx, note, "destinations apply", &subject).await?;
    }
    tx.commit("apply").await?;
    // It is removed; what fails here is done with the next removal, or before one of that name is added.
    if let Err(error) = sweep_all(store, &change.remove).await {
        tracing::warn!(store = store.name(), %error, "rows of a removed destination are left over");
    }
    Ok(version)
}

async fn sweep_all(store: &PostgresStore, removed: &[DestinationId]) -> Result<()> {
    for id in removed {
        sweep(store, id).await?;
    }
    Ok(())
}

/// Whether anything is left of a destination that is not there.
pub(crate) async fn is_left(store: &PostgresStore, id: &DestinationId) -> Result<bool> {
    let line = store.sessions().line(Line::Read, "remove destination").await?;
    Ok(line.row("remove destination", &LEFT, params![id.as_str()]).await?.get(0))
}

/// Deletes what is left of a destination that is not there, in writes of a bounded size.
pub(crate) async fn sweep(store: &PostgresStore, id: &DestinationId) -> Result<()> {
    const OPERATION: &str = "remove destination";
    if !is_left(store, id).await? {
        return Ok(());
    }
    let session = store.sessions().connect(OPERATION).await?;
    loop {
        let values = params![id.as_str(), SWEEP_ROWS];
        if session.row(OPERATION, &SWEEP, values).await?.get::<_, i64>(0) == 0 {
            return Ok(());
        }
    }
}

async fn begin<'a>(store: &'a PostgresStore, operation: &'static str) -> Result<Tx<'a>> {
    let tx = store.sessions().begin(operation).await?;
    tx.execute(operation, &LOCK, params![]).await?;
    Ok(tx)
}

async fn read(session: &Session, operation: &'static str) -> Result<Known> {
    let rows = session.rows(operation, &KNOWN, params![]).await?;
    let version = rows.first().map_or(0, |row| unsigned(row.get(0)));
    let named = |row: &tokio_postgres::Row| Some((row.get::<_, Option<String>>(1)?, row.get(2)));
    Ok(Known { version, definitions: rows.iter().filter_map(named).collect() })
}

/// Adds or changes one, and says whether that changed anything.
async fn put(
    store: &PostgresStore,
    tx: &Session,
    known: &Known,
    definition: &Destination,
    start: Start,
) -> Result<bool> {
    let text = definition.to_definition()?;
    match known.definitions.get(definition.id.as_str()) {
        None => add(store, tx, definition, start).await.map(|()| true),
        Some(known) if *known == text => Ok(false),
        Some(_) => {
            let row = params![definition.id.as_str(), definition.kind, text];
            tx.execute("apply", &CHANGE, row).await.map(|_| true)
        }
    }
}

async fn add(
    store: &PostgresStore,
    tx: &Session,
    definition: &Destination,
    start: Start,
) -> Result<()> {
    const OPERATION: &str = "add destination";
    if tx.row(OPERATION, &LEFT, params![definition.id.as_str()]).await?.get(0) {
        return Err(Error::new(ErrorKind::Busy, OPERATION)
            .message("what is left of a destination of this name is being deleted; try again")
            .context("destination", &definition.id));
    }
    let text = definition.to_definition()?;
    tx.execute(OPERATION, &INSERT, params![definition.id.as_str(), definition.kind, text]).await?;
    // What retention has left below the beginning of the history is no whole: nobody starts there.
    let history = tx.row(OPERATION, &HISTORY, params![]).await?.get(0);
    let first = unsigned(history).saturating_sub(1);
    let (cursor, origin) = match start {
        Start::Beginning if first == 0 => (SnapshotCursor::beginning(), None),
        // Events may have been retired above a number that somebody has drawn and not yet committed: he is
        // found by the number of his transaction.
        Start::Beginning => {
            let (now, floor) = moment(store, tx).await?;
            (SnapshotCursor::at(&now, floor.min(first), 0).rebased(), None)
        }
        Start::Now => {
            let (now, floor) = moment(store, tx).await?;
            (SnapshotCursor::at(&now, floor, 0), Some((now.to_string(), i64::MAX)))
        }
        Start::At(time) => {
            let (now, floor) = moment(store, tx).await?;
            // Asked after the moment: what commits meanwhile was under way at it, or begins later.
            let since = first_since(tx, OPERATION, first + 1, Moment::from(time)).await?;
            let before = since.map(|seq| seq - 1);
            let floor = before.map_or(floor, |before| before.min(floor)).max(first);
            // What was running is found by its number, and what begins later lies above the floor: neither
            // has to wait for its turn in the sequence.
            let cursor = SnapshotCursor::at(&now, floor, 0).rebased();
            (cursor, Some((now.to_string(), signed(floor))))
        }
    };
    let row = Columns::of(&cursor.encode()?)?;
    let (origin, origin_through) = origin.unzip();
    let values = params![
        definition.id.as_str(),
        row.base,
        row.position,
        row.base_xmax,
        row.floor,
        row.pending_xids,
        row.pending_floors,
        row.ground,
        origin,
        origin_through.unwrap_or(i64::MAX)
    ];
    tx.execute(OPERATION, &START, values).await.map(drop)
}

/// The present moment, and the number at or below which nobody will write who is unknown at it: of a tick
/// of the same life of the server, or 0, which costs a longer first reading.
async fn moment(store: &PostgresStore, tx: &Session) -> Result<(Snapshot, u64)> {
    let row = tx.row("add destination", &NOW, params![]).await?;
    let now: Snapshot = row.get::<_, &str>(0).parse()?;
    let seen = row.get::<_, Option<Uuid>>(1).map(life);
    let floor = seen.and_then(|seen| store.remembered().ticks.floor_for(&now, seen));
    Ok((now, floor.unwrap_or_default()))
}

/// Removes one with everything that is its own. What operators asked for it is left undone.
async fn remove(tx: &Session, id: &DestinationId) -> Result<bool> {
    tx.execute("remove destination", &LOCK_CURSORS, params![id.as_str()]).await?;
    let removed = tx.execute("remove destination", &REMOVE, params![id.as_str()]).await?;
    Ok(removed > 0)
}

/// Raises the version of the definitions, so that every relay loads them again. The last thing that a
/// transaction does.
pub(crate) async fn bump(tx: &Session, operation: &'static str) -> Result<u64> {
    Ok(unsigned(tx.row(operation, &BUMP, params![]).await?.get(0)))
}

/// The destinations and the version of their definitions.
pub(crate) async fn list(store: &PostgresStore) -> Result<Definitions> {
    let session = store.sessions().line(Line::Lease, "destinations").await?;
    let mut all = Definitions::default();
    for row in session.rows("destinations", &LIST, params![]).await? {
        let number: i64 = row.get(3);
        match row.get(0) {
            "version" => all.version = unsigned(number),
            "destination" => {
                let (id, definition): (&str, &str) = (row.get(1), row.get(2));
                all.rows.push(DestinationRow {
                    definition: Destination::from_definition(definition)
                        .map_err(|error| error.context("destination", id))?,
                    version: unsigned(number),
                    state: match row.get(4) {
                        "paused" => DestinationState::Paused,
                        _ => DestinationState::Active,
                    },
                });
            }
            "disabled" => {
                let topic: &str = row.get(2);
                all.disabled.push((DestinationId::new(row.get::<_, &str>(1))?, topic.into()));
            }
            _ => all.paused.push(of_partition(i16::try_from(number).unwrap_or_default())),
        }
    }
    Ok(all)
}
