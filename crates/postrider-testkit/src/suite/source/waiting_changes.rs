//! Leaving `waiting`: delivered, failed again, given up; each moves the rest of the key up, or not.

use std::time::Duration;

use postrider_core::ErrorKind;
use postrider_core::Lease;
use postrider_core::source::FetchedRow;
use postrider_core::waiting::{Counts, SettlementPart, WaitingChange};

use super::waiting::{counts, park, retry};
use crate::suite::StoreHarness;
use crate::suite::late::{Span, in_time};
use crate::suite::relay::{LONG, Relay, a, due, failed, ids};

async fn change(relay: &Relay, lease: &Lease, changes: Vec<WaitingChange>) {
    let mut part = SettlementPart::new(a());
    part.changes = changes;
    relay.settle(lease, part).await.expect("settle");
}

fn gives_up(row: &FetchedRow, holds_key: bool) -> WaitingChange {
    WaitingChange::Dead { row: row.row, attempted: failed(10), holds_key }
}

/// R071: one by one, in order, until the key is free.
pub async fn a_delivered_head_promotes_the_next<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, events, rows) = park(&harness, &relay, 3, retry(Duration::ZERO)).await;
    for (n, row) in rows.iter().enumerate() {
        assert_eq!(relay.due(&lease).await, ids(&events[n..]));
        change(&relay, &lease, vec![WaitingChange::Delivered(row.row)]).await;
    }
    assert_eq!(counts(&relay).await, Counts::default());
    let loaded = relay.source.load(&lease, &a()).await.expect("load");
    assert_eq!(loaded.waiting_keys, []);
}

/// R122: giving up in `waiting` follows the key's policy as giving up before it does.
pub async fn a_head_that_gives_up_parks_or_promotes<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, events, rows) = park(&harness, &relay, 4, retry(Duration::ZERO)).await;
    change(&relay, &lease, vec![gives_up(&rows[0], false)]).await;
    assert_eq!(relay.due(&lease).await, ids(&events[1..]), "the next is promoted");
    change(&relay, &lease, vec![gives_up(&rows[1], true)]).await;
    assert_eq!(relay.due(&lease).await, [], "the key is parked");
    let expected = Counts { dead: 2, parked: 2, ..Counts::default() };
    assert_eq!(counts(&relay).await, expected);
}

/// R019: the count of attempts is the store's, and the delay runs from now.
pub async fn attempts_are_kept<H: StoreHarness>() {
    in_time(async |times| {
        let harness = H::start().await;
        let relay = Relay::start(&harness).await;
        let unit = harness.unit() * times;
        let delay = unit * 6;
        let (lease, events, rows) = park(&harness, &relay, 2, retry(Duration::ZERO)).await;
        for attempts in 2..4 {
            let again =
                WaitingChange::Retry { row: rows[0].row, delay, attempted: failed(attempts) };
            let delayed = Span::begin(delay);
            change(&relay, &lease, vec![again]).await;
            let early = relay.due(&lease).await;
            delayed.insist(early.is_empty(), &("not before its delay", early))?;
            harness.pass(delay + unit).await;
            let due = relay.source.due(&due(&lease)).await.expect("due");
            let read: Vec<_> = due.rows.iter().map(|row| row.row.id).collect();
            assert_eq!(read, ids(&events));
            assert_eq!(due.rows[0].attempts, attempts);
        }
        Ok(())
    })
    .await;
}

/// An outage is not the event's fault, however long it lasts.
pub async fn a_postponed_event_counts_no_attempt<H: StoreHarness>() {
    in_time(async |times| {
        let harness = H::start().await;
        let relay = Relay::start(&harness).await;
        let unit = harness.unit() * times;
        let delay = unit * 6;
        let (lease, events, rows) = park(&harness, &relay, 2, retry(Duration::ZERO)).await;
        let row = rows[0].row;
        let delayed = Span::begin(delay);
        change(&relay, &lease, vec![WaitingChange::Postpone { row, delay }]).await;
        let early = relay.due(&lease).await;
        delayed.insist(early.is_empty(), &early)?;
        harness.pass(delay + unit).await;
        let due = relay.source.due(&due(&lease)).await.expect("due");
        let read: Vec<_> = due.rows.iter().map(|row| row.row.id).collect();
        assert_eq!(read, ids(&events));
        assert_eq!(due.rows[0].attempts, 1, "as before");
        Ok(())
    })
    .await;
}

/// R114: each change of a stale owner is refused, and changes nothing.
pub async fn a_late_owner_changes_nothing_that_waits<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, events, rows) = park(&harness, &relay, 2, retry(Duration::ZERO)).await;
    relay.source.release(&relay.leases).await.expect("release");
    let mut next = Relay::idle(&harness).await;
    next.acquire(LONG).await;
    let before = counts(&next).await;
    let row = rows[0].row;
    let changes = [
        WaitingChange::Delivered(row),
        gives_up(&rows[0], false),
        WaitingChange::Postpone { row, delay: LONG },
        WaitingChange::Retry { row, delay: LONG, attempted: failed(9) },
    ];
    for change in changes {
        let mut part = SettlementPart::new(a());
        part.changes.push(change);
        let refused = relay.settle(&lease, part).await.expect_err("a stale token");
        assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
    }
    assert_eq!(counts(&next).await, before);
    let own = next.leases.iter().find(|own| own.partition == lease.partition);
    let own = own.expect("it took all");
    let due = next.source.due(&due(own)).await.expect("due");
    let read: Vec<_> = due.rows.iter().map(|row| row.row.id).collect();
    assert_eq!(read, ids(&events));
    assert_eq!(due.rows[0].attempts, 1);
}

/// R005: changes whose answer was lost are sent again as they were.
pub async fn changes_sent_twice_change_once<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, events, rows) = park(&harness, &relay, 4, retry(Duration::ZERO)).await;
    let changes = vec![
        WaitingChange::Delivered(rows[0].row),
        gives_up(&rows[1], false),
        WaitingChange::Retry { row: rows[2].row, delay: Duration::ZERO, attempted: failed(2) },
    ];
    let expected = Counts { retrying: 1, parked: 1, dead: 1, ..Counts::default() };
    for _ in 0..2 {
        change(&relay, &lease, changes.clone()).await;
        assert_eq!(counts(&relay).await, expected);
        assert_eq!(relay.due(&lease).await, ids(&events[2..]));
    }
}
