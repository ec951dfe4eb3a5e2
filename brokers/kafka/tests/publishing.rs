//! What the real server answers, and what becomes of each event.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postrider_core::{Broker, ErrorKind, Event, Fault, NewEvent, Outcome, Outgoing};
use postrider_kafka::{Compression, KafkaBroker, Notice, Notices, RecordKey, TOMBSTONE};
pub(crate) use postrider_testkit::carry::{event, outgoing};
use rdkafka::admin::AdminOptions;

use crate::server::{Server, unique};

pub(crate) async fn publish(
    broker: &KafkaBroker,
    topic: &str,
    events: &[Arc<Event>],
) -> Vec<Outcome> {
    let batch: Vec<Outgoing> = events.iter().map(|event| outgoing(topic, event)).collect();
    broker.publish(&batch).await.unwrap()
}

/// F22: a topic that is not there is the endpoint's trouble, and as soon as there is one, it goes.
#[tokio::test]
async fn a_topic_that_does_not_exist_is_unroutable() {
    let Some(server) = Server::shared().await else { return };
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let (topic, sent) = (unique("late"), event("1", 1, 10));
    let outcomes = publish(&broker, &topic, &[Arc::clone(&sent)]).await;
    let [Outcome::Unroutable(Fault { kind: ErrorKind::Unroutable, detail })] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert!(detail.contains(&topic) && detail.contains("create it"), "{detail}");
    server.create(&topic, 1, &[]).await;
    assert_eq!(publish(&broker, &topic, &[Arc::clone(&sent)]).await, [Outcome::Acked]);
    assert_eq!(server.ids(&topic).await, [sent.id]);
    // F22: a name that no topic can have is made of the event's own fields.
    let outcomes = publish(&broker, "no topic", &[sent]).await;
    assert!(matches!(&outcomes[..], [Outcome::Rejected(_)]), "{outcomes:?}");
}

/// A topic that is deleted under way: its events wait, and go on in the one that is made anew.
#[tokio::test]
async fn a_topic_that_is_deleted_under_way_is_noticed() {
    let Some(server) = Server::shared().await else { return };
    let topic = server.topic("deleted", 1, &[]).await;
    let broker = KafkaBroker::new(server.settings()).unwrap();
    assert_eq!(publish(&broker, &topic, &[event("1", 1, 10)]).await, [Outcome::Acked]);
    let options = AdminOptions::new();
    server.admin().delete_topics(&[&topic], &options).await.unwrap();
    // The server deletes when it comes to it, and the first call may be caught in the middle.
    for attempt in 0.. {
        let outcomes = publish(&broker, &topic, &[event("1", 2, 10)]).await;
        if matches!(&outcomes[..], [Outcome::Unroutable(_)]) {
            break;
        }
        assert!(attempt < 1_000, "{outcomes:?}");
    }
    server.create(&topic, 1, &[]).await;
    let sent = event("1", 2, 10);
    for attempt in 0.. {
        let outcomes = publish(&broker, &topic, &[Arc::clone(&sent)]).await;
        if outcomes == [Outcome::Acked] {
            break;
        }
        assert!(attempt < 5, "{outcomes:?}");
    }
    assert_eq!(server.ids(&topic).await, [sent.id]);
}

/// R057, R095, F18, F20: what is over the topic's limit is refused alone, with both numbers, and its neighbours go
/// on, also those that were refused with it in one request.
#[tokio::test]
async fn a_record_too_large_is_refused_and_its_neighbours_go_on() {
    let Some(server) = Server::shared().await else { return };
    let topic = server.topic("small", 1, &[("max.message.bytes", "10000")]).await;
    // What is compressed, only the server can tell; the other way it is known before.
    for compression in [Compression::Gzip, Compression::None] {
        let mut settings = server.settings();
        settings.compression = compression;
        let broker = KafkaBroker::new(settings).unwrap();
        let mut state = 1u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[0]
        };
        let noise: Vec<u8> = (0..20_000).map(|_| random()).collect();
        let large =
            NewEvent::new("order", "5", "order.changed").source("/shop").bytes(noise, "a/b");
        let mut events: Vec<_> = (0..10).map(|n| event(&n.to_string(), n, 3_000)).collect();
        events[5] = Arc::new(large.event().clone());
        let outcomes = publish(&broker, &topic, &events).await;
        for (n, outcome) in outcomes.iter().enumerate() {
            match n {
                5 => {
                    let Outcome::Rejected(fault) = outcome else { panic!("{outcome:?}") };
                    assert_eq!(fault.kind, ErrorKind::TooLarge);
                    assert!(fault.detail.contains("10000"), "{fault}");
                    assert!(fault.detail.contains("max.message.bytes"), "{fault}");
                }
                _ => assert_eq!(*outcome, Outcome::Acked, "{n}"),
            }
        }
    }
    assert_eq!(server.count(&topic).await, 18);
}

/// R057, F21: a compacted topic refuses what has no key for good, which is said in words, and takes what has one.
#[tokio::test]
async fn a_compacted_topic_refuses_records_without_a_key() {
    let Some(server) = Server::shared().await else { return };
    let topic = server.topic("compacted", 1, &[("cleanup.policy", "compact")]).await;
    let mut settings = server.settings();
    settings.record_key = RecordKey::none();
    let broker = KafkaBroker::new(settings).unwrap();
    assert!(!broker.capabilities().keeps_key_order);
    let outcomes = publish(&broker, &topic, &[event("1", 1, 10), event("2", 1, 10)]).await;
    for outcome in &outcomes {
        let Outcome::Rejected(fault) = outcome else { panic!("{outcome:?}") };
        assert!(fault.detail.contains("without a key"), "{fault}");
    }
    // The client that was refused goes on.
    let plain = server.topic("plain", 1, &[]).await;
    assert_eq!(publish(&broker, &plain, &[event("1", 1, 10)]).await, [Outcome::Acked]);
    let keyed = KafkaBroker::new(server.settings()).unwrap();
    assert_eq!(publish(&keyed, &topic, &[event("1", 1, 10)]).await, [Outcome::Acked]);
}

/// A tombstone is a record without a value; an empty payload is none.
#[tokio::test]
async fn a_tombstone_is_a_record_without_a_value() {
    let Some(server) = Server::shared().await else { return };
    let topic = server.topic("compacted", 1, &[("cleanup.policy", "compact")]).await;
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let empty =
        || NewEvent::new("order", "42", "order.erased").source("/shop").bytes(vec![], "a/b");
    let gone = Arc::new(empty().header(TOMBSTONE, "true").event().clone());
    let kept = Arc::new(empty().event().clone());
    assert_eq!(publish(&broker, &topic, &[gone]).await, [Outcome::Acked]);
    assert_eq!(publish(&broker, &topic, &[kept]).await, [Outcome::Acked]);
    let stored = server.stored(&topic).await;
    assert_eq!(stored[0].value, None);
    assert_eq!(stored[1].value.as_deref(), Some(&b""[..]));
    for stored in &stored {
        assert_eq!(stored.key.as_deref(), Some(&b"42"[..]));
        assert_eq!(stored.header("ce_type"), Some("order.erased"));
        assert_eq!(stored.header("content-type"), Some("a/b"));
    }
}

/// Vectors of Kafka's own tests of its hash (`UtilsTest`).
pub(crate) const MURMUR2: [(&str, i32); 6] = [
    ("21", -973_932_308),
    ("foobar", -790_332_482),
    ("a-little-bit-long-string", -985_981_536),
    ("a-little-bit-longer-string", -1_486_304_829),
    ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
    ("abc", 479_470_107),
];

/// R070: a record's partition is the one that the Java client chooses.
#[tokio::test]
async fn partitions_are_those_of_the_java_client() {
    const PARTITIONS: i32 = 13;
    let Some(server) = Server::shared().await else { return };
    let topic = server.topic("keyed", PARTITIONS, &[]).await;
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let events = MURMUR2.map(|(key, _)| event(key, 1, 10));
    assert_eq!(publish(&broker, &topic, &events).await, vec![Outcome::Acked; events.len()]);
    let stored = server.stored(&topic).await;
    for (key, hash) in MURMUR2 {
        let record = stored.iter().find(|stored| stored.key.as_deref() == Some(key.as_bytes()));
        assert_eq!(record.unwrap().partition, (hash & 0x7fff_ffff) % PARTITIONS, "{key}");
    }
}

/// R070: partitions that are added under way are used as soon as they are noticed, and the moment is told, once; the
/// events of a key were sent one after the other.
#[tokio::test]
async fn partitions_that_are_added_are_used() {
    let Some(server) = Server::shared().await else { return };
    let topic = server.topic("grows", 1, &[]).await;
    let mut settings = server.settings();
    settings.refresh = Duration::from_secs(1);
    let told = Arc::new(Mutex::new(Vec::new()));
    settings.notices = Notices::to({
        let told = Arc::clone(&told);
        move |notice| told.lock().unwrap().push(notice.clone())
    });
    let broker = KafkaBroker::new(settings).unwrap();
    let events = |n| (0..40).map(|key| event(&key.to_string(), n, 10)).collect::<Vec<_>>();
    assert_eq!(publish(&broker, &topic, &events(1)).await, vec![Outcome::Acked; 40]);
    server.add_partitions(&topic, 4).await;
    let mut sent = vec![events(1)];
    let begun = Instant::now();
    for round in 2.. {
        let events = events(round);
        assert_eq!(publish(&broker, &topic, &events).await, vec![Outcome::Acked; 40]);
        sent.push(events);
        let stored = server.stored(&topic).await;
        let everywhere =
            (0..4).all(|partition| stored.iter().any(|stored| stored.partition == partition));
        if everywhere && !told.lock().unwrap().is_empty() {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "they are not used");
    }
    // Once more: nothing new is to be told.
    assert_eq!(publish(&broker, &topic, &events(0)).await, vec![Outcome::Acked; 40]);
    let expected = Notice::PartitionsAdded { topic: topic.clone(), before: 1, now: 4 };
    assert_eq!(*told.lock().unwrap(), [expected]);
    assert_eq!(server.stored(&topic).await.len(), 40 * (sent.len() + 1));
}

/// INV-8: a topic that wants more replicas in sync than it has is taken as its server takes it: with all that there are.
#[tokio::test]
async fn more_replicas_wanted_than_there_are_hold_nothing_up() {
    let Some(server) = Server::shared().await else { return };
    let topic = server.topic("strict", 1, &[("min.insync.replicas", "2")]).await;
    let broker = KafkaBroker::new(server.settings()).unwrap();
    let outcomes = publish(&broker, &topic, &[event("1", 1, 10)]).await;
    assert_eq!(outcomes, [Outcome::Acked]);
    assert_eq!(server.count(&topic).await, 1);
}
