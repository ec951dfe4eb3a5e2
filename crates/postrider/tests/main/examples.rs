//! The examples, run as a person runs them: each asserts its own result.

#[expect(dead_code, reason = "its main is for cargo run")]
#[path = "../../examples/both.rs"]
mod both;
#[expect(dead_code, reason = "its main is for cargo run")]
#[path = "../../examples/consumer.rs"]
mod consumer;
#[expect(dead_code, reason = "its main is for cargo run")]
#[path = "../../examples/producer.rs"]
mod producer;

/// R006, R024: the outbox alone, with no broker anywhere.
#[test]
fn a_producer_needs_no_consumer_and_no_broker() {
    producer::run().unwrap();
}

/// R006: the inbox alone, behind somebody else's events.
#[tokio::test]
async fn a_consumer_needs_no_outbox() {
    consumer::run().await.unwrap();
}

/// R006, R007: marker, business row, and new event commit together or not at all.
#[tokio::test]
async fn consuming_and_producing_share_one_transaction() {
    both::run().await.unwrap();
}
