//! The operator's side: readings, requests, and changes, each with what it leaves in the tables.

mod change;
mod doctor;
mod erase;
mod events;
mod inbox;
mod overview;
mod recount;
mod request;
mod scheduled;
mod waiting;

use postrider_core::operate::{Filter, Listed, Note, Operator, PageRequest};
use postrider_core::source::{CarryOutRequest, FetchRequest, FetchedRow, OutboxSource};
use postrider_core::waiting::{
    Attempted, DisabledEndpoint, NewWaiting, Passed, Placement, Reason, Settlement, SettlementPart,
};
use postrider_core::{Destination, Lease, Match, NewEvent, Result, Route, Timestamp};
use postrider_sqlite::SqliteStore;

use crate::support::{Fresh, LONG, acquire, id};

/// A store with destinations, a relay's lease on it, and how far each destination is.
pub(crate) struct Play {
    pub(crate) fresh: Fresh,
    pub(crate) store: SqliteStore,
    pub(crate) lease: Lease,
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
    /// A store with these destinations.
    pub(crate) async fn begin(destinations: &[Destination]) -> Play {
        let fresh = Fresh::new();
        let store = fresh.store();
        store.open().await.expect("open");
        store.register(destinations).await.expect("register");
        let lease = acquire(&store, LONG).await.expect("the lease is free").lease;
        Play { fresh, store, lease }
    }

    pub(crate) fn commit(&self, events: &[NewEvent]) {
        self.fresh.commit(events);
    }

    /// What is behind the cursor of a destination.
    pub(crate) async fn fetch(&self, destination: &str) -> Vec<FetchedRow> {
        let loaded = self.store.load(&self.lease, &id(destination)).await.expect("load");
        let request = FetchRequest {
            lease: self.lease.clone(),
            destinations: vec![id(destination)],
            after: loaded.cursor,
            until: None,
            rows_max: 100_000,
            bytes_max: u64::MAX,
        };
        self.store.fetch(&request).await.expect("fetch").rows
    }

    /// Settles the next events of a destination, one for each act; a cycle of acts for all of them.
    pub(crate) async fn settle(&self, destination: &str, acts: &[Act]) {
        let rows = self.fetch(destination).await;
        self.settle_rows(destination, &rows[..acts.len()], acts).await;
    }

    /// Settles all that is left, by a cycle of acts.
    pub(crate) async fn settle_all(&self, destination: &str, cycle: &[Act]) {
        let rows = self.fetch(destination).await;
        let acts: Vec<Act> = cycle.iter().copied().cycle().take(rows.len()).collect();
        self.settle_rows(destination, &rows, &acts).await;
    }

    /// Carries out what was asked for, as the owner does; a lease that was surrendered is taken anew.
    pub(crate) async fn carry_out(&mut self) {
        loop {
            let request = CarryOutRequest { leases: vec![self.lease.clone()], rows_max: 1_000 };
            let done = self.store.carry_out(&request).await.expect("carry out");
            if !done.surrendered.is_empty() {
                self.lease = acquire(&self.store, LONG).await.expect("the lease is free").lease;
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

    async fn settle_rows(&self, destination: &str, rows: &[FetchedRow], acts: &[Act]) {
        let Some(last) = rows.last() else { return };
        let loaded = self.store.load(&self.lease, &id(destination)).await.expect("load");
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
        let settlement = Settlement { lease: self.lease.clone(), parts: vec![part] };
        self.store.settle(&settlement).await.expect("settle");
    }
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

/// How a statement is carried out, as SQLite tells it.
pub(crate) fn plan(fresh: &Fresh, statement: &str) -> String {
    let connection = fresh.connect();
    let mut statement =
        connection.prepare(&format!("explain query plan {statement}")).expect("a statement");
    let lines = statement
        .query_map(rusqlite::params_from_iter(vec![0; statement.parameter_count()]), |row| {
            row.get::<_, String>(3)
        })
        .and_then(Iterator::collect::<rusqlite::Result<Vec<String>>>);
    lines.expect("a plan").join("\n")
}
