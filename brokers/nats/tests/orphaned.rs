//! Groups whose consumer somebody deletes: from where they go on.

use std::collections::BTreeSet;
use std::time::Duration;

use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::stream::Stream;
use postrider_core::{EventId, Subscription};
use postrider_nats::{NatsBroker, NatsSubscription, SubscriptionSettings};
use postrider_testkit::carry::until_acked;
use tokio::time::{Instant, sleep, timeout};

use crate::publishing::event;
use crate::server::Server;

const PATIENCE: Duration = Duration::from_secs(60);

/// Of a delivery; the server is asked how far the group has come three times in it.
const VISIBILITY: Duration = Duration::from_secs(3);

/// A group, and who publishes for it.
struct Group {
    server: Server,
    broker: NatsBroker,
    subscription: NatsSubscription,
    sent: u32,
    told: Vec<String>,
}

impl Group {
    async fn of(server: Server) -> Group {
        server.stream("SHOP", "shop.>").await;
        let mut settings = SubscriptionSettings::new("SHOP", "billing");
        settings.visibility = VISIBILITY;
        let subscription = NatsSubscription::open(server.settings(), settings).await.unwrap();
        let broker = NatsBroker::new(server.settings()).unwrap();
        Group { server, broker, subscription, sent: 0, told: Vec::new() }
    }

    async fn stream(&self) -> Stream {
        self.server.jetstream().await.get_stream("SHOP").await.unwrap()
    }

    /// So many more.
    async fn publish(&mut self, count: u32) -> BTreeSet<EventId> {
        let mut ids = BTreeSet::new();
        for _ in 0..count {
            self.sent += 1;
            let event = event("1", self.sent, 10);
            until_acked(&self.broker, "shop.order", &event).await;
            ids.insert(event.id);
        }
        ids
    }

    /// Settles what comes until all of these did, and says what came.
    async fn settle_until(&mut self, awaited: &BTreeSet<EventId>) -> BTreeSet<EventId> {
        let (mut came, begun) = (BTreeSet::new(), Instant::now());
        while !awaited.is_subset(&came) {
            assert!(begun.elapsed() < PATIENCE, "{}: {:?}", came.len(), self.told);
            match timeout(PATIENCE, self.subscription.receive(8)).await.unwrap() {
                Ok(deliveries) => {
                    for delivery in deliveries {
                        came.insert(delivery.event.as_ref().unwrap().id);
                        self.subscription.ack(&delivery).await.unwrap();
                    }
                }
                Err(error) => self.told.push(error.to_string()),
            }
        }
        came
    }

    async fn begins_before(&self, age: Duration) -> bool {
        timeout(PATIENCE, self.subscription.begins_before(age)).await.unwrap().unwrap()
    }

    /// Settles twenty, and then one at a time, for so long that the server has been asked how far that is.
    async fn settle_some(&mut self) -> BTreeSet<EventId> {
        let mut old = self.publish(20).await;
        self.settle_until(&old.clone()).await;
        for _ in 0..2 {
            // waits: until the server may be asked again; it is asked by what is settled then, and tells nobody here
            sleep(VISIBILITY / 3).await;
            let one = self.publish(1).await;
            self.settle_until(&one).await;
            old.extend(one);
        }
        old
    }
}

/// INV-1: the group goes on where it had come for sure, and says so: nothing is passed over, and hardly anything of what was settled
/// comes again, of which the inbox may know no more.
#[tokio::test]
async fn a_group_goes_on_where_it_was_when_its_consumer_is_deleted() {
    let Some(server) = Server::start() else { return };
    let mut group = Group::of(server).await;
    let old = group.settle_some().await;
    group.stream().await.delete_consumer("billing").await.unwrap();
    let new = group.publish(20).await;
    let came = group.settle_until(&new).await;
    let again = came.intersection(&old).count();
    assert!(again <= 2, "{again} of {} come again: {:?}", old.len(), group.told);
    let anew = group.told.iter().filter(|told| told.contains("was made anew"));
    let anew: Vec<_> = anew.collect();
    assert_eq!(anew.len(), 1, "{:?}", group.told);
    assert!(anew[0].contains("it goes on behind message 2"), "{anew:?}");
}

/// R121: a group that has never been given anything begins with what is too old for an inbox; one that has its place does not, nor one that
/// an operator has placed.
#[tokio::test]
async fn a_group_says_when_it_begins_with_what_is_old() {
    let Some(server) = Server::start() else { return };
    let mut group = Group::of(server).await;
    assert!(!group.begins_before(Duration::ZERO).await, "there is nothing");
    let some = group.publish(3).await;
    assert!(group.begins_before(Duration::ZERO).await);
    assert!(!group.begins_before(Duration::from_secs(3_600)).await, "it is younger than that");
    assert!(!group.begins_before(Duration::MAX).await);
    group.settle_until(&some).await;
    assert!(!group.begins_before(Duration::ZERO).await, "it has a place");
    // Somebody deletes it while no instance runs.
    group.stream().await.delete_consumer("billing").await.unwrap();
    let settings = SubscriptionSettings::new("SHOP", "billing");
    group.subscription = NatsSubscription::open(group.server.settings(), settings).await.unwrap();
    assert!(group.begins_before(Duration::ZERO).await);
    let mut settings = SubscriptionSettings::new("SHOP", "billing");
    settings.subject = Some("shop.nothing.>".to_owned());
    settings.group = "other".to_owned();
    group.subscription = NatsSubscription::open(group.server.settings(), settings).await.unwrap();
    assert!(!group.begins_before(Duration::ZERO).await, "what is old is not for it");
    let placed = pull::Config {
        durable_name: Some("placed".to_owned()),
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: 2 },
        max_deliver: -1,
        ..pull::Config::default()
    };
    group.stream().await.create_consumer(placed).await.unwrap();
    let settings = SubscriptionSettings::new("SHOP", "placed");
    group.subscription = NatsSubscription::open(group.server.settings(), settings).await.unwrap();
    assert!(!group.begins_before(Duration::ZERO).await, "it was told where to begin");
}

/// INV-1: a stream of the same name counts from one again. Where the group was in the one before says nothing of it, also where that
/// number is there: all of it comes.
#[tokio::test]
async fn a_group_begins_anew_in_a_stream_that_is_made_anew() {
    let Some(server) = Server::start() else { return };
    let mut group = Group::of(server).await;
    let old = group.settle_some().await;
    group.server.jetstream().await.delete_stream("SHOP").await.unwrap();
    group.server.stream("SHOP", "shop.>").await;
    let new = group.publish(2 * u32::try_from(old.len()).unwrap()).await;
    let came = group.settle_until(&new).await;
    assert_eq!(came, new);
    assert!(group.told.iter().any(|told| told.contains("all that the stream has comes again")));
}
