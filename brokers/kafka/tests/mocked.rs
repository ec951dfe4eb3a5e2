//! Answers that a real cluster rarely gives, from the library's own imitation of one.

use std::time::Duration;

use postrider_core::{Broker, Outcome};
use postrider_kafka::{KafkaBroker, KafkaSettings};
use rdkafka::mocking::MockCluster;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use crate::publishing::{event, outgoing};

/// Publishes one event, and again until it is acknowledged. What became of it each time.
async fn carry(broker: &KafkaBroker, n: u32) -> Vec<Outcome> {
    let batch = [outgoing("orders", &event("1", n, 10))];
    let mut outcomes = Vec::new();
    for _ in 0..10 {
        match broker.publish(&batch).await {
            Ok(mut came) => outcomes.push(came.remove(0)),
            // Another machine's load: it was not connected in time.
            Err(error) => assert_eq!(error.kind(), postrider_core::ErrorKind::Unavailable),
        }
        if outcomes.last() == Some(&Outcome::Acked) {
            return outcomes;
        }
    }
    panic!("{outcomes:?}");
}

fn settings(cluster: &MockCluster<'static, impl rdkafka::ClientContext>) -> KafkaSettings {
    let mut settings = KafkaSettings::new(&cluster.bootstrap_servers());
    settings.deadline = Duration::from_secs(3);
    settings
}

/// A gap that the client cannot close ends it for good; a new one takes its place, and the event that was
/// refused is not said to be there.
#[tokio::test]
async fn a_client_that_gave_up_for_good_is_replaced() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 1, 1).unwrap();
    let broker = KafkaBroker::new(settings(&cluster)).unwrap();
    assert_eq!(carry(&broker, 1).await.last(), Some(&Outcome::Acked));
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
    cluster.request_errors(RDKafkaApiKey::Produce, &[error]);
    let outcomes = carry(&broker, 2).await;
    assert!(matches!(outcomes[0], Outcome::Retry { .. }), "{outcomes:?}");
    assert_eq!(carry(&broker, 3).await, [Outcome::Acked], "and it goes on");
}

/// F25: what a cluster suffers from passes, and kills no event.
#[tokio::test]
async fn what_passes_is_waited_for() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("orders", 1, 1).unwrap();
    let broker = KafkaBroker::new(settings(&cluster)).unwrap();
    carry(&broker, 1).await;
    for error in [
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR__TRANSPORT,
    ] {
        cluster.request_errors(RDKafkaApiKey::Produce, &[error, error]);
        let outcomes = carry(&broker, 2).await;
        let (last, before) = outcomes.split_last().unwrap();
        assert_eq!(*last, Outcome::Acked);
        assert!(
            before.iter().all(|it| matches!(it, Outcome::Retry { .. })),
            "{error:?}: {before:?}"
        );
    }
    // Who may not write has a person to ask, not a retry to wait for.
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    cluster.request_errors(RDKafkaApiKey::Produce, &[error]);
    let batch = [outgoing("orders", &event("1", 3, 10))];
    let outcomes = broker.publish(&batch).await.unwrap();
    let [Outcome::Unroutable(fault)] = &outcomes[..] else { panic!("{outcomes:?}") };
    assert!(fault.detail.contains("WRITE"), "{fault}");
}
