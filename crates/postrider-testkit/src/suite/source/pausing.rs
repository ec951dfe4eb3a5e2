//! Paused partitions: granted to nobody, and let go by their owner in its own time.

use postrider_core::source::RenewRequest;

use crate::suite::relay::{LONG, Relay};
use crate::suite::{StoreHarness, skip};

const REASON: &str = "partitions cannot be paused";

/// What an operator paused nobody gets, until it is let go on.
pub async fn a_paused_partition_is_granted_to_nobody<H: StoreHarness>() {
    let harness = H::start().await;
    let mut relay = Relay::idle(&harness).await;
    let partition = postrider_core::PartitionId(0);
    let before = relay.source.destinations().await.expect("destinations");
    assert_eq!(before.paused, []);
    let Some(paused) = harness.set_partition(partition, true) else {
        return skip("a_paused_partition_is_granted_to_nobody", REASON);
    };
    paused.await.expect("pause");
    let after = relay.source.destinations().await.expect("destinations");
    assert_eq!(after.paused, [partition]);
    assert!(after.version > before.version, "or its owner would not hear of it");
    let facts = relay.source.open().await.expect("open");
    let granted = relay.acquire(LONG).await.granted;
    assert_eq!(granted.len(), usize::from(facts.partitions) - 1);
    assert!(granted.iter().all(|granted| granted.lease.partition != partition));
    harness.set_partition(partition, false).expect("as before").await.expect("let go on");
    let granted = relay.acquire(LONG).await.granted;
    assert_eq!(granted.len(), 1);
    assert_eq!(granted[0].lease.partition, partition);
    let after = relay.source.destinations().await.expect("destinations");
    assert_eq!(after.paused, []);
}

/// Its owner keeps it until what is under way is saved: then it lets go, and gets it no more.
pub async fn a_paused_partition_is_kept_until_it_is_let_go<H: StoreHarness>() {
    let harness = H::start().await;
    let mut relay = Relay::start(&harness).await;
    let partition = postrider_core::PartitionId(0);
    let Some(paused) = harness.set_partition(partition, true) else {
        return skip("a_paused_partition_is_kept_until_it_is_let_go", REASON);
    };
    paused.await.expect("pause");
    let request = RenewRequest {
        owner: relay.owner.clone(),
        leases: relay.leases.clone(),
        lease_duration: LONG,
        current: true,
    };
    let renewed = relay.source.renew(&request).await.expect("renew");
    assert_eq!(renewed.kept, relay.leases, "it is still its own");
    let definitions = relay.source.destinations().await.expect("destinations");
    assert_eq!(renewed.definitions, definitions.version, "and it hears of it");
    relay.source.release(&relay.leases).await.expect("release");
    let others = relay.leases.len() - 1;
    relay.leases.clear();
    let granted = relay.acquire(LONG).await.granted;
    assert_eq!(granted.len(), others);
    assert!(granted.iter().all(|granted| granted.lease.partition != partition));
}
