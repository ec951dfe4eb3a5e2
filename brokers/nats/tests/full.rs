//! A server whose disk is full.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::{Broker, Event, Outcome};
use postrider_nats::NatsBroker;
use postrider_testkit::carry::{assert_in_order, event, is_unknown, outgoing, until_acked};
use postrider_testkit::disk::Disk;

use crate::publishing::stored;
use crate::server::Server;

/// Room for a server that has begun, and for some events.
const DISK_MIB: u32 = 32;
const BYTES: usize = 200_000;
const PATIENCE: Duration = Duration::from_secs(90);

/// Carries events of a key until one is not acknowledged, and says which that is, and what was said.
async fn until_full(
    broker: &NatsBroker,
    sent: &mut Vec<Arc<Event>>,
) -> postrider_core::Result<Vec<Outcome>> {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < PATIENCE, "it takes everything");
        let next = event("1", u32::try_from(sent.len()).unwrap(), BYTES);
        sent.push(Arc::clone(&next));
        let said = broker.publish(&[outgoing("orders", &next)]).await;
        if !matches!(said.as_deref(), Ok([Outcome::Acked])) {
            return said;
        }
    }
}

/// F25: a server that cannot write acknowledges nothing and kills no event, and it is said that nobody knows what became of
/// it; started anew with room, it has everything once, in its order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_loses_nothing() {
    let disk = match Disk::new(DISK_MIB) {
        Ok(disk) => disk,
        Err(reason) => return println!("skipped: a server of NATS whose disk is full: {reason}"),
    };
    let Some(mut server) = Server::below(disk.folder()) else { return };
    server.stream("orders", "orders").await;
    let mut settings = server.settings();
    settings.deadline = Duration::from_secs(1);
    let broker = NatsBroker::new(settings).unwrap();
    let mut sent = vec![event("1", 0, BYTES)];
    until_acked(&broker, "orders", &sent[0]).await;
    disk.fill();
    let mut said = until_full(&broker, &mut sent).await;
    let open = Arc::clone(sent.last().unwrap());
    for _ in 0..3 {
        assert!(is_unknown(&said), "a full disk is no event's fault: {said:?}");
        said = broker.publish(&[outgoing("orders", &open)]).await;
        assert!(!matches!(said.as_deref(), Ok([Outcome::Acked])), "there is no room");
    }
    let told = format!("{said:?}");
    assert!(told.contains("timeout") || told.contains("in time"), "{told}");
    disk.relieve();
    tokio::task::block_in_place(|| {
        server.kill();
        server.run().unwrap();
    });
    let begun = Instant::now();
    // A server that has just begun may be slow, or say so.
    while !matches!(
        broker.publish(&[outgoing("orders", &open)]).await.as_deref(),
        Ok([Outcome::Acked])
    ) {
        assert!(begun.elapsed() < PATIENCE, "it does not go on");
    }
    let last = event("1", u32::try_from(sent.len()).unwrap(), BYTES);
    sent.push(Arc::clone(&last));
    until_acked(&broker, "orders", &last).await;
    let stream = server.jetstream().await.get_stream("orders").await.unwrap();
    let ids = stored(&stream).await;
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "some are there twice");
    assert_in_order(&ids, &[sent]);
}
