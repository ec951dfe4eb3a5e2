//! Reports: what a relay says of itself is read by operators, of every store that is both sides.

use std::time::Duration;

use postrider_core::operate::Operator;
use postrider_core::source::{OutboxSource, RenewRequest};
use postrider_core::{DestinationId, Hindrance, Lease, RelayId};

/// INV-8: what keeps the owner of a lease from delivering stands in the overview from when it says so, through its
/// heartbeats, until it says something else. What nobody's relay says is kept nowhere.
pub async fn what_a_relay_says_of_itself_is_seen<S: OutboxSource + Operator>(
    store: &S,
    lease: &Lease,
) {
    let owner = &lease.owner;
    let seen = async || {
        let relays = store.overview().await.expect("the overview").relays;
        let mut own = relays.into_iter().filter(|relay| relay.owner == *owner);
        own.next().expect("it is alive").hindrances
    };
    assert_eq!(seen().await, []);
    let destination = DestinationId::new("a").expect("a name");
    let told = [
        Hindrance::new(Some(destination), "endpoint \"x\": it said 'no';\n--"),
        Hindrance::new(None, &"ü".repeat(1_000)),
    ];
    store.report(owner, &told).await.expect("report");
    store.report(&RelayId::mint(), &told).await.expect("a report of one that is not there");
    assert_eq!(seen().await, told);
    let (leases, lease_duration) = (vec![lease.clone()], Duration::from_secs(60));
    let renewal = RenewRequest { owner: owner.clone(), leases, lease_duration, current: true };
    store.renew(&renewal).await.expect("renew");
    assert_eq!(seen().await, told);
    store.report(owner, &[]).await.expect("report");
    assert_eq!(seen().await, []);
    assert_eq!(store.overview().await.expect("the overview").relays.len(), 1);
}
