//! What the pre-flight at enqueue says of a record, and what the real server says of the same.

use std::sync::Arc;

use postrider_core::{
    Broker, Destination, DestinationId, ErrorKind, Event, Format, NewEvent, Outcome, Outgoing,
    Preflight, Route, Timestamp, TopicRule,
};
use postrider_kafka::{Compression, KafkaBroker};

use crate::server::Server;

/// The topic's own limit, small enough that its records are sent one by one.
const TOPIC_BYTES: u64 = 20_000;
/// What the program's definitions leave below a server's limit for its frame around a record: 1,048,588 bytes is what a
/// server takes by default, and 1,048,000 stands in the definition.
const FRAME_BYTES: u64 = 588;

/// An event whose payload nothing makes smaller, and whose headers weigh something: many short ones, or a long one that
/// is not ASCII. Always of the same moments: a time is written without the zeros at its end, so one now may weigh less.
fn order(bytes: usize, headers: &[(String, String)]) -> Event {
    let mut state = 1u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    let noise: Vec<u8> = (0..bytes).map(|_| random()).collect();
    let mut new = NewEvent::new("order", "42", "order.placed").source("/shop").bytes(noise, "a/b");
    new = new.occurred_at(Timestamp::from_micros(1_700_000_000_123_456));
    for (name, value) in headers {
        new = new.header(name, value);
    }
    let mut event = new.event().clone();
    event.created_at = event.occurred_at;
    event
}

/// Whether the pre-flight lets the event pass to a destination with this limit.
fn passes(event: &Event, format: Format, max: u64) -> bool {
    let route = Route::all("orders".parse().unwrap()).format(format);
    let mut only = Destination::new(DestinationId::new("only").unwrap(), "kafka", vec![route]);
    only.topics = TopicRule::Name;
    only.limits.message_bytes_max = Some(max);
    match Preflight::of(vec![only]).check(event) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
            false
        }
    }
}

/// The largest payload with which it passes.
fn largest(headers: &[(String, String)], format: Format, max: u64) -> usize {
    let (mut passing, mut refused) = (0, usize::try_from(max).unwrap());
    while refused - passing > 1 {
        let middle = usize::midpoint(passing, refused);
        if passes(&order(middle, headers), format, max) {
            passing = middle;
        } else {
            refused = middle;
        }
    }
    passing
}

/// R123: what just fits by the pre-flight of the program's definitions is taken by a server that has the limit which
/// these stand for, in every format and whatever the headers weigh; and what it refuses, at the very limit of the
/// topic, is never taken there.
#[tokio::test]
async fn the_server_takes_what_just_passes_and_not_what_is_refused() {
    let Some(server) = Server::shared().await else { return };
    let limit = TOPIC_BYTES.to_string();
    let topic = server.topic("weighed", 1, &[("max.message.bytes", &limit)]).await;
    let many = (0..30).map(|n| (format!("x-{n:02}"), "a".repeat(n))).collect::<Vec<_>>();
    let long = vec![("x-note".to_owned(), "ü€\"%".repeat(300))];
    let mut taken = 0_i64;
    for compression in [Compression::None, Compression::Gzip] {
        let mut settings = server.settings();
        settings.compression = compression;
        let broker = KafkaBroker::new(settings).unwrap();
        for format in [Format::Structured, Format::Binary, Format::Plain, Format::Debezium] {
            for headers in [&many, &long] {
                let send = async |bytes: usize| {
                    let mut outgoing =
                        Outgoing::new(Arc::new(order(bytes, headers)), topic.as_str());
                    outgoing.format = format;
                    broker.publish(&[outgoing]).await.unwrap().remove(0)
                };
                let least = TOPIC_BYTES - FRAME_BYTES;
                let fits = largest(headers, format, least);
                assert!(!passes(&order(fits + 1, headers), format, least));
                assert_eq!(send(fits).await, Outcome::Acked, "{format}, {fits} bytes");
                taken += 1;
                // Compressed, headers may leave room for more.
                if compression == Compression::None {
                    let outcome = send(largest(headers, format, TOPIC_BYTES) + 1).await;
                    let Outcome::Rejected(fault) = outcome else { panic!("{format}: {outcome:?}") };
                    assert_eq!(fault.kind, ErrorKind::TooLarge, "{fault}");
                }
            }
        }
    }
    assert_eq!(server.count(&topic).await, taken);
}
