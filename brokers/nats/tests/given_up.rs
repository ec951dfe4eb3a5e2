//! What a server gives up of a group's, since somebody made its consumer do so.

use std::collections::BTreeSet;
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::stream::{self, Stream};
use postrider_core::{Delivery, Subscription};
use postrider_nats::{
    Credentials, NatsBroker, NatsSettings, NatsSubscription, SubscriptionSettings,
};
use postrider_testkit::carry::until_acked;
use tokio::time::{Instant, timeout};

use crate::domains::{hub_and_leaf, of};
use crate::publishing::event;
use crate::server::Server;

const PATIENCE: Duration = Duration::from_secs(60);

/// Events, and how many of them are tried three times, and twice, before the consumer is changed.
const COUNT: usize = 60;
const TRIED: usize = 20;

/// A group at work on a stream, as an operator has both.
struct Group {
    subscription: NatsSubscription,
    stream: Stream,
    consumer: String,
}

async fn begin(nats: NatsSettings, stream: Stream, subject: &str) -> Group {
    let mut settings = SubscriptionSettings::new("SHOP", "billing");
    settings.subject = Some(subject.to_owned());
    settings.dead_letters = Some("dead".to_owned());
    let is_one = !subject.contains('{');
    let subscription = NatsSubscription::open(nats, settings).await.unwrap();
    let consumer = if is_one { "billing" } else { "billing-partition-0" }.to_owned();
    Group { subscription, stream, consumer }
}

impl Group {
    async fn gives_up_after(&self, max_deliver: i64) {
        let consumer: PullConsumer = self.stream.get_consumer(&self.consumer).await.unwrap();
        let config = consumer.cached_info().config.clone();
        let changed = pull::Config {
            durable_name: config.durable_name,
            ack_policy: AckPolicy::Explicit,
            ack_wait: config.ack_wait,
            filter_subject: config.filter_subject,
            max_ack_pending: config.max_ack_pending,
            max_deliver,
            ..pull::Config::default()
        };
        self.stream.update_consumer(changed).await.unwrap();
    }

    /// So many deliveries.
    async fn receive(&self, count: usize) -> Vec<Delivery> {
        let (mut received, begun) = (Vec::new(), Instant::now());
        while received.len() < count {
            assert!(begun.elapsed() < PATIENCE, "{} of {count}", received.len());
            let came = self.subscription.receive(count - received.len()).await;
            received.extend(came.unwrap());
        }
        received
    }

    async fn give_back(&self, deliveries: &[Delivery]) {
        for delivery in deliveries {
            self.subscription.nack(delivery, Duration::ZERO, false).await.unwrap();
        }
    }

    /// Goes on until nothing comes any more, and gives back what comes while the consumer is as it is not to be. Returns what was done
    /// of it, and what was told.
    async fn run(&self, dead: &Stream, count: usize) -> (BTreeSet<u64>, Vec<String>) {
        let (mut done, mut told, begun, mut back) =
            (BTreeSet::new(), Vec::new(), Instant::now(), false);
        loop {
            let all: BTreeSet<u64> = done.union(&buried(dead).await).copied().collect();
            if all.len() >= count && back {
                return (done, told);
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "lost: {:?}; {told:?}",
                (1..=count as u64).filter(|it| !all.contains(it)).collect::<Vec<_>>()
            );
            match timeout(Duration::from_secs(1), self.subscription.receive(64)).await {
                Ok(Ok(deliveries)) if back => {
                    for delivery in &deliveries {
                        self.subscription.ack(delivery).await.unwrap();
                        done.insert(delivery.receipt.message);
                    }
                }
                Ok(Ok(deliveries)) => self.give_back(&deliveries).await,
                Ok(Err(error)) => {
                    let said = error.to_string();
                    if !back && said.contains("max deliver to -1") {
                        self.gives_up_after(-1).await;
                        back = true;
                    }
                    told.push(said);
                }
                Err(_) => {}
            }
        }
    }
}

/// Whose dead letters there are.
async fn buried(dead: &Stream) -> BTreeSet<u64> {
    let state = dead.get_info().await.unwrap().state;
    let mut found = BTreeSet::new();
    for sequence in state.first_sequence.max(1)..=state.last_sequence {
        let letter = dead.get_raw_message(sequence).await.unwrap();
        let of = letter.headers.get("postrider-dead-sequence").unwrap().as_str().parse();
        assert!(found.insert(of.unwrap()), "two letters of one: {letter:?}");
        let reason = letter.headers.get("postrider-dead-reason").unwrap().as_str();
        assert!(reason.contains("gave it up after"), "{reason}");
    }
    found
}

async fn publish(server: &Server, subject: &str, count: usize) {
    let broker = NatsBroker::new(server.settings()).unwrap();
    for number in 1..=count {
        until_acked(&broker, subject, &event("1", u32::try_from(number).unwrap(), 10)).await;
    }
}

/// INV-1: what the server gives up of a group behind its back, tried often, twice, or once by then, is among the dead letters, with its
/// body, once, also where two instances hear of it; and the group goes on when the consumer is changed back.
#[tokio::test]
async fn what_the_server_gives_up_is_a_dead_letter() {
    let Some(server) = Server::start() else { return };
    let (shop, dead) = (server.stream("SHOP", "shop.>").await, server.stream("dead", "dead").await);
    publish(&server, "shop.order", COUNT).await;
    let group = begin(server.settings(), shop.clone(), "shop.>").await;
    let other = begin(server.settings(), shop.clone(), "shop.>").await;
    let first = group.receive(COUNT).await;
    // What was just given back comes first.
    group.give_back(&first[..TRIED]).await;
    let again = group.receive(TRIED).await;
    group.give_back(&again).await;
    let thrice = group.receive(TRIED).await;
    group.give_back(&first[TRIED..2 * TRIED]).await;
    let twice = group.receive(TRIED).await;
    group.gives_up_after(2).await;
    for given_back in [&thrice[..], &twice, &first[2 * TRIED..]] {
        group.give_back(given_back).await;
    }
    let (_, told) = group.run(&dead, COUNT).await;
    assert!(told.iter().any(|said| said.contains("dead letters of `dead`")), "{told:?}");
    let kept = buried(&dead).await;
    assert!(kept.len() >= 2 * TRIED, "{kept:?}");
    let heard = timeout(PATIENCE, other.subscription.receive(1)).await.unwrap().unwrap_err();
    assert!(heard.to_string().contains("dead letters"), "{heard}");
    assert_eq!(buried(&dead).await, kept, "no second ones");
    let letter = dead.get_raw_message(1).await.unwrap();
    let of = letter.headers.get("postrider-dead-sequence").unwrap().as_str().parse().unwrap();
    let message = shop.get_raw_message(of).await.unwrap();
    assert_eq!(letter.payload, message.payload);
    assert_eq!(letter.headers.get("ce-id"), message.headers.get("ce-id"));
}

/// INV-1: what was given back by an instance that is gone, and that the server gives up, another one hears of, which never had it. With
/// partitions as well, and from another domain.
#[tokio::test]
async fn what_the_server_gives_up_is_heard_of_by_others() {
    for (of_domain, subject) in
        [(false, "shop.>"), (false, "shop.{partition:4}.>"), (true, "shop.>")]
    {
        let (server, nats, _hub) = if of_domain {
            let Some((hub, leaf)) = hub_and_leaf().await else { return };
            let nats = of(&leaf, Some("hub"));
            (hub, nats, Some(leaf))
        } else {
            let Some(server) = Server::start() else { return };
            let nats = server.settings();
            (server, nats, None)
        };
        let shop = server.stream("SHOP", "shop.>").await;
        let dead = server.stream("dead", "dead").await;
        let in_work = if subject.contains('{') { 1 } else { TRIED };
        publish(&server, "shop.0.order", in_work).await;
        let (had, hears) = (
            begin(nats.clone(), shop.clone(), subject).await,
            begin(nats.clone(), shop.clone(), subject).await,
        );
        let first = had.receive(in_work).await;
        had.gives_up_after(1).await;
        had.give_back(&first).await;
        drop(had);
        let (done, told) = hears.run(&dead, in_work).await;
        assert!(told.iter().any(|said| said.contains("dead letters")), "{subject}: {told:?}");
        assert!(done.is_empty(), "{done:?}");
    }
}

/// A user that may not hear of it goes on, without an error.
#[tokio::test]
async fn who_may_not_hear_what_is_given_up_receives_all_the_same() {
    let config = "authorization { users = [ { user: all, password: all }, { user: few, password: few, \
        permissions: { subscribe: { deny: \"$JS.EVENT.>\" } } } ] }";
    let Some(server) = Server::with(config) else { return };
    let options = async_nats::ConnectOptions::new().user_and_password("all".into(), "all".into());
    let jetstream = jetstream::new(options.connect(server.address()).await.unwrap());
    let named = |name: &str, subject: &str| stream::Config {
        name: name.to_owned(),
        subjects: vec![subject.to_owned()],
        ..stream::Config::default()
    };
    let shop = jetstream.create_stream(named("SHOP", "shop.>")).await.unwrap();
    jetstream.create_stream(named("dead", "dead")).await.unwrap();
    let mut settings = server.settings();
    settings.credentials = Credentials::User { name: "few".into(), password: "few".into() };
    let broker = NatsBroker::new(settings.clone()).unwrap();
    until_acked(&broker, "shop.order", &event("1", 1, 10)).await;
    let group = begin(settings, shop, "shop.>").await;
    for delivery in group.receive(1).await {
        group.subscription.ack(&delivery).await.unwrap();
    }
}
