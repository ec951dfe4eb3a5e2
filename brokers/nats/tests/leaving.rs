//! What came to an instance of a group that goes: it is in nobody's hands, and is given back.

use std::collections::BTreeSet;
use std::time::Duration;

use postrider_core::Subscription;
use postrider_nats::{NatsSubscription, SubscriptionSettings};
use tokio::time::{Instant, timeout};

use crate::partitioned::{PATIENCE, publish};
use crate::server::Server;

/// An instance that keeps what it takes for ten minutes.
async fn patient(server: &Server) -> NatsSubscription {
    let mut settings = SubscriptionSettings::new("SHOP", "billing");
    settings.subject = Some("shop.{partition:4}.>".to_owned());
    settings.visibility = Duration::from_secs(600);
    NatsSubscription::open(server.settings(), settings).await.unwrap()
}

/// An instance that asked and turned away, to which something of each partition has come meanwhile.
async fn with_what_came(server: &Server) -> NatsSubscription {
    let going = patient(server).await;
    assert!(timeout(Duration::from_millis(100), going.receive(8)).await.is_err());
    publish(server).await;
    let stream = server.jetstream().await.get_stream("SHOP").await.unwrap();
    let begun = Instant::now();
    loop {
        let mut unsettled = 0;
        for partition in 0..4 {
            let name = format!("billing-partition-{partition}");
            unsettled += stream.consumer_info(name).await.unwrap().num_ack_pending;
        }
        if unsettled == 4 {
            return going;
        }
        assert!(begun.elapsed() < PATIENCE, "{unsettled}");
    }
}

/// Whether another one gets something of each partition within that time.
async fn others_get_all(server: &Server, within: Duration) -> bool {
    let staying = patient(server).await;
    let all = async {
        let mut partitions = BTreeSet::new();
        while partitions.len() < 4 {
            for delivery in staying.receive(8).await.unwrap() {
                partitions.insert(delivery.origin.as_ref().unwrap().partition);
            }
        }
    };
    timeout(within, all).await.is_ok()
}

/// What came to an instance that goes, it gives back: others need not wait for its visibility.
#[tokio::test]
async fn an_instance_that_goes_gives_back_what_came() {
    let Some(server) = Server::start() else { return };
    server.stream("SHOP", "shop.>").await;
    drop(with_what_came(&server).await);
    assert!(others_get_all(&server, PATIENCE).await);
}

/// The same where the process ends with it, so that nothing goes on behind it: closed, it has given back by then.
/// Without that (the control) it had no time to.
#[tokio::test]
async fn an_instance_that_is_closed_gives_back_what_came_before_its_process_ends() {
    for closed in [true, false] {
        let Some(server) = Server::start() else { return };
        server.stream("SHOP", "shop.>").await;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.unwrap().block_on(async {
                    let going = with_what_came(&server).await;
                    if closed {
                        going.close().await.unwrap();
                    }
                });
            });
        });
        let within = if closed { PATIENCE } else { Duration::from_secs(2) };
        assert_eq!(others_get_all(&server, within).await, closed);
    }
}
