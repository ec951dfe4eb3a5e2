//! A relay reduced to its calls: what the store cases use to look at a store from outside.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::lease::{AcquireRequest, Acquired};
use postrider_core::source::{DueRequest, FetchRequest, FetchedRow};
use postrider_core::waiting::{
    Attempted, NewWaiting, Passed, Placement, Reason, Settlement, SettlementPart,
};
use postrider_core::{
    Cursor, Destination, DestinationId, EventId, Lease, NewEvent, OutboxSource, RelayId, Result,
    Route, Template,
};

use super::StoreHarness;

/// Longer than any case: such a lease does not end by itself.
pub(super) const LONG: Duration = Duration::from_secs(3_600);

/// The rows and bytes of a page that nothing in these cases fills.
const ROWS_MAX: u32 = 1_000;
const BYTES_MAX: u64 = 64 * 1024 * 1024;

/// One relay with a handle of its own.
pub(super) struct Relay {
    pub(super) source: Arc<dyn OutboxSource>,
    pub(super) owner: RelayId,
    pub(super) leases: Vec<Lease>,
}

/// The name of the destination that every case has.
pub(super) fn a() -> DestinationId {
    id("a")
}

pub(super) fn id(name: &str) -> DestinationId {
    DestinationId::new(name).expect("invariant: the name is valid")
}

/// A destination for everything.
pub(super) fn destination(name: &str) -> Destination {
    let topic: Template = "orders".parse().expect("invariant: a plain template");
    Destination::new(id(name), "memory", vec![Route::all(topic)])
}

/// The n-th event of a key, told by its type.
pub(super) fn event(key: &str, n: u32) -> NewEvent {
    NewEvent::new("order", key, format!("order.changed.{n}"))
}

pub(super) fn ids(events: &[NewEvent]) -> Vec<EventId> {
    events.iter().map(|event| event.event().id).collect()
}

pub(super) fn failed(attempts: u32) -> Attempted {
    Attempted { attempts, reason: Reason::Failed, detail: "503 come back later".to_owned() }
}

impl Relay {
    /// Registers the destination `a` and owns every partition for long.
    pub(super) async fn start<H: StoreHarness>(harness: &H) -> Relay {
        let mut relay = Relay::idle(harness).await;
        relay.acquire(LONG).await;
        relay
    }

    /// Registers the destination `a` and owns nothing.
    pub(super) async fn idle<H: StoreHarness>(harness: &H) -> Relay {
        let source = harness.source();
        source.open().await.expect("the store opens");
        source
            .register(&[destination("a")])
            .await
            .expect("a store without destinations takes them");
        Relay { source, owner: RelayId::mint(), leases: Vec::new() }
    }

    /// A request for everything.
    pub(super) fn request(&self, lease: Duration) -> AcquireRequest {
        AcquireRequest {
            owner: self.owner.clone(),
            lease_duration: lease,
            wanted: u16::MAX,
            free_for: Duration::ZERO,
            presence: None,
            current: true,
            dead: None,
        }
    }

    /// Takes what is free.
    pub(super) async fn acquire(&mut self, lease: Duration) -> Acquired {
        let request = self.request(lease);
        let acquired = self.source.acquire(&request).await.expect("acquire answers");
        let granted = acquired.granted.iter().map(|granted| granted.lease.clone());
        self.leases.extend(granted);
        acquired
    }

    /// Everything behind the saved cursor of a destination, partition by partition.
    pub(super) async fn read(&self, destination: &DestinationId) -> Vec<(Lease, FetchedRow)> {
        let mut rows = Vec::new();
        for lease in &self.leases {
            let loaded = self.source.load(lease, destination).await.expect("load");
            let page = self.read_from(lease, destination, loaded.cursor, ROWS_MAX).await;
            rows.extend(page.into_iter().map(|row| (lease.clone(), row)));
        }
        rows
    }

    /// Everything behind a cursor, in pages of so many rows.
    pub(super) async fn read_from(
        &self,
        lease: &Lease,
        destination: &DestinationId,
        mut after: Cursor,
        rows_max: u32,
    ) -> Vec<FetchedRow> {
        let mut rows = Vec::new();
        loop {
            let request = fetch(lease, destination, after, rows_max, BYTES_MAX);
            let page = self.source.fetch(&request).await.expect("fetch");
            assert!(page.rows.len() <= rows_max as usize, "a page keeps its limit");
            let more = page.more || !page.rows.is_empty();
            rows.extend(page.rows);
            if !more {
                return rows;
            }
            after = page.end;
        }
    }

    /// The ids of what [`Relay::read`] reads, sorted.
    pub(super) async fn read_ids(&self, destination: &DestinationId) -> Vec<EventId> {
        let rows = self.read(destination).await;
        let mut ids: Vec<EventId> = rows.iter().map(|(_, row)| row.row.id).collect();
        ids.sort();
        ids
    }

    /// Where one event stands behind the saved cursor of `a`.
    pub(super) async fn find(&self, id: EventId) -> (Lease, FetchedRow) {
        let rows = self.read(&a()).await;
        let found = rows.into_iter().find(|(_, row)| row.row.id == id);
        found.expect("the event was committed and is not settled")
    }

    /// Reads everything of a destination and settles it as acknowledged; returns the ids in the
    /// order in which they came.
    pub(super) async fn drain(&self, destination: &DestinationId) -> Vec<EventId> {
        let mut ids = Vec::new();
        for lease in &self.leases {
            let loaded = self.source.load(lease, destination).await.expect("load");
            let from = loaded.cursor.clone();
            let rows = self.read_from(lease, destination, loaded.cursor, ROWS_MAX).await;
            let Some(last) = rows.last() else { continue };
            let part = pass(destination, from, &rows, last, Passed::Acked);
            self.settle(lease, part).await.expect("settle");
            ids.extend(rows.iter().map(|row| row.row.id));
        }
        ids
    }

    pub(super) async fn settle(&self, lease: &Lease, part: SettlementPart) -> Result<()> {
        let settlement = Settlement { lease: lease.clone(), parts: vec![part] };
        self.source.settle(&settlement).await
    }

    /// The ids that are due now for `a` in a partition, in order.
    pub(super) async fn due(&self, lease: &Lease) -> Vec<EventId> {
        let due = self.source.due(&due(lease)).await.expect("due");
        due.rows.iter().map(|row| row.row.id).collect()
    }
}

pub(super) fn fetch(
    lease: &Lease,
    destination: &DestinationId,
    after: Cursor,
    rows_max: u32,
    bytes_max: u64,
) -> FetchRequest {
    FetchRequest {
        lease: lease.clone(),
        destinations: vec![destination.clone()],
        after,
        until: None,
        rows_max,
        bytes_max,
    }
}

pub(super) fn due(lease: &Lease) -> DueRequest {
    DueRequest {
        lease: lease.clone(),
        destination: a(),
        except: Vec::new(),
        rows_max: ROWS_MAX,
        bytes_max: BYTES_MAX,
    }
}

/// A part whose cursor passes the rows up to and including `last`, all with one outcome.
pub(super) fn pass(
    destination: &DestinationId,
    from: Cursor,
    rows: &[FetchedRow],
    last: &FetchedRow,
    outcome: Passed,
) -> SettlementPart {
    let mut part = SettlementPart::new(destination.clone());
    part.cursor = Some((from, last.cursor.clone()));
    part.passed = rows.iter().map(|row| (row.row, outcome)).collect();
    part
}

/// An event that enters waiting.
pub(super) fn waits(row: &FetchedRow, placement: Placement) -> NewWaiting {
    NewWaiting {
        row: row.row,
        key_hash: row.key_hash,
        event: row.event.as_ref().ok().cloned(),
        placement,
    }
}
