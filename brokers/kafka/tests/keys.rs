//! Whose turn it is where records say it by their key alone.

use std::time::Duration;

use postrider_core::{EventId, Subscription};
use postrider_kafka::{KafkaSubscription, SubscriptionSettings};
use rdkafka::config::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use tokio::task::spawn_blocking;

use crate::server::{Server, unique};
use crate::subscribing::{ids, receive};

/// A key that is no text.
const BYTES: &[u8] = &[0, 0, 0, 200];

/// Sends records of those keys as a CloudEvent without `subject`, and, where the number is odd, as Debezium's router
/// does. What they are, in their order.
async fn send(server: &Server, topic: &str, keys: &'static [&'static [u8]]) -> Vec<EventId> {
    let (address, topic) = (server.address(), topic.to_owned());
    let ids: Vec<EventId> = keys.iter().map(|_| EventId::mint()).collect();
    let sent = ids.clone();
    let send = move || {
        let producer: ThreadedProducer<DefaultProducerContext> =
            ClientConfig::new().set("bootstrap.servers", address).create().unwrap();
        for (nth, (key, id)) in keys.iter().zip(&sent).enumerate() {
            let id = id.to_string();
            let event = [
                ("ce_specversion", "1.0"),
                ("ce_id", &*id),
                ("ce_source", "/s"),
                ("ce_type", "order.placed"),
            ];
            let pairs = if nth % 2 == 1 { &[("id", &*id)][..] } else { &event };
            let headers = pairs.iter().fold(OwnedHeaders::new(), |all, (key, value)| {
                all.insert(Header { key, value: Some(*value) })
            });
            let record = BaseRecord::to(&topic).key(*key).payload("{}").headers(headers);
            producer.send(record).unwrap();
        }
        producer.flush(Duration::from_secs(20)).unwrap();
    };
    spawn_blocking(send).await.unwrap();
    ids
}

/// R070: of somebody else's records of one key, which say nothing else to be ordered by, one is at work at a time, also
/// where the key is no text.
#[tokio::test]
async fn records_of_one_key_take_turns() {
    let Some(server) = Server::shared().await else { return };
    let topic = server.topic("keys", 1, &[]).await;
    let sent = send(&server, &topic, &[b"42", BYTES, b"42", BYTES, b"43"]).await;
    let settings = SubscriptionSettings::new(&topic, &unique("keys"));
    let subscription = KafkaSubscription::open(server.settings(), settings).await.unwrap();
    let deliveries = receive(&subscription, 3).await;
    assert_eq!(ids(&deliveries), [sent[0], sent[1], sent[4]], "the first of each key");
    for (done, next) in [(0, 2), (1, 3)] {
        subscription.ack(&deliveries[done]).await.unwrap();
        assert_eq!(ids(&receive(&subscription, 1).await), [sent[next]]);
    }
}
