//! Servers that go away, stall, and refuse us.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::{self, stream};
use postrider_core::{Broker, ErrorKind, Outcome, Subscription};
use postrider_nats::{
    Credentials, NatsBroker, NatsSettings, NatsSubscription, SubscriptionSettings,
};
use postrider_testkit::carry::{assert_in_order, carry, until_acked};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::publishing::{event, outgoing, stored};
use crate::server::Server;

/// F5, F6, F10: the server is killed and stalled in mid-batch, again and again: nothing acknowledged is lost,
/// and each key is in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_and_stalls_in_mid_batch_keep_the_order() {
    let Some(mut server) = Server::start() else { return };
    let stream = server.stream("orders", "orders").await;
    let mut settings = server.settings();
    settings.deadline = Duration::from_secs(1);
    let broker = NatsBroker::new(settings).unwrap();
    let carrying = tokio::spawn(async move { carry(&broker, "orders", 20, 400).await });
    let mut faults = 0;
    for round in 0..6 {
        let before = stored_count(&stream).await;
        // In mid-batch: as soon as some more have arrived.
        while !carrying.is_finished() && stored_count(&stream).await < before + 50 {
            // waits: a server tells nobody what it has got
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        faults += usize::from(!carrying.is_finished());
        match round % 2 {
            0 => {
                server.kill();
                server.run().unwrap();
            }
            _ => {
                assert!(server.signal("-STOP"));
                // waits: longer than the deadline, so that answers come too late
                tokio::time::sleep(Duration::from_millis(1_300)).await;
                assert!(server.signal("-CONT"));
            }
        }
    }
    assert!(faults >= 3, "only {faults} faults fell into the run");
    let sent = carrying.await.unwrap();
    let ids = stored(&stream).await;
    assert_in_order(&ids, &sent);
}

async fn stored_count(stream: &async_nats::jetstream::stream::Stream) -> u64 {
    // The server may be away at this moment.
    stream.get_info().await.map_or(0, |info| info.state.messages)
}

/// F5: a connection that is lost is noticed at once, not at the deadline; a server that is away is an error
/// that names it, and nothing was sent.
#[tokio::test]
async fn a_server_that_goes_away_is_noticed_at_once() {
    let Some(mut server) = Server::start() else { return };
    server.stream("orders", "orders").await;
    let mut settings = server.settings();
    settings.deadline = Duration::from_secs(30);
    let broker = Arc::new(NatsBroker::new(settings).unwrap());
    let sent = event("1", 1, 10);
    assert_eq!(broker.publish(&[outgoing("orders", &sent)]).await.unwrap(), [Outcome::Acked]);
    assert!(server.signal("-STOP"));
    let next = event("1", 2, 10);
    let waiting = tokio::spawn({
        let (broker, next) = (Arc::clone(&broker), Arc::clone(&next));
        async move { broker.publish(&[outgoing("orders", &next)]).await }
    });
    let begun = Instant::now();
    server.kill();
    let told = waiting.await.unwrap();
    let unknown = match &told {
        Ok(outcomes) => matches!(&outcomes[..], [Outcome::Retry { .. }]),
        Err(error) => error.kind() == ErrorKind::Unavailable,
    };
    assert!(unknown, "{told:?}");
    assert!(begun.elapsed() < Duration::from_secs(25), "not at the deadline");
    server.run().unwrap();
    assert_eq!(broker.publish(&[outgoing("orders", &next)]).await.unwrap(), [Outcome::Acked]);
}

/// A relay may start before its broker.
#[tokio::test]
async fn a_server_that_is_not_there_yet_is_waited_for() {
    let Some(mut server) = Server::start() else { return };
    server.stream("orders", "orders").await;
    server.kill();
    let mut settings = server.settings();
    settings.deadline = Duration::from_millis(300);
    let broker = NatsBroker::new(settings).unwrap();
    let sent = event("1", 1, 10);
    let refused = broker.publish(&[outgoing("orders", &sent)]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.to_string().contains("nothing was sent"), "{refused}");
    server.run().unwrap();
    let begun = Instant::now();
    while broker.publish(&[outgoing("orders", &sent)]).await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}

/// A stream that is deleted under way: its events wait, and go on in the one that is made anew.
#[tokio::test]
async fn a_stream_that_is_deleted_under_way_is_noticed() {
    let Some(server) = Server::start() else { return };
    server.stream("orders", "orders").await;
    let broker = NatsBroker::new(server.settings()).unwrap();
    let sent = [event("1", 1, 10), event("1", 2, 10)];
    until_acked(&broker, "orders", &sent[0]).await;
    server.jetstream().await.delete_stream("orders").await.unwrap();
    let outcomes = broker.publish(&[outgoing("orders", &sent[1])]).await.unwrap();
    assert!(matches!(&outcomes[..], [Outcome::Unroutable(_)]), "{outcomes:?}");
    let stream = server.stream("orders", "orders").await;
    until_acked(&broker, "orders", &sent[1]).await;
    assert_eq!(stored(&stream).await, [sent[1].id]);
}

/// A stream that is deleted under its consumer: the consumer says so and names it, and goes on in the one that is made
/// anew, with all that comes there; what it had in work is no more, and settling it is an error.
#[tokio::test]
async fn a_consumer_goes_on_in_a_stream_that_is_made_anew() {
    let Some(server) = Server::start() else { return };
    server.stream("orders", "orders").await;
    let settings = SubscriptionSettings::new("orders", "billing");
    let subscription = NatsSubscription::open(server.settings(), settings).await.unwrap();
    let broker = NatsBroker::new(server.settings()).unwrap();
    let sent = [event("1", 1, 10), event("1", 2, 10), event("2", 1, 10)];
    until_acked(&broker, "orders", &sent[0]).await;
    let held = subscription.receive(10).await.unwrap();
    assert_eq!(held.len(), 1);
    server.jetstream().await.delete_stream("orders").await.unwrap();
    let begun = Instant::now();
    let said = loop {
        match tokio::time::timeout(Duration::from_secs(5), subscription.receive(10)).await {
            Ok(Err(error)) if error.kind() == ErrorKind::Unroutable => break error,
            other => assert!(begun.elapsed() < Duration::from_secs(60), "{other:?}"),
        }
    };
    let said = said.to_string();
    assert!(said.contains("create it") && said.contains("stream=orders"), "{said}");
    assert!(subscription.ack(&held[0]).await.is_err(), "nobody keeps what it was about");
    server.stream("orders", "orders").await;
    for event in &sent[1..] {
        until_acked(&broker, "orders", event).await;
    }
    let (mut came, begun) = (Vec::new(), Instant::now());
    while came.len() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{came:?}");
        let Ok(deliveries) = subscription.receive(10).await else { continue };
        for delivery in deliveries {
            came.push(delivery.event.as_ref().unwrap().id);
            subscription.ack(&delivery).await.unwrap();
        }
    }
    assert_eq!(came, [sent[1].id, sent[2].id]);
}

/// F10: a consumer that waits while the server is killed goes on as soon as it is back, not when its question
/// would have run out. And that it is back is told before anything comes: a quiet stream would have no other sign.
#[tokio::test]
async fn a_waiting_consumer_outlives_its_server() {
    let Some(mut server) = Server::start() else { return };
    server.stream("orders", "orders").await;
    let settings = SubscriptionSettings::new("orders", "billing");
    let mut ours = server.settings();
    ours.deadline = Duration::from_secs(1);
    let subscription = Arc::new(NatsSubscription::open(ours, settings).await.unwrap());
    let (well, away) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let receiving = tokio::spawn({
        let subscription = Arc::clone(&subscription);
        let (well, away) = (Arc::clone(&well), Arc::clone(&away));
        async move {
            loop {
                match subscription.receive(10).await {
                    Ok(none) if none.is_empty() => well.notify_one(),
                    Ok(deliveries) => return deliveries,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                        away.notify_one();
                    }
                }
            }
        }
    });
    // waits: so that the consumer waits by then; earlier is right as well
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.kill();
    let told = tokio::time::timeout(Duration::from_secs(20), away.notified()).await;
    told.expect("that it is away is told");
    server.run().unwrap();
    let told = tokio::time::timeout(Duration::from_secs(20), well.notified()).await;
    told.expect("that it is back is told without a message");
    let broker = NatsBroker::new(server.settings()).unwrap();
    let sent = event("1", 1, 10);
    assert_eq!(broker.publish(&[outgoing("orders", &sent)]).await.unwrap(), [Outcome::Acked]);
    let deliveries = tokio::time::timeout(Duration::from_secs(20), receiving).await;
    let deliveries = deliveries.expect("before the question would have run out").unwrap();
    assert_eq!(deliveries[0].event.as_ref().unwrap().id, sent.id);
    subscription.ack(&deliveries[0]).await.unwrap();
}

async fn says(
    server: &Server,
    credentials: Credentials,
) -> Result<Vec<Outcome>, postrider_core::Error> {
    let mut settings: NatsSettings = server.settings();
    settings.credentials = credentials;
    settings.deadline = Duration::from_secs(2);
    let broker = NatsBroker::new(settings)?;
    broker.publish(&[outgoing("orders", &event("1", 1, 10))]).await
}

/// F36, R126: who we are is shown, and a server that does not know us is said to, without a secret.
#[tokio::test]
async fn credentials_are_shown_and_refused() {
    let config = "authorization { users = [ { user: joe, password: sesame } ] }";
    let Some(server) = Server::with(config) else { return };
    let joe = |password: &str| Credentials::User { name: "joe".into(), password: password.into() };
    // No stream takes the subject: we were let in.
    let let_in = says(&server, joe("sesame")).await.unwrap();
    assert!(matches!(let_in[..], [Outcome::Unroutable(_)]), "{let_in:?}");
    for wrong in [joe("hush"), Credentials::None, Credentials::Token("hush".into())] {
        let refused = says(&server, wrong).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unauthorized, "{refused:?}");
        assert!(!refused.to_string().contains("hush"), "{refused}");
        assert!(refused.to_string().contains("credentials"), "{refused}");
    }
}

/// F36: a user's nkey signs, and another's does not.
#[tokio::test]
async fn an_nkey_signs() {
    // Two pairs made for this test alone.
    let pairs = [nkeys::KeyPair::new_user(), nkeys::KeyPair::new_user()];
    let config = format!("authorization {{ users = [ {{ nkey: {} }} ] }}", pairs[0].public_key());
    let Some(server) = Server::with(&config) else { return };
    let seed = |pair: &nkeys::KeyPair| Credentials::Nkey(pair.seed().unwrap().into());
    let let_in = says(&server, seed(&pairs[0])).await.unwrap();
    assert!(matches!(let_in[..], [Outcome::Unroutable(_)]), "{let_in:?}");
    let refused = says(&server, seed(&pairs[1])).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unauthorized, "{refused:?}");
}

/// R126, F36: a user that may not publish to a subject, or not listen to answers, is told so at once, and with what to
/// grant; what goes elsewhere goes on, and the events wait without an attempt counted.
#[tokio::test]
async fn what_a_user_may_not_do_is_said() {
    let user = |name: &str, permissions: &str| {
        format!("{{ user: {name}, password: {name}, permissions: {permissions} }}")
    };
    let config = format!(
        "authorization {{ users = [ {{ user: all, password: all }}, {}, {} ] }}",
        user("few", r#"{ publish: { deny: "orders.secret" } }"#),
        user("deaf", r#"{ subscribe: { deny: "_INBOX.>" } }"#),
    );
    let Some(server) = Server::with(&config) else { return };
    let options = async_nats::ConnectOptions::new().user_and_password("all".into(), "all".into());
    let jetstream = jetstream::new(options.connect(server.address()).await.unwrap());
    let config = stream::Config {
        name: "orders".to_owned(),
        subjects: vec!["orders.*".to_owned()],
        ..stream::Config::default()
    };
    jetstream.create_stream(config).await.unwrap();
    let broker_of = |name: &str| {
        let mut settings = server.settings();
        settings.credentials = Credentials::User { name: name.into(), password: name.into() };
        settings.deadline = Duration::from_secs(30);
        NatsBroker::new(settings).unwrap()
    };
    let sent = [event("1", 1, 10), event("2", 1, 10), event("3", 1, 10)];
    let begun = Instant::now();
    let few = broker_of("few");
    let batch = [
        outgoing("orders.new", &sent[0]),
        outgoing("orders.secret", &sent[1]),
        outgoing("orders.new", &sent[2]),
    ];
    for _ in 0..2 {
        let outcomes = few.publish(&batch).await.unwrap();
        let [Outcome::Acked, Outcome::Unroutable(fault), Outcome::Acked] = &outcomes[..] else {
            panic!("{outcomes:?}");
        };
        assert_eq!(fault.kind, ErrorKind::Unauthorized);
        assert!(fault.detail.contains("publish to `orders.secret`: grant it"), "{fault}");
    }
    let outcomes = broker_of("deaf").publish(&batch[..1]).await.unwrap();
    let [Outcome::Unroutable(fault)] = &outcomes[..] else { panic!("{outcomes:?}") };
    assert_eq!(fault.kind, ErrorKind::Unauthorized);
    assert!(fault.detail.contains("_INBOX.>"), "{fault}");
    assert!(begun.elapsed() < Duration::from_secs(20), "not at the deadline");
}

/// F25: what an account, or the server, may store is used up. The events wait, with the server's words and no attempt
/// counted; with room they go on.
#[tokio::test]
async fn a_quota_that_is_used_up_is_the_endpoints_trouble() {
    let account =
        "accounts { A { jetstream { max_file: 1000000 }, users: [{ user: a, password: a }] } }";
    for (config, within, words) in [
        (account, "", "resource limits exceeded for account"),
        ("", "max_file_store: 1000000", "insufficient resources"),
    ] {
        let Some(server) = Server::within(config, within) else { return };
        let mut settings = server.settings();
        let mut options = async_nats::ConnectOptions::new();
        if !config.is_empty() {
            let (name, password) = ("a".to_owned(), "a".to_owned());
            settings.credentials =
                Credentials::User { name: name.clone(), password: password.clone().into() };
            options = options.user_and_password(name, password);
        }
        let client = options.connect(server.address()).await.unwrap();
        let config = stream::Config {
            name: "orders".to_owned(),
            subjects: vec!["orders".to_owned()],
            ..stream::Config::default()
        };
        let stream = jetstream::new(client).create_stream(config).await.unwrap();
        let broker = NatsBroker::new(settings).unwrap();
        let sent: Vec<_> = (0..40).map(|n| event(&n.to_string(), 1, 40_000)).collect();
        let mut taken = 0;
        let refused = loop {
            let next = &sent[taken];
            match &broker.publish(&[outgoing("orders", next)]).await.unwrap()[..] {
                [Outcome::Acked] => taken += 1,
                [Outcome::Unroutable(fault)] => break fault.clone(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(refused.kind, ErrorKind::Backpressure, "{refused}");
        assert!(refused.detail.contains(words), "{refused}");
        let kept = stream.get_info().await.unwrap().state.messages;
        assert_eq!(kept, taken as u64, "what was taken is kept, and nothing else");
        stream.purge().await.unwrap();
        let next = &sent[taken];
        let outcomes = broker.publish(&[outgoing("orders", next)]).await.unwrap();
        assert_eq!(outcomes, [Outcome::Acked], "there is room");
    }
}

/// A work-queue stream refuses every group but the first, so to choose another one is no way out: it is said what is.
#[tokio::test]
async fn a_second_group_of_a_work_queue_is_told_what_helps() {
    let Some(server) = Server::start() else { return };
    let retention = stream::RetentionPolicy::WorkQueue;
    let subjects = vec!["jobs.>".to_owned()];
    let config =
        stream::Config { name: "JOBS".to_owned(), subjects, retention, ..Default::default() };
    server.stream_of(config).await;
    let open = async |group: &str, from_now: bool| {
        let mut settings = SubscriptionSettings::new("JOBS", group);
        settings.from_now = from_now;
        NatsSubscription::open(server.settings(), settings).await.map(drop)
    };
    let said = open("late", true).await.unwrap_err().to_string();
    assert!(said.contains("leave `from_now` out"), "{said}");
    open("billing", false).await.unwrap();
    let said = open("shipping", false).await.unwrap_err().to_string();
    assert!(said.contains("join the one that is there"), "{said}");
}
