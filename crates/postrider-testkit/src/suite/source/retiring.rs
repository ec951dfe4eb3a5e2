//! Retiring: only what every cursor has passed, what waits nowhere, and what is old enough.

use std::time::Duration;

use postrider_core::operate::Verb;
use postrider_core::source::{DefinitionChange, RetireRequest};
use postrider_core::{Destination, ErrorKind, EventId, Lease, Start};

use super::requests::{REASON, ask, carry, rows};
use super::waiting::{counts, dead, park};
use crate::suite::late::{Span, in_time};
use crate::suite::relay::{Relay, a, destination, event, id, ids};
use crate::suite::{StoreHarness, skip};

pub(super) fn retire(lease: &Lease, older_than: Duration) -> RetireRequest {
    RetireRequest { lease: lease.clone(), older_than, rows_max: 1_000, only: None }
}

pub(super) async fn retirable(relay: &Relay, request: &RetireRequest) -> Vec<EventId> {
    let events = relay.source.retirable(request).await.expect("retirable");
    events.iter().map(|event| event.id).collect()
}

/// Settles everything at every destination, and lets it grow old.
pub(super) async fn pass_all<H: StoreHarness>(harness: &H, relay: &Relay) {
    relay.drain(&a()).await;
    relay.drain(&id(Destination::UNROUTED)).await;
    harness.pass(harness.unit() * 2).await;
}

/// R117: an event that one destination has not passed stays, however old it is.
pub async fn only_what_every_cursor_has_passed_is_retired<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let events: Vec<_> = (0..3).map(|n| event("1", n)).collect();
    harness.commit(events.clone()).await.expect("commit");
    let (lease, _) = relay.find(events[0].event().id).await;
    let request = retire(&lease, harness.unit());
    harness.pass(harness.unit() * 2).await;
    assert_eq!(retirable(&relay, &request).await, []);
    assert_eq!(relay.source.retire(&request).await.expect("retire").rows, 0);
    relay.drain(&a()).await;
    assert_eq!(retirable(&relay, &request).await, [], "`unrouted` has not passed them");
    relay.drain(&id(Destination::UNROUTED)).await;
    harness.pass(harness.unit() * 2).await;
    if retirable(&relay, &request).await.is_empty() {
        return skip("only_what_every_cursor_has_passed_is_retired", "the store retires nothing");
    }
    assert_eq!(retirable(&relay, &request).await, ids(&events), "in order");
    let retired = relay.source.retire(&request).await.expect("retire");
    assert_eq!((retired.rows, retired.more), (3, false));
    assert_eq!(retirable(&relay, &request).await, []);
    let again = relay.source.retire(&request).await.expect("retire");
    assert_eq!((again.rows, again.more), (0, false), "asking twice deletes nothing more");
    if relay.source.capabilities().many_destinations {
        let put = vec![(destination("b"), Start::Beginning)];
        let change = DefinitionChange { put, ..DefinitionChange::default() };
        relay.source.apply(&change).await.expect("apply");
        assert_eq!(relay.read_ids(&id("b")).await, [], "they are gone");
    }
}

/// R117: an event that waits stays, in any state but one that was let go by hand.
pub async fn what_waits_is_not_retired<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, events, fetched) = park(&harness, &relay, 2, dead(true)).await;
    let free = event("1", 7);
    harness.commit(vec![free.clone()]).await.expect("commit");
    pass_all(&harness, &relay).await;
    let request = retire(&lease, harness.unit());
    if retirable(&relay, &request).await.is_empty() {
        return skip("what_waits_is_not_retired", "the store retires nothing");
    }
    assert_eq!(retirable(&relay, &request).await, ids(&[free]), "behind those that wait");
    assert_eq!(relay.source.retire(&request).await.expect("retire").rows, 1);
    assert_eq!(counts(&relay).await.total(), 2);
    if ask(&harness, Verb::Discard(rows(&[&fetched[0]]))).await.is_none() {
        return skip("what_waits_is_not_retired", REASON);
    }
    carry(&relay, 100).await;
    assert_eq!(retirable(&relay, &request).await, ids(&events[..1]), "it was let go");
    assert_eq!(relay.source.retire(&request).await.expect("retire").rows, 1);
    assert_eq!(counts(&relay).await.total(), 1);
    assert_eq!(relay.due(&lease).await, ids(&events[1..]), "and its successor is not touched");
}

/// R103: retention is an age, by the store's clock.
pub async fn nothing_younger_than_the_retention_is_retired<H: StoreHarness>() {
    in_time(async |times| {
        let harness = H::start().await;
        let relay = Relay::start(&harness).await;
        let unit = harness.unit() * times;
        let old = event("1", 1);
        let young = Span::begin(unit * 6);
        harness.commit(vec![old.clone()]).await.expect("commit");
        let (lease, _) = relay.find(old.event().id).await;
        pass_all(&harness, &relay).await;
        let request = retire(&lease, unit * 6);
        // A relay asks every so often: a store may go by that.
        let early = relay.source.retire(&request).await.expect("retire");
        young.insist(early.rows == 0, &early)?;
        harness.pass(unit * 6).await;
        let young = Span::begin(unit * 6);
        harness.commit(vec![event("1", 2)]).await.expect("commit");
        relay.drain(&a()).await;
        relay.drain(&id(Destination::UNROUTED)).await;
        harness.pass(unit).await;
        if retirable(&relay, &request).await.is_empty() {
            skip("nothing_younger_than_the_retention_is_retired", "the store retires nothing");
            return Ok(());
        }
        let found = retirable(&relay, &request).await;
        young.insist(found == ids(&[old]), &found)?;
        let retired = relay.source.retire(&request).await.expect("retire");
        young.insist(retired.rows == 1, &retired)?;
        let longer = retire(&lease, unit * 1_000);
        assert_eq!(relay.source.retire(&longer).await.expect("retire").rows, 0);
        Ok(())
    })
    .await;
}

/// R101: retiring is done in pieces, oldest first.
pub async fn retiring_keeps_its_limit<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let events: Vec<_> = (0..5).map(|n| event("1", n)).collect();
    harness.commit(events.clone()).await.expect("commit");
    let (lease, _) = relay.find(events[0].event().id).await;
    pass_all(&harness, &relay).await;
    let request = RetireRequest { rows_max: 2, ..retire(&lease, harness.unit()) };
    if retirable(&relay, &request).await.is_empty() {
        return skip("retiring_keeps_its_limit", "the store retires nothing");
    }
    for (from, rows, more) in [(0, 2, true), (2, 2, true), (4, 1, false)] {
        let expected = ids(&events[from..from + rows as usize]);
        assert_eq!(retirable(&relay, &request).await, expected);
        let retired = relay.source.retire(&request).await.expect("retire");
        assert_eq!((retired.rows, retired.more), (rows, more), "from {from}");
    }
}

/// R102: what an archive has not taken is not deleted, also if it became retirable meanwhile.
pub async fn only_what_was_archived_is_retired<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let events: Vec<_> = (0..4).map(|n| event("1", n)).collect();
    harness.commit(events.clone()).await.expect("commit");
    let (lease, _) = relay.find(events[0].event().id).await;
    pass_all(&harness, &relay).await;
    let all = retire(&lease, harness.unit());
    if retirable(&relay, &all).await.is_empty() {
        return skip("only_what_was_archived_is_retired", "the store retires nothing");
    }
    // The first became retirable after the archive took the second and the third.
    let archived = RetireRequest { only: Some(ids(&events[1..3])), ..all.clone() };
    assert_eq!(relay.source.retire(&archived).await.expect("retire").rows, 2);
    assert_eq!(retirable(&relay, &all).await, ids(&[events[0].clone(), events[3].clone()]));
    assert_eq!(relay.source.retire(&archived).await.expect("retire").rows, 0, "the same again");
    let nothing = RetireRequest { only: Some(Vec::new()), ..all.clone() };
    assert_eq!(relay.source.retire(&nothing).await.expect("retire").rows, 0);
    assert_eq!(retirable(&relay, &all).await.len(), 2);
}

/// R114: a stale owner deletes nothing.
pub async fn a_late_owner_retires_nothing<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let sent = event("1", 1);
    harness.commit(vec![sent.clone()]).await.expect("commit");
    let (lease, _) = relay.find(sent.event().id).await;
    pass_all(&harness, &relay).await;
    let request = retire(&lease, harness.unit());
    if retirable(&relay, &request).await.is_empty() {
        return skip("a_late_owner_retires_nothing", "the store retires nothing");
    }
    relay.source.release(&relay.leases).await.expect("release");
    let mut next = Relay::idle(&harness).await;
    next.acquire(crate::suite::relay::LONG).await;
    let refused = relay.source.retire(&request).await.expect_err("a stale token");
    assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
    let own = next.leases.iter().find(|own| own.partition == lease.partition);
    let request = retire(own.expect("it took all"), harness.unit());
    assert_eq!(retirable(&next, &request).await, ids(&[sent]), "it is still there");
}
