//! Settling: one atomic write that only the owner can make.

use postrider_core::ErrorKind;
use postrider_core::source::FetchedRow;
use postrider_core::waiting::{Counts, Passed, Placement, Reason, SettlementPart};

use crate::suite::StoreHarness;
use crate::suite::relay::{LONG, Relay, a, event, failed, ids, pass, waits};

/// R008: all progress is in the store.
pub async fn a_settled_cursor_is_where_the_next_owner_begins<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let events: Vec<_> = (0..6).map(|n| event("1", n)).collect();
    harness.commit(events.clone()).await.expect("commit");
    let (lease, third) = relay.find(events[2].event().id).await;
    let from = relay.source.load(&lease, &a()).await.expect("load").cursor;
    let rows: Vec<FetchedRow> = relay.read(&a()).await.into_iter().map(|(_, row)| row).collect();
    let part = pass(&a(), from, &rows[..3], &third, Passed::Acked);
    relay.settle(&lease, part).await.expect("settle");
    relay.source.release(&relay.leases).await.expect("release");
    let mut next = Relay::idle(&harness).await;
    next.acquire(LONG).await;
    assert_eq!(next.drain(&a()).await, ids(&events[3..]));
    assert_eq!(next.drain(&a()).await, []);
}

/// A settlement that would change everything at once: the cursor, a new waiting event, and one that
/// waits already.
async fn everything(relay: &Relay, events: &[postrider_core::NewEvent]) -> SettlementPart {
    let (lease, first) = relay.find(events[0].event().id).await;
    let (_, second) = relay.find(events[1].event().id).await;
    let from = relay.source.load(&lease, &a()).await.expect("load").cursor;
    let rows = [first.clone(), second.clone()];
    let mut part = pass(&a(), from, &rows, &second, Passed::Waiting);
    part.waiting.push(waits(&second, Placement::Behind(Reason::Behind)));
    part.changes.push(postrider_core::waiting::WaitingChange::Delivered(first.row));
    part
}

/// Two events of one key, the first of which waits though the cursor has not passed it.
async fn one_waits<H: StoreHarness>(harness: &H, relay: &Relay) -> [postrider_core::NewEvent; 2] {
    let events = [event("1", 1), event("1", 2)];
    harness.commit(events.to_vec()).await.expect("commit");
    let (lease, first) = relay.find(events[0].event().id).await;
    let mut part = SettlementPart::new(a());
    let placement = Placement::Retry { delay: LONG, attempted: failed(1) };
    part.waiting.push(waits(&first, placement));
    relay.settle(&lease, part).await.expect("settle");
    events
}

const ONE_RETRYING: Counts = Counts { retrying: 1, parked: 0, held: 0, disabled: 0, dead: 0 };

/// R114: an owner that was paused and taken over is refused, and nothing of its write happens: not
/// the cursor, not the waiting event, not the change.
pub async fn a_late_owner_settles_nothing<H: StoreHarness>() {
    let harness = H::start().await;
    let unit = harness.unit();
    let mut relay = Relay::idle(&harness).await;
    relay.acquire(unit * 3).await;
    let events = one_waits(&harness, &relay).await;
    let (lease, _) = relay.find(events[0].event().id).await;
    let part = everything(&relay, &events).await;
    harness.pass(unit * 4).await;
    let mut next = Relay::idle(&harness).await;
    next.acquire(LONG).await;
    let refused = relay.settle(&lease, part).await.expect_err("a stale token");
    assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
    assert_eq!(next.read_ids(&a()).await.len(), 2, "the cursor stands");
    assert_eq!(next.source.counts(&a()).await.expect("counts"), ONE_RETRYING);
    assert_eq!(next.drain(&a()).await.len(), 2, "the new owner goes on");
}

/// R114: an owner that lost its lease and took it again is not its old self.
pub async fn the_same_owner_with_an_old_token_settles_nothing<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let events = one_waits(&harness, &relay).await;
    let (lease, _) = relay.find(events[0].event().id).await;
    let part = everything(&relay, &events).await;
    relay.source.release(&relay.leases).await.expect("release");
    let mut again = Relay::idle(&harness).await;
    again.owner = relay.owner.clone();
    again.acquire(LONG).await;
    let refused = relay.settle(&lease, part).await.expect_err("a stale token");
    assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
    assert_eq!(again.source.counts(&a()).await.expect("counts"), ONE_RETRYING);
    assert_eq!(again.read_ids(&a()).await.len(), 2);
}

/// R005: a settlement whose answer was lost is sent again as it was.
pub async fn settling_twice_is_settling_once<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let events = one_waits(&harness, &relay).await;
    let (lease, _) = relay.find(events[0].event().id).await;
    let part = everything(&relay, &events).await;
    for _ in 0..2 {
        relay.settle(&lease, part.clone()).await.expect("settle");
        assert_eq!(relay.read_ids(&a()).await, [], "the cursor has passed both");
        let counts = relay.source.counts(&a()).await.expect("counts");
        assert_eq!(counts.total(), 1, "the second waits, the first was delivered");
        assert_eq!(relay.due(&lease).await, ids(&events[1..]));
    }
}

/// The fence is the token: whoever is slow but was not replaced loses nothing.
pub async fn an_expired_lease_that_nobody_took_still_settles<H: StoreHarness>() {
    let harness = H::start().await;
    let unit = harness.unit();
    let mut relay = Relay::idle(&harness).await;
    relay.acquire(unit).await;
    harness.commit(vec![event("1", 1)]).await.expect("commit");
    harness.pass(unit * 2).await;
    assert_eq!(relay.drain(&a()).await.len(), 1);
    assert_eq!(relay.read_ids(&a()).await, []);
}
