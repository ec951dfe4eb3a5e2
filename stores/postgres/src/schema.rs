//! The tables as they are: their version, and what was fixed when they were made.

use std::collections::BTreeMap;

use postrider_core::{Error, ErrorKind, Result};

use crate::session::Session;
use crate::setup::{Layout, Setup};
use crate::sql::{Sql, sql};
use crate::typed::params;
use crate::{Names, migrate};

const META_READ_ALL: Sql = sql!("meta/read_all");
const TABLES: Sql = sql!("init/tables");

/// The version of the tables that this program knows.
pub(crate) const VERSION: u32 = migrate::VERSION;

/// The oldest version of the tables that this program works with.
pub(crate) const NEEDS: u32 = migrate::NEEDS;

/// The tables, as SQL text and as a version.
#[derive(Clone, Copy, Debug)]
pub struct Schema;

impl Schema {
    /// The version of the tables that this program makes and knows.
    pub const VERSION: u32 = VERSION;

    /// Everything that [`init`](crate::init) does to a fresh database, as text: for people who run
    /// their own migrations.
    ///
    /// # Errors
    /// As [`init`](crate::init), of what is asked for.
    pub fn sql(setup: &Setup) -> Result<String> {
        migrate::print(setup)
    }

    /// Everything that [`revert`](crate::revert) does to tables of this version, as text. **What the migrations made goes with
    /// what is in it.**
    pub fn revert_sql(names: &Names, to: u32) -> String {
        migrate::print_revert(names, to)
    }
}

/// What the tables say of themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Their version, also one that this program does not know; 0 if there are none.
    pub(crate) version: u32,
    /// The oldest program that they serve, by the version that it knows.
    serves: u32,
}

impl Found {
    /// The version, for a program that knows it, or one that the tables serve nevertheless.
    pub(crate) fn used_by(self, known: u32) -> Result<u32> {
        match self.version > known && self.serves > known {
            true => Err(too_new(self.version, known)),
            false => Ok(self.version),
        }
    }

    /// The version, for a program that knows how it was made.
    pub(crate) fn made_by(self, known: u32) -> Result<u32> {
        match self.version > known {
            true => Err(too_new(self.version, known)),
            false => Ok(self.version),
        }
    }
}

/// Tables of a version that do not serve a program which knows less.
pub(crate) fn too_new(version: u32, known: u32) -> Error {
    Error::new(ErrorKind::SchemaTooNew, "read schema")
        .message(format!("the tables have version {version}, this program knows {known}"))
}

/// The version of the tables; 0 if there are none.
///
/// # Errors
/// `SchemaTooNew` if they do not serve this program.
pub(crate) async fn version(session: &Session) -> Result<u32> {
    found(session).await?.used_by(VERSION)
}

/// What the tables say of themselves.
pub(crate) async fn found(session: &Session) -> Result<Found> {
    let names = session.texts().names();
    let ours = ["_meta", "", "_cursor", "_lease"].map(|rest| format!("{}{rest}", names.outbox()));
    let found = session
        .rows("read schema", &TABLES, params![names.schema(), Vec::from(ours.clone())])
        .await?;
    if found.is_empty() {
        return Ok(Found::default());
    }
    if !found.iter().any(|row| row.get::<_, &str>(0) == ours[0]) {
        let tables: Vec<&str> = found.iter().map(|row| row.get(0)).collect();
        return Err(Error::new(ErrorKind::Conflict, "init")
            .message("the schema has tables of these names that are not Postrider's")
            .context("tables", tables.join(", ")));
    }
    let meta = meta(session).await?;
    let number = |key: &str| meta.get(key).and_then(|text| text.parse().ok());
    let version = number("schema").ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, "read schema")
            .message("outbox_meta does not say which version the tables have")
    })?;
    Ok(Found { version, serves: number("serves").unwrap_or(version) })
}

/// Checks that the tables are there, and that this program works with them. Says their version.
pub(crate) async fn check(session: &Session) -> Result<u32> {
    let missing =
        |message: String| Error::new(ErrorKind::SchemaMissing, "open store").message(message);
    match version(session).await {
        Ok(0) => Err(missing("the database has no Postrider tables".to_owned())),
        Ok(version) if version >= NEEDS => Ok(version),
        Ok(older) => Err(missing(format!(
            "the tables have version {older}, this program needs {}: run `postrider init`",
            NEEDS
        ))),
        Err(e) if e.kind() == ErrorKind::Conflict => {
            Err(missing("the database has no Postrider tables".to_owned()).source(e))
        }
        Err(e) => Err(e),
    }
}

/// What was fixed when the tables were made.
pub(crate) async fn setup(session: &Session) -> Result<Setup> {
    let meta = meta(session).await?;
    let partitions = u16::try_from(number(&meta, "partitions")?).map_err(|_| {
        Error::new(ErrorKind::Corrupt, "read meta").message("there are too many partitions")
    })?;
    Ok(Setup {
        names: session.texts().names().clone(),
        partitions: Some(partitions),
        layout: Some(meta.get("layout").map_or(Ok(Layout::Plain), |text| text.parse())?),
        table_rows: meta.get("table_rows").and_then(|text| text.parse().ok()),
        source: meta.get("source").cloned(),
    })
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
