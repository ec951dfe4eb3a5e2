//! Groups that stand still for longer than their stream keeps messages.

use std::time::Duration;

use async_nats::jetstream::stream::Stream;
use postrider_core::Subscription;
use postrider_nats::{NatsBroker, NatsSubscription, SubscriptionSettings};
use postrider_testkit::carry::until_acked;
use tokio::time::{Instant, timeout};

use crate::publishing::event;
use crate::server::Server;

const PATIENCE: Duration = Duration::from_secs(20);

async fn group(server: &Server, subject: Option<&str>) -> NatsSubscription {
    let mut settings = SubscriptionSettings::new("SHOP", "billing");
    settings.subject = subject.map(str::to_owned);
    NatsSubscription::open(server.settings(), settings).await.unwrap()
}

/// The stream keeps so many from now on.
async fn keep(server: &Server, stream: &Stream, count: i64) {
    let mut config = stream.cached_info().config.clone();
    config.max_messages = count;
    server.jetstream().await.update_stream(config).await.unwrap();
}

/// What is told until so many came, each of which is settled.
async fn told(subscription: &NatsSubscription, count: usize) -> Vec<String> {
    let (mut came, mut told, begun) = (0, Vec::new(), Instant::now());
    while came < count {
        assert!(begun.elapsed() < PATIENCE, "{came}: {told:?}");
        match timeout(PATIENCE, subscription.receive(1)).await.unwrap() {
            Ok(deliveries) => {
                for delivery in deliveries {
                    subscription.ack(&delivery).await.unwrap();
                    came += 1;
                }
            }
            Err(error) => told.push(error.to_string()),
        }
    }
    told
}

/// INV-1: what retention took from a group that stood still is told, once, with how many that may be; a group that lost nothing hears
/// nothing, nor one that takes some of the subjects: whose they were nobody knows.
#[tokio::test]
async fn what_a_stream_let_go_under_a_group_is_told_once() {
    for (subject, kept, said) in [
        (None, 5, Some("11 at most")),
        (Some("shop.>"), 5, Some("11 at most")),
        (Some("shop.>"), 16, None),
        (Some("shop.*"), 5, None),
    ] {
        let Some(server) = Server::start() else { return };
        let stream = server.stream("SHOP", "shop.>").await;
        let broker = NatsBroker::new(server.settings()).unwrap();
        for number in 1..=20 {
            until_acked(&broker, "shop.order", &event("1", number, 10)).await;
        }
        let before = group(&server, subject).await;
        assert!(told(&before, 4).await.is_empty());
        drop(before);
        keep(&server, &stream, kept).await;
        let behind = group(&server, subject).await;
        let heard = told(&behind, usize::try_from(kept).unwrap()).await;
        match said {
            Some(said) => {
                assert!(heard.len() == 1 && heard[0].contains(said), "{subject:?}: {heard:?}");
                assert!(heard[0].contains("had come to 4") && heard[0].contains("with 16 now"));
            }
            None => assert!(heard.is_empty(), "{subject:?} {kept}: {heard:?}"),
        }
    }
}
