//! How connections are opened: the application's, and the relay's own.

use std::path::Path;
use std::time::{Duration, Instant};

use postrider_core::Result;
use rusqlite::{Connection, OpenFlags};

use crate::error::During;

/// How long an application waits for another writer. SQLite has one writer at a time, and a relay
/// writes a few times a second for milliseconds: five seconds mean that something is wrong.
const APPLICATION_BUSY: Duration = Duration::from_secs(5);

/// How long a relay waits for another writer before it says `Busy`. Shorter than a heartbeat, so
/// that a stuck application is noticed before the lease is.
pub(crate) const RELAY_BUSY: Duration = Duration::from_secs(2);

/// How long switching to the write-ahead log may take beside another process that does the same.
const WAL_PATIENCE: Duration = Duration::from_secs(10);

/// Opens an application's connection, creating the file if there is none, with the settings that
/// the promise rests on.
///
/// | setting | why |
/// |---|---|
/// | `journal_mode = WAL` | the relay reads while the application writes, and neither waits |
/// | `synchronous = FULL` | a commit is on the disk when it returns: what was promised survives a power cut |
/// | `busy_timeout = 5 s` | a writer waits for the other one instead of failing at once |
/// | `secure_delete = FAST` | pages keep no remains of rows that moved out of them: what is erased later is gone |
///
/// An application may open its connection in any other way. With `synchronous = NORMAL` a power cut
/// can take back its last commits; they are then not published either, because the store flushes
/// the log before it hands out what it read. `synchronous = OFF` is not supported.
///
/// Begin transactions that write with `BEGIN IMMEDIATE` (`TransactionBehavior::Immediate`): one
/// that reads first and writes later fails at once if another writer came between.
///
/// # Errors
/// `Unavailable` if the file cannot be opened, `Corrupt` if it is no database, `Busy`, `ReadOnly`.
pub fn connect(path: impl AsRef<Path>) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let path = std::path::absolute(path.as_ref()).unwrap_or_else(|_| path.as_ref().to_owned());
    let connection = Connection::open_with_flags(path, flags).during("connect")?;
    configure(&connection, APPLICATION_BUSY).during("connect")?;
    Ok(connection)
}

/// Opens a connection of the relay's own. Never creates the file.
pub(crate) fn open_existing(path: &Path, operation: &'static str) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).during(operation)?;
    configure(&connection, RELAY_BUSY).during(operation)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

fn configure(connection: &Connection, busy: Duration) -> rusqlite::Result<()> {
    connection.busy_timeout(busy)?;
    enter_wal(connection)?;
    // It answers with what it was set to.
    connection.pragma_update_and_check(None, "secure_delete", "FAST", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")
}

/// Switches to the write-ahead log. The mode is kept in the file, so that only the first connection
/// ever does it; it needs the file for itself, and SQLite does not wait for that by itself.
fn enter_wal(connection: &Connection) -> rusqlite::Result<()> {
    let start = Instant::now();
    loop {
        let mode =
            connection.query_row("pragma journal_mode", (), |row| row.get::<_, String>(0))?;
        if mode == "wal" {
            return Ok(());
        }
        match connection.query_row("pragma journal_mode = wal", (), |_| Ok(())) {
            Ok(()) => return Ok(()),
            Err(e) if is_busy(&e) && start.elapsed() < WAL_PATIENCE => {
                // waits: for the other process's switch, which SQLite gives no signal of.
                std::thread::sleep(Duration::from_millis(5));
            }
            // A file that cannot be written to can still be read, and says so when it is written
            // to.
            Err(e) if e.sqlite_error_code() == Some(rusqlite::ErrorCode::ReadOnly) => return Ok(()),
            Err(e) => return Err(e),
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked)
    )
}
