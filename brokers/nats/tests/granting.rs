//! What a consumer's user is not let do: it is told what to grant, and goes on when it is granted.

use std::time::Duration;

use async_nats::jetstream::{self, stream};
use postrider_core::{Error, ErrorKind, Subscription};
use postrider_nats::{Credentials, NatsSubscription, SubscriptionSettings};
use postrider_testkit::carry::until_acked;
use tokio::time::{Instant, timeout};

use crate::publishing::event;
use crate::server::{Server, received};

const PATIENCE: Duration = Duration::from_secs(60);

/// The users: one that may do all, and one that may not publish to a subject.
fn users(denied: &str) -> String {
    format!(
        "authorization {{ users = [ {{ user: all, password: all }}, {{ user: few, password: few, permissions: {{ publish: {{ \
         deny: \"{denied}\" }} }} }} ] }}"
    )
}

fn as_user(server: &Server, name: &str) -> postrider_nats::NatsSettings {
    let mut settings = server.settings();
    settings.credentials = Credentials::User { name: name.into(), password: name.into() };
    settings
}

/// A server with a stream that has an event.
async fn server_with(denied: &str) -> Option<Server> {
    server_of(&users(denied)).await
}

/// The same with other users.
async fn server_of(users: &str) -> Option<Server> {
    let server = Server::with(users)?;
    let options = async_nats::ConnectOptions::new().user_and_password("all".into(), "all".into());
    let jetstream = jetstream::new(options.connect(server.address()).await.unwrap());
    let config = stream::Config {
        name: "SHOP".to_owned(),
        subjects: vec!["shop.>".to_owned()],
        ..stream::Config::default()
    };
    jetstream.create_stream(config).await.unwrap();
    let broker = postrider_nats::NatsBroker::new(as_user(&server, "all")).unwrap();
    until_acked(&broker, "shop.1.order", &event("1", 1, 10)).await;
    Some(server)
}

fn is_told(error: &Error, denied: &str) {
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    let said = error.to_string();
    assert!(said.contains("grant it") && said.contains(denied), "{said}");
}

/// INV-8: who may not ask for messages is told so at once and again each time, not now and then, and goes on by itself; also
/// where nothing has come since that would say that all is well.
#[tokio::test]
async fn who_may_not_ask_for_messages_is_told_so() {
    let denied = "$JS.API.CONSUMER.MSG.NEXT.>";
    for subject in [None, Some("shop.{partition:2}.>")] {
        let Some(server) = server_with(denied).await else { return };
        let mut settings = SubscriptionSettings::new("SHOP", "billing");
        settings.subject = subject.map(str::to_owned);
        let opened = NatsSubscription::open(as_user(&server, "few"), settings).await;
        let subscription = opened.unwrap();
        for _ in 0..3 {
            let begun = Instant::now();
            let error = subscription.receive(8).await.unwrap_err();
            is_told(&error, "$JS.API.CONSUMER.MSG.NEXT.SHOP.billing");
            assert!(begun.elapsed() < Duration::from_secs(5), "not at the deadline");
        }
        let path = server.folder().join("nats.conf");
        let config = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, config.replace(denied, "nothing")).unwrap();
        assert!(server.signal("-HUP"));
        let begun = Instant::now();
        let received = loop {
            match timeout(PATIENCE, subscription.receive(8)).await.unwrap() {
                Ok(deliveries) if !deliveries.is_empty() => break deliveries,
                Ok(_) => {}
                Err(error) => is_told(&error, "MSG.NEXT"),
            }
            assert!(begun.elapsed() < PATIENCE, "{}", server.log());
        };
        subscription.ack(&received[0]).await.unwrap();
    }
}

/// INV-8: who may not settle, or look for stream and consumer, is told what to grant at once.
#[tokio::test]
async fn who_may_not_settle_or_look_is_told_so() {
    let Some(server) = server_with("$JS.ACK.>").await else { return };
    let settings = SubscriptionSettings::new("SHOP", "billing");
    let subscription = NatsSubscription::open(as_user(&server, "few"), settings).await.unwrap();
    let received = received(&subscription, 8).await;
    let begun = Instant::now();
    is_told(&subscription.ack(&received[0]).await.unwrap_err(), "$JS.ACK.>");
    assert!(begun.elapsed() < Duration::from_secs(4), "not at the deadline");
    for denied in ["$JS.API.STREAM.INFO.SHOP", "$JS.API.CONSUMER.INFO.SHOP.billing"] {
        let Some(server) = server_with(denied).await else { return };
        let settings = SubscriptionSettings::new("SHOP", "billing");
        let error = NatsSubscription::open(as_user(&server, "few"), settings).await.unwrap_err();
        is_told(&error, denied);
    }
}

/// INV-8: a cluster that has no leader yet says nothing about stream and consumer: who begins meanwhile waits for it, and is not
/// told to create what is there.
#[tokio::test]
async fn a_cluster_without_a_leader_is_waited_for() {
    let alone = "server_name: n1\ncluster { name: c, listen: \"127.0.0.1:-1\", routes: [nats-route://127.0.0.1:1] }";
    let Some(server) = Server::with(alone) else { return };
    let settings = SubscriptionSettings::new("SHOP", "billing");
    let error = NatsSubscription::open(server.settings(), settings).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(!error.to_string().contains("create it"), "{error}");
}

/// F36: with the rights that the guide names and no more, a group is looked at, its dead letters' place is no question that
/// keeps anybody waiting, and it comes back after its server was away.
#[tokio::test]
async fn what_the_guide_grants_suffices() {
    let publish = [
        "$JS.API.STREAM.INFO.SHOP",
        "$JS.API.CONSUMER.INFO.SHOP.>",
        "$JS.API.CONSUMER.MSG.NEXT.SHOP.>",
        "$JS.API.CONSUMER.CREATE.SHOP.>",
        "$JS.API.CONSUMER.DURABLE.CREATE.SHOP.>",
        "$JS.API.STREAM.MSG.GET.SHOP",
        "$JS.ACK.SHOP.>",
        "dead.orders",
    ];
    let guide = include_str!("../../../docs/guide/nats.md");
    for subject in publish.iter().take(7) {
        let granted = subject.replace(".SHOP", ".STREAM");
        assert!(guide.contains(&format!("`{granted}`")), "the guide does not grant {granted}");
    }
    let quoted = publish.map(|subject| format!("\"{subject}\"")).join(", ");
    let config = format!(
        "authorization {{ users = [ {{ user: all, password: all }}, {{ user: few, password: few, permissions: {{ publish: \
         [{quoted}], subscribe: [\"_INBOX.>\", \"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.SHOP.>\"] }} }} ] }}"
    );
    let Some(mut server) = server_of(&config).await else { return };
    let mut settings = SubscriptionSettings::new("SHOP", "billing");
    settings.dead_letters = Some("dead.orders".to_owned());
    let begun = Instant::now();
    let subscription = NatsSubscription::open(as_user(&server, "few"), settings.clone()).await;
    let subscription = subscription.unwrap();
    let wait = postrider_nats::ack_wait(as_user(&server, "few"), &settings).await.unwrap();
    assert_eq!(wait, Some(settings.visibility));
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    let first = received(&subscription, 1).await.remove(0);
    subscription.ack(&first).await.unwrap();
    server.kill();
    let away = timeout(PATIENCE, subscription.receive(1)).await;
    assert!(!matches!(away, Ok(Ok(ref some)) if !some.is_empty()), "{away:?}");
    server.run().unwrap();
    let broker = postrider_nats::NatsBroker::new(as_user(&server, "all")).unwrap();
    until_acked(&broker, "shop.1.order", &event("1", 2, 10)).await;
    let begun = Instant::now();
    loop {
        let received = timeout(PATIENCE, subscription.receive(1)).await;
        if matches!(&received, Ok(Ok(some)) if !some.is_empty()) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "it does not come back: {received:?}");
    }
}
