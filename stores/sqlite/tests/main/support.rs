//! What the tests share: a fresh store in a folder of its own, and a relay's first calls on it.

use std::path::PathBuf;
use std::time::Duration;

use postrider_core::lease::{AcquireRequest, Granted};
use postrider_core::source::{FetchRequest, FetchedRow, OutboxSource, Page};
use postrider_core::waiting::{Passed, Settlement, SettlementPart};
use postrider_core::{
    Cursor, Destination, DestinationId, Lease, NewEvent, RelayId, Route, Template,
};
use postrider_sqlite::{Outbox, SqliteStore, connect, init};
use rusqlite::Connection;
use tempfile::TempDir;

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// A fresh database with the tables, removed when dropped.
pub(crate) struct Fresh {
    folder: TempDir,
}

impl Fresh {
    pub(crate) fn new() -> Fresh {
        let fresh = Fresh::empty();
        init(fresh.path()).expect("the tables are made");
        fresh
    }

    /// A folder without a database in it.
    pub(crate) fn empty() -> Fresh {
        Fresh { folder: tempfile::tempdir().expect("a folder") }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("shop.db")
    }

    pub(crate) fn connect(&self) -> Connection {
        connect(self.path()).expect("a connection")
    }

    pub(crate) fn store(&self) -> SqliteStore {
        SqliteStore::new(self.path()).expect("a store")
    }

    /// Commits events as an application does.
    pub(crate) fn commit(&self, events: &[NewEvent]) {
        let mut connection = self.connect();
        let tx = connection.transaction().expect("begin");
        Outbox::new().enqueue_many(&tx, events).expect("enqueue");
        tx.commit().expect("commit");
    }

    /// A store with the destination `a`, and the lease of its one partition.
    pub(crate) async fn relay(&self) -> (SqliteStore, Lease) {
        let store = self.store();
        store.open().await.expect("open");
        store.register(&[destination("a")]).await.expect("register");
        let lease = acquire(&store, LONG).await.expect("the lease is free").lease;
        (store, lease)
    }
}

pub(crate) fn id(name: &str) -> DestinationId {
    DestinationId::new(name).expect("a name")
}

pub(crate) fn destination(name: &str) -> Destination {
    let topic: Template = "orders".parse().expect("a template");
    Destination::new(id(name), "local", vec![Route::all(topic)])
}

pub(crate) fn event(number: u32) -> NewEvent {
    NewEvent::new("order", "42", "order.placed").json(&number).expect("JSON")
}

pub(crate) async fn acquire(store: &SqliteStore, lease_duration: Duration) -> Option<Granted> {
    let request = AcquireRequest {
        owner: RelayId::mint(),
        lease_duration,
        wanted: 1,
        free_for: Duration::ZERO,
        presence: None,
        current: true,
        dead: None,
    };
    store.acquire(&request).await.expect("acquire").granted.pop()
}

pub(crate) fn page_after(lease: &Lease, position: u64) -> FetchRequest {
    FetchRequest {
        lease: lease.clone(),
        destinations: vec![id("a")],
        after: Cursor::number(position),
        until: None,
        rows_max: 1_000,
        bytes_max: 4 * 1024 * 1024,
    }
}

pub(crate) async fn fetch(store: &SqliteStore, lease: &Lease, position: u64) -> Page {
    store.fetch(&page_after(lease, position)).await.expect("fetch")
}

/// A settlement that passes rows from one cursor to the last of them.
pub(crate) fn pass(lease: &Lease, from: u64, rows: &[FetchedRow], passed: Passed) -> Settlement {
    let mut part = SettlementPart::new(id("a"));
    let last = rows.last().expect("rows").cursor.clone();
    part.cursor = Some((Cursor::number(from), last));
    part.passed = rows.iter().map(|row| (row.row, passed)).collect();
    Settlement { lease: lease.clone(), parts: vec![part] }
}

/// One number out of the database.
pub(crate) fn number(connection: &Connection, statement: &str) -> i64 {
    connection.query_row(statement, (), |row| row.get(0)).expect("one number")
}
