//! The file: opening it, telling it from other files, and the transactions of its one connection.
//!
//! Every write takes the write lock first (`BEGIN IMMEDIATE`), so a transaction never fails half way
//! because another process wrote in between.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use postrider_core::{Code, Error, ErrorKind, Fault, Result};
use rusqlite::{Connection, OpenFlags};

use crate::options::LocalOptions;
use crate::trouble::{Step, Trouble, kind_of, tell};

/// Says that a SQLite file is a broker of ours: "PRlb".
const APPLICATION_ID: i64 = 0x5052_6c62;
/// The version of the tables.
const VERSION: i64 = 1;
/// How many statements stay prepared: all of them.
const STATEMENTS_MAX: usize = 64;

/// What a transaction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    /// Reads only; no lock is taken.
    Read,
    /// Writes what may be lost when the machine loses power: then a delivery comes again.
    Write,
    /// Writes what was promised to be kept: synced to disk before it is answered.
    Durable,
}

/// The open file.
pub(crate) struct Database {
    connection: Connection,
    path: PathBuf,
    identity: Option<(u64, u64)>,
    synced: Cell<Option<bool>>,
}

/// What a step may use while its transaction is open.
pub(crate) struct Scope<'a> {
    pub(crate) connection: &'a Connection,
    /// The clock by which deliveries become visible again, in milliseconds since the epoch.
    pub(crate) now_ms: i64,
    /// Set by a step after which a waiting consumer may find something.
    pub(crate) wake: Cell<bool>,
}

impl Database {
    /// Opens the file, or makes it.
    pub(crate) fn open(path: &Path, options: &LocalOptions) -> Result<Database> {
        const OPERATION: &str = "open local broker";
        let refuse = |text: &str| {
            Error::new(ErrorKind::Config, OPERATION).message(text).context("file", path.display())
        };
        if path.as_os_str().is_empty() || path.as_os_str() == ":memory:" {
            return Err(refuse("the address needs a file, like local://queue.db"));
        }
        let sql = |error: rusqlite::Error| tell(OPERATION, path, &Trouble::Sql(error).fault());
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(sql)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        connection.busy_timeout(options.busy_wait).map_err(sql)?;
        // Before anything is changed: the file may be somebody else's.
        check(&connection, path)?;
        use_wal(&connection, options.busy_wait).map_err(sql)?;
        create(&connection, path)?;
        let page_bytes: i64 =
            connection.query_row("PRAGMA page_size", [], |row| row.get(0)).map_err(sql)?;
        let pages = options.file_bytes_max / page_bytes.max(1) as u64;
        connection
            .pragma_update(None, "max_page_count", i64::try_from(pages).unwrap_or(i64::MAX))
            .map_err(sql)?;
        Ok(Database {
            connection,
            identity: identity(path),
            path: path.to_owned(),
            synced: Cell::new(None),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Begins what the access needs.
    pub(crate) fn begin(&self, access: Access) -> Step<()> {
        if access == Access::Read {
            return Ok(());
        }
        if self.identity.is_some() && self.identity != identity(&self.path) {
            return Err(Trouble::Said(
                ErrorKind::Unavailable,
                format!("the open file is no longer at its path ({})", Code::StoreVanished),
            ));
        }
        let synced = access == Access::Durable;
        if self.synced.replace(Some(synced)) != Some(synced) {
            let level = if synced { "FULL" } else { "NORMAL" };
            self.connection.pragma_update(None, "synchronous", level)?;
        }
        self.run("BEGIN IMMEDIATE")
    }

    /// Whether the transaction that was begun is still open. SQLite ends it by itself after some
    /// errors, a full disk among them.
    pub(crate) fn in_transaction(&self) -> bool {
        !self.connection.is_autocommit()
    }

    pub(crate) fn commit(&self) -> Step<()> {
        self.run("COMMIT")
    }

    pub(crate) fn roll_back(&self) {
        if self.in_transaction() {
            // If this fails, the transaction is gone already or the next `begin` says what is wrong.
            let _ = self.run("ROLLBACK");
        }
    }

    /// Runs a step so that what it wrote is undone if it fails, and nothing else.
    pub(crate) fn savepoint<T>(&self, step: impl FnOnce() -> Step<T>) -> Step<T> {
        self.run("SAVEPOINT step")?;
        let result = step();
        if self.in_transaction() {
            if result.is_err() {
                self.run("ROLLBACK TO step")?;
            }
            self.run("RELEASE step")?;
        }
        result
    }

    pub(crate) fn scope(&self) -> Step<Scope<'_>> {
        let now_ms = self
            .connection
            .prepare_cached(include_str!("../sql/now.sql"))?
            .query_row([], |row| row.get(0))?;
        Ok(Scope { connection: &self.connection, now_ms, wake: Cell::new(false) })
    }

    fn run(&self, sql: &str) -> Step<()> {
        self.connection.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}

/// Which file the path leads to. A deleted file can still be written to, and all of it would be lost.
#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

#[cfg(not(unix))]
fn identity(_: &Path) -> Option<(u64, u64)> {
    None
}

/// Whether the file is one of ours, or empty: `true` if there is nothing in it yet.
fn check(connection: &Connection, path: &Path) -> Result<bool> {
    const OPERATION: &str = "open local broker";
    let (id, version, objects): (i64, i64, i64) = connection
        .query_row(include_str!("../sql/identify.sql"), [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .map_err(|error| tell(OPERATION, path, &Trouble::Sql(error).fault()))?;
    let (kind, text) = match (id, version, objects) {
        (0, 0, 0) => return Ok(true),
        (APPLICATION_ID, VERSION, _) => return Ok(false),
        (APPLICATION_ID, _, _) => (
            ErrorKind::SchemaTooNew,
            format!("its tables have version {version}, known is {VERSION}"),
        ),
        _ => (
            ErrorKind::Config,
            "the file is a database, but not one of a local broker; nothing was changed".to_owned(),
        ),
    };
    Err(tell(OPERATION, path, &Fault::new(kind, text)))
}

/// Readers go on while somebody writes, and a commit syncs one file.
fn use_wal(connection: &Connection, wait: Duration) -> rusqlite::Result<()> {
    let deadline = Instant::now() + wait;
    loop {
        // SQLite does not wait for other openers here as it does elsewhere.
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(error) if kind_of(&error) == ErrorKind::Busy && Instant::now() < deadline => {
                // waits: SQLite does not wait for a change of the journal mode by itself
                std::thread::sleep(Duration::from_millis(2));
            }
            result => return result,
        }
    }
}

/// Makes the tables, unless another process was faster.
fn create(connection: &Connection, path: &Path) -> Result<()> {
    let sql =
        |error: rusqlite::Error| tell("create local broker", path, &Trouble::Sql(error).fault());
    connection.execute_batch("BEGIN IMMEDIATE").map_err(sql)?;
    let made = check(connection, path).and_then(|empty| {
        if empty {
            connection
                .execute_batch(include_str!("../sql/schema.sql"))
                .and_then(|()| connection.pragma_update(None, "application_id", APPLICATION_ID))
                .and_then(|()| connection.pragma_update(None, "user_version", VERSION))
                .map_err(sql)?;
        }
        connection.execute_batch("COMMIT").map_err(sql)
    });
    if made.is_err() && !connection.is_autocommit() {
        let _ = connection.execute_batch("ROLLBACK");
    }
    made
}
