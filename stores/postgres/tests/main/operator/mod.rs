//! The operator's side: readings, requests, and changes, each with what it leaves in the tables.

mod erased;
mod events;
mod find;
mod left;
mod numbers;
mod overview;
mod plans;
mod rewound;
mod scheduled;
mod waiting;
mod wide;

use postrider_core::lease::AcquireRequest;
use postrider_core::operate::{Filter, Listed, Note, Operator, PageRequest};
use postrider_core::source::{CarryOutRequest, FetchRequest, FetchedRow, OutboxSource};
use postrider_core::waiting::{
    Attempted, DisabledEndpoint, NewWaiting, Passed, Placement, Reason, Settlement, SettlementPart,
};
use postrider_core::{Destination, Lease, Match, NewEvent, RelayId, Result, Route, Timestamp};
use postrider_postgres::{Outbox, PostgresStore};

use crate::support::{Fresh, LONG, id};

/// A store with destinations, and a relay's leases on it.
pub(crate) struct Play {
    pub(crate) fresh: Fresh,
    pub(crate) store: PostgresStore,
    /// Of partition 0.
    pub(crate) lease: Lease,
    /// Of every partition.
    pub(crate) leases: Vec<Lease>,
}

/// What a relay does with an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Act {
    Ack,
    Elsewhere,
    Drop,
    Erased,
    Retry,
    Hold,
    Park,
    Dead,
    Disable,
}

impl Play {
    /// A store of one partition with these destinations; nothing where there is no server.
    pub(crate) async fn begin(destinations: &[Destination]) -> Option<Play> {
        Play::wide(1, destinations).await
    }

    /// The same with so many partitions.
    pub(crate) async fn wide(partitions: u16, destinations: &[Destination]) -> Option<Play> {
        Play::on(Fresh::new(partitions).await?, partitions, destinations).await
    }

    /// The same in tables that nobody had before: what is read of them, and by which plan, depends on that.
    pub(crate) async fn made(partitions: u16, destinations: &[Destination]) -> Option<Play> {
        Play::on(Fresh::made(partitions).await?, partitions, destinations).await
    }

    /// The same in these tables.
    pub(crate) async fn on(
        fresh: Fresh,
        partitions: u16,
        destinations: &[Destination],
    ) -> Option<Play> {
        let store = fresh.store();
        store.open().await.expect("open");
        store.register(destinations).await.expect("register");
        let mut leases = acquire(&store, partitions).await;
        leases.sort_by_key(|lease| lease.partition);
        assert_eq!(leases.len(), usize::from(partitions), "every lease is free");
        Some(Play { fresh, store, lease: leases[0].clone(), leases })
    }

    pub(crate) async fn commit(&self, events: &[NewEvent]) {
        let mut client = self.fresh.connect().await;
        let tx = client.transaction().await.expect("begin");
        let outbox = Outbox::named(self.fresh.names.clone());
        outbox.enqueue_many(&tx, events).await.expect("staged");
        tx.commit().await.expect("commit");
    }

    /// What is behind the cursor of a destination in partition 0.
    pub(crate) async fn fetch(&self, destination: &str) -> Vec<FetchedRow> {
        self.fetch_from(&self.lease, destination).await
    }

    async fn fetch_from(&self, lease: &Lease, destination: &str) -> Vec<FetchedRow> {
        let loaded = self.store.load(lease, &id(destination)).await.expect("load");
        let mut request = FetchRequest {
            lease: lease.clone(),
            destinations: vec![id(destination)],
            after: loaded.cursor,
            until: None,
            rows_max: 100_000,
            bytes_max: u64::MAX / 2,
        };
        let mut rows = Vec::new();
        // One target after the other, until nothing is new to the cursor.
        loop {
            let page = self.store.fetch(&request).await.expect("fetch");
            let done = page.rows.is_empty() && !page.more && page.end == request.after;
            rows.extend(page.rows);
            if done {
                return rows;
            }
            request.after = page.end;
        }
    }

    /// The same of every partition.
    pub(crate) async fn fetch_all(&self, destination: &str) -> Vec<FetchedRow> {
        let mut rows = Vec::new();
        for lease in &self.leases {
            rows.extend(self.fetch_from(lease, destination).await);
        }
        rows
    }

    /// Takes every lease anew, after they were released.
    pub(crate) async fn take_leases(&mut self) {
        self.leases = acquire(&self.store, u16::MAX).await;
        self.leases.sort_by_key(|lease| lease.partition);
        self.lease = self.leases[0].clone();
    }

    /// Settles the next events of a destination, one for each act.
    pub(crate) async fn settle(&self, destination: &str, acts: &[Act]) {
        let rows = self.fetch(destination).await;
        self.settle_rows(&self.lease, destination, &rows[..acts.len()], acts).await;
    }

    /// Settles all that is left in every partition, by a cycle of acts.
    pub(crate) async fn settle_all(&self, destination: &str, cycle: &[Act]) {
        for lease in &self.leases {
            let rows = self.fetch_from(lease, destination).await;
            let acts: Vec<Act> = cycle.iter().copied().cycle().take(rows.len()).collect();
            self.settle_rows(lease, destination, &rows, &acts).await;
        }
    }

    /// Carries out what was asked for, as the owner does; leases that were surrendered are taken anew.
    pub(crate) async fn carry_out(&mut self) {
        loop {
            let request = CarryOutRequest { leases: self.leases.clone(), rows_max: 1_000 };
            let done = self.store.carry_out(&request).await.expect("carry out");
            if !done.surrendered.is_empty() {
                let gone = |lease: &Lease| {
                    done.surrendered.iter().any(|gone| gone.partition == lease.partition)
                };
                self.leases.retain(|lease| !gone(lease));
                self.leases.extend(acquire(&self.store, u16::MAX).await);
                self.leases.sort_by_key(|lease| lease.partition);
                self.lease = self.leases[0].clone();
            }
            if !done.more {
                return;
            }
        }
    }

    /// What the audit table says was done, newest first.
    pub(crate) async fn audited(&self) -> Vec<(String, String)> {
        let rows = self.store.audit(&page(100, None)).await.expect("audit").rows;
        rows.into_iter().map(|row| (row.what, row.subject)).collect()
    }

    async fn settle_rows(
        &self,
        lease: &Lease,
        destination: &str,
        rows: &[FetchedRow],
        acts: &[Act],
    ) {
        let Some(last) = rows.last() else { return };
        let loaded = self.store.load(lease, &id(destination)).await.expect("load");
        let mut part = SettlementPart::new(id(destination));
        part.cursor = Some((loaded.cursor, last.cursor.clone()));
        for (row, act) in rows.iter().zip(acts) {
            let passed = match act {
                Act::Ack => Passed::Acked,
                Act::Elsewhere => Passed::OtherRoute,
                Act::Drop => Passed::Dropped,
                Act::Erased => Passed::Erased,
                Act::Retry | Act::Hold | Act::Park | Act::Dead | Act::Disable => Passed::Waiting,
            };
            part.passed.push((row.row, passed));
            if *act == Act::Disable {
                let endpoint = DisabledEndpoint { topic: "gone".into(), detail: String::new() };
                part.disabled.push(endpoint);
            }
            if passed == Passed::Waiting {
                part.waiting.push(NewWaiting {
                    row: row.row,
                    key_hash: row.key_hash,
                    event: None,
                    placement: placement(*act),
                });
            }
        }
        let settlement = Settlement { lease: lease.clone(), parts: vec![part] };
        self.store.settle(&settlement).await.expect("settle");
    }
}

async fn acquire(store: &PostgresStore, wanted: u16) -> Vec<Lease> {
    let request = AcquireRequest {
        owner: RelayId::mint(),
        lease_duration: LONG,
        wanted,
        free_for: std::time::Duration::ZERO,
        presence: None,
        current: true,
        dead: None,
    };
    let granted = store.acquire(&request).await.expect("acquire").granted;
    granted.into_iter().map(|granted| granted.lease).collect()
}

fn placement(act: Act) -> Placement {
    let failed =
        |detail: &str| Attempted { attempts: 3, reason: Reason::Failed, detail: detail.to_owned() };
    let refused = Attempted { reason: Reason::Held, ..failed("401 Unauthorized") };
    match act {
        Act::Hold => Placement::Retry { delay: LONG, attempted: refused },
        Act::Retry => Placement::Retry { delay: LONG, attempted: failed("503 Busy\nmore") },
        Act::Dead => Placement::Dead { attempted: failed("400 Bad Request"), holds_key: true },
        Act::Disable => {
            Placement::Disabled { endpoint: "gone".into(), attempted: failed("410 Gone") }
        }
        _ => Placement::Behind(Reason::Behind),
    }
}

/// A destination that takes everything.
pub(crate) fn everything(name: &str) -> Destination {
    crate::support::destination(name)
}

/// A destination that takes events of some types.
pub(crate) fn only(name: &str, pattern: &str) -> Destination {
    let topic = "orders".parse().expect("a template");
    Destination::new(id(name), "local", vec![Route::all(topic).only(Match::event_type(pattern))])
}

/// An event of a type, about an order.
pub(crate) fn of_type(event_type: &str, order: u32) -> NewEvent {
    NewEvent::new("order", order.to_string(), event_type).json(&order).expect("JSON")
}

pub(crate) fn note() -> Note {
    Note::new("anna@db1", "a test").expect("a note")
}

pub(crate) fn page(limit: u32, after: Option<&str>) -> PageRequest {
    PageRequest { after: after.map(str::to_owned), limit }
}

pub(crate) fn all() -> Filter {
    Filter::default()
}

/// Every page of a list, joined.
pub(crate) async fn joined<T, F>(limit: u32, mut read: F) -> Vec<T>
where
    F: AsyncFnMut(&PageRequest) -> Result<Listed<T>>,
{
    let mut rows = Vec::new();
    let mut request = page(limit, None);
    for _ in 0..100_000 {
        let listed = read(&request).await.expect("a page");
        assert!(listed.rows.len() <= limit as usize);
        rows.extend(listed.rows);
        match listed.next {
            Some(next) => request.after = Some(next),
            None => return rows,
        }
    }
    panic!("the pages have no end");
}

/// A moment far away.
pub(crate) fn later() -> Timestamp {
    "2990-01-01T00:00:00Z".parse().expect("a time")
}
