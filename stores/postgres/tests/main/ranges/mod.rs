//! Ranges: what of a key is not copied because so much of it waits, as this store keeps it.

mod back;
mod operated;
mod settled;
mod told;
mod way;

use postrider_core::range::{Range, RangeChange};
use postrider_core::source::{FetchRequest, OutboxSource, Page};
use postrider_core::waiting::{Passed, Settlement, SettlementPart};
use postrider_core::{Cursor, KeyHash, Lease, Result};
use postrider_postgres::PostgresStore;

use crate::fetch::beginning;
use crate::support::{Fresh, id};

/// The key that has a range.
const KEY: &str = "order/hot";

fn hash() -> KeyHash {
    KeyHash::of(KEY)
}

/// A store of one partition with the destination `a`, whose owner it is.
struct Play {
    fresh: Fresh,
    store: PostgresStore,
    lease: Lease,
}

impl Play {
    async fn new() -> Option<Play> {
        Some(Play::of(Fresh::new(1).await?).await)
    }

    async fn of(fresh: Fresh) -> Play {
        let (store, lease) = fresh.relay().await;
        Play { fresh, store, lease }
    }

    /// Commits events, each of one of these aggregates.
    async fn commit(&self, aggregates: &[&str]) {
        for aggregate in aggregates {
            let insert = format!(
                "insert into {{outbox}} (aggregate_type, aggregate_id, event_type, payload)
                values ('order', '{aggregate}', 't', '{{}}')"
            );
            self.fresh.run(&insert).await;
        }
    }

    async fn page(&self, after: &Cursor, until: Option<&Cursor>, rows_max: u32) -> Page {
        self.ask(after, until, rows_max).await.expect("fetch")
    }

    async fn ask(&self, after: &Cursor, until: Option<&Cursor>, rows_max: u32) -> Result<Page> {
        let request = FetchRequest {
            lease: self.lease.clone(),
            destinations: vec![id("a")],
            after: after.clone(),
            until: until.cloned(),
            rows_max,
            bytes_max: 1 << 20,
        };
        self.store.fetch(&request).await
    }

    /// The destination passes all that is there, with a range of the key from the event at a place on: that and all
    /// later ones of the key wait by it. Returns where the range begins, and where the destination is.
    async fn pass_with_range(&self, first: usize) -> (Cursor, Cursor) {
        let from = self.saved().await;
        let page = self.page(&from, None, 1_000).await;
        let before = first.checked_sub(1).map_or(&from, |last| &page.rows[last].cursor).clone();
        let mut part = SettlementPart::new(id("a"));
        part.cursor = Some((from, page.end.clone()));
        for row in &page.rows[..] {
            let waits = row.key_hash == hash() && row.row.seq >= page.rows[first].row.seq;
            let passed = if waits { Passed::Waiting } else { Passed::Acked };
            part.passed.push((row.row, passed));
        }
        part.ranges = vec![open(&before)];
        self.settle(part).await.expect("settle");
        (before, page.end)
    }

    async fn settle(&self, part: SettlementPart) -> Result<()> {
        self.store.settle(&Settlement { lease: self.lease.clone(), parts: vec![part] }).await
    }

    async fn change(&self, ranges: Vec<RangeChange>) -> Result<()> {
        let mut part = SettlementPart::new(id("a"));
        part.ranges = ranges;
        self.settle(part).await
    }

    async fn saved(&self) -> Cursor {
        self.store.load(&self.lease, &id("a")).await.expect("load").cursor
    }

    /// Where the ranges stand, by their keys.
    async fn ranges(&self) -> Vec<(String, Cursor)> {
        let loaded = self.store.load(&self.lease, &id("a")).await.expect("load");
        let ranges = loaded.ranges.expect("it keeps ranges").into_iter();
        ranges.map(|range| (range.key.into(), range.cursor)).collect()
    }
}

fn open(at: &Cursor) -> RangeChange {
    let range = Range { key_hash: hash(), key: KEY.into(), cursor: at.clone(), version: 1 };
    RangeChange::Open(range)
}

fn close(from: &Cursor) -> RangeChange {
    RangeChange::Close { key_hash: hash(), from: from.clone() }
}

fn step(from: &Cursor, to: &Cursor) -> RangeChange {
    RangeChange::Move { key_hash: hash(), from: from.clone(), to: to.clone() }
}
