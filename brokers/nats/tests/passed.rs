//! Groups that stand still for longer than their stream keeps messages.

use std::time::Duration;

use async_nats::jetstream::stream::{RetentionPolicy, Stream};
use postrider_core::Subscription;
use postrider_nats::{NatsBroker, NatsSubscription, SubscriptionSettings};
use postrider_testkit::carry::until_acked;
use tokio::time::{Instant, timeout, timeout_at};

use crate::publishing::event;
use crate::server::Server;

const PATIENCE: Duration = Duration::from_secs(60);
/// The server is looked at every 5 s, and one look is waited for.
const LOOK: Duration = Duration::from_secs(7);
/// So late a clock is on a machine that stood still, where nobody may have looked.
const STOOD_STILL: Duration = Duration::from_millis(250);

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

/// INV-1: of a group with partitions, to which all of the stream belongs, what lies behind all of its places was given to nobody.
#[tokio::test]
async fn what_a_stream_let_go_under_partitions_is_told_once() {
    for (kept, loses) in [(5, true), (16, false)] {
        let Some(server) = Server::start() else { return };
        let stream = server.stream("SHOP", "shop.*.>").await;
        let broker = NatsBroker::new(server.settings()).unwrap();
        for number in 1..=20 {
            let subject = format!("shop.{}.order", number % 2);
            until_acked(&broker, &subject, &event("1", number, 10)).await;
        }
        let before = group(&server, Some("shop.{partition:2}.>")).await;
        assert!(told(&before, 4).await.is_empty());
        // What was given out and not settled is no place that was come to.
        before.close().await.unwrap();
        drop(before);
        let settled = server.jetstream().await;
        let mut places = Vec::new();
        for partition in 0..2 {
            let stream = settled.get_stream("SHOP").await.unwrap();
            let name = format!("billing-partition-{partition}");
            places.push(stream.consumer_info(name).await.unwrap().delivered.stream_sequence);
        }
        let furthest = *places.iter().max().unwrap();
        keep(&server, &stream, kept).await;
        let behind = group(&server, Some("shop.{partition:2}.>")).await;
        let heard = told(&behind, usize::try_from(kept).unwrap().min(10)).await;
        match loses {
            true => {
                let least = format!("{} at least", 15 - furthest);
                assert!(heard.len() == 1 && heard[0].contains(&least), "{furthest}: {heard:?}");
            }
            false => assert!(heard.is_empty(), "{kept}: {heard:?}"),
        }
    }
}

/// What is told of while a group is at work, until so much time has passed.
async fn heard(subscription: &NatsSubscription, settles: bool, time: Duration) -> Vec<String> {
    let (mut heard, begun) = (Vec::new(), Instant::now());
    let mut until = begun + time;
    loop {
        match timeout_at(until, subscription.receive(10)).await {
            Ok(Ok(deliveries)) if settles => {
                for delivery in deliveries {
                    subscription.ack(&delivery).await.unwrap();
                }
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => heard.push(error.to_string()),
            Err(_) if until.elapsed() > STOOD_STILL && begun.elapsed() < time + PATIENCE => {
                until = Instant::now() + LOOK;
            }
            Err(_) => return heard,
        }
    }
}

/// What is told of where something has to be, and until another look has found no more of it.
async fn heard_of(subscription: &NatsSubscription) -> Vec<String> {
    let first = async {
        loop {
            if let Err(error) = subscription.receive(10).await {
                return error.to_string();
            }
        }
    };
    let first = timeout(PATIENCE, first).await.expect("it is told of");
    [vec![first], heard(subscription, false, LOOK).await].concat()
}

/// INV-1: what is taken under a group at work that takes some of the subjects is told of, whatever takes it.
#[tokio::test]
async fn what_is_taken_under_a_group_with_a_filter_is_told() {
    let subjects = ["shop.a", "shop.{partition:1}.b"];
    for (subject, purges) in subjects.into_iter().flat_map(|it| [(it, false), (it, true)]) {
        let Some(server) = Server::start() else { return };
        let stream = server.stream("SHOP", "shop.>").await;
        let broker = NatsBroker::new(server.settings()).unwrap();
        for number in 1..=20 {
            let subject = ["shop.a", "shop.0.b", "shop.others"][number as usize % 3];
            until_acked(&broker, subject, &event("1", number, 10)).await;
        }
        let mut settings = SubscriptionSettings::new("SHOP", "billing");
        settings.subject = Some(subject.to_owned());
        settings.unsettled_max = 1;
        let slow = NatsSubscription::open(server.settings(), settings).await.unwrap();
        // One is at work, and what is behind it is looked at.
        assert!(heard(&slow, false, LOOK).await.is_empty(), "{subject}");
        match purges {
            true => _ = stream.purge().await.unwrap(),
            false => keep(&server, &stream, 3).await,
        }
        let heard = heard_of(&slow).await;
        assert!(heard.len() == 1, "{subject} {purges}: {heard:?}");
        assert!(heard[0].contains("had not been given"), "{heard:?}");
    }
}

/// A group that takes some of the subjects, and settles all that it is given, is told of nothing, whatever its stream lets go, and
/// however busy it is.
#[tokio::test]
async fn a_group_that_is_given_everything_hears_of_no_loss() {
    for retention in [RetentionPolicy::Limits, RetentionPolicy::Interest] {
        let Some(server) = Server::start() else { return };
        let stream = server.stream("SHOP", "shop.>").await;
        let mut config = stream.cached_info().config.clone();
        server.jetstream().await.delete_stream("SHOP").await.unwrap();
        (config.retention, config.max_messages) = (retention, 400);
        server.jetstream().await.create_stream(config).await.unwrap();
        let group = group(&server, Some("shop.a")).await;
        let broker = NatsBroker::new(server.settings()).unwrap();
        let busy = async {
            for number in 1u32.. {
                let subject = ["shop.a", "shop.others", "shop.others"][number as usize % 3];
                until_acked(&broker, subject, &event("1", number, 10)).await;
            }
        };
        tokio::select! {
            heard = heard(&group, true, LOOK * 3) => assert!(heard.is_empty(), "{retention:?}: {heard:?}"),
            () = busy => unreachable!("it has no end"),
        }
    }
}

/// INV-1: what comes and goes between two looks is told of where all of the stream is the group's.
#[tokio::test]
async fn a_burst_that_is_let_go_under_a_group_at_work_is_told() {
    let Some(server) = Server::start() else { return };
    let stream = server.stream("SHOP", "shop.>").await;
    keep(&server, &stream, 10).await;
    let mut settings = SubscriptionSettings::new("SHOP", "billing");
    settings.unsettled_max = 1;
    let slow = NatsSubscription::open(server.settings(), settings).await.unwrap();
    let broker = NatsBroker::new(server.settings()).unwrap();
    for number in 1..=100 {
        until_acked(&broker, "shop.order", &event("1", number, 10)).await;
    }
    let heard = heard_of(&slow).await;
    assert!(heard.len() == 1 && heard[0].contains("begins with 91"), "{heard:?}");
}
