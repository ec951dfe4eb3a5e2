//! Dead letters: what goes with them, what does not, and when they count as kept.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::{Context, stream};
use postrider_core::{Delivery, ErrorKind, Fault, Subscription};
use postrider_nats::{Credentials, NatsSettings, NatsSubscription, SubscriptionSettings};
use tokio::time::{Instant, timeout};

use crate::promised::answers;
use crate::server::Server;

/// How long a message may take to come.
const PATIENCE: Duration = Duration::from_secs(20);

/// A group with one unsettled delivery: what is not let go stops all that comes behind it.
async fn group(nats: NatsSettings) -> NatsSubscription {
    let mut settings = SubscriptionSettings::new("orders", "billing");
    settings.unsettled_max = 1;
    settings.dead_letters = Some("dead".to_owned());
    NatsSubscription::open(nats, settings).await.unwrap()
}

async fn next(subscription: &NatsSubscription) -> Delivery {
    let came = timeout(PATIENCE, async {
        loop {
            if let Some(delivery) = subscription.receive(1).await.unwrap().pop() {
                return delivery;
            }
        }
    });
    came.await.expect("the next one comes")
}

async fn publish(jetstream: &Context, headers: &[(&str, &str)], body: String) {
    let mut all = HeaderMap::new();
    for (name, value) in headers {
        all.insert(*name, *value);
    }
    let sent = jetstream.publish_with_headers("orders", all, body.into()).await;
    sent.unwrap().await.unwrap();
}

async fn dead(jetstream: &Context) -> Vec<StreamMessage> {
    let stream = jetstream.get_stream("dead").await.unwrap();
    let state = stream.cached_info().state.clone();
    let mut letters = Vec::new();
    for sequence in state.first_sequence..=state.last_sequence {
        letters.push(stream.get_raw_message(sequence).await.unwrap());
    }
    letters
}

fn poison() -> Fault {
    Fault::new(ErrorKind::Invalid, "no order")
}

fn named(name: &str) -> stream::Config {
    stream::Config {
        name: name.to_owned(),
        subjects: vec![name.to_owned()],
        ..stream::Config::default()
    }
}

fn says<'a>(letter: &'a StreamMessage, name: &str) -> Option<&'a str> {
    letter.headers.get(name).map(async_nats::HeaderValue::as_str)
}

/// R093, INV-1: what a publisher told the stream that a message was meant for is not told to the stream of dead letters:
/// that one would refuse the copy for ever, and the message with it all that comes behind, or drop what it has.
#[tokio::test]
async fn a_dead_letter_gives_its_stream_no_orders() {
    let Some(server) = Server::start() else { return };
    for name in ["orders", "dead"] {
        server.stream_of(stream::Config { allow_rollup: true, ..named(name) }).await;
    }
    let jetstream = server.jetstream().await;
    let subscription = group(server.settings()).await;
    let orders: [&[(&str, &str)]; 4] = [
        &[("Nats-Msg-Id", "one"), ("Nats-Expected-Stream", "orders"), ("x-kept", "as it is")],
        &[("Nats-Expected-Last-Msg-Id", "one"), ("Nats-Expected-Last-Sequence", "1")],
        &[("Nats-Expected-Last-Subject-Sequence", "2")],
        &[("Nats-Rollup", "all")],
    ];
    for (headers, number) in orders.into_iter().zip(1..) {
        publish(&jetstream, headers, format!("body {number}")).await;
        subscription.reject(&next(&subscription).await, &poison()).await.unwrap();
    }
    let letters = dead(&jetstream).await;
    assert_eq!(letters.len(), 4, "{letters:?}");
    for (letter, number) in letters.iter().zip(1..) {
        assert_eq!(letter.payload, format!("body {number}"));
        for (name, value) in [
            ("stream", "orders"),
            ("subject", "orders"),
            ("sequence", &*number.to_string()),
            ("group", "billing"),
            ("reason", "Invalid: no order"),
        ] {
            assert_eq!(says(letter, &format!("postrider-dead-{name}")), Some(value));
        }
        let orders =
            letter.headers.iter().filter(|(name, _)| name.to_string().starts_with("Nats-"));
        assert_eq!(orders.count(), 1, "its own id: {:?}", letter.headers);
    }
    assert_eq!(says(&letters[0], "x-kept"), Some("as it is"));
}

/// R093, INV-1: a stream that is made anew has another message at the same place, and the stream of dead letters does not
/// take it for the one before.
#[tokio::test]
async fn a_stream_that_is_made_anew_has_dead_letters_of_its_own() {
    let Some(server) = Server::start() else { return };
    server.stream("dead", "dead").await;
    let jetstream = server.jetstream().await;
    for body in ["before", "after"] {
        server.stream("orders", "orders").await;
        publish(&jetstream, &[], body.to_owned()).await;
        let subscription = group(server.settings()).await;
        subscription.reject(&next(&subscription).await, &poison()).await.unwrap();
        jetstream.delete_stream("orders").await.unwrap();
    }
    let letters = dead(&jetstream).await;
    let bodies: Vec<_> = letters.iter().map(|letter| &letter.payload[..]).collect();
    assert_eq!(bodies, [&b"before"[..], b"after"]);
}

/// INV-1: an acknowledgement without a place in the stream of dead letters keeps nothing, and the message is not let go for
/// it.
#[tokio::test]
async fn a_promise_without_a_place_keeps_no_dead_letter() {
    let Some(server) = Server::start() else { return };
    let source = server.stream("orders", "orders").await;
    let elsewhere = server.stream("dead", "dead").await;
    let jetstream = server.jetstream().await;
    let subscription = group(server.settings()).await;
    // From now on somebody else answers.
    let mut config = elsewhere.cached_info().config.clone();
    config.subjects = vec!["elsewhere".to_owned()];
    jetstream.update_stream(config).await.unwrap();
    let (copy, other, kept) = (
        r#"{"stream":"dead","seq":0,"duplicate":true}"#,
        r#"{"stream":"dead","seq":0}"#,
        r#"{"stream":"dead","seq":7}"#,
    );
    answers(&server, "dead", [copy, other, kept]).await;
    publish(&jetstream, &[], "body".to_owned()).await;
    let delivery = next(&subscription).await;
    let unsettled = async || source.consumer_info("billing").await.unwrap().num_ack_pending;
    for _ in 0..2 {
        let refused = subscription.reject(&delivery, &poison()).await.unwrap_err();
        assert!(refused.to_string().contains("no place for it yet"), "{refused}");
        assert_eq!(unsettled().await, 1);
    }
    subscription.reject(&delivery, &poison()).await.unwrap();
    assert_eq!(unsettled().await, 0);
}

/// R093, F20: a message that the server, or the stream of dead letters, has no room for beside its reason is let go all the
/// same: its place is kept, where it can be read.
#[tokio::test]
async fn a_message_too_large_for_its_dead_letter_leaves_its_place() {
    for (config, message_size, bytes) in [("max_payload: 65536", -1, 65_400), ("", 10_000, 20_000)]
    {
        let Some(server) = Server::with(config) else { return };
        server.stream("orders", "orders").await;
        let of_dead = stream::Config { max_message_size: message_size, ..named("dead") };
        server.stream_of(of_dead).await;
        let jetstream = server.jetstream().await;
        let subscription = group(server.settings()).await;
        for body in ["x".repeat(bytes), "small".to_owned()] {
            publish(&jetstream, &[("x-kept", "1")], body).await;
            subscription.reject(&next(&subscription).await, &poison()).await.unwrap();
        }
        let letters = dead(&jetstream).await;
        let [place, whole] = &letters[..] else { panic!("{letters:?}") };
        assert!(place.payload.is_empty());
        let left_out = says(place, "postrider-dead-left-out").unwrap();
        assert!(left_out.contains("headers and body"), "{left_out}");
        assert_eq!(says(place, "postrider-dead-stream"), Some("orders"));
        assert_eq!(says(place, "postrider-dead-sequence"), Some("1"));
        assert_eq!(says(place, "x-kept"), None);
        assert_eq!((&whole.payload[..], says(whole, "x-kept")), (&b"small"[..], Some("1")));
        assert_eq!(says(whole, "postrider-dead-left-out"), None);
    }
}

/// INV-1: a message that its stream lets go while it is in work is not lost when it is refused: what came is what is kept.
/// Who receives need not be allowed to read the stream, either.
#[tokio::test]
async fn what_its_stream_let_go_becomes_a_dead_letter_all_the_same() {
    let config = "authorization { users = [ { user: all, password: all }, { user: blind, password: blind, \
        permissions: { publish: { deny: \"$JS.API.STREAM.MSG.GET.>\" } } } ] }";
    let Some(server) = Server::with(config) else { return };
    let jetstream = as_all(&server).await;
    for name in ["orders", "dead"] {
        jetstream.create_stream(named(name)).await.unwrap();
    }
    publish(&jetstream, &[("x-kept", "as it is")], "body".to_owned()).await;
    let mut settings = server.settings();
    settings.credentials = Credentials::User { name: "blind".into(), password: "blind".into() };
    let subscription = group(settings).await;
    let delivery = next(&subscription).await;
    let stream = jetstream.get_stream("orders").await.unwrap();
    assert!(stream.delete_message(delivery.receipt.message).await.unwrap());
    subscription.reject(&delivery, &poison()).await.unwrap();
    let letters = dead(&jetstream).await;
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert_eq!(letters[0].payload, "body");
    assert_eq!(says(&letters[0], "x-kept"), Some("as it is"));
    assert_eq!(says(&letters[0], "postrider-dead-sequence"), Some("1"));
}

async fn as_all(server: &Server) -> Context {
    let options = async_nats::ConnectOptions::new().user_and_password("all".into(), "all".into());
    async_nats::jetstream::new(options.connect(server.address()).await.unwrap())
}

/// F36: a user that may not publish where dead letters go is told what to grant, and at once.
#[tokio::test]
async fn what_keeps_a_dead_letter_from_being_written_is_said() {
    let config = "authorization { users = [ { user: all, password: all }, { user: mute, password: mute, \
        permissions: { publish: { deny: \"dead\" } } } ] }";
    let Some(server) = Server::with(config) else { return };
    let jetstream = as_all(&server).await;
    for name in ["orders", "dead"] {
        jetstream.create_stream(named(name)).await.unwrap();
    }
    publish(&jetstream, &[], "body".to_owned()).await;
    let mut settings = server.settings();
    settings.credentials = Credentials::User { name: "mute".into(), password: "mute".into() };
    settings.deadline = Duration::from_secs(30);
    let subscription = group(settings).await;
    let (delivery, begun) = (next(&subscription).await, Instant::now());
    let refused = subscription.reject(&delivery, &poison()).await.unwrap_err();
    assert!(refused.to_string().contains("to `dead`: grant it"), "{refused}");
    assert!(begun.elapsed() < Duration::from_secs(15), "not at the deadline");
}

/// INV-1: a stream remembers the ids of what somebody purged from it, and calls a letter a copy that it does not have any more. What
/// is refused again after that, as where a group begins anew, is kept all the same, and once.
#[tokio::test]
async fn a_dead_letter_whose_copy_was_purged_is_kept_again() {
    let Some(server) = Server::start() else { return };
    let orders = server.stream("orders", "orders").await;
    let letters = server.stream("dead", "dead").await;
    let jetstream = server.jetstream().await;
    publish(&jetstream, &[], "poison".to_owned()).await;
    let refuse = async || {
        let subscription = group(server.settings()).await;
        subscription.reject(&next(&subscription).await, &poison()).await.unwrap();
        orders.delete_consumer("billing").await.unwrap();
    };
    refuse().await;
    // Of what its stream has, no second one is kept.
    refuse().await;
    assert_eq!(dead(&jetstream).await.len(), 1);
    letters.purge().await.unwrap();
    refuse().await;
    let mut info = jetstream.get_stream("dead").await.unwrap();
    assert_eq!(info.info().await.unwrap().state.messages, 1);
}
