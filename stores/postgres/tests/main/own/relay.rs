//! What relays do with a table: at least once, in order, by one at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::lease::AcquireRequest;
use postrider_core::source::{FetchRequest, FetchedRow, OutboxSource};
use postrider_core::waiting::{
    Attempted, NewWaiting, Passed, Placement, Reason, Settlement, SettlementPart, WaitingChange,
};
use postrider_core::{Cursor, Destination, ErrorKind, EventId, Lease, NewEvent, RelayId, Result};
use postrider_postgres::OwnTable;

use super::table::{Layout, Own, deleting};
use crate::support::{destination, id};

const ALL: [Layout; 3] = [Layout::PublishedAt, Layout::Status, Layout::Debezium];

/// A relay reduced to its calls, with the destination `a`.
pub(super) struct Relay {
    pub(super) table: OwnTable,
    pub(super) lease: Lease,
}

impl Relay {
    /// A relay that takes the partition over from whoever has it.
    pub(super) async fn of(table: OwnTable) -> Relay {
        table.open().await.expect("open");
        table.register(&[destination("a")]).await.expect("register");
        let mut request = AcquireRequest {
            owner: RelayId::mint(),
            lease_duration: Duration::from_secs(600),
            wanted: 1,
            free_for: Duration::ZERO,
            presence: None,
            current: true,
            dead: None,
        };
        let first = table.acquire(&request).await.expect("acquire");
        let mut granted = first.granted;
        if let Some(held) = first.held.into_iter().next() {
            request.dead = Some(held.lease);
            granted = table.acquire(&request).await.expect("acquire").granted;
        }
        Relay { table, lease: granted.remove(0).lease }
    }

    pub(super) async fn load(&self) -> Cursor {
        self.table.load(&self.lease, &id("a")).await.expect("load").cursor
    }

    pub(super) async fn fetch(&self, after: Cursor, of: &str) -> Result<Vec<FetchedRow>> {
        let request = FetchRequest {
            lease: self.lease.clone(),
            destinations: vec![id(of)],
            after,
            until: None,
            rows_max: 1_000,
            bytes_max: 1 << 24,
        };
        Ok(self.table.fetch(&request).await?.rows)
    }

    /// What is pending, from the beginning.
    pub(super) async fn read(&self) -> Vec<FetchedRow> {
        let cursor = self.load().await;
        self.fetch(cursor, "a").await.expect("fetch")
    }

    pub(super) async fn settle(&self, part: SettlementPart) -> Result<()> {
        self.table.settle(&Settlement { lease: self.lease.clone(), parts: vec![part] }).await
    }

    /// Publishes what is pending, and marks it.
    pub(super) async fn publish(&self) -> Vec<EventId> {
        let rows = self.read().await;
        let mut part = SettlementPart::new(id("a"));
        part.passed = rows.iter().map(|row| (row.row, Passed::Acked)).collect();
        self.settle(part).await.expect("settle");
        rows.iter().map(|row| row.row.id).collect()
    }
}

pub(super) fn event(key: &str, n: u32) -> NewEvent {
    NewEvent::new("order", key, format!("order.changed.{n}")).json(&n).expect("JSON")
}

pub(super) fn ids(events: &[NewEvent]) -> Vec<EventId> {
    events.iter().map(|event| event.event().id).collect()
}

pub(super) fn dead(row: &FetchedRow) -> NewWaiting {
    let attempted =
        Attempted { attempts: 10, reason: Reason::GaveUp, detail: "410 gone".to_owned() };
    NewWaiting {
        row: row.row,
        key_hash: row.key_hash,
        event: row.event.as_ref().ok().cloned(),
        placement: Placement::Dead { attempted, holds_key: true },
    }
}

/// R031, F1: killed between the broker's acknowledgement and the mark, the event comes again from the
/// next owner; nothing is lost, and the late mark of the dead one is refused.
#[tokio::test]
async fn a_relay_that_dies_before_the_mark_delivers_again() {
    for layout in ALL {
        let Some(own) = Own::new(layout).await else { return };
        let events: Vec<_> = (0..5).map(|n| event("1", n)).collect();
        own.commit(&events).await.expect("commit");
        let first = Relay::of(own.source()).await;
        let sent = first.read().await;
        assert_eq!(sent.len(), 5, "handed out, and acknowledged by the broker");
        let next = Relay::of(own.source()).await;
        let mut late = SettlementPart::new(id("a"));
        late.passed = sent.iter().map(|row| (row.row, Passed::Acked)).collect();
        let refused = first.settle(late).await.expect_err("a stale token");
        assert_eq!(refused.kind(), ErrorKind::Fenced, "{layout:?}: {refused}");
        let cursor = first.load().await;
        let refused = first.fetch(cursor, "a").await.expect_err("a stale token");
        assert_eq!(refused.kind(), ErrorKind::Fenced, "{layout:?}: {refused}");
        assert_eq!(own.layout.pending(&own.fresh).await, 5, "{layout:?}");
        assert_eq!(next.publish().await, ids(&events), "{layout:?}: again, in order");
        assert_eq!(own.layout.pending(&own.fresh).await, 0, "{layout:?}");
        assert_eq!(next.read().await.len(), 0, "{layout:?}");
    }
}

/// R017, R018: a dead letter is not marked as published (INV-7). It is when it was delivered.
#[tokio::test]
async fn what_waits_is_not_marked_until_it_is_delivered() {
    for layout in ALL {
        let Some(own) = Own::new(layout).await else { return };
        let events: Vec<_> = (0..3).map(|n| event("1", n)).collect();
        own.commit(&events).await.expect("commit");
        let relay = Relay::of(own.source()).await;
        let rows = relay.read().await;
        let mut part = SettlementPart::new(id("a"));
        part.passed = vec![(rows[0].row, Passed::Acked), (rows[1].row, Passed::Waiting)];
        part.waiting.push(dead(&rows[1]));
        relay.settle(part.clone()).await.expect("settle");
        relay.settle(part).await.expect("the same again");
        assert_eq!(own.layout.pending(&own.fresh).await, 2, "{layout:?}");
        let counts = relay.table.counts(&id("a")).await.expect("counts");
        assert_eq!((counts.dead, counts.total()), (1, 1), "{layout:?}");
        let again = Relay::of(own.source()).await;
        let left: Vec<_> = again.read().await.iter().map(|row| row.row.id).collect();
        assert_eq!(left, ids(&events[2..]), "{layout:?}: the dead letter is not handed out");
        let mut delivered = SettlementPart::new(id("a"));
        delivered.changes.push(WaitingChange::Delivered(rows[1].row));
        again.settle(delivered).await.expect("settle");
        assert_eq!(own.layout.pending(&own.fresh).await, 1, "{layout:?}");
        let passed = own.fresh.number("select count(*) from {outbox_own_passed}").await;
        assert_eq!(passed, 0, "{layout:?}: what is marked is not noted");
    }
}

/// INV-7: settlements that change what waits are numbered, as the store's own are, so that one which was on its way for
/// long is refused behind a later one, and undoes nothing that an operator did meanwhile.
#[tokio::test]
async fn what_changes_what_waits_is_numbered() {
    let Some(own) = Own::new(Layout::Status).await else { return };
    own.commit(&[event("1", 1)]).await.expect("commit");
    let relay = Relay::of(own.source()).await;
    let row = relay.read().await.remove(0);
    let settled = "select max(settled) from {outbox_renewal}";
    let mut part = SettlementPart::new(id("a"));
    part.passed = vec![(row.row, Passed::Waiting)];
    part.waiting.push(dead(&row));
    relay.settle(part).await.expect("settle");
    let first = own.fresh.number(settled).await;
    let mut delivered = SettlementPart::new(id("a"));
    delivered.changes.push(WaitingChange::Delivered(row.row));
    relay.settle(delivered).await.expect("settle");
    assert!(own.fresh.number(settled).await > first && first > 0);
    let late = own.fresh.sql(&format!(
        "select {{outbox_settle}}({}::smallint, '{}', {}, null, true, '[]', {first})",
        relay.lease.partition.0,
        relay.lease.owner.as_str(),
        relay.lease.token
    ));
    let refused = own.fresh.connect().await.batch_execute(&late).await.unwrap_err();
    assert_eq!(refused.code().map(|code| code.code().to_owned()).as_deref(), Some("PRC01"));
}

/// An event that no route of the destination matches is the built-in one's, and nobody marks it.
#[tokio::test]
async fn what_no_route_matches_is_handed_to_the_built_in_destination() {
    for layout in ALL {
        let Some(own) = Own::new(layout).await else { return };
        own.commit(&[event("1", 1), event("2", 1)]).await.expect("commit");
        let relay = Relay::of(own.source()).await;
        let unrouted = id(Destination::UNROUTED);
        let start = relay.table.load(&relay.lease, &unrouted).await.expect("load").cursor;
        assert_eq!(relay.fetch(start.clone(), "unrouted").await.expect("fetch"), []);
        let rows = relay.read().await;
        let mut part = SettlementPart::new(id("a"));
        part.passed = vec![(rows[0].row, Passed::OtherRoute), (rows[1].row, Passed::Acked)];
        relay.settle(part).await.expect("settle");
        let handed = relay.fetch(start, "unrouted").await.expect("fetch");
        assert_eq!((handed.len(), handed[0].row), (1, rows[0].row), "{layout:?}");
        assert_eq!(relay.read().await, [], "{layout:?}: it was passed");
        // The routes have changed meanwhile: it is the destination's after all.
        let mut part = SettlementPart::new(unrouted);
        part.passed = vec![(rows[0].row, Passed::OtherRoute)];
        relay.settle(part).await.expect("settle");
        assert_eq!(relay.read().await.len(), 1, "{layout:?}");
        assert_eq!(own.layout.pending(&own.fresh).await, 1, "{layout:?}");
    }
}

/// R118: writers side by side, late commits with lower numbers, and an owner that changes:
/// everything is published once without a crash, and each key in its order.
#[tokio::test]
async fn writers_side_by_side_lose_nothing() {
    for layout in ALL {
        let Some(own) = Own::new(layout).await else { return };
        let writers = futures_util::future::join_all((0..8).map(|writer: u32| {
            let own = &own;
            async move {
                for n in 0..12 {
                    own.commit(&[
                        event(&writer.to_string(), n),
                        event(&writer.to_string(), 100 + n),
                    ])
                    .await
                    .expect("commit");
                }
            }
        }));
        let reader = async {
            let mut published: Vec<FetchedRow> = Vec::new();
            let mut turn = 0;
            while published.len() < 8 * 24 {
                let relay = Relay::of(own.source()).await;
                let mut after = relay.load().await;
                for _ in 0..4 {
                    let rows = relay.fetch(after.clone(), "a").await.expect("fetch");
                    let mut part = SettlementPart::new(id("a"));
                    part.passed = rows.iter().map(|row| (row.row, Passed::Acked)).collect();
                    after = rows.last().map_or(after, |row| row.cursor.clone());
                    relay.settle(part).await.expect("settle");
                    published.extend(rows);
                }
                turn += 1;
                assert!(turn < 10_000, "{layout:?}: only {} were published", published.len());
            }
            published
        };
        let (_, published) = futures_util::future::join(writers, reader).await;
        let mut keys: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for row in &published {
            let event = row.event.as_ref().expect("an event");
            let n = event.event_type.rsplit('.').next().and_then(|n| n.parse().ok());
            keys.entry(event.key()).or_default().push(n.expect("a number"));
        }
        let expected: Vec<u32> = (0..12).flat_map(|n| [n, 100 + n]).collect();
        for (key, read) in keys {
            let mut sorted = read.clone();
            sorted.sort_unstable();
            assert_eq!(sorted.len(), 24, "{layout:?}: {key}: none twice, none lost");
            if layout != Layout::Debezium {
                assert_eq!(read, expected, "{layout:?}: {key}");
            }
        }
        assert_eq!(own.layout.pending(&own.fresh).await, 0, "{layout:?}");
        assert_eq!(own.fresh.number("select count(*) from {outbox_own_number}").await, 0);
    }
}

/// A row that the application's own loop marked meanwhile is its own: nothing is written over.
#[tokio::test]
async fn a_mark_of_somebody_else_stands() {
    let Some(own) = Own::new(Layout::PublishedAt).await else { return };
    own.commit(&[event("1", 1)]).await.expect("commit");
    let relay = Relay::of(own.source()).await;
    let rows = relay.read().await;
    own.fresh.run("update {schema}.\"own events\" set published_at = '2001-01-01'").await;
    let mut part = SettlementPart::new(id("a"));
    part.passed = vec![(rows[0].row, Passed::Acked)];
    relay.settle(part).await.expect("settle");
    let kept = "select count(*) from {schema}.\"own events\" where published_at = '2001-01-01'";
    assert_eq!(own.fresh.number(kept).await, 1);
}

/// A row that somebody has locked holds back no other, and is marked when it is let go: without being sent again, and also
/// where nothing else is to be marked.
#[tokio::test]
async fn a_row_that_is_locked_is_marked_later() {
    for layout in ALL {
        let Some(own) = Own::new(layout).await else { return };
        own.commit(&[event("1", 1), event("2", 1)]).await.expect("commit");
        let relay = Relay::of(own.source()).await;
        let rows = relay.read().await;
        let holder = own.fresh.connect().await;
        let lock = own.fresh.sql(&format!(
            "begin; select from {{schema}}.\"own events\" where {} = '{}' for update",
            if layout == Layout::Status { "event_id" } else { "id" },
            rows[0].row.id
        ));
        holder.batch_execute(&lock).await.expect("lock");
        let mut part = SettlementPart::new(id("a"));
        part.passed = rows.iter().map(|row| (row.row, Passed::Acked)).collect();
        relay.settle(part.clone()).await.expect("settle");
        assert_eq!(own.layout.pending(&own.fresh).await, 1, "{layout:?}: the other is marked");
        assert_eq!(relay.read().await, [], "{layout:?}: it is not sent again");
        holder.batch_execute("rollback").await.expect("roll back");
        assert_eq!(relay.read().await, [], "{layout:?}");
        assert_eq!(own.layout.pending(&own.fresh).await, 0, "{layout:?}");
    }
}

/// A row is deleted by what it is, not by a number that another row has by now.
#[tokio::test]
async fn a_number_that_was_given_again_deletes_nobody() {
    let Some(own) = Own::new(Layout::Status).await else { return };
    own.commit(&[event("1", 1)]).await.expect("commit");
    let relay = Relay::of(own.with(deleting(own.mapping()))).await;
    let rows = relay.read().await;
    own.fresh.run("truncate {schema}.\"own events\" restart identity").await;
    own.commit(&[event("2", 1)]).await.expect("commit");
    let mut part = SettlementPart::new(id("a"));
    part.passed = vec![(rows[0].row, Passed::Acked)];
    relay.settle(part).await.expect("settle");
    assert_eq!(own.layout.pending(&own.fresh).await, 1, "the other row is there");
}

/// R010: rows without a number go out as one transaction wrote them, by a time or by nothing, and in one
/// order however often they are read.
#[tokio::test]
async fn rows_without_a_number_keep_the_order_of_their_transaction() {
    for layout in [Layout::PublishedAt, Layout::Debezium] {
        let Some(own) = Own::new(layout).await else { return };
        let events: Vec<_> = (0..300).map(|n| event("1", n)).collect();
        own.commit(&events[..200]).await.expect("commit");
        own.commit(&events[200..]).await.expect("commit");
        let mut mapping = own.mapping();
        if layout == Layout::PublishedAt {
            mapping.order = Some("created_at".to_owned());
        }
        for _ in 0..2 {
            let relay = Relay::of(own.with(mapping.clone())).await;
            let read: Vec<_> = relay.read().await.iter().map(|row| row.row.id).collect();
            assert_eq!(read, ids(&events), "{layout:?}");
        }
        let numbers = own.fresh.number("select count(*) from {outbox_own_number}").await;
        assert_eq!(numbers, 300, "{layout:?}: each has one");
        Relay::of(own.with(mapping)).await.publish().await;
        assert_eq!(own.layout.pending(&own.fresh).await, 0, "{layout:?}");
        assert_eq!(own.fresh.number("select count(*) from {outbox_own_number}").await, 0);
    }
}
