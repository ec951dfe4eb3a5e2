//! A relay's first calls on a store.

use std::time::Duration;

use postrider_core::lease::AcquireRequest;
use postrider_core::source::{FetchRequest, FetchedRow, Page};
use postrider_core::waiting::{Passed, Settlement, SettlementPart};
use postrider_core::{
    Cursor, Destination, DestinationId, EventId, Lease, OutboxSource as _, RelayId, Result, Route,
    Template,
};
use postrider_dynamodb::DynamoStore;

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// Owns every partition, and reads each.
pub(crate) struct Relay {
    pub(crate) store: DynamoStore,
    readings: Vec<(Lease, Cursor)>,
}

pub(crate) fn a() -> DestinationId {
    DestinationId::new("a").unwrap()
}

impl Relay {
    pub(crate) async fn start(store: DynamoStore) -> Relay {
        Relay::start_for(store, LONG).await
    }

    /// The same with leases of a duration, which nothing renews.
    pub(crate) async fn start_for(store: DynamoStore, lease_duration: Duration) -> Relay {
        store.open().await.unwrap();
        let topic: Template = "orders".parse().unwrap();
        let everything = Destination::new(a(), "memory", vec![Route::all(topic)]);
        store.register(&[everything]).await.unwrap();
        let request = AcquireRequest {
            owner: RelayId::mint(),
            lease_duration,
            wanted: u16::MAX,
            free_for: Duration::ZERO,
            presence: None,
            current: true,
            dead: None,
        };
        let mut readings = Vec::new();
        for granted in store.acquire(&request).await.unwrap().granted {
            let loaded = store.load(&granted.lease, &a()).await.unwrap();
            readings.push((granted.lease, loaded.cursor));
        }
        Relay { store, readings }
    }

    /// Lets go of everything.
    pub(crate) async fn go(&self) {
        let leases: Vec<Lease> = self.readings.iter().map(|(lease, _)| lease.clone()).collect();
        self.store.release(&leases).await.unwrap();
    }

    /// How many partitions it owns.
    pub(crate) fn owns(&self) -> usize {
        self.readings.len()
    }

    /// A relay that believes to have the same leases.
    pub(crate) async fn twin(&self, store: DynamoStore) -> Relay {
        store.open().await.unwrap();
        let mut readings = Vec::new();
        for (lease, _) in &self.readings {
            let loaded = store.load(lease, &a()).await.unwrap();
            readings.push((lease.clone(), loaded.cursor));
        }
        Relay { store, readings }
    }

    /// What stands behind its cursors, and a settlement that says it was acknowledged.
    pub(crate) async fn read(&self) -> Vec<Settlement> {
        let mut read = Vec::new();
        for (lease, at) in &self.readings {
            let page = self.store.fetch(&request(lease, at)).await.unwrap();
            read.push(acknowledged(lease, at, &page));
        }
        read
    }

    /// The same of the first partition, with the rows.
    pub(crate) async fn read_rows(&self) -> (Settlement, Vec<FetchedRow>) {
        let (lease, at) = &self.readings[0];
        let page = self.try_read().await.unwrap();
        (acknowledged(lease, at, &page), page.rows)
    }

    /// What stands behind the cursor of the first partition.
    pub(crate) async fn try_read(&self) -> Result<Page> {
        let (lease, at) = &self.readings[0];
        self.store.fetch(&request(lease, at)).await
    }

    /// The head of the first partition, for a drain.
    pub(crate) async fn head(&self) -> Cursor {
        self.store.head(&self.readings[0].0).await.unwrap()
    }

    /// What stands behind the cursor of the first partition, before a head.
    pub(crate) async fn before(&self, head: &Cursor) -> Page {
        let (lease, at) = &self.readings[0];
        let request = FetchRequest { until: Some(head.clone()), ..request(lease, at) };
        self.store.fetch(&request).await.unwrap()
    }

    /// The same, when the stream is read, and the index will not be asked any more.
    pub(crate) async fn live(store: DynamoStore) -> Relay {
        let mut relay = Relay::start(store).await;
        while !relay.store.is_live() {
            relay.store.wake().await;
        }
        relay.drain().await;
        relay
    }

    /// What stands behind a cursor of the first partition, while what is before it is under way.
    pub(crate) async fn behind(&self, after: &Cursor) -> Page {
        self.store.fetch(&request(&self.readings[0].0, after)).await.unwrap()
    }

    /// What is new in every partition, settled as acknowledged.
    pub(crate) async fn drain(&mut self) -> Vec<FetchedRow> {
        let mut rows = Vec::new();
        for (lease, at) in &mut self.readings {
            let request = request(lease, at);
            let page = self.store.fetch(&request).await.unwrap();
            if !page.rows.is_empty() {
                self.store.settle(&acknowledged(lease, at, &page)).await.unwrap();
            }
            *at = page.end;
            rows.extend(page.rows);
        }
        rows
    }

    /// Until something may have come.
    pub(crate) async fn woken(&self) {
        self.store.wake().await;
    }

    /// At most so many rows of the first partition, settled as acknowledged.
    pub(crate) async fn take(&mut self, rows_max: u32) -> Result<Vec<FetchedRow>> {
        let (lease, at) = &mut self.readings[0];
        let request = FetchRequest { rows_max, ..request(lease, at) };
        let page = self.store.fetch(&request).await?;
        if !page.rows.is_empty() {
            self.store.settle(&acknowledged(lease, at, &page)).await?;
        }
        *at = page.end;
        Ok(page.rows)
    }

    /// Drains at every wake until so many events came.
    pub(crate) async fn hear(&mut self, events: usize) -> Vec<EventId> {
        let mut heard = Vec::new();
        while heard.len() < events {
            heard.extend(self.drain().await.iter().map(|row| row.row.id));
            if heard.len() < events {
                self.store.wake().await;
            }
        }
        heard
    }
}

/// All of a page, acknowledged.
fn acknowledged(lease: &Lease, at: &Cursor, page: &Page) -> Settlement {
    let mut part = SettlementPart::new(a());
    part.cursor = Some((at.clone(), page.end.clone()));
    part.passed = page.rows.iter().map(|row| (row.row, Passed::Acked)).collect();
    Settlement { lease: lease.clone(), parts: vec![part] }
}

fn request(lease: &Lease, after: &Cursor) -> FetchRequest {
    FetchRequest {
        lease: lease.clone(),
        destinations: vec![a()],
        after: after.clone(),
        until: None,
        rows_max: 1_000,
        bytes_max: u64::MAX,
    }
}
