//! Destinations: rows with a version, each with cursors of its own.

use postrider_core::source::{DefinitionChange, FetchRequest};
use postrider_core::waiting::{Counts, Passed, Placement, SettlementPart};
use postrider_core::{Destination, DestinationState, ErrorKind, Start};

use crate::suite::relay::{
    LONG, Relay, a, destination, event, failed, fetch, id, ids, pass, waits,
};
use crate::suite::{StoreHarness, skip};

const REASON: &str = "one destination";

fn put(name: &str, start: Start) -> DefinitionChange {
    DefinitionChange { put: vec![(destination(name), start)], ..DefinitionChange::default() }
}

/// A relay defines what its file says only in a store that has no destination.
pub async fn destinations_are_registered_once<H: StoreHarness>() {
    let harness = H::start().await;
    harness.commit(vec![event("1", 1)]).await.expect("commit");
    let relay = Relay::start(&harness).await;
    let first = relay.source.destinations().await.expect("destinations");
    relay.source.register(&[destination("b")]).await.expect("register");
    let second = relay.source.destinations().await.expect("destinations");
    assert_eq!(first, second, "the store has some");
    let names: Vec<&str> = first.rows.iter().map(|row| row.definition.id.as_str()).collect();
    assert_eq!(names, ["a", Destination::UNROUTED]);
    assert!(first.rows.iter().all(|row| row.state == DestinationState::Active));
    assert_eq!(first.rows[0].definition, destination("a"));
    assert_eq!(relay.drain(&a()).await.len(), 1, "it starts at the beginning");
    if has_many(&relay) {
        assert_eq!(relay.drain(&id(Destination::UNROUTED)).await.len(), 1);
    }
}

/// Where a row has one mark for all, `unrouted` sees only what no route of the one destination matches.
fn has_many(relay: &Relay) -> bool {
    relay.source.capabilities().many_destinations
}

/// Two people who change the definitions at once do not overwrite each other.
pub async fn a_change_needs_the_expected_version<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let before = relay.source.destinations().await.expect("destinations");
    let mut changed = destination("a");
    changed.limits.payload_bytes_max = 1_000;
    let mut change = DefinitionChange {
        expected: Some(before.version + 1),
        put: vec![(changed.clone(), Start::Now)],
        remove: Vec::new(),
    };
    let refused = relay.source.apply(&change).await.expect_err("another version");
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    assert_eq!(relay.source.destinations().await.expect("destinations"), before);
    change.expected = Some(before.version);
    let version = relay.source.apply(&change).await.expect("apply");
    assert!(version > before.version);
    let after = relay.source.destinations().await.expect("destinations");
    assert_eq!(after.version, version);
    assert_eq!(after.rows[0].definition, changed);
    assert_eq!(after.rows[0].version, before.rows[0].version + 1);
    change.expected = None;
    let same = relay.source.apply(&change).await.expect("apply");
    assert_eq!(same, version, "an equal definition changes nothing");
}

/// A destination added later starts now, or at the beginning if it was told so.
pub async fn a_new_destination_starts_where_it_was_told<H: StoreHarness>() {
    let harness = H::start().await;
    if !harness.source().capabilities().many_destinations {
        return skip("a_new_destination_starts_where_it_was_told", REASON);
    }
    let relay = Relay::start(&harness).await;
    let (before, after) = (event("1", 1), event("1", 2));
    harness.commit(vec![before.clone()]).await.expect("commit");
    relay.source.apply(&put("now", Start::Now)).await.expect("apply");
    relay.source.apply(&put("all", Start::Beginning)).await.expect("apply");
    harness.commit(vec![after.clone()]).await.expect("commit");
    assert_eq!(relay.drain(&id("now")).await, ids(std::slice::from_ref(&after)));
    assert_eq!(relay.drain(&id("all")).await, ids(&[before, after]));
}

/// R094: one destination that stands still stops no other.
pub async fn cursors_of_destinations_are_independent<H: StoreHarness>() {
    let harness = H::start().await;
    if !harness.source().capabilities().many_destinations {
        return skip("cursors_of_destinations_are_independent", REASON);
    }
    let relay = Relay::start(&harness).await;
    relay.source.apply(&put("b", Start::Now)).await.expect("apply");
    let events: Vec<_> = (0..5).map(|n| event("1", n)).collect();
    harness.commit(events.clone()).await.expect("commit");
    assert_eq!(relay.drain(&id("b")).await, ids(&events));
    assert_eq!(relay.drain(&id("b")).await, []);
    assert_eq!(relay.drain(&a()).await, ids(&events), "the other has its own cursor");
}

/// R094: what waits for one destination is no matter of another.
pub async fn what_waits_for_one_destination_waits_for_no_other<H: StoreHarness>() {
    let harness = H::start().await;
    if !harness.source().capabilities().many_destinations {
        return skip("what_waits_for_one_destination_waits_for_no_other", REASON);
    }
    let relay = Relay::start(&harness).await;
    relay.source.apply(&put("b", Start::Now)).await.expect("apply");
    let sent = event("1", 1);
    harness.commit(vec![sent.clone()]).await.expect("commit");
    let (lease, row) = relay.find(sent.event().id).await;
    let mut part = SettlementPart::new(a());
    part.waiting.push(waits(&row, dead()));
    relay.settle(&lease, part).await.expect("settle");
    let loaded = relay.source.load(&lease, &id("b")).await.expect("load");
    assert_eq!(loaded.waiting_keys, []);
    assert_eq!(loaded.waiting_ahead, [] as [u64; 0]);
    assert_eq!(relay.source.counts(&id("b")).await.expect("counts"), Counts::default());
    assert_eq!(relay.source.counts(&a()).await.expect("counts").dead, 1);
}

/// Only removing frees what a destination held.
pub async fn a_removed_destination_is_gone_with_what_waited<H: StoreHarness>() {
    let harness = H::start().await;
    if !harness.source().capabilities().many_destinations {
        return skip("a_removed_destination_is_gone_with_what_waited", REASON);
    }
    let mut relay = Relay::start(&harness).await;
    relay.source.apply(&put("b", Start::Beginning)).await.expect("apply");
    let sent = event("1", 1);
    harness.commit(vec![sent.clone()]).await.expect("commit");
    let (lease, row) = relay.find(sent.event().id).await;
    let from = relay.source.load(&lease, &a()).await.expect("load").cursor;
    let rows = [row.clone()];
    let mut part = pass(&a(), from, &rows, &row, Passed::Waiting);
    part.waiting.push(waits(&row, dead()));
    relay.settle(&lease, part).await.expect("settle");
    let remove = DefinitionChange { remove: vec![a()], ..DefinitionChange::default() };
    relay.source.apply(&remove).await.expect("apply");
    let left = relay.source.destinations().await.expect("destinations");
    assert!(left.rows.iter().all(|row| row.definition.id != a()));
    relay.source.apply(&put("a", Start::Beginning)).await.expect("apply");
    assert_eq!(relay.source.counts(&a()).await.expect("counts"), Counts::default());
    relay.source.release(&relay.leases).await.expect("release");
    relay.leases.clear();
    relay.acquire(LONG).await;
    assert_eq!(relay.drain(&a()).await, ids(&[sent]), "a new destination of the old name");
}

/// R094, INV-8: a relay that has not heard that a destination was removed reads no further for it, nor for others
/// in the same page: what it sent would not be saved, and a new destination of that name would send it again.
pub async fn a_page_for_a_removed_destination_is_refused<H: StoreHarness>() {
    let harness = H::start().await;
    if harness.source().capabilities().reads_when_gone {
        let reason = "to know that a destination is gone takes another read";
        return skip("a_page_for_a_removed_destination_is_refused", reason);
    }
    let relay = Relay::start(&harness).await;
    if has_many(&relay) {
        relay.source.apply(&put("b", Start::Beginning)).await.expect("apply");
    }
    harness.commit(vec![event("1", 1)]).await.expect("commit");
    let mut asked = Vec::new();
    for lease in &relay.leases {
        let at = relay.source.load(lease, &a()).await.expect("load").cursor;
        let alone = fetch(lease, &a(), at, 10, 1 << 20);
        relay.source.fetch(&alone).await.expect("it is there");
        if has_many(&relay) {
            let both = FetchRequest { destinations: vec![id("b"), a()], ..alone.clone() };
            relay.source.fetch(&both).await.expect("both are there");
            asked.push(both);
        }
        asked.push(alone);
    }
    let remove = DefinitionChange { remove: vec![a()], ..DefinitionChange::default() };
    relay.source.apply(&remove).await.expect("apply");
    for request in &asked {
        let refused = relay.source.fetch(request).await.expect_err("it is gone");
        assert_eq!(refused.kind(), ErrorKind::NotFound, "{refused}");
    }
    if has_many(&relay) {
        assert_eq!(relay.read(&id("b")).await.len(), 1, "another one is read on");
    }
}

fn dead() -> Placement {
    Placement::Dead { attempted: failed(10), holds_key: true }
}
