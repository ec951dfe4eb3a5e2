//! Leases: exclusive, by the store's clock, with a token that grows.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::lease::{AcquireRequest, Acquired};
use postrider_core::source::RenewRequest;
use postrider_core::{Lease, Presence, RelayId};

use crate::suite::StoreHarness;
use crate::suite::late::{Span, in_time};
use crate::suite::relay::{LONG, Relay, a, event};

/// R030: what one relay owns no other gets, until it lets go.
pub async fn a_partition_has_one_owner<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let partitions = relay.source.open().await.expect("open").partitions;
    assert_eq!(relay.leases.len(), usize::from(partitions), "all were free");
    let mut other = Relay::idle(&harness).await;
    let acquired = other.acquire(LONG).await;
    assert_eq!(acquired.granted, []);
    let held: BTreeSet<_> = acquired.held.iter().map(|held| held.lease.partition).collect();
    assert_eq!(held.len(), relay.leases.len());
    let mut again = Relay::idle(&harness).await;
    again.owner = relay.owner.clone();
    let acquired = again.acquire(LONG).await;
    assert_eq!(acquired.granted, [], "what it has is not free");
    let told: Vec<_> = acquired.held.into_iter().map(|held| held.lease).collect();
    assert_eq!(told, relay.leases, "and it is told of it: the answer may have been lost");
}

/// R030: sixteen at once, and each partition goes to one.
pub async fn of_many_that_acquire_at_once_one_wins<H: StoreHarness>() {
    let harness = H::start().await;
    let first = Relay::idle(&harness).await;
    let partitions = usize::from(first.source.open().await.expect("open").partitions);
    let start = Arc::new(tokio::sync::Barrier::new(16));
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let (source, start) = (harness.source(), Arc::clone(&start));
            tokio::spawn(async move {
                let request = request(RelayId::mint(), LONG);
                start.wait().await;
                loop {
                    match source.acquire(&request).await {
                        Ok(acquired) => return acquired.granted,
                        Err(error) => {
                            assert_eq!(error.kind(), postrider_core::ErrorKind::Busy, "{error}")
                        }
                    }
                }
            })
        })
        .collect();
    let mut owned = Vec::new();
    for task in tasks {
        let granted = task.await.expect("the task ends");
        owned.extend(granted.iter().map(|granted| granted.lease.partition));
    }
    assert_eq!(owned.len(), partitions, "every partition has an owner");
    assert_eq!(owned.iter().collect::<BTreeSet<_>>().len(), partitions, "and only one");
}

/// R114: the token grows whoever acquires, also for the same owner.
pub async fn a_token_grows_at_every_acquisition<H: StoreHarness>() {
    let harness = H::start().await;
    let mut relay = Relay::idle(&harness).await;
    let mut tokens = Vec::new();
    for round in 0..4 {
        if round % 2 == 1 {
            relay.owner = RelayId::mint();
        }
        relay.leases.clear();
        relay.acquire(LONG).await;
        tokens.push(relay.leases[0].token);
        relay.source.release(&relay.leases).await.expect("release");
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

/// R115: nobody takes a lease before the store's clock says so, and afterwards anybody may; a
/// renewal moves that moment.
pub async fn a_lease_expires_by_the_stores_clock_alone<H: StoreHarness>() {
    in_time(async |times| {
        let harness = H::start().await;
        let unit = harness.unit() * times;
        let mut relay = Relay::idle(&harness).await;
        let first = Span::begin(unit * 6);
        relay.acquire(unit * 6).await;
        let mut other = Relay::idle(&harness).await;
        harness.pass(unit * 2).await;
        let held = other.acquire(LONG).await;
        first.insist(held.granted.is_empty(), &("too early", &held))?;
        assert!(held.held[0].expires_in <= unit * 4, "{held:?}");
        let second = Span::begin(unit * 8);
        let kept = renew(&relay, unit * 8).await;
        assert_eq!(kept.len(), relay.leases.len());
        harness.pass(unit * 5).await;
        let held = other.acquire(LONG).await;
        second.insist(held.granted.is_empty(), &("it was renewed", &held))?;
        harness.pass(unit * 4).await;
        let granted = other.acquire(LONG).await.granted;
        assert_eq!(granted.len(), relay.leases.len(), "it has expired");
        Ok(())
    })
    .await;
}

/// R114: who lost a lease cannot renew it, whatever its clock says.
pub async fn a_lost_lease_is_never_renewed<H: StoreHarness>() {
    let harness = H::start().await;
    let unit = harness.unit();
    let mut relay = Relay::idle(&harness).await;
    relay.acquire(unit).await;
    harness.pass(unit * 2).await;
    assert_eq!(renew(&relay, unit).await, relay.leases, "expired, but nobody took it");
    harness.pass(unit * 2).await;
    let mut other = Relay::idle(&harness).await;
    other.acquire(LONG).await;
    assert_eq!(renew(&relay, LONG).await, [], "taken over");
    assert_eq!(renew(&other, LONG).await, other.leases, "the new owner is not disturbed");
    other.source.release(&other.leases).await.expect("release");
    assert_eq!(renew(&relay, LONG).await, [], "free, and still not its own");
}

/// R036: a hand-over need not wait for a lease to expire.
pub async fn a_released_partition_is_free_at_once<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    relay.source.release(&relay.leases).await.expect("release");
    relay.source.release(&relay.leases).await.expect("letting go twice is no error");
    let mut other = Relay::idle(&harness).await;
    let granted = other.acquire(LONG).await.granted;
    assert_eq!(granted.len(), relay.leases.len());
    assert!(granted.iter().all(|granted| granted.takeovers == 0), "{granted:?}");
}

/// R114: a late owner cannot free what is no longer its own.
pub async fn a_stale_release_frees_nothing<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    relay.source.release(&relay.leases).await.expect("release");
    let mut second = Relay::idle(&harness).await;
    second.acquire(LONG).await;
    relay.source.release(&relay.leases).await.expect("no error, no effect");
    let mut third = Relay::idle(&harness).await;
    assert_eq!(third.acquire(LONG).await.granted, []);
}

/// A relay that cannot serve everything takes only what nobody else took for a while.
pub async fn a_partition_can_be_asked_for_only_when_long_free<H: StoreHarness>() {
    in_time(async |times| {
        let harness = H::start().await;
        let unit = harness.unit() * times;
        let relay = Relay::start(&harness).await;
        let free = Span::begin(unit * 4);
        relay.source.release(&relay.leases).await.expect("release");
        let patient = AcquireRequest { free_for: unit * 4, ..request(RelayId::mint(), LONG) };
        let early = relay.source.acquire(&patient).await.expect("acquire");
        free.insist(early.granted.is_empty(), &early)?;
        harness.pass(unit * 5).await;
        let late = relay.source.acquire(&patient).await.expect("acquire");
        assert_eq!(late.granted.len(), relay.leases.len());
        Ok(())
    })
    .await;
}

/// An event that kills the process shows as takeovers with the cursor standing still.
pub async fn takeovers_are_counted_while_the_cursor_stands_still<H: StoreHarness>() {
    let harness = H::start().await;
    let unit = harness.unit();
    harness.commit(vec![event("1", 1)]).await.expect("commit");
    let mut counts = Vec::new();
    let mut last = None;
    for _ in 0..3 {
        let mut relay = Relay::idle(&harness).await;
        let acquired = relay.acquire(unit).await;
        counts.push(takeovers_of(&acquired));
        harness.pass(unit * 2).await;
        last = Some(relay);
    }
    assert_eq!(counts, [0, 1, 2]);
    // The owner of the expired lease settles before anybody takes it: the cursor moves.
    let relay = last.expect("three rounds");
    assert_eq!(relay.drain(&a()).await.len(), 1);
    let mut next = Relay::idle(&harness).await;
    let acquired = next.acquire(unit).await;
    let counts: Vec<u32> = acquired.granted.iter().map(|granted| granted.takeovers).collect();
    let least = counts.iter().min().expect("something was granted");
    assert!(*least <= 1, "one count began anew: {counts:?}");
}

/// The highest count; partitions without events have nothing that could move.
fn takeovers_of(acquired: &Acquired) -> u32 {
    let counts = acquired.granted.iter().map(|granted| granted.takeovers);
    counts.max().expect("something was granted")
}

/// F1: a holder that is proved dead is waited for in none of its partitions, and gets no share; a proof about an older
/// token proves nothing.
pub async fn a_proof_of_death_ends_a_lease_early<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let dead = relay.leases[0].clone();
    let mut asks = AcquireRequest {
        dead: Some(Lease { token: dead.token + 1, ..dead.clone() }),
        ..request(RelayId::mint(), LONG)
    };
    let source = harness.source();
    let refused = source.acquire(&asks).await.expect("acquire");
    assert_eq!(refused.granted, [], "the proof is about another lease");
    assert_eq!(refused.census.relays, 2);
    asks.dead = Some(dead.clone());
    let acquired = source.acquire(&asks).await.expect("acquire");
    let granted = acquired.granted.iter().find(|granted| granted.lease.partition == dead.partition);
    assert!(granted.expect("it is free").lease.token > dead.token);
    assert_eq!(acquired.granted.len(), relay.leases.len());
    assert_eq!(acquired.census.relays, 1, "the dead are not counted");
    for granted in &acquired.granted {
        assert!(relay.leases.iter().any(|lease| lease.partition == granted.lease.partition));
        assert_eq!(granted.takeovers, 1, "it did not let go");
    }
}

/// Who is alive is known by the store's clock, whether it owns anything or not.
pub async fn the_census_counts_who_is_alive<H: StoreHarness>() {
    let harness = H::start().await;
    let unit = harness.unit();
    let mut first = Relay::idle(&harness).await;
    let idle = AcquireRequest { wanted: 0, current: false, ..request(RelayId::mint(), LONG) };
    // A store on a machine that is busy may take longer for its answers than the first one lives.
    for tried in 1.. {
        let began = Instant::now();
        first.acquire(unit * 4).await;
        let acquired = first.source.acquire(&idle).await.expect("acquire");
        assert_eq!(acquired.granted, []);
        let census = acquired.census;
        if (census.relays, census.current) == (2, 1) {
            break;
        }
        let took = began.elapsed();
        assert!(took >= unit * 3 && tried < 10, "{census:?} after {took:?}");
    }
    harness.pass(unit * 6).await;
    let census = first.source.acquire(&idle).await.expect("acquire").census;
    assert_eq!((census.relays, census.current), (1, 0), "the first fell silent");
}

/// Another process on the host finds the holder's proof of life.
pub async fn holders_are_named_with_their_proof_of_life<H: StoreHarness>() {
    let harness = H::start().await;
    let source = harness.source();
    let presence = Presence {
        host: "host-1".to_owned(),
        boot: "boot-1".to_owned(),
        path: "/run/postrider/relay-1.lock".to_owned(),
    };
    let holder =
        AcquireRequest { presence: Some(presence.clone()), ..request(RelayId::mint(), LONG) };
    let granted = source.acquire(&holder).await.expect("acquire").granted;
    let other = request(RelayId::mint(), LONG);
    let held = source.acquire(&other).await.expect("acquire").held;
    assert_eq!(held.len(), granted.len());
    assert_eq!(held[0].lease, granted[0].lease);
    assert_eq!(held[0].presence, Some(presence));
}

fn request(owner: RelayId, lease_duration: Duration) -> AcquireRequest {
    AcquireRequest {
        owner,
        lease_duration,
        wanted: u16::MAX,
        free_for: Duration::ZERO,
        presence: None,
        current: true,
        dead: None,
    }
}

async fn renew(relay: &Relay, lease_duration: Duration) -> Vec<Lease> {
    let request = RenewRequest {
        owner: relay.owner.clone(),
        leases: relay.leases.clone(),
        lease_duration,
        current: true,
    };
    relay.source.renew(&request).await.expect("renew answers").kept
}
