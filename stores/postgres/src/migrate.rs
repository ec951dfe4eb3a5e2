//! Migrations: numbered, reversible, and applied once.
//!
//! Invariants: a migration is applied in a transaction of its own, together with the record of it, whoever
//! and however many initialise the database at once; one that is interrupted has done nothing. It waits
//! for no lock longer than [`patience.sql`](../sql/init/patience.sql) says, and tries again instead, so
//! producers never queue behind it for long.

mod print;

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::{Error, ErrorKind, Result};

use crate::Names;
use crate::connect::Address;
use crate::error::told;
use crate::pooler::Pooler;
use crate::schema;
use crate::sessions::{Sessions, Tx};
use crate::setup::{Layout, Setup};
use crate::sql::{Sql, Texts, sql};
use crate::typed::params;

pub(crate) use self::print::{print, print_revert};

const LOCK: Sql = sql!("init/lock");
const PATIENCE: Sql = sql!("init/patience");
const RECORD: Sql = sql!("init/record");
const FORGET: Sql = sql!("init/forget");
const USED: Sql = sql!("init/used");
const HOLD_PRODUCERS: Sql = sql!("init/hold_producers");
const META_WRITE: Sql = sql!("meta/write");

/// How long a migrator goes on trying where locks are in its way.
const TRIES_FOR: Duration = Duration::from_secs(60);

/// The part that is left out where the outbox is one table.
const DROP_SCHEMA: &str = include_str!("../sql/init/drop_schema.sql");
const PARTITIONED: &str = include_str!("../sql/schema/001/25_partitions.sql");

/// One step between two versions of the tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Migration {
    name: &'static str,
    /// The oldest program that goes on working with the tables after it, by the version that it knows. Where that is not
    /// the migration's own number, nothing that older programs call, read, or write has changed its name, its
    /// columns, or its meaning, so that relays of both versions run side by side (F41). Where it is, older relays let go
    /// within a heartbeat, and are refused from then on.
    serves: u32,
    /// What it does, in parts.
    up: &'static [&'static str],
    /// What takes it back.
    down: &'static str,
}

/// The migrations, in order; the version of the tables is how many were applied. Whatever follows takes the list that it
/// goes by, so that the way from one version to the next is tested with this code before there is a second one.
pub(crate) const MIGRATIONS: &[Migration] = &[Migration {
    name: "outbox, relay, and inbox",
    serves: 1,
    up: &[
        include_str!("../sql/schema/001/10_keys.sql"),
        include_str!("../sql/schema/001/15_rules.sql"),
        include_str!("../sql/schema/001/20_outbox.sql"),
        include_str!("../sql/schema/001/30_relay.sql"),
        include_str!("../sql/schema/001/35_own.sql"),
        include_str!("../sql/schema/001/40_inbox.sql"),
        include_str!("../sql/schema/001/50_enqueue.sql"),
        include_str!("../sql/schema/001/50_lease.sql"),
        include_str!("../sql/schema/001/51_waiting.sql"),
        include_str!("../sql/schema/001/52_settle.sql"),
        include_str!("../sql/schema/001/53_schedule.sql"),
        include_str!("../sql/schema/001/54_requests.sql"),
        include_str!("../sql/schema/001/55_inbox.sql"),
        include_str!("../sql/schema/001/55_operator.sql"),
        include_str!("../sql/schema/001/56_retire.sql"),
        include_str!("../sql/schema/001/57_late.sql"),
        include_str!("../sql/schema/001/58_split.sql"),
        include_str!("../sql/schema/001/59_summarize.sql"),
        include_str!("../sql/schema/001/60_status.sql"),
        include_str!("../sql/schema/001/90_rows.sql"),
        include_str!("../sql/schema/001/95_grants.sql"),
        PARTITIONED,
    ],
    down: include_str!("../sql/schema/001/down.sql"),
}];

/// The version of the tables that this program knows.
pub(crate) const VERSION: u32 = last(MIGRATIONS);

/// The oldest version of the tables that this program works with, so that relays may be replaced before `init` is run as well
/// as after it. It grows when a statement comes to rest on what a later migration made.
pub(crate) const NEEDS: u32 = 1;

/// A migration and whether it was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationState {
    /// Its number: the version of the tables after it.
    pub version: u32,
    /// What it made. Empty for one that this program does not know.
    pub name: &'static str,
    /// Whether the tables have it.
    pub applied: bool,
    /// When it was applied, on the database's clock.
    pub applied_at: Option<String>,
}

/// The tables of a database, without changing anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrations {
    /// Every migration, applied or known, in order.
    pub states: Vec<MigrationState>,
    /// What was fixed when the tables were made, if there are any.
    pub setup: Option<Setup>,
}

impl Migrations {
    /// The version of the tables; 0 if there are none.
    pub fn version(&self) -> u32 {
        self.states
            .iter()
            .filter(|state| state.applied)
            .map(|state| state.version)
            .max()
            .unwrap_or(0)
    }
}

/// Creates the tables in a database, or brings them to this program's version. Doing it again changes
/// nothing, and two at once do it once.
///
/// # Errors
/// `SchemaTooNew` if a newer program made the tables, and they do not serve this one; `Conflict` if the schema has tables of
/// these names that are not Postrider's, if the tables were made with another number of partitions or another layout
/// than asked for, or if events were enqueued under another source; `Busy` if others held locks for a
/// minute; `Config`, `Invalid`, `Unavailable`, `Unauthorized`, `ReadOnly`, `DiskFull`.
pub async fn init(url: &str, setup: &Setup) -> Result<()> {
    init_within(url, setup, TRIES_FOR).await
}

/// The same, with another patience than a minute where others hold locks.
///
/// # Errors
/// As [`init`].
pub async fn init_within(url: &str, setup: &Setup, patience: Duration) -> Result<()> {
    init_by(MIGRATIONS, url, setup, patience).await
}

async fn init_by(list: &[Migration], url: &str, setup: &Setup, patience: Duration) -> Result<()> {
    setup.check()?;
    let sessions = sessions(url, &setup.names)?;
    let until = Instant::now() + patience;
    while step(list, &sessions, setup, until).await? < last(list) {}
    agree(&sessions, setup, until).await
}

/// The version of the tables once a list is applied.
const fn last(list: &[Migration]) -> u32 {
    list.len() as u32
}

/// The oldest program that tables serve which have so many of the list's migrations.
fn serves(list: &[Migration], version: usize) -> u32 {
    list[..version].iter().map(|migration| migration.serves).max().unwrap_or(0)
}

/// Applies the next migration, if there is one, and returns the version before it.
async fn step(
    list: &[Migration],
    sessions: &Sessions,
    setup: &Setup,
    until: Instant,
) -> Result<u32> {
    loop {
        let tx = locked(sessions).await?;
        let version = schema::found(&tx).await?.used_by(last(list))?;
        if version >= last(list) {
            tx.commit("init").await?;
            return Ok(version);
        }
        let setup = match version {
            0 => setup.clone(),
            _ => schema::setup(&tx).await?,
        };
        match apply(tx, &setup, list, version).await {
            Ok(()) => return Ok(version),
            Err(busy) if busy.kind() == ErrorKind::Busy && Instant::now() < until => pause().await,
            Err(error) => return Err(error),
        }
    }
}

async fn apply(tx: Tx<'_>, setup: &Setup, list: &[Migration], version: u32) -> Result<()> {
    let text = setup.render(&text_of(&list[version as usize], setup));
    tx.batch("init", &text).await.map_err(of_event_triggers)?;
    let number = version + 1;
    let serves = serves(list, number as usize);
    tx.execute("init", &RECORD, params![i64::from(number), i64::from(serves)]).await?;
    if let (0, Some(source)) = (version, &setup.source) {
        tx.execute("init", &META_WRITE, params!["source", source]).await?;
    }
    tx.commit("init").await
}

/// What a migration names is there, or made by it. A name that is not is somebody else's, and `init` makes it no better.
fn of_event_triggers(error: Error) -> Error {
    if error.kind() != ErrorKind::SchemaMissing {
        return error;
    }
    let told = told(&error).map_or_else(|| error.to_string(), |told| told.message().to_owned());
    Error::new(ErrorKind::Config, "init").message(format!(
        "{told}: an event trigger of the database looks for something where this session does not, since its search_path is \
         pg_catalog. Nothing was made. Run: alter function … set search_path = …, for the trigger's function"
    ))
}

fn text_of(migration: &Migration, setup: &Setup) -> String {
    let partitioned = setup.layout.unwrap_or_default() == Layout::Partitioned;
    let has = |part: &&&str| partitioned || **part != PARTITIONED;
    migration.up.iter().filter(has).copied().collect::<Vec<_>>().join("\n")
}

/// A transaction that no other migrator has at the same time, and that waits for nobody long.
async fn locked(sessions: &Sessions) -> Result<Tx<'_>> {
    let tx = sessions.begin("init").await?;
    let schema = tx.texts().names().schema().to_owned();
    tx.rows("init", &LOCK, params![schema]).await?;
    tx.execute("init", &PATIENCE, params![]).await?;
    Ok(tx)
}

async fn pause() {
    // waits: another transaction holds a lock, and the server does not say when it ends.
    tokio::time::sleep(Duration::from_millis(500)).await;
}

/// Checks that the tables are as asked for, and changes the source if it may be.
async fn agree(sessions: &Sessions, setup: &Setup, until: Instant) -> Result<()> {
    loop {
        let tx = locked(sessions).await?;
        let known = schema::setup(&tx).await?;
        same("partitions", setup.partitions, known.partitions)?;
        let layout = |setup: &Setup| setup.layout.map(Layout::as_str);
        same("layout", layout(setup), layout(&known))?;
        same("numbers in a table", setup.table_rows, known.table_rows.or(setup.table_rows))?;
        if setup.source.is_none() || setup.source == known.source {
            return tx.commit("init").await;
        }
        match rename(tx, setup, known.source.as_deref().unwrap_or_default()).await {
            Err(busy) if busy.kind() == ErrorKind::Busy && Instant::now() < until => pause().await,
            done => return done,
        }
    }
}

fn same<T: PartialEq + std::fmt::Display>(
    what: &str,
    asked: Option<T>,
    known: Option<T>,
) -> Result<()> {
    match (asked, known) {
        (Some(asked), Some(known)) if asked != known => Err(Error::new(
            ErrorKind::Conflict,
            "init",
        )
        .message(format!(
            "the tables were made with another value of `{what}`, which cannot be changed any \
                 more; nothing was changed"
        ))
        .context("there", known)
        .context("asked", asked)),
        _ => Ok(()),
    }
}

/// Gives the store another source, if no event bears the old one yet.
async fn rename(tx: Tx<'_>, setup: &Setup, known: &str) -> Result<()> {
    tx.execute("init", &HOLD_PRODUCERS, params![]).await?;
    let used: bool = tx.row("init", &USED, params![]).await?.get(0);
    if used {
        return Err(Error::new(ErrorKind::Conflict, "init")
            .message("events were enqueued under another source; it cannot be changed any more")
            .context("source", known));
    }
    let source = setup.source.clone().unwrap_or_default();
    tx.execute("init", &META_WRITE, params!["source", source]).await?;
    tx.commit("init").await
}

/// Which migrations the tables have, and which this program would apply.
///
/// # Errors
/// `Conflict` if the schema has tables of these names that are not Postrider's; `Corrupt`, `Unavailable`,
/// `Unauthorized`.
pub async fn migrations(url: &str, names: &Names) -> Result<Migrations> {
    migrations_by(MIGRATIONS, url, names).await
}

async fn migrations_by(list: &[Migration], url: &str, names: &Names) -> Result<Migrations> {
    let sessions = sessions(url, names)?;
    let session = sessions.connect("read schema").await?;
    let version = schema::found(&session).await?.version;
    let meta = if version > 0 { schema::meta(&session).await? } else { Default::default() };
    let state = |number: u32| MigrationState {
        version: number,
        name: list.get(number as usize - 1).map_or("", |migration| migration.name),
        applied: number <= version,
        applied_at: meta.get(&format!("schema_{number:03}_at")).cloned(),
    };
    let setup = if version > 0 { Some(schema::setup(&session).await?) } else { None };
    Ok(Migrations { states: (1..=version.max(last(list))).map(state).collect(), setup })
}

/// Takes migrations back, newest first, until the tables have a version. Version 0 is a database without
/// Postrider: **every event, waiting or settled, goes with the tables.** Stop relays and producers first.
///
/// # Errors
/// `SchemaTooNew` if a newer program made the tables: it has to take its own migrations back. `Busy` if
/// others held locks for a minute; nothing of the migration that was tried is taken back then.
pub async fn revert(url: &str, names: &Names, to: u32) -> Result<()> {
    revert_by(MIGRATIONS, url, names, to).await
}

async fn revert_by(list: &[Migration], url: &str, names: &Names, to: u32) -> Result<()> {
    let sessions = sessions(url, names)?;
    let until = Instant::now() + TRIES_FOR;
    loop {
        let tx = locked(&sessions).await?;
        let version = schema::found(&tx).await?.made_by(last(list))?;
        if version <= to {
            return tx.commit("migrate down").await;
        }
        match take_back(tx, names, list, version).await {
            Err(busy) if busy.kind() == ErrorKind::Busy && Instant::now() < until => pause().await,
            Err(error) => return Err(error),
            Ok(()) => {}
        }
    }
}

/// Takes everything back, and then the schema itself: for one that was made for a trial. **Every event goes
/// with it.** Stop relays and producers first.
///
/// # Errors
/// As [`revert`]. `Conflict` or another refusal of the server if something that is not Postrider's stands in the
/// schema: then it stays, without Postrider's tables.
pub async fn remove(url: &str, names: &Names) -> Result<()> {
    revert(url, names, 0).await?;
    let sessions = sessions(url, names)?;
    let tx = sessions.begin("remove schema").await?;
    tx.batch("remove schema", &names.render(DROP_SCHEMA)).await?;
    tx.commit("remove schema").await
}

async fn take_back(tx: Tx<'_>, names: &Names, list: &[Migration], version: u32) -> Result<()> {
    let before = version as usize - 1;
    if before > 0 {
        let values = params![i64::from(version), i64::from(serves(list, before))];
        tx.execute("migrate down", &FORGET, values).await?;
    }
    tx.batch("migrate down", &names.render(list[before].down)).await?;
    tx.commit("migrate down").await
}

pub(crate) fn sessions(url: &str, names: &Names) -> Result<Sessions> {
    let texts = Arc::new(Texts::new(names.clone()));
    Ok(Sessions::new(Address::parse(url)?, texts, Pooler::default(), TRIES_FOR, 1))
}

#[cfg(test)]
mod tests;
