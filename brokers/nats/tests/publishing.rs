//! What the real server answers, and what becomes of each event.

use std::ops::RangeInclusive;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream;
use async_nats::jetstream::consumer::pull::OrderedConfig;
use async_nats::jetstream::stream::{self, DiscardPolicy};
use futures_util::StreamExt as _;
use postrider_core::{Broker, ErrorKind, EventId, Fault, Marks, Outcome, Outgoing};
use postrider_nats::{Credentials, NatsBroker, NatsSettings};
use postrider_testkit::carry::until_acked;
pub(crate) use postrider_testkit::carry::{event, outgoing};
use tokio::time::{Instant, sleep, timeout};

use crate::server::Server;

/// Messages up to which each is asked for by itself. A consumer has thousands for less, and takes its time to begin.
const FEW: u64 = 200;

/// How long a server may take that has just begun, or has to catch up with others.
const PATIENCE: Duration = Duration::from_secs(60);

/// The events in a stream, in its order, those too that were sent a second time under an id of their own: what the
/// stream has under the first one could not be looked at in time.
pub(crate) async fn stored(stream: &stream::Stream) -> Vec<EventId> {
    let state = stream.get_info().await.unwrap().state;
    let all = state.first_sequence..=state.last_sequence;
    if state.messages > FEW {
        return in_batches(stream, all).await;
    }
    let mut ids = Vec::new();
    for sequence in all {
        ids.push(id_of(&stream.get_raw_message(sequence).await.unwrap().headers));
    }
    ids
}

fn id_of(headers: &HeaderMap) -> EventId {
    let id = headers.get("Nats-Msg-Id").unwrap().as_str();
    let (of_event, _) = id.split_once('/').unwrap_or((id, ""));
    of_event.parse().unwrap()
}

/// The same of many, in batches: each of them has to be there, by its number.
async fn in_batches(stream: &stream::Stream, all: RangeInclusive<u64>) -> Vec<EventId> {
    let begun = Instant::now();
    let consumer = loop {
        // What events say is not looked at.
        let wanted = OrderedConfig { headers_only: true, ..OrderedConfig::default() };
        match stream.create_consumer(wanted).await {
            Ok(consumer) => break consumer,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
        // waits: servers that look for a leader tell nobody when they have one
        sleep(Duration::from_millis(100)).await;
    };
    let mut messages = consumer.messages().await.unwrap();
    let mut ids = Vec::new();
    for sequence in all {
        let message = timeout(PATIENCE, messages.next()).await.expect("the next one");
        let message = message.expect("a consumer has no end").unwrap();
        assert_eq!(message.info().unwrap().stream_sequence, sequence);
        ids.push(id_of(message.headers.as_ref().unwrap()));
    }
    ids
}

/// F22, R067: a subject that no stream takes is the endpoint's trouble, and nothing is sent into the void.
#[tokio::test]
async fn a_subject_without_a_stream_is_unroutable() {
    let Some(server) = Server::start() else { return };
    let broker = NatsBroker::new(server.settings()).unwrap();
    let sent = event("1", 1, 10);
    let outcomes = broker.publish(&[outgoing("orders.new", &sent)]).await.unwrap();
    let [Outcome::Unroutable(Fault { kind: ErrorKind::Unroutable, detail })] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert!(detail.contains("orders.new") && detail.contains("create one"), "{detail}");
    // As soon as there is one, it goes.
    let stream = server.stream("orders", "orders.*").await;
    let outcomes = broker.publish(&[outgoing("orders.new", &sent)]).await.unwrap();
    assert_eq!(outcomes, [Outcome::Acked]);
    assert_eq!(stored(&stream).await, [sent.id]);
}

/// Of several servers one that is away when the program starts is passed over.
#[tokio::test]
async fn a_server_that_is_away_from_the_beginning_is_passed_over() {
    let Some(server) = Server::start() else { return };
    let stream = server.stream("orders", "orders.*").await;
    // Let go again: nobody listens there.
    let away = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = format!("nats://{away},127.0.0.1:{}", server.port());
    let broker = NatsBroker::new(NatsSettings::new(text)).unwrap();
    let sent = event("1", 1, 10);
    until_acked(&broker, "orders.new", &sent).await;
    assert_eq!(stored(&stream).await, [sent.id]);
}

/// R057: a server that was told to take more does not say so to who is connected. A dead letter that is sent again is not
/// refused for what it said before, and one that is too large still is.
#[tokio::test]
async fn a_limit_that_was_raised_is_heard_of() {
    let (low, high) = ("max_payload: 2000", "max_payload: 50000");
    for allow_lossy in [false, true] {
        let Some(server) = Server::with(low) else { return };
        server.stream("orders", "orders").await;
        let mut settings = server.settings();
        settings.allow_lossy = allow_lossy;
        let broker = NatsBroker::new(settings).unwrap();
        let (large, larger) = (event("1", 1, 10_000), event("2", 1, 90_000));
        let batch = [outgoing("orders", &large), outgoing("orders", &larger)];
        let refused = |outcome: &Outcome| matches!(outcome, Outcome::Rejected(fault) if fault.kind == ErrorKind::TooLarge);
        assert!(broker.publish(&batch).await.unwrap().iter().all(refused));
        let path = server.folder().join("nats.conf");
        let config = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, config.replace(low, high)).unwrap();
        assert!(server.signal("-HUP"));
        let begun = Instant::now();
        while async_nats::connect(server.address()).await.unwrap().max_payload() < 50_000 {
            assert!(begun.elapsed() < Duration::from_secs(20), "{}", server.log());
        }
        assert_eq!(broker.publish(&batch).await.unwrap(), [Outcome::Skipped, Outcome::Skipped]);
        let outcomes = broker.publish(&batch).await.unwrap();
        assert!(outcomes[0] == Outcome::Acked && refused(&outcomes[1]), "{outcomes:?}");
    }
}

/// R057, R095, F18, F20: what the stream or the server refuses for good is refused alone, in the server's words.
#[tokio::test]
async fn a_message_too_large_is_refused_and_its_neighbours_go_on() {
    let Some(server) = Server::with("max_payload: 65536") else { return };
    let config = stream::Config {
        name: "orders".to_owned(),
        subjects: vec!["orders".to_owned()],
        max_message_size: 10_000,
        ..stream::Config::default()
    };
    let stream = server.stream_of(config).await;
    let broker = NatsBroker::new(server.settings()).unwrap();
    let events =
        [event("1", 1, 10), event("2", 1, 20_000), event("3", 1, 90_000), event("4", 1, 10)];
    let batch: Vec<Outgoing> = events.iter().map(|event| outgoing("orders", event)).collect();
    let outcomes = broker.publish(&batch).await.unwrap();
    assert_eq!((&outcomes[0], &outcomes[3]), (&Outcome::Acked, &Outcome::Acked));
    for (outcome, words) in [(&outcomes[1], "maximum"), (&outcomes[2], "max_payload")] {
        let Outcome::Rejected(fault) = outcome else { panic!("{outcome:?}") };
        assert_eq!(fault.kind, ErrorKind::TooLarge);
        assert!(fault.detail.contains(words), "{fault}");
    }
    assert_eq!(stored(&stream).await, [events[0].id, events[3].id]);
}

/// F25: a stream that is full takes nothing and kills nothing; with room it goes on.
#[tokio::test]
async fn a_full_stream_is_the_endpoints_trouble() {
    let Some(server) = Server::start() else { return };
    let full = stream::Config {
        name: "orders".to_owned(),
        subjects: vec!["orders".to_owned()],
        max_messages: 2,
        discard: DiscardPolicy::New,
        ..stream::Config::default()
    };
    let stream = server.stream_of(full).await;
    let broker = NatsBroker::new(server.settings()).unwrap();
    let events: Vec<_> = (0..3).map(|n| event(&n.to_string(), 1, 10)).collect();
    let batch: Vec<Outgoing> = events.iter().map(|event| outgoing("orders", event)).collect();
    let outcomes = broker.publish(&batch).await.unwrap();
    let Outcome::Unroutable(fault) = &outcomes[2] else { panic!("{outcomes:?}") };
    assert_eq!(fault.kind, ErrorKind::Backpressure);
    assert!(fault.detail.contains("maximum messages"), "{fault}");
    stream.purge().await.unwrap();
    let outcomes = broker.publish(&batch[2..]).await.unwrap();
    assert_eq!(outcomes, [Outcome::Acked]);
}

/// R061: an event that is sent again under its id is stored once within the stream's window.
#[tokio::test]
async fn a_copy_is_dropped_by_the_stream() {
    let Some(server) = Server::start() else { return };
    let stream = server.stream("orders", "orders").await;
    let broker = NatsBroker::new(server.settings()).unwrap();
    let sent = event("1", 1, 10);
    for _ in 0..3 {
        let outcomes = broker.publish(&[outgoing("orders", &sent)]).await.unwrap();
        assert_eq!(outcomes, [Outcome::Acked]);
    }
    assert_eq!(stored(&stream).await, [sent.id]);
}

/// R061: two destinations may send an event to two subjects of one stream, which knows ids and no subjects. Each
/// subject has it, once, however often it is sent; also where the stream has let go of the first.
#[tokio::test]
async fn each_subject_of_a_stream_has_the_event() {
    let Some(server) = Server::start() else { return };
    let stream = server.stream("orders", "orders.*").await;
    let broker = NatsBroker::new(server.settings()).unwrap();
    let sent = event("1", 1, 10);
    for _ in 0..2 {
        for subject in ["orders.new", "orders.audit"] {
            let outcomes = broker.publish(&[outgoing(subject, &sent)]).await.unwrap();
            assert_eq!(outcomes, [Outcome::Acked]);
        }
    }
    let mut subjects = Vec::new();
    for sequence in 1..=2 {
        subjects.push(stream.get_raw_message(sequence).await.unwrap().subject.to_string());
    }
    assert_eq!(subjects, ["orders.new", "orders.audit"]);
    assert_eq!(stream.get_info().await.unwrap().state.last_sequence, 2, "and no more");
    let next = event("2", 1, 10);
    for subject in ["orders.new", "orders.audit"] {
        let outcomes = broker.publish(&[outgoing(subject, &next)]).await.unwrap();
        assert_eq!(outcomes, [Outcome::Acked]);
        stream.purge().await.unwrap();
    }
    assert_eq!(stream.get_info().await.unwrap().state.last_sequence, 4);
}

/// A stream that renames subjects shows no message under the one that it was sent to. What is sent again is there once more,
/// since it looks like another destination's, and then no more; before, the third try was told to wait until the window ended.
#[tokio::test]
async fn a_stream_that_renames_subjects_takes_what_comes_again() {
    let Some(server) = Server::start() else { return };
    let transform = stream::SubjectTransform {
        source: "orders.*".to_owned(),
        destination: "shop.orders.{{wildcard(1)}}".to_owned(),
    };
    let config = stream::Config {
        name: "orders".to_owned(),
        subjects: vec!["orders.*".to_owned()],
        subject_transform: Some(transform),
        ..stream::Config::default()
    };
    let stream = server.stream_of(config).await;
    let broker = NatsBroker::new(server.settings()).unwrap();
    let sent = event("1", 1, 10);
    for _ in 0..4 {
        let outcomes = broker.publish(&[outgoing("orders.new", &sent)]).await.unwrap();
        assert_eq!(outcomes, [Outcome::Acked]);
    }
    assert!(stored(&stream).await.len() <= 2);
}

/// INV-1: a user that may not look at what the stream has is not asked to wait for it: the event is sent once more under an
/// id of its own, and is acknowledged within the shortest deadline too.
#[tokio::test]
async fn a_copy_that_cannot_be_looked_at_is_sent_once_more() {
    let config = r#"authorization { users = [ { user: all, password: all },
        { user: few, password: few, permissions: { publish: { deny: "$JS.API.STREAM.MSG.GET.>" } } } ] }"#;
    let Some(server) = Server::with(config) else { return };
    let options = async_nats::ConnectOptions::new().user_and_password("all".into(), "all".into());
    let jetstream = jetstream::new(options.connect(server.address()).await.unwrap());
    let config = stream::Config {
        name: "orders".to_owned(),
        subjects: vec!["orders".to_owned()],
        ..stream::Config::default()
    };
    let stream = jetstream.create_stream(config).await.unwrap();
    let sent = event("1", 1, 10);
    for deadline in [Duration::from_secs(30), Duration::from_secs(1)] {
        let mut settings = server.settings();
        settings.credentials = Credentials::User { name: "few".into(), password: "few".into() };
        settings.deadline = deadline;
        let broker = NatsBroker::new(settings).unwrap();
        let begun = Instant::now();
        for _ in 0..2 {
            let outcomes = broker.publish(&[outgoing("orders", &sent)]).await.unwrap();
            assert_eq!(outcomes, [Outcome::Acked], "{deadline:?}");
        }
        assert!(begun.elapsed() < Duration::from_secs(15), "not at the deadline");
        assert_eq!(stored(&stream).await, [sent.id; 2], "{deadline:?}");
    }
}

/// R061: a whole batch that another subject has already, side by side: each event has its own answer.
#[tokio::test]
async fn a_batch_of_copies_is_told_apart() {
    let Some(server) = Server::start() else { return };
    let stream = server.stream("orders", "orders.*").await;
    let broker = NatsBroker::new(server.settings()).unwrap();
    let events: Vec<_> = (0..300).map(|n| event(&n.to_string(), 1, 10)).collect();
    let to = |subject: &str, from: usize| -> Vec<Outgoing> {
        events[from..].iter().map(|event| outgoing(subject, event)).collect()
    };
    // The second hundred is there under its own subject, the rest under another, and the first not at all.
    for batch in [&to("orders.new", 100)[..100], &to("orders.audit", 200), &to("orders.new", 0)] {
        let outcomes = broker.publish(batch).await.unwrap();
        assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Acked), "{outcomes:?}");
    }
    let mut of_new = Vec::new();
    let state = stream.get_info().await.unwrap().state;
    for sequence in 1..=state.last_sequence {
        let message = stream.get_raw_message(sequence).await.unwrap();
        if *message.subject == *"orders.new" {
            of_new.push(message.headers.get("ce-id").unwrap().as_str().to_owned());
        }
    }
    let mut all: Vec<String> = events.iter().map(|event| event.id.to_string()).collect();
    all.sort();
    of_new.sort();
    assert_eq!(of_new, all);
}

/// What an operator has sent again is stored again, within the window too: nobody would wait for what the stream
/// drops in silence.
#[tokio::test]
async fn what_is_sent_again_on_purpose_is_stored_again() {
    let Some(server) = Server::start() else { return };
    let stream = server.stream("orders", "orders").await;
    let broker = NatsBroker::new(server.settings()).unwrap();
    let sent = event("1", 1, 10);
    let (once, late) = (Marks::default(), Marks { late: true, replay: false });
    let replay = Marks { late: false, replay: true };
    for marks in [once, once, late, late, replay] {
        let again = Outgoing { marks, ..outgoing("orders", &sent) };
        assert_eq!(broker.publish(&[again]).await.unwrap(), [Outcome::Acked]);
    }
    assert_eq!(stream.get_info().await.unwrap().state.messages, 4, "one copy was dropped");
}

/// R067: core NATS only where it is allowed, and then without a word about durability.
#[tokio::test]
async fn core_nats_keeps_nothing_and_says_so() {
    let Some(server) = Server::start() else { return };
    let mut settings = server.settings();
    settings.allow_lossy = true;
    let broker = NatsBroker::new(settings).unwrap();
    assert!(!broker.capabilities().durable);
    let sent = event("1", 1, 10);
    // Nobody listens: it is gone, and that is what was allowed.
    let outcomes = broker.publish(&[outgoing("orders", &sent)]).await.unwrap();
    assert_eq!(outcomes, [Outcome::Acked]);
    let client = async_nats::connect(server.address()).await.unwrap();
    let mut listener = client.subscribe("orders").await.unwrap();
    // Heard back by the same connection: the subscription stands.
    client.publish("orders", "heard".into()).await.unwrap();
    futures_util::StreamExt::next(&mut listener).await.unwrap();
    broker.publish(&[outgoing("orders", &sent)]).await.unwrap();
    let heard =
        tokio::time::timeout(Duration::from_secs(5), futures_util::StreamExt::next(&mut listener));
    let heard = heard.await.unwrap().unwrap();
    assert_eq!(heard.headers.unwrap().get("ce-id").unwrap().as_str(), sent.id.to_string());
}
