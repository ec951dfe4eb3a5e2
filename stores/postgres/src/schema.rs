//! The tables and their migrations.
//!
//! Invariant: a migration is applied once, in a transaction of its own with the record of it, whoever and
//! however many initialise the database at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use postrider_core::{Error, ErrorKind, Result};

use crate::Names;
use crate::connect::Address;
use crate::session::Session;
use crate::sessions::Sessions;
use crate::sql::{Sql, Texts, sql};
use crate::typed::params;

const META_READ_ALL: Sql = sql!("meta/read_all");
const META_WRITE: Sql = sql!("meta/write");
const LOCK: Sql = sql!("init/lock");
const TABLES: Sql = sql!("init/tables");

/// The part that is left out where the outbox is one table.
const PARTITIONED: &str = include_str!("../sql/schema/001/25_partitions.sql");

/// The parts of a migration, in order.
type Migration = &'static [&'static str];

/// The migrations, in order; the version of the tables is how many were applied.
const MIGRATIONS: &[Migration] = &[&[
    include_str!("../sql/schema/001/10_keys.sql"),
    include_str!("../sql/schema/001/20_outbox.sql"),
    PARTITIONED,
    include_str!("../sql/schema/001/30_relay.sql"),
    include_str!("../sql/schema/001/40_inbox.sql"),
    include_str!("../sql/schema/001/50_enqueue.sql"),
    include_str!("../sql/schema/001/50_lease.sql"),
    include_str!("../sql/schema/001/51_waiting.sql"),
    include_str!("../sql/schema/001/52_settle.sql"),
    include_str!("../sql/schema/001/55_inbox.sql"),
    include_str!("../sql/schema/001/60_status.sql"),
    include_str!("../sql/schema/001/90_rows.sql"),
]];

/// The version of the tables that this program knows.
pub(crate) const VERSION: u32 = MIGRATIONS.len() as u32;

/// So many partitions at most: each is a lease to renew and a cursor to save.
pub const PARTITIONS_MAX: u16 = 1_024;

/// How the outbox lies on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// One table per million numbers, so that old ones go whole. The default.
    #[default]
    Partitioned,
    /// One table, from which old rows are deleted: for those who cannot partition.
    Plain,
}

impl Layout {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Layout::Partitioned => "partitioned",
            Layout::Plain => "plain",
        }
    }
}

/// What is fixed when the tables are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// What the tables are called.
    pub names: Names,
    /// P, the units of ownership between relays, for ever. `None` is 32: more relays than that stand
    /// by.
    pub partitions: Option<u16>,
    /// How the outbox lies on disk.
    pub layout: Layout,
    /// The default of `outbox.source`. `None` is the database's name, like `/shop`.
    pub source: Option<String>,
}

impl Setup {
    /// P.
    pub const PARTITIONS: u16 = 32;

    fn partitions(&self) -> Result<u16> {
        let partitions = self.partitions.unwrap_or(Setup::PARTITIONS);
        if partitions == 0 || partitions > PARTITIONS_MAX {
            return Err(Error::new(ErrorKind::Config, "init")
                .message(format!("there are 1 to {PARTITIONS_MAX} partitions"))
                .context("partitions", partitions));
        }
        Ok(partitions)
    }

    /// A migration as this database gets it.
    fn render(&self, migration: Migration, partitions: u16) -> String {
        let by_range = match self.layout {
            Layout::Partitioned => " partition by range (seq)",
            Layout::Plain => "",
        };
        let has = |part: &&&str| self.layout == Layout::Partitioned || **part != PARTITIONED;
        let parts: Vec<&str> = migration.iter().filter(has).copied().collect();
        let text = self.names.render(&parts.join("\n"));
        text.replace("$partitions$", &partitions.to_string())
            .replace("$by_range$", by_range)
            .replace("$layout$", self.layout.as_str())
    }
}

/// Creates the tables in a database, or brings them to this program's version. Doing it again changes
/// nothing, and two at once do it once.
///
/// # Errors
/// `SchemaTooNew` if a newer program made the tables; `Conflict` if the schema has tables of these names
/// that are not Postrider's, or if the tables were made with another number of partitions; `Unavailable`,
/// `Unauthorized`, `ReadOnly`, `DiskFull`.
pub async fn init(url: &str, setup: &Setup) -> Result<()> {
    let texts = Arc::new(Texts::new(setup.names.clone()));
    let deadline = std::time::Duration::from_secs(60);
    let sessions = Sessions::new(Address::parse(url)?, texts, deadline, 1);
    let partitions = setup.partitions()?;
    let tx = sessions.begin("init").await?;
    tx.rows("init", &LOCK, params![setup.names.schema()]).await?;
    let found = version(&tx).await?;
    for migration in &MIGRATIONS[found as usize..] {
        tx.batch("init", &setup.render(migration, partitions)).await?;
    }
    if let (0, Some(source)) = (found, &setup.source) {
        tx.execute("init", &META_WRITE, params!["source", source]).await?;
    }
    tx.commit("init").await
}

/// The version of the tables; 0 if there are none.
pub(crate) async fn version(session: &Session) -> Result<u32> {
    let names = session.texts().names();
    let ours = ["_meta", "", "_cursor", "_lease"].map(|rest| format!("{}{rest}", names.outbox()));
    let found = session
        .rows("read schema", &TABLES, params![names.schema(), Vec::from(ours.clone())])
        .await?;
    if found.is_empty() {
        return Ok(0);
    }
    if !found.iter().any(|row| row.get::<_, &str>(0) == ours[0]) {
        return Err(Error::new(ErrorKind::Conflict, "init")
            .message("the schema has tables of these names that are not Postrider's"));
    }
    let meta = meta(session).await?;
    match meta.get("schema").and_then(|text| text.parse().ok()) {
        Some(version) if version > VERSION => {
            Err(Error::new(ErrorKind::SchemaTooNew, "read schema").message(format!(
                "the tables have version {version}, this program knows {VERSION}"
            )))
        }
        Some(version) => Ok(version),
        None => Err(Error::new(ErrorKind::Corrupt, "read schema")
            .message("outbox_meta does not say which version the tables have")),
    }
}

/// Everything in `outbox_meta`.
pub(crate) async fn meta(session: &Session) -> Result<BTreeMap<String, String>> {
    let rows = session.rows("read meta", &META_READ_ALL, params![]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// A number out of `outbox_meta` that must be there.
pub(crate) fn number(meta: &BTreeMap<String, String>, key: &'static str) -> Result<u64> {
    meta.get(key).and_then(|text| text.parse().ok()).ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, "read meta")
            .message("a number in outbox_meta is missing or is none")
            .context("key", key)
    })
}
