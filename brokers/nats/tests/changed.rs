//! Consumers that somebody changes while a group is at work.

use std::time::Duration;

use async_nats::jetstream::consumer::{PullConsumer, pull};
use postrider_core::{Error, ErrorKind, Subscription};
use postrider_nats::{NatsBroker, NatsSubscription, SubscriptionSettings};
use postrider_testkit::carry::until_acked;
use tokio::time::{Instant, timeout};

use crate::publishing::event;
use crate::server::Server;

const PATIENCE: Duration = Duration::from_secs(60);

/// A group at work: its consumer, as an operator has it, and a stream of which all is settled.
struct Group {
    server: Server,
    subscription: NatsSubscription,
    config: pull::Config,
}

impl Group {
    async fn begin() -> Option<Group> {
        let server = Server::start()?;
        server.stream("SHOP", "shop.>").await;
        let mut settings = SubscriptionSettings::new("SHOP", "billing");
        settings.visibility = Duration::from_secs(3);
        settings.unsettled_max = 1;
        let subscription = NatsSubscription::open(server.settings(), settings).await.unwrap();
        let stream = server.jetstream().await.get_stream("SHOP").await.unwrap();
        let consumer: PullConsumer = stream.get_consumer("billing").await.unwrap();
        let config = consumer.cached_info().config.clone();
        let config = pull::Config {
            durable_name: config.durable_name,
            ack_policy: config.ack_policy,
            ack_wait: config.ack_wait,
            max_deliver: config.max_deliver,
            max_ack_pending: config.max_ack_pending,
            ..pull::Config::default()
        };
        let mut group = Group { server, subscription, config };
        group.goes_on(1).await;
        Some(group)
    }

    async fn change(&self, config: pull::Config) {
        let stream = self.server.jetstream().await.get_stream("SHOP").await.unwrap();
        stream.update_consumer(config).await.unwrap();
    }

    /// What the next receives say, until they say something.
    async fn told(&self) -> Error {
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < PATIENCE, "nobody is told");
            match timeout(PATIENCE, self.subscription.receive(8)).await.expect("nobody is told") {
                Ok(deliveries) => assert!(deliveries.is_empty(), "nothing was sent"),
                Err(error) => return error,
            }
        }
    }

    /// An event comes through.
    async fn goes_on(&mut self, number: u32) {
        let broker = NatsBroker::new(self.server.settings()).unwrap();
        until_acked(&broker, "shop.order", &event("1", number, 10)).await;
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < PATIENCE, "nothing comes");
            let Ok(deliveries) = timeout(PATIENCE, self.subscription.receive(8)).await.unwrap()
            else {
                continue;
            };
            for delivery in &deliveries {
                self.subscription.ack(delivery).await.unwrap();
            }
            if !deliveries.is_empty() {
                return;
            }
        }
    }
}

/// INV-1: a consumer that somebody makes give messages up is not received from any more, however long, until it is changed
/// back. Nobody would hear of what the server gives up.
#[tokio::test]
async fn a_consumer_that_is_made_to_give_up_is_left_until_it_is_changed_back() {
    let Some(mut group) = Group::begin().await else { return };
    group.change(pull::Config { max_deliver: 2, ..group.config.clone() }).await;
    for _ in 0..3 {
        let error = group.told().await;
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        let said = error.to_string();
        assert!(
            said.contains("gives a message up after 2") && said.contains("max deliver to -1"),
            "{said}"
        );
    }
    group.change(group.config.clone()).await;
    group.goes_on(2).await;
}

/// R082: another time than this instance believes, and an order that is no more, are said, each once.
#[tokio::test]
async fn what_else_is_changed_is_said_once() {
    let Some(mut group) = Group::begin().await else { return };
    let wait = Duration::from_secs(2);
    group.change(pull::Config { ack_wait: wait, ..group.config.clone() }).await;
    let said = group.told().await.to_string();
    assert!(said.contains("waits 2s") && said.contains("somebody has changed"), "{said}");
    group.goes_on(2).await;
    group.change(pull::Config { max_ack_pending: 50, ..group.config.clone() }).await;
    let said = group.told().await.to_string();
    assert!(said.contains("lets 50 deliveries be in work"), "{said}");
    group.goes_on(3).await;
    let more = timeout(Duration::from_secs(3), group.subscription.receive(8)).await;
    assert!(!matches!(more, Ok(Err(_))), "{more:?}");
}

/// INV-8: a consumer that an operator paused (2.11 and newer) is no empty stream: for how long is said, and how to end it.
#[tokio::test]
async fn a_consumer_that_is_paused_is_told_of() {
    let Some(mut group) = Group::begin().await else { return };
    let stream = group.server.jetstream().await.get_stream("SHOP").await.unwrap();
    let until = stream.cached_info().created + Duration::from_secs(3_600);
    let Ok(paused) = stream.pause_consumer("billing", until).await else {
        return println!("skipped: this server does not know it");
    };
    if !paused.paused {
        return println!("skipped: this server does not know it");
    }
    for _ in 0..3 {
        let said = group.told().await.to_string();
        assert!(
            said.contains("is paused for another")
                && said.contains("nats consumer resume SHOP billing"),
            "{said}"
        );
    }
    stream.resume_consumer("billing").await.unwrap();
    group.goes_on(2).await;
}
