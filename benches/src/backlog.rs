//! A store with a backlog: the same events for every contender.

use std::path::{Path, PathBuf};

use postrider_core::{NewEvent, Payload};
use postrider_sqlite::{Outbox, connect, init};
use rusqlite::{Connection, TransactionBehavior};
use tempfile::TempDir;

use crate::{Result, progress, sql};

/// How many keys the events have.
pub(crate) const KEYS: u64 = 10_000;

/// How long a payload is, in bytes.
pub(crate) const PAYLOAD_BYTES: usize = 256;

/// Rows of one transaction while the backlog is built.
const BUILD_BATCH: u64 = 1_000;

/// A database file in a folder of its own, which goes with it.
pub(crate) struct Backlog {
    folder: TempDir,
    rows: u64,
}

impl Backlog {
    /// Builds a backlog of so many events. Nothing of this is measured.
    pub(crate) fn build(rows: u64) -> Result<Backlog> {
        Backlog::build_of(rows, event)
    }

    /// The same, of events of another kind, each by its number.
    pub(crate) fn build_of(rows: u64, event: impl Fn(u64) -> Result<NewEvent>) -> Result<Backlog> {
        let backlog = Backlog { folder: tempfile::tempdir()?, rows };
        init(backlog.path())?;
        let mut connection = connect(backlog.path())?;
        // A power cut while it is built costs only the run.
        connection.pragma_update(None, "synchronous", "OFF")?;
        let outbox = Outbox::new();
        let mut built = 0;
        while built < rows {
            let events: Vec<NewEvent> =
                (built..rows.min(built + BUILD_BATCH)).map(&event).collect::<Result<_>>()?;
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            outbox.enqueue_many(&tx, &events)?;
            tx.commit()?;
            built += events.len() as u64;
            if built % 100_000 == 0 {
                progress(format_args!("backlog: {built} of {rows} rows"));
            }
        }
        checkpoint(&connection)?;
        drop(connection);
        std::fs::File::open(backlog.path())?.sync_all()?;
        Ok(backlog)
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("store.db")
    }

    /// A place for another file of the same run.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Forgets what was delivered, so that the next contender finds the same work.
    pub(crate) fn rewind(&self) -> Result<()> {
        let connection = connect(self.path())?;
        connection.execute_batch(sql::BACKLOG_REWIND)?;
        checkpoint(&connection)
    }

    /// How large the database file is.
    pub(crate) fn file_bytes(&self) -> Result<u64> {
        Ok(std::fs::metadata(self.path())?.len())
    }
}

/// Moves the log into the file, so that the next contender does not pay for this one's writes.
pub(crate) fn checkpoint(connection: &Connection) -> Result<()> {
    connection.query_row("pragma wal_checkpoint(truncate)", (), |_| Ok(()))?;
    Ok(())
}

/// The event of a number.
pub(crate) fn event(number: u64) -> Result<NewEvent> {
    let payload = Payload::json(payload(number))?;
    Ok(NewEvent::new("order", key(number), "order.placed").payload(payload, "application/json"))
}

/// What the event is about: one of as many as there are keys.
pub(crate) fn key(number: u64) -> String {
    (number % KEYS).to_string()
}

/// A JSON text of [`PAYLOAD_BYTES`] bytes.
pub(crate) fn payload(number: u64) -> String {
    payload_of(number, PAYLOAD_BYTES)
}

/// The same of so many bytes.
pub(crate) fn payload_of(number: u64, bytes: usize) -> String {
    let mut text = format!("{{\"order\":{number},\"total\":1250,\"note\":\"");
    let room = bytes.saturating_sub(text.len() + 2);
    text.extend(std::iter::repeat_n('x', room));
    text.push_str("\"}");
    text
}

/// A database of an application: its own tables, and Postrider's.
pub(crate) fn application(path: &Path, synchronous: &str) -> Result<Connection> {
    init(path)?;
    let connection = connect(path)?;
    connection.execute_batch(sql::BUSINESS_TABLES)?;
    connection.pragma_update(None, "synchronous", synchronous)?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_payload_is_json_of_the_same_length() {
        for number in [0, 7, 999_999_999] {
            let text = payload(number);
            assert_eq!(text.len(), PAYLOAD_BYTES);
            assert!(Payload::json(text).is_ok());
        }
    }

    #[test]
    fn a_backlog_has_the_rows_that_were_asked_for() {
        let backlog = Backlog::build(1_234).unwrap();
        let connection = connect(backlog.path()).unwrap();
        let count = |sql: &str| connection.query_row(sql, (), |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(count("select count(*) from outbox"), 1_234);
        assert_eq!(count("select count(distinct aggregate_id) from outbox"), 1_234);
    }
}
