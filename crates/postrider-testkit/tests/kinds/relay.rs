//! A relay reduced to its calls, on one partition and one destination.

use std::time::Duration;

use postrider_core::lease::AcquireRequest;
use postrider_core::source::{FetchRequest, FetchedRow, Page};
use postrider_core::waiting::{Passed, Settlement, SettlementPart};
use postrider_core::{
    Cursor, Destination, DestinationId, EventId, Lease, NewEvent, OutboxSource, PartitionId,
    RelayId, Result, Route,
};
use postrider_testkit::memory::{Kind, MemoryClock, MemoryStore};

pub(crate) const LEASE: Duration = Duration::from_secs(15);

/// The destination that every test has.
pub(crate) fn a() -> DestinationId {
    DestinationId::new("a").unwrap()
}

/// A store of a kind with one partition and the destination `a`.
pub(crate) async fn store(kind: Kind) -> MemoryStore {
    let store = MemoryStore::of(kind, 1, MemoryClock::new());
    let route = Route::all("orders".parse().unwrap());
    store.register(&[Destination::new(a(), "memory", vec![route])]).await.unwrap();
    store
}

pub(crate) fn event(key: &str, n: u32) -> NewEvent {
    NewEvent::new("order", key, format!("order.changed.{n}"))
}

pub(crate) fn ids(rows: &[FetchedRow]) -> Vec<EventId> {
    rows.iter().map(|row| row.row.id).collect()
}

/// A relay with its handle and its lease.
pub(crate) struct Relay {
    pub(crate) source: MemoryStore,
    pub(crate) lease: Lease,
}

impl Relay {
    /// A relay that takes the partition, or fails if it cannot.
    pub(crate) async fn take(source: MemoryStore, name: &str) -> Relay {
        let lease = acquire(&source, name).await.expect("the partition is free");
        Relay { source, lease }
    }

    pub(crate) async fn load(&self) -> Cursor {
        self.source.load(&self.lease, &a()).await.unwrap().cursor
    }

    pub(crate) async fn fetch(&self, after: &Cursor, rows_max: u32) -> Result<Page> {
        let request = FetchRequest {
            lease: self.lease.clone(),
            destinations: vec![a()],
            after: after.clone(),
            until: None,
            rows_max,
            bytes_max: u64::MAX,
        };
        self.source.fetch(&request).await
    }

    /// Settles rows as acknowledged.
    pub(crate) async fn settle(&self, from: &Cursor, rows: &[FetchedRow]) -> Result<()> {
        self.source.settle(&settlement(&self.lease, from, rows)).await
    }

    /// Reads and settles everything, and says what it was.
    pub(crate) async fn drain(&self) -> Vec<EventId> {
        let mut at = self.load().await;
        let mut read = Vec::new();
        loop {
            let page = self.fetch(&at, 7).await.unwrap();
            if page.rows.is_empty() {
                return read;
            }
            self.settle(&at, &page.rows).await.unwrap();
            read.extend(ids(&page.rows));
            at = page.end;
        }
    }
}

/// The settlement that passes rows as acknowledged.
pub(crate) fn settlement(lease: &Lease, from: &Cursor, rows: &[FetchedRow]) -> Settlement {
    let mut part = SettlementPart::new(a());
    part.cursor = rows.last().map(|last| (from.clone(), last.cursor.clone()));
    part.passed = rows.iter().map(|row| (row.row, Passed::Acked)).collect();
    Settlement { lease: lease.clone(), parts: vec![part] }
}

/// Takes the partition, if it is free.
pub(crate) async fn acquire(source: &MemoryStore, name: &str) -> Option<Lease> {
    let request = AcquireRequest {
        owner: RelayId::new(name).unwrap(),
        lease_duration: LEASE,
        wanted: 1,
        free_for: Duration::ZERO,
        presence: None,
        current: true,
        dead: None,
    };
    let acquired = source.acquire(&request).await.unwrap();
    let granted = acquired.granted.into_iter().next()?.lease;
    assert_eq!(granted.partition, PartitionId(0));
    Some(granted)
}
