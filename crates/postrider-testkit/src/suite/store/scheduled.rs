//! Scheduled events: they enter the outbox when they are due, moved by the partition's owner.

use std::time::Duration;

use postrider_core::ErrorKind;

use crate::suite::late::{Span, in_time};
use crate::suite::relay::{LONG, Relay, a, event, ids};
use crate::suite::{StoreHarness, skip};

const REASON: &str = "no scheduled events";

async fn admit_all(relay: &Relay) -> (u32, Option<Duration>) {
    let mut moved = 0;
    let mut next_in: Option<Duration> = None;
    for lease in &relay.leases {
        let admitted = relay.source.admit(lease, 100).await.expect("admit");
        moved += admitted.moved;
        next_in = match (next_in, admitted.next_in) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    (moved, next_in)
}

/// It is not there before its time, and is there after.
pub async fn a_scheduled_event_enters_when_it_is_due<H: StoreHarness>() {
    in_time(async |times| {
        let harness = H::start().await;
        if !harness.source().capabilities().scheduled {
            skip("a_scheduled_event_enters_when_it_is_due", REASON);
            return Ok(());
        }
        let relay = Relay::start(&harness).await;
        let unit = harness.unit() * times;
        let delay = unit * 6;
        let delayed = Span::begin(delay);
        let events = vec![event("1", 1).deliver_after(harness.now().await.plus(delay))];
        harness.commit(events.clone()).await.expect("commit");
        let (moved, next_in) = admit_all(&relay).await;
        delayed.insist(moved == 0, &("not yet due", moved))?;
        let soon = next_in.is_some_and(|next_in| next_in <= delay);
        delayed.insist(soon, &("one is scheduled", next_in))?;
        let early = relay.read_ids(&a()).await;
        delayed.insist(early.is_empty(), &early)?;
        harness.pass(delay + unit).await;
        assert_eq!(admit_all(&relay).await, (1, None));
        assert_eq!(relay.read_ids(&a()).await, ids(&events));
        assert_eq!(admit_all(&relay).await, (0, None), "moved once");
        Ok(())
    })
    .await;
}

/// Of one key, the one that is due first enters first, whichever was written first; and what is due
/// together keeps its order.
pub async fn scheduled_events_enter_in_the_order_they_are_due<H: StoreHarness>() {
    let harness = H::start().await;
    if !harness.source().capabilities().scheduled {
        return skip("scheduled_events_enter_in_the_order_they_are_due", REASON);
    }
    let relay = Relay::start(&harness).await;
    let (now, unit) = (harness.now().await, harness.unit());
    let (soon, later) = (now.plus(unit), now.plus(unit * 2));
    let events = [
        event("1", 3).deliver_after(later),
        event("1", 1).deliver_after(soon),
        event("1", 2).deliver_after(soon),
    ];
    for event in &events {
        harness.commit(vec![event.clone()]).await.expect("commit");
    }
    harness.pass(unit * 4).await;
    for _ in 0..3 {
        for lease in &relay.leases {
            relay.source.admit(lease, 1).await.expect("admit");
        }
    }
    let rows = relay.read(&a()).await;
    let read: Vec<_> = rows.iter().map(|(_, row)| row.row.id).collect();
    let order = [1, 2, 0].map(|n: usize| events[n].event().id);
    assert_eq!(read, order);
}

/// R114: only the owner moves them.
pub async fn a_stale_owner_admits_nothing<H: StoreHarness>() {
    let harness = H::start().await;
    if !harness.source().capabilities().scheduled {
        return skip("a_stale_owner_admits_nothing", REASON);
    }
    let relay = Relay::start(&harness).await;
    let due = harness.now().await.plus(harness.unit());
    harness.commit(vec![event("1", 1).deliver_after(due)]).await.expect("commit");
    harness.pass(harness.unit() * 2).await;
    relay.source.release(&relay.leases).await.expect("release");
    let mut next = Relay::idle(&harness).await;
    next.acquire(LONG).await;
    for lease in &relay.leases {
        let refused = relay.source.admit(lease, 100).await.expect_err("a stale token");
        assert_eq!(refused.kind(), ErrorKind::Fenced);
    }
    assert_eq!(next.read_ids(&a()).await, []);
    assert_eq!(admit_all(&next).await.0, 1);
}
