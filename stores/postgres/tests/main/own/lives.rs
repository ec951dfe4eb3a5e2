//! A number, and what was said of it, is of one row: what the application does to its rows hides none of them.

use postrider_core::operate::{Level, Operator};
use postrider_core::source::{FetchedRow, OutboxSource};
use postrider_core::waiting::{Passed, SettlementPart, WaitingChange};
use postrider_core::{ErrorKind, Timestamp};

use super::relay::{Relay, dead, event, ids};
use super::table::{Layout, Own};
use crate::support::id;

/// Everything that is pending becomes a dead letter.
async fn refuse(relay: &Relay) -> Vec<FetchedRow> {
    let rows = relay.read().await;
    let mut part = SettlementPart::new(id("a"));
    part.passed = rows.iter().map(|row| (row.row, Passed::Waiting)).collect();
    part.waiting = rows.iter().map(dead).collect();
    relay.settle(part).await.expect("settle");
    assert_eq!(relay.read().await, []);
    rows
}

fn delivered(row: &FetchedRow) -> SettlementPart {
    let mut part = SettlementPart::new(id("a"));
    part.changes.push(WaitingChange::Delivered(row.row));
    part
}

/// INV-1: a dead letter that somebody marked by hand, and that was delivered then, is sent again when its mark is taken
/// back. Nothing that was noted of it hides it.
#[tokio::test]
async fn a_mark_that_is_taken_back_is_sent_again() {
    for layout in [Layout::PublishedAt, Layout::Status] {
        let Some(own) = Own::new(layout).await else { return };
        let events = [event("1", 1), event("2", 1)];
        own.commit(&events).await.expect("commit");
        let relay = Relay::of(own.source()).await;
        let rows = refuse(&relay).await;
        let (mark, back) = match layout {
            Layout::PublishedAt => ("published_at = now()", "published_at = null"),
            _ => ("status = 'published'", "status = 'pending'"),
        };
        let update = |how| format!("update {{schema}}.\"own events\" set {how}");
        own.fresh.run(&update(mark)).await;
        relay.settle(delivered(&rows[0])).await.expect("settle");
        own.fresh.run(&update(back)).await;
        assert_eq!(relay.publish().await, ids(&events[..1]), "{layout:?}: the other one waits");
        assert_eq!(own.fresh.number("select count(*) from {outbox_own_passed}").await, 1);
    }
}

/// INV-1, INV-7: a table that is emptied gives its numbers again. Its new rows are other events, whatever waits of the old
/// ones; where one of them cannot be delivered either, nothing goes on until a person has decided about the old one, which
/// is not lost.
#[tokio::test]
async fn numbers_that_are_given_again_hide_no_row() {
    let Some(own) = Own::new(Layout::PublishedAt).await else { return };
    own.commit(&[event("1", 1)]).await.expect("commit");
    let relay = Relay::of(own.source()).await;
    let old = refuse(&relay).await.remove(0);
    own.fresh.run("truncate {schema}.\"own events\" restart identity").await;
    let events = [event("2", 1), event("3", 1)];
    own.commit(&events).await.expect("commit");
    let loaded = relay.table.load(&relay.lease, &id("a")).await.expect("load");
    assert!(loaded.waiting_ahead.is_empty(), "none of what waits is in the table");
    let rows = relay.read().await;
    assert_eq!(rows.iter().map(|row| row.row.id).collect::<Vec<_>>(), ids(&events));
    assert_eq!(rows[0].row.seq, old.row.seq);
    let mut part = SettlementPart::new(id("a"));
    part.passed = vec![(rows[0].row, Passed::Waiting), (rows[1].row, Passed::Acked)];
    part.waiting.push(dead(&rows[0]));
    let stands = relay.settle(part.clone()).await.expect_err("the old one waits there");
    assert_eq!(stands.kind(), ErrorKind::Config, "{stands}");
    assert!(stands.to_string().contains("Redrive or discard that one"), "{stands}");
    assert_eq!(own.layout.pending(&own.fresh).await, 2, "nothing was written");
    own.fresh.run("update {outbox_waiting} set state = 'discarded', holds_key = false").await;
    relay.settle(part).await.expect("settle");
    assert_eq!(relay.read().await, []);
    let waits = own.fresh.sql("select id::text from {outbox_waiting}");
    let waits: String =
        own.fresh.connect().await.query_one(&waits, &[]).await.expect("a row").get(0);
    assert_eq!(waits, rows[0].row.id.to_string());
    relay.settle(delivered(&rows[0])).await.expect("settle");
    assert_eq!(own.layout.pending(&own.fresh).await, 0);
}

/// INV-1: the old row's event is delivered, and a new one has its number by now and waits: each is settled as itself.
#[tokio::test]
async fn what_is_settled_in_one_with_its_successor_hides_it_not() {
    let Some(own) = Own::new(Layout::PublishedAt).await else { return };
    own.commit(&[event("1", 1)]).await.expect("commit");
    let relay = Relay::of(own.source()).await;
    let old = refuse(&relay).await.remove(0);
    own.fresh.run("truncate {schema}.\"own events\" restart identity").await;
    own.commit(&[event("2", 1)]).await.expect("commit");
    let new = relay.read().await.remove(0);
    let mut part = delivered(&old);
    part.passed = vec![(new.row, Passed::OtherRoute)];
    relay.settle(part).await.expect("settle");
    let passed = "select count(*) from {outbox_own_passed} where not waits";
    assert_eq!(own.fresh.number(passed).await, 1);
    assert_eq!(own.layout.pending(&own.fresh).await, 1);
    let unrouted = id(postrider_core::Destination::UNROUTED);
    let start = relay.table.load(&relay.lease, &unrouted).await.expect("load").cursor;
    assert_eq!(relay.fetch(start, "unrouted").await.expect("fetch")[0].row, new.row);
}

/// The numbers of the application's rows are not those of the store's sequence: a dead letter with one says nothing of it.
#[tokio::test]
async fn numbers_of_an_own_table_are_not_the_sequences() {
    let Some(own) = Own::new(Layout::PublishedAt).await else { return };
    own.fresh.run("alter table {schema}.\"own events\" alter seq restart with 5000").await;
    own.commit(&[event("1", 1)]).await.expect("commit");
    let relay = Relay::of(own.source()).await;
    let row = relay.read().await.remove(0);
    let mut part = SettlementPart::new(id("a"));
    part.passed = vec![(row.row, Passed::Waiting)];
    part.waiting.push(dead(&row));
    relay.settle(part).await.expect("settle");
    let found = own.source().store().doctor(Timestamp::now()).await.expect("findings");
    let found = found.iter().find(|finding| finding.subject == "numbers").expect("it is there");
    assert_eq!(found.level, Level::Good, "{found:?}");
}
