//! Disabled endpoints: everybody hears of them, their events wait in order, and an operator alone
//! takes them into service again.

use std::time::Duration;

use postrider_core::operate::Verb;
use postrider_core::source::RenewRequest;
use postrider_core::waiting::{
    Attempted, Counts, DisabledEndpoint, Placement, Reason, SettlementPart, WaitingChange,
};
use postrider_core::{DestinationId, ErrorKind, Lease};

use super::requests::{REASON, ask, carry, rows};
use super::waiting::{counts, park, retry};
use crate::suite::relay::{LONG, Relay, a, event, ids, waits};
use crate::suite::{StoreHarness, skip};

const TOPIC: &str = "https://gone.example/hook";

fn gone() -> Attempted {
    Attempted { attempts: 0, reason: Reason::Disabled, detail: "410 Gone".to_owned() }
}

fn disabled() -> Placement {
    Placement::Disabled { endpoint: TOPIC.into(), attempted: gone() }
}

fn named() -> (DestinationId, Box<str>) {
    (a(), TOPIC.into())
}

fn enable() -> Verb {
    Verb::Enable { destination: a(), topic: TOPIC.to_owned() }
}

fn disabling() -> SettlementPart {
    let mut part = SettlementPart::new(a());
    part.disabled.push(DisabledEndpoint { topic: TOPIC.into(), detail: "410 Gone".to_owned() });
    part
}

async fn disable(relay: &Relay, lease: &Lease) {
    relay.settle(lease, disabling()).await.expect("settle");
}

/// An endpoint of one destination, as every relay reads it.
pub async fn a_disabled_endpoint_is_told_to_everybody<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let lease = relay.leases[0].clone();
    let before = relay.source.destinations().await.expect("destinations");
    assert_eq!(before.disabled, []);
    disable(&relay, &lease).await;
    let after = relay.source.destinations().await.expect("destinations");
    assert_eq!(after.disabled, [named()]);
    assert!(after.version > before.version, "or nobody would read it");
    let request = RenewRequest {
        owner: relay.owner.clone(),
        leases: relay.leases.clone(),
        lease_duration: LONG,
        current: true,
    };
    let renewed = relay.source.renew(&request).await.expect("renew");
    assert_eq!(renewed.definitions, after.version);
    disable(&relay, &lease).await;
    let again = relay.source.destinations().await.expect("destinations");
    assert_eq!(again, after, "one that is disabled is left as it is");
}

/// What waits for a disabled endpoint is not due, however long one waits, and holds its key.
pub async fn events_of_a_disabled_endpoint_wait<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    disable(&relay, &relay.leases[0]).await;
    let (lease, _, fetched) = park(&harness, &relay, 3, disabled()).await;
    harness.pass(harness.unit() * 2).await;
    assert_eq!(relay.due(&lease).await, []);
    let expected = Counts { disabled: 1, parked: 2, ..Counts::default() };
    assert_eq!(counts(&relay).await, expected);
    let loaded = relay.source.load(&lease, &a()).await.expect("load");
    assert_eq!(loaded.waiting_keys, [(fetched[0].key_hash, 3)]);
    assert_eq!(relay.read_ids(&a()).await, [], "and does not hold the cursor");
}

/// INV-3: an endpoint that an operator enables gets its events in order.
pub async fn an_enabled_endpoint_lets_its_events_out_in_order<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    disable(&relay, &relay.leases[0]).await;
    let (lease, events, _) = park(&harness, &relay, 3, disabled()).await;
    let before = relay.source.destinations().await.expect("destinations");
    let Some(request) = ask(&harness, enable()).await else {
        return skip("an_enabled_endpoint_lets_its_events_out_in_order", REASON);
    };
    let done = carry(&relay, 1_000).await;
    assert!(done.enabled.contains(&named()), "{done:?}");
    assert!(done.touched.contains(&(lease.partition, a())), "{done:?}");
    assert_eq!(done.freed, [], "they hold their key as before");
    let after = relay.source.destinations().await.expect("destinations");
    assert_eq!(after.disabled, []);
    assert!(after.version > before.version);
    assert_eq!(done.definitions, after.version);
    assert_eq!(relay.due(&lease).await, ids(&events));
    assert!(harness.request(request).await.expect("request").finished);
    assert_eq!(carry(&relay, 1_000).await.enabled, [], "once");
}

/// A settlement that was on its way while the endpoint was enabled strands nothing: what it says
/// waits for an endpoint that is in service is due at once.
pub async fn nothing_waits_for_an_endpoint_that_is_in_service<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, events, fetched) = park(&harness, &relay, 2, disabled()).await;
    assert_eq!(relay.due(&lease).await, ids(&events), "nobody would let it out");
    let mut part = SettlementPart::new(a());
    part.changes.push(disable_waiting(&fetched[0]));
    relay.settle(&lease, part).await.expect("settle");
    assert_eq!(relay.due(&lease).await, ids(&events), "the same of one that was waiting");
    assert_eq!(counts(&relay).await.disabled, 0);
}

fn disable_waiting(row: &postrider_core::source::FetchedRow) -> WaitingChange {
    WaitingChange::Disabled { row: row.row, endpoint: TOPIC.into(), attempted: gone() }
}

/// An event that came out of waiting waits for its endpoint as well, with its attempts.
pub async fn a_waiting_event_can_wait_for_its_endpoint<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, events, fetched) = park(&harness, &relay, 3, retry(Duration::ZERO)).await;
    let mut part = disabling();
    part.changes.push(disable_waiting(&fetched[0]));
    for _ in 0..2 {
        relay.settle(&lease, part.clone()).await.expect("settle");
        let expected = Counts { disabled: 1, parked: 2, ..Counts::default() };
        assert_eq!(counts(&relay).await, expected);
        assert_eq!(relay.due(&lease).await, []);
    }
    if ask(&harness, enable()).await.is_none() {
        return skip("a_waiting_event_can_wait_for_its_endpoint", REASON);
    }
    carry(&relay, 1_000).await;
    assert_eq!(relay.due(&lease).await, ids(&events));
}

/// What waits for a disabled endpoint can be let go by hand.
pub async fn an_event_of_a_disabled_endpoint_can_be_discarded<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    disable(&relay, &relay.leases[0]).await;
    let (lease, events, fetched) = park(&harness, &relay, 3, disabled()).await;
    if ask(&harness, Verb::Discard(rows(&[&fetched[0]]))).await.is_none() {
        return skip("an_event_of_a_disabled_endpoint_can_be_discarded", REASON);
    }
    let done = carry(&relay, 100).await;
    assert_eq!(done.freed, [(lease.partition, a(), fetched[0].key_hash)]);
    assert_eq!(relay.due(&lease).await, ids(&events[1..]), "another endpoint's, perhaps");
    assert_eq!(counts(&relay).await.disabled, 0);
}

/// An endpoint that is gone again, before every partition heard that it was back, stays disabled.
pub async fn an_endpoint_that_is_disabled_again_stays_so<H: StoreHarness>() {
    let harness = H::start().await;
    let mut relay = Relay::start(&harness).await;
    if relay.leases.len() < 2 {
        return skip("an_endpoint_that_is_disabled_again_stays_so", "one partition");
    }
    disable(&relay, &relay.leases[0]).await;
    let (lease, events, _) = park(&harness, &relay, 2, disabled()).await;
    if ask(&harness, enable()).await.is_none() {
        return skip("an_endpoint_that_is_disabled_again_stays_so", REASON);
    }
    let all = relay.leases.clone();
    // Another partition's owner is the first, and meets the same answer again.
    relay.leases.retain(|other| other.partition != lease.partition);
    assert!(carry(&relay, 1_000).await.enabled.contains(&named()));
    disable(&relay, &relay.leases[0]).await;
    relay.leases = all;
    carry(&relay, 1_000).await;
    let after = relay.source.destinations().await.expect("destinations");
    assert_eq!(after.disabled, [named()], "a later answer wins");
    assert_eq!(relay.due(&lease).await, []);
    ask(&harness, enable()).await.expect("as before");
    carry(&relay, 1_000).await;
    assert_eq!(relay.due(&lease).await, ids(&events));
}

/// R114: a stale owner disables nothing.
pub async fn a_late_owner_disables_nothing<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let lease = relay.leases[0].clone();
    relay.source.release(&relay.leases).await.expect("release");
    let mut next = Relay::idle(&harness).await;
    next.acquire(LONG).await;
    let refused = relay.settle(&lease, disabling()).await.expect_err("a stale token");
    assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
    let after = relay.source.destinations().await.expect("destinations");
    assert_eq!(after.disabled, []);
}

/// A payload that was erased goes as if it had been delivered, and its key goes on.
pub async fn an_erased_event_leaves_and_its_key_goes_on<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, events, fetched) = park(&harness, &relay, 2, retry(Duration::ZERO)).await;
    let mut part = SettlementPart::new(a());
    part.changes.push(WaitingChange::Erased(fetched[0].row));
    relay.settle(&lease, part).await.expect("settle");
    assert_eq!(relay.due(&lease).await, ids(&events[1..]));
    assert_eq!(counts(&relay).await.total(), 1);
}

/// An erasure reaches what is to be read and what waits; ids and order stay.
pub async fn an_erasure_reaches_what_waits<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, events, _) = park(&harness, &relay, 2, retry(Duration::ZERO)).await;
    let (same, other) = (event("1", 7), event("2", 8));
    harness.commit(vec![same.clone(), other.clone()]).await.expect("commit");
    let Some(erased) = harness.erase("order/1") else {
        return skip("an_erasure_reaches_what_waits", "the store cannot erase");
    };
    erased.await.expect("erase");
    let due = relay.source.due(&crate::suite::relay::due(&lease)).await.expect("due");
    let read: Vec<_> = due.rows.iter().map(|row| row.row.id).collect();
    assert_eq!(read, ids(&events));
    let is_erased = |event: &postrider_core::Event| {
        event.payload == postrider_core::Payload::Erased && event.headers.is_empty()
    };
    assert!(due.rows.iter().all(|row| is_erased(&row.event)));
    let fetched = relay.find(same.event().id).await.1;
    assert!(is_erased(&fetched.event.expect("it is an event still")));
    let fetched = relay.find(other.event().id).await.1;
    assert_eq!(fetched.event.expect("readable").payload, other.event().payload);
    let mut part = SettlementPart::new(a());
    part.waiting.push(waits(&relay.find(same.event().id).await.1, retry(Duration::ZERO)));
    relay.settle(&lease, part).await.expect("an erased event can wait");
    assert_eq!(counts(&relay).await.total(), 3);
}
